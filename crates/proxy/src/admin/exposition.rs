//! All metrics at a time, for Prometheus and for collectors. What a metric is called and means
//! stands above the function that reads it.

use tidegate_fleet::FleetStatus;
use tidegate_sentry::{BrownoutReplica, BrownoutStatus, ClassStatus, ReplicaStatus, Status};

use super::Operator;
use super::process as usage;
use super::shadow;
use crate::application::Application;
use crate::channel::ChannelStatus;
use crate::config::Companion;
use crate::metrics::family::{Page, metrics};
use crate::metrics::{
    Direction, Family, Metric, Outcome, Snapshot, Totals, TurnedAway, UpstreamFailure,
};
use crate::reload::ReloadStatus;
use crate::trace::Traces;

/// Every metric there is, for the reference.
pub(super) fn catalogue() -> Vec<&'static Metric> {
    let lists = [
        COMPANION_METRICS,
        shadow::SHADOW_METRICS,
        EDGE_METRICS,
        FLEET_METRICS,
        PROCESS_METRICS,
        DEFERRAL_METRICS,
        PER_CLASS_METRICS,
        BY_REASON_METRICS,
        DECISIONS_METRICS,
        CONTRACTS_METRICS,
        POLICING_METRICS,
        TIMES_METRICS,
        ENGINE_METRICS,
        CONTROLLER_METRICS,
        BROWNOUT_METRICS,
        PER_BROWNOUT_REPLICA_METRICS,
        PER_REPLICA_METRICS,
        REPLICAS_METRICS,
        TOKENS_METRICS,
        CONNECTIONS_METRICS,
        REQUESTS_METRICS,
        ACCESS_LOG_METRICS,
        RELOADS_METRICS,
        TRACES_METRICS,
        usage::PROCESS_USAGE_METRICS,
    ];
    lists.into_iter().flatten().copied().collect()
}

/// The metrics of the proxy as they are now.
pub(super) fn families(operator: &Operator) -> Vec<Family> {
    let state = &operator.state;
    let totals = state.metrics().totals();
    let mut page = Page::default();
    process(&mut page, operator);
    let applications = state.applications();
    for application in applications.iter() {
        page.set_application(Some(application.name()));
        self::application(&mut page, application);
    }
    page.set_application(None);
    if applications.single().is_none() {
        requests(&mut page, &totals);
    }
    connections(&mut page, &totals);
    access_log(&mut page, operator, &totals);
    reloads(&mut page, &operator.reloader.status());
    traces(&mut page, state.traces());
    if let Some(status) = operator.fleet_status() {
        fleet(&mut page, &status);
    }
    page.finish()
}

fn application(page: &mut Page, application: &Application) {
    let status = application.sentry().status(application.now());
    let totals = application.metrics().totals();
    decisions(page, &status.classes, &totals);
    contracts(page, &status.classes);
    times(page, &status, &totals);
    engine(page, &status);
    policing(page, &status);
    controller(page, &status);
    brownout(page, application, status.brownout.as_ref());
    replicas(page, application, &status.replicas, &totals.replicas);
    requests(page, &totals);
    if let Some(channel) = application.channel() {
        deferral(page, &channel.status());
    }
    tokens(page, application);
    edge(page, application);
    companion(page, application);
    shadow::metrics(page, application);
}

metrics! { COMPANION_METRICS:
    MIRROR_COPIES_TOTAL = Counter "tidegate_mirror_copies_total",
        "Copies of requests, by what became of them; none of them counts elsewhere.",
        "copies that are dropped mean that the mirror is too slow";
    MIRROR_COPIES = Gauge "tidegate_mirror_copies",
        "Copies under way.",
        "nothing; bounded by the mirror's limits";
    CANARY_REQUESTS = Counter "tidegate_canary_requests_total",
        "Requests meant for the canary; those that returned are served by its main application.",
        "many returns mean that the canary is unwell; lower its share";
}

metrics! { FLEET_METRICS:
    FLEET_PROXIES = Gauge "tidegate_fleet_proxies",
        "Proxies of the fleet, this one included.",
        "fewer than run: see `/api/fleet` of each for who does not reach whom";
    FLEET_CUT_OFF = Gauge "tidegate_fleet_cut_off",
        "1 while no report of another proxy arrives and the last known shares stay in force.",
        "mend the way to the peers' admin listeners";
    FLEET_PEER_AGE_SECONDS = Gauge "tidegate_fleet_peer_age_seconds",
        "Time since the last report of a proxy of the fleet.",
        "a peer that is old is lost soon";
    FLEET_SHARE = Gauge "tidegate_fleet_share",
        "This proxy's share of an application's windows, from 0 to 1.",
        "the shares of all proxies add up to 1";
    FLEET_BAD_REPORTS = Counter "tidegate_fleet_bad_reports_total",
        "Reports of other proxies that were refused.",
        "a proxy of another version, or a stranger; the log names it";
}

/// Other proxies in front of the same replicas.
fn fleet(page: &mut Page, status: &FleetStatus) {
    let proxies = status.peers.len() + 1;
    page.begin(&FLEET_PROXIES).sample(&[], proxies as f64);
    let cut_off = f64::from(u8::from(status.cut_off));
    page.begin(&FLEET_CUT_OFF).sample(&[], cut_off);
    let mut ages = page.begin(&FLEET_PEER_AGE_SECONDS);
    for peer in &status.peers {
        ages.sample(&[("proxy", &peer.proxy)], peer.age_seconds);
    }
    let mut shares = page.begin(&FLEET_SHARE);
    for (name, application) in &status.applications {
        shares.sample(&[("of", name)], application.share);
    }
    page.begin(&FLEET_BAD_REPORTS)
        .sample(&[], status.bad_reports as f64);
}

/// What became of requests that another application gave to this one.
fn companion(page: &mut Page, application: &Application) {
    let settings = application.settings();
    let Some(companion) = &settings.config.companion else {
        return;
    };
    let counters = application.companion_counters();
    let metric = match companion {
        Companion::Canary(_) => &CANARY_REQUESTS,
        Companion::Mirror(_) => &MIRROR_COPIES_TOTAL,
    };
    let mut family = page.begin(metric);
    for (outcome, count) in counters.totals(companion) {
        family.sample(&[("outcome", outcome)], count as f64);
    }
    if let Companion::Mirror(_) = companion {
        page.begin(&MIRROR_COPIES)
            .sample(&[], f64::from(counters.copies()));
    }
}

metrics! { EDGE_METRICS:
    EDGE_ANSWERED = Counter "tidegate_edge_answered_total",
        "Requests that were answered by `[edge]` before anything was asked about load.",
        "the reason is the section of `[edge]` that answered";
    QUOTA_REFUSED = Counter "tidegate_quota_refused_total",
        "Requests beyond a quota, answered with 429.",
        "raise the quota, or talk to the client that exceeds it";
    QUOTA_KEYS = Gauge "tidegate_quota_keys",
        "Keys of a quota that have used some of it.",
        "at the table's limit the least used keys are forgotten";
}

/// What the edge did not let pass, apart from load shedding.
fn edge(page: &mut Page, application: &Application) {
    let settings = application.settings();
    let Some(edge) = &settings.edge else {
        return;
    };
    let mut answered = page.begin(&EDGE_ANSWERED);
    for (reason, count) in application.edge_counters().totals() {
        answered.sample(&[("reason", reason)], count as f64);
    }
    let quotas = edge.quota_totals(application.now());
    let mut refused = page.begin(&QUOTA_REFUSED);
    for quota in &quotas {
        refused.sample(&[("quota", &quota.name)], quota.refused as f64);
    }
    let mut keys = page.begin(&QUOTA_KEYS);
    for quota in &quotas {
        keys.sample(&[("quota", &quota.name)], quota.keys as f64);
    }
}

metrics! { PROCESS_METRICS:
    BUILD_INFO = Gauge "tidegate_build_info",
        "The version that runs and its commit.",
        "compare it over instances after a rollout";
    UPTIME_SECONDS = Gauge "tidegate_uptime_seconds",
        "Time since the start.",
        "a fall means that the proxy was started again";
    THREADS = Gauge "tidegate_threads",
        "Worker threads.",
        "`threads` sets it";
    EVENT_SUBSCRIBERS = Gauge "tidegate_event_subscribers",
        "Readers of the event stream.",
        "nothing; pages, `tidegate top` and planes";
    EVENT_SUBSCRIBERS_LET_GO = Counter "tidegate_event_subscribers_let_go_total",
        "Readers of the event stream that were too slow.",
        "a reader that is too slow misses events; look at its network";
}

fn process(page: &mut Page, operator: &Operator) {
    page.begin(&BUILD_INFO).sample(
        &[
            ("version", env!("CARGO_PKG_VERSION")),
            (
                "commit",
                option_env!("TIDEGATE_COMMIT").unwrap_or("unknown"),
            ),
        ],
        1.0,
    );
    usage::metrics(page, operator.started_at);
    page.begin(&UPTIME_SECONDS)
        .sample(&[], operator.started.elapsed().as_secs_f64());
    shadow::cost(page, operator);
    page.begin(&THREADS)
        .sample(&[], operator.state.threads() as f64);
    let events = &operator.events;
    page.begin(&EVENT_SUBSCRIBERS)
        .sample(&[], events.subscribers() as f64);
    page.begin(&EVENT_SUBSCRIBERS_LET_GO)
        .sample(&[], events.too_slow() as f64);
}

metrics! { DEFERRAL_METRICS:
    CHANNEL_COMMAND = Gauge "tidegate_channel_command",
        "What clients were told: share that may send, or seconds between two items.",
        "compare it with the controller's output";
    CHANNEL_LISTENERS = Gauge "tidegate_channel_listeners",
        "Direct listeners.",
        "nothing";
    CHANNEL_RELAYS = Gauge "tidegate_channel_relays",
        "Relays that are alive.",
        "start relays where direct listeners are many";
    CHANNEL_CLIENTS = Gauge "tidegate_channel_clients",
        "Clients that sent something lately.",
        "nothing";
    CHANNEL_COPIES = Counter "tidegate_channel_copies_total",
        "Copies of messages sent.",
        "relays take copies off the proxy";
    CHANNEL_BYTES = Counter "tidegate_channel_bytes_total",
        "Bytes of these copies.",
        "relays take bytes off the proxy";
    CHANNEL_REQUESTS = Counter "tidegate_channel_requests_total",
        "Requests of clients that listen, by what became of them.",
        "`tidegate ctl channel` names clients that do not hold back";
}

/// The channel to clients.
fn deferral(page: &mut Page, status: &ChannelStatus) {
    page.begin(&CHANNEL_COMMAND).sample(&[], status.command);
    page.begin(&CHANNEL_LISTENERS)
        .sample(&[], status.listeners as f64);
    page.begin(&CHANNEL_RELAYS)
        .sample(&[], status.relays as f64);
    page.begin(&CHANNEL_CLIENTS).sample(&[], status.clients);
    page.begin(&CHANNEL_COPIES)
        .sample(&[], status.copies as f64);
    page.begin(&CHANNEL_BYTES).sample(&[], status.bytes as f64);
    let verdicts = &status.verdicts;
    let mut family = page.begin(&CHANNEL_REQUESTS);
    for (verdict, count) in [
        ("in_order", verdicts.in_order),
        ("tolerated", verdicts.tolerated),
        ("throttled", verdicts.throttled),
        ("banned", verdicts.banned),
        ("late", status.late),
        ("stranger", status.strangers),
    ] {
        family.sample(&[("verdict", verdict)], count as f64);
    }
}

/// A metric, and where its values come from.
type Reading<Of, Value> = (&'static Metric, fn(&Of) -> Value);

metrics! { PER_CLASS_METRICS:
    REQUESTS_ARRIVED = Counter "tidegate_requests_arrived_total",
        "Requests that arrived.",
        "the offered load";
    REQUESTS_ADMITTED = Counter "tidegate_requests_admitted_total",
        "Requests that got a slot of a replica.",
        "compare it with what arrived";
    REQUESTS_WAITED = Counter "tidegate_requests_waited_total",
        "Requests that had to wait for a slot.",
        "a large share means that the service is at its capacity";
    REQUESTS_IN_TARGET = Counter "tidegate_requests_in_target_total",
        "Requests served within their target.",
        "the goodput; its share of what arrived is the figure to alert on";
}

const PER_CLASS: [Reading<ClassStatus, u64>; 4] = [
    (&REQUESTS_ARRIVED, |class| class.arrived),
    (&REQUESTS_ADMITTED, |class| class.admitted),
    (&REQUESTS_WAITED, |class| class.waited),
    (&REQUESTS_IN_TARGET, |class| class.in_target),
];

metrics! { BY_REASON_METRICS:
    REQUESTS_SHED = Counter "tidegate_requests_shed_total",
        "Requests refused, by the mechanism that refused them.",
        "the table of shed reasons says what helps";
    REQUESTS_WOULD_SHED = Counter "tidegate_requests_would_shed_total",
        "Requests that a dry run would have refused.",
        "what enforcing would shed; see dry-run.md";
}

const BY_REASON: [Reading<ClassStatus, Vec<(&'static str, u64)>>; 2] = [
    (&REQUESTS_SHED, |class| class.shed.clone()),
    (&REQUESTS_WOULD_SHED, |class| class.would_shed.clone()),
];

metrics! { DECISIONS_METRICS:
    REQUESTS_ENDED = Counter "tidegate_requests_ended_total",
        "Admitted requests by how they ended: served, degraded (served without optional content), failed (the replica failed), abandoned (the client left), ignored (no sample), unreported (the slot was dropped without an ending).",
        "the table of endings says what each one means";
}

fn decisions(page: &mut Page, classes: &[ClassStatus], totals: &Totals) {
    for (metric, count) in PER_CLASS {
        let mut family = page.begin(metric);
        for class in classes {
            family.sample(&[("class", &class.name)], count(class) as f64);
        }
    }
    let mut ended = page.begin(&REQUESTS_ENDED);
    for class in classes {
        let endings = [
            ("served", class.served - class.degraded.min(class.served)),
            ("degraded", class.degraded),
            ("failed", class.dropped),
            ("abandoned", class.abandoned),
            ("ignored", class.ignored),
            ("unreported", class.unreported),
        ];
        for (ending, count) in endings {
            ended.sample(&[("class", &class.name), ("ending", ending)], count as f64);
        }
    }
    for (metric, reasons) in BY_REASON {
        let mut family = page.begin(metric);
        for (number, class) in classes.iter().enumerate() {
            let times = totals.classes.get(number);
            for (reason, count) in reasons(class) {
                // What a dry run only counts was served: it is no example of a refusal.
                let shed = times.filter(|_| *metric == REQUESTS_SHED);
                let exemplar = shed.and_then(|times| times.exemplars.of_reason(reason));
                let labels = [("class", &*class.name), ("reason", reason)];
                family.exemplified(&labels, count as f64, exemplar);
            }
        }
    }
}

metrics! { CONTRACTS_METRICS:
    REVENUE_EARNED = Counter "tidegate_revenue_earned_total",
        "What requests answered within their target were worth.",
        "compare its rate with that of lost revenue";
    REVENUE_LOST = Counter "tidegate_revenue_lost_total",
        "What was not earned, by reason: late, failed, abandoned, or why it was refused.",
        "the largest reason is the one to look after";
    TARGET_BAND = Gauge "tidegate_target_band",
        "Arrival rate from which on the target in force applies, where a class has a table of them.",
        "nothing";
    EXAMINATION_DELAY_SECONDS = Gauge "tidegate_examination_delay_seconds",
        "How long requests of a class are held before they are examined, in mode sentry.",
        "nothing; it is a part of the response time";
    ROOM_SHARE = Gauge "tidegate_room_share",
        "Share of what a class's target allows that replicas are filled to, in mode sentry.",
        "nothing; it falls while targets are missed";
    GUARANTEE_RATE = Gauge "tidegate_guarantee_rate",
        "Requests per second that a class is guaranteed.",
        "nothing; it is configured";
    GUARANTEE_ADMITTED = Counter "tidegate_guarantee_admitted_total",
        "Requests admitted by their class's guarantee.",
        "a rate near the guarantee means that the class needs it";
}

/// What classes earn, what they are promised, and what of it was made use of.
fn contracts(page: &mut Page, classes: &[ClassStatus]) {
    let mut earned = page.begin(&REVENUE_EARNED);
    for class in classes {
        earned.sample(&[("class", &class.name)], class.revenue_earned);
    }
    let mut lost = page.begin(&REVENUE_LOST);
    for class in classes {
        for (reason, amount) in &class.revenue_lost {
            lost.sample(&[("class", &class.name), ("reason", reason)], *amount);
        }
    }
    let mut bands = page.begin(&TARGET_BAND);
    for class in classes {
        if let Some(band) = &class.band {
            bands.sample(&[("class", &class.name)], band.above);
        }
    }
    let mut delays = page.begin(&EXAMINATION_DELAY_SECONDS);
    for class in classes {
        delays.sample(&[("class", &class.name)], class.delay_seconds);
    }
    let mut rooms = page.begin(&ROOM_SHARE);
    for class in classes {
        rooms.sample(&[("class", &class.name)], class.room_share);
    }
    let promised = |class: &'_ ClassStatus| class.guarantee.map(|g| (class.name.clone(), g));
    let promised: Vec<_> = classes.iter().filter_map(promised).collect();
    let mut rates = page.begin(&GUARANTEE_RATE);
    for (class, guarantee) in &promised {
        rates.sample(&[("class", class)], guarantee.rate);
    }
    let mut admitted = page.begin(&GUARANTEE_ADMITTED);
    for (class, guarantee) in &promised {
        admitted.sample(&[("class", class)], guarantee.admitted as f64);
    }
}

metrics! { POLICING_METRICS:
    POLICING_INFO = Gauge "tidegate_policing_info",
        "How requests are judged, and why.",
        "with reason `cpu` give the proxy more cores";
    CPU_SHARE = Gauge "tidegate_cpu_share",
        "Share of its threads' time that the proxy itself spends computing.",
        "near 1 the proxy itself is the bottleneck: more cores or instances";
}

fn policing(page: &mut Page, status: &Status) {
    let Some(policing) = &status.policing else {
        return;
    };
    let labels = [("kind", policing.kind), ("reason", policing.reason)];
    page.begin(&POLICING_INFO).sample(&labels, 1.0);
    if let Some(share) = policing.cpu_share {
        page.begin(&CPU_SHARE).sample(&[], share);
    }
}

metrics! { TIMES_METRICS:
    CLIENT_SECONDS = Histogram "tidegate_client_seconds",
        "Time from a request's arrival until its answer was handed over to the client's connection, refusals and failures included: what a client waits for, without the network.",
        "beyond `tidegate_response_seconds` clients read slowly; `outcome` tells answers apart";
    WAITING_SECONDS = Histogram "tidegate_waiting_seconds",
        "Time that admitted requests waited for their slot.",
        "waiting that lasts means too little capacity";
    SERVICE_SECONDS = Histogram "tidegate_service_seconds",
        "Time from admission to the end of the replica's response.",
        "the time at the replicas; look there if it grows";
    RESPONSE_SECONDS = Histogram "tidegate_response_seconds",
        "Time from a request's arrival to the end of the replica's response: waiting and service.",
        "compare it with the target";
    TICK_SECONDS = Histogram "tidegate_tick_seconds",
        "Time that the engine's adaptation took.",
        "more than a tenth of a second delays decisions: more cores";
}

fn times(page: &mut Page, status: &Status, totals: &Totals) {
    let named = || status.classes.iter().zip(&totals.classes);
    let mut waiting = page.begin(&WAITING_SECONDS);
    for (class, times) in named() {
        waiting.times(&[("class", &class.name)], &times.waiting);
    }
    let mut service = page.begin(&SERVICE_SECONDS);
    for (class, times) in named() {
        service.times(&[("class", &class.name)], &times.service);
    }
    let mut response = page.begin(&RESPONSE_SECONDS);
    for (class, times) in named() {
        response.responses(&[("class", &class.name)], &times.response, &times.exemplars);
    }
    let mut client = page.begin(&CLIENT_SECONDS);
    for (class, times) in named() {
        for (outcome, times) in Outcome::ALL.iter().zip(&times.client) {
            if let Some(times) = times {
                let labels = [("class", &*class.name), ("outcome", outcome.as_str())];
                client.times(&labels, times);
            }
        }
    }
    page.begin(&TICK_SECONDS).times(&[], &totals.ticks);
}

metrics! { ENGINE_METRICS:
    MODE_INFO = Gauge "tidegate_mode_info",
        "The mode in force.",
        "nothing; it is configured";
    SWITCH = Gauge "tidegate_switch",
        "Switches of the operator: 1 is on.",
        "move it back when the reason is gone";
    QUEUE_REQUESTS = Gauge "tidegate_queue_requests",
        "Requests that wait.",
        "a queue that lasts means too little capacity";
    QUEUE_BYTES = Gauge "tidegate_queue_bytes",
        "Bytes that waiting requests hold.",
        "bounded by `queue.max_bytes`";
    TARGET_SECONDS = Gauge "tidegate_target_seconds",
        "Target in force, where there is one.",
        "nothing; it is configured, or found by mode `auto`";
    DRAIN_RATE = Gauge "tidegate_drain_rate",
        "Requests the replicas can serve per second together.",
        "the capacity; alert when arrivals stay above it";
    OVERLOADED = Gauge "tidegate_overloaded",
        "1 while more arrives than can be served.",
        "add replicas, or wait: what exceeds the capacity is shed by class";
    BAD_REPORTS = Counter "tidegate_bad_reports_total",
        "Parts of replicas' reports that made no sense.",
        "the replica's headers are malformed; see wire.md";
}

fn engine(page: &mut Page, status: &Status) {
    page.begin(&MODE_INFO)
        .sample(&[("mode", status.mode.as_str())], 1.0);
    let mut switches = page.begin(&SWITCH);
    for (name, on) in [
        ("dry_run", status.dry_run),
        ("kill_switch", status.kill_switch),
        ("draining", status.draining),
    ] {
        switches.sample(&[("name", name)], f64::from(u8::from(on)));
    }
    page.begin(&QUEUE_REQUESTS)
        .sample(&[], f64::from(status.queue.requests));
    page.begin(&QUEUE_BYTES)
        .sample(&[], status.queue.bytes as f64);
    let mut targets = page.begin(&TARGET_SECONDS);
    for class in &status.classes {
        if let Some(seconds) = class.target_seconds {
            targets.sample(&[("class", &class.name)], seconds);
        }
    }
    if let Some(rate) = status.drain_rate {
        page.begin(&DRAIN_RATE).sample(&[], rate);
    }
    if let Some(overloaded) = status.overloaded {
        page.begin(&OVERLOADED)
            .sample(&[], f64::from(u8::from(overloaded)));
    }
    page.begin(&BAD_REPORTS)
        .sample(&[], status.bad_reports as f64);
}

metrics! { CONTROLLER_METRICS:
    CONTROLLER_TERM = Gauge "tidegate_controller_term",
        "Parts of the command, before limits.",
        "for tuning; see `tidegate design`";
    CONTROLLER_BAD_SAMPLES = Counter "tidegate_controller_bad_samples_total",
        "Measurements that were refused.",
        "look at what is measured: it was not a number";
    CONTROLLER_SETPOINT = Gauge "tidegate_controller_setpoint",
        "What the controller wants to measure.",
        "nothing; it is configured";
    CONTROLLER_MEASURED = Gauge "tidegate_controller_measured",
        "What it measured last.",
        "compare it with the setpoint";
    CONTROLLER_ERROR = Gauge "tidegate_controller_error",
        "Setpoint minus measured.",
        "an error that stays means a command at its limit, or poor gains";
    CONTROLLER_OUTPUT = Gauge "tidegate_controller_output",
        "Its command, after limits.",
        "nothing";
    CONTROLLER_SATURATED = Gauge "tidegate_controller_saturated",
        "1 while a limit changes the command.",
        "widen the limit, or give the service more capacity";
}

fn controller(page: &mut Page, status: &Status) {
    let Some(step) = &status.controller else {
        return;
    };
    let name = ("controller", step.name);
    let terms = &step.terms;
    let gauges = [
        (&CONTROLLER_SETPOINT, step.setpoint),
        (&CONTROLLER_MEASURED, step.measured),
        (&CONTROLLER_ERROR, step.setpoint - step.measured),
        (&CONTROLLER_OUTPUT, step.output),
        (&CONTROLLER_SATURATED, f64::from(u8::from(terms.saturated))),
    ];
    for (metric, value) in gauges {
        page.begin(metric).sample(&[name], value);
    }
    page.begin(&CONTROLLER_TERM)
        .sample(&[name, ("term", "p")], terms.p)
        .sample(&[name, ("term", "i")], terms.i)
        .sample(&[name, ("term", "d")], terms.d);
    page.begin(&CONTROLLER_BAD_SAMPLES)
        .sample(&[name], step.bad_samples as f64);
}

metrics! { BROWNOUT_METRICS:
    REPLICA_STANDING = Gauge "tidegate_replica_standing",
        "1 for how the replica compares with the others: good, suspect, silent or returning.",
        "look at a replica that is not `good`";
    BROWNOUT_SETPOINT_SECONDS = Gauge "tidegate_brownout_setpoint_seconds",
        "Response time that full responses are held at.",
        "nothing; it is configured";
    BROWNOUT_MEASURED_SECONDS = Gauge "tidegate_brownout_measured_seconds",
        "That response time as it was measured last.",
        "compare it with the setpoint";
    BROWNOUT_THRESHOLD_SECONDS = Gauge "tidegate_brownout_threshold_seconds",
        "Waiting time beyond which optional content is left out (psi).",
        "nothing";
    BROWNOUT_SERVICE_TARGET_SECONDS = Gauge "tidegate_brownout_service_target_seconds",
        "Service time that replicas are to aim at.",
        "nothing";
    BROWNOUT_FULL_SHARE = Gauge "tidegate_brownout_full_share",
        "Share of the requests dispatched lately that are served with optional content.",
        "near 0 more replicas are needed, or more optional content";
    BROWNOUT_REFUSING = Gauge "tidegate_brownout_refusing",
        "1 while leaving content out is not enough and requests are refused.",
        "add replicas, or make more content optional";
}

/// Optional content, where the mode decides about it.
fn brownout(page: &mut Page, application: &Application, status: Option<&BrownoutStatus>) {
    let Some(status) = status else {
        return;
    };
    let gauges = [
        (&BROWNOUT_SETPOINT_SECONDS, Some(status.setpoint_seconds)),
        (&BROWNOUT_MEASURED_SECONDS, status.measured_seconds),
        (&BROWNOUT_THRESHOLD_SECONDS, Some(status.threshold_seconds)),
        (
            &BROWNOUT_SERVICE_TARGET_SECONDS,
            status.service_target_seconds,
        ),
        (&BROWNOUT_FULL_SHARE, status.full_share),
        (
            &BROWNOUT_REFUSING,
            Some(f64::from(u8::from(status.refusing))),
        ),
    ];
    for (metric, value) in gauges {
        if let Some(value) = value {
            page.begin(metric).sample(&[], value);
        }
    }
    let settings = application.settings();
    let named: Vec<_> = status
        .replicas
        .iter()
        .filter_map(|replica| Some((settings.replica(replica.id)?.origin().to_string(), replica)))
        .collect();
    for (metric, value) in PER_BROWNOUT_REPLICA {
        let mut family = page.begin(metric);
        for (url, replica) in &named {
            family.sample(&[("replica", url)], value(replica));
        }
    }
    let mut standing = page.begin(&REPLICA_STANDING);
    for (url, replica) in &named {
        let labels = [
            ("replica", url.as_str()),
            ("standing", replica.standing.as_str()),
        ];
        standing.sample(&labels, 1.0);
    }
}

metrics! { PER_BROWNOUT_REPLICA_METRICS:
    REPLICA_CONCURRENCY = Gauge "tidegate_replica_concurrency",
        "Requests at once with which the replica meets the service time aimed at (u).",
        "nothing; it is measured";
    REPLICA_GAIN_SECONDS = Gauge "tidegate_replica_gain_seconds",
        "Seconds that a request takes there per request in service (K).",
        "nothing; it is measured";
}

const PER_BROWNOUT_REPLICA: [Reading<BrownoutReplica, f64>; 2] = [
    (&REPLICA_CONCURRENCY, |replica| replica.concurrency),
    (&REPLICA_GAIN_SECONDS, |replica| replica.gain_seconds),
];

metrics! { PER_REPLICA_METRICS:
    REPLICA_EJECTED = Gauge "tidegate_replica_ejected",
        "1 while the replica is ejected because it is far slower than the others.",
        "look at the replica: disk, garbage collection, a noisy neighbour";
    REPLICA_UP = Gauge "tidegate_replica_up",
        "1 while the replica gets requests.",
        "see the replica's own log; the status says what its checks met with";
    REPLICA_WINDOW = Gauge "tidegate_replica_window",
        "Slots of the replica; +Inf without a bound.",
        "nothing; it is found by measurement";
    REPLICA_IN_FLIGHT = Gauge "tidegate_replica_in_flight",
        "Requests that hold a slot.",
        "at the window the replica is full";
    REPLICA_STREAMS = Gauge "tidegate_replica_streams",
        "Long streams, which hold no slot.",
        "nothing";
}

const PER_REPLICA: [Reading<ReplicaStatus, f64>; 5] = [
    (&REPLICA_EJECTED, |replica| {
        f64::from(u8::from(replica.aside))
    }),
    (&REPLICA_UP, |replica| f64::from(u8::from(replica.up))),
    (&REPLICA_WINDOW, |replica| {
        replica.window.map_or(f64::INFINITY, f64::from)
    }),
    (&REPLICA_IN_FLIGHT, |replica| f64::from(replica.in_flight)),
    (&REPLICA_STREAMS, |replica| f64::from(replica.streams)),
];

metrics! { REPLICAS_METRICS:
    REPLICA_SERVED = Counter "tidegate_replica_served_total",
        "Requests the replica served.",
        "shares that differ from the weights mean replicas that differ";
    REPLICA_SERVICE_SECONDS = Histogram "tidegate_replica_service_seconds",
        "Time from admission to the end of the response, by replica.",
        "look at the replica that is slower than the others";
}

fn replicas(
    page: &mut Page,
    application: &Application,
    replicas: &[ReplicaStatus],
    times: &[Snapshot],
) {
    let settings = application.settings();
    let named: Vec<_> = replicas
        .iter()
        .filter(|replica| settings.replica_ids().contains(&replica.id))
        .filter_map(|replica| Some((settings.replica(replica.id)?.origin().to_string(), replica)))
        .collect();
    for (metric, value) in PER_REPLICA {
        let mut family = page.begin(metric);
        for (url, replica) in &named {
            family.sample(&[("replica", url)], value(replica));
        }
    }
    let mut served = page.begin(&REPLICA_SERVED);
    for (url, replica) in &named {
        served.sample(&[("replica", url)], replica.served as f64);
    }
    let mut service = page.begin(&REPLICA_SERVICE_SECONDS);
    for (url, replica) in &named {
        if let Some(times) = times.get(usize::from(replica.id.0)) {
            service.times(&[("replica", url)], times);
        }
    }
}

metrics! { TOKENS_METRICS:
    TOKENS_REFUSED = Counter "tidegate_tokens_refused_total",
        "Tokens that proved nothing, by what was wrong with them.",
        "check keys and clocks of the issuer";
}

fn tokens(page: &mut Page, application: &Application) {
    let settings = application.settings();
    let Some(tokens) = &settings.tokens else {
        return;
    };
    let mut refused = page.begin(&TOKENS_REFUSED);
    for (fault, count) in tokens.refused() {
        refused.sample(&[("fault", fault)], count as f64);
    }
}

metrics! { CONNECTIONS_METRICS:
    CLIENT_CONNECTIONS = Gauge "tidegate_client_connections",
        "Client connections that are open.",
        "bounded by `limits.connections`";
    CLIENT_CONNECTIONS_TOTAL = Counter "tidegate_client_connections_total",
        "Client connections accepted.",
        "many for few requests: clients do not keep connections alive";
    CLIENT_CONNECTIONS_RESTING = Gauge "tidegate_client_connections_resting",
        "Client connections that cost no task: idle for a while, or refused time and again.",
        "nothing";
    CLIENT_CONNECTIONS_TURNED_AWAY = Counter "tidegate_client_connections_turned_away_total",
        "Client connections closed before HTTP began: beyond `limits.connections` or `limits.connections_per_address`, without the header of the PROXY protocol that the listener demands, without a TLS session.",
        "raise the limit, or look at who connects that often";
    REQUESTS_UNROUTED = Counter "tidegate_requests_unrouted_total",
        "Requests that fitted no application and were answered with 404.",
        "add the host to an application, or set `default_application`";
}

fn connections(page: &mut Page, totals: &Totals) {
    page.begin(&CLIENT_CONNECTIONS)
        .sample(&[], totals.connections() as f64);
    page.begin(&CLIENT_CONNECTIONS_RESTING)
        .sample(&[], totals.resting as f64);
    page.begin(&CLIENT_CONNECTIONS_TOTAL)
        .sample(&[], totals.opened as f64);
    let mut turned_away = page.begin(&CLIENT_CONNECTIONS_TURNED_AWAY);
    for (cause, count) in TurnedAway::ALL.into_iter().zip(totals.turned_away) {
        turned_away.sample(&[("cause", cause.as_str())], count as f64);
    }
    page.begin(&REQUESTS_UNROUTED)
        .sample(&[], totals.unrouted as f64);
}

metrics! { REQUESTS_METRICS:
    RESPONSES = Counter "tidegate_responses_total",
        "Responses to clients, the proxy's own included.",
        "5xx include refusals; see the shed reasons";
    UPSTREAM_FAILURES = Counter "tidegate_upstream_failures_total",
        "Requests that a replica failed, by how.",
        "see the replica's own log";
    BODY_BYTES = Counter "tidegate_body_bytes_total",
        "Body bytes passed on.",
        "nothing";
    RETRIES = Counter "tidegate_retries_total",
        "Requests sent a second time, or denied that by the budget.",
        "retries that are denied: the replicas fail more than the budget bears";
}

/// What the data plane counts of an application's requests.
fn requests(page: &mut Page, totals: &Totals) {
    let mut responses = page.begin(&RESPONSES);
    for (code, count) in ["1xx", "2xx", "3xx", "4xx", "5xx"]
        .iter()
        .zip(totals.responses)
    {
        responses.sample(&[("code", code)], count as f64);
    }
    let mut failures = page.begin(&UPSTREAM_FAILURES);
    for (failure, count) in UpstreamFailure::ALL.iter().zip(totals.failures) {
        failures.sample(&[("kind", failure.as_str())], count as f64);
    }
    let mut bytes = page.begin(&BODY_BYTES);
    for (direction, count) in Direction::ALL.iter().zip(totals.bytes) {
        bytes.sample(&[("direction", direction.as_str())], count as f64);
    }
    page.begin(&RETRIES)
        .sample(&[("outcome", "sent")], totals.retries as f64)
        .sample(&[("outcome", "denied")], totals.retries_denied as f64);
}

metrics! { ACCESS_LOG_METRICS:
    ACCESS_LOG_LINES_LOST = Counter "tidegate_access_log_lines_lost_total",
        "Lines missing in the access log: its disk was too slow, or refused them.",
        "make room on the disk, or choose a faster one";
}

fn access_log(page: &mut Page, operator: &Operator, totals: &Totals) {
    let refused = operator.state.settings().log_refused.lines();
    page.begin(&ACCESS_LOG_LINES_LOST)
        .sample(&[("cause", "slow")], totals.log_lines_lost as f64)
        .sample(&[("cause", "refused")], refused as f64);
}

metrics! { RELOADS_METRICS:
    RELOADS = Counter "tidegate_reloads_total",
        "Times the configuration was put in force or refused.",
        "`refused`: the log says what is wrong with the file";
    CONFIG_IN_FORCE = Gauge "tidegate_config_in_force",
        "0 while the file as it is now is refused.",
        "mend the file; the log says where";
}

fn reloads(page: &mut Page, status: &ReloadStatus) {
    page.begin(&RELOADS)
        .sample(&[("outcome", "done")], status.reloads as f64)
        .sample(&[("outcome", "refused")], status.refused as f64);
    page.begin(&CONFIG_IN_FORCE)
        .sample(&[], f64::from(u8::from(status.error.is_none())));
}

metrics! { TRACES_METRICS:
    TRACE_REQUESTS = Counter "tidegate_trace_requests_total",
        "Requests that are recorded for their traces, and those beyond `tracing.per_second`.",
        "`over_limit` that grows: lower `tracing.sample`, or raise `tracing.per_second`";
    TRACE_SPANS_LOST = Counter "tidegate_trace_spans_lost_total",
        "Recorded requests that never reached the exporter: its ring was full.",
        "lower `tracing.per_second`; the exporter's thread gets too little CPU";
    OTLP_ITEMS = Counter "tidegate_otlp_items_total",
        "Spans and data points of metrics for the collector, by signal and by what became of them.",
        "`lost` that grows: the collector is away, slow or refuses; the log says which";
    OTLP_UP = Gauge "tidegate_otlp_up",
        "1 while the collector takes what is sent, by signal.",
        "see the log for the last error";
}

/// What is recorded for traces, and what becomes of it at the collector.
fn traces(page: &mut Page, traces: &Traces) {
    page.begin(&TRACE_REQUESTS)
        .sample(&[("outcome", "recorded")], traces.recorded() as f64)
        .sample(&[("outcome", "over_limit")], traces.over_limit() as f64);
    page.begin(&TRACE_SPANS_LOST)
        .sample(&[], traces.lost() as f64);
    for (signal, exports) in traces.exports() {
        let (sent, lost) = exports.items();
        page.begin(&OTLP_ITEMS)
            .sample(&[("signal", signal), ("outcome", "sent")], sent as f64)
            .sample(&[("signal", signal), ("outcome", "lost")], lost as f64);
        let up = f64::from(u8::from(exports.is_up()));
        page.begin(&OTLP_UP).sample(&[("signal", signal)], up);
    }
}

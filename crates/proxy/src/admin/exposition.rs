//! The page that Prometheus reads.

use tidegate_fleet::FleetStatus;
use tidegate_sentry::{BrownoutReplica, BrownoutStatus, ClassStatus, ReplicaStatus, Status};

use super::Operator;
use super::process as usage;
use crate::application::Application;
use crate::channel::ChannelStatus;
use crate::config::Companion;
use crate::metrics::text::Text;
use crate::metrics::{Direction, Snapshot, Totals, TurnedAway, UpstreamFailure};
use crate::reload::ReloadStatus;

/// All metrics of the proxy, as text.
pub(super) fn page(operator: &Operator) -> String {
    let state = &operator.state;
    let totals = state.metrics().totals();
    let mut text = Text::default();
    process(&mut text, operator);
    let applications = state.applications();
    for application in applications.iter() {
        text.set_application(Some(application.name()));
        self::application(&mut text, application);
    }
    text.set_application(None);
    if applications.single().is_none() {
        requests(&mut text, &totals);
    }
    connections(&mut text, &totals);
    access_log(&mut text, operator, &totals);
    reloads(&mut text, &operator.reloader.status());
    if let Some(status) = operator.fleet_status() {
        fleet(&mut text, &status);
    }
    text.finish()
}

fn application(text: &mut Text, application: &Application) {
    let status = application.sentry().status(application.now());
    let totals = application.metrics().totals();
    decisions(text, &status.classes);
    contracts(text, &status.classes);
    times(text, &status, &totals);
    engine(text, &status);
    policing(text, &status);
    controller(text, &status);
    brownout(text, application, status.brownout.as_ref());
    replicas(text, application, &status.replicas, &totals.replicas);
    requests(text, &totals);
    if let Some(channel) = application.channel() {
        deferral(text, &channel.status());
    }
    tokens(text, application);
    edge(text, application);
    companion(text, application);
}

/// Other proxies in front of the same replicas.
fn fleet(text: &mut Text, status: &FleetStatus) {
    let plain = |text: &mut Text, name, help, value: f64| {
        text.gauge(name, help).sample(&[], value);
    };
    let proxies = status.peers.len() + 1;
    plain(
        text,
        "tidegate_fleet_proxies",
        "Proxies of the fleet, this one included.",
        proxies as f64,
    );
    plain(
        text,
        "tidegate_fleet_cut_off",
        "1 while no other proxy of the fleet is heard of and the last known shares stay in force.",
        f64::from(u8::from(status.cut_off)),
    );
    let mut ages = text.gauge(
        "tidegate_fleet_peer_age_seconds",
        "Time since a proxy of the fleet was last heard of.",
    );
    for peer in &status.peers {
        ages.sample(&[("proxy", &peer.proxy)], peer.age_seconds);
    }
    let mut shares = text.gauge(
        "tidegate_fleet_share",
        "This proxy's share of an application's windows, from 0 to 1.",
    );
    for (name, application) in &status.applications {
        shares.sample(&[("of", name)], application.share);
    }
    text.counter(
        "tidegate_fleet_bad_reports_total",
        "Reports of other proxies that were refused.",
    )
    .sample(&[], status.bad_reports as f64);
}

/// What became of requests that another application gave to this one.
fn companion(text: &mut Text, application: &Application) {
    let settings = application.settings();
    let Some(companion) = &settings.config.companion else {
        return;
    };
    let counters = application.companion_counters();
    let (name, help) = match companion {
        Companion::Canary(_) => (
            "tidegate_canary_requests_total",
            "Requests meant for the canary; those that returned are served by its main application.",
        ),
        Companion::Mirror(_) => (
            "tidegate_mirror_copies_total",
            "Copies of requests, by what became of them; none of them counts elsewhere.",
        ),
    };
    let mut family = text.counter(name, help);
    for (outcome, count) in counters.totals(companion) {
        family.sample(&[("outcome", outcome)], count as f64);
    }
    if let Companion::Mirror(_) = companion {
        text.gauge("tidegate_mirror_copies", "Copies under way.")
            .sample(&[], f64::from(counters.copies()));
    }
}

/// What the edge did not let pass, apart from load shedding.
fn edge(text: &mut Text, application: &Application) {
    let settings = application.settings();
    let Some(edge) = &settings.edge else {
        return;
    };
    let mut answered = text.counter(
        "tidegate_edge_answered_total",
        "Requests that were answered by `[edge]` before anything was asked about load.",
    );
    for (reason, count) in application.edge_counters().totals() {
        answered.sample(&[("reason", reason)], count as f64);
    }
    let quotas = edge.quota_totals(application.now());
    let mut refused = text.counter(
        "tidegate_quota_refused_total",
        "Requests beyond a quota, answered with 429.",
    );
    for quota in &quotas {
        refused.sample(&[("quota", &quota.name)], quota.refused as f64);
    }
    let mut keys = text.gauge(
        "tidegate_quota_keys",
        "Keys of a quota that have used some of it.",
    );
    for quota in &quotas {
        keys.sample(&[("quota", &quota.name)], quota.keys as f64);
    }
}

fn process(text: &mut Text, operator: &Operator) {
    text.gauge(
        "tidegate_build_info",
        "The version that runs and its commit.",
    )
    .sample(
        &[
            ("version", env!("CARGO_PKG_VERSION")),
            (
                "commit",
                option_env!("TIDEGATE_COMMIT").unwrap_or("unknown"),
            ),
        ],
        1.0,
    );
    usage::metrics(text, operator.started_at);
    text.gauge("tidegate_uptime_seconds", "Time since the start.")
        .sample(&[], operator.started.elapsed().as_secs_f64());
    text.gauge("tidegate_threads", "Worker threads.")
        .sample(&[], operator.state.threads() as f64);
    let events = &operator.events;
    text.gauge("tidegate_event_subscribers", "Readers of the event stream.")
        .sample(&[], events.subscribers() as f64);
    text.counter(
        "tidegate_event_subscribers_let_go_total",
        "Readers of the event stream that were too slow.",
    )
    .sample(&[], events.too_slow() as f64);
}

/// The channel to clients.
fn deferral(text: &mut Text, status: &ChannelStatus) {
    text.gauge(
        "tidegate_channel_command",
        "What clients were told: share that may send, or seconds between two items.",
    )
    .sample(&[], status.command);
    text.gauge("tidegate_channel_listeners", "Direct listeners.")
        .sample(&[], status.listeners as f64);
    text.gauge("tidegate_channel_relays", "Relays that are alive.")
        .sample(&[], status.relays as f64);
    text.gauge(
        "tidegate_channel_clients",
        "Clients that sent something lately.",
    )
    .sample(&[], status.clients);
    text.counter("tidegate_channel_copies_total", "Copies of messages sent.")
        .sample(&[], status.copies as f64);
    text.counter("tidegate_channel_bytes_total", "Bytes of these copies.")
        .sample(&[], status.bytes as f64);
    let verdicts = &status.verdicts;
    let mut family = text.counter(
        "tidegate_channel_requests_total",
        "Requests of clients that listen, by what became of them.",
    );
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

/// A family: its name, its help, and where its values come from.
type Family<Of, Value> = (&'static str, &'static str, fn(&Of) -> Value);

const PER_CLASS: [Family<ClassStatus, u64>; 4] = [
    (
        "tidegate_requests_arrived_total",
        "Requests that arrived.",
        |class| class.arrived,
    ),
    (
        "tidegate_requests_admitted_total",
        "Requests that got a slot of a replica.",
        |class| class.admitted,
    ),
    (
        "tidegate_requests_waited_total",
        "Requests that had to wait for a slot.",
        |class| class.waited,
    ),
    (
        "tidegate_requests_in_target_total",
        "Requests served within their target.",
        |class| class.in_target,
    ),
];

const BY_REASON: [Family<ClassStatus, Vec<(&'static str, u64)>>; 2] = [
    (
        "tidegate_requests_shed_total",
        "Requests refused, by the mechanism that refused them.",
        |class| class.shed.clone(),
    ),
    (
        "tidegate_requests_would_shed_total",
        "Requests that a dry run would have refused.",
        |class| class.would_shed.clone(),
    ),
];

fn decisions(text: &mut Text, classes: &[ClassStatus]) {
    for (name, help, count) in PER_CLASS {
        let mut family = text.counter(name, help);
        for class in classes {
            family.sample(&[("class", &class.name)], count(class) as f64);
        }
    }
    let mut ended = text.counter(
        "tidegate_requests_ended_total",
        "Admitted requests by how they ended: served, degraded (served without optional content), failed (the replica failed), abandoned (the client left), ignored (no sample), unreported (the slot was dropped without an ending).",
    );
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
    for (name, help, reasons) in BY_REASON {
        let mut family = text.counter(name, help);
        for class in classes {
            for (reason, count) in reasons(class) {
                family.sample(&[("class", &class.name), ("reason", reason)], count as f64);
            }
        }
    }
}

/// What classes earn, what they are promised, and what of it was made use of.
fn contracts(text: &mut Text, classes: &[ClassStatus]) {
    let mut earned = text.counter(
        "tidegate_revenue_earned_total",
        "What requests answered within their target were worth.",
    );
    for class in classes {
        earned.sample(&[("class", &class.name)], class.revenue_earned);
    }
    let mut lost = text.counter(
        "tidegate_revenue_lost_total",
        "What was not earned, by reason: late, failed, abandoned, or why it was refused.",
    );
    for class in classes {
        for (reason, amount) in &class.revenue_lost {
            lost.sample(&[("class", &class.name), ("reason", reason)], *amount);
        }
    }
    let mut bands = text.gauge(
        "tidegate_target_band",
        "Arrival rate from which on the target in force applies, where a class has a table of them.",
    );
    for class in classes {
        if let Some(band) = &class.band {
            bands.sample(&[("class", &class.name)], band.above);
        }
    }
    let mut delays = text.gauge(
        "tidegate_examination_delay_seconds",
        "How long requests of a class are held before they are examined, in mode sentry.",
    );
    for class in classes {
        delays.sample(&[("class", &class.name)], class.delay_seconds);
    }
    let mut rooms = text.gauge(
        "tidegate_room_share",
        "Share of what a class's target allows that replicas are filled to, in mode sentry.",
    );
    for class in classes {
        rooms.sample(&[("class", &class.name)], class.room_share);
    }
    let promised = |class: &'_ ClassStatus| class.guarantee.map(|g| (class.name.clone(), g));
    let promised: Vec<_> = classes.iter().filter_map(promised).collect();
    let mut rates = text.gauge(
        "tidegate_guarantee_rate",
        "Requests per second that a class is guaranteed.",
    );
    for (class, guarantee) in &promised {
        rates.sample(&[("class", class)], guarantee.rate);
    }
    let mut admitted = text.counter(
        "tidegate_guarantee_admitted_total",
        "Requests admitted by their class's guarantee.",
    );
    for (class, guarantee) in &promised {
        admitted.sample(&[("class", class)], guarantee.admitted as f64);
    }
}

fn policing(text: &mut Text, status: &Status) {
    let Some(policing) = &status.policing else {
        return;
    };
    let labels = [("kind", policing.kind), ("reason", policing.reason)];
    text.gauge(
        "tidegate_policing_info",
        "How requests are judged, and why.",
    )
    .sample(&labels, 1.0);
    if let Some(share) = policing.cpu_share {
        text.gauge(
            "tidegate_cpu_share",
            "Share of its threads' time that the proxy itself spends computing.",
        )
        .sample(&[], share);
    }
}

fn times(text: &mut Text, status: &Status, totals: &Totals) {
    let named = || status.classes.iter().zip(&totals.classes);
    let mut waiting = text.histogram(
        "tidegate_waiting_seconds",
        "Time that admitted requests waited for their slot.",
    );
    for (class, times) in named() {
        waiting.buckets(&[("class", &class.name)], &times.waiting);
    }
    let mut service = text.histogram(
        "tidegate_service_seconds",
        "Time from admission to the end of the replica's response.",
    );
    for (class, times) in named() {
        service.buckets(&[("class", &class.name)], &times.service);
    }
    let mut response = text.histogram(
        "tidegate_response_seconds",
        "Time from a request's arrival to the end of the replica's response: waiting and service.",
    );
    for (class, times) in named() {
        response.buckets(&[("class", &class.name)], &times.response);
    }
    text.histogram(
        "tidegate_tick_seconds",
        "Time that the engine's adaptation took.",
    )
    .buckets(&[], &totals.ticks);
}

fn engine(text: &mut Text, status: &Status) {
    text.gauge("tidegate_mode_info", "The mode in force.")
        .sample(&[("mode", status.mode.as_str())], 1.0);
    let mut switches = text.gauge("tidegate_switch", "Switches of the operator: 1 is on.");
    for (name, on) in [
        ("dry_run", status.dry_run),
        ("kill_switch", status.kill_switch),
        ("draining", status.draining),
    ] {
        switches.sample(&[("name", name)], f64::from(u8::from(on)));
    }
    text.gauge("tidegate_queue_requests", "Requests that wait.")
        .sample(&[], f64::from(status.queue.requests));
    text.gauge("tidegate_queue_bytes", "Bytes that waiting requests hold.")
        .sample(&[], status.queue.bytes as f64);
    let mut targets = text.gauge(
        "tidegate_target_seconds",
        "Target in force, where there is one.",
    );
    for class in &status.classes {
        if let Some(seconds) = class.target_seconds {
            targets.sample(&[("class", &class.name)], seconds);
        }
    }
    if let Some(rate) = status.drain_rate {
        text.gauge(
            "tidegate_drain_rate",
            "Requests the replicas can serve per second together.",
        )
        .sample(&[], rate);
    }
    if let Some(overloaded) = status.overloaded {
        text.gauge(
            "tidegate_overloaded",
            "1 while more arrives than can be served.",
        )
        .sample(&[], f64::from(u8::from(overloaded)));
    }
    text.counter(
        "tidegate_bad_reports_total",
        "Parts of replicas' reports that made no sense.",
    )
    .sample(&[], status.bad_reports as f64);
}

fn controller(text: &mut Text, status: &Status) {
    let Some(step) = &status.controller else {
        return;
    };
    let name = ("controller", step.name);
    let terms = &step.terms;
    let gauges = [
        (
            "tidegate_controller_setpoint",
            "What the controller wants to measure.",
            step.setpoint,
        ),
        (
            "tidegate_controller_measured",
            "What it measured last.",
            step.measured,
        ),
        (
            "tidegate_controller_error",
            "Setpoint minus measured.",
            step.setpoint - step.measured,
        ),
        (
            "tidegate_controller_output",
            "Its command, after limits.",
            step.output,
        ),
        (
            "tidegate_controller_saturated",
            "1 while a limit changes the command.",
            f64::from(u8::from(terms.saturated)),
        ),
    ];
    for (metric, help, value) in gauges {
        text.gauge(metric, help).sample(&[name], value);
    }
    text.gauge(
        "tidegate_controller_term",
        "Parts of the command, before limits.",
    )
    .sample(&[name, ("term", "p")], terms.p)
    .sample(&[name, ("term", "i")], terms.i)
    .sample(&[name, ("term", "d")], terms.d);
    text.counter(
        "tidegate_controller_bad_samples_total",
        "Measurements that were refused.",
    )
    .sample(&[name], step.bad_samples as f64);
}

/// Optional content, where the mode decides about it.
fn brownout(text: &mut Text, application: &Application, status: Option<&BrownoutStatus>) {
    let Some(status) = status else {
        return;
    };
    let gauges = [
        (
            "tidegate_brownout_setpoint_seconds",
            "Response time that full responses are held at.",
            Some(status.setpoint_seconds),
        ),
        (
            "tidegate_brownout_measured_seconds",
            "That response time as it was measured last.",
            status.measured_seconds,
        ),
        (
            "tidegate_brownout_threshold_seconds",
            "Waiting time beyond which optional content is left out (psi).",
            Some(status.threshold_seconds),
        ),
        (
            "tidegate_brownout_service_target_seconds",
            "Service time that replicas are to aim at.",
            status.service_target_seconds,
        ),
        (
            "tidegate_brownout_full_share",
            "Share of the requests dispatched lately that are served with optional content.",
            status.full_share,
        ),
        (
            "tidegate_brownout_refusing",
            "1 while leaving content out is not enough and requests are refused.",
            Some(f64::from(u8::from(status.refusing))),
        ),
    ];
    for (name, help, value) in gauges {
        if let Some(value) = value {
            text.gauge(name, help).sample(&[], value);
        }
    }
    let settings = application.settings();
    let named: Vec<_> = status
        .replicas
        .iter()
        .filter_map(|replica| Some((settings.replica(replica.id)?.origin().to_string(), replica)))
        .collect();
    for (name, help, value) in PER_BROWNOUT_REPLICA {
        let mut family = text.gauge(name, help);
        for (url, replica) in &named {
            family.sample(&[("replica", url)], value(replica));
        }
    }
    let mut standing = text.gauge(
        "tidegate_replica_standing",
        "1 for how the replica compares with the others: good, suspect, silent or returning.",
    );
    for (url, replica) in &named {
        let labels = [
            ("replica", url.as_str()),
            ("standing", replica.standing.as_str()),
        ];
        standing.sample(&labels, 1.0);
    }
}

const PER_BROWNOUT_REPLICA: [Family<BrownoutReplica, f64>; 2] = [
    (
        "tidegate_replica_concurrency",
        "Requests at once with which the replica meets the service time aimed at (u).",
        |replica| replica.concurrency,
    ),
    (
        "tidegate_replica_gain_seconds",
        "Seconds that a request takes there per request in service (K).",
        |replica| replica.gain_seconds,
    ),
];

const PER_REPLICA: [Family<ReplicaStatus, f64>; 5] = [
    (
        "tidegate_replica_ejected",
        "1 while the replica is ejected because it is far slower than the others.",
        |replica| f64::from(u8::from(replica.aside)),
    ),
    (
        "tidegate_replica_up",
        "1 while the replica gets requests.",
        |replica| f64::from(u8::from(replica.up)),
    ),
    (
        "tidegate_replica_window",
        "Slots of the replica; +Inf without a bound.",
        |replica| replica.window.map_or(f64::INFINITY, f64::from),
    ),
    (
        "tidegate_replica_in_flight",
        "Requests that hold a slot.",
        |replica| f64::from(replica.in_flight),
    ),
    (
        "tidegate_replica_streams",
        "Long streams, which hold no slot.",
        |replica| f64::from(replica.streams),
    ),
];

fn replicas(
    text: &mut Text,
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
    for (name, help, value) in PER_REPLICA {
        let mut family = text.gauge(name, help);
        for (url, replica) in &named {
            family.sample(&[("replica", url)], value(replica));
        }
    }
    let mut served = text.counter(
        "tidegate_replica_served_total",
        "Requests the replica served.",
    );
    for (url, replica) in &named {
        served.sample(&[("replica", url)], replica.served as f64);
    }
    let mut service = text.histogram(
        "tidegate_replica_service_seconds",
        "Time from admission to the end of the response, by replica.",
    );
    for (url, replica) in &named {
        if let Some(times) = times.get(usize::from(replica.id.0)) {
            service.buckets(&[("replica", url)], times);
        }
    }
}

fn tokens(text: &mut Text, application: &Application) {
    let settings = application.settings();
    let Some(tokens) = &settings.tokens else {
        return;
    };
    let mut refused = text.counter(
        "tidegate_tokens_refused_total",
        "Tokens that proved nothing, by what was wrong with them.",
    );
    for (fault, count) in tokens.refused() {
        refused.sample(&[("fault", fault)], count as f64);
    }
}

fn connections(text: &mut Text, totals: &Totals) {
    text.gauge(
        "tidegate_client_connections",
        "Client connections that are open.",
    )
    .sample(&[], totals.connections() as f64);
    text.gauge(
        "tidegate_client_connections_resting",
        "Client connections that cost no task: idle for a while, or refused time and again.",
    )
    .sample(&[], totals.resting as f64);
    text.counter(
        "tidegate_client_connections_total",
        "Client connections accepted.",
    )
    .sample(&[], totals.opened as f64);
    let mut turned_away = text.counter(
        "tidegate_client_connections_turned_away_total",
        "Client connections closed before HTTP began: beyond `limits.connections` or `limits.connections_per_address`, without the header of the PROXY protocol that the listener demands, without a TLS session.",
    );
    for (cause, count) in TurnedAway::ALL.into_iter().zip(totals.turned_away) {
        turned_away.sample(&[("cause", cause.as_str())], count as f64);
    }
    text.counter(
        "tidegate_requests_unrouted_total",
        "Requests that fitted no application and were answered with 404.",
    )
    .sample(&[], totals.unrouted as f64);
}

/// What the data plane counts of an application's requests.
fn requests(text: &mut Text, totals: &Totals) {
    let mut responses = text.counter(
        "tidegate_responses_total",
        "Responses to clients, the proxy's own included.",
    );
    for (code, count) in ["1xx", "2xx", "3xx", "4xx", "5xx"]
        .iter()
        .zip(totals.responses)
    {
        responses.sample(&[("code", code)], count as f64);
    }
    let mut failures = text.counter(
        "tidegate_upstream_failures_total",
        "Requests that a replica failed, by how.",
    );
    for (failure, count) in UpstreamFailure::ALL.iter().zip(totals.failures) {
        failures.sample(&[("kind", failure.as_str())], count as f64);
    }
    let mut bytes = text.counter("tidegate_body_bytes_total", "Body bytes passed on.");
    for (direction, count) in Direction::ALL.iter().zip(totals.bytes) {
        bytes.sample(&[("direction", direction.as_str())], count as f64);
    }
    text.counter(
        "tidegate_retries_total",
        "Requests sent a second time, or denied that by the budget.",
    )
    .sample(&[("outcome", "sent")], totals.retries as f64)
    .sample(&[("outcome", "denied")], totals.retries_denied as f64);
}

fn access_log(text: &mut Text, operator: &Operator, totals: &Totals) {
    let refused = operator.state.settings().log_refused.lines();
    text.counter(
        "tidegate_access_log_lines_lost_total",
        "Lines missing in the access log: its disk was too slow, or refused them.",
    )
    .sample(&[("cause", "slow")], totals.log_lines_lost as f64)
    .sample(&[("cause", "refused")], refused as f64);
}

fn reloads(text: &mut Text, status: &ReloadStatus) {
    text.counter(
        "tidegate_reloads_total",
        "Times the configuration was put in force or refused.",
    )
    .sample(&[("outcome", "done")], status.reloads as f64)
    .sample(&[("outcome", "refused")], status.refused as f64);
    text.gauge(
        "tidegate_config_in_force",
        "0 while the file as it is now is refused.",
    )
    .sample(&[], f64::from(u8::from(status.error.is_none())));
}

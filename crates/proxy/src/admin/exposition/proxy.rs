//! The process as a whole: its fleet, connections, access log, reloads and traces.

use tidegate_fleet::FleetStatus;

use crate::admin::{Operator, process as usage, shadow};
use crate::metrics::family::{Page, metrics};
use crate::metrics::{Totals, TurnedAway};
use crate::reload::ReloadStatus;
use crate::trace::Traces;

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
pub(super) fn fleet(page: &mut Page, status: &FleetStatus) {
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

pub(super) fn process(page: &mut Page, operator: &Operator) {
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

pub(super) fn connections(page: &mut Page, totals: &Totals) {
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

metrics! { ACCESS_LOG_METRICS:
    ACCESS_LOG_LINES_LOST = Counter "tidegate_access_log_lines_lost_total",
        "Lines missing in the access log: its disk was too slow, or refused them.",
        "make room on the disk, or choose a faster one";
}

pub(super) fn access_log(page: &mut Page, operator: &Operator, totals: &Totals) {
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

pub(super) fn reloads(page: &mut Page, status: &ReloadStatus) {
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
pub(super) fn traces(page: &mut Page, traces: &Traces) {
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

//! What an application does beside its engine: sections of `[edge]`, companions, the channel to
//! clients, tokens, and responses.

use crate::application::Application;
use crate::channel::ChannelStatus;
use crate::config::Companion;
use crate::metrics::family::{Page, metrics};
use crate::metrics::{Direction, Totals, UpstreamFailure};

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

/// What became of requests that another application gave to this one.
pub(super) fn companion(page: &mut Page, application: &Application) {
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
pub(super) fn edge(page: &mut Page, application: &Application) {
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
pub(super) fn deferral(page: &mut Page, status: &ChannelStatus) {
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

metrics! { TOKENS_METRICS:
    TOKENS_REFUSED = Counter "tidegate_tokens_refused_total",
        "Tokens that proved nothing, by what was wrong with them.",
        "check keys and clocks of the issuer";
}

pub(super) fn tokens(page: &mut Page, application: &Application) {
    let settings = application.settings();
    let Some(tokens) = &settings.tokens else {
        return;
    };
    let mut refused = page.begin(&TOKENS_REFUSED);
    for (fault, count) in tokens.refused() {
        refused.sample(&[("fault", fault)], count as f64);
    }
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
pub(super) fn requests(page: &mut Page, totals: &Totals) {
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

//! The engine: its mode, queue, target and controller, and what it decides about content.

use tidegate_sentry::{BrownoutReplica, BrownoutStatus, Status};

use super::Reading;
use crate::application::Application;
use crate::metrics::family::{Page, metrics};

metrics! { POLICING_METRICS:
    POLICING_INFO = Gauge "tidegate_policing_info",
        "How requests are judged, and why.",
        "with reason `cpu` give the proxy more cores";
    CPU_SHARE = Gauge "tidegate_cpu_share",
        "Share of its threads' time that the proxy itself spends computing.",
        "near 1 the proxy itself is the bottleneck: more cores or instances";
}

pub(super) fn policing(page: &mut Page, status: &Status) {
    let Some(policing) = &status.policing else {
        return;
    };
    let labels = [("kind", policing.kind), ("reason", policing.reason)];
    page.begin(&POLICING_INFO).sample(&labels, 1.0);
    if let Some(share) = policing.cpu_share {
        page.begin(&CPU_SHARE).sample(&[], share);
    }
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
    CAPACITY = Gauge "tidegate_capacity",
        "Requests the replicas can serve per second together.",
        "the capacity; alert when arrivals stay above it";
    POWER = Gauge "tidegate_power",
        "Goodput per second over the mean response time in seconds, of the last seconds.",
        "a fall under steady arrivals means worse work: queues are long, or answers late";
    OVERLOADED = Gauge "tidegate_overloaded",
        "1 while more arrives than can be served.",
        "add replicas, or wait: what exceeds the capacity is shed by class";
    BAD_REPORTS = Counter "tidegate_bad_reports_total",
        "Parts of replicas' reports that made no sense.",
        "the replica's headers are malformed; see wire.md";
}

/// What the last seconds were worth, where anything was answered in them.
pub(super) fn power(page: &mut Page, power: Option<f64>) {
    if let Some(power) = power {
        page.begin(&POWER).sample(&[], power);
    }
}

pub(super) fn engine(page: &mut Page, status: &Status) {
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
        page.begin(&CAPACITY).sample(&[], rate);
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

pub(super) fn controller(page: &mut Page, status: &Status) {
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
pub(super) fn brownout(
    page: &mut Page,
    application: &Application,
    status: Option<&BrownoutStatus>,
) {
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

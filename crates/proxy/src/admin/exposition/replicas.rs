//! Replicas: their windows, what they serve, and how long it takes.

use tidegate_sentry::ReplicaStatus;

use super::Reading;
use crate::application::Application;
use crate::metrics::Snapshot;
use crate::metrics::family::{Page, metrics};

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

pub(super) fn replicas(
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

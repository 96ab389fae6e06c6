//! What the proxy is doing, for people and programs.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use serde::Serialize;
use tidegate_sentry::{ClassStatus, ReplicaId, Status};

use super::Operator;
use crate::metrics::{ClassTimes, Snapshot};
use crate::reload::ReloadStatus;

/// Seconds that the recent figures look back; one picture is taken a second.
const PICTURES: usize = 10;

/// The answer of `/api/status`.
#[derive(Debug, Serialize)]
pub(super) struct StatusView {
    version: &'static str,
    uptime_seconds: f64,
    threads: usize,
    connections: u64,
    engine: Status,
    /// Addresses of the replicas in `engine`, by id.
    replicas: Vec<ReplicaView>,
    recent: Recent,
    reload: ReloadStatus,
}

#[derive(Debug, Serialize)]
struct ReplicaView {
    id: u16,
    url: String,
}

impl StatusView {
    pub(super) fn of(operator: &Operator) -> Self {
        let state = &operator.state;
        let settings = state.settings();
        let replica = |id: &ReplicaId| ReplicaView {
            id: id.0,
            url: settings
                .replica(*id)
                .map_or_else(String::new, |replica| replica.origin().to_string()),
        };
        Self {
            version: env!("CARGO_PKG_VERSION"),
            uptime_seconds: operator.started.elapsed().as_secs_f64(),
            threads: state.threads(),
            connections: state.connections() as u64,
            engine: state.sentry().status(state.now()),
            replicas: settings.replica_ids().iter().map(replica).collect(),
            recent: operator.pictures.lock().recent(),
            reload: operator.reloader.status(),
        }
    }
}

/// Figures of the last seconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(super) struct Recent {
    /// Seconds they cover.
    seconds: f64,
    /// Per class, in the order of the engine's.
    classes: Vec<RecentClass>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
struct RecentClass {
    name: String,
    arrived_per_second: f64,
    admitted_per_second: f64,
    served_per_second: f64,
    shed_per_second: f64,
    dropped_per_second: f64,
    waiting_p50_seconds: Option<f64>,
    waiting_p99_seconds: Option<f64>,
    service_p50_seconds: Option<f64>,
    service_p99_seconds: Option<f64>,
}

/// One picture of all counters.
#[derive(Debug)]
pub(super) struct Picture {
    pub(super) at: Instant,
    pub(super) classes: Vec<ClassStatus>,
    pub(super) times: Vec<ClassTimes>,
}

/// Pictures of the last seconds.
#[derive(Debug, Default)]
pub(super) struct Pictures(VecDeque<Picture>);

impl Pictures {
    pub(super) fn add(&mut self, picture: Picture) {
        if self.0.len() > PICTURES {
            self.0.pop_front();
        }
        self.0.push_back(picture);
    }

    fn recent(&self) -> Recent {
        let (Some(first), Some(last)) = (self.0.front(), self.0.back()) else {
            return Recent::default();
        };
        let span = last.at.saturating_duration_since(first.at);
        let classes = last.classes.iter().enumerate();
        Recent {
            seconds: span.as_secs_f64(),
            classes: classes
                .map(|(index, class)| recent_class(index, class, first, last, span))
                .collect(),
        }
    }
}

fn recent_class(
    index: usize,
    now: &ClassStatus,
    first: &Picture,
    last: &Picture,
    span: Duration,
) -> RecentClass {
    let then = first.classes.iter().find(|class| class.name == now.name);
    let rate = |count: fn(&ClassStatus) -> u64| {
        let new = count(now).saturating_sub(then.map_or(0, count));
        new as f64 / span.as_secs_f64().max(1e-9)
    };
    let quantile = |of: fn(&ClassTimes) -> &Snapshot, share: f64| {
        let now = of(last.times.get(index)?);
        let new = match first.times.get(index) {
            Some(then) => now.since(of(then)),
            None => now.clone(),
        };
        new.quantile(share).map(|time| time.as_secs_f64())
    };
    RecentClass {
        name: now.name.clone(),
        arrived_per_second: rate(|class| class.arrived),
        admitted_per_second: rate(|class| class.admitted),
        served_per_second: rate(|class| class.served),
        shed_per_second: rate(|class| class.shed.iter().map(|(_, count)| count).sum()),
        dropped_per_second: rate(|class| class.dropped),
        waiting_p50_seconds: quantile(|times| &times.waiting, 0.5),
        waiting_p99_seconds: quantile(|times| &times.waiting, 0.99),
        service_p50_seconds: quantile(|times| &times.service, 0.5),
        service_p99_seconds: quantile(|times| &times.service, 0.99),
    }
}

//! One class as the request path sees it: counters, and the limits published for it.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crate::api::{Ending, ShedReason};
use crate::status::ClassStatus;

/// A duration without bound, in nanoseconds.
pub(crate) const NEVER: u64 = u64::MAX;

/// See the module's description.
#[derive(Debug)]
pub(crate) struct Class {
    pub(crate) name: String,
    /// Waiters of the class in the central queue.
    pub(crate) queued: AtomicU32,
    /// Waiters at this importance or above with which a newcomer is still in time.
    pub(crate) ahead_limit: AtomicU32,
    /// Waiting time beyond which it is too late to start, in nanoseconds.
    pub(crate) wait_limit_ns: AtomicU64,
    /// The target in force, in nanoseconds.
    pub(crate) target_ns: AtomicU64,
    /// What the class can count on being drained per second.
    pub(crate) drain: AtomicF64,
    pub(crate) counters: Counters,
}

impl Class {
    pub(crate) fn new(name: String, target: Option<Duration>) -> Self {
        Self {
            name,
            queued: AtomicU32::new(0),
            ahead_limit: AtomicU32::new(u32::MAX),
            wait_limit_ns: AtomicU64::new(NEVER),
            target_ns: AtomicU64::new(target.map_or(NEVER, saturating_nanos)),
            drain: AtomicF64::default(),
            counters: Counters::default(),
        }
    }

    /// The target in force, if there is one.
    pub(crate) fn target(&self) -> Option<Duration> {
        let nanos = self.target_ns.load(Ordering::Relaxed);
        (nanos != NEVER).then(|| Duration::from_nanos(nanos))
    }

    pub(crate) fn status(&self) -> ClassStatus {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &self.counters;
        ClassStatus {
            name: self.name.clone(),
            target_seconds: self.target().map(|target| target.as_secs_f64()),
            queued: self.queued.load(Ordering::Relaxed),
            arrived: load(&counters.arrived),
            admitted: load(&counters.admitted),
            waited: load(&counters.waited),
            served: load(&counters.served),
            dropped: load(&counters.dropped),
            abandoned: load(&counters.abandoned),
            ignored: load(&counters.ignored),
            shed: by_reason(&counters.shed),
            would_shed: by_reason(&counters.would_shed),
        }
    }
}

pub(crate) fn saturating_nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(NEVER)
}

fn by_reason(counters: &[AtomicU64]) -> Vec<(&'static str, u64)> {
    ShedReason::ALL
        .iter()
        .map(|reason| {
            let count = counters[reason.index()].load(Ordering::Relaxed);
            (reason.as_str(), count)
        })
        .collect()
}

/// What happened to the class's requests since the start.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) arrived: AtomicU64,
    pub(crate) admitted: AtomicU64,
    pub(crate) waited: AtomicU64,
    pub(crate) served: AtomicU64,
    pub(crate) dropped: AtomicU64,
    pub(crate) abandoned: AtomicU64,
    pub(crate) ignored: AtomicU64,
    shed: [AtomicU64; ShedReason::ALL.len()],
    would_shed: [AtomicU64; ShedReason::ALL.len()],
}

impl Counters {
    pub(crate) fn ended(&self, ending: Ending) {
        let counter = match ending {
            Ending::Served => &self.served,
            Ending::Dropped => &self.dropped,
            Ending::Abandoned => &self.abandoned,
            Ending::Ignored => &self.ignored,
        };
        add_one(counter);
    }

    pub(crate) fn shed(&self, reason: ShedReason) {
        add_one(&self.shed[reason.index()]);
    }

    pub(crate) fn would_shed(&self, reason: ShedReason) {
        add_one(&self.would_shed[reason.index()]);
    }

    pub(crate) fn shed_total(&self) -> u64 {
        let counts = self.shed.iter();
        counts.map(|count| count.load(Ordering::Relaxed)).sum()
    }
}

pub(crate) fn add_one(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// A floating-point number for one writer and many readers.
#[derive(Debug, Default)]
pub(crate) struct AtomicF64(AtomicU64);

impl AtomicF64 {
    pub(crate) fn load(&self) -> f64 {
        f64::from_bits(self.0.load(Ordering::Relaxed))
    }

    pub(crate) fn store(&self, value: f64) {
        self.0.store(value.to_bits(), Ordering::Relaxed);
    }
}

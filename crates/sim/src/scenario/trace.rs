//! Requests of a recording as a source of a scenario.

use std::time::Duration;

use crate::client::Retry;

/// Requests with everything known about them, by arrival.
#[derive(Debug, Clone, Default)]
pub struct Trace {
    /// What requests have in common.
    pub kinds: Vec<TraceKind>,
    /// The requests, by arrival.
    pub requests: Vec<TraceRequest>,
    /// What a client does after a failure: attempts that were retries are not in the trace.
    pub retry: Option<Retry>,
}

/// What requests of a kind have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct TraceKind {
    /// Index of their class.
    pub class: u16,
    /// Key of their path.
    pub path: Option<u64>,
    /// Key of their tenant.
    pub tenant: Option<u64>,
}

/// One request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TraceRequest {
    /// Arrival, from the beginning of the scenario.
    pub at: Duration,
    /// Index of its kind.
    pub kind: u32,
    /// Its work in seconds on one core at speed 1.
    pub work: f64,
    /// What optional content adds to it.
    pub optional: f64,
    /// How long its client waits.
    pub patience: Option<Duration>,
    /// How long it is worth an answer, as its client says.
    pub deadline: Option<Duration>,
    /// Bytes while it waits.
    pub bytes: u32,
}

//! What the engine says about itself when asked.

use serde::Serialize;

use crate::api::ReplicaId;
use crate::config::ModeName;

/// A picture of the engine at one instant.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Status {
    /// The mode in force.
    pub mode: ModeName,
    /// Decides and reports, admits everything.
    pub dry_run: bool,
    /// Everything is admitted.
    pub kill_switch: bool,
    /// New requests are refused, those inside are finished.
    pub draining: bool,
    /// Per replica.
    pub replicas: Vec<ReplicaStatus>,
    /// The central queue.
    pub queue: QueueStatus,
    /// Per class, the most important first.
    pub classes: Vec<ClassStatus>,
}

/// One replica.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ReplicaStatus {
    /// Its id.
    pub id: ReplicaId,
    /// Whether it gets requests.
    pub up: bool,
    /// Slots; absent when there is no bound.
    pub window: Option<u32>,
    /// Requests that hold a slot.
    pub in_flight: u32,
    /// Long streams, which hold none.
    pub streams: u32,
}

/// The central queue.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct QueueStatus {
    /// Requests that wait.
    pub requests: u32,
    /// Bytes they hold.
    pub bytes: u64,
}

/// One class's counters since the start.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ClassStatus {
    /// Its name.
    pub name: String,
    /// Its target in force, in seconds; absent while there is none.
    pub target_seconds: Option<f64>,
    /// Requests that wait now.
    pub queued: u32,
    /// Requests that arrived.
    pub arrived: u64,
    /// Requests that got a slot.
    pub admitted: u64,
    /// Requests that had to wait.
    pub waited: u64,
    /// Requests the replica answered in full.
    pub served: u64,
    /// Requests the replica failed.
    pub dropped: u64,
    /// Requests whose client left, while queued or in flight.
    pub abandoned: u64,
    /// Requests that ended without being a sample.
    pub ignored: u64,
    /// Refusals by reason.
    pub shed: Vec<(&'static str, u64)>,
    /// What would have been refused, by reason, had it not been a dry run.
    pub would_shed: Vec<(&'static str, u64)>,
}

//! What the engine says about itself when asked.

#[cfg(feature = "serde")]
use std::collections::BTreeMap;

#[cfg(feature = "serde")]
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
#[cfg(feature = "serde")]
use serde::{Serialize, Serializer};
use tidegate_control::controller::Terms;

use crate::api::ReplicaId;
use crate::config::ModeName;
use crate::mode::PhaseName;

/// A picture of the engine at one instant.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(Serialize, JsonSchema))]
#[non_exhaustive]
pub struct Status {
    /// The mode in force.
    pub mode: ModeName,
    /// Decides and reports, admits everything.
    pub dry_run: bool,
    /// Everything is admitted.
    pub kill_switch: bool,
    /// New requests are refused, those inside are finished.
    pub draining: bool,
    /// What the replicas can serve per second together, where the mode knows.
    pub drain_rate: Option<f64>,
    /// Whether more arrives than can be served, where the mode knows.
    pub overloaded: Option<bool>,
    /// The controller's last step, where the mode has one.
    pub controller: Option<ControllerStatus>,
    /// The controller looks at the utilization of the replicas, they answer, and none has ever said
    /// it.
    pub blind: bool,
    /// Cause and remedy, where the mode runs on numbers that were measured on another service.
    pub borrowed: Option<String>,
    /// Optional content, where the mode decides about it.
    pub brownout: Option<BrownoutStatus>,
    /// How requests are judged, in mode `sentry`.
    pub policing: Option<PolicingStatus>,
    /// Parts of reports that were not finite or not in their range.
    pub bad_reports: u64,
    /// Mean and variance of times between arrivals and of service times, for the control plane.
    pub moments: MomentsStatus,
    /// Per replica.
    pub replicas: Vec<ReplicaStatus>,
    /// The central queue.
    pub queue: QueueStatus,
    /// Per class, the most important first.
    pub classes: Vec<ClassStatus>,
}

/// Moments of about the last minute.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(Serialize, JsonSchema))]
#[non_exhaustive]
pub struct MomentsStatus {
    /// Times between arrivals, over all classes; absent before the first.
    pub gaps: Option<TimesStatus>,
    /// Times that requests spent in a replica; absent before the first.
    pub service: Option<TimesStatus>,
}

/// Mean and mean square of times.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(Serialize, JsonSchema))]
#[non_exhaustive]
pub struct TimesStatus {
    /// How many, the past discounted.
    pub count: f64,
    /// Mean, in seconds.
    pub mean: f64,
    /// Mean of the squares, in seconds squared.
    pub square: f64,
}

/// A controller's last step.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(Serialize, JsonSchema))]
#[non_exhaustive]
pub struct ControllerStatus {
    /// Which controller.
    pub name: &'static str,
    /// What it wants to measure.
    pub setpoint: f64,
    /// What it measured; NaN (`null` in JSON) before the first step or without samples.
    pub measured: f64,
    /// Its command.
    pub output: f64,
    /// The parts of the command.
    #[cfg_attr(feature = "serde", schemars(schema_with = "terms"))]
    pub terms: Terms,
    /// Samples that were refused because they were not finite or missing.
    pub bad_samples: u64,
}

#[cfg(feature = "serde")]
fn terms(_: &mut SchemaGenerator) -> Schema {
    let number = json_schema!({ "type": "number" });
    json_schema!({
        "type": "object",
        "properties": { "p": number, "i": number, "d": number, "saturated": { "type": "boolean" } },
    })
}

/// What was decided about optional content.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(Serialize, JsonSchema))]
#[non_exhaustive]
pub struct BrownoutStatus {
    /// Response time that full responses are held at, at the quantile.
    pub setpoint_seconds: f64,
    /// The quantile, 0 to 1.
    pub quantile: f64,
    /// That quantile as it was measured last; absent before the first full response.
    pub measured_seconds: Option<f64>,
    /// `psi`: a request that waits longer is served without optional content.
    pub threshold_seconds: f64,
    /// Mean service time replicas are to aim at, where the mode has one.
    pub service_target_seconds: Option<f64>,
    /// Share of the requests dispatched lately that are served in full.
    pub full_share: Option<f64>,
    /// Leaving content out is not enough any more: admission refuses at the queue.
    pub refusing: bool,
    /// Per replica, where the mode controls their concurrency.
    pub replicas: Vec<BrownoutReplica>,
}

/// A replica's service-time controller.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(Serialize, JsonSchema))]
#[non_exhaustive]
pub struct BrownoutReplica {
    /// Its id.
    #[cfg_attr(feature = "serde", schemars(with = "u16"))]
    pub id: ReplicaId,
    /// `u`: how many requests at once meet the service time aimed at.
    pub concurrency: f64,
    /// `K`: seconds that a request takes per request in service.
    pub gain_seconds: f64,
    /// Whether the replica asks for requests itself.
    pub asks: bool,
    /// How it compares with the others.
    pub standing: Standing,
}

/// How a replica behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize, JsonSchema))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Standing {
    /// Like the others.
    Good,
    /// Much slower than the others: it gets one request at a time.
    Suspect,
    /// Holds requests and answers none: it gets nothing.
    Silent,
    /// Behaves again: it gets more bit by bit.
    Returning,
}

impl Standing {
    /// The word in events and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Suspect => "suspect",
            Self::Silent => "silent",
            Self::Returning => "returning",
        }
    }
}

/// One replica.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(Serialize, JsonSchema))]
#[non_exhaustive]
pub struct ReplicaStatus {
    /// Its id.
    #[cfg_attr(feature = "serde", schemars(with = "u16"))]
    pub id: ReplicaId,
    /// Whether it gets requests.
    pub up: bool,
    /// It takes far longer than the others, which get the requests while they have room.
    #[cfg_attr(feature = "serde", serde(rename = "ejected"))]
    pub aside: bool,
    /// What it is meant to carry, relative to the others.
    pub weight: u32,
    /// Slots; absent when there is no bound.
    pub window: Option<u32>,
    /// The phase of the search for its window, in mode `auto`.
    pub phase: Option<PhaseName>,
    /// Concurrency at which its throughput stops growing, in mode `auto`; absent until it is known.
    pub knee: Option<f64>,
    /// Requests that hold a slot.
    pub in_flight: u32,
    /// Long streams, which hold none.
    pub streams: u32,
    /// Requests served since the start.
    pub served: u64,
}

/// The central queue.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(Serialize, JsonSchema))]
#[non_exhaustive]
pub struct QueueStatus {
    /// Requests that wait, and those that had to make room for more important ones and have not
    /// been told yet.
    pub requests: u32,
    /// Bytes they hold.
    pub bytes: u64,
}

/// A row of a table of targets.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(Serialize, JsonSchema))]
#[non_exhaustive]
pub struct BandStatus {
    /// Arrival rate from which on it applies, requests per second over all classes.
    pub above: f64,
    /// Its target.
    pub target_seconds: f64,
}

/// A guarantee, and what was made of it.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(Serialize, JsonSchema))]
#[non_exhaustive]
pub struct GuaranteeStatus {
    /// Guaranteed requests per second.
    pub rate: f64,
    /// Requests admitted by it since the start.
    pub admitted: u64,
    /// Requests of late that count against it; it is used up when this reaches a second's worth.
    pub level: f64,
}

/// How requests are judged in mode `sentry`, and why.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(Serialize, JsonSchema))]
#[non_exhaustive]
pub struct PolicingStatus {
    /// `batch` or `threshold`.
    pub kind: &'static str,
    /// Why: `configured`, `cpu` (the proxy is short of it) or `room`.
    pub reason: &'static str,
    /// The proxy's own CPU use, where the driver reports it.
    pub cpu_share: Option<f64>,
    /// Weight of I/O in what a request costs, as configured or as found.
    pub io_weight: f64,
    /// Share of the requests of a class that is refused because of less important ones, by equation
    /// 8 with the delays in force.
    pub denied_share: f64,
    /// The most that it should be, as configured.
    pub denied_max: f64,
}

/// Requests of about the same cost.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(Serialize, JsonSchema))]
#[non_exhaustive]
pub struct CostBandStatus {
    /// What one costs: seconds in a replica, or the unit in which replicas report.
    pub cost: f64,
    /// How many of them arrive.
    pub offered_per_second: f64,
    /// The share of them that is admitted where no slot is free.
    pub share: f64,
}

/// One class's counters since the start.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(Serialize, JsonSchema))]
#[non_exhaustive]
pub struct ClassStatus {
    /// Its name.
    pub name: String,
    /// Its target in force, in seconds; absent while there is none.
    pub target_seconds: Option<f64>,
    /// The row of its table of targets in force; absent before the first.
    pub band: Option<BandStatus>,
    /// Its guarantee and what was made of it; absent without one.
    pub guarantee: Option<GuaranteeStatus>,
    /// What a request costs a server on its own, in seconds, where the mode measures it.
    pub service_seconds: Option<f64>,
    /// What arrives and what is admitted by cost, where `auto.cost_fairness` is above 0.
    pub costs: Vec<CostBandStatus>,
    /// How long its requests are held before they are examined, in mode `sentry`.
    pub delay_seconds: f64,
    /// Share of the requests in service that its target allows which servers are filled to, in mode
    /// `sentry`: the rest is kept free so that hardly anybody is late.
    pub room_share: f64,
    /// What a request in time is worth.
    pub revenue: f64,
    /// Requests answered within the target, at that price.
    pub revenue_earned: f64,
    /// What was not earned, by reason: `late`, `failed`, `abandoned` and those of refusals.
    #[cfg_attr(feature = "serde", serde(serialize_with = "as_map"))]
    #[cfg_attr(feature = "serde", schemars(with = "BTreeMap<String, f64>"))]
    pub revenue_lost: Vec<(&'static str, f64)>,
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
    /// Those of them that were answered within the target.
    pub in_target: u64,
    /// Those of them that were answered without optional content.
    #[cfg_attr(feature = "serde", serde(rename = "browned_out"))]
    pub degraded: u64,
    /// Requests the replica failed.
    #[cfg_attr(feature = "serde", serde(rename = "failed"))]
    pub dropped: u64,
    /// Requests whose client left, while queued or in flight.
    pub abandoned: u64,
    /// Requests that ended without being a sample.
    pub ignored: u64,
    /// Requests whose permit was dropped without an ending, by a fault of the driver.
    pub unreported: u64,
    /// Refusals by reason.
    #[cfg_attr(feature = "serde", serde(serialize_with = "as_map"))]
    #[cfg_attr(feature = "serde", schemars(with = "BTreeMap<String, u64>"))]
    pub shed: Vec<(&'static str, u64)>,
    /// What would have been refused, by reason, had it not been a dry run.
    #[cfg_attr(feature = "serde", serde(serialize_with = "as_map"))]
    #[cfg_attr(feature = "serde", schemars(with = "BTreeMap<String, u64>"))]
    pub would_shed: Vec<(&'static str, u64)>,
}

/// Pairs of name and value as a map.
#[cfg(feature = "serde")]
fn as_map<V: Serialize, S: Serializer>(
    pairs: &[(&'static str, V)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(pairs.iter().map(|(name, value)| (name, value)))
}

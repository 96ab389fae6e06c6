//! What a comparison says when asked.

use std::collections::BTreeMap;

#[cfg(feature = "serde")]
use schemars::JsonSchema;
#[cfg(feature = "serde")]
use serde::Serialize;

use crate::config::ModeName;

/// The configuration in force and another one on the same arrivals, at one instant.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(Serialize, JsonSchema))]
pub struct ShadowStatus {
    /// Seconds since the comparison began; its counters count from there.
    pub running_seconds: f64,
    /// Seconds that the rates cover.
    pub seconds: f64,
    /// Requests that the models did not get, because more arrived between two ticks than are kept.
    pub left_out: u64,
    /// Replicas whose limit was seen: a full window with others waiting, or a queue inside. The
    /// models of the others serve everything that they get.
    pub limits_known: usize,
    /// Replicas that are up.
    pub replicas_up: usize,
    /// What the engine in force really did.
    pub in_force: ShadowEngine,
    /// The configuration in force before models of the replicas: its distance from `in_force` is
    /// the error of the models.
    pub modelled: ShadowEngine,
    /// The other configuration before the same models.
    pub shadow: ShadowEngine,
}

/// One of the engines that are compared.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(Serialize, JsonSchema))]
pub struct ShadowEngine {
    /// Its mode.
    pub mode: ModeName,
    /// Whether more arrives than can be served, where the mode knows.
    pub overloaded: Option<bool>,
    /// Requests that the replicas can serve per second, where the mode knows.
    pub capacity_per_second: Option<f64>,
    /// Requests that wait.
    pub queued: u32,
    /// Requests in the replicas or in their models.
    pub in_flight: u32,
    /// Windows by replica; absent where there is no bound.
    pub windows: Vec<Option<u32>>,
    /// 95th percentile of the response time of the last seconds.
    pub response_p95_seconds: Option<f64>,
    /// All classes together.
    pub total: ShadowClass,
    /// By class, the most important first.
    pub classes: Vec<ShadowClass>,
}

/// What an engine decided about a class.
#[derive(Debug, Clone, PartialEq, Default)]
#[cfg_attr(feature = "serde", derive(Serialize, JsonSchema))]
pub struct ShadowClass {
    /// Its name; empty for all classes together.
    pub name: String,
    /// Its target in force.
    pub target_seconds: Option<f64>,
    /// Requests that arrived lately.
    pub offered_per_second: f64,
    /// Requests that got a slot lately.
    pub admitted_per_second: f64,
    /// Requests that were answered within the target lately.
    pub in_target_per_second: f64,
    /// Requests that were refused lately.
    pub shed_per_second: f64,
    /// The same by reason.
    pub shed_per_second_by_reason: BTreeMap<&'static str, f64>,
    /// Requests that arrived since the comparison began.
    pub arrived: u64,
    /// Requests that got a slot since then.
    pub admitted: u64,
    /// Requests that were answered within the target since then.
    pub in_target: u64,
    /// Refusals since then, by reason.
    pub shed: BTreeMap<&'static str, u64>,
}

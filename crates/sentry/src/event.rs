//! What the engine did: the one event type that metrics, dashboard, recorder and tests observe.

#[cfg(feature = "serde")]
use serde::Serialize;
use tidegate_control::Timestamp;
use tidegate_control::controller::Terms;

use crate::api::{ClassId, ReplicaId};
use crate::config::ModeName;
use crate::mode::{Cause, PhaseName};
use crate::status::Standing;

/// Something the engine decided about itself. Decisions about single requests are what
/// [`Sentry::on_arrival`] and [`Resolutions`] return: the driver has them already.
///
/// [`Sentry::on_arrival`]: crate::Sentry::on_arrival
/// [`Resolutions`]: crate::Resolutions
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(Serialize))]
#[cfg_attr(feature = "serde", serde(tag = "event", rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Event {
    /// A controller took a step.
    Step {
        /// When.
        at: Timestamp,
        /// Which controller.
        controller: &'static str,
        /// What it wants to measure.
        setpoint: f64,
        /// What it measured; NaN when there was nothing to measure.
        measured: f64,
        /// Its command.
        output: f64,
        /// The parts of the command.
        terms: Terms,
    },
    /// A replica's window changed.
    Window {
        /// When.
        at: Timestamp,
        /// Whose.
        replica: ReplicaId,
        /// Slots before.
        from: u32,
        /// Slots from now on.
        to: u32,
        /// Why.
        cause: Cause,
    },
    /// The search for a replica's window entered another phase, in mode `auto`.
    Phase {
        /// When.
        at: Timestamp,
        /// Whose.
        replica: ReplicaId,
        /// The phase before.
        from: PhaseName,
        /// The phase from now on.
        to: PhaseName,
        /// Why.
        cause: Cause,
    },
    /// The mode changed.
    Mode {
        /// When.
        at: Timestamp,
        /// The mode before.
        from: ModeName,
        /// The mode from now on.
        to: ModeName,
    },
    /// A replica's health changed.
    Health {
        /// When.
        at: Timestamp,
        /// Whose.
        replica: ReplicaId,
        /// Whether it gets requests from now on.
        up: bool,
    },
    /// What mode `auto` expects of the next requests.
    Forecast(Outlook),
    /// More arrives than can be served, or no longer.
    Overload {
        /// When.
        at: Timestamp,
        /// Whether it is an overload from now on.
        on: bool,
        /// Requests that arrive per second.
        offered_per_second: f64,
        /// Requests that can be served per second.
        #[cfg_attr(feature = "serde", serde(rename = "capacity_per_second"))]
        drain_per_second: f64,
    },
    /// Leaving optional content out is not enough any more and requests are refused, or no longer.
    Handover {
        /// When.
        at: Timestamp,
        /// Whether requests are refused from now on.
        refusing: bool,
        /// Mean waiting time of the last requests dispatched; NaN without any.
        waited_seconds: f64,
    },
    /// A replica behaves differently from the others, or like them again.
    Standing {
        /// When.
        at: Timestamp,
        /// Whose.
        replica: ReplicaId,
        /// How it stands from now on.
        standing: Standing,
        /// Seconds that a request takes there per request in service.
        gain_seconds: f64,
        /// The same, the median of the others; NaN without others.
        pack_seconds: f64,
    },
    /// A replica takes far longer than the others, or no longer. While they have room it gets only
    /// what it takes to see how it does.
    Ejected {
        /// When.
        at: Timestamp,
        /// Which.
        replica: ReplicaId,
        /// Whether it is ejected from now on.
        on: bool,
        /// Seconds that a request took there lately.
        seconds: f64,
        /// The same, the median of the replicas.
        others_seconds: f64,
    },
    /// A class's target followed the arrival rate.
    Target {
        /// When.
        at: Timestamp,
        /// Which class.
        class: ClassId,
        /// Requests that arrive per second, over all classes.
        offered_per_second: f64,
        /// Its target from now on.
        seconds: f64,
    },
    /// Requests are judged in another way, in mode `sentry`.
    Policing {
        /// When.
        at: Timestamp,
        /// `batch` or `threshold`.
        kind: &'static str,
        /// Why.
        reason: &'static str,
    },
    /// What happened in about a second.
    Measured(Measurement),
    /// An operator's switch was moved.
    Switch {
        /// When.
        at: Timestamp,
        /// `kill_switch`, `dry_run` or `draining`.
        name: &'static str,
        /// Its position from now on.
        on: bool,
    },
}

/// What mode `auto` expects of the next requests.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(Serialize))]
pub struct Outlook {
    /// When.
    pub at: Timestamp,
    /// Requests that arrive per second.
    pub offered_per_second: f64,
    /// Requests that can be served per second; absent while unknown.
    #[cfg_attr(feature = "serde", serde(rename = "capacity_per_second"))]
    pub drain_per_second: Option<f64>,
    /// Time of a request in a replica.
    pub residence_seconds: f64,
    /// Response time to be kept, of the most important class.
    pub target_seconds: f64,
    /// Waiters with which a newcomer of the least important class is still admitted; absent while
    /// nothing is refused.
    pub queue_limit: Option<u32>,
    /// Requests that wait.
    pub queued: u32,
    /// Whether more arrives than can be served.
    pub overloaded: bool,
}

/// Counts and times of a stretch of time.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(Serialize))]
#[non_exhaustive]
pub struct Measurement {
    /// Its end.
    pub at: Timestamp,
    /// Its length.
    pub seconds: f64,
    /// Requests that arrived.
    pub offered: u64,
    /// Requests that got a slot.
    pub admitted: u64,
    /// Requests the replicas answered in full.
    pub served: u64,
    /// Those of them that were answered within the target.
    pub in_target: u64,
    /// Requests refused.
    pub shed: u64,
    /// Mean response time of those that were served.
    pub response_seconds: Option<f64>,
    /// Median of the response time.
    pub response_p50_seconds: Option<f64>,
    /// 95th percentile of the response time.
    pub response_p95_seconds: Option<f64>,
    /// 99th percentile of the response time.
    pub response_p99_seconds: Option<f64>,
    /// Mean utilization the replicas reported.
    pub utilization: Option<f64>,
    /// Requests in flight at the end.
    pub in_flight: u32,
    /// Requests waiting at the end.
    pub queued: u32,
}

/// Receives the engine's events.
pub trait Observer {
    /// Called for each event, in order of time.
    fn on_event(&mut self, event: &Event);
}

/// Every closure over an event is an observer.
impl<F: FnMut(&Event)> Observer for F {
    fn on_event(&mut self, event: &Event) {
        self(event);
    }
}

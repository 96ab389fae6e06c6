//! Modes: who decides how much is admitted.
//!
//! A [`Strategy`] is called once per control interval with what was measured; it publishes its
//! command to the gate, the windows and the classes' forecasts, from where requests read it.

mod auto;
mod ceiling;
mod dimming;
mod feedback;
mod fixed;
mod ilac;
mod lqr;
mod off;
mod sentry;

#[cfg(feature = "ablation")]
pub use auto::ablation;
pub use auto::{Cause, PhaseName, tuning_page};

use std::time::Duration;

use tidegate_control::Timestamp;

use crate::api::ReplicaId;
use crate::config::{GateKind, ModeName, SentryConfig};
use crate::error::SentryError;
use crate::event::{Event, Observer};
use crate::fleet::{FleetShare, LeadWindow};
use crate::gate::{ContentGate, ContentRule, Gate};
use crate::monitor::Interval;
use crate::plan::Plan;
use crate::status::{BrownoutStatus, ControllerStatus, PolicingStatus};

/// What a strategy sees and reaches in a step.
pub(crate) struct Step<'a> {
    pub(crate) now: Timestamp,
    /// What happened since the last step.
    pub(crate) interval: &'a Interval,
    pub(crate) plan: &'a Plan,
    pub(crate) gate: &'a Gate,
    pub(crate) content: &'a ContentGate,
    /// Nothing is enforced: what is in flight is not what the windows say.
    pub(crate) dry_run: bool,
    pub(crate) observer: &'a mut dyn Observer,
}

impl Step<'_> {
    pub(crate) fn in_system(&self) -> u32 {
        self.plan.in_system()
    }

    pub(crate) fn observe(&mut self, event: &Event) {
        self.observer.on_event(event);
    }
}

/// Where the engine stands when another strategy takes over, so that nothing jumps.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Handover {
    /// Requests admitted per second lately.
    pub(crate) admitted_per_second: f64,
    /// Requests waiting or in flight.
    pub(crate) in_system: u32,
    /// The gate's kind and command, in requests, if it was not open.
    pub(crate) gate: Option<(GateKind, f64)>,
}

impl Handover {
    /// What a gate of this kind has to be set to for things to stay as they are.
    fn command(&self, kind: GateKind) -> f64 {
        match self.gate {
            Some((same, command)) if same == kind => command,
            _ => match kind {
                GateKind::Rate => self.admitted_per_second,
                GateKind::Percent => 1.0,
                GateKind::Window => f64::from(self.in_system),
            },
        }
    }
}

/// Turns measurements into commands.
pub(crate) trait Strategy: std::fmt::Debug + Send {
    /// Time between two steps.
    fn interval(&self) -> Duration;

    /// Puts the command in force before the first step; `handover` says where another strategy
    /// left off, if one was there.
    fn start(&mut self, now: Timestamp, plan: &Plan, gate: &Gate, handover: Option<&Handover>);

    /// Takes one step.
    fn step(&mut self, step: &mut Step<'_>);

    /// Takes over changed parameters of the same mode in place; false to be replaced instead.
    fn reconfigure(&mut self, now: Timestamp, plan: &Plan) -> bool {
        let _ = (now, plan);
        false
    }

    /// The windows that were found, where they are not those it began with.
    fn windows(&self) -> Vec<(ReplicaId, u32)> {
        Vec::new()
    }

    /// The phases of the searches for windows, by replica; empty where nothing is searched.
    fn phases(&self) -> Vec<PhaseName> {
        Vec::new()
    }

    /// The knees as far as they are known, by replica; empty where nothing is searched.
    fn knees(&self) -> Vec<Option<f64>> {
        Vec::new()
    }

    /// Goes on from windows that were found before.
    fn resume(&mut self, now: Timestamp, windows: &[(ReplicaId, u32)]) {
        let _ = (now, windows);
    }

    /// Takes over what this engine may use of what it shares with others.
    fn share(&mut self, now: Timestamp, plan: &Plan, gate: &Gate, share: &FleetShare) {
        let _ = (now, plan, gate, share);
    }

    /// What the search has found, of all engines together, and the throughput with it; by replica.
    fn found(&self) -> Vec<(Option<LeadWindow>, Option<f64>)> {
        Vec::new()
    }

    /// What the replicas can serve per second, if it is known.
    fn drain_rate(&self) -> Option<f64> {
        None
    }

    /// Whether more arrives than can be served, if it is known.
    fn overloaded(&self) -> Option<bool> {
        None
    }

    /// The gate's kind and command, in requests, if it is not open.
    fn command(&self) -> Option<(GateKind, f64)> {
        None
    }

    /// What requests are judged by before the first step, where it decides about content.
    fn content_rule(&self) -> Option<ContentRule> {
        None
    }

    /// What was decided about optional content, for status and metrics.
    fn brownout(&self) -> Option<BrownoutStatus> {
        None
    }

    /// How requests are judged, where the mode does that one by one.
    fn policing(&self, plan: &Plan) -> Option<PolicingStatus> {
        let _ = plan;
        None
    }

    /// Whether replicas answer, and none has ever said what the controller looks at.
    fn is_blind(&self) -> bool {
        false
    }

    /// What the controller did last, for status and metrics.
    fn status(&self) -> Option<ControllerStatus> {
        None
    }
}

/// The strategy of a configuration.
pub(crate) fn strategy(
    config: &SentryConfig,
    now: Timestamp,
) -> Result<Box<dyn Strategy>, SentryError> {
    Ok(match config.mode {
        ModeName::Off => Box::new(off::Off),
        ModeName::Auto => Box::new(auto::Auto::new(config, now)),
        ModeName::Static => Box::new(fixed::Fixed::new(config)?),
        ModeName::Step => Box::new(feedback::FeedbackLoop::step(config)?),
        ModeName::Pi => Box::new(feedback::FeedbackLoop::pi(config)?),
        ModeName::Pid => Box::new(feedback::FeedbackLoop::pid(config)?),
        ModeName::Lqr => Box::new(lqr::Lqr::new(config)?),
        ModeName::Ilac => Box::new(ilac::Ilac::new(config, now)?),
        ModeName::Sentry => Box::new(sentry::SentryMode::new(config, now)),
    })
}

/// Opens what a strategy without forecast does not use, and gives every replica its slots.
fn without_forecast(plan: &Plan) {
    for class in &plan.classes {
        class.forecast.withdraw();
    }
    for replica in plan.replicas.iter() {
        let slots = crate::plan::initial_window(&plan.config, replica.weight());
        replica.set_limit(slots);
    }
}

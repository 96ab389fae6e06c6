//! Controllers: from a measurement to a command.
//!
//! Every controller of this module keeps the same promises, so that a driver can swap one for
//! another while it runs:
//!
//! - **limits**: what [`Controller::step`] returns lies within the configured range, always;
//! - **anti-windup**: while the output is limited the integral follows what was really applied,
//!   so that the controller leaves saturation in the step in which the error changes sign
//!   ([`Integration::Forward`]: in the next one);
//! - **slew limit**: two consecutive outputs differ by at most the configured change;
//! - **bumpless**: changing gains, or taking over from another controller with
//!   [`Controller::track`], moves the output by nothing in that instant;
//! - **bad samples**: a measurement or setpoint that is NaN or infinite (or missing, which a
//!   driver passes as NaN) holds the last output and is counted. It never opens the gate.
//!
//! Limits, slew and bad samples are the [`Actuator`]'s business, the integral and its anti-windup
//! stand in one module too; a controller adds its law. The error is `setpoint - measured`; where a
//! larger command lowers the measurement, the gain is negative. Constructors check their
//! configuration and refuse it with a [`ControlError`](crate::ControlError); what was built cannot
//! fail.
//!
//! | controller | law | source |
//! | --- | --- | --- |
//! | [`Static`] | a constant | 002 §2.2 |
//! | [`Step`] | a fixed step against the error, outside a dead band | 002 §2.2 |
//! | [`Pid`] | P, PI, PID in the ideal form | 002 eq. 1 and §5, 001 §4.2 |
//! | [`Integral`] | the sum of errors | 004 eq. 4 |
//! | [`AdaptiveIntegral`] | the same, its gain divided by the plant's estimated gain | 004 eq. 9 to 11 |
//! | [`StateFeedback`] | linear in several measurements (LQR) | 000 eq. 6 |
//! | [`FuzzyPi`] | rules on error and its change | named by 001 as future work |
//! | [`SmithPredictor`] | any of them, on a measurement freed of dead time | named by 001 as future work |
//!
//! Decision: docs/decisions/0004-control-theory-choices.md.

mod actuator;
mod adaptive;
mod fixed;
mod fuzzy;
mod integral;
mod integrator;
mod pid;
mod smith;
mod state_feedback;
mod step;

pub use actuator::{Actuator, ActuatorConfig, Limits};
pub use adaptive::{AdaptiveIntegral, AdaptiveIntegralConfig};
pub use fixed::Static;
pub use fuzzy::{FuzzyPi, FuzzyPiConfig, FuzzyPiScales};
pub use integral::{Integral, IntegralConfig};
pub use integrator::Integration;
pub use pid::{Pid, PidConfig, PidGains};
pub use smith::{ProcessModel, SmithConfig, SmithPredictor};
pub use state_feedback::{StateFeedback, StateFeedbackConfig};
pub use step::{Step, StepConfig};

/// A single-input single-output controller with a sampling period fixed at construction.
pub trait Controller: std::fmt::Debug + Send {
    /// Takes one measurement and returns the command in force until the next step.
    fn step(&mut self, setpoint: f64, measured: f64) -> f64;

    /// The command in force: what the last [`step`](Controller::step) returned.
    fn output(&self) -> f64;

    /// Tells the controller what was really applied since its last step (a gate that saturated,
    /// an operator's override, another controller before a change of mode), so that the next
    /// step starts from there.
    fn track(&mut self, applied: f64);

    /// Sets the largest command from the next step on, never below the smallest one; what is not
    /// finite changes nothing. The integral is confined to it like to any other limit.
    fn set_max(&mut self, max: f64);

    /// The parts of the last output, for metrics and plots.
    fn terms(&self) -> Terms;

    /// How many samples were refused because they were not finite.
    fn bad_samples(&self) -> u64;
}

impl<C: Controller + ?Sized> Controller for Box<C> {
    fn step(&mut self, setpoint: f64, measured: f64) -> f64 {
        (**self).step(setpoint, measured)
    }

    fn output(&self) -> f64 {
        (**self).output()
    }

    fn track(&mut self, applied: f64) {
        (**self).track(applied);
    }

    fn set_max(&mut self, max: f64) {
        (**self).set_max(max);
    }

    fn terms(&self) -> Terms {
        (**self).terms()
    }

    fn bad_samples(&self) -> u64 {
        (**self).bad_samples()
    }
}

/// The parts that sum to a controller's output before it is limited; a part that a controller
/// does not have is zero.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Terms {
    /// Proportional part.
    pub p: f64,
    /// Integral part, the bias included.
    pub i: f64,
    /// Derivative part.
    pub d: f64,
    /// Whether a limit (range or slew) changed the output.
    pub saturated: bool,
}

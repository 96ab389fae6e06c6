//! Controllers: from a measurement to a command.
//!
//! Every controller of this module keeps the same promises, so that a driver can swap one for
//! another while it runs:
//!
//! - **limits**: what [`Controller::step`] returns lies within the configured range, always;
//! - **anti-windup**: while the output is limited the integral follows what was really applied,
//!   so that the controller leaves saturation in the step in which the error changes sign;
//! - **slew limit**: two consecutive outputs differ by at most the configured change;
//! - **bumpless**: changing gains, or taking over from another controller with
//!   [`Controller::track`], moves the output by nothing in that instant;
//! - **bad samples**: a measurement or setpoint that is NaN or infinite (or missing, which a
//!   driver passes as NaN) holds the last output and is counted. It never opens the gate.

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

    /// The parts of the last output, for metrics and plots.
    fn terms(&self) -> Terms;

    /// How many samples were refused because they were not finite.
    fn bad_samples(&self) -> u64;
}

/// The parts that sum to a controller's output before it is limited; a part that a controller
/// does not have is zero.
#[derive(Debug, Clone, Copy, PartialEq, Default, serde::Serialize)]
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

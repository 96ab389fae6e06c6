//! State feedback about an operating point, the law of an LQR (000 eq. 5 and 6).
//!
//! ```text
//! u(k) = ū - K (x(k) - x̄)
//! ```
//!
//! for one command `u` and as many measurements `x` as there are gains; several commands are
//! several of these, one per row of `K`. There is no integral, so nothing winds up, but also
//! nothing removes a steady error: when the plant has changed for good, the operating point has to
//! move with it ([`StateFeedback::set_operating_point`]).
//!
//! New gains, a new operating point or a tracked command would move the output at once. What
//! they would move it by is carried as an offset that fades by half each step, so
//! the law above is back to within a thousandth after ten.

use super::actuator::finite;
use super::{Actuator, ActuatorConfig, Terms};
use crate::error::{ControlError, require_finite};

/// Share of the transfer offset that survives a step: a change is spread over a handful of
/// steps, few enough that an operator who changes a gain sees its effect.
const OFFSET_FADE: f64 = 0.5;

/// Parameters of [`StateFeedback`].
#[derive(Debug, Clone, PartialEq)]
pub struct StateFeedbackConfig {
    /// One row of `K`.
    pub gains: Vec<f64>,
    /// `x̄`, the measurements at the operating point.
    pub state: Vec<f64>,
    /// `ū`, the command at the operating point.
    pub command: f64,
    /// Range, slew limit and start of the output.
    pub actuator: ActuatorConfig,
}

/// A command that is linear in several measurements. It keeps the promises of
/// [`Controller`](super::Controller), with a vector in place of one measurement.
///
/// ```
/// use tidegate_control::controller::{ActuatorConfig, StateFeedback, StateFeedbackConfig};
///
/// // The LQR of 000: response time in ms and the goodput missing to 1 300 tokens/s; the
/// // command is how far admission stays below that. Operating point 400 ms, 960, 1 000.
/// let mut controller = StateFeedback::new(StateFeedbackConfig {
///     gains: vec![-0.81797, 10.27376],
///     state: vec![400.0, 340.0],
///     command: 300.0,
///     actuator: ActuatorConfig::within(0.0, 1250.0).starting_at(300.0),
/// })?;
/// assert_eq!(controller.step(&[400.0, 340.0]), 300.0);
/// // Responses 100 ms slower: admit 82 tokens/s less.
/// assert!((controller.step(&[500.0, 340.0]) - 381.797).abs() < 1e-9);
/// // A measurement is missing: hold.
/// assert!((controller.step(&[f64::NAN, 340.0]) - 381.797).abs() < 1e-9);
/// # Ok::<(), tidegate_control::ControlError>(())
/// ```
#[derive(Debug, Clone)]
pub struct StateFeedback {
    gains: Vec<f64>,
    state: Vec<f64>,
    command: f64,
    offset: f64,
    /// The offset was set since the last step, and starts fading after the next.
    offset_is_new: bool,
    /// `-K (x - x̄)` of the last step; none before the first.
    correction: Option<f64>,
    last_measured: Vec<f64>,
    /// What was applied before the first step, for that step to start from.
    take_over: Option<f64>,
    actuator: Actuator,
}

impl StateFeedback {
    /// Checks `config` and builds the controller.
    pub fn new(config: StateFeedbackConfig) -> Result<Self, ControlError> {
        check_vector("gains", &config.gains, config.gains.len().max(1))?;
        check_vector("state", &config.state, config.gains.len())?;
        require_finite("command", config.command)?;
        Ok(Self {
            gains: config.gains,
            state: config.state,
            command: config.command,
            offset: 0.0,
            offset_is_new: false,
            correction: None,
            last_measured: Vec::new(),
            take_over: None,
            actuator: Actuator::new(config.actuator)?,
        })
    }

    /// Takes one measurement of every state and returns the command in force until the next
    /// step. A vector of the wrong length is a bad sample, like one that is not finite.
    pub fn step(&mut self, measured: &[f64]) -> f64 {
        let complete = measured.len() == self.gains.len();
        let samples = if complete { measured } else { &[f64::NAN] };
        if self.actuator.accept(samples) {
            self.last_measured.clear();
            self.last_measured.extend_from_slice(measured);
            self.update();
        }
        self.actuator.output()
    }

    /// The command in force.
    #[must_use]
    pub fn output(&self) -> f64 {
        self.actuator.output()
    }

    /// Tells what was really applied; the next step starts from there.
    pub fn track(&mut self, applied: f64) {
        let news = self.actuator.track(applied);
        if self.correction.is_none() {
            self.take_over = Some(self.actuator.output());
        } else if let Some(applied) = news {
            self.set_offset(applied - self.law());
        }
    }

    /// The parts of the last output: the correction `-K (x - x̄)` as `p`, the operating point as
    /// `i`.
    #[must_use]
    pub fn terms(&self) -> Terms {
        Terms {
            p: self.correction.unwrap_or(0.0),
            i: finite(self.command + self.offset),
            d: 0.0,
            saturated: self.actuator.saturated(),
        }
    }

    /// How many measurements were refused.
    #[must_use]
    pub fn bad_samples(&self) -> u64 {
        self.actuator.bad_samples()
    }

    /// Changes the gains; the output moves to the new law gradually.
    pub fn set_gains(&mut self, gains: &[f64]) -> Result<(), ControlError> {
        check_vector("gains", gains, self.gains.len())?;
        let before = self.law();
        self.gains.copy_from_slice(gains);
        self.carry_over(before);
        Ok(())
    }

    /// Moves the operating point; the output moves to the new law gradually.
    pub fn set_operating_point(&mut self, state: &[f64], command: f64) -> Result<(), ControlError> {
        check_vector("state", state, self.gains.len())?;
        require_finite("command", command)?;
        let before = self.law();
        self.state.copy_from_slice(state);
        self.command = command;
        self.carry_over(before);
        Ok(())
    }

    /// Range and slew limit, to be changed while running.
    pub fn actuator_mut(&mut self) -> &mut Actuator {
        &mut self.actuator
    }

    fn update(&mut self) {
        self.correction = Some(self.correction_for(&self.last_measured));
        if let Some(applied) = self.take_over.take() {
            self.set_offset(applied - self.law());
        }
        if !std::mem::take(&mut self.offset_is_new) {
            self.offset *= OFFSET_FADE;
        }
        let wanted = finite(self.law() + self.offset);
        self.actuator.apply(wanted);
    }

    /// `ū - K (x - x̄)` for the last measurement.
    fn law(&self) -> f64 {
        finite(self.command + self.correction.unwrap_or(0.0))
    }

    fn correction_for(&self, measured: &[f64]) -> f64 {
        let rows = self.gains.iter().zip(measured).zip(&self.state);
        rows.fold(0.0, |sum, ((gain, x), x_bar)| {
            finite(sum - finite(gain * finite(x - x_bar)))
        })
    }

    /// After a change of the law, which gave `before`: the same measurement may not jump.
    fn carry_over(&mut self, before: f64) {
        if self.correction.is_some() {
            self.correction = Some(self.correction_for(&self.last_measured));
            self.set_offset(self.offset + before - self.law());
        }
    }

    fn set_offset(&mut self, offset: f64) {
        self.offset = finite(offset);
        self.offset_is_new = true;
    }
}

fn check_vector(name: &'static str, values: &[f64], expected: usize) -> Result<(), ControlError> {
    if values.len() != expected {
        let got = values.len();
        return Err(ControlError::Length {
            name,
            expected,
            got,
        });
    }
    values
        .iter()
        .try_for_each(|&value| require_finite(name, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn controller() -> StateFeedback {
        StateFeedback::new(StateFeedbackConfig {
            gains: vec![1.0, -2.0],
            state: vec![10.0, 20.0],
            command: 50.0,
            actuator: ActuatorConfig::within(0.0, 100.0).starting_at(50.0),
        })
        .unwrap()
    }

    #[test]
    fn is_linear_in_the_deviations() {
        let mut controller = controller();
        assert_eq!(controller.step(&[10.0, 20.0]), 50.0);
        assert_eq!(controller.step(&[13.0, 20.0]), 47.0);
        assert_eq!(controller.step(&[13.0, 24.0]), 55.0);
    }

    #[test]
    fn vector_of_the_wrong_length_is_held_and_counted() {
        let mut controller = controller();
        controller.step(&[13.0, 24.0]);
        assert_eq!(controller.step(&[1.0]), 55.0);
        assert_eq!(controller.step(&[1.0, f64::INFINITY]), 55.0);
        assert_eq!(controller.bad_samples(), 2);
    }

    #[test]
    fn new_gains_take_over_gradually() {
        let mut controller = controller();
        let before = controller.step(&[20.0, 20.0]);
        controller.set_gains(&[3.0, -2.0]).unwrap();
        assert_eq!(controller.output(), before);
        let after: Vec<f64> = (0..12).map(|_| controller.step(&[20.0, 20.0])).collect();
        assert_eq!(after[0], before);
        assert_eq!(after[1], (before + 20.0) / 2.0);
        assert!((after[11] - 20.0).abs() < 0.02);
    }

    #[test]
    fn controller_that_takes_over_starts_from_what_was_applied() {
        let mut fresh = controller();
        fresh.track(80.0);
        assert_eq!(fresh.step(&[20.0, 20.0]), 80.0);
        let settled = (0..20).map(|_| fresh.step(&[20.0, 20.0])).last();
        assert!((settled.unwrap() - 40.0).abs() < 1e-3);
    }

    #[test]
    fn refuses_vectors_that_do_not_fit() {
        let error = StateFeedback::new(StateFeedbackConfig {
            gains: vec![1.0, 2.0],
            state: vec![1.0],
            command: 0.0,
            actuator: ActuatorConfig::unlimited(),
        })
        .map(drop)
        .unwrap_err();
        assert_eq!(error.to_string(), "state has 1 entries, expected 2");
        assert!(controller().set_gains(&[f64::NAN, 1.0]).is_err());
    }
}

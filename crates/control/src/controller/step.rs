//! The step controller of 002 §2.2: a fixed step down when too high, up when too low.
//!
//! ```text
//! u(t+1) = u(t) - s   when  y(t) > y_ref + ε
//!          u(t) + s   when  y(t) < y_ref - ε
//!          u(t)       otherwise
//! ```
//!
//! The paper prints `>` in the second branch as well, which would raise the rate at every value
//! above the band's lower end; it must be `<`. The controller needs no model, but it oscillates by
//! about `s` times the loop's delay, and a large error is corrected no faster than a small one.

use super::actuator::finite;
use super::{Actuator, ActuatorConfig, Controller, Terms};
use crate::error::{ControlError, require, require_nonzero};

/// Parameters of [`Step`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepConfig {
    /// `s`, the change of the output per step; negative when a larger output lowers the
    /// measurement.
    pub step: f64,
    /// `ε`, how far the measurement may stray from the setpoint without any reaction.
    pub dead_band: f64,
    /// Range, slew limit and start of the output.
    pub actuator: ActuatorConfig,
}

/// Moves by a fixed step against the error, outside a dead band.
///
/// ```
/// use tidegate_control::controller::{ActuatorConfig, Controller, Step, StepConfig};
///
/// let mut controller = Step::new(StepConfig {
///     step: 2.0,
///     dead_band: 0.05,
///     actuator: ActuatorConfig::within(0.0, 100.0).starting_at(40.0),
/// })?;
/// assert_eq!(controller.step(0.8, 0.95), 38.0); // too busy
/// assert_eq!(controller.step(0.8, 0.82), 38.0); // within the band
/// assert_eq!(controller.step(0.8, 0.50), 40.0); // idle
/// # Ok::<(), tidegate_control::ControlError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Step {
    step: f64,
    dead_band: f64,
    wanted: f64,
    actuator: Actuator,
}

impl Step {
    /// Checks `config` and builds the controller.
    pub fn new(config: StepConfig) -> Result<Self, ControlError> {
        let mut controller = Self {
            step: config.step,
            dead_band: config.dead_band,
            wanted: config.actuator.initial,
            actuator: Actuator::new(config.actuator)?,
        };
        controller.set_gains(config.step, config.dead_band)?;
        Ok(controller)
    }

    /// Changes step and dead band; the output stays where it is.
    pub fn set_gains(&mut self, step: f64, dead_band: f64) -> Result<(), ControlError> {
        require_nonzero("step", step)?;
        let valid = dead_band.is_finite() && dead_band >= 0.0;
        require(valid, "dead_band", "finite and not negative", dead_band)?;
        (self.step, self.dead_band) = (step, dead_band);
        Ok(())
    }

    /// Range and slew limit, to be changed while running.
    pub fn actuator_mut(&mut self) -> &mut Actuator {
        &mut self.actuator
    }

    fn change(&self, error: f64) -> f64 {
        if error < -self.dead_band {
            -self.step
        } else if error > self.dead_band {
            self.step
        } else {
            0.0
        }
    }
}

impl Controller for Step {
    fn step(&mut self, setpoint: f64, measured: f64) -> f64 {
        if let Some(error) = self.actuator.error(setpoint, measured) {
            self.wanted = finite(self.actuator.output() + self.change(error));
            self.actuator.apply(self.wanted);
        }
        self.actuator.output()
    }

    fn output(&self) -> f64 {
        self.actuator.output()
    }

    fn track(&mut self, applied: f64) {
        self.actuator.track(applied);
    }

    fn set_max(&mut self, max: f64) {
        self.actuator.set_max(max);
    }

    fn terms(&self) -> Terms {
        Terms {
            i: self.wanted,
            saturated: self.actuator.saturated(),
            ..Terms::default()
        }
    }

    fn bad_samples(&self) -> u64 {
        self.actuator.bad_samples()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn controller(step: f64) -> Step {
        Step::new(StepConfig {
            step,
            dead_band: 0.1,
            actuator: ActuatorConfig::within(0.0, 10.0).starting_at(5.0),
        })
        .unwrap()
    }

    #[test]
    fn second_branch_compares_with_less_than() {
        // With the paper's misprint 0.8 + 0 > 0.8 - 0.1 would raise the rate.
        assert_eq!(controller(1.0).step(0.8, 0.8), 5.0);
        assert_eq!(controller(1.0).step(0.8, 0.6), 6.0);
        assert_eq!(controller(1.0).step(0.8, 1.0), 4.0);
    }

    #[test]
    fn negative_step_acts_in_reverse() {
        assert_eq!(controller(-1.0).step(0.8, 0.6), 4.0);
    }

    #[test]
    fn leaves_the_limit_in_the_first_step_after_the_error_turned() {
        let mut controller = controller(1.0);
        for _ in 0..1000 {
            controller.step(0.8, 0.0);
        }
        assert_eq!(controller.output(), 10.0);
        assert_eq!(controller.step(0.8, 1.0), 9.0);
    }

    #[test]
    fn refuses_a_step_of_zero_and_a_negative_band() {
        assert!(controller(1.0).set_gains(0.0, 0.1).is_err());
        assert!(controller(1.0).set_gains(1.0, -0.1).is_err());
    }
}

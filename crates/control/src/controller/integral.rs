//! Pure integral control (004 eq. 4): `C(z) = k/(z-1)`.
//!
//! For a plant that answers within one interval and has gain `K`, the closed loop is `z² - z + K k
//! = 0` (004 eq. 5), with poles `b` and `1 - b` for `K k = b(1 - b)`: ILAC's waiting-time
//! controller takes `k = 0.07` for `b = 0.92`, its top level `k = 0.01`. Without proportional
//! action it is deaf to noise, and slow: it breaks where the plant itself integrates (a queue
//! without a drain), for then two integrators meet and no gain is stable.

use super::actuator::finite;
use super::integrator::Integrator;
use super::{Actuator, ActuatorConfig, Controller, Integration, Terms};
use crate::error::{ControlError, require_nonzero};

/// Parameters of [`Integral`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct IntegralConfig {
    /// `k`, change of the output per step and unit of error; negative for reverse action.
    pub gain: f64,
    /// Whether the sum includes this step's error; 004's is [`Integration::Forward`].
    pub integration: Integration,
    /// Range, slew limit and start of the output.
    pub actuator: ActuatorConfig,
}

/// Sums up errors.
///
/// ```
/// use tidegate_control::controller::{
///     ActuatorConfig, Controller, Integral, IntegralConfig, Integration,
/// };
///
/// // ILAC's threshold on waiting time: the mean wait follows the threshold one tick later.
/// let mut controller = Integral::new(IntegralConfig {
///     gain: 0.07,
///     integration: Integration::Forward,
///     actuator: ActuatorConfig::within(0.0, 2.0),
/// })?;
/// let mut waiting_s = 0.0;
/// for _ in 0..100 {
///     waiting_s = 0.9 * controller.step(0.5, waiting_s);
/// }
/// assert!((waiting_s - 0.5).abs() < 0.001);
/// # Ok::<(), tidegate_control::ControlError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Integral {
    gain: f64,
    integrator: Integrator,
    used: f64,
    actuator: Actuator,
}

impl Integral {
    /// Checks `config` and builds the controller.
    pub fn new(config: IntegralConfig) -> Result<Self, ControlError> {
        require_nonzero("gain", config.gain)?;
        let initial = config.actuator.initial;
        Ok(Self {
            gain: config.gain,
            integrator: Integrator::new(initial, config.integration),
            used: initial,
            actuator: Actuator::new(config.actuator)?,
        })
    }

    /// Changes the gain; what was summed up stays.
    pub fn set_gain(&mut self, gain: f64) -> Result<(), ControlError> {
        require_nonzero("gain", gain)?;
        self.gain = gain;
        Ok(())
    }

    /// Range and slew limit, to be changed while running.
    pub fn actuator_mut(&mut self) -> &mut Actuator {
        &mut self.actuator
    }

    /// One step with a gain for this step alone.
    pub(super) fn step_with(&mut self, gain: f64, error: f64) {
        let increment = finite(gain * error);
        self.used = self.integrator.drive(&mut self.actuator, increment, 0.0);
    }
}

impl Controller for Integral {
    fn step(&mut self, setpoint: f64, measured: f64) -> f64 {
        if let Some(error) = self.actuator.error(setpoint, measured) {
            self.step_with(self.gain, error);
        }
        self.actuator.output()
    }

    fn output(&self) -> f64 {
        self.actuator.output()
    }

    fn track(&mut self, applied: f64) {
        if let Some(applied) = self.actuator.track(applied) {
            self.integrator.settle_at(applied, 0.0);
        }
    }

    fn set_max(&mut self, max: f64) {
        self.actuator.set_max(max);
    }

    fn terms(&self) -> Terms {
        Terms {
            i: self.used,
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

    fn integral(gain: f64, integration: Integration) -> Integral {
        Integral::new(IntegralConfig {
            gain,
            integration,
            actuator: ActuatorConfig::within(0.0, 10.0),
        })
        .unwrap()
    }

    #[test]
    fn closed_loop_has_the_poles_of_equation_5() {
        let mut controller = integral(0.07, Integration::Forward);
        let mut measured = 0.0;
        let errors: Vec<f64> = (0..60)
            .map(|_| {
                let error = 1.0 - measured;
                measured = controller.step(1.0, measured);
                error
            })
            .collect();
        // Every solution of z² - z + 0.07 = 0 satisfies the difference equation below.
        for e in errors.windows(3).skip(1) {
            assert!((e[2] - e[1] + 0.07 * e[0]).abs() < 1e-12);
        }
        let decay = errors[59] / errors[58];
        assert!((decay - 0.924).abs() < 1e-3, "slowest pole {decay}");
    }

    #[test]
    fn forward_form_leaves_the_limit_one_step_after_the_error_turned() {
        let leaves = |integration| {
            let mut controller = integral(1.0, integration);
            for _ in 0..1000 {
                controller.step(1.0, 0.0);
            }
            (0..4)
                .position(|_| controller.step(0.0, 1.0) < 10.0)
                .expect("leaves the limit")
        };
        assert_eq!(leaves(Integration::Backward), 0);
        // It first applies what it had summed before, then answers.
        assert!(leaves(Integration::Forward) <= 1);
    }

    #[test]
    fn refuses_a_gain_of_zero() {
        let config = IntegralConfig {
            gain: 0.0,
            integration: Integration::Forward,
            actuator: ActuatorConfig::unlimited(),
        };
        assert!(Integral::new(config).is_err());
    }
}

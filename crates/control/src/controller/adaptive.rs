//! Integral control whose gain follows the plant's (004 eq. 9 to 11).
//!
//! ILAC sets how many requests a replica serves at once; mean service time answers with a gain
//! `K_s` that is the replica's speed, unknown and changing. The controller estimates it as it
//! goes,
//!
//! ```text
//! K̂(k+1) = (1 - α) K̂(k) + α y(k)/u_a(k)        u(k+1) = u(k) + (c/K̂) (r - y(k))
//! ```
//!
//! so that the loop keeps its poles: `c = 0.16` puts the slower one at 0.8 and stays stable
//! while `K̂ >= K_s/6.25`.
//!
//! What breaks it: a plant with an offset (`y` not near zero when `u` is), for then `y/u` is not
//! the slope; and a command near zero, where the ratio is noise. The estimate therefore ignores
//! ratios that are not finite or have the wrong sign, and stays within a millionfold of
//! its initial value.

use super::{Actuator, ActuatorConfig, Controller, Integral, IntegralConfig, Integration, Terms};
use crate::error::{ControlError, require, require_nonzero};

/// Parameters of [`AdaptiveIntegral`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdaptiveIntegralConfig {
    /// `c = b(1 - b)` for the slower closed-loop pole `b`; 0.16 in 004 eq. 11.
    pub gain: f64,
    /// `K̂(0)`, the measurement per unit of command; negative when a larger command lowers it.
    pub plant_gain: f64,
    /// `α`, the weight of the newest ratio; 0.5 in 004 eq. 9.
    pub weight: f64,
    /// Whether the sum includes this step's error; 004's is [`Integration::Forward`].
    pub integration: Integration,
    /// Range, slew limit and start of the output.
    pub actuator: ActuatorConfig,
}

/// Integral control with the gain divided by an estimate of the plant's.
///
/// ```
/// use tidegate_control::controller::{
///     ActuatorConfig, AdaptiveIntegral, AdaptiveIntegralConfig, Controller, Integration,
/// };
///
/// let mut controller = AdaptiveIntegral::new(AdaptiveIntegralConfig {
///     gain: 0.16,
///     plant_gain: 0.05,
///     weight: 0.5,
///     integration: Integration::Forward,
///     actuator: ActuatorConfig::within(0.0, 100.0).starting_at(1.0),
/// })?;
/// // A replica ten times slower than assumed: 0.5 s per concurrent request.
/// let mut service_time_s = 0.5;
/// for _ in 0..60 {
///     service_time_s = 0.5 * controller.step(2.0, service_time_s);
/// }
/// assert!((controller.plant_gain() - 0.5).abs() < 1e-6);
/// assert!((controller.output() - 4.0).abs() < 0.01);
/// # Ok::<(), tidegate_control::ControlError>(())
/// ```
#[derive(Debug, Clone)]
pub struct AdaptiveIntegral {
    gain: f64,
    initial_plant_gain: f64,
    /// `K̂`, always of the sign of its initial value.
    plant_gain: f64,
    /// Of the last measurement.
    error: f64,
    weight: f64,
    integral: Integral,
}

impl AdaptiveIntegral {
    /// How far the estimate may move from its initial value, either way. The bound only keeps a run
    /// of absurd samples from freezing the loop: from 50 ms per request it reaches down to 50 ns.
    pub const ESTIMATE_SPAN: f64 = 1e6;

    /// Checks `config` and builds the controller.
    pub fn new(config: AdaptiveIntegralConfig) -> Result<Self, ControlError> {
        let AdaptiveIntegralConfig { gain, weight, .. } = config;
        require_nonzero("plant_gain", config.plant_gain)?;
        let valid = (0.0..=1.0).contains(&weight);
        require(valid, "weight", "between 0 and 1", weight)?;
        Ok(Self {
            gain,
            initial_plant_gain: config.plant_gain,
            plant_gain: config.plant_gain,
            error: 0.0,
            weight,
            integral: Integral::new(IntegralConfig {
                gain,
                integration: config.integration,
                actuator: config.actuator,
            })?,
        })
    }

    /// `K̂`, the estimated measurement per unit of command.
    #[must_use]
    pub fn plant_gain(&self) -> f64 {
        self.plant_gain
    }

    /// Changes `c`; output and estimate stay.
    pub fn set_gain(&mut self, gain: f64) -> Result<(), ControlError> {
        self.integral.set_gain(gain)?;
        self.gain = gain;
        Ok(())
    }

    /// A step where the plant was driven by something else than the output: `applied` is
    /// ILAC's `u_a`, the output rounded to whole requests. It counts for the
    /// estimate alone; [`track`](Controller::track) would move the integral as well.
    pub fn step_applied(&mut self, setpoint: f64, measured: f64, applied: f64) -> f64 {
        let error = self.actuator_mut().error(setpoint, measured);
        if let Some(error) = error {
            self.learn(measured / applied);
            self.error = error;
            self.integrate();
        }
        self.integral.output()
    }

    /// A step of an interval without a measurement: the last error counts once more.
    pub fn step_unmeasured(&mut self) -> f64 {
        self.integrate();
        self.integral.output()
    }

    /// Range and slew limit, to be changed while running.
    pub fn actuator_mut(&mut self) -> &mut Actuator {
        self.integral.actuator_mut()
    }

    fn learn(&mut self, ratio: f64) {
        if ratio.is_finite() && ratio * self.initial_plant_gain.signum() > 0.0 {
            self.plant_gain += self.weight * (ratio - self.plant_gain);
            let initial = self.initial_plant_gain.abs();
            let size = self.plant_gain.abs();
            let size = size.clamp(initial / Self::ESTIMATE_SPAN, initial * Self::ESTIMATE_SPAN);
            self.plant_gain = size.copysign(self.initial_plant_gain);
        }
    }

    fn integrate(&mut self) {
        let gain = self.gain / self.plant_gain;
        self.integral.step_with(gain, self.error);
    }
}

impl Controller for AdaptiveIntegral {
    fn step(&mut self, setpoint: f64, measured: f64) -> f64 {
        self.step_applied(setpoint, measured, self.output())
    }

    fn output(&self) -> f64 {
        self.integral.output()
    }

    fn track(&mut self, applied: f64) {
        self.integral.track(applied);
    }

    fn set_max(&mut self, max: f64) {
        self.actuator_mut().set_max(max);
    }

    fn terms(&self) -> Terms {
        self.integral.terms()
    }

    fn bad_samples(&self) -> u64 {
        self.integral.bad_samples()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn controller() -> AdaptiveIntegral {
        AdaptiveIntegral::new(AdaptiveIntegralConfig {
            gain: 0.16,
            plant_gain: 0.05,
            weight: 0.5,
            integration: Integration::Forward,
            actuator: ActuatorConfig::within(1.0, 200.0),
        })
        .unwrap()
    }

    /// Intervals until the measurement stays within 2 % of the setpoint.
    fn settling(plant_gain: f64) -> usize {
        let mut controller = controller();
        let mut measured = plant_gain * controller.output();
        let errors: Vec<f64> = (0..200)
            .map(|_| {
                measured = plant_gain * controller.step(2.0, measured);
                (measured - 2.0).abs()
            })
            .collect();
        errors.iter().rposition(|&error| error > 0.04).unwrap_or(0)
    }

    #[test]
    fn settles_alike_on_fast_and_slow_replicas() {
        let (slow, fast) = (settling(0.5), settling(0.02));
        assert!(slow < 40 && fast < 40, "slow {slow}, fast {fast}");
    }

    #[test]
    fn estimate_is_equation_9() {
        let mut controller = controller();
        controller.step_applied(1.0, 0.6, 2.0);
        assert!((controller.plant_gain() - (0.5 * 0.05 + 0.5 * 0.3)).abs() < 1e-12);
    }

    #[test]
    fn ratios_without_meaning_leave_the_estimate_alone() {
        let mut controller = controller();
        controller.step_applied(1.0, 0.5, 0.0);
        controller.step_applied(1.0, -0.5, 1.0);
        controller.step_applied(1.0, 0.0, 1.0);
        assert_eq!(controller.plant_gain(), 0.05);
        for _ in 0..1000 {
            controller.step_applied(1.0, 1e300, 1e-300);
            controller.step_applied(1.0, 1e300, 1.0);
        }
        assert!((controller.plant_gain() - 0.05 * AdaptiveIntegral::ESTIMATE_SPAN).abs() < 1e-6);
    }

    #[test]
    fn step_without_measurement_repeats_the_last_error() {
        let mut controller = controller();
        controller.step_applied(1.0, 0.1, 2.0);
        let (before, gain) = (controller.output(), controller.plant_gain());
        controller.step_unmeasured();
        let after = controller.step_unmeasured();
        assert!((after - before - 2.0 * 0.16 / gain * 0.9).abs() < 1e-9);
        assert_eq!(controller.plant_gain(), gain);
    }

    #[test]
    fn refuses_a_plant_gain_of_zero_and_a_weight_above_one() {
        let good = AdaptiveIntegralConfig {
            gain: 0.16,
            plant_gain: 0.05,
            weight: 0.5,
            integration: Integration::Forward,
            actuator: ActuatorConfig::within(0.0, 1.0),
        };
        let build = |config| AdaptiveIntegral::new(config).map(drop);
        assert!(build(good).is_ok());
        assert!(
            build(AdaptiveIntegralConfig {
                plant_gain: 0.0,
                ..good
            })
            .is_err()
        );
        assert!(
            build(AdaptiveIntegralConfig {
                weight: 1.5,
                ..good
            })
            .is_err()
        );
    }
}

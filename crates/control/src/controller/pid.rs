//! P, PI and PID control in the ideal form of 002 eq. 1, sampled every `h`.
//!
//! ```text
//! u(k) = K e(k)  +  K h/Ti Σ e(j)  -  K Td v(k)          e = setpoint - measured
//! v(k) = a v(k-1) + (1 - a) (y(k) - y(k-1))/h,           a = Td/(Td + N h)
//! ```
//!
//! `Σ` runs to `j = k` ([`Integration::Backward`]) or, as 002 §5 prints its PI controller, to
//! `j = k-1` ([`Integration::Forward`]; there `h` is one and `Ti` counts intervals). The
//! derivative acts on the measurement, so that a new setpoint does not kick, and is low-pass
//! filtered with time constant `Td/N`, as 002 §2.2 asks for bursty arrivals.
//!
//! What breaks it: dead time longer than about `Ti` (wrap it in a
//! [`SmithPredictor`](super::SmithPredictor)), and gains found at one load used at another.

use std::time::Duration;

use super::actuator::finite;
use super::integrator::Integrator;
use super::{Actuator, ActuatorConfig, Controller, Integration, Terms};
use crate::error::{ControlError, require_nonzero, require_positive, require_time};

/// The three actions of a [`Pid`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PidGains {
    /// `K`; negative when a larger output lowers the measurement.
    pub gain: f64,
    /// `Ti`; `None` for no integral action.
    pub integral_time: Option<Duration>,
    /// `Td`; zero for no derivative action.
    pub derivative_time: Duration,
}

impl PidGains {
    /// Proportional action alone. It leaves a steady error unless the bias is right.
    #[must_use]
    pub fn p(gain: f64) -> Self {
        Self {
            gain,
            integral_time: None,
            derivative_time: Duration::ZERO,
        }
    }

    /// Proportional and integral action.
    #[must_use]
    pub fn pi(gain: f64, integral_time: Duration) -> Self {
        Self {
            integral_time: Some(integral_time),
            ..Self::p(gain)
        }
    }

    /// All three actions.
    #[must_use]
    pub fn pid(gain: f64, integral_time: Duration, derivative_time: Duration) -> Self {
        Self {
            derivative_time,
            ..Self::pi(gain, integral_time)
        }
    }

    fn check(&self) -> Result<(), ControlError> {
        require_nonzero("gain", self.gain)?;
        if let Some(integral_time) = self.integral_time {
            require_time("integral_time", integral_time)?;
        }
        Ok(())
    }
}

/// Parameters of a [`Pid`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PidConfig {
    /// `K`, `Ti`, `Td`.
    pub gains: PidGains,
    /// `h`, the time between two steps.
    pub interval: Duration,
    /// Whether the integral includes this step's error.
    pub integration: Integration,
    /// `N`, the derivative's bandwidth over `1/Td`; 2 to 20 is usual.
    pub derivative_filter: f64,
    /// Range, slew limit and start of the output.
    pub actuator: ActuatorConfig,
}

impl PidConfig {
    /// Backward integration and the customary derivative filter of `N = 8` (Åström and Hägglund
    /// give 8 to 20; the lower end suits measurements as noisy as a server's).
    #[must_use]
    pub fn new(gains: PidGains, interval: Duration, actuator: ActuatorConfig) -> Self {
        Self {
            gains,
            interval,
            integration: Integration::Backward,
            derivative_filter: 8.0,
            actuator,
        }
    }
}

/// P, PI or PID control.
///
/// ```
/// use std::time::Duration;
/// use tidegate_control::controller::{ActuatorConfig, Controller, Pid, PidConfig, PidGains};
///
/// // Keep a server at 80 % utilization by the rate it is sent; each request costs 20 ms.
/// let second = Duration::from_secs(1);
/// let gains = PidGains::pi(10.0, second);
/// let limits = ActuatorConfig::within(0.0, 200.0);
/// let mut controller = Pid::new(PidConfig::new(gains, second, limits))?;
/// let mut utilization = 0.0;
/// for _ in 0..50 {
///     let rate = controller.step(0.8, utilization);
///     utilization = (rate * 0.020).min(1.0);
/// }
/// assert!((utilization - 0.8).abs() < 1e-3);
/// assert!((controller.output() - 40.0).abs() < 0.1);
/// # Ok::<(), tidegate_control::ControlError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Pid {
    gains: PidGains,
    interval_s: f64,
    derivative_filter: f64,
    slope: Slope,
    last_error: Option<f64>,
    /// What was applied before the first step, for that step to start from.
    take_over: Option<f64>,
    integrator: Integrator,
    terms: Terms,
    actuator: Actuator,
}

impl Pid {
    /// Checks `config` and builds the controller.
    pub fn new(config: PidConfig) -> Result<Self, ControlError> {
        config.gains.check()?;
        require_positive("derivative_filter", config.derivative_filter)?;
        let initial = config.actuator.initial;
        Ok(Self {
            gains: config.gains,
            interval_s: require_time("interval", config.interval)?,
            derivative_filter: config.derivative_filter,
            slope: Slope::default(),
            last_error: None,
            take_over: None,
            integrator: Integrator::new(initial, config.integration),
            terms: Terms {
                i: initial,
                ..Terms::default()
            },
            actuator: Actuator::new(config.actuator)?,
        })
    }

    /// The gains in force.
    #[must_use]
    pub fn gains(&self) -> PidGains {
        self.gains
    }

    /// Changes the gains. The integral takes up the difference, so that the same measurement
    /// still gives the same output.
    pub fn set_gains(&mut self, gains: PidGains) -> Result<(), ControlError> {
        gains.check()?;
        self.gains = gains;
        if gains.derivative_time.is_zero() {
            self.slope = Slope::default();
        }
        if let Some(error) = self.last_error {
            let before = finite(self.terms.p + self.terms.d);
            let (p, d) = self.proportional_and_derivative(error);
            let shift = finite(before - finite(p + d));
            self.integrator.shift(shift);
            let i = finite(self.terms.i + shift);
            self.terms = Terms {
                p,
                i,
                d,
                ..self.terms
            };
        }
        Ok(())
    }

    /// Range and slew limit, to be changed while running.
    pub fn actuator_mut(&mut self) -> &mut Actuator {
        &mut self.actuator
    }

    fn proportional_and_derivative(&self, error: f64) -> (f64, f64) {
        let derivative_time_s = self.gains.derivative_time.as_secs_f64();
        let p = finite(self.gains.gain * error);
        let d = finite(-self.gains.gain * derivative_time_s * self.slope.per_second);
        (p, d)
    }

    /// `a = Td/(Td + N h)`.
    fn slope_memory(&self) -> f64 {
        let derivative_time_s = self.gains.derivative_time.as_secs_f64();
        derivative_time_s / (derivative_time_s + self.derivative_filter * self.interval_s)
    }

    fn update(&mut self, error: f64, measured: f64) {
        if !self.gains.derivative_time.is_zero() {
            let memory = self.slope_memory();
            self.slope.update(measured, memory, self.interval_s);
        }
        self.last_error = Some(error);
        let (p, d) = self.proportional_and_derivative(error);
        let rest = finite(p + d);
        if let Some(applied) = self.take_over.take() {
            self.integrator.settle_at(applied, rest);
        }
        let i = self.drive(error, rest);
        let saturated = self.actuator.saturated();
        self.terms = Terms { p, i, d, saturated };
    }

    fn drive(&mut self, error: f64, rest: f64) -> f64 {
        let Some(integral_time) = self.gains.integral_time else {
            return self.integrator.bias(&mut self.actuator, rest);
        };
        let gain_per_step = self.gains.gain * self.interval_s / integral_time.as_secs_f64();
        self.integrator
            .drive(&mut self.actuator, gain_per_step * error, rest)
    }
}

impl Controller for Pid {
    fn step(&mut self, setpoint: f64, measured: f64) -> f64 {
        match self.actuator.error(setpoint, measured) {
            Some(error) => self.update(error, measured),
            None => self.slope.interrupt(),
        }
        self.actuator.output()
    }

    fn output(&self) -> f64 {
        self.actuator.output()
    }

    /// Puts the integral (the bias, without integral action) where the terms of the last step
    /// give `applied`; before the first step, where the terms of the first one do.
    fn track(&mut self, applied: f64) {
        let news = self.actuator.track(applied);
        if self.last_error.is_none() {
            self.take_over = Some(self.actuator.output());
        } else if let Some(applied) = news {
            let rest = finite(self.terms.p + self.terms.d);
            self.integrator.settle_at(applied, rest);
        }
    }

    fn set_max(&mut self, max: f64) {
        self.actuator.set_max(max);
    }

    fn terms(&self) -> Terms {
        self.terms
    }

    fn bad_samples(&self) -> u64 {
        self.actuator.bad_samples()
    }
}

/// Low-pass filtered slope `v` of the measurement.
#[derive(Debug, Clone, Default)]
struct Slope {
    previous: Option<f64>,
    per_second: f64,
}

impl Slope {
    fn update(&mut self, measured: f64, memory: f64, interval_s: f64) {
        let change = self.previous.map_or(0.0, |previous| measured - previous);
        let raw = finite(change / interval_s);
        self.per_second = finite(memory * self.per_second + (1.0 - memory) * raw);
        self.previous = Some(measured);
    }

    /// After a gap the change since the last good sample is no slope over one interval.
    fn interrupt(&mut self) {
        self.previous = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn pid(gains: PidGains) -> Pid {
        let config = PidConfig::new(gains, SECOND, ActuatorConfig::unlimited());
        Pid::new(config).unwrap()
    }

    #[test]
    fn backward_sums_to_now_and_forward_to_the_previous_error() {
        let gains = PidGains::pi(2.0, Duration::from_secs(4));
        let mut backward = pid(gains);
        let mut forward = Pid::new(PidConfig {
            integration: Integration::Forward,
            ..PidConfig::new(gains, SECOND, ActuatorConfig::unlimited())
        })
        .unwrap();
        // u = K (e + Σe / Ti) for errors 1, 1, 3.
        let errors = [1.0, 1.0, 3.0];
        assert_eq!(errors.map(|e| backward.step(e, 0.0)), [2.5, 3.0, 8.5]);
        assert_eq!(errors.map(|e| forward.step(e, 0.0)), [2.0, 2.5, 7.0]);
    }

    #[test]
    fn derivative_follows_a_ramp_and_ignores_the_setpoint() {
        let mut controller = pid(PidGains {
            derivative_time: Duration::from_secs(3),
            ..PidGains::p(1.0)
        });
        for k in 0..200 {
            controller.step(0.0, 2.0 * f64::from(k));
        }
        assert!((controller.terms().d + 6.0).abs() < 1e-9);
        controller.step(1e6, 400.0);
        assert!((controller.terms().d + 6.0).abs() < 1e-9);
    }

    #[test]
    fn derivative_restarts_after_a_gap() {
        let mut controller = pid(PidGains {
            derivative_time: SECOND,
            ..PidGains::p(1.0)
        });
        controller.step(0.0, 0.0);
        controller.step(0.0, f64::NAN);
        controller.step(0.0, 1000.0);
        assert_eq!(controller.terms().d, 0.0);
        assert_eq!(controller.bad_samples(), 1);
    }

    #[test]
    fn terms_sum_to_the_output() {
        let mut controller = pid(PidGains::pid(2.0, SECOND, SECOND));
        for measured in [0.0, 0.3, 0.1, 0.7] {
            let output = controller.step(1.0, measured);
            let Terms { p, i, d, .. } = controller.terms();
            assert!((p + i + d - output).abs() < 1e-12);
        }
    }

    #[test]
    fn saturation_ends_in_the_step_in_which_the_error_turns() {
        let limits = ActuatorConfig::within(0.0, 10.0);
        let gains = PidGains::pi(1.0, SECOND);
        let mut controller = Pid::new(PidConfig::new(gains, SECOND, limits)).unwrap();
        for _ in 0..10_000 {
            controller.step(1.0, 0.0);
        }
        assert!(controller.terms().saturated);
        assert!(controller.step(1.0, 1.01) < 10.0);
        assert!(!controller.terms().saturated);
    }

    #[test]
    fn first_step_after_taking_over_starts_from_there() {
        let mut controller = pid(PidGains::pi(50.0, Duration::from_secs(100)));
        controller.track(40.0);
        // Integral action alone: 50/100 times an error of 0.2.
        assert!((controller.step(0.8, 0.6) - 40.1).abs() < 1e-12);
        // From then on the proportional part acts on changes.
        assert!((controller.step(0.8, 0.5) - (40.1 + 5.0 + 0.15)).abs() < 1e-9);
    }

    #[test]
    fn tracking_what_was_commanded_changes_nothing() {
        let gains = PidGains::pi(3.0, SECOND);
        let limits = ActuatorConfig::within(0.0, 2.0);
        let mut plain = Pid::new(PidConfig::new(gains, SECOND, limits)).unwrap();
        let mut tracked = plain.clone();
        for k in 0..100 {
            let measured = (f64::from(k) * 0.3).sin();
            let output = tracked.step(0.5, measured);
            tracked.track(output);
            assert_eq!(output, plain.step(0.5, measured));
        }
    }

    #[test]
    fn changing_gains_moves_the_output_by_the_integral_action_alone() {
        let mut controller = pid(PidGains::pi(2.0, SECOND));
        controller.step(1.0, 0.5);
        let before = controller.step(1.0, 0.5);
        controller
            .set_gains(PidGains::pi(20.0, Duration::from_secs(10)))
            .unwrap();
        let after = controller.step(1.0, 0.5);
        assert!((after - before - 20.0 * 0.5 / 10.0).abs() < 1e-9);
    }

    #[test]
    fn refuses_parameters_without_meaning() {
        let limits = ActuatorConfig::unlimited();
        let build = |gains| Pid::new(PidConfig::new(gains, SECOND, limits)).map(drop);
        assert_eq!(
            build(PidGains::p(f64::NAN)).unwrap_err().to_string(),
            "gain must be finite and not zero, got NaN"
        );
        assert_eq!(
            build(PidGains::pi(1.0, Duration::ZERO))
                .unwrap_err()
                .to_string(),
            "integral_time must be longer than zero, got 0"
        );
        let config = PidConfig::new(PidGains::p(1.0), Duration::ZERO, limits);
        assert!(Pid::new(config).is_err());
    }
}

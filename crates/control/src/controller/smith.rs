//! Smith predictor: takes a known dead time out of the loop of any controller.
//!
//! With a dead time `L` the effect of a command shows `L` later, and a controller tuned for a
//! prompt plant corrects the same error again and again meanwhile. 001 (figures 8 and 9) shows it
//! with control messages that need seconds to reach the clients, and names this remedy. A model
//! `m` of the plant without its dead time runs beside it, and the controller sees
//!
//! ```text
//! ŷ(k) = y(k) + m(k) - m(k - L/h),       m(k+1) = a m(k) + b u(k)
//! ```
//!
//! the measurement plus what the commands under way are going to do. If the model is right, the
//! loop is the one without dead time, delayed. Only the difference of `m` over the dead time
//! counts, so the model needs no absolute value; it is kept as the changes of `m` of each
//! interval, whose sum over the dead time is that difference (a fraction of an interval counts
//! that part of the oldest change).
//!
//! What breaks it: a wrong dead time together with high gains. On a lag of half the dead time, a
//! controller that makes the prompt plant three times faster never settles when the dead time is
//! off by an eighth; one that leaves it as fast as it is forgives three eighths
//! (`tests/closed_loop.rs`). And an integrating plant, where a constant disturbance leaves a
//! constant error.

use std::collections::VecDeque;
use std::time::Duration;

use super::actuator::finite;
use super::{Controller, Terms};
use crate::error::{ControlError, require, require_nonzero, require_time};

/// Longest dead time in intervals: the predictor remembers one number for each.
const INTERVALS_MAX: f64 = 10_000.0;

/// The plant without its dead time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ProcessModel {
    /// Settles at once, `y = gain u`, seen at the next sample.
    Gain {
        /// Measurement per unit of command.
        gain: f64,
    },
    /// `gain/(1 + T s)`, the command held between samples.
    FirstOrder {
        /// Measurement per unit of command, when settled.
        gain: f64,
        /// `T`.
        time_constant: Duration,
    },
    /// `gain/s`: a level that the command fills.
    Integrator {
        /// Measurement per second and unit of command.
        gain_per_second: f64,
    },
}

impl ProcessModel {
    /// `(a, b)` of `m(k+1) = a m(k) + b u(k)` for samples every `interval_s` seconds.
    fn sampled(self, interval_s: f64) -> Result<(f64, f64), ControlError> {
        match self {
            Self::Gain { gain } => {
                require_nonzero("gain", gain)?;
                Ok((0.0, gain))
            }
            Self::FirstOrder {
                gain,
                time_constant,
            } => {
                require_nonzero("gain", gain)?;
                let decay = (-interval_s / require_time("time_constant", time_constant)?).exp();
                Ok((decay, gain * (1.0 - decay)))
            }
            Self::Integrator { gain_per_second } => {
                require_nonzero("gain_per_second", gain_per_second)?;
                Ok((1.0, gain_per_second * interval_s))
            }
        }
    }
}

/// Parameters of [`SmithPredictor`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SmithConfig {
    /// The plant without its dead time.
    pub model: ProcessModel,
    /// `L`, from a command to the first trace of it in the measurement, beyond the one interval
    /// that every sampled loop has. Zero makes the predictor transparent.
    pub dead_time: Duration,
    /// `h`, the time between two steps.
    pub interval: Duration,
}

/// A controller that sees the measurement as it will be once its commands have arrived.
///
/// ```
/// use std::collections::VecDeque;
/// use std::time::Duration;
/// use tidegate_control::controller::{
///     ActuatorConfig, Controller, Pid, PidConfig, PidGains, ProcessModel, SmithConfig,
///     SmithPredictor,
/// };
///
/// let second = Duration::from_secs(1);
/// let gains = PidGains::pi(0.5, second);
/// let pi = Pid::new(PidConfig::new(gains, second, ActuatorConfig::within(0.0, 10.0)))?;
/// let mut controller = SmithPredictor::new(pi, SmithConfig {
///     model: ProcessModel::Gain { gain: 1.0 },
///     dead_time: 6 * second,
///     interval: second,
/// })?;
/// // A plant that shows each command seven samples later.
/// let mut under_way = VecDeque::from([0.0; 6]);
/// let mut measured = 0.0;
/// for _ in 0..60 {
///     under_way.push_back(controller.step(1.0, measured));
///     measured = under_way.pop_front().unwrap_or(0.0);
/// }
/// assert!((measured - 1.0).abs() < 1e-3);
/// # Ok::<(), tidegate_control::ControlError>(())
/// ```
#[derive(Debug, Clone)]
pub struct SmithPredictor<C> {
    inner: C,
    predictor: Predictor,
    /// The command in force since the last step; none before the first.
    applied: Option<f64>,
}

impl<C: Controller> SmithPredictor<C> {
    /// Wraps `inner`, whose gains should suit the plant without its dead time.
    pub fn new(inner: C, config: SmithConfig) -> Result<Self, ControlError> {
        let predictor = Predictor::new(config, inner.output())?;
        Ok(Self {
            inner,
            predictor,
            applied: None,
        })
    }

    /// What the commands under way are expected to add to the measurement.
    #[must_use]
    pub fn under_way(&self) -> f64 {
        self.predictor.under_way()
    }

    /// The wrapped controller.
    #[must_use]
    pub fn inner(&self) -> &C {
        &self.inner
    }

    /// The wrapped controller, to change its gains or limits.
    pub fn inner_mut(&mut self) -> &mut C {
        &mut self.inner
    }
}

impl<C: Controller> Controller for SmithPredictor<C> {
    fn step(&mut self, setpoint: f64, measured: f64) -> f64 {
        if let Some(applied) = self.applied {
            self.predictor.advance(applied);
        }
        let predicted = if measured.is_finite() {
            finite(measured + self.predictor.under_way())
        } else {
            measured
        };
        let output = self.inner.step(setpoint, predicted);
        self.applied = Some(output);
        output
    }

    fn output(&self) -> f64 {
        self.inner.output()
    }

    fn track(&mut self, applied: f64) {
        self.inner.track(applied);
        if applied.is_finite() && self.applied.is_some() {
            self.applied = Some(applied);
        }
    }

    fn set_max(&mut self, max: f64) {
        self.inner.set_max(max);
    }

    fn terms(&self) -> Terms {
        self.inner.terms()
    }

    fn bad_samples(&self) -> u64 {
        self.inner.bad_samples()
    }
}

/// The model and its changes over the dead time, newest first.
#[derive(Debug, Clone)]
struct Predictor {
    a: f64,
    b: f64,
    level: f64,
    changes: VecDeque<f64>,
    /// The part of the oldest change that lies within the dead time.
    oldest_share: f64,
}

impl Predictor {
    fn new(config: SmithConfig, initial: f64) -> Result<Self, ControlError> {
        let interval_s = require_time("interval", config.interval)?;
        let (a, b) = config.model.sampled(interval_s)?;
        let intervals = config.dead_time.as_secs_f64() / interval_s;
        let bounded = intervals <= INTERVALS_MAX;
        require(bounded, "dead_time", "at most 10000 intervals", intervals)?;
        let remembered = intervals.ceil();
        Ok(Self {
            a,
            b,
            level: settled_level(a, b, initial),
            changes: std::iter::repeat_n(0.0, remembered as usize).collect(),
            oldest_share: 1.0 - (remembered - intervals),
        })
    }

    /// Lets `applied` act for one interval.
    fn advance(&mut self, applied: f64) {
        let change = finite((self.a - 1.0) * self.level + self.b * applied);
        self.level = finite(self.level + change);
        if self.changes.pop_back().is_some() {
            self.changes.push_front(change);
        }
    }

    /// `m(k) - m(k - L/h)`.
    fn under_way(&self) -> f64 {
        let total = self.changes.iter().fold(0.0, |sum, x| finite(sum + x));
        let oldest = self.changes.back().copied().unwrap_or(0.0);
        finite(total - (1.0 - self.oldest_share) * oldest)
    }
}

/// Where the model rests under a constant command; an integrator rests nowhere, and only its
/// changes count.
fn settled_level(a: f64, b: f64, command: f64) -> f64 {
    if a < 1.0 {
        finite(b * command / (1.0 - a))
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::{ActuatorConfig, Pid, PidConfig, PidGains};

    const SECOND: Duration = Duration::from_secs(1);

    fn predictor(model: ProcessModel, dead_time: Duration) -> Predictor {
        let config = SmithConfig {
            model,
            dead_time,
            interval: SECOND,
        };
        Predictor::new(config, 0.0).unwrap()
    }

    #[test]
    fn what_is_under_way_is_the_model_now_minus_the_model_then() {
        let model = ProcessModel::FirstOrder {
            gain: 2.0,
            time_constant: Duration::from_secs(5),
        };
        let mut predictor = predictor(model, Duration::from_millis(2500));
        let mut levels = vec![0.0];
        for k in 0..40 {
            predictor.advance((f64::from(k) * 0.7).sin());
            levels.push(predictor.level);
            let k = levels.len() - 1;
            let level = |back: usize| levels[k.saturating_sub(back)];
            let then = 0.5 * (level(2) + level(3));
            assert!((predictor.under_way() - (levels[k] - then)).abs() < 1e-12);
        }
    }

    #[test]
    fn integrator_that_ran_for_ages_still_predicts_exactly() {
        let model = ProcessModel::Integrator {
            gain_per_second: 0.1,
        };
        let mut predictor = predictor(model, 3 * SECOND);
        (0..1_000_000).for_each(|_| predictor.advance(1e9));
        (0..3).for_each(|_| predictor.advance(1.0));
        assert!((predictor.under_way() - 0.3).abs() < 1e-12);
    }

    #[test]
    fn without_dead_time_it_is_transparent() {
        let gains = PidGains::pi(1.0, SECOND);
        let config = PidConfig::new(gains, SECOND, ActuatorConfig::within(-5.0, 5.0));
        let mut plain = Pid::new(config).unwrap();
        let model = ProcessModel::Gain { gain: 3.0 };
        let mut wrapped = SmithPredictor::new(
            plain.clone(),
            SmithConfig {
                model,
                dead_time: Duration::ZERO,
                interval: SECOND,
            },
        )
        .unwrap();
        for k in 0..50 {
            let measured = (f64::from(k) * 0.4).cos();
            assert_eq!(wrapped.step(0.2, measured), plain.step(0.2, measured));
        }
    }

    #[test]
    fn model_follows_what_was_applied() {
        let gains = PidGains::p(1.0);
        let limits = ActuatorConfig::within(0.0, 10.0);
        let pid = Pid::new(PidConfig::new(gains, SECOND, limits)).unwrap();
        let config = SmithConfig {
            model: ProcessModel::Gain { gain: 1.0 },
            dead_time: 2 * SECOND,
            interval: SECOND,
        };
        let mut controller = SmithPredictor::new(pid, config).unwrap();
        controller.step(5.0, 0.0);
        controller.track(3.0);
        controller.step(5.0, 0.0);
        assert_eq!(controller.under_way(), 3.0);
    }

    #[test]
    fn refuses_models_without_meaning() {
        let build = |model, dead_time| {
            let interval = SECOND;
            Predictor::new(
                SmithConfig {
                    model,
                    dead_time,
                    interval,
                },
                0.0,
            )
            .map(drop)
        };
        let gain = ProcessModel::Gain { gain: 1.0 };
        assert!(build(gain, Duration::from_secs(20_000)).is_err());
        assert!(build(ProcessModel::Gain { gain: 0.0 }, SECOND).is_err());
        let instant = ProcessModel::FirstOrder {
            gain: 1.0,
            time_constant: Duration::ZERO,
        };
        assert!(build(instant, SECOND).is_err());
    }
}

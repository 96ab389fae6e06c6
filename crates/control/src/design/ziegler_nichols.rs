//! Gains from an experiment instead of a model (Ziegler and Nichols 1942).
//!
//! Under proportional control every real plant oscillates steadily at some gain `Ku` with some
//! period `Tu`; tables turn the two into P, PI and PID gains. Two ways to find them:
//!
//! - [`raise_gain`] raises `K` until the oscillation no longer dies. On a live system that means
//!   walking to the edge of instability: use it on models.
//! - [`relay_experiment`] drives the plant with [`Relay`], whose output is bounded by construction:
//!   that is the one for a live system.
//!
//! What breaks it: a plant with neither delay nor higher order oscillates only because it is
//! sampled (`Tu` of two samples); its table gains are those of the sampler. Noise larger than the
//! oscillation hides it.

use super::{DesignError, Relay, RelayState};
use crate::system::TransferFunction;

/// A system that can be driven one sample at a time.
///
/// `step` applies a command for one interval and returns what is measured at its end. Any
/// `FnMut(f64) -> f64` is one.
pub trait Plant {
    /// Applies `command` for one interval and measures at its end.
    fn step(&mut self, command: f64) -> f64;
}

impl<F: FnMut(f64) -> f64> Plant for F {
    fn step(&mut self, command: f64) -> f64 {
        self(command)
    }
}

/// A transfer function as a [`Plant`], from rest.
#[derive(Debug, Clone)]
pub struct SampledPlant {
    num: Vec<f64>,
    den: Vec<f64>,
    /// The delay line of the transposed direct form; its head is the next output.
    state: Vec<f64>,
}

impl SampledPlant {
    /// A strictly causal transfer function, from rest.
    ///
    /// # Errors
    /// An output that depends on the command of the same instant: there is nothing to wait for.
    pub fn new(system: &TransferFunction) -> Result<Self, DesignError> {
        let (num, den) = (system.num().coefficients(), system.den().coefficients());
        if num.len() >= den.len() {
            return Err(DesignError::NoUltimate {
                reason: "the plant answers within the same sample; add its delay".to_owned(),
            });
        }
        let order = den.len() - 1;
        let mut padded = vec![0.0; order - num.len()];
        padded.extend(num.iter().map(|b| b / den[0]));
        Ok(Self {
            num: padded,
            den: den[1..].iter().map(|a| a / den[0]).collect(),
            state: vec![0.0; order],
        })
    }
}

impl Plant for SampledPlant {
    fn step(&mut self, command: f64) -> f64 {
        let output = self.state[0];
        let order = self.state.len();
        for i in 0..order {
            let next = if i + 1 < order {
                self.state[i + 1]
            } else {
                0.0
            };
            self.state[i] = next + self.num[i] * command - self.den[i] * output;
        }
        self.state[0]
    }
}

/// The gain at which a loop just oscillates, and the period with which it does.
///
/// ```
/// use tidegate_control::design::{Form, Rule, Ultimate};
///
/// let ultimate = Ultimate { gain: 10.0, period_s: 6.0 };
/// let pi = ultimate.gains(Rule::ZieglerNichols, Form::Pi).unwrap();
/// assert_eq!((pi.gain, pi.integral_time_s), (4.5, Some(5.0)));
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ultimate {
    /// `Ku`.
    pub gain: f64,
    /// `Tu`.
    pub period_s: f64,
}

/// Which terms the controller has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Proportional.
    P,
    /// Proportional and integral.
    Pi,
    /// All three.
    Pid,
}

/// Which table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// Classic: quarter-amplitude decay, fast and rather lively.
    ZieglerNichols,
    /// Tyreus and Luyben (1992): gentler, for plants whose capacity is not to be swung about; PI
    /// and PID only.
    TyreusLuyben,
}

/// Gains in the ideal form `K (e + 1/Ti ∫ e dt + Td de/dt)`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Gains {
    /// `K`.
    pub gain: f64,
    /// `Ti`, where there is an integral term.
    pub integral_time_s: Option<f64>,
    /// `Td`, where there is a derivative term.
    pub derivative_time_s: Option<f64>,
}

impl Ultimate {
    /// The gains of a table; `None` where it has no such row.
    #[must_use]
    pub fn gains(&self, rule: Rule, form: Form) -> Option<Gains> {
        // (K/Ku, Ti/Tu, Td/Tu)
        let (gain, integral, derivative) = match (rule, form) {
            (Rule::ZieglerNichols, Form::P) => (0.5, None, None),
            (Rule::ZieglerNichols, Form::Pi) => (0.45, Some(1.0 / 1.2), None),
            (Rule::ZieglerNichols, Form::Pid) => (0.6, Some(0.5), Some(0.125)),
            (Rule::TyreusLuyben, Form::P) => return None,
            (Rule::TyreusLuyben, Form::Pi) => (1.0 / 3.2, Some(2.2), None),
            (Rule::TyreusLuyben, Form::Pid) => (1.0 / 2.2, Some(2.2), Some(1.0 / 6.3)),
        };
        Some(Gains {
            gain: gain * self.gain,
            integral_time_s: integral.map(|share| share * self.period_s),
            derivative_time_s: derivative.map(|share| share * self.period_s),
        })
    }
}

/// How far and how long to look.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RaisingConfig {
    /// First gain tried; its sign is the sign of the plant's own gain.
    pub gain_first: f64,
    /// Gain (absolute) beyond which the search ends.
    pub gain_max: f64,
    /// Samples per trial: some twenty periods of the expected oscillation.
    pub samples: usize,
    /// Sampling interval.
    pub interval_s: f64,
}

/// Finds the ultimate gain by raising the gain of a proportional controller; `plant` makes a fresh
/// plant for every trial.
///
/// Raised by half until the oscillation grows, then halved in between until the gain
/// is known to nine digits.
///
/// # Errors
/// A first gain already unstable, no oscillation up to `gain_max`, growth without oscillation (a
/// gain of the wrong sign).
pub fn raise_gain<P: Plant>(
    config: &RaisingConfig,
    mut plant: impl FnMut() -> P,
) -> Result<Ultimate, DesignError> {
    check(config)?;
    let mut verdict = |gain: f64| swing(&proportional_run(plant(), gain, config.samples));
    let (mut low, mut high) = bracket(config, &mut verdict)?;
    while (high - low).abs() > 1e-9 * high.abs() {
        let middle = 0.5 * (low + high);
        match verdict(middle) {
            Swing::Grows => high = middle,
            Swing::Dies => low = middle,
        }
    }
    let period = period_samples(&proportional_run(plant(), low, config.samples));
    Ok(Ultimate {
        gain: low,
        period_s: config.interval_s
            * period.ok_or_else(|| {
                none(
                    "the output runs away without oscillating; try a first gain of the other sign"
                        .to_owned(),
                )
            })?,
    })
}

fn check(config: &RaisingConfig) -> Result<(), DesignError> {
    crate::system::positive("the sampling interval", config.interval_s)?;
    crate::system::positive("the first gain, without its sign,", config.gain_first.abs())?;
    crate::system::positive("the largest gain", config.gain_max)?;
    if config.samples < SAMPLES_MIN {
        return Err(none(format!(
            "{} samples a trial are too few; take at least {SAMPLES_MIN}",
            config.samples
        )));
    }
    Ok(())
}

fn none(reason: String) -> DesignError {
    DesignError::NoUltimate { reason }
}

/// Four windows of a dozen samples: less shows no trend.
const SAMPLES_MIN: usize = 48;

/// A gain that dies and the next one tried, which does not.
fn bracket(
    config: &RaisingConfig,
    verdict: &mut impl FnMut(f64) -> Swing,
) -> Result<(f64, f64), DesignError> {
    let mut gain = config.gain_first;
    if verdict(gain) == Swing::Grows {
        return Err(none(format!(
            "the loop is unstable at the first gain {gain} already; start lower"
        )));
    }
    while gain.abs() <= config.gain_max {
        let next = gain * 1.5;
        if verdict(next) == Swing::Grows {
            return Ok((gain, next));
        }
        gain = next;
    }
    Err(none(format!(
        "no oscillation up to a gain of {}",
        config.gain_max
    )))
}

/// The measurements under `u = K (1 - y)`, until they are too large to matter.
fn proportional_run(mut plant: impl Plant, gain: f64, samples: usize) -> Vec<f64> {
    let mut y = 0.0;
    let measured = (0..samples).map(|_| {
        y = plant.step(gain * (1.0 - y));
        y
    });
    measured.take_while(|y| y.abs() < 1e12).collect::<Vec<_>>()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Swing {
    Dies,
    Grows,
}

/// Whether the last quarter swings as widely as the one before.
fn swing(measured: &[f64]) -> Swing {
    let quarter = measured.len() / 4;
    if quarter < SAMPLES_MIN / 4 {
        return Swing::Grows; // it left all bounds before it could be looked at
    }
    let width = |part: &[f64]| {
        let high = part.iter().copied().fold(f64::MIN, f64::max);
        high - part.iter().copied().fold(f64::MAX, f64::min)
    };
    let end = measured.len();
    let last = width(&measured[end - quarter..]);
    let before = width(&measured[end - 2 * quarter..end - quarter]);
    // A swing of rounding size has died, whatever it does.
    let scale = measured.iter().map(|y| y.abs()).fold(1e-300, f64::max);
    if last >= before && last > 1e-9 * scale {
        Swing::Grows
    } else {
        Swing::Dies
    }
}

/// Mean distance of upward crossings of the mean over the second half, interpolated.
fn period_samples(measured: &[f64]) -> Option<f64> {
    let half = &measured[measured.len() / 2..];
    let mean = half.iter().sum::<f64>() / half.len().max(1) as f64;
    let crossings: Vec<f64> = half
        .windows(2)
        .enumerate()
        .filter(|(_, pair)| pair[0] < mean && pair[1] >= mean)
        .map(|(k, pair)| k as f64 + (mean - pair[0]) / (pair[1] - pair[0]))
        .collect();
    let (first, last) = (crossings.first()?, crossings.last()?);
    (crossings.len() >= 3).then(|| (last - first) / (crossings.len() - 1) as f64)
}

/// Runs a relay on a plant until it has its answer.
///
/// # Errors
/// What made the relay give up.
pub fn relay_experiment(mut relay: Relay, mut plant: impl Plant) -> Result<Ultimate, DesignError> {
    let mut measured = plant.step(relay.command());
    loop {
        match relay.state() {
            RelayState::Done(ultimate) => return Ok(ultimate),
            RelayState::Failed(failure) => return Err(none(failure.to_string())),
            RelayState::Running => measured = plant.step(relay.step(measured)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::design::RelayConfig;
    use crate::system::{Fopdt, Margins};

    const PLANT: Fopdt = Fopdt {
        gain: 2.0,
        time_constant_s: 10.0,
        dead_time_s: 2.0,
    };

    fn sampled() -> TransferFunction {
        PLANT.sampled(0.1).unwrap()
    }

    fn config() -> RaisingConfig {
        RaisingConfig {
            gain_first: 0.1,
            gain_max: 1e4,
            samples: 4000,
            interval_s: 0.1,
        }
    }

    #[test]
    fn sampled_plant_is_its_transfer_function() {
        let mut plant = SampledPlant::new(&sampled()).unwrap();
        let expected = sampled().step_response(101);
        for y in &expected[1..] {
            assert!((plant.step(1.0) - y).abs() < 1e-12);
        }
        let direct = TransferFunction::new(&[1.0, 0.0], &[1.0, 0.5]).unwrap();
        assert!(SampledPlant::new(&direct).is_err());
    }

    #[test]
    fn raising_finds_the_phase_crossover() {
        let exact = Margins::of(&sampled()).unwrap().gain_up.unwrap();
        let found = raise_gain(&config(), || SampledPlant::new(&sampled()).unwrap()).unwrap();
        assert!((found.gain / exact.factor - 1.0).abs() < 1e-6, "{found:?}");
        let period = 2.0 * std::f64::consts::PI / exact.omega * 0.1;
        assert!(
            (found.period_s / period - 1.0).abs() < 1e-3,
            "{found:?} {period}"
        );
    }

    #[test]
    fn relay_finds_nearly_the_same() {
        let exact = raise_gain(&config(), || SampledPlant::new(&sampled()).unwrap()).unwrap();
        let relay = Relay::new(RelayConfig {
            setpoint: 1.0,
            bias: 0.5,
            amplitude: 0.5,
            hysteresis: 0.0,
            interval_s: 0.1,
            samples_max: 10_000,
        })
        .unwrap();
        let found = relay_experiment(relay, SampledPlant::new(&sampled()).unwrap()).unwrap();
        // The describing function sees the first harmonic alone: within a fifth for such plants.
        assert!(
            (found.gain / exact.gain - 1.0).abs() < 0.2,
            "{found:?} {exact:?}"
        );
        assert!(
            (found.period_s / exact.period_s - 1.0).abs() < 0.1,
            "{found:?} {exact:?}"
        );
    }

    #[test]
    fn reverse_acting_plant_has_a_negative_ultimate_gain() {
        let reverse = sampled().scaled(-1.0);
        let config = RaisingConfig {
            gain_first: -0.1,
            ..config()
        };
        let found = raise_gain(&config, || SampledPlant::new(&reverse).unwrap()).unwrap();
        assert!(found.gain < 0.0);
    }

    #[test]
    fn what_never_oscillates_is_refused_with_its_reason() {
        let message = |config: RaisingConfig, plant: TransferFunction| {
            raise_gain(&config, || SampledPlant::new(&plant).unwrap())
                .unwrap_err()
                .to_string()
        };
        let low = RaisingConfig {
            gain_max: 1.0,
            ..config()
        };
        assert!(message(low, sampled()).contains("no oscillation up to a gain of 1"));
        let high = RaisingConfig {
            gain_first: 1e3,
            ..config()
        };
        assert!(message(high, sampled()).contains("unstable at the first gain"));
        assert!(message(config(), sampled().scaled(-1.0)).contains("other sign"));
        let short = RaisingConfig {
            samples: 10,
            ..config()
        };
        assert!(message(short, sampled()).contains("too few"));
    }

    #[test]
    fn classic_pi_settles_and_the_gentle_one_overshoots_less() {
        let ultimate = raise_gain(&config(), || SampledPlant::new(&sampled()).unwrap()).unwrap();
        let overshoot = |rule: Rule| {
            let gains = ultimate.gains(rule, Form::Pi).unwrap();
            let share = 0.1 / gains.integral_time_s.unwrap();
            let pi = TransferFunction::new(&[1.0, share - 1.0], &[1.0, -1.0]).unwrap();
            let closed = pi.scaled(gains.gain).series(&sampled()).feedback().unwrap();
            closed.step_info().unwrap().unwrap().overshoot
        };
        assert!(overshoot(Rule::TyreusLuyben) < 0.5 * overshoot(Rule::ZieglerNichols));
    }

    #[test]
    fn tables_have_the_published_rows() {
        let unit = Ultimate {
            gain: 1.0,
            period_s: 1.0,
        };
        let row = |rule, form| unit.gains(rule, form);
        let pid = row(Rule::ZieglerNichols, Form::Pid).unwrap();
        assert_eq!(
            (pid.gain, pid.integral_time_s, pid.derivative_time_s),
            (0.6, Some(0.5), Some(0.125))
        );
        assert_eq!(row(Rule::ZieglerNichols, Form::P).unwrap().gain, 0.5);
        assert_eq!(row(Rule::TyreusLuyben, Form::P), None);
        assert_eq!(
            row(Rule::TyreusLuyben, Form::Pi).unwrap().integral_time_s,
            Some(2.2)
        );
    }
}

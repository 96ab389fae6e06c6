//! Relay feedback: finds the ultimate gain of a live system without endangering it.
//!
//! The command is `bias + d` while the measurement is below the setpoint and `bias - d` while it is
//! above (with a hysteresis `e` against noise), so the plant oscillates with a bounded amplitude
//! `a` near its ultimate period. From the describing function of the relay (Åström and Hägglund,
//! *Automatica* 20, 1984):
//!
//! ```text
//! Ku = 4 d / (pi sqrt(a² - e²))        Tu = period of the oscillation
//! ```
//! Only the first harmonic is counted: expect `Ku` within some 20 % for a lag with dead time.
//!
//! What breaks it: a bias from which the setpoint is not in reach of `± d` (no oscillation,
//! reported as such), a load that changes during the experiment (cycles never agree), noise
//! beyond the hysteresis (too many switches; `Tu` too small).

use std::f64::consts::PI;

use super::Ultimate;
use crate::system::{SystemError, positive};

/// Cycles that must agree before they are believed.
const CYCLES_NEEDED: usize = 4;
/// How closely they must agree, of their mean; a cycle of few samples also gets one sample.
const AGREEMENT: f64 = 0.1;

/// What to do to the plant.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RelayConfig {
    /// The value around which the measurement is to swing.
    pub setpoint: f64,
    /// The command that roughly holds the setpoint.
    pub bias: f64,
    /// How far the command moves to either side; negative for a plant whose measurement falls
    /// when the command rises.
    pub amplitude: f64,
    /// The measurement must be this far past the setpoint before the relay switches: two to three
    /// times the noise.
    pub hysteresis: f64,
    /// Sampling interval.
    pub interval_s: f64,
    /// Steps after which the experiment gives up.
    pub samples_max: usize,
}

/// Why an experiment gave no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RelayFailure {
    /// The measurement stayed on one side.
    #[error(
        "the measurement never crossed the setpoint in both directions; \
         move the bias or raise the amplitude"
    )]
    NoCrossing,
    /// It oscillated, but never twice the same.
    #[error(
        "the oscillation did not become regular; raise the hysteresis above the noise, \
         or give it more samples"
    )]
    Irregular,
}

/// Where an experiment stands.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RelayState {
    /// Keep stepping.
    Running,
    /// Finished.
    Done(Ultimate),
    /// Gave up.
    Failed(RelayFailure),
}

/// A relay experiment, one sample at a time.
///
/// ```
/// use tidegate_control::design::{Relay, RelayConfig};
///
/// let mut relay = Relay::new(RelayConfig {
///     setpoint: 0.8,
///     bias: 30.0,
///     amplitude: 8.0,
///     hysteresis: 0.01,
///     interval_s: 1.0,
///     samples_max: 600,
/// })?;
/// // A plant that answers three samples late.
/// let mut pipe = [0.0; 3];
/// let mut measured = 0.0;
/// while relay.result().is_none() {
///     let command = relay.step(measured);
///     assert!((22.0..=38.0).contains(&command));
///     pipe.rotate_right(1);
///     measured = 0.7 * measured + 0.3 * pipe[0] * 0.0255;
///     pipe[0] = command;
/// }
/// assert!(relay.result().unwrap().gain > 0.0);
/// # Ok::<(), tidegate_control::system::SystemError>(())
/// ```
///
/// After the end the command rests at the bias. A measurement that is not finite holds the command
/// and counts as a step.
#[derive(Debug, Clone)]
pub struct Relay {
    config: RelayConfig,
    high: bool,
    samples: usize,
    bad_samples: u64,
    cycle: Cycle,
    cycles: Vec<Cycle>,
    /// The first cycle starts at the first switch upwards.
    started: bool,
    switches: usize,
    state: RelayState,
}

/// From one switch upwards to the next.
#[derive(Debug, Clone, Copy)]
struct Cycle {
    samples: usize,
    highest: f64,
    lowest: f64,
}

impl Cycle {
    const EMPTY: Self = Self {
        samples: 0,
        highest: f64::MIN,
        lowest: f64::MAX,
    };

    fn amplitude(&self) -> f64 {
        0.5 * (self.highest - self.lowest)
    }
}

impl Relay {
    /// Starts with the command that raises the measurement.
    ///
    /// # Errors
    /// An amplitude of zero, a negative hysteresis, an interval not positive, values not finite.
    pub fn new(config: RelayConfig) -> Result<Self, SystemError> {
        positive(
            "the relay's amplitude, without its sign,",
            config.amplitude.abs(),
        )?;
        positive("the sampling interval", config.interval_s)?;
        let numbers = [config.setpoint, config.bias, config.hysteresis];
        crate::system::all_finite("the relay's configuration", &numbers)?;
        if config.hysteresis < 0.0 {
            return Err(SystemError::OutOfRange {
                what: "the hysteresis",
                value: config.hysteresis,
                expected: "not below zero",
            });
        }
        Ok(Self {
            config,
            high: true,
            samples: 0,
            bad_samples: 0,
            cycle: Cycle::EMPTY,
            cycles: Vec::new(),
            started: false,
            switches: 0,
            state: RelayState::Running,
        })
    }

    /// Takes one measurement and gives the command for the next interval.
    pub fn step(&mut self, measured: f64) -> f64 {
        if self.state != RelayState::Running {
            return self.command();
        }
        self.samples += 1;
        if measured.is_finite() {
            self.observe(measured);
        } else {
            self.bad_samples += 1;
            self.cycle.samples += 1;
        }
        if self.state == RelayState::Running && self.samples >= self.config.samples_max {
            self.state = RelayState::Failed(self.failure());
        }
        self.command()
    }

    /// The command in force.
    #[must_use]
    pub fn command(&self) -> f64 {
        match (self.state, self.high) {
            (RelayState::Running, true) => self.config.bias + self.config.amplitude,
            (RelayState::Running, false) => self.config.bias - self.config.amplitude,
            _ => self.config.bias,
        }
    }

    /// What was found, once it is.
    #[must_use]
    pub fn result(&self) -> Option<Ultimate> {
        match self.state {
            RelayState::Done(ultimate) => Some(ultimate),
            _ => None,
        }
    }

    /// Running, done or given up.
    #[must_use]
    pub fn state(&self) -> RelayState {
        self.state
    }

    /// How many measurements were not finite.
    #[must_use]
    pub fn bad_samples(&self) -> u64 {
        self.bad_samples
    }

    fn observe(&mut self, measured: f64) {
        let error = self.config.setpoint - measured;
        let switch = if self.high {
            error < -self.config.hysteresis
        } else {
            error > self.config.hysteresis
        };
        if switch {
            self.high = !self.high;
            self.switches += 1;
            if self.high {
                self.end_cycle();
            }
        }
        self.cycle.samples += 1;
        self.cycle.highest = self.cycle.highest.max(measured);
        self.cycle.lowest = self.cycle.lowest.min(measured);
    }

    fn end_cycle(&mut self) {
        if self.started {
            self.cycles.push(self.cycle);
        }
        self.started = true;
        self.cycle = Cycle::EMPTY;
        if let Some(ultimate) = self.agreed() {
            self.state = RelayState::Done(ultimate);
        }
    }

    /// The mean of the last cycles, when they agree.
    fn agreed(&self) -> Option<Ultimate> {
        let recent = &self.cycles[self.cycles.len().checked_sub(CYCLES_NEEDED)?..];
        let mean = |of: fn(&Cycle) -> f64| recent.iter().map(of).sum::<f64>() / recent.len() as f64;
        let samples = mean(|cycle| cycle.samples as f64);
        let amplitude = mean(Cycle::amplitude);
        let regular = recent.iter().all(|cycle| {
            (cycle.samples as f64 - samples).abs() <= (AGREEMENT * samples).max(1.0)
                && (cycle.amplitude() - amplitude).abs() <= AGREEMENT * amplitude
        });
        let beyond = amplitude * amplitude - self.config.hysteresis * self.config.hysteresis;
        (regular && beyond > 0.0).then(|| Ultimate {
            gain: 4.0 * self.config.amplitude / (PI * beyond.sqrt()),
            period_s: samples * self.config.interval_s,
        })
    }

    fn failure(&self) -> RelayFailure {
        if self.switches < 2 {
            RelayFailure::NoCrossing
        } else {
            RelayFailure::Irregular
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> RelayConfig {
        RelayConfig {
            setpoint: 0.0,
            bias: 10.0,
            amplitude: 2.0,
            hysteresis: 0.0,
            interval_s: 0.5,
            samples_max: 200,
        }
    }

    /// Runs the relay against a sine of its own: what it sees does not depend on what it does.
    fn on_sine(config: RelayConfig, amplitude: f64, period_samples: f64) -> Relay {
        let mut relay = Relay::new(config).unwrap();
        for k in 0..config.samples_max {
            relay.step(amplitude * (2.0 * PI * k as f64 / period_samples).sin());
        }
        relay
    }

    #[test]
    fn amplitude_and_period_of_a_known_oscillation() {
        let found = on_sine(config(), 0.25, 20.0).result().unwrap();
        assert!((found.period_s - 10.0).abs() < 1e-9);
        assert!((found.gain / (8.0 / (PI * 0.25)) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn hysteresis_is_taken_out_of_the_amplitude() {
        let found = on_sine(
            RelayConfig {
                hysteresis: 0.15,
                ..config()
            },
            0.25,
            20.0,
        );
        let gain = found.result().unwrap().gain;
        assert!((gain / (8.0 / (PI * 0.2)) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn plant_that_never_answers_ends_with_a_reason_and_rests_at_the_bias() {
        let mut relay = Relay::new(config()).unwrap();
        for _ in 0..200 {
            relay.step(-1.0);
        }
        assert_eq!(relay.state(), RelayState::Failed(RelayFailure::NoCrossing));
        assert_eq!(relay.step(-1.0), 10.0);
    }

    #[test]
    fn oscillation_that_keeps_growing_is_not_believed() {
        let mut relay = Relay::new(config()).unwrap();
        for k in 0..200 {
            let k = f64::from(k);
            relay.step((0.1 * k).exp() * (2.0 * PI * k / 20.0).sin());
        }
        assert_eq!(relay.state(), RelayState::Failed(RelayFailure::Irregular));
    }

    #[test]
    fn bad_samples_hold_the_command_and_are_counted() {
        let mut relay = Relay::new(config()).unwrap();
        let before = relay.step(1.0);
        assert_eq!(relay.step(f64::NAN), before);
        assert_eq!(relay.step(f64::INFINITY), before);
        assert_eq!(relay.bad_samples(), 2);
    }

    #[test]
    fn command_moves_only_between_its_two_values() {
        let mut relay = Relay::new(config()).unwrap();
        for k in 0..300 {
            let command = relay.step(f64::from(k % 7) - 3.0);
            assert!([8.0, 10.0, 12.0].contains(&command));
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for bad in [
            RelayConfig {
                amplitude: 0.0,
                ..config()
            },
            RelayConfig {
                hysteresis: -1.0,
                ..config()
            },
            RelayConfig {
                interval_s: 0.0,
                ..config()
            },
            RelayConfig {
                setpoint: f64::NAN,
                ..config()
            },
        ] {
            assert!(Relay::new(bad).is_err(), "{bad:?}");
        }
    }
}

//! First order plus dead time: the plant that most loops look like from outside.
//!
//! `T dy/dt + y = K u(t - L)`. With the input held over each interval `h` and
//! `L = (d + f) h`, `0 <= f < 1`, sampling is exact:
//!
//! ```text
//! y(k+1) = a y(k) + b0 u(k-d) + b1 u(k-d-1)
//! a = e^(-h/T)   b0 = K (1 - e^(-(1-f)h/T))   b1 = K (e^(-(1-f)h/T) - a)
//! ```
//! Åström and Wittenmark, *Computer-Controlled Systems*, 3rd edition, section 2.6.

use super::{SystemError, TransferFunction, positive};

/// A plant with one lag and one dead time.
///
/// ```
/// use tidegate_control::system::Fopdt;
///
/// let plant = Fopdt { gain: 2.0, time_constant_s: 10.0, dead_time_s: 3.0 };
/// let sampled = plant.sampled(1.0)?;
/// assert_eq!(sampled.step_response(4), [0.0; 4]);
/// assert!((sampled.dc_gain().unwrap() - 2.0).abs() < 1e-12);
/// # Ok::<(), tidegate_control::system::SystemError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fopdt {
    /// Output per input in the long run.
    pub gain: f64,
    /// Time to 63 % of a step, counted from the end of the dead time.
    pub time_constant_s: f64,
    /// Time before anything happens.
    pub dead_time_s: f64,
}

impl Fopdt {
    /// The plant as seen through a hold and a sampler every `interval_s`.
    ///
    /// # Errors
    /// A time that is not positive (dead time: negative) or not finite.
    pub fn sampled(&self, interval_s: f64) -> Result<TransferFunction, SystemError> {
        let recursion = self.recursion(interval_s)?;
        let Recursion { a, b0, b1, delay } = recursion;
        let lag = TransferFunction::new(&[b0, b1], &[1.0, -a, 0.0])?;
        Ok(lag.delayed(delay))
    }

    /// The outputs for these inputs held over `interval_s` each, from rest.
    ///
    /// # Errors
    /// As [`sampled`](Self::sampled).
    pub fn simulate(&self, interval_s: f64, inputs: &[f64]) -> Result<Vec<f64>, SystemError> {
        let Recursion { a, b0, b1, delay } = self.recursion(interval_s)?;
        let input = |k: usize, ago: usize| k.checked_sub(ago).map_or(0.0, |at| inputs[at]);
        let mut y = 0.0;
        let outputs = (0..inputs.len()).map(|k| {
            let now = y;
            y = a * y + b0 * input(k, delay) + b1 * input(k, delay + 1);
            now
        });
        Ok(outputs.collect())
    }

    fn recursion(&self, interval_s: f64) -> Result<Recursion, SystemError> {
        let h = positive("the sampling interval", interval_s)?;
        let t = positive("the time constant", self.time_constant_s)?;
        if !(self.dead_time_s.is_finite() && self.dead_time_s >= 0.0) {
            return Err(SystemError::OutOfRange {
                what: "the dead time",
                value: self.dead_time_s,
                expected: "a number not below zero",
            });
        }
        let whole = (self.dead_time_s / h).floor();
        if whole > MAX_DELAY {
            return Err(SystemError::OutOfRange {
                what: "the dead time in sampling intervals",
                value: whole,
                expected: "at most 10000",
            });
        }
        let held = (-(1.0 - (self.dead_time_s / h - whole)) * h / t).exp();
        let a = (-h / t).exp();
        Ok(Recursion {
            a,
            b0: self.gain * (1.0 - held),
            b1: self.gain * (held - a),
            delay: whole as usize,
        })
    }
}

/// Sampling intervals of dead time at most for a system that can be controlled.
const MAX_DELAY: f64 = 10_000.0;

struct Recursion {
    a: f64,
    b0: f64,
    b1: f64,
    delay: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_lie_on_the_continuous_step_response() {
        let plant = Fopdt {
            gain: 2.0,
            time_constant_s: 4.0,
            dead_time_s: 1.3,
        };
        let response = plant.sampled(0.5).unwrap().step_response(60);
        for (k, y) in response.iter().enumerate() {
            let since = k as f64 * 0.5 - 1.3;
            let exact = if since < 0.0 {
                0.0
            } else {
                2.0 * (1.0 - (-since / 4.0).exp())
            };
            assert!((y - exact).abs() < 1e-12, "{k}: {y} {exact}");
        }
        let simulated = plant.simulate(0.5, &[1.0; 60]).unwrap();
        for (a, b) in response.iter().zip(simulated) {
            assert!((a - b).abs() < 1e-12);
        }
    }

    #[test]
    fn nonsense_is_refused() {
        let plant = |time_constant_s, dead_time_s| Fopdt {
            gain: 1.0,
            time_constant_s,
            dead_time_s,
        };
        assert!(plant(0.0, 1.0).sampled(1.0).is_err());
        assert!(plant(1.0, -1.0).sampled(1.0).is_err());
        assert!(plant(1.0, f64::NAN).sampled(1.0).is_err());
        assert!(plant(1.0, 1e9).sampled(1.0).is_err());
        assert!(plant(1.0, 1.0).sampled(0.0).is_err());
    }
}

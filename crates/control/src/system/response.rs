//! How a response settles, and what a pole says about it beforehand.

use super::Complex;

/// A response has settled when it stays within 2 % of its step: the usual choice in control.
pub const SETTLING_BAND: f64 = 0.02;

/// Samples of a step response computed at most; beyond it a loop is as good as not settling.
const SAMPLES_MAX: usize = 200_000;

/// Samples until `|z|^k` has fallen to 2 %: infinite from `|z| = 1` on.
#[must_use]
pub fn settling_samples(max_abs: f64) -> f64 {
    match max_abs {
        r if r >= 1.0 => f64::INFINITY,
        r if r <= 0.0 => 0.0,
        r => SETTLING_BAND.ln() / r.ln(),
    }
}

/// Enough samples to see a system with this slowest pole settle; `None` when it never will.
pub(crate) fn samples_to_show(max_abs: f64) -> Option<usize> {
    let settled = settling_samples(max_abs);
    // Residues and repeated poles delay it; by three times the estimate 2 % has become 1e-5.
    settled
        .is_finite()
        .then(|| (3.0 * settled).ceil().min(SAMPLES_MAX as f64) as usize + 10)
}

/// What one pole contributes: `|z|^k cos(k angle)`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Damping {
    /// Of the continuous pole `ln z`: 1 does not overshoot, 0 never dies, below 0 it grows.
    pub ratio: f64,
    /// Undamped natural frequency in radians per sample.
    pub natural_rad_per_sample: f64,
}

impl Damping {
    /// Of a pole; a pole at 0 is a pure delay and counts as damped fully.
    #[must_use]
    pub fn of(pole: Complex<f64>) -> Self {
        if pole.norm() == 0.0 {
            return Self {
                ratio: 1.0,
                natural_rad_per_sample: f64::INFINITY,
            };
        }
        let continuous = pole.ln();
        let natural = continuous.norm();
        let ratio = if natural == 0.0 {
            0.0
        } else {
            -continuous.re / natural
        };
        Self {
            ratio,
            natural_rad_per_sample: natural,
        }
    }
}

/// A step response in numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepInfo {
    /// Where it ends.
    pub final_value: f64,
    /// The first sample from which it stays within [`SETTLING_BAND`] of the step.
    pub settling_samples: usize,
    /// First sample at 90 % less first sample at 10 % of the way.
    pub rise_samples: usize,
    /// How far it goes beyond its end, as a share of the step.
    pub overshoot: f64,
}

impl StepInfo {
    /// Of a response from zero to `final_value`; `None` when it has not settled by its end.
    #[must_use]
    pub fn of(response: &[f64], final_value: f64) -> Option<Self> {
        if final_value == 0.0 {
            return None;
        }
        let relative = |y: &f64| y / final_value;
        let inside = |y: &f64| (relative(y) - 1.0).abs() <= SETTLING_BAND;
        let settling_samples = response
            .iter()
            .rposition(|y| !inside(y))
            .map_or(0, |last| last + 1);
        if settling_samples >= response.len() {
            return None;
        }
        let first_at = |share: f64| response.iter().position(|y| relative(y) >= share);
        let highest = response.iter().map(relative).fold(f64::MIN, f64::max);
        Some(Self {
            final_value,
            settling_samples,
            rise_samples: first_at(0.9)?.saturating_sub(first_at(0.1)?),
            overshoot: (highest - 1.0).max(0.0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn continuous_pole_gets_its_own_damping_back() {
        let (zeta, omega): (f64, f64) = (0.6, 0.3);
        let s = Complex::new(-zeta * omega, omega * (1.0 - zeta * zeta).sqrt());
        let damping = Damping::of(s.exp());
        assert!((damping.ratio - zeta).abs() < 1e-12);
        assert!((damping.natural_rad_per_sample - omega).abs() < 1e-12);
    }

    #[test]
    fn poles_outside_have_negative_damping() {
        assert!(Damping::of(Complex::new(1.1, 0.2)).ratio < 0.0);
        assert_eq!(Damping::of(Complex::new(0.5, 0.0)).ratio, 1.0);
        assert_eq!(Damping::of(Complex::new(0.0, 0.0)).ratio, 1.0);
    }

    #[test]
    fn first_order_response_settles_when_its_pole_says() {
        let response: Vec<f64> = (0..100).map(|k| 3.0 * (1.0 - 0.8_f64.powi(k))).collect();
        let info = StepInfo::of(&response, 3.0).unwrap();
        assert_eq!(info.settling_samples, settling_samples(0.8).ceil() as usize);
        assert_eq!(info.overshoot, 0.0);
        assert_eq!(info.rise_samples, 10); // 0.8^k falls below 0.9 at 1 and below 0.1 at 11
    }

    #[test]
    fn what_has_not_settled_says_so() {
        assert_eq!(StepInfo::of(&[0.0, 0.5, 0.9], 1.0), None);
        assert_eq!(StepInfo::of(&[0.0, f64::NAN], 1.0), None);
        assert_eq!(settling_samples(1.0), f64::INFINITY);
        assert_eq!(settling_samples(0.0), 0.0);
    }
}

//! Gain, phase and delay margins of a loop: how wrong its model may be.
//!
//! With the open loop `L(z)` on the unit circle: the **gain margin** is the factor `g` with
//! `L = -1/g` (phase crossover), the **phase margin** is the angle from -1 where `|L| = 1` (gain
//! crossover), the **delay margin** is the phase margin in samples, and `max_sensitivity` is
//! `max 1/|1 + L|`, the inverse of the least distance to -1 (below 2 is comfortable).
//! Åström and Wittenmark, *Computer-Controlled Systems*, 3rd edition, section 3.2 and 4.2.
//!
//! Crossovers are found by scanning the half circle and closing in by bisection. The scan is
//! logarithmic towards 0 and `pi` and denser beside every pole and zero near the circle; a
//! resonance narrower than that spacing and further from the circle than its own width does not
//! exist.

use std::f64::consts::PI;

use super::{Complex, SystemError, TransferFunction};

/// Lowest frequency looked at, radians per sample: a period of six million samples.
const OMEGA_MIN: f64 = 1e-6;
/// Points per logarithmic half of the scan.
const POINTS: usize = 1500;
/// Points beside each pole and zero, on either side.
const POINTS_NEAR_ROOT: i32 = 24;

/// Where a loop meets its limit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Crossing {
    /// Gain factor, or phase in radians.
    pub factor: f64,
    /// Frequency in radians per sample.
    pub omega: f64,
}

/// How far a loop is from instability; `None` where no change of that kind leads there.
///
/// They mean what they say for a loop that is stable when closed. For an unstable one,
/// `gain_down` is the factor that may bring it back.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Margins {
    /// Smallest factor above one by which the gain may rise.
    pub gain_up: Option<Crossing>,
    /// Largest factor below one to which the gain may fall.
    pub gain_down: Option<Crossing>,
    /// Smallest phase lag (radians) that may be added.
    pub phase: Option<Crossing>,
    /// Smallest dead time, in samples, that may be added.
    pub delay_samples: Option<f64>,
    /// Largest `1/|1 + L|` over all frequencies.
    pub max_sensitivity: f64,
}

impl Margins {
    /// Of an open loop that is to be closed with negative feedback of one.
    ///
    /// # Errors
    /// Eigenvalues that do not converge.
    pub fn of(open: &TransferFunction) -> Result<Self, SystemError> {
        let grid = grid(open)?;
        let gains = gain_crossings(open, &grid);
        let phases = phase_crossings(open, &grid);
        let least = |a: &&Crossing, b: &&Crossing| a.factor.total_cmp(&b.factor);
        let delays = phases
            .iter()
            .map(|crossing| crossing.factor / crossing.omega);
        Ok(Self {
            gain_up: gains
                .iter()
                .filter(|c| c.factor > 1.0)
                .min_by(least)
                .copied(),
            gain_down: gains
                .iter()
                .filter(|c| c.factor < 1.0)
                .max_by(least)
                .copied(),
            phase: phases.iter().min_by(least).copied(),
            delay_samples: delays.min_by(f64::total_cmp),
            max_sensitivity: max_sensitivity(open, &grid),
        })
    }

    /// The phase margin in degrees.
    #[must_use]
    pub fn phase_degrees(&self) -> Option<f64> {
        self.phase.map(|crossing| crossing.factor.to_degrees())
    }
}

/// Frequencies from just above 0 to `pi`, ascending.
fn grid(open: &TransferFunction) -> Result<Vec<f64>, SystemError> {
    let ratio = (PI / 2.0 / OMEGA_MIN).powf(1.0 / POINTS as f64);
    let low = (0..=POINTS).map(|i| OMEGA_MIN * ratio.powi(i as i32));
    let mut grid: Vec<f64> = low.flat_map(|omega| [omega, PI - omega]).collect();
    grid.push(PI);
    for root in open.poles()?.into_iter().chain(open.zeros()?) {
        grid.extend(beside(root));
    }
    grid.retain(|omega| (OMEGA_MIN..=PI).contains(omega));
    grid.sort_by(f64::total_cmp);
    grid.dedup();
    Ok(grid)
}

/// Points around the angle of a root, as dense as the root is close to the circle.
fn beside(root: Complex<f64>) -> impl Iterator<Item = f64> {
    let width = (root.norm() - 1.0).abs().max(1e-9);
    (-POINTS_NEAR_ROOT..=POINTS_NEAR_ROOT)
        .map(move |i| root.arg().abs() + width * f64::from(i) / f64::from(POINTS_NEAR_ROOT) * 4.0)
}

/// Gains that put a closed-loop pole on the circle: where `L` is real and negative.
fn gain_crossings(open: &TransferFunction, grid: &[f64]) -> Vec<Crossing> {
    let at = |omega: f64| open.frequency_response(omega);
    let ends = [0.0, PI].into_iter().filter(|&omega| at(omega).is_finite());
    let inside = sign_changes(grid, |omega| at(omega).im);
    ends.chain(inside)
        .map(|omega| (omega, at(omega)))
        .filter(|(_, value)| value.re < 0.0 && value.im.abs() < 1e-3 * value.re.abs())
        .map(|(omega, value)| Crossing {
            factor: 1.0 / value.norm(),
            omega,
        })
        .collect()
}

/// Phase lags that put a closed-loop pole on the circle: where `|L|` is one.
fn phase_crossings(open: &TransferFunction, grid: &[f64]) -> Vec<Crossing> {
    sign_changes(grid, |omega| open.frequency_response(omega).norm().ln())
        .into_iter()
        .map(|omega| Crossing {
            factor: (-open.frequency_response(omega)).arg().rem_euclid(2.0 * PI),
            omega,
        })
        .collect()
}

fn max_sensitivity(open: &TransferFunction, grid: &[f64]) -> f64 {
    grid.iter()
        .map(|&omega| 1.0 / (1.0 + open.frequency_response(omega)).norm())
        .fold(0.0, f64::max)
}

/// Where `f` changes sign between two neighbours of the grid, to the last bit of `omega`.
fn sign_changes(grid: &[f64], f: impl Fn(f64) -> f64) -> Vec<f64> {
    grid.windows(2)
        .filter(|pair| f(pair[0]) * f(pair[1]) < 0.0)
        .map(|pair| bisect(pair[0], pair[1], &f))
        .collect()
}

fn bisect(mut low: f64, mut high: f64, f: impl Fn(f64) -> f64) -> f64 {
    let negative = f(low) < 0.0;
    loop {
        let middle = 0.5 * (low + high);
        if middle <= low || middle >= high {
            return middle;
        }
        if (f(middle) < 0.0) == negative {
            low = middle;
        } else {
            high = middle;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn margins(num: &[f64], den: &[f64]) -> Margins {
        Margins::of(&TransferFunction::new(num, den).unwrap()).unwrap()
    }

    #[test]
    fn gain_margin_puts_a_pole_on_the_circle() {
        // z² - 1.5 z + 0.5 + k: complex roots of size sqrt(0.5 + k), so k = 0.5.
        let margin = margins(&[0.1], &[1.0, -1.5, 0.5]).gain_up.unwrap();
        assert!((margin.factor - 5.0).abs() < 1e-9);
        assert!((margin.omega.cos() - 0.75).abs() < 1e-9);
    }

    #[test]
    fn first_order_loop_is_limited_by_sampling_alone() {
        // Pole 0.5 - k leaves the circle at -1, when k = 1.5.
        let margin = margins(&[0.5], &[1.0, -0.5]).gain_up.unwrap();
        assert!((margin.factor - 3.0).abs() < 1e-12);
        assert_eq!(margin.omega, PI);
    }

    #[test]
    fn phase_margin_of_an_integrator_follows_from_its_half_sample_of_delay() {
        // |k / (e^iw - 1)| = 1 where 2 sin(w/2) = k; the phase there is -90° - w/2.
        let k: f64 = 0.3;
        let omega = 2.0 * (k / 2.0).asin();
        let found = margins(&[k], &[1.0, -1.0]);
        let phase = found.phase.unwrap();
        assert!((phase.omega - omega).abs() < 1e-9);
        assert!((phase.factor - (PI / 2.0 - omega / 2.0)).abs() < 1e-9);
        assert!((found.delay_samples.unwrap() - phase.factor / omega).abs() < 1e-9);
    }

    #[test]
    fn conditionally_stable_loop_has_a_margin_below() {
        // Pole 1.2 - k: stable for 0.2 < k < 2.2.
        let found = margins(&[1.0], &[1.0, -1.2]);
        assert!((found.gain_down.unwrap().factor - 0.2).abs() < 1e-9);
        assert!((found.gain_up.unwrap().factor - 2.2).abs() < 1e-9);
    }

    #[test]
    fn small_loop_has_no_phase_to_lose() {
        let found = margins(&[0.1], &[1.0, -0.5]);
        assert_eq!(found.phase, None);
        assert_eq!(found.delay_samples, None);
        assert!(found.max_sensitivity < 1.1);
    }

    #[test]
    fn sharp_resonance_is_not_stepped_over() {
        // Poles at 0.99999 e^{±i}: the peak is 1e-5 wide and 1e5 times the input high.
        let r: f64 = 0.999_99;
        let den = [1.0, -2.0 * r * 1.0_f64.cos(), r * r];
        let found = margins(&[1e-3], &den);
        assert!(found.gain_up.is_some() || found.gain_down.is_some());
        assert!(found.phase.unwrap().omega > 0.9);
    }
}

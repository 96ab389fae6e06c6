//! Root locus: where the closed-loop poles go as the gain moves.
//!
//! For the open loop `k num/den` they are the roots of `den + k num`. The gains are spaced so that
//! no pole moves further than a fixed step between two of them, and the poles of one gain are
//! matched with those of the one before: each branch is a curve that can be drawn as a line.

use std::ops::RangeInclusive;

use super::DesignError;
use crate::system::{Complex, Polynomial, SystemError, TransferFunction};

/// Gains before refinement.
const POINTS: usize = 64;
/// Longest way of a pole between two gains, in units of the unit circle: what a plot resolves.
const STEP_MAX: f64 = 0.02;
/// Halvings of an interval of gains at most; near a breakaway point poles move with the square
/// root of the gain and no spacing is ever fine enough.
const HALVINGS_MAX: u32 = 14;

/// A pole passing the unit circle.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CircleCrossing {
    /// The gain at which it does.
    pub gain: f64,
    /// Where.
    pub at: Complex<f64>,
    /// Whether the rising gain drives it out.
    pub outwards: bool,
}

/// Closed-loop poles over a range of gains.
///
/// ```
/// use tidegate_control::design::UtilizationLoop;
///
/// // 002 figure 6
/// let server = UtilizationLoop::new(1.0 / 0.0255, 1.0)?;
/// let locus = server.root_locus(2.8, 0.0..=40.0)?;
/// assert_eq!(locus.branches.len(), 2);
/// assert!(locus.branches.iter().all(|branch| branch.len() == locus.gains.len()));
/// # Ok::<(), tidegate_control::design::DesignError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct RootLocus {
    /// Ascending.
    pub gains: Vec<f64>,
    /// One per pole; each has an entry per gain and moves continuously.
    pub branches: Vec<Vec<Complex<f64>>>,
    /// Where the poles start (gain 0) and the zeros towards which they go.
    pub zeros: Vec<Complex<f64>>,
    /// Gains at which stability changes.
    pub crossings: Vec<CircleCrossing>,
}

impl RootLocus {
    /// Traces `1 + k L(z) = 0` for `k` in `gains`.
    ///
    /// # Errors
    /// An empty or infinite range, a loop without poles, a gain at which a pole is infinite.
    pub fn trace(open: &TransferFunction, gains: RangeInclusive<f64>) -> Result<Self, DesignError> {
        let (first, last) = check_range(&gains)?;
        let loops = Loops::new(open)?;
        let mut points = vec![Point {
            gain: first,
            poles: loops.poles(first)?,
        }];
        for i in 1..=POINTS {
            let gain = first + (last - first) * i as f64 / POINTS as f64;
            loops.extend_to(&mut points, gain, HALVINGS_MAX)?;
        }
        let crossings = loops.crossings(&points)?;
        Ok(Self {
            branches: (0..points[0].poles.len())
                .map(|branch| points.iter().map(|point| point.poles[branch]).collect())
                .collect(),
            gains: points.into_iter().map(|point| point.gain).collect(),
            zeros: open.zeros()?,
            crossings,
        })
    }
}

fn check_range(gains: &RangeInclusive<f64>) -> Result<(f64, f64), SystemError> {
    let (first, last) = (*gains.start(), *gains.end());
    if first.is_finite() && last.is_finite() && first < last {
        return Ok((first, last));
    }
    Err(SystemError::OutOfRange {
        what: "the end of the gain range",
        value: last,
        expected: "finite and above its start",
    })
}

/// The poles at one gain, in the order of the branches.
struct Point {
    gain: f64,
    poles: Vec<Complex<f64>>,
}

/// The family of closed loops over all gains.
struct Loops<'a> {
    open: &'a TransferFunction,
}

impl<'a> Loops<'a> {
    fn new(open: &'a TransferFunction) -> Result<Self, SystemError> {
        if open.den().degree() == 0 {
            return Err(SystemError::Zero {
                what: "the number of poles of the open loop",
            });
        }
        Ok(Self { open })
    }

    fn poles(&self, gain: f64) -> Result<Vec<Complex<f64>>, SystemError> {
        let closed: Polynomial = self.open.den() + &self.open.num().scaled(gain);
        if closed.degree() < self.open.den().degree() {
            return Err(SystemError::OutOfRange {
                what: "the gain",
                value: gain,
                expected: "another one: here a closed-loop pole is infinite",
            });
        }
        closed.roots()
    }

    /// The poles at `gain`, in the order in which `before` has them.
    fn follow(&self, before: &Point, gain: f64) -> Result<Point, SystemError> {
        let poles = matched(&before.poles, &self.poles(gain)?);
        Ok(Point { gain, poles })
    }

    fn extend_to(
        &self,
        points: &mut Vec<Point>,
        gain: f64,
        halvings: u32,
    ) -> Result<(), SystemError> {
        let before = points.last().expect("a locus starts with a point");
        let next = self.follow(before, gain)?;
        if halvings == 0 || longest_step(&before.poles, &next.poles) <= STEP_MAX {
            points.push(next);
            return Ok(());
        }
        let middle = 0.5 * (before.gain + gain);
        self.extend_to(points, middle, halvings - 1)?;
        self.extend_to(points, gain, halvings - 1)
    }

    fn crossings(&self, points: &[Point]) -> Result<Vec<CircleCrossing>, SystemError> {
        let mut crossings = Vec::new();
        for pair in points.windows(2) {
            for branch in 0..pair[0].poles.len() {
                let outside = |point: &Point| point.poles[branch].norm() > 1.0;
                if outside(&pair[0]) != outside(&pair[1]) {
                    crossings.push(self.close_in(&pair[0], &pair[1], branch)?);
                }
            }
        }
        Ok(crossings)
    }

    fn close_in(&self, a: &Point, b: &Point, branch: usize) -> Result<CircleCrossing, SystemError> {
        let outwards = b.poles[branch].norm() > 1.0;
        let (mut low, mut high) = (a.gain, b.gain);
        let mut at = b.poles[branch];
        while let Some(middle) = strictly_between(low, high) {
            let pole = self.follow(a, middle)?.poles[branch];
            if (pole.norm() > 1.0) == outwards {
                (high, at) = (middle, pole);
            } else {
                low = middle;
            }
        }
        Ok(CircleCrossing {
            gain: high,
            at,
            outwards,
        })
    }
}

fn strictly_between(low: f64, high: f64) -> Option<f64> {
    let middle = 0.5 * (low + high);
    (low < middle && middle < high).then_some(middle)
}

fn longest_step(a: &[Complex<f64>], b: &[Complex<f64>]) -> f64 {
    let steps = a.iter().zip(b).map(|(a, b)| (a - b).norm());
    // Far outside only the shape matters, not the last hundredth.
    steps
        .zip(a)
        .map(|(step, a)| step / a.norm().max(1.0))
        .fold(0.0, f64::max)
}

/// `next` in the order of `before`: closest pairs first.
fn matched(before: &[Complex<f64>], next: &[Complex<f64>]) -> Vec<Complex<f64>> {
    let n = before.len();
    let mut pairs: Vec<(usize, usize)> = (0..n).flat_map(|i| (0..n).map(move |j| (i, j))).collect();
    let distance = |&(i, j): &(usize, usize)| (before[i] - next[j]).norm();
    pairs.sort_by(|a, b| distance(a).total_cmp(&distance(b)));
    let mut partner = vec![None; n];
    let mut taken = vec![false; n];
    for (i, j) in pairs {
        if partner[i].is_none() && !taken[j] {
            partner[i] = Some(next[j]);
            taken[j] = true;
        }
    }
    partner.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(num: &[f64], den: &[f64], gains: RangeInclusive<f64>) -> RootLocus {
        RootLocus::trace(&TransferFunction::new(num, den).unwrap(), gains).unwrap()
    }

    #[test]
    fn every_point_solves_its_equation_and_no_branch_jumps() {
        let open = TransferFunction::new(&[1.0, 0.7], &[1.0, -2.1, 1.4, -0.3, 0.0]).unwrap();
        let locus = RootLocus::trace(&open, 0.0..=3.0).unwrap();
        for (i, &gain) in locus.gains.iter().enumerate() {
            for branch in &locus.branches {
                let left = open.den().eval(branch[i]) + gain * open.num().eval(branch[i]);
                assert!(
                    left.norm() < 1e-6 * (1.0 + branch[i].norm().powi(4)),
                    "{left}"
                );
            }
        }
        for branch in &locus.branches {
            for pair in branch.windows(2) {
                assert!((pair[1] - pair[0]).norm() < 0.1 * pair[0].norm().max(1.0));
            }
        }
    }

    #[test]
    fn way_out_of_the_circle_is_found() {
        // 0.5 - k = -1 at k = 1.5
        let locus = trace(&[1.0], &[1.0, -0.5], 0.0..=4.0);
        let [crossing] = locus.crossings[..] else {
            panic!("{:?}", locus.crossings);
        };
        assert!((crossing.gain - 1.5).abs() < 1e-12 && crossing.outwards);
        assert!((crossing.at + 1.0).norm() < 1e-12);
    }

    #[test]
    fn way_in_is_told_from_a_way_out() {
        let locus = trace(&[1.0], &[1.0, -1.2], 0.0..=3.0);
        let outwards: Vec<bool> = locus.crossings.iter().map(|c| c.outwards).collect();
        assert_eq!(outwards, [false, true]);
    }

    #[test]
    fn figure_6_of_002_goes_in_from_one_and_out_at_minus_one() {
        // (z-1)² + K/39.2 (z - 0.643): both from 1, round a circle about the zero.
        let share = 1.0 / 2.8;
        let locus = trace(
            &[0.0255, 0.0255 * (share - 1.0)],
            &[1.0, -2.0, 1.0],
            0.0..=120.0,
        );
        let zero = 1.0 - share;
        let at_20 = locus.gains.iter().position(|&k| k >= 20.0).unwrap();
        for branch in &locus.branches {
            // On the circle |z - zero| = h/Ti while the pair is complex.
            assert!(((branch[at_20] - zero).norm() - share).abs() < 1e-9);
        }
        let out = locus
            .crossings
            .iter()
            .find(|c| c.outwards && c.gain > 1.0)
            .unwrap();
        assert!((out.gain - 4.0 / (2.0 - share) / 0.0255).abs() < 1e-6);
    }

    #[test]
    fn bad_ranges_are_refused() {
        let open = TransferFunction::new(&[1.0], &[1.0, -0.5]).unwrap();
        for range in [0.0..=0.0, 1.0..=0.0, 0.0..=f64::INFINITY, f64::NAN..=1.0] {
            assert!(RootLocus::trace(&open, range).is_err());
        }
        let flat = TransferFunction::new(&[1.0], &[1.0]).unwrap();
        assert!(RootLocus::trace(&flat, 0.0..=1.0).is_err());
        let algebraic = TransferFunction::new(&[1.0, 0.0], &[1.0, -0.5]).unwrap();
        assert!(RootLocus::trace(&algebraic, -1.0..=1.0).is_err());
    }
}

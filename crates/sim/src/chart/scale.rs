//! Ranges, tick labels and the reduction of samples to what a figure can show.

use super::{Axis, Point};

/// The rectangle of the data.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Extent {
    pub(super) x: (f64, f64),
    pub(super) y: (f64, f64),
}

const EMPTY: (f64, f64) = (f64::INFINITY, f64::NEG_INFINITY);

impl Default for Extent {
    fn default() -> Self {
        Self { x: EMPTY, y: EMPTY }
    }
}

impl Extent {
    /// Widens each range that the coordinate is finite in.
    pub(super) fn add(&mut self, x: f64, y: f64) {
        widen(&mut self.x, x);
        widen(&mut self.y, y);
    }

    /// The ranges to draw: asked for, or the data's with room around them.
    pub(super) fn resolve(self, x: &Axis, y: &Axis, equal_axes: bool) -> Self {
        let resolved = Self {
            x: x.range.unwrap_or_else(|| padded(self.x, 0.0)),
            y: y.range.unwrap_or_else(|| {
                if y.log {
                    decades(self.y)
                } else {
                    padded(self.y, 0.05)
                }
            }),
        };
        if equal_axes {
            resolved.squared()
        } else {
            resolved
        }
    }

    /// The part of the segment from `a` to `b` inside the ranges (Liang and Barsky 1984), straight
    /// as drawn: on a logarithmic axis in the logarithm of y.
    pub(super) fn clip(&self, a: Point, b: Point, log: bool) -> Option<(Point, Point)> {
        let drawn = |y: f64| if log { y.ln() } else { y };
        let (xs, ys) = (self.x, (drawn(self.y.0), drawn(self.y.1)));
        let (a_y, b_y) = (drawn(a.1), drawn(b.1));
        let (mut enter, mut leave) = (0.0_f64, 1.0_f64);
        for (from, to, (low, high)) in [(a.0, b.0, xs), (a_y, b_y, ys)] {
            let length = to - from;
            if length == 0.0 {
                if from < low || from > high {
                    return None;
                }
                continue;
            }
            let (first, second) = ((low - from) / length, (high - from) / length);
            enter = enter.max(first.min(second));
            leave = leave.min(first.max(second));
        }
        let at = |share: f64, end: Point| match share {
            0.0 | 1.0 => end,
            _ => {
                let y = a_y + (b_y - a_y) * share;
                (a.0 + (b.0 - a.0) * share, if log { y.exp() } else { y })
            }
        };
        (enter <= leave).then(|| (at(enter, a), at(leave, b)))
    }

    /// Both ranges made as long as the longer one, about their own middles.
    fn squared(self) -> Self {
        const ROOM: f64 = 0.05;
        let half = (self.x.1 - self.x.0).max(self.y.1 - self.y.0) * (0.5 + ROOM);
        let around = |(low, high): (f64, f64)| {
            let middle = f64::midpoint(low, high);
            (middle - half, middle + half)
        };
        Self {
            x: around(self.x),
            y: around(self.y),
        }
    }
}

fn widen(range: &mut (f64, f64), value: f64) {
    if value.is_finite() {
        range.0 = range.0.min(value);
        range.1 = range.1.max(value);
    }
}

/// `range` with `share` of its length added on both sides, but never past zero: rates and times
/// have no negative side to show.
fn padded((low, high): (f64, f64), share: f64) -> (f64, f64) {
    if low > high {
        return (0.0, 1.0);
    }
    if low == high {
        let room = if low == 0.0 { 1.0 } else { low.abs() * 0.5 };
        return (low - room, high + room);
    }
    let room = (high - low) * share;
    let near_zero = low >= 0.0 && low < 0.4 * high;
    (if near_zero { 0.0 } else { low - room }, high + room)
}

fn decades((low, high): (f64, f64)) -> (f64, f64) {
    if low > high {
        return (1.0, 10.0);
    }
    let (low, high) = (low.log10().floor(), high.log10().ceil());
    (10f64.powf(low), 10f64.powf(high.max(low + 1.0)))
}

/// The distribution function of `samples`, thinned to what a figure can resolve.
pub(super) fn distribution(samples: &[f64]) -> Vec<Point> {
    const RESOLUTION: usize = 400;
    let mut sorted: Vec<f64> = samples.iter().copied().filter(|s| s.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    let count = sorted.len();
    let Some(&first) = sorted.first() else {
        return Vec::new();
    };
    let stride = count.div_ceil(RESOLUTION);
    let ranks = (stride..count).step_by(stride).chain([count]);
    let shares = ranks.map(|rank| (sorted[rank - 1], rank as f64 / count as f64));
    std::iter::once((first, 0.0)).chain(shares).collect()
}

/// A tick label: as many digits as the value needs, no more than four after the point.
pub(super) fn tick(value: f64) -> String {
    if value != 0.0 && (value.abs() >= 1e6 || value.abs() < 1e-4) {
        return format!("{value:.0e}");
    }
    let text = format!("{value:.4}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" {
        "0".into()
    } else {
        text.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_short() {
        assert_eq!(tick(0.300_000_000_000_000_04), "0.3");
        assert_eq!(tick(1200.0), "1200");
        assert_eq!(tick(-0.0), "0");
        assert_eq!(tick(2.5e7), "2e7");
    }

    #[test]
    fn a_distribution_ends_at_one_and_is_thinned() {
        let samples: Vec<f64> = (0..5000).map(f64::from).collect();
        let points = distribution(&samples);
        assert!(points.len() <= 402);
        assert_eq!(points.last(), Some(&(4999.0, 1.0)));
        assert_eq!(distribution(&[]), vec![]);
    }

    #[test]
    fn segments_are_cut_at_the_ranges() {
        let extent = Extent {
            x: (0.0, 10.0),
            y: (0.0, 4.0),
        };
        let clip = |a, b| extent.clip(a, b, false);
        assert_eq!(clip((1.0, 1.0), (2.0, 2.0)), Some(((1.0, 1.0), (2.0, 2.0))));
        assert_eq!(clip((2.0, 2.0), (4.0, 6.0)), Some(((2.0, 2.0), (3.0, 4.0))));
        assert_eq!(
            clip((-2.0, 1.0), (2.0, 1.0)),
            Some(((0.0, 1.0), (2.0, 1.0)))
        );
        assert_eq!(clip((1.0, 5.0), (2.0, 6.0)), None);
        assert_eq!(clip((-1.0, 3.0), (1.0, 7.0)), None);
    }

    #[test]
    fn ranges_show_zero_when_it_is_near() {
        assert_eq!(padded((1.0, 10.0), 0.1).0, 0.0);
        assert!(padded((9.0, 10.0), 0.1).0 > 8.0);
        assert_eq!(padded(EMPTY, 0.1), (0.0, 1.0));
    }
}

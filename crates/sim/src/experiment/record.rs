//! What a run of a model leaves behind, whatever the model: named series and named values.

use std::collections::BTreeMap;

use crate::chart::Point;

/// Named series (`utilization` over time, `goodput` over load) and named values (`max_abs`).
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Record {
    series: BTreeMap<String, Vec<Point>>,
    values: BTreeMap<String, f64>,
}

impl Record {
    /// Adds a series; a second one of the same name replaces the first.
    #[must_use]
    pub fn with_series(mut self, name: impl Into<String>, points: Vec<Point>) -> Self {
        self.series.insert(name.into(), points);
        self
    }

    /// Adds a value; a second one of the same name replaces the first.
    #[must_use]
    pub fn with_value(mut self, name: impl Into<String>, value: f64) -> Self {
        self.values.insert(name.into(), value);
        self
    }

    /// Takes over what `part` has; series of the same name are continued.
    pub(super) fn append(&mut self, part: Self) {
        for (name, points) in part.series {
            self.series.entry(name).or_default().extend(points);
        }
        self.values.extend(part.values);
    }

    /// The series of that name; empty when there is none.
    #[must_use]
    pub fn series(&self, name: &str) -> &[Point] {
        self.series.get(name).map_or(&[], Vec::as_slice)
    }

    /// The value of that name; NaN when there is none.
    #[must_use]
    pub fn value(&self, name: &str) -> f64 {
        self.values.get(name).copied().unwrap_or(f64::NAN)
    }
}

/// The moving average of `points` over the `window` (in units of x) that ends at each of them.
/// Values that are not finite are skipped.
#[must_use]
pub fn smoothed(points: &[Point], window: f64) -> Vec<Point> {
    let mut start = 0;
    let (mut sum, mut count) = (0.0, 0_u32);
    let mut smooth = Vec::with_capacity(points.len());
    for &(x, y) in points {
        if y.is_finite() {
            sum += y;
            count += 1;
        }
        while points[start].0 <= x - window {
            if points[start].1.is_finite() {
                sum -= points[start].1;
                count -= 1;
            }
            start += 1;
        }
        let mean = if count == 0 {
            f64::NAN
        } else {
            sum / f64::from(count)
        };
        smooth.push((x, mean));
    }
    smooth
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smoothing_averages_the_window_that_ends_at_each_point() {
        let points = [(1.0, 2.0), (2.0, 4.0), (3.0, f64::NAN), (4.0, 8.0)];
        let smooth = smoothed(&points, 2.0);
        assert_eq!(smooth, [(1.0, 2.0), (2.0, 3.0), (3.0, 4.0), (4.0, 8.0)]);
        let gap = smoothed(&[(0.0, f64::NAN)], 2.0);
        assert!(gap[0].1.is_nan());
    }

    #[test]
    fn what_is_not_there_is_nothing() {
        assert!(Record::default().value("x").is_nan());
        assert!(Record::default().series("x").is_empty());
    }
}

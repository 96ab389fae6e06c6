//! From a record to one number: which series, which part of it, which statistic.

use serde::Deserialize;
use toml::Spanned;

use super::record::{Record, smoothed};
use crate::chart::Point;

/// One number of a record: a `value` that the model states, or a statistic of a `series`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reading {
    /// Name of a value that the model states itself (a gain, the modulus of a pole).
    pub value: Option<Spanned<String>>,
    /// Name of a series of the model.
    pub series: Option<Spanned<String>>,
    /// What to take of the series.
    #[serde(default)]
    pub stat: Statistic,
    /// Points before this x are left out.
    pub from: Option<f64>,
    /// Points after this x are left out.
    pub to: Option<f64>,
    /// The series is first averaged over a moving window of this length in x.
    pub smooth: Option<f64>,
}

/// A statistic of the points of a series; values that are not finite (an interval in which
/// nothing completed) are left out, and of no points it is NaN.
#[derive(Debug, Clone, Copy, PartialEq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Statistic {
    /// Mean of y.
    #[default]
    Mean,
    /// Standard deviation of y.
    Sd,
    /// Smallest y.
    Min,
    /// Largest y.
    Max,
    /// The x at which y is largest.
    ArgMax,
    /// The last y.
    Last,
    /// Mean change of y from one point to the next, without its sign: how restless it is.
    Roughness,
    /// Slope of the least-squares line through the origin.
    Slope,
    /// The y that this share of the points does not exceed (nearest rank).
    Quantile(f64),
    /// y at this x, interpolated between its neighbours.
    At(f64),
    /// Mean distance from this y, without its sign.
    AbsFrom(f64),
    /// Root of the mean squared distance from this y.
    RmsFrom(f64),
    /// The x from which y stays within `[low, high]`; NaN when it ends outside.
    StaysWithin(f64, f64),
    /// Share of the points with y in `[low, high]`.
    ShareWithin(f64, f64),
}

impl Reading {
    /// The number in `record`.
    #[must_use]
    pub fn of(&self, record: &Record) -> f64 {
        if let Some(value) = &self.value {
            return record.value(value.get_ref());
        }
        let series = self.series.as_ref().map_or("", |name| name.get_ref());
        let points = record.series(series);
        match self.smooth {
            Some(window) => self.stat.of(&self.part(&smoothed(points, window))),
            None => self.stat.of(&self.part(points)),
        }
    }

    fn part(&self, points: &[Point]) -> Vec<Point> {
        let from = self.from.unwrap_or(f64::NEG_INFINITY);
        let to = self.to.unwrap_or(f64::INFINITY);
        let inside = |&(x, y): &Point| x >= from && x <= to && y.is_finite();
        points.iter().copied().filter(inside).collect()
    }
}

impl Statistic {
    fn of(self, points: &[Point]) -> f64 {
        let ys = || points.iter().map(|&(_, y)| y);
        match self {
            Self::Mean => mean(ys()),
            Self::Sd => sd(points),
            Self::Min => ys().fold(f64::NAN, f64::min),
            Self::Max => ys().fold(f64::NAN, f64::max),
            Self::ArgMax => arg_max(points),
            Self::Last => points.last().map_or(f64::NAN, |&(_, y)| y),
            Self::Roughness => mean(points.windows(2).map(|p| (p[1].1 - p[0].1).abs())),
            Self::Slope => slope(points),
            Self::Quantile(share) => quantile(ys().collect(), share),
            Self::At(x) => interpolate(points, x),
            Self::AbsFrom(wanted) => mean(ys().map(|y| (y - wanted).abs())),
            Self::RmsFrom(wanted) => mean(ys().map(|y| (y - wanted).powi(2))).sqrt(),
            Self::StaysWithin(low, high) => stays_within(points, low, high),
            Self::ShareWithin(low, high) => {
                mean(ys().map(|y| f64::from(u8::from(y >= low && y <= high))))
            }
        }
    }
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0_u32), |(sum, count), y| (sum + y, count + 1));
    if count == 0 {
        f64::NAN
    } else {
        sum / f64::from(count)
    }
}

fn sd(points: &[Point]) -> f64 {
    let middle = mean(points.iter().map(|&(_, y)| y));
    let squares: f64 = points.iter().map(|&(_, y)| (y - middle).powi(2)).sum();
    (squares / (points.len() as f64 - 1.0)).sqrt()
}

fn arg_max(points: &[Point]) -> f64 {
    points
        .iter()
        .max_by(|a, b| a.1.total_cmp(&b.1))
        .map_or(f64::NAN, |&(x, _)| x)
}

/// `sum(x y) / sum(x^2)`.
fn slope(points: &[Point]) -> f64 {
    let products: f64 = points.iter().map(|&(x, y)| x * y).sum();
    let squares: f64 = points.iter().map(|&(x, _)| x * x).sum();
    products / squares
}

fn quantile(mut values: Vec<f64>, share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let rank = (share * values.len() as f64).ceil().max(1.0) as usize;
    values
        .get(rank - 1)
        .or(values.last())
        .copied()
        .unwrap_or(f64::NAN)
}

fn interpolate(points: &[Point], x: f64) -> f64 {
    let after = points.partition_point(|&(at, _)| at < x);
    match (
        after.checked_sub(1).and_then(|at| points.get(at)),
        points.get(after),
    ) {
        (_, Some(&(x1, y1))) if x1 == x => y1,
        (Some(&(x0, y0)), Some(&(x1, y1))) => y0 + (y1 - y0) * (x - x0) / (x1 - x0),
        _ => f64::NAN,
    }
}

fn stays_within(points: &[Point], low: f64, high: f64) -> f64 {
    let settled = points
        .iter()
        .rev()
        .take_while(|&&(_, y)| y >= low && y <= high);
    settled.last().map_or(f64::NAN, |&(x, _)| x)
}

#[cfg(test)]
mod tests {
    use super::*;

    const POINTS: [Point; 5] = [(1.0, 2.0), (2.0, 8.0), (3.0, 4.0), (4.0, 5.0), (5.0, 4.0)];

    fn reading(text: &str) -> Reading {
        toml::from_str(text).unwrap()
    }

    fn read(text: &str) -> f64 {
        let record = Record::default()
            .with_series("s", POINTS.to_vec())
            .with_series("gap", vec![(0.0, f64::NAN), (1.0, 3.0)])
            .with_value("v", 7.0);
        reading(text).of(&record)
    }

    #[test]
    fn statistics_of_a_series() {
        assert_eq!(read("series = 's'"), 4.6);
        assert_eq!(read("series = 's'\nstat = 'max'"), 8.0);
        assert_eq!(read("series = 's'\nstat = 'arg_max'"), 2.0);
        assert_eq!(read("series = 's'\nstat = 'last'"), 4.0);
        assert_eq!(read("series = 's'\nstat = { quantile = 0.5 }"), 4.0);
        assert_eq!(read("series = 's'\nstat = { at = 2.5 }"), 6.0);
        assert_eq!(read("series = 's'\nstat = { stays_within = [3, 6] }"), 3.0);
        assert_eq!(read("series = 's'\nstat = { share_within = [4, 8] }"), 0.8);
        assert_eq!(
            read("series = 's'\nstat = { rms_from = 4 }\nfrom = 4"),
            0.5_f64.sqrt()
        );
        assert_eq!(read("series = 's'\nstat = { abs_from = 4 }\nfrom = 4"), 0.5);
        assert_eq!(read("series = 's'\nstat = 'roughness'\nto = 3"), 5.0);
        assert!((read("series = 's'\nstat = 'sd'") - 4.8_f64.sqrt()).abs() < 1e-12);
        assert!((read("series = 's'\nstat = 'slope'") - 70.0 / 55.0).abs() < 1e-12);
    }

    #[test]
    fn a_value_is_taken_as_it_is_and_gaps_are_left_out() {
        assert_eq!(read("value = 'v'"), 7.0);
        assert_eq!(read("series = 'gap'"), 3.0);
        assert_eq!(read("series = 's'\nsmooth = 2\nstat = { at = 3 }"), 6.0);
    }

    #[test]
    fn nothing_measured_is_not_a_number() {
        for stat in [
            "'mean'",
            "'max'",
            "'arg_max'",
            "'last'",
            "{ quantile = 0.9 }",
            "{ at = 1 }",
        ] {
            assert!(
                read(&format!("series = 'none'\nstat = {stat}")).is_nan(),
                "{stat}"
            );
        }
        assert!(read("series = 's'\nstat = { stays_within = [7, 9] }").is_nan());
        assert!(read("series = 's'\nstat = { at = 9 }").is_nan());
    }
}

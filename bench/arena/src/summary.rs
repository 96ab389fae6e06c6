//! Repetitions as one figure: the median, and how far they lie apart.

/// A figure over all repetitions of a bout; NaN where there is none.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Summary {
    pub(crate) median: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl Summary {
    /// Of figures that may be missing (NaN).
    pub(crate) fn of(figures: impl IntoIterator<Item = f64>) -> Self {
        let mut figures: Vec<f64> = figures
            .into_iter()
            .filter(|figure| figure.is_finite())
            .collect();
        figures.sort_by(f64::total_cmp);
        let Some((&low, &high)) = figures.first().zip(figures.last()) else {
            return Self {
                median: f64::NAN,
                low: f64::NAN,
                high: f64::NAN,
            };
        };
        let middle = figures.len() / 2;
        let median = if figures.len() % 2 == 1 {
            figures[middle]
        } else {
            f64::midpoint(figures[middle - 1], figures[middle])
        };
        Self { median, low, high }
    }

    /// Greatest less smallest; 0 for a single one.
    pub(crate) fn spread(&self) -> f64 {
        self.high - self.low
    }

    /// Whether a figure lies among them.
    pub(crate) fn covers(&self, figure: f64) -> bool {
        (self.low..=self.high).contains(&figure)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_ignores_what_is_missing() {
        let summary = Summary::of([3.0, f64::NAN, 1.0, 2.0]);
        assert_eq!((summary.median, summary.spread()), (2.0, 2.0));
        assert!(summary.covers(1.0) && !summary.covers(3.1));
        assert_eq!(Summary::of([1.0, 2.0]).median, 1.5);
        assert!(Summary::of([f64::NAN]).median.is_nan());
        assert!(!Summary::of([]).covers(1.0));
    }
}

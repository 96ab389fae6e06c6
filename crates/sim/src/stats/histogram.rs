//! Quantiles of times in bounded memory.

use hdrhistogram::Histogram as Hdr;

/// Times in seconds, from a microsecond to ten hours, each kept to a relative error of 0.1 %; what
/// lies outside counts as the nearest bound.
#[derive(Debug, Clone)]
pub struct Histogram {
    nanos: Hdr<u64>,
}

const LEAST_NANOS: u64 = 1_000;
const MOST_NANOS: u64 = 36_000_000_000_000;

impl Default for Histogram {
    fn default() -> Self {
        Self::with_digits(3)
    }
}

impl Histogram {
    /// Two digits instead of three: a tenth of the memory, for a histogram per interval.
    #[must_use]
    pub fn coarse() -> Self {
        Self::with_digits(2)
    }

    fn with_digits(digits: u8) -> Self {
        let nanos = Hdr::new_with_bounds(LEAST_NANOS, MOST_NANOS, digits)
            .expect("the bounds are a valid range and the digits between 0 and 5");
        Self { nanos }
    }

    /// Takes one time in seconds; NaN and negative count as zero.
    #[inline]
    pub fn record(&mut self, seconds: f64) {
        self.nanos.saturating_record((seconds * 1e9) as u64);
    }

    /// Takes all times of another.
    pub fn merge(&mut self, other: &Self) {
        self.nanos
            .add(&other.nanos)
            .expect("all histograms have the same bounds");
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.nanos.reset();
    }

    /// Number of times.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.nanos.len()
    }

    /// The time that the share `q` of all does not exceed; NaN when there is none.
    #[must_use]
    pub fn quantile(&self, q: f64) -> f64 {
        match self.count() {
            0 => f64::NAN,
            _ => self.nanos.value_at_quantile(q) as f64 / 1e9,
        }
    }

    /// The share of times up to `seconds`; NaN when there is none.
    #[must_use]
    pub fn share_up_to(&self, seconds: f64) -> f64 {
        match self.count() {
            0 => f64::NAN,
            _ => self.nanos.percentile_below((seconds * 1e9) as u64) / 100.0,
        }
    }

    /// The distribution function: every occupied bucket with the share up to it.
    #[must_use]
    pub fn distribution(&self) -> Vec<(f64, f64)> {
        let total = self.count() as f64;
        let mut below = 0;
        self.nanos
            .iter_recorded()
            .map(|bucket| {
                below += bucket.count_since_last_iteration();
                (
                    bucket.value_iterated_to() as f64 / 1e9,
                    below as f64 / total,
                )
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_a_thousandth() {
        let mut histogram = Histogram::default();
        (1..=10_000).for_each(|i| histogram.record(f64::from(i) * 1e-3));
        for q in [0.1, 0.5, 0.95, 0.99, 1.0] {
            assert!((histogram.quantile(q) - 10.0 * q).abs() <= 1.1e-3 * 10.0 * q);
        }
        assert!((histogram.share_up_to(2.5) - 0.25).abs() < 2e-3);
    }

    #[test]
    fn what_lies_outside_counts_as_the_bound() {
        let mut histogram = Histogram::coarse();
        [f64::NAN, -1.0, 0.0, 1e9, f64::INFINITY]
            .into_iter()
            .for_each(|x| histogram.record(x));
        assert_eq!(histogram.count(), 5);
        assert!(histogram.quantile(1.0) < 1.1 * 36_000.0);
    }

    #[test]
    fn the_distribution_ends_at_one() {
        let mut histogram = Histogram::default();
        [0.1, 0.1, 0.2]
            .into_iter()
            .for_each(|x| histogram.record(x));
        let points = histogram.distribution();
        assert_eq!(points.len(), 2);
        assert_eq!(points[1].1, 1.0);
        assert!(Histogram::default().quantile(0.5).is_nan());
    }
}

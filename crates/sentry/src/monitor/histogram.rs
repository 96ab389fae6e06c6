//! Log-linear histograms of durations: filled by many threads, emptied by one.
//!
//! The buckets are those of [`log_linear`], so that a quantile is off by at most 6 % of itself;
//! means are exact. From 1 µs to 18 minutes in 240 buckets; what lies outside counts at the ends.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use tidegate_control::log_linear::{self, PER_OCTAVE};

/// Durations below 2^10 ns (1 µs) share the first bucket.
const LOWEST_BITS: u32 = 10;
/// Durations from 2^40 ns (18 minutes) share the last one.
const HIGHEST_BITS: u32 = 40;
const BUCKETS: usize = (HIGHEST_BITS - LOWEST_BITS) as usize * PER_OCTAVE;

/// Bits of a nanosecond count that no bucket tells apart: the lowest octave begins where the
/// buckets of [`log_linear`] begin to grow.
const UNIT_BITS: u32 = LOWEST_BITS - PER_OCTAVE.ilog2();

fn bucket_of(nanos: u64) -> usize {
    let nanos = nanos.clamp(1 << LOWEST_BITS, (1 << HIGHEST_BITS) - 1);
    log_linear::bucket(nanos >> UNIT_BITS) - PER_OCTAVE
}

/// The middle of a bucket, in seconds.
fn middle_seconds(bucket: usize) -> f64 {
    let edge = log_linear::lower_edge(bucket + PER_OCTAVE) << UNIT_BITS;
    let width = log_linear::width(bucket + PER_OCTAVE) << UNIT_BITS;
    (edge + width / 2) as f64 * 1e-9
}

/// How wide a bucket is, in seconds.
fn width_seconds(bucket: usize) -> f64 {
    (log_linear::width(bucket + PER_OCTAVE) << UNIT_BITS) as f64 * 1e-9
}

/// What requests write into.
#[derive(Debug)]
pub(crate) struct AtomicHistogram {
    buckets: Box<[AtomicU32]>,
    sum_ns: AtomicU64,
}

impl AtomicHistogram {
    pub(crate) fn new() -> Self {
        Self {
            buckets: (0..BUCKETS).map(|_| AtomicU32::new(0)).collect(),
            sum_ns: AtomicU64::new(0),
        }
    }

    pub(crate) fn record(&self, sample: Duration) {
        let nanos = u64::try_from(sample.as_nanos()).unwrap_or(u64::MAX);
        self.buckets[bucket_of(nanos)].fetch_add(1, Ordering::Relaxed);
        self.sum_ns.fetch_add(nanos, Ordering::Relaxed);
    }

    /// Adds what was recorded since the last call to `into`.
    pub(crate) fn drain_into(&self, into: &mut Histogram) {
        for (count, bucket) in into.buckets.iter_mut().zip(&self.buckets) {
            let taken = bucket.swap(0, Ordering::Relaxed);
            *count += f64::from(taken);
            into.count += f64::from(taken);
        }
        into.sum_seconds += self.sum_ns.swap(0, Ordering::Relaxed) as f64 * 1e-9;
    }
}

/// What the adaptation reads; counts are weights, so that the past can be discounted.
#[derive(Debug, Clone)]
pub(crate) struct Histogram {
    buckets: Box<[f64]>,
    count: f64,
    sum_seconds: f64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            buckets: vec![0.0; BUCKETS].into(),
            count: 0.0,
            sum_seconds: 0.0,
        }
    }
}

impl Histogram {
    pub(crate) fn count(&self) -> f64 {
        self.count
    }

    pub(crate) fn mean_seconds(&self) -> Option<f64> {
        (self.count > 0.0).then(|| self.sum_seconds / self.count)
    }

    pub(crate) fn sum_of_squares(&self) -> f64 {
        let square = |(bucket, count): (usize, &f64)| count * middle_seconds(bucket).powi(2);
        self.buckets.iter().enumerate().map(square).sum()
    }

    /// The value below which the share `q` of the samples lies.
    pub(crate) fn quantile_seconds(&self, q: f64) -> Option<f64> {
        let rank = q * self.count;
        let mut below = 0.0;
        let reached = |&(_, &count): &(usize, &f64)| {
            below += count;
            count > 0.0 && below >= rank
        };
        let (bucket, _) = self.buckets.iter().enumerate().find(reached)?;
        Some(middle_seconds(bucket))
    }

    /// The same, with the samples of a bucket spread evenly over it: a controller that holds a
    /// quantile at a setpoint would otherwise hold the middle of a bucket.
    pub(crate) fn interpolated_quantile_seconds(&self, q: f64) -> Option<f64> {
        let rank = q * self.count;
        let mut below = 0.0;
        for (bucket, &count) in self.buckets.iter().enumerate() {
            if count > 0.0 && below + count >= rank {
                let part = (rank - below) / count;
                return Some(middle_seconds(bucket) + (part - 0.5) * width_seconds(bucket));
            }
            below += count;
        }
        None
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.buckets.iter_mut().zip(&other.buckets) {
            *mine += theirs;
        }
        self.count += other.count;
        self.sum_seconds += other.sum_seconds;
    }

    /// Discounts everything so far.
    pub(crate) fn fade(&mut self, left: f64) {
        self.buckets.iter_mut().for_each(|count| *count *= left);
        self.count *= left;
        self.sum_seconds *= left;
    }

    pub(crate) fn clear(&mut self) {
        self.fade(0.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn filled(samples: impl IntoIterator<Item = Duration>) -> Histogram {
        let atomic = AtomicHistogram::new();
        samples.into_iter().for_each(|sample| atomic.record(sample));
        let mut histogram = Histogram::default();
        atomic.drain_into(&mut histogram);
        histogram
    }

    #[test]
    fn quantiles_of_an_even_spread() {
        let histogram = filled((1..=1000).map(Duration::from_millis));
        for (q, expected) in [(0.5, 0.5), (0.95, 0.95), (0.99, 0.99)] {
            let quantile = histogram.quantile_seconds(q).unwrap();
            assert!((quantile / expected - 1.0).abs() < 0.07, "{q}: {quantile}");
        }
        for (q, expected) in [(0.5, 0.5), (0.95, 0.95), (0.99, 0.99)] {
            let quantile = histogram.interpolated_quantile_seconds(q).unwrap();
            assert!((quantile / expected - 1.0).abs() < 0.01, "{q}: {quantile}");
        }
        assert!((histogram.mean_seconds().unwrap() - 0.5005).abs() < 1e-9);
        // Uniform: variance (b-a)^2/12 over mean^2 is one third.
    }

    #[test]
    fn squares_are_those_of_the_samples() {
        let histogram = filled([10, 10, 200].map(Duration::from_millis));
        let exact = 0.01_f64.powi(2) * 2.0 + 0.2_f64.powi(2);
        assert!((histogram.sum_of_squares() / exact - 1.0).abs() < 0.13);
    }

    #[test]
    fn draining_empties() {
        let atomic = AtomicHistogram::new();
        atomic.record(Duration::from_millis(5));
        let mut histogram = Histogram::default();
        atomic.drain_into(&mut histogram);
        atomic.drain_into(&mut histogram);
        assert_eq!(histogram.count(), 1.0);
        histogram.clear();
        assert_eq!(histogram.mean_seconds(), None);
        assert_eq!(histogram.quantile_seconds(0.5), None);
    }

    proptest! {
        #[test]
        fn bucket_holds_its_middle(nanos in 1_024_u64..(1 << 40)) {
            let middle = middle_seconds(bucket_of(nanos)) * 1e9;
            prop_assert!((middle / nanos as f64 - 1.0).abs() <= 0.0626);
        }

        #[test]
        fn everything_lands_in_a_bucket(nanos: u64) {
            prop_assert!(bucket_of(nanos) < BUCKETS);
        }
    }
}

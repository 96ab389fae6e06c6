//! A histogram of durations that is cheap to write, by one thread: an addition or two per value.
//!
//! The buckets are those of [`log_linear`] in microseconds: a quantile read from the middle of its
//! bucket is off by 6 % at most. Written fine, exported coarse: Prometheus gets two edges per
//! octave.
//!
//! Readers add up relaxed counters while the writer goes on, so a snapshot may miss what was
//! written while it was taken; it never counts anything twice.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate_control::log_linear::{self, PER_OCTAVE, lower_edge};

use super::{bump, increase};

/// Octaves above the linear part: up to 2^30 µs, 18 minutes; longer times share the last bucket.
const OCTAVES: usize = 27;
const BUCKETS: usize = PER_OCTAVE * (OCTAVES + 1);

/// First exported octave: 2^6 µs.
const EXPORT_FROM: u32 = 6;
/// Last exported octave: 2^26 µs, 67 s.
const EXPORT_TO: u32 = 26;

/// The bucket of a time in microseconds.
fn bucket_of(micros: u64) -> usize {
    log_linear::bucket(micros).min(BUCKETS - 1)
}

/// A histogram of durations that is cheap to write, by one thread: an addition or two per value.
#[derive(Debug)]
pub(super) struct Histogram {
    counts: [AtomicU64; BUCKETS],
    sum_micros: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            counts: std::array::from_fn(|_| AtomicU64::new(0)),
            sum_micros: AtomicU64::new(0),
        }
    }
}

impl Histogram {
    pub(super) fn record(&self, time: Duration) {
        // The sum must not wrap; nothing takes longer than twelve days.
        let micros = time.as_micros().min(1 << 40) as u64;
        bump(&self.counts[bucket_of(micros)]);
        increase(&self.sum_micros, micros);
    }

    pub(super) fn add_to(&self, snapshot: &mut Snapshot) {
        for (total, count) in snapshot.counts.iter_mut().zip(&self.counts) {
            *total += count.load(Ordering::Relaxed);
        }
        snapshot.sum_micros += self.sum_micros.load(Ordering::Relaxed);
    }
}

/// What one or several histograms held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    counts: Vec<u64>,
    sum_micros: u64,
}

impl Default for Snapshot {
    fn default() -> Self {
        Self {
            counts: vec![0; BUCKETS],
            sum_micros: 0,
        }
    }
}

impl Snapshot {
    /// What was recorded since an earlier snapshot.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let counts = self.counts.iter().zip(&earlier.counts);
        Self {
            counts: counts
                .map(|(now, then)| now.saturating_sub(*then))
                .collect(),
            sum_micros: self.sum_micros.saturating_sub(earlier.sum_micros),
        }
    }

    /// Adds what another one holds.
    pub fn add(&mut self, other: &Self) {
        for (total, count) in self.counts.iter_mut().zip(&other.counts) {
            *total += count;
        }
        self.sum_micros += other.sum_micros;
    }

    /// Values recorded.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Their sum in seconds.
    #[must_use]
    pub fn sum_seconds(&self) -> f64 {
        self.sum_micros as f64 / 1e6
    }

    /// The time below which a share of the values lies; `None` without values.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        let rank = (share.clamp(0.0, 1.0) * self.count() as f64)
            .ceil()
            .max(1.0) as u64;
        let mut below = 0;
        let bucket = self.counts.iter().position(|count| {
            below += count;
            below >= rank
        })?;
        let half = log_linear::width(bucket) / 2;
        Some(Duration::from_micros(lower_edge(bucket) + half))
    }

    /// Upper edges in seconds, and how many values lie below each, for Prometheus.
    pub fn cumulative(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        let mut below = 0;
        let mut next = 0;
        exported_edges().map(move |edge| {
            below += self.counts[next..edge].iter().sum::<u64>();
            next = edge;
            (lower_edge(edge) as f64 / 1e6, below)
        })
    }
}

/// Buckets at whose lower edge an exported bucket ends: each octave's start and middle.
fn exported_edges() -> impl Iterator<Item = usize> {
    (EXPORT_FROM..=EXPORT_TO).flat_map(|octave| {
        let start = bucket_of(1 << octave);
        [start, start + PER_OCTAVE / 2]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_is_within_the_edges_of_its_bucket() {
        let times = (0..40).flat_map(|bits| [1u64 << bits, (1 << bits) + 1, (1 << bits) * 3 / 2]);
        for micros in times.chain(0..5000) {
            let bucket = bucket_of(micros);
            assert!(lower_edge(bucket) <= micros, "{micros}");
            let last = bucket == BUCKETS - 1;
            assert!(last || micros < lower_edge(bucket + 1), "{micros}");
        }
    }

    #[test]
    fn a_quantile_is_off_by_six_percent_at_most() {
        let histogram = Histogram::default();
        for millis in 1..=1000 {
            histogram.record(Duration::from_millis(millis));
        }
        let mut snapshot = Snapshot::default();
        histogram.add_to(&mut snapshot);
        for (share, exact) in [(0.5, 0.5), (0.9, 0.9), (0.99, 0.99), (1.0, 1.0)] {
            let read = snapshot.quantile(share).unwrap().as_secs_f64();
            assert!((read / exact - 1.0).abs() < 0.07, "{share}: {read}");
        }
        assert!((snapshot.sum_seconds() - 500.5).abs() < 1e-6);
        assert_eq!(Snapshot::default().quantile(0.5), None);
    }

    #[test]
    fn exported_buckets_are_cumulative_and_rise() {
        let histogram = Histogram::default();
        for micros in [1, 64, 100, 1_000_000, 200_000_000] {
            histogram.record(Duration::from_micros(micros));
        }
        let mut snapshot = Snapshot::default();
        histogram.add_to(&mut snapshot);
        let exported: Vec<_> = snapshot.cumulative().collect();
        assert_eq!(exported[0], (64e-6, 1));
        assert_eq!(exported[1], (96e-6, 2));
        assert_eq!(exported[2], (128e-6, 3));
        assert_eq!(exported.last().unwrap().1, 4, "the longest is beyond");
        assert!(exported.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1));
    }
}

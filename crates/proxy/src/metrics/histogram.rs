//! A histogram of durations that is cheap to write, by one thread: an addition or two per value.
//!
//! Buckets are exponential: eight to an octave, each 9 % wide, with edges at `2^(i/8)` seconds. A
//! quantile read from the middle of its bucket is off by 4.5 % at most. These are the edges of
//! Prometheus's native histograms of schema 3 and of OpenTelemetry's exponential histograms of
//! scale 3, so both can be exported as they are. The text formats get every fourth edge: two to an
//! octave, powers of two of a second among them.
//!
//! Readers add up relaxed counters while the writer goes on, so a snapshot may miss what was
//! written while it was taken; it never counts anything twice.
//!
//! Decision: docs/decisions/0242-exponential-histograms.md.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::{bump, increase};

/// Buckets of an octave: `2^SCHEMA`.
const SUBS: usize = 8;
/// The logarithm of that, as native histograms name their resolution.
pub const SCHEMA: i32 = 3;
/// The upper edge of the first bucket is this power of two of a second: 0.95 µs.
const FIRST_OCTAVE: i32 = -20;
/// Octaves above it: up to 2^10 s, 17 minutes; longer times share the last bucket.
const OCTAVES: usize = 30;
const BUCKETS: usize = OCTAVES * SUBS + 2;

/// First exported edge: 2^-14 s, 61 µs.
const EXPORT_FROM: i32 = -14;
/// Last exported edge: 2^6 s, 64 s.
const EXPORT_TO: i32 = 6;

/// `2^93 / 10^9`, to turn nanoseconds into units of 2^-30 s.
const UNITS_PER_NANO: u64 = 9_903_520_314_283_042_199;

/// The edges within an octave, `2^(i/8)`, as fractions of 2^63.
const EDGES: [u64; SUBS + 1] = {
    const ONE: f64 = (1u64 << 63) as f64;
    [
        1 << 63,
        (1.090_507_732_665_257_7 * ONE) as u64,
        (1.189_207_115_002_721 * ONE) as u64,
        (1.296_839_554_651_009_6 * ONE) as u64,
        (std::f64::consts::SQRT_2 * ONE) as u64,
        (1.542_210_825_407_940_7 * ONE) as u64,
        (1.681_792_830_507_429 * ONE) as u64,
        (1.834_008_086_409_342_4 * ONE) as u64,
        u64::MAX,
    ]
};

/// The bucket of a time: the first whose upper edge is not below it.
fn bucket_of(time: Duration) -> usize {
    // The sum must not wrap; nothing takes longer than twelve days.
    let nanos = time.as_nanos().min(1 << 50);
    let units = ((nanos * u128::from(UNITS_PER_NANO)) >> 63) as u64;
    let Some(exponent) = units.checked_ilog2().filter(|&exponent| exponent >= 10) else {
        return 0;
    };
    let mantissa = units << (63 - exponent);
    // Every eighth of an octave's lower half is a linear step, which has one edge inside.
    let step = (mantissa >> 60) as usize & (SUBS - 1);
    let sub = step + usize::from(mantissa > EDGES[0]) + usize::from(mantissa > EDGES[step + 1]);
    ((exponent - 10) as usize * SUBS + sub).min(BUCKETS - 1)
}

/// The largest time of a bucket in seconds; the last one has none.
fn upper_edge(bucket: usize) -> f64 {
    let exponent = bucket as f64 / SUBS as f64 + f64::from(FIRST_OCTAVE);
    exponent.exp2()
}

/// A histogram of durations that is cheap to write, by one thread: an addition or two per value.
#[derive(Debug)]
pub(super) struct Histogram {
    counts: [AtomicU64; BUCKETS],
    sum_nanos: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            counts: std::array::from_fn(|_| AtomicU64::new(0)),
            sum_nanos: AtomicU64::new(0),
        }
    }
}

impl Histogram {
    pub(super) fn record(&self, time: Duration) {
        bump(&self.counts[bucket_of(time)]);
        increase(&self.sum_nanos, time.as_nanos().min(1 << 50) as u64);
    }

    pub(super) fn add_to(&self, snapshot: &mut Snapshot) {
        let counts = self.counts.iter();
        snapshot.add_counts(counts.map(|count| count.load(Ordering::Relaxed)));
        snapshot.sum_nanos += u128::from(self.sum_nanos.load(Ordering::Relaxed));
    }
}

/// What one or several histograms held.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// By bucket, up to the last one that holds any: most are of replicas and classes in which
    /// nothing happens, and there are many of them.
    counts: Vec<u64>,
    sum_nanos: u128,
}

impl Snapshot {
    fn add_counts(&mut self, counts: impl Iterator<Item = u64>) {
        for (bucket, count) in counts.enumerate().filter(|(_, count)| *count > 0) {
            if self.counts.len() <= bucket {
                self.counts.resize(bucket + 1, 0);
            }
            self.counts[bucket] += count;
        }
    }

    fn count_of(&self, bucket: usize) -> u64 {
        self.counts.get(bucket).copied().unwrap_or(0)
    }

    /// What was recorded since an earlier snapshot.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut new = Self {
            counts: Vec::new(),
            sum_nanos: self.sum_nanos.saturating_sub(earlier.sum_nanos),
        };
        let counts = self.counts.iter().enumerate();
        new.add_counts(counts.map(|(bucket, now)| now.saturating_sub(earlier.count_of(bucket))));
        new
    }

    /// Adds what another one holds.
    pub fn add(&mut self, other: &Self) {
        self.add_counts(other.counts.iter().copied());
        self.sum_nanos += other.sum_nanos;
    }

    /// Values recorded.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Their sum in seconds.
    #[must_use]
    pub fn sum_seconds(&self) -> f64 {
        self.sum_nanos as f64 / 1e9
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
        let middle = upper_edge(bucket) / (0.5 / SUBS as f64).exp2();
        Some(Duration::from_secs_f64(middle))
    }

    /// Upper edges in seconds, and how many values are not above each, for the text formats.
    pub fn cumulative(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        let mut below = 0;
        let mut next = 0;
        exported_edges().map(move |edge| {
            below += (next..=edge)
                .map(|bucket| self.count_of(bucket))
                .sum::<u64>();
            next = edge + 1;
            (upper_edge(edge), below)
        })
    }

    /// Values of less than a microsecond, which native histograms count as zero.
    #[must_use]
    pub fn zero_count(&self) -> u64 {
        self.count_of(0)
    }

    /// The largest of these values, in seconds.
    #[must_use]
    pub fn zero_threshold() -> f64 {
        upper_edge(0)
    }

    /// Counts of the buckets that hold any, in order. A bucket of number `i` ends at `2^(i/8)`
    /// seconds.
    pub fn native(&self) -> impl Iterator<Item = (i32, u64)> + '_ {
        let numbered = self.counts.iter().enumerate().skip(1);
        let held = numbered.filter(|(_, count)| **count > 0);
        held.map(|(bucket, count)| (bucket as i32 + FIRST_OCTAVE * SUBS as i32, *count))
    }
}

/// The edge, by its place among the exported ones, that a time falls under.
pub(super) fn exported_bucket(seconds: f64) -> usize {
    let time = Duration::try_from_secs_f64(seconds).unwrap_or_default();
    let bucket = bucket_of(time);
    exported_edges()
        .position(|edge| edge >= bucket)
        .unwrap_or_else(|| exported_edges().count())
}

/// Buckets whose upper edges are exported: the start and the middle of each octave.
fn exported_edges() -> impl Iterator<Item = usize> {
    let bucket = |octave: i32| (octave - FIRST_OCTAVE) as usize * SUBS;
    (bucket(EXPORT_FROM)..=bucket(EXPORT_TO)).step_by(SUBS / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_is_within_the_edges_of_its_bucket() {
        let nanos = (0..45).flat_map(|bits| [1u64 << bits, (1 << bits) + 1, (1 << bits) * 3 / 2]);
        for nanos in nanos.chain((0..5_000_000).step_by(997)) {
            let time = Duration::from_nanos(nanos);
            let (bucket, seconds) = (bucket_of(time), time.as_secs_f64());
            // What is a nanosecond off an edge may be on its other side.
            let close = 1.0 + 2e-9 / seconds.max(1e-9);
            assert!(
                bucket == BUCKETS - 1 || seconds <= upper_edge(bucket) * close,
                "{nanos}"
            );
            assert!(
                bucket == 0 || seconds * close >= upper_edge(bucket - 1),
                "{nanos}"
            );
        }
    }

    #[test]
    fn edges_belong_to_the_bucket_below() {
        for octave in -9..10 {
            let edge = Duration::from_secs_f64(f64::from(octave).exp2());
            assert_eq!(upper_edge(bucket_of(edge)), f64::from(octave).exp2());
            let above = edge + Duration::from_nanos(10);
            assert_eq!(bucket_of(above), bucket_of(edge) + 1);
        }
    }

    #[test]
    fn a_quantile_is_off_by_five_percent_at_most() {
        let histogram = Histogram::default();
        for millis in 1..=1000 {
            histogram.record(Duration::from_millis(millis));
        }
        let mut snapshot = Snapshot::default();
        histogram.add_to(&mut snapshot);
        for (share, exact) in [(0.5, 0.5), (0.9, 0.9), (0.99, 0.99), (1.0, 1.0)] {
            let read = snapshot.quantile(share).unwrap().as_secs_f64();
            assert!((read / exact - 1.0).abs() < 0.05, "{share}: {read}");
        }
        assert!((snapshot.sum_seconds() - 500.5).abs() < 1e-6);
        assert_eq!(Snapshot::default().quantile(0.5), None);
    }

    #[test]
    fn exported_buckets_are_cumulative_and_rise() {
        let histogram = Histogram::default();
        for micros in [1, 61, 86, 1_000_000, 200_000_000] {
            histogram.record(Duration::from_micros(micros));
        }
        let mut snapshot = Snapshot::default();
        histogram.add_to(&mut snapshot);
        let exported: Vec<_> = snapshot.cumulative().collect();
        assert_eq!(exported[0], (1.0 / 16384.0, 2));
        assert_eq!(exported[1].1, 3);
        assert!(exported.contains(&(0.5, 3)) && exported.contains(&(1.0, 4)));
        assert_eq!(
            exported.last().unwrap(),
            &(64.0, 4),
            "the longest is beyond"
        );
        assert!(exported.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1));
        for (place, seconds) in [(0, 61e-6), (1, 80e-6), (exported.len(), 200.0)] {
            assert_eq!(exported_bucket(seconds), place, "{seconds}");
        }
    }

    #[test]
    fn native_buckets_are_those_of_schema_3() {
        let histogram = Histogram::default();
        for millis in [1000, 1000, 1050, 2000] {
            histogram.record(Duration::from_millis(millis));
        }
        histogram.record(Duration::ZERO);
        let mut snapshot = Snapshot::default();
        histogram.add_to(&mut snapshot);
        let native: Vec<_> = snapshot.native().collect();
        assert_eq!(native, [(0, 2), (1, 1), (8, 1)], "2^0, 2^(1/8), 2^1 s");
        assert_eq!(snapshot.zero_count(), 1);
        assert_eq!(Snapshot::zero_threshold(), 2f64.powi(-20));
    }
}

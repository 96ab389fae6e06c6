//! Times between arrivals, in bins of half an octave.
//!
//! Recorded by many threads, taken by one. Two threads whose clocks differ by a little record a gap
//! of zero.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use tidegate_control::Timestamp;

/// Bins of half an octave of nanoseconds, up to 2^40 ns (18 minutes).
const BINS: usize = 80;

/// The bin of a gap: twice its octave, and one more in the octave's upper half.
fn bin_of(gap_ns: u64) -> usize {
    let octave = gap_ns.max(2).ilog2();
    let upper_half = gap_ns >> (octave - 1) & 1;
    ((2 * octave) as usize + upper_half as usize).min(BINS - 1)
}

/// The first nanosecond beyond a bin.
fn end_of(bin: usize) -> f64 {
    let octave = (1_u64 << (bin / 2)) as f64;
    octave * if bin.is_multiple_of(2) { 1.5 } else { 2.0 }
}

/// Gaps as they are recorded.
#[derive(Debug)]
pub(crate) struct AtomicGaps {
    last_ns: AtomicU64,
    bins: [AtomicU32; BINS],
}

impl AtomicGaps {
    pub(super) fn new() -> Self {
        Self {
            last_ns: AtomicU64::new(u64::MAX),
            bins: std::array::from_fn(|_| AtomicU32::new(0)),
        }
    }

    /// A request arrives.
    pub(crate) fn on_arrival(&self, now: Timestamp) {
        let now = now.as_nanos();
        let last = self.last_ns.swap(now, Ordering::Relaxed);
        if last != u64::MAX {
            let bin = bin_of(now.saturating_sub(last));
            self.bins[bin].fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn drain_into(&self, gaps: &mut Gaps) {
        for (bin, count) in self.bins.iter().zip(&mut gaps.0) {
            *count += bin.swap(0, Ordering::Relaxed);
        }
    }
}

/// Gaps of some time.
#[derive(Debug, Clone)]
pub(crate) struct Gaps([u32; BINS]);

impl Default for Gaps {
    fn default() -> Self {
        Self([0; BINS])
    }
}

impl Gaps {
    pub(crate) fn merge(&mut self, other: &Self) {
        for (count, more) in self.0.iter_mut().zip(&other.0) {
            *count += more;
        }
    }

    pub(crate) fn clear(&mut self) {
        self.0 = [0; BINS];
    }

    pub(crate) fn count(&self) -> f64 {
        self.0.iter().map(|&count| f64::from(count)).sum()
    }

    /// Sum of the squares of all, in seconds squared, each as the middle of its bin.
    pub(crate) fn sum_of_squares(&self) -> f64 {
        let square = |(bin, &count): (usize, &u32)| {
            let middle = end_of(bin) * 1e-9 * if bin.is_multiple_of(2) { 0.833 } else { 0.875 };
            f64::from(count) * middle * middle
        };
        self.0.iter().enumerate().map(square).sum()
    }

    /// How many were shorter than this, to half an octave less.
    pub(crate) fn shorter_than(&self, seconds: f64) -> f64 {
        let short = self.0.iter().enumerate();
        let short = short.take_while(|(bin, _)| end_of(*bin) <= seconds * 1e9);
        short.map(|(_, &count)| f64::from(count)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_are_in_order_and_without_gaps() {
        for bin in 2..BINS - 1 {
            let end = end_of(bin) as u64;
            assert_eq!((bin_of(end - 1), bin_of(end)), (bin, bin + 1));
        }
        assert_eq!(bin_of(u64::MAX), BINS - 1);
    }

    #[test]
    fn gaps_are_counted_by_their_length() {
        let recorded = AtomicGaps::new();
        for millis in [0, 0, 1, 2, 12] {
            recorded.on_arrival(Timestamp::from_nanos(millis * 1_000_000));
        }
        let mut gaps = Gaps::default();
        recorded.drain_into(&mut gaps);
        assert_eq!(gaps.count(), 4.0);
        assert_eq!(gaps.shorter_than(0.000_1), 1.0);
        assert_eq!(gaps.shorter_than(0.005), 3.0);
    }
}

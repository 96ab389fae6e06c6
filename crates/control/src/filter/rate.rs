//! Events per second over a sliding window of buckets.
//!
//! The window is cut into `n` buckets; one more is kept for the part of the oldest that is still
//! inside:
//!
//! ```text
//! rate(t) = (c_current + Σ c_whole + (1 - f) c_oldest) / window
//! f = elapsed part of the current bucket
//! ```
//!
//! The only approximation is that the oldest bucket's events are taken as evenly spread, so the
//! error is at most that bucket's count over the window: for a steady load one part in `n`. Until
//! a whole window has passed, the time since the start (at least one bucket) stands in for it.

use std::num::NonZeroUsize;
use std::time::Duration;

use super::SampleCheck;
use crate::error::{ControlError, require, require_time};
use crate::time::Timestamp;

/// Counts events, or amounts of anything, per second.
///
/// ```
/// use std::{num::NonZeroUsize, time::Duration};
/// use tidegate_control::{Timestamp, filter::RateMeter};
///
/// let ten = NonZeroUsize::new(10).unwrap();
/// let mut arrivals = RateMeter::new(Duration::from_secs(1), ten, Timestamp::ZERO)?;
/// let at = Timestamp::from_secs_f64;
/// for k in 0..500 {
///     arrivals.on_event(at(f64::from(k) / 50.0)); // 50/s for 10 s
/// }
/// assert!((arrivals.per_second(at(10.0)) - 50.0).abs() < 0.5);
/// assert_eq!(arrivals.per_second(at(12.0)), 0.0);
/// # Ok::<(), tidegate_control::ControlError>(())
/// ```
#[derive(Debug, Clone)]
pub struct RateMeter {
    start: Timestamp,
    bucket_ns: u64,
    /// Number of the newest bucket since the start.
    newest: u64,
    /// Bucket number modulo length is the slot; `n` whole buckets and the current one.
    amounts: Box<[f64]>,
    check: SampleCheck,
}

impl RateMeter {
    /// A window of `buckets` equal parts; `start` is when counting begins.
    pub fn new(
        window: Duration,
        buckets: NonZeroUsize,
        start: Timestamp,
    ) -> Result<Self, ControlError> {
        let window_s = require_time("window", window)?;
        let bucket_ns = window.as_nanos() / buckets.get() as u128;
        let bucket_ns = u64::try_from(bucket_ns).unwrap_or(u64::MAX);
        require(
            bucket_ns > 0,
            "window",
            "at least a nanosecond a bucket",
            window_s,
        )?;
        Ok(Self {
            start,
            bucket_ns,
            newest: 0,
            amounts: vec![0.0; buckets.get() + 1].into(),
            check: SampleCheck::default(),
        })
    }

    /// Counts one event.
    pub fn on_event(&mut self, now: Timestamp) {
        self.on_amount(now, 1.0);
    }

    /// Counts `amount` (bytes, seconds of work, tokens). Negative ones are bad samples too.
    pub fn on_amount(&mut self, now: Timestamp, amount: f64) {
        let amount = if amount < 0.0 { f64::NAN } else { amount };
        if self.check.accept(amount) {
            self.advance_to(now);
            let slot = self.slot(self.newest);
            self.amounts[slot] = (self.amounts[slot] + amount).min(f64::MAX);
        }
    }

    /// The rate at `now`.
    #[must_use]
    pub fn per_second(&self, now: Timestamp) -> f64 {
        let elapsed_ns = self.elapsed_ns(now).max(self.newest * self.bucket_ns);
        let current = elapsed_ns / self.bucket_ns;
        let into_current = (elapsed_ns % self.bucket_ns) as f64 / self.bucket_ns as f64;
        let whole = self.buckets();
        let inside: f64 = (0..whole)
            .filter_map(|back| current.checked_sub(back))
            .map(|bucket| self.amount(bucket))
            .sum();
        let oldest = current
            .checked_sub(whole)
            .map_or(0.0, |bucket| self.amount(bucket));
        let amount = inside + (1.0 - into_current) * oldest;
        amount.min(f64::MAX) / self.covered_s(elapsed_ns)
    }

    /// How many samples were skipped.
    #[must_use]
    pub fn bad_samples(&self) -> u64 {
        self.check.refused
    }

    fn buckets(&self) -> u64 {
        self.amounts.len() as u64 - 1
    }

    fn slot(&self, bucket: u64) -> usize {
        (bucket % self.amounts.len() as u64) as usize
    }

    fn elapsed_ns(&self, now: Timestamp) -> u64 {
        now.as_nanos().saturating_sub(self.start.as_nanos())
    }

    fn covered_s(&self, elapsed_ns: u64) -> f64 {
        let window_ns = self.bucket_ns.saturating_mul(self.buckets());
        elapsed_ns.clamp(self.bucket_ns, window_ns) as f64 / 1e9
    }

    /// What a bucket holds; nothing was counted in those after the newest.
    fn amount(&self, bucket: u64) -> f64 {
        if bucket <= self.newest {
            self.amounts[self.slot(bucket)]
        } else {
            0.0
        }
    }

    fn advance_to(&mut self, now: Timestamp) {
        let current = self.elapsed_ns(now) / self.bucket_ns;
        let passed = current.saturating_sub(self.newest);
        for step in 1..=passed.min(self.amounts.len() as u64) {
            let slot = self.slot(self.newest + step);
            self.amounts[slot] = 0.0;
        }
        self.newest = self.newest.max(current);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn meter(buckets: usize) -> RateMeter {
        let buckets = NonZeroUsize::new(buckets).unwrap();
        RateMeter::new(Duration::from_secs(1), buckets, Timestamp::ZERO).unwrap()
    }

    #[test]
    fn the_start_is_not_taken_for_an_infinite_rate() {
        let mut meter = meter(10);
        meter.on_event(Timestamp::ZERO);
        assert_eq!(meter.per_second(Timestamp::ZERO), 10.0);
        assert_eq!(meter.per_second(Timestamp::from_secs_f64(0.5)), 2.0);
    }

    #[test]
    fn silence_empties_the_window() {
        let mut meter = meter(4);
        (0..100).for_each(|_| meter.on_event(Timestamp::ZERO));
        assert_eq!(meter.per_second(Timestamp::from_secs_f64(1.0)), 100.0);
        assert_eq!(meter.per_second(Timestamp::from_secs_f64(1.125)), 50.0);
        assert_eq!(meter.per_second(Timestamp::from_secs_f64(1.25)), 0.0);
        meter.on_event(Timestamp::from_secs_f64(100.0));
        assert_eq!(meter.per_second(Timestamp::from_secs_f64(100.0)), 1.0);
    }

    #[test]
    fn a_clock_read_out_of_order_loses_no_event() {
        let mut meter = meter(10);
        meter.on_event(Timestamp::from_secs_f64(5.0));
        meter.on_event(Timestamp::from_secs_f64(4.95));
        assert_eq!(meter.per_second(Timestamp::from_secs_f64(4.95)), 2.0);
    }

    #[test]
    fn amounts_that_make_no_sense_are_skipped() {
        let mut meter = meter(10);
        for amount in [f64::NAN, f64::INFINITY, -1.0] {
            meter.on_amount(Timestamp::ZERO, amount);
        }
        assert_eq!(meter.per_second(Timestamp::ZERO), 0.0);
        assert_eq!(meter.bad_samples(), 3);
    }

    #[test]
    fn refuses_a_window_without_length() {
        let two = NonZeroUsize::new(2).unwrap();
        assert!(RateMeter::new(Duration::ZERO, two, Timestamp::ZERO).is_err());
        assert!(RateMeter::new(Duration::from_nanos(1), two, Timestamp::ZERO).is_err());
    }

    proptest! {
        /// The documented error bound: between the counts with and without the oldest bucket.
        #[test]
        fn errs_by_no_more_than_the_oldest_bucket(
            buckets in 1_usize..20,
            gaps_ms in prop::collection::vec(0_u64..300, 1..200),
        ) {
            let mut meter = meter(buckets);
            let mut times = Vec::new();
            let mut now_ms = 1_000;
            for gap_ms in gaps_ms {
                now_ms += gap_ms;
                times.push(now_ms);
                meter.on_event(Timestamp::from_nanos(now_ms * 1_000_000));
                let count = |since_ms: u64| times.iter().filter(|&&t| t > since_ms).count() as f64;
                let rate = meter.per_second(Timestamp::from_nanos(now_ms * 1_000_000));
                let bucket_ms = 1_000_u64.div_ceil(buckets as u64);
                let least = count((now_ms - 1_000) + bucket_ms);
                let most = count((now_ms - 1_000).saturating_sub(bucket_ms));
                prop_assert!(least - 1e-6 <= rate && rate <= most + 1e-6,
                    "{least} <= {rate} <= {most}");
            }
        }
    }
}

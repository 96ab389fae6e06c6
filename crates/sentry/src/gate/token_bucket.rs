//! Token bucket: a rate, with bursts up to the size of the bucket (002 §2.1, 000 §II).
//!
//! Kept as the generic cell rate algorithm (ITU-T I.371): one timestamp, the *theoretical
//! arrival time* `tat`, says everything. With `inc = 1/rate` the bucket holds
//!
//! ```text
//! tokens = min(burst, (now + burst * inc - tat) / inc)
//! ```
//!
//! requests, and taking one moves `tat` to `max(tat, now) + inc`: one compare-and-swap. A new
//! rate keeps the tokens. The unit is a whole request; a controller that counts 100 tokens a
//! request (000) divides by 100 before it sets the rate.
//!
//! What breaks it: a request that takes a token while another core sets the rate may be
//! judged by the old rate and the new bucket; the error is one request.

use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_control::Timestamp;

use crate::atomic::AtomicF64;
use crate::clamp::within;

/// `inc` of a rate of zero: no token, ever.
const NEVER: u64 = u64::MAX;

/// Longest `inc`: a rate of one request in about a day and a half. Keeps sums within range.
const INCREMENT_MAX_NS: f64 = (1_u64 << 47) as f64;

/// Largest bucket, in requests.
const BURST_MAX: f64 = 65_536.0;

/// A rate limit with bursts, for many threads.
///
/// ```
/// use std::time::Duration;
/// use tidegate_control::Timestamp;
/// use tidegate_sentry::gate::TokenBucket;
///
/// let start = Timestamp::ZERO;
/// let bucket = TokenBucket::new(start, 10.0, 2.0); // 10 a second, 2 at once
/// assert!(bucket.try_take(start) && bucket.try_take(start));
/// assert!(!bucket.try_take(start));
/// assert!(bucket.try_take(start + Duration::from_millis(100)));
/// ```
#[derive(Debug)]
pub struct TokenBucket {
    tat_ns: AtomicU64,
    increment_ns: AtomicU64,
    burst: AtomicF64,
    /// Tokens left when the rate became zero.
    frozen: AtomicF64,
}

impl TokenBucket {
    /// A full bucket.
    #[must_use]
    pub fn new(now: Timestamp, requests_per_second: f64, burst: f64) -> Self {
        let bucket = Self {
            tat_ns: AtomicU64::new(now.as_nanos()),
            increment_ns: AtomicU64::new(NEVER),
            burst: AtomicF64::new(clean_burst(burst)),
            frozen: AtomicF64::new(clean_burst(burst)),
        };
        bucket.set_rate(now, requests_per_second, burst);
        bucket
    }

    /// Takes a token if there is one.
    pub fn try_take(&self, now: Timestamp) -> bool {
        let increment = self.increment_ns.load(Ordering::Relaxed);
        if increment == NEVER {
            return false;
        }
        let horizon = now.as_nanos() + self.depth_ns(increment);
        let take = |tat: u64| {
            let next = tat.max(now.as_nanos()) + increment;
            (next <= horizon).then_some(next)
        };
        self.tat_ns
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take)
            .is_ok()
    }

    /// Tokens in the bucket, in requests.
    #[must_use]
    pub fn tokens(&self, now: Timestamp) -> f64 {
        let increment = self.increment_ns.load(Ordering::Relaxed);
        if increment == NEVER {
            return self.frozen.load();
        }
        let tat = self.tat_ns.load(Ordering::Relaxed).max(now.as_nanos());
        let room = (now.as_nanos() + self.depth_ns(increment)).saturating_sub(tat);
        room as f64 / increment as f64
    }

    /// Changes rate and size; the tokens stay, as far as they fit. What is not a positive number
    /// closes the bucket.
    pub fn set_rate(&self, now: Timestamp, requests_per_second: f64, burst: f64) {
        let burst = clean_burst(burst);
        let tokens = self.tokens(now).min(burst);
        self.burst.store(burst);
        self.frozen.store(tokens);
        let increment = increment_ns(requests_per_second);
        self.increment_ns.store(increment, Ordering::Relaxed);
        if increment != NEVER {
            let missing = ((burst - tokens) * increment as f64).round() as u64;
            self.tat_ns
                .store(now.as_nanos() + missing, Ordering::Relaxed);
        }
    }

    /// Time for one token to come, in seconds; none when the rate is zero.
    #[must_use]
    pub fn seconds_per_request(&self) -> Option<f64> {
        let increment = self.increment_ns.load(Ordering::Relaxed);
        (increment != NEVER).then(|| increment as f64 / 1e9)
    }

    fn depth_ns(&self, increment: u64) -> u64 {
        (self.burst.load() * increment as f64).round() as u64
    }
}

fn clean_burst(burst: f64) -> f64 {
    // A bucket that cannot hold one request would admit none.
    within(burst, 1.0, BURST_MAX)
}

fn increment_ns(requests_per_second: f64) -> u64 {
    if requests_per_second > 0.0 {
        (1e9 / requests_per_second).clamp(1.0, INCREMENT_MAX_NS) as u64
    } else {
        NEVER
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    fn at(seconds: f64) -> Timestamp {
        Timestamp::from_secs_f64(seconds)
    }

    fn drain(bucket: &TokenBucket, now: Timestamp) -> usize {
        (0..1000).take_while(|_| bucket.try_take(now)).count()
    }

    #[test]
    fn full_bucket_lets_its_burst_through_and_no_more() {
        let bucket = TokenBucket::new(at(0.0), 10.0, 5.0);
        assert_eq!(drain(&bucket, at(0.0)), 5);
        assert_eq!(drain(&bucket, at(0.35)), 3);
        assert_eq!(drain(&bucket, at(100.0)), 5);
    }

    #[test]
    fn new_rate_keeps_the_tokens() {
        let bucket = TokenBucket::new(at(0.0), 1.0, 4.0);
        assert!(bucket.try_take(at(0.0)));
        bucket.set_rate(at(0.0), 1000.0, 4.0);
        assert!((bucket.tokens(at(0.0)) - 3.0).abs() < 1e-6);
        bucket.set_rate(at(0.0), 0.0, 4.0);
        assert!(!bucket.try_take(at(50.0)));
        assert!((bucket.tokens(at(50.0)) - 3.0).abs() < 1e-6);
        bucket.set_rate(at(50.0), 2.0, 4.0);
        assert_eq!(drain(&bucket, at(50.0)), 3);
    }

    #[test]
    fn slow_rate_of_the_past_does_not_hold_up_a_fast_one() {
        let bucket = TokenBucket::new(at(0.0), 0.01, 1.0);
        assert!(bucket.try_take(at(0.0)));
        bucket.set_rate(at(0.0), 100.0, 1.0);
        assert!(bucket.try_take(at(0.011)));
    }

    #[test]
    fn what_is_no_rate_closes() {
        for rate in [0.0, -3.0, f64::NAN, f64::NEG_INFINITY] {
            assert!(!TokenBucket::new(at(0.0), rate, 3.0).try_take(at(1.0)));
        }
        assert!(TokenBucket::new(at(0.0), f64::INFINITY, f64::NAN).try_take(at(1.0)));
    }

    proptest! {
        /// Over any window `t` at most `burst + rate t` pass, whatever the arrivals.
        #[test]
        fn never_more_than_burst_plus_rate(
            rate in 0.1_f64..1000.0,
            burst in 1.0_f64..50.0,
            gaps_us in prop::collection::vec(0_u64..200_000, 1..300),
        ) {
            let bucket = TokenBucket::new(at(0.0), rate, burst);
            let mut now = at(0.0);
            let mut passed = 0.0;
            for gap in gaps_us {
                now += Duration::from_micros(gap);
                passed += f64::from(u8::from(bucket.try_take(now)));
                let allowed = burst + rate * now.as_secs_f64();
                prop_assert!(passed <= allowed * (1.0 + 1e-6) + 1e-6);
                prop_assert!(bucket.tokens(now) >= 0.0 && bucket.tokens(now) <= burst + 1e-6);
            }
        }
    }
}

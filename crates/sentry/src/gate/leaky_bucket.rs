//! Leaky bucket as a meter: does a request still belong to a guaranteed rate? (003 §2)
//!
//! The bucket leaks at the guaranteed rate; a conforming request pours one unit in. A request
//! for which there is no room does not conform and changes nothing, so that an excess never eats
//! up the guarantee of what comes after it.
//!
//! ```text
//! level(now) = max(0, level - rate * (now - last)),   conforms: level + 1 <= depth
//! ```
//!
//! Same arithmetic as the [`TokenBucket`] seen from the other side, hence built on
//! it; the difference is the meaning. The token bucket refuses, this one promises.

use tidegate_control::Timestamp;

use super::TokenBucket;
use crate::atomic::AtomicF64;

/// A guaranteed rate.
///
/// ```
/// use tidegate_control::Timestamp;
/// use tidegate_sentry::gate::LeakyBucket;
///
/// let guarantee = LeakyBucket::new(Timestamp::ZERO, 2.0, 1.0);
/// assert!(guarantee.conforms(Timestamp::ZERO));
/// assert!(!guarantee.conforms(Timestamp::ZERO));
/// assert!(guarantee.conforms(Timestamp::from_secs_f64(0.5)));
/// ```
#[derive(Debug)]
pub struct LeakyBucket {
    room: TokenBucket,
    depth: AtomicF64,
}

impl LeakyBucket {
    /// An empty bucket that leaks `requests_per_second` and holds `depth` requests.
    #[must_use]
    pub fn new(now: Timestamp, requests_per_second: f64, depth: f64) -> Self {
        Self {
            room: TokenBucket::new(now, requests_per_second, depth),
            depth: AtomicF64::new(depth),
        }
    }

    /// Changes the guarantee; what is in the bucket stays, as far as it fits.
    pub fn set_rate(&self, now: Timestamp, requests_per_second: f64, depth: f64) {
        self.room.set_rate(now, requests_per_second, depth);
        self.depth.store(depth);
    }

    /// Whether a request belongs to the guarantee; if so, it is poured in.
    pub fn conforms(&self, now: Timestamp) -> bool {
        self.room.try_take(now)
    }

    /// What is in the bucket, in requests.
    #[must_use]
    pub fn level(&self, now: Timestamp) -> f64 {
        (self.depth.load() - self.room.tokens(now)).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn excess_does_not_eat_up_the_guarantee() {
        // 10/s guaranteed, 100/s arrive: over 10 s a tenth of them conforms.
        let bucket = LeakyBucket::new(at(0), 10.0, 1.0);
        let conforming = (0..1000).filter(|&k| bucket.conforms(at(k * 10))).count();
        assert_eq!(conforming, 100);
    }

    #[test]
    fn leaks_to_empty_and_not_below() {
        let bucket = LeakyBucket::new(at(0), 1.0, 3.0);
        assert!(bucket.conforms(at(0)) && bucket.conforms(at(0)));
        assert!((bucket.level(at(0)) - 2.0).abs() < 1e-6);
        assert!((bucket.level(at(500)) - 1.5).abs() < 1e-6);
        assert!(bucket.level(at(1_000_000)).abs() < 1e-6);
    }
}

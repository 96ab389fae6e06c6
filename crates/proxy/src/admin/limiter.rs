//! Bounds how often a kind of line is written: a state that flaps must not fill the log.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Lines of one kind in a row, and the time after which there may be one more. Chosen: an operator
/// sees each of the first few, and at most six a minute after that.
const BURST: f64 = 5.0;
const REFILL: Duration = Duration::from_secs(10);

#[derive(Debug)]
struct Bucket {
    tokens: f64,
    at: Instant,
    suppressed: u64,
}

/// A token bucket per kind of line.
#[derive(Debug, Default)]
pub(super) struct Limiter(BTreeMap<&'static str, Bucket>);

impl Limiter {
    /// Whether a line of this kind may be written; if so, how many before it were not.
    pub(super) fn pass(&mut self, kind: &'static str, now: Instant) -> Option<u64> {
        let full = Bucket {
            tokens: BURST,
            at: now,
            suppressed: 0,
        };
        let bucket = self.0.entry(kind).or_insert(full);
        let refilled = (now - bucket.at).as_secs_f64() / REFILL.as_secs_f64();
        bucket.tokens = (bucket.tokens + refilled).min(BURST);
        bucket.at = now;
        if bucket.tokens < 1.0 {
            bucket.suppressed += 1;
            return None;
        }
        bucket.tokens -= 1.0;
        Some(std::mem::take(&mut bucket.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flapping_state_is_logged_a_few_times_and_then_rarely() {
        let mut limiter = Limiter::default();
        let start = Instant::now();
        let passed = |limiter: &mut Limiter, second: u64| {
            limiter.pass("overload", start + Duration::from_secs(second))
        };
        let lines = (0..600).filter_map(|second| passed(&mut limiter, second));
        let lines: Vec<_> = lines.collect();
        assert!((60..=66).contains(&lines.len()), "{}", lines.len());
        assert_eq!(lines[0], 0);
        assert_eq!(*lines.last().unwrap(), 9);
        assert_eq!(limiter.pass("other", start), Some(0), "kinds are apart");
    }
}

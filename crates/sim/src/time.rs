//! Between the calendar's nanoseconds and a model's seconds, in the inner loop.

use tidegate_control::Timestamp;

/// `to - from` in seconds, zero when `to` is earlier.
#[inline]
pub(crate) fn seconds_between(from: Timestamp, to: Timestamp) -> f64 {
    to.as_nanos().saturating_sub(from.as_nanos()) as f64 * 1e-9
}

/// `seconds` later, to the nearest nanosecond; what is not positive means at once.
#[inline]
pub(crate) fn after(time: Timestamp, seconds: f64) -> Timestamp {
    // `as` saturates, so that what never ends is at the end of time.
    let nanos = (seconds * 1e9 + 0.5) as u64;
    Timestamp::from_nanos(time.as_nanos().saturating_add(nanos))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_to_the_nearest_and_saturates() {
        let second = Timestamp::from_secs_f64(1.0);
        assert_eq!(after(second, 2.6e-9).as_nanos(), 1_000_000_003);
        assert_eq!(after(second, -1.0), second);
        assert_eq!(after(second, f64::NAN), second);
        assert_eq!(after(second, f64::INFINITY), Timestamp::MAX);
        assert_eq!(seconds_between(second, after(second, 0.25)), 0.25);
        assert_eq!(seconds_between(after(second, 1.0), second), 0.0);
    }
}

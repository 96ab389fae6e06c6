//! The one clock type of Tidegate.
//!
//! Pure code never reads a clock; a driver (the proxy, the simulator) constructs a
//! [`Timestamp`] from whatever it calls time and passes it in. The epoch is the driver's
//! choice, so a timestamp means something only next to another one of the same driver.

use std::ops::{Add, AddAssign, Sub};
use std::time::Duration;

/// Nanoseconds since an epoch that the driver chose. Wraps never: 2^64 ns are 584 years.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Timestamp(u64);

impl Timestamp {
    /// The driver's epoch.
    pub const ZERO: Self = Self(0);
    /// Later than anything a driver will ever pass in: "never" for a timer.
    pub const MAX: Self = Self(u64::MAX);

    /// The timestamp `nanos` nanoseconds after the driver's epoch.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// The timestamp `seconds` after the driver's epoch; negative or NaN gives the epoch.
    #[must_use]
    pub fn from_secs_f64(seconds: f64) -> Self {
        // `as` saturates and maps NaN to zero.
        Self((seconds * 1e9).round() as u64)
    }

    /// Nanoseconds since the driver's epoch.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Seconds since the driver's epoch.
    #[must_use]
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// Time from `earlier` to `self`, zero when `earlier` is in fact later: two cores may read
    /// the driver's clock in either order.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// `self + duration`, or [`Timestamp::MAX`].
    #[must_use]
    pub fn saturating_add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(saturating_nanos(duration)))
    }
}

fn saturating_nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Add<Duration> for Timestamp {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        self.saturating_add(duration)
    }
}

impl AddAssign<Duration> for Timestamp {
    fn add_assign(&mut self, duration: Duration) {
        *self = *self + duration;
    }
}

impl Sub for Timestamp {
    type Output = Duration;

    /// See [`Timestamp::since`].
    fn sub(self, earlier: Self) -> Duration {
        self.since(earlier)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates_instead_of_wrapping() {
        let late = Timestamp::from_nanos(u64::MAX - 1);
        assert_eq!(late + Duration::from_secs(1), Timestamp::MAX);
        assert_eq!(Timestamp::ZERO - late, Duration::ZERO);
        assert_eq!(Timestamp::from_secs_f64(f64::NAN), Timestamp::ZERO);
        assert_eq!(Timestamp::from_secs_f64(-3.0), Timestamp::ZERO);
    }

    #[test]
    fn seconds_round_trip() {
        let at = Timestamp::from_secs_f64(12.25);
        assert_eq!(at.as_nanos(), 12_250_000_000);
        assert_eq!(at.as_secs_f64(), 12.25);
    }
}

//! The proxy's clock: the only place of the data plane that reads one.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};
use tidegate_control::Timestamp;

/// Monotonic time since the proxy was made.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    epoch: Instant,
    /// The same moment, on the system's clock.
    epoch_ns: u64,
}

impl Clock {
    /// A clock that starts now. Its first timestamps are a second after the epoch, so that "before
    /// everything" and "now" are never the same.
    #[must_use]
    pub fn start() -> Self {
        let before = Duration::from_secs(1);
        let now = Instant::now();
        Self {
            epoch: now.checked_sub(before).unwrap_or(now),
            epoch_ns: monotonic_ns().saturating_sub(before.as_nanos() as u64),
        }
    }

    /// Now. Asked for several times with every request, and so by nanoseconds: an [`Instant`]
    /// counts seconds and nanoseconds apart, which makes a difference of two of them ten times the
    /// work.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        Timestamp::from_nanos(monotonic_ns().saturating_sub(self.epoch_ns))
    }

    /// The instant a timestamp stands for, to sleep until it.
    #[must_use]
    pub fn instant(&self, at: Timestamp) -> Instant {
        let since = at.since(Timestamp::ZERO);
        // Far in the future is as good as never: a day, after which sleepers look again.
        let day = self.epoch + Duration::from_secs(86_400) + self.epoch.elapsed();
        self.epoch.checked_add(since).map_or(day, |at| at.min(day))
    }

    /// The time of day of a timestamp in the past, by the system's clock as it is now.
    #[must_use]
    pub fn time_of_day(&self, at: Timestamp) -> SystemTime {
        let now = SystemTime::now();
        now.checked_sub(self.now().since(at)).unwrap_or(now)
    }
}

/// What the system's clock shows that nobody sets; the one that [`Instant`] goes by.
fn monotonic_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    // Neither is negative: it starts with the machine.
    (time.tv_sec as u64) * 1_000_000_000 + time.tv_nsec as u64
}

/// Seconds since 1970, as the tokens of others count them.
pub(crate) fn unix_seconds() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0.0, |since| since.as_secs_f64())
}

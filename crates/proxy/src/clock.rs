//! The proxy's clock: the only place of the data plane that reads one.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use tidegate_control::Timestamp;

/// Monotonic time since the proxy was made.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    epoch: Instant,
}

impl Clock {
    /// A clock that starts now. Its first timestamps are a second after the epoch, so that "before
    /// everything" and "now" are never the same.
    #[must_use]
    pub fn start() -> Self {
        let now = Instant::now();
        Self {
            epoch: now
                .checked_sub(std::time::Duration::from_secs(1))
                .unwrap_or(now),
        }
    }

    /// Now.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        Timestamp::ZERO + self.epoch.elapsed()
    }

    /// The instant a timestamp stands for, to sleep until it.
    #[must_use]
    pub fn instant(&self, at: Timestamp) -> Instant {
        let since = at.since(Timestamp::ZERO);
        // Far in the future is as good as never: a day, after which sleepers look again.
        let day = self.epoch + std::time::Duration::from_secs(86_400) + self.epoch.elapsed();
        self.epoch.checked_add(since).map_or(day, |at| at.min(day))
    }
}

/// Seconds since 1970, as the tokens of others count them.
pub(crate) fn unix_seconds() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0.0, |since| since.as_secs_f64())
}

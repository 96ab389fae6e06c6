//! Real time as a [`Timestamp`]: the one place where this crate reads the clock.

use tidegate_control::Timestamp;
use tokio::time::Instant;

/// A monotonic clock whose epoch is the moment it was started.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    epoch: Instant,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self {
            epoch: Instant::now(),
        }
    }

    pub(crate) fn now(self) -> Timestamp {
        Timestamp::ZERO + self.epoch.elapsed()
    }

    /// The instant to hand to a timer of the runtime.
    pub(crate) fn instant(self, at: Timestamp) -> Instant {
        self.epoch + (at - Timestamp::ZERO)
    }
}

//! The layer's clock: the only place of this crate that reads one.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_control::Timestamp;

/// First timestamp of a clock, so that "before everything" and "now" are never the same.
const TIMESTAMP_FIRST: Duration = Duration::from_secs(1);

/// Time since the layer was built, or as a simulation has it.
#[derive(Clone)]
pub(crate) enum Clock {
    System(Instant),
    Driven(Arc<dyn Fn() -> Duration + Send + Sync>),
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self::System(Instant::now())
    }

    pub(crate) fn driven(clock: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Self::Driven(Arc::new(clock))
    }

    pub(crate) fn now(&self) -> Timestamp {
        let since = match self {
            Self::System(epoch) => epoch.elapsed(),
            Self::Driven(clock) => clock(),
        };
        Timestamp::ZERO + TIMESTAMP_FIRST + since
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Clock({:?})", self.now())
    }
}

//! How much of the servers' work is still waited for.
//!
//! Clients that give up leave work behind that most servers finish all the same. A threshold that
//! looks at arrivals alone goes on filling such servers, and the crowd that comes back for another
//! try keeps it so after the crowd is gone. So the threshold gives away the share of the servers'
//! time that went into answers:
//!
//! ```text
//! useful = served / (served + abandoned + dropped)
//! ```
//!
//! and never nothing, or it would not find out that the servers are free again.

use std::sync::atomic::Ordering;

use crate::plan::Plan;

/// Fewer endings than this say nothing.
const ENDINGS_MIN: u64 = 5;

/// The least that is given away. Chosen: a twentieth leaves the rest of the servers to the backlog.
const USEFUL_MIN: f64 = 0.05;

/// Endings since the start, over all classes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Endings {
    served: u64,
    failed: u64,
}

impl Endings {
    pub(super) fn of(plan: &Plan) -> Self {
        let mut endings = Self::default();
        for class in &plan.classes {
            let counters = &class.counters;
            endings.served += counters.served.load(Ordering::Relaxed);
            endings.failed += counters.abandoned.load(Ordering::Relaxed);
            endings.failed += counters.dropped.load(Ordering::Relaxed);
        }
        endings
    }

    /// The share of useful endings since the last call.
    pub(super) fn useful_share(&mut self, plan: &Plan) -> f64 {
        let before = std::mem::replace(self, Self::of(plan));
        let served = self.served.saturating_sub(before.served);
        let failed = self.failed.saturating_sub(before.failed);
        match served + failed {
            all if all < ENDINGS_MIN => 1.0,
            all => (served as f64 / all as f64).max(USEFUL_MIN),
        }
    }
}

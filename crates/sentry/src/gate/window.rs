//! Dynamic window: an upper limit on the requests in the system (002 §2.1).
//!
//! The per-replica windows of the engine count what is in flight; this one, at the entrance,
//! counts what waits as well.

use std::sync::atomic::{AtomicU32, Ordering};

/// Admits while fewer than a limit are inside.
///
/// ```
/// use tidegate_sentry::gate::DynamicWindow;
///
/// let window = DynamicWindow::new(1);
/// assert!(window.try_enter());
/// assert!(!window.try_enter());
/// window.leave();
/// assert!(window.try_enter());
/// ```
#[derive(Debug)]
pub struct DynamicWindow {
    inside: AtomicU32,
    limit: AtomicU32,
}

impl DynamicWindow {
    /// An empty window.
    #[must_use]
    pub fn new(limit: u32) -> Self {
        Self {
            inside: AtomicU32::new(0),
            limit: AtomicU32::new(limit),
        }
    }

    /// Enters if there is room; every entry has its [`leave`](Self::leave).
    pub fn try_enter(&self) -> bool {
        let limit = self.limit();
        let enter = |inside: u32| (inside < limit).then(|| inside + 1);
        self.inside
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, enter)
            .is_ok()
    }

    /// Enters whether there is room or not, for a request that was inside before.
    pub fn force_enter(&self) {
        self.inside.fetch_add(1, Ordering::Relaxed);
    }

    /// A request that entered is gone.
    pub fn leave(&self) {
        let before = self.inside.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before > 0, "left without having entered");
    }

    /// Requests inside; more than the limit for a while after it was lowered.
    #[must_use]
    pub fn inside(&self) -> u32 {
        self.inside.load(Ordering::Relaxed)
    }

    /// The limit in force.
    #[must_use]
    pub fn limit(&self) -> u32 {
        self.limit.load(Ordering::Relaxed)
    }

    /// Changes the limit; no request inside is cancelled.
    pub fn set_limit(&self, limit: u32) {
        self.limit.store(limit, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lower_limit_waits_for_those_inside() {
        let window = DynamicWindow::new(3);
        assert!((0..3).all(|_| window.try_enter()));
        window.set_limit(1);
        window.leave();
        window.leave();
        assert!(!window.try_enter());
        window.leave();
        assert!(window.try_enter());
        assert_eq!(window.inside(), 1);
    }
}

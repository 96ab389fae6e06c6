//! What the edge did not let pass.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::fault::Fault;

/// Requests that the edge answered itself, of one application. Written seldom, so cores share them.
#[derive(Debug, Default)]
pub(crate) struct EdgeCounters {
    forbidden: AtomicU64,
    redirected: AtomicU64,
    maintenance: AtomicU64,
    quota: AtomicU64,
    response_too_large: AtomicU64,
}

/// The counts of [`EdgeCounters`], by the word in metrics.
pub(crate) type EdgeTotals = [(&'static str, u64); 5];

impl EdgeCounters {
    /// Counts a request that the edge answered; false if the fault is none of the edge.
    pub(crate) fn count(&self, fault: &Fault) -> bool {
        let counter = match fault {
            Fault::Forbidden => &self.forbidden,
            Fault::Redirect(_) => &self.redirected,
            Fault::Maintenance(_) => &self.maintenance,
            Fault::Quota(_) => &self.quota,
            Fault::ResponseTooLarge => &self.response_too_large,
            _ => return false,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// The counts, by the word in metrics.
    pub(crate) fn totals(&self) -> EdgeTotals {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        [
            ("forbidden", read(&self.forbidden)),
            ("redirected", read(&self.redirected)),
            ("maintenance", read(&self.maintenance)),
            ("quota", read(&self.quota)),
            ("response-too-large", read(&self.response_too_large)),
        ]
    }
}

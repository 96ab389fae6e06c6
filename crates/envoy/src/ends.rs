//! Ends of requests whose begin came by `ext_authz` or `ratelimit`: the access log brings them.
//!
//! The engine measures a request from its admission to its end, and counts it in its window in
//! between. `ext_authz` and `ratelimit` tell the begin only. While Envoy streams its access log
//! here, slots are kept by `x-request-id` until the entry comes. Without a log no slot is kept:
//! nothing is measured then, and only rates that the configuration names are enforced.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tidegate_sentry::Ending;
use tidegate_tower::Slot;

/// A request without an entry after this time is forgotten: its entry was lost. Chosen: longer
/// than ordinary timeouts of a route.
const FORGET_AFTER: Duration = Duration::from_secs(60);

/// Slots that wait for an entry of the access log.
#[derive(Debug, Default)]
pub(crate) struct Ends {
    logs: AtomicUsize,
    slots: Mutex<HashMap<String, (Instant, Slot)>>,
}

impl Ends {
    /// A stream of an access log opened; dropping the guard closes it.
    pub(crate) fn opened(&self) -> OpenLog<'_> {
        self.logs.fetch_add(1, Ordering::Relaxed);
        OpenLog(self)
    }

    pub(crate) fn logs(&self) -> usize {
        self.logs.load(Ordering::Relaxed)
    }

    pub(crate) fn waiting(&self) -> usize {
        self.slots.lock().len()
    }

    /// Keeps a slot until the request's entry comes, if it can come.
    pub(crate) fn keep(&self, request_id: Option<&str>, slot: Slot) {
        let Some(id) = request_id.filter(|_| self.logs() > 0) else {
            slot.end(Ending::Ignored);
            return;
        };
        let before = self
            .slots
            .lock()
            .insert(id.to_owned(), (Instant::now(), slot));
        // A client that chooses the same id twice gets no second measurement.
        if let Some((_, slot)) = before {
            slot.end(Ending::Ignored);
        }
    }

    /// An entry of the access log says how the request ended.
    pub(crate) fn end(&self, request_id: &str, ending: Ending) {
        let kept = self.slots.lock().remove(request_id);
        if let Some((_, slot)) = kept {
            slot.end(ending);
        }
    }

    /// Forgets requests whose entry was lost.
    pub(crate) fn sweep(&self, now: Instant) {
        let old = |since: &Instant| now.saturating_duration_since(*since) > FORGET_AFTER;
        self.forget(|since| old(since));
    }

    fn forget(&self, which: impl Fn(&Instant) -> bool) {
        let mut slots = self.slots.lock();
        let forgotten: Vec<_> = slots.extract_if(|_, (since, _)| which(since)).collect();
        drop(slots);
        for (_, (_, slot)) in forgotten {
            slot.end(Ending::Ignored);
        }
    }
}

/// A stream of an access log. When the last one ends no more entries come.
pub(crate) struct OpenLog<'a>(&'a Ends);

impl Drop for OpenLog<'_> {
    fn drop(&mut self) {
        if self.0.logs.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.0.forget(|_| true);
        }
    }
}

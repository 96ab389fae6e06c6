//! What became of requests that waited, as data that the driver takes.
//!
//! A call that may free a slot returns [`Resolutions`]. The driver takes them after the call, while
//! the engine holds no lock: it may call the engine again in between, and tell a waiter in
//! whichever way it likes. Nothing is collected before it is taken. Each step decides about one
//! waiter with what is free at that moment, so the queue itself is the list, and none of this
//! allocates.
//!
//! What is not taken is not lost: its request waits on, and the next caller takes it, at the latest
//! the one of the next tick.
//!
//! Decision: docs/decisions/0270-resolutions-as-data.md.

use std::sync::atomic::Ordering;

use tidegate_control::Timestamp;

use super::Sentry;
use crate::api::Resolution;

/// Requests whose wait is over, one by one, each with its waiter.
///
/// Asked again after its end it looks again: a slot may have come free meanwhile. A driver that
/// gives back slots while it takes resolutions therefore leaves none behind.
#[must_use = "requests that wait get their slots only when this is taken to its end"]
#[derive(Debug)]
pub struct Resolutions<'a, T> {
    /// None where the call cannot have ended a wait.
    sentry: Option<&'a Sentry<T>>,
    now: Timestamp,
}

impl<T> Iterator for Resolutions<'_, T> {
    type Item = (T, Resolution);

    fn next(&mut self) -> Option<Self::Item> {
        let sentry = self.sentry?;
        if sentry.parked.load(Ordering::SeqCst) == 0 {
            return None;
        }
        sentry.resolve_one(self.now)
    }
}

impl<T> Sentry<T> {
    /// Resolves waiters as long as one can go and the caller takes them.
    pub(super) fn resolutions(&self, now: Timestamp) -> Resolutions<'_, T> {
        self.release_if_unjudged();
        self.departed_slots.release(now, &self.gate);
        Resolutions {
            sentry: Some(self),
            now,
        }
    }

    /// Of a call that has changed nothing.
    pub(crate) fn no_resolutions(&self, now: Timestamp) -> Resolutions<'_, T> {
        Resolutions { sentry: None, now }
    }
}

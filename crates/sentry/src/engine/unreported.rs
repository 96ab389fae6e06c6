//! Permits that were dropped instead of ended.
//!
//! A driver gives a permit back in [`Sentry::on_end`]. If it forgets to, for example because a
//! task panics, the slot would be lost for good. So a permit that is dropped comes here, and the
//! next [`Sentry::handle_timeout`] ends it as [`Ending::Unreported`]: dropping has no clock, and
//! the engine reads none. Nothing is learnt from such a request, because its end is not known.

use std::sync::atomic::{AtomicBool, Ordering};

use tidegate_control::Timestamp;

use super::{Lock, Sentry};
use crate::api::{Ending, Permit};

/// Permits that were dropped and have still to be ended.
#[derive(Debug, Default)]
pub(crate) struct Unreported {
    /// Whether there are any, for looking at without the lock.
    any: AtomicBool,
    permits: Lock<Vec<Permit>>,
}

impl Unreported {
    pub(crate) fn add(&self, permit: Permit) {
        self.permits.lock().push(permit);
        self.any.store(true, Ordering::Release);
    }

    fn take(&self) -> Vec<Permit> {
        if self.any.swap(false, Ordering::Acquire) {
            std::mem::take(&mut self.permits.lock())
        } else {
            Vec::new()
        }
    }
}

impl<T> Sentry<T> {
    /// Permits that were dropped since the last call.
    pub(crate) fn take_unreported(&self) -> Vec<Permit> {
        self.unreported.take()
    }

    pub(super) fn end_unreported(&self, now: Timestamp) {
        for permit in self.take_unreported() {
            self.end(now, permit, Ending::Unreported);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{Arrival, Resolution, Verdict};

    /// One slot, which is taken; the next request waits.
    fn full() -> (Sentry<u32>, Permit) {
        let text = "mode = 'static'\nstatic.window = 100\nlimits.slots = 1";
        let config = tidegate_config::parse("test.toml", text).expect("the text is valid");
        let sentry = Sentry::new(&config, 1, Timestamp::ZERO, 1).expect("it is consistent");
        let arrive = |id| sentry.on_arrival(Timestamp::ZERO, &Arrival::default(), || id);
        let Verdict::Admit(permit) = arrive(1) else {
            panic!("there is room");
        };
        assert!(matches!(arrive(2), Verdict::Wait(_)));
        (sentry, permit)
    }

    fn next_tick(sentry: &Sentry<u32>) -> Vec<(u32, Resolution)> {
        let due = sentry.poll_timeout();
        let resolutions = sentry.handle_timeout(due, &mut |_: &crate::Event| {});
        resolutions.collect()
    }

    #[test]
    fn dropped_permit_frees_its_slot_and_is_counted() {
        let (sentry, permit) = full();
        drop(permit);
        let resolved = next_tick(&sentry);
        assert!(
            matches!(resolved[..], [(2, Resolution::Admit(_))]),
            "{resolved:?}"
        );
        drop(resolved);
        next_tick(&sentry);
        let status = sentry.status(sentry.poll_timeout());
        assert_eq!(
            (status.replicas[0].in_flight, status.classes[0].unreported),
            (0, 2)
        );
        assert_eq!(status.classes[0].served, 0);
        assert!(sentry.is_empty());
    }

    #[test]
    fn ended_permit_is_not_counted_as_dropped() {
        let (sentry, permit) = full();
        let resolved = sentry
            .on_end(Timestamp::ZERO, permit, Ending::Served)
            .next();
        let Some((_, Resolution::Admit(permit))) = resolved else {
            panic!("the slot goes to the one that waits");
        };
        let none = sentry.on_end(Timestamp::ZERO, permit, Ending::Served);
        assert_eq!(none.count(), 0);
        next_tick(&sentry);
        let class = &sentry.status(sentry.poll_timeout()).classes[0];
        assert_eq!((class.served, class.unreported), (2, 0));
    }

    #[test]
    fn permit_may_outlive_its_engine() {
        let (sentry, permit) = full();
        drop(sentry);
        drop(permit);
    }
}

//! Applications that get requests of another one, as a worker finds them, and what is counted of
//! them.
//!
//! Decision: docs/decisions/0170-canary-and-mirror-as-applications.md.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use tidegate_control::Timestamp;

use super::canary::CanaryOf;
use super::mirror::MirrorOf;
use crate::config::Companion;
use crate::worker::LocalApplication;

/// For how long no request is given to a canary that could not be reached. Chosen: short against
/// a deployment, long against the time a connection may take to fail.
const AWAY: Duration = Duration::from_secs(1);

/// The applications that get requests of one application.
#[derive(Debug, Default)]
pub(crate) struct Companions {
    pub(crate) canary: Option<CanaryOf>,
    pub(crate) mirror: Option<MirrorOf>,
}

impl Companions {
    /// The companions of every application that has some, by its name.
    pub(crate) fn by_name(list: &[Rc<LocalApplication>]) -> HashMap<String, Self> {
        let mut all: HashMap<String, Self> = HashMap::new();
        for application in list {
            let settings = application.settings();
            let Some(companion) = &settings.config.companion else {
                continue;
            };
            let of = all.entry(companion.of().to_owned()).or_default();
            let application = Rc::clone(application);
            match companion {
                Companion::Canary(canary) => of.canary = Some(CanaryOf::new(canary, application)),
                Companion::Mirror(mirror) => of.mirror = Some(MirrorOf::new(mirror, application)),
            }
        }
        all
    }
}

/// A share of a sequence, as evenly as can be: multiples of the golden ratio spread over the unit
/// interval, and those below `share` are in.
#[derive(Debug)]
pub(super) struct Spread {
    bound: u64,
    next: std::cell::Cell<u64>,
}

/// The golden ratio, as a fraction of 2^64.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

impl Spread {
    pub(super) fn new(share: f64) -> Self {
        // A share of 1 is the largest number: a cast saturates.
        let bound = (share * u64::MAX as f64) as u64;
        Self {
            bound,
            next: std::cell::Cell::new(0),
        }
    }

    /// Whether the next one is in.
    pub(super) fn next(&self) -> bool {
        self.next.update(|next| next.wrapping_add(GOLDEN));
        self.has(self.next.get())
    }

    /// Whether one with this hash is in. A larger share has all that a smaller one has.
    pub(super) fn has(&self, hash: u64) -> bool {
        hash <= self.bound && self.bound > 0
    }
}

/// What became of requests that another application gave to this one. Written by all cores.
#[derive(Debug, Default)]
pub(crate) struct CompanionCounters {
    sent: AtomicU64,
    shed: AtomicU64,
    unreachable: AtomicU64,
    away: AtomicU64,
    failed: AtomicU64,
    busy: AtomicU64,
    body: AtomicU64,
    /// Copies under way.
    copies: AtomicU32,
    /// Until when a canary that could not be reached gets nothing, in nanoseconds.
    away_until_ns: AtomicU64,
}

/// What became of a request that was meant for a companion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Handed {
    /// It was sent there.
    Sent,
    /// The companion's engine shed it.
    Shed,
    /// No replica of the canary could be connected to.
    Unreachable,
    /// The canary could not be reached a moment ago.
    Away,
    /// The mirror did not answer it in full.
    Failed,
    /// As many copies were under way as there may be.
    Busy,
    /// Its body is too large for a copy, or was not read ahead in whole.
    Body,
}

impl CompanionCounters {
    fn of(&self, what: Handed) -> &AtomicU64 {
        match what {
            Handed::Sent => &self.sent,
            Handed::Shed => &self.shed,
            Handed::Unreachable => &self.unreachable,
            Handed::Away => &self.away,
            Handed::Failed => &self.failed,
            Handed::Busy => &self.busy,
            Handed::Body => &self.body,
        }
    }

    pub(crate) fn count(&self, what: Handed) {
        self.of(what).fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn total(&self, what: Handed) -> u64 {
        self.of(what).load(Ordering::Relaxed)
    }

    /// The counts by the word in metrics: of a canary, or of a mirror.
    pub(crate) fn totals(&self, companion: &Companion) -> Vec<(&'static str, u64)> {
        let words: &[_] = match companion {
            Companion::Canary(_) => &[
                ("sent", Handed::Sent),
                ("returned-shed", Handed::Shed),
                ("returned-unreachable", Handed::Unreachable),
                ("returned-away", Handed::Away),
            ],
            Companion::Mirror(_) => &[
                ("answered", Handed::Sent),
                ("shed", Handed::Shed),
                ("failed", Handed::Failed),
                ("skipped-busy", Handed::Busy),
                ("skipped-body", Handed::Body),
            ],
        };
        let total = |&(word, what): &(_, _)| (word, self.total(what));
        words.iter().map(total).collect()
    }

    /// A place for one more copy, if there are fewer than `most`.
    pub(super) fn take_copy(&self, most: u32) -> bool {
        let one_more = |copies| (copies < most).then_some(copies + 1);
        let order = Ordering::Relaxed;
        self.copies.fetch_update(order, order, one_more).is_ok()
    }

    pub(super) fn give_copy_back(&self) {
        self.copies.fetch_sub(1, Ordering::Relaxed);
    }

    /// Copies under way.
    pub(crate) fn copies(&self) -> u32 {
        self.copies.load(Ordering::Relaxed)
    }

    /// It could not be reached.
    pub(crate) fn set_away(&self, now: Timestamp) {
        let until = (now + AWAY).as_nanos();
        self.away_until_ns.store(until, Ordering::Relaxed);
    }

    /// Whether it could not be reached a moment ago.
    pub(crate) fn is_away(&self, now: Timestamp) -> bool {
        now.as_nanos() < self.away_until_ns.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_is_even_from_the_first_requests_on() {
        for share in [0.01, 0.05, 0.25, 0.5, 0.9, 1.0] {
            let spread = Spread::new(share);
            let mut inside = 0;
            for n in 1..=10_000_u32 {
                inside += u32::from(spread.next());
                let off = f64::from(inside) - share * f64::from(n);
                assert!(off.abs() < 3.0, "{share}: {inside} of {n}");
            }
        }
        let none = Spread::new(0.0);
        assert!((0..1000).all(|_| !none.next()));
    }

    #[test]
    fn copies_are_bounded() {
        let counters = CompanionCounters::default();
        assert!(counters.take_copy(2) && counters.take_copy(2));
        assert!(!counters.take_copy(2));
        counters.give_copy_back();
        assert!(counters.take_copy(2));
    }
}

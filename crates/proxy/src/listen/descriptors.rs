//! File descriptors, of which a process has only this many.
//!
//! When they are used up nothing can be opened any more: no connection to a replica, no admin
//! call, no file. So the last of them are not for clients. The system gives out the lowest number
//! that is free; a connection whose number is among the last shows that the others are taken, and
//! nothing has to be counted.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::process::{Resource, getrlimit};
use serde_json::json;
use tidegate_control::Timestamp;

use crate::operator_log::{Level, log};

/// Share of the descriptors that client connections leave alone: one in sixteen.
const KEPT_SHARE: u64 = 16;

/// At least as many, for the admin listener, health checks and files. Chosen: what a probe, a
/// scraper, a dashboard and a few replicas need at a time.
const KEPT_MIN: u64 = 24;

/// Time between two log lines about the same shortage.
const LINE_INTERVAL_NS: u64 = 10_000_000_000;

/// How many descriptors clients may have, and whether they ran out.
#[derive(Debug)]
pub(crate) struct Descriptors {
    limit: u64,
    /// First number that is not for clients.
    kept_from: u64,
    short: AtomicBool,
    next_line_ns: AtomicU64,
}

impl Descriptors {
    /// As the process is limited now.
    pub(crate) fn of_process() -> Self {
        Self::new(getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX))
    }

    fn new(limit: u64) -> Self {
        let kept = (limit / KEPT_SHARE).max(KEPT_MIN).min(limit / 2);
        Self {
            limit,
            kept_from: limit - kept,
            short: AtomicBool::new(false),
            next_line_ns: AtomicU64::new(0),
        }
    }

    /// Whether a client may keep a connection with this number.
    pub(crate) fn allow(&self, number: u64) -> bool {
        let allowed = number < self.kept_from;
        if allowed && self.short.load(Ordering::Relaxed) {
            self.short.store(false, Ordering::Relaxed);
        }
        allowed
    }

    /// There were none left for a client.
    pub(crate) fn ran_out(&self, now: Timestamp) {
        self.short.store(true, Ordering::Relaxed);
        let next = self.next_line_ns.load(Ordering::Relaxed);
        let later = now.as_nanos().saturating_add(LINE_INTERVAL_NS);
        let order = Ordering::Relaxed;
        let mine = |due: u64| self.next_line_ns.compare_exchange(due, later, order, order);
        if now.as_nanos() >= next && mine(next).is_ok() {
            log(Level::Warn, self.text(), &json!({ "limit": self.limit }));
        }
    }

    /// What is wrong and what to do, while connections are refused for it.
    pub(crate) fn shortage(&self) -> Option<String> {
        self.short.load(Ordering::Relaxed).then(|| self.text())
    }

    fn text(&self) -> String {
        format!(
            "all {} file descriptors but those kept for the admin listener are in use, so that \
             new client connections are closed; raise the limit (`ulimit -n`, LimitNOFILE= of \
             systemd), or lower `limits.connections`",
            self.limit
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_descriptors_are_not_for_clients() {
        let descriptors = Descriptors::new(1024);
        assert!(descriptors.allow(959));
        assert!(!descriptors.allow(960));
        assert!(Descriptors::new(64).allow(39));
        assert!(!Descriptors::new(64).allow(40));
        assert!(Descriptors::new(u64::MAX).allow(1 << 40));
        assert!(
            Descriptors::new(20).allow(9),
            "some are for clients in any case"
        );
    }

    #[test]
    fn shortage_is_over_with_the_next_connection_that_is_kept() {
        let descriptors = Descriptors::new(64);
        assert_eq!(descriptors.shortage(), None);
        descriptors.ran_out(Timestamp::ZERO);
        assert!(
            descriptors
                .shortage()
                .is_some_and(|text| text.contains("ulimit -n"))
        );
        assert!(descriptors.allow(10));
        assert_eq!(descriptors.shortage(), None);
    }
}

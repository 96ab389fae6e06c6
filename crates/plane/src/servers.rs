//! The servers of one application: ordered, starting, ready, never ready.
//!
//! A server that was ordered counts, because ordering it again while it starts is how overshoot
//! comes about. A server that is not ready long after others were does not count any more. How long
//! servers take to start is learned; predictions look at least that far ahead. A number that was
//! set from elsewhere is noticed, and left alone for a time.

use std::collections::VecDeque;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_control::Timestamp;

use crate::config::ApplicationConfig;

/// Weight of a new start in the learned time.
const START_WEIGHT: f64 = 0.25;
/// A start is expected to take the mean and this many mean deviations.
const START_DEVIATIONS: f64 = 2.0;
/// A server is stuck after this many times what others took.
const STUCK_OF_START: f64 = 3.0;

/// How long servers take from the order until they are ready.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct StartTime {
    mean_seconds: f64,
    deviation_seconds: f64,
    /// Starts that were seen.
    pub count: u64,
}

impl StartTime {
    fn new(configured: Duration) -> Self {
        Self {
            mean_seconds: configured.as_secs_f64(),
            deviation_seconds: 0.0,
            count: 0,
        }
    }

    fn learn(&mut self, took: Duration) {
        let took = took.as_secs_f64();
        if self.count == 0 {
            self.mean_seconds = took;
        }
        self.count += 1;
        let off = took - self.mean_seconds;
        self.mean_seconds += START_WEIGHT * off;
        self.deviation_seconds += START_WEIGHT * (off.abs() - self.deviation_seconds);
    }

    /// The time that a start should be given.
    #[must_use]
    pub fn expected(&self) -> Duration {
        let seconds = self.mean_seconds + START_DEVIATIONS * self.deviation_seconds;
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
    }
}

/// A number of servers that was set from elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ForeignChange {
    /// When it was noticed.
    pub at: Timestamp,
    /// What we had ordered.
    pub ordered: u32,
    /// What was found.
    pub found: u32,
}

/// The servers of one application, as ordered and as seen.
#[derive(Debug, Clone)]
pub struct Servers {
    desired: u32,
    ready: u32,
    seen: bool,
    /// When each server that is not ready was ordered, the oldest first.
    pending: VecDeque<Timestamp>,
    start: StartTime,
    foreign: Option<ForeignChange>,
    /// When the last server got ready.
    joined: Option<Timestamp>,
}

impl Servers {
    /// None yet.
    #[must_use]
    pub fn new(config: &ApplicationConfig) -> Self {
        Self {
            desired: 0,
            ready: 0,
            seen: false,
            pending: VecDeque::new(),
            start: StartTime::new(config.start_time.0),
            foreign: None,
            joined: None,
        }
    }

    /// With the start times of a snapshot.
    pub(crate) fn resume(&mut self, start: StartTime) {
        self.start = start;
    }

    /// What is there: `desired` is the number that is set, `ready` serve. Returns a change that we
    /// did not order.
    pub fn on_seen(&mut self, now: Timestamp, desired: u32, ready: u32) -> Option<ForeignChange> {
        let foreign = (self.seen && desired != self.desired).then_some(ForeignChange {
            at: now,
            ordered: self.desired,
            found: desired,
        });
        if foreign.is_some() {
            self.foreign = foreign;
        }
        if self.seen && ready > self.ready {
            self.joined = Some(now);
        }
        for _ in self.ready..ready {
            if let Some(ordered) = self.take_pending(now)
                && self.seen
            {
                self.start.learn(now - ordered);
            }
        }
        (self.seen, self.desired, self.ready) = (true, desired, ready);
        self.match_pending(now);
        foreign
    }

    /// The order that a server that got ready now most likely belongs to: the one whose age is
    /// nearest to what others took. Older ones may never get ready.
    fn take_pending(&mut self, now: Timestamp) -> Option<Timestamp> {
        if self.start.count == 0 {
            return self.pending.pop_front();
        }
        let expected = self.start.expected();
        let distance = |index: &usize| (now - self.pending[*index]).abs_diff(expected);
        let nearest = (0..self.pending.len()).min_by_key(distance)?;
        self.pending.remove(nearest)
    }

    /// What is there, where somebody else decides: every change is expected.
    pub fn on_followed(&mut self, now: Timestamp, desired: u32, ready: u32) {
        self.on_applied(now, desired);
        self.on_seen(now, desired, ready);
        self.foreign = None;
    }

    /// An order was carried out.
    pub fn on_applied(&mut self, now: Timestamp, desired: u32) {
        self.desired = desired;
        self.seen = true;
        self.match_pending(now);
    }

    /// As many pending servers as are missing; the youngest are given back first.
    fn match_pending(&mut self, now: Timestamp) {
        let missing = self.desired.saturating_sub(self.ready) as usize;
        self.pending.truncate(missing);
        self.pending.resize(missing, now);
    }

    /// The number that is set.
    #[must_use]
    pub fn desired(&self) -> u32 {
        self.desired
    }

    /// Servers that serve.
    #[must_use]
    pub fn ready(&self) -> u32 {
        self.ready
    }

    /// Whether anything was seen at all.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.seen
    }

    /// Servers that should have been ready long ago.
    #[must_use]
    pub fn stuck(&self, now: Timestamp, config: &ApplicationConfig) -> u32 {
        let of_others = self.start.expected().mul_f64(STUCK_OF_START);
        let limit = match self.start.count {
            0 => config.start_limit.0,
            _ => config
                .start_limit
                .0
                .min(of_others.max(Duration::from_secs(1))),
        };
        let stuck = self.pending.iter().filter(|&&at| now - at > limit);
        stuck.count() as u32
    }

    /// Servers that start and may still get ready.
    #[must_use]
    pub fn starting(&self, now: Timestamp, config: &ApplicationConfig) -> u32 {
        self.pending.len() as u32 - self.stuck(now, config)
    }

    /// Servers that serve or soon will.
    #[must_use]
    pub fn counted(&self, now: Timestamp, config: &ApplicationConfig) -> u32 {
        self.ready.min(self.desired) + self.starting(now, config)
    }

    /// When the last of the servers got ready; what was shed before is not their fault.
    #[must_use]
    pub fn joined(&self) -> Option<Timestamp> {
        self.joined
    }

    /// How long a start takes.
    #[must_use]
    pub fn start(&self) -> StartTime {
        self.start
    }

    /// A foreign change that is still respected.
    #[must_use]
    pub fn foreign(&self, now: Timestamp, hold: Duration) -> Option<ForeignChange> {
        self.foreign.filter(|change| now - change.at < hold)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_nanos(seconds * 1_000_000_000)
    }

    fn config() -> ApplicationConfig {
        ApplicationConfig::named("a")
    }

    #[test]
    fn start_times_are_learned_from_order_to_readiness() {
        let mut servers = Servers::new(&config());
        servers.on_seen(at(0), 2, 2);
        servers.on_applied(at(10), 4);
        assert_eq!(servers.starting(at(10), &config()), 2);
        assert_eq!(servers.counted(at(10), &config()), 4);
        servers.on_seen(at(18), 4, 3);
        servers.on_seen(at(18), 4, 4);
        assert_eq!(servers.start().expected(), Duration::from_secs(8));
        assert_eq!(servers.starting(at(18), &config()), 0);
    }

    #[test]
    fn server_that_never_gets_ready_stops_counting() {
        let mut servers = Servers::new(&config());
        servers.on_seen(at(0), 1, 1);
        servers.on_applied(at(0), 2);
        servers.on_seen(at(5), 2, 2);
        servers.on_applied(at(100), 3);
        assert_eq!(servers.stuck(at(110), &config()), 0);
        assert_eq!(servers.stuck(at(116), &config()), 1);
        assert_eq!(servers.counted(at(116), &config()), 2);
    }

    #[test]
    fn stuck_server_does_not_spoil_what_was_learned_about_starts() {
        let mut servers = Servers::new(&config());
        servers.on_seen(at(0), 1, 1);
        servers.on_applied(at(0), 2);
        servers.on_seen(at(5), 2, 2);
        servers.on_applied(at(10), 3);
        servers.on_applied(at(200), 4);
        servers.on_seen(at(205), 4, 3);
        assert_eq!(servers.start().expected(), Duration::from_secs(5));
        assert_eq!(servers.stuck(at(205), &config()), 1);
    }

    #[test]
    fn number_set_from_elsewhere_is_noticed_and_respected_for_a_time() {
        let mut servers = Servers::new(&config());
        let hold = Duration::from_secs(60);
        assert_eq!(servers.on_seen(at(0), 2, 2), None);
        servers.on_applied(at(1), 4);
        assert_eq!(servers.on_seen(at(2), 4, 2), None);
        let change = servers.on_seen(at(3), 7, 2).unwrap();
        assert_eq!((change.ordered, change.found), (4, 7));
        assert!(servers.foreign(at(62), hold).is_some());
        assert!(servers.foreign(at(63), hold).is_none());
    }
}

//! One client's permission to send: a state machine over [`Strategy`].
//!
//! The interval strategy (001 §3.2) divides a client's time into windows and allows one item in
//! each; a client that sent nothing in this window sends at once. With a changing interval `i` the
//! client is at
//!
//! ```text
//! f(t) = phase + ∫ dt/i(t)
//! ```
//!
//! windows, and a new one begins whenever `f` passes a whole number. So clients stay as far apart
//! as their phases are, whatever the controller does, and the rate is `1/i`. (Windows that end
//! `i` after their beginning would bunch all clients together while the interval is short, and
//! keep them so; windows counted from the epoch would jump with every change.)

use std::time::Duration;

use tidegate_control::Timestamp;

use crate::strategy::{ClientId, Strategy};

/// A failed item waits this long where nothing else says when to try again.
const RETRY_OPEN: Duration = Duration::from_secs(1);

/// Shorter intervals are no limit.
const SHORTEST_S: f64 = 1e-6;

/// Whether an item may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permit {
    /// Now.
    Now,
    /// Not before that time, unless the strategy changes.
    NotBefore(Timestamp),
}

/// Decides when its client may send.
#[derive(Debug, Clone)]
pub struct Pacer {
    id: ClientId,
    strategy: Strategy,
    /// The part of the window that had passed at `seen`.
    progress: f64,
    seen: Timestamp,
    sent: bool,
}

impl Pacer {
    /// A client that was told nothing yet may send.
    #[must_use]
    pub fn new(id: ClientId) -> Self {
        Self {
            id,
            strategy: Strategy::Open,
            progress: id.phase(),
            seen: Timestamp::ZERO,
            sent: false,
        }
    }

    /// Whose permission it is.
    #[must_use]
    pub fn id(&self) -> ClientId {
        self.id
    }

    /// What is in force.
    #[must_use]
    pub fn strategy(&self) -> &Strategy {
        &self.strategy
    }

    /// Puts another strategy in force.
    pub fn apply(&mut self, now: Timestamp, strategy: Strategy) {
        self.advance(now);
        self.strategy = strategy;
    }

    /// Whether an item may go now.
    pub fn permit(&mut self, now: Timestamp) -> Permit {
        self.advance(now);
        match &self.strategy {
            Strategy::Open => Permit::Now,
            Strategy::Interval(interval) => {
                if self.sent {
                    Permit::NotBefore(self.next_window(*interval))
                } else {
                    Permit::Now
                }
            }
            Strategy::Group(groups) => match groups.next_turn(self.id, now) {
                Some(turn) if turn <= now => Permit::Now,
                Some(turn) => Permit::NotBefore(turn),
                None => Permit::NotBefore(Timestamp::MAX),
            },
        }
    }

    /// An item went out, or failed to: both use the window, so that after an outage clients do
    /// not send more than before (001 §3.3.4: try again when the next local interval starts).
    pub fn on_sent(&mut self, now: Timestamp) {
        self.advance(now);
        self.sent = true;
    }

    /// When an item that failed may be tried again.
    pub fn retry_at(&mut self, now: Timestamp) -> Timestamp {
        self.advance(now);
        match &self.strategy {
            Strategy::Open => now + RETRY_OPEN,
            Strategy::Interval(interval) => self.next_window(*interval),
            Strategy::Group(groups) => {
                let later = now + groups.slot;
                groups.next_turn(self.id, later).unwrap_or(Timestamp::MAX)
            }
        }
    }

    /// Brings the window up to `now`.
    fn advance(&mut self, now: Timestamp) {
        if let Strategy::Interval(interval) = self.strategy {
            let elapsed = now.since(self.seen).as_secs_f64();
            // A zero interval is no limit: a window has always passed.
            self.progress += elapsed / interval.as_secs_f64().max(SHORTEST_S);
            if self.progress >= 1.0 {
                self.progress = self.progress.fract();
                self.sent = false;
            }
        }
        self.seen = self.seen.max(now);
    }

    /// When the next window begins, rounded up so that it has begun then.
    fn next_window(&self, interval: Duration) -> Timestamp {
        let left = (1.0 - self.progress) * interval.as_secs_f64().max(SHORTEST_S);
        self.seen + Duration::from_secs_f64(left) + Duration::from_nanos(1000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::strategy::Groups;

    fn at(seconds: f64) -> Timestamp {
        Timestamp::from_secs_f64(seconds)
    }

    fn every(seconds: u64) -> Strategy {
        Strategy::Interval(Duration::from_secs(seconds))
    }

    /// Sends whenever allowed; how often that was.
    fn sent_until(pacer: &mut Pacer, from: f64, to: f64) -> u32 {
        let mut count = 0;
        let mut now = from;
        while now < to {
            if pacer.permit(at(now)) == Permit::Now {
                pacer.on_sent(at(now));
                count += 1;
            }
            now += 0.25;
        }
        count
    }

    #[test]
    fn one_item_per_interval_and_the_first_at_once() {
        let mut pacer = Pacer::new(ClientId(5));
        pacer.apply(at(100.0), every(10));
        assert_eq!(pacer.permit(at(100.0)), Permit::Now);
        pacer.on_sent(at(100.0));
        let Permit::NotBefore(next) = pacer.permit(at(100.0)) else {
            panic!("a second item in the same window")
        };
        assert!(next > at(100.0) && next <= at(110.0));
        assert_eq!(pacer.permit(next), Permit::Now);
        assert_eq!(sent_until(&mut pacer, 120.0, 220.0), 11);
    }

    #[test]
    fn interval_that_keeps_changing_does_not_let_more_through() {
        let mut pacer = Pacer::new(ClientId(5));
        pacer.apply(at(0.0), every(20));
        let mut count = 0;
        for second in 0_u32..400 {
            pacer.apply(at(f64::from(second)), every(20 + u64::from(second % 3)));
            count += sent_until(&mut pacer, f64::from(second), f64::from(second) + 1.0);
        }
        assert!((18..=22).contains(&count), "{count} in 20 intervals");
    }

    #[test]
    fn clients_stay_apart_when_the_interval_grows_from_nothing() {
        let next = |id| {
            let mut pacer = Pacer::new(ClientId(id));
            for tenth in 0_u32..1000 {
                let now = at(f64::from(tenth) / 10.0);
                pacer.apply(
                    now,
                    Strategy::Interval(Duration::from_millis(u64::from(tenth) * 10)),
                );
                pacer.on_sent(now);
            }
            match pacer.permit(at(100.0)) {
                Permit::Now => 100.0,
                Permit::NotBefore(time) => time.as_secs_f64(),
            }
        };
        let late = (0..1000).filter(|&id| next(id) > 105.0).count();
        assert!(
            (400..600).contains(&late),
            "{late} of 1000 in the second half"
        );
    }

    #[test]
    fn clients_have_different_windows() {
        let next = |id| {
            let mut pacer = Pacer::new(ClientId(id));
            pacer.apply(at(1000.0), every(80));
            pacer.on_sent(at(1000.0));
            pacer.permit(at(1000.0))
        };
        assert_ne!(next(1), next(2));
    }

    #[test]
    fn failed_item_waits_for_the_next_local_interval() {
        let mut pacer = Pacer::new(ClientId(9));
        pacer.apply(at(50.0), every(10));
        pacer.on_sent(at(50.0));
        let retry = pacer.retry_at(at(50.0));
        assert_eq!(pacer.permit(at(50.0)), Permit::NotBefore(retry));
    }

    #[test]
    fn group_sends_in_its_turn_only() {
        let mut pacer = Pacer::new(ClientId(3));
        pacer.apply(
            at(0.0),
            Strategy::Group(Groups::one_of(4, Duration::from_secs(1))),
        );
        let active =
            (0..400).filter(|&k| pacer.permit(at(10.0 + 0.1 * f64::from(k))) == Permit::Now);
        let active = active.count();
        assert!((98..=102).contains(&active), "{active} of 400");
    }

    #[test]
    fn opening_the_channel_lets_everything_through() {
        let mut pacer = Pacer::new(ClientId(3));
        pacer.apply(at(0.0), every(1000));
        pacer.on_sent(at(0.0));
        pacer.apply(at(1.0), Strategy::Open);
        assert_eq!(pacer.permit(at(1.0)), Permit::Now);
    }
}

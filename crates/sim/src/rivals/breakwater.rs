//! Breakwater (Cho et al., OSDI 2020): credits by queueing delay.
//!
//! A client sends only with a credit. Once per round trip the pool of credits `C` follows the
//! queueing delay `d` of the server against its target `d_t`,
//!
//! ```text
//! C <- C + A                                       while d < d_t,   A = max(α clients, 1)
//! C <- C max(1 - β (d - d_t) / d_t, 1/2)           otherwise
//! ```
//!
//! with α = 0.1 % and β = 2 %; what waits longer than `2 d_t` in the server is dropped. The paper
//! and the authors' code have a round trip of an eighth of `d_t` and `d_t` at 40 % of the objective
//! (10, 80 and 200 µs); that is scaled to the target here.
//!
//! Here one proxy holds all credits, so nothing is issued to clients without demand and nothing has
//! to be overcommitted. A request without a credit is refused at once, as clients there do after
//! 10 µs. Fewer than a thousand clients are assumed: `A` is one.

use std::time::Duration;

use tidegate_control::Timestamp;

use super::server_queue::{AtGate, ServerRule};

/// Credits by queueing delay.
#[derive(Debug)]
pub struct Breakwater {
    slots: usize,
    target: Duration,
    credits: f64,
    delay: Duration,
    next: Timestamp,
}

impl Breakwater {
    const INCREASE: f64 = 1.0;
    const DECREASE: f64 = 0.02;
    const CUT_MOST: f64 = 0.5;
    const ROUND_TRIP_OF_TARGET: f64 = 0.125;
    const DROP_OF_TARGET: f64 = 2.0;
    /// `d_t` over the objective.
    const TARGET_OF_OBJECTIVE: f64 = 0.4;

    /// For an objective of the response time, and this many slots.
    #[must_use]
    pub fn new(objective: Duration, slots: usize) -> Self {
        Self {
            slots,
            target: objective.mul_f64(Self::TARGET_OF_OBJECTIVE),
            credits: slots as f64,
            delay: Duration::ZERO,
            next: Timestamp::ZERO,
        }
    }

    fn update(&mut self) {
        let excess = self.delay.as_secs_f64() / self.target.as_secs_f64() - 1.0;
        if excess < 0.0 {
            self.credits += Self::INCREASE;
        } else {
            self.credits *= (1.0 - Self::DECREASE * excess).max(Self::CUT_MOST);
        }
        self.credits = self.credits.max(self.slots as f64);
    }

    /// All round trips since the last time; a pause of more than a second is one.
    fn catch_up(&mut self, now: Timestamp) {
        let round_trip = self.target.mul_f64(Self::ROUND_TRIP_OF_TARGET);
        if now.since(self.next) > Duration::from_secs(1) {
            self.next = now;
        }
        while self.next <= now {
            self.update();
            self.next += round_trip;
        }
    }
}

impl ServerRule for Breakwater {
    fn admits(&mut self, request: &AtGate) -> bool {
        if request.pending < self.slots {
            self.delay = Duration::ZERO;
        }
        self.catch_up(request.now);
        (request.pending as f64) < self.credits
    }

    fn slots(&self) -> usize {
        self.slots
    }

    fn drops(&self, waited: Duration) -> bool {
        waited > self.target.mul_f64(Self::DROP_OF_TARGET)
    }

    fn on_start(&mut self, now: Timestamp, waited: Duration) {
        self.delay = waited;
        self.catch_up(now);
    }

    fn level(&self) -> f64 {
        self.credits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(breakwater: &mut Breakwater, from_ms: u64, to_ms: u64, waited_ms: u64) {
        for ms in from_ms..to_ms {
            let now = Timestamp::from_nanos(ms * 1_000_000);
            breakwater.on_start(now, Duration::from_millis(waited_ms));
        }
    }

    #[test]
    fn credits_grow_by_one_per_round_trip_and_fall_by_the_excess_of_the_delay() {
        // A target delay of 80 ms, a round trip of 10 ms.
        let mut breakwater = Breakwater::new(Duration::from_millis(200), 8);
        run(&mut breakwater, 0, 100, 20);
        assert!(
            (17.0..=19.0).contains(&breakwater.level()),
            "{breakwater:?}"
        );
        run(&mut breakwater, 100, 1000, 20);
        let before = breakwater.level();
        // Twice the target delay: 2 % less per round trip.
        run(&mut breakwater, 1000, 1010, 160);
        assert!((breakwater.level() / before - 0.98).abs() < 0.001);
        // However long the delay, no more than half of them.
        let before = breakwater.level();
        run(&mut breakwater, 1010, 1020, 80_000);
        assert_eq!(breakwater.level(), before / 2.0);
        assert!(breakwater.drops(Duration::from_millis(161)));
        assert!(!breakwater.drops(Duration::from_millis(160)));
    }

    #[test]
    fn request_without_a_credit_is_refused() {
        let mut breakwater = Breakwater::new(Duration::from_millis(200), 8);
        let at_gate = |pending| AtGate {
            now: Timestamp::ZERO,
            class: 0,
            draw: 0.5,
            pending,
        };
        assert!(breakwater.admits(&at_gate(8)));
        assert!(!breakwater.admits(&at_gate(10)));
    }
}

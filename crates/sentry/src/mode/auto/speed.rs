//! How fast a replica is against the time its profile was begun.
//!
//! At one and the same full window throughput changes only with the speed, so
//!
//! ```text
//! speed = r / r1
//! ```
//!
//! with the throughput `r1` at speed 1. What a replica does for some seconds is a bound where its
//! window is not full. Before it ever was, `r1` is not below that: a service that did 80 requests
//! per second and does 20 with its window full has become slower. Later the speed is not below it:
//! a service that does more than it could has become faster.
//!
//! What breaks it: a mix of requests that changes for good. Throughput is the judge then
//! ([`super::window`]).

use super::tick_counts::TickCounts;
use super::tuning::Tuning;
use crate::counts::Counts;

/// How fast a replica is against the time its profile was begun.
#[derive(Debug)]
pub(crate) struct Speed {
    now: f64,
    /// Throughput at speed 1 with the present window full, once it is well known.
    unit_rate: Option<f64>,
    /// Some window was full for long enough.
    measured: bool,
    done: TickCounts,
    /// What was done for some seconds until now, per second.
    lasting: f64,
    /// The most that was done for some seconds before that, per second.
    done_most: f64,
}

impl Speed {
    pub(crate) fn new() -> Self {
        Self {
            now: 1.0,
            unit_rate: None,
            measured: false,
            done: TickCounts::new(Tuning::SPEED_PERIOD.ticks()),
            lasting: 0.0,
            done_most: 0.0,
        }
    }

    pub(crate) fn now(&self) -> f64 {
        self.now
    }

    /// Takes what was done in a tick, window full or not.
    pub(crate) fn on_done(&mut self, done: Counts) {
        self.done.push(done);
        if !self.done.is_full() {
            return;
        }
        self.lasting = self.done.total().rate_at_least(Tuning::SPEED_Z.get());
        match self.unit_rate {
            Some(unit_rate) => self.now = self.now.max(self.lasting / unit_rate),
            None if !self.measured => self.done_most = self.done_most.max(self.lasting),
            None => {}
        }
    }

    /// Takes the throughput with the window full, once it is well known.
    pub(crate) fn on_rate(&mut self, rate: f64) {
        self.measured = true;
        let unit_rate = (rate / self.now).max(self.done_most);
        self.now = rate.max(self.lasting) / *self.unit_rate.get_or_insert(unit_rate);
    }

    /// Throughput at speed 1 with the window full, where at present it is `rate`.
    pub(crate) fn unit_rate(&self, rate: f64) -> f64 {
        let unit_rate = self.unit_rate.unwrap_or(rate / self.now);
        unit_rate.max(self.done_most)
    }

    /// With another window throughput says nothing about the speed, until it is known again.
    pub(crate) fn on_new_window(&mut self) {
        self.unit_rate = None;
    }

    /// What was done before was done by another service.
    pub(crate) fn forget_done(&mut self) {
        self.done_most = 0.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_the_throughput_over_that_at_first() {
        let mut speed = Speed::new();
        speed.on_rate(100.0);
        speed.on_rate(50.0);
        assert_eq!(speed.now(), 0.5);
        speed.on_new_window();
        assert_eq!(speed.unit_rate(40.0), 80.0);
        speed.on_rate(40.0);
        assert_eq!(speed.now(), 0.5);
    }

    fn do_for_a_while(speed: &mut Speed, per_tick: f64) {
        (0..Tuning::SPEED_PERIOD.ticks()).for_each(|_| speed.on_done(Counts::of(per_tick, 0.1)));
    }

    #[test]
    fn what_was_done_before_the_window_was_full_counts() {
        let mut speed = Speed::new();
        do_for_a_while(&mut speed, 300.0);
        // 9000 in 3 s, less two deviations.
        let least = 3000.0 * (1.0 - 2.0 / 9000_f64.sqrt());
        assert!((speed.unit_rate(500.0) - least).abs() < 1.0);
        do_for_a_while(&mut speed, 50.0);
        speed.on_rate(500.0);
        assert!((speed.now() - 500.0 / least).abs() < 1e-6);
    }

    #[test]
    fn replica_that_does_more_than_it_could_is_faster() {
        let mut speed = Speed::new();
        speed.on_rate(1000.0);
        speed.on_rate(250.0);
        assert_eq!(speed.now(), 0.25);
        do_for_a_while(&mut speed, 20.0);
        assert_eq!(speed.now(), 0.25, "it could do that before");
        do_for_a_while(&mut speed, 80.0);
        assert!((0.7..0.8).contains(&speed.now()), "{}", speed.now());
        assert_eq!(speed.unit_rate(800.0), 1000.0);
    }
}

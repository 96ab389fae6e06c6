//! Protego (Cho et al., NSDI 2023): credits by what they add to the throughput.
//!
//! Where requests wait for locks, neither CPU nor queueing delay tells how much a server can do.
//! The rule looks at throughput alone: the load may grow for as long as a growth of it brings
//! throughput. With credits `C` and throughput `X` of two neighbouring intervals the efficiency is
//!
//! ```text
//! e = ((X' - X) / X) / ((C' - C) / C)
//! ```
//!
//! Above a threshold the change of the credits was worth it: a rise goes on, and a fall is turned
//! round. Below it a rise is turned round, and a fall goes on. A request that waits for longer than
//! the objective leaves is aborted (active synchronization queue management).
//!
//! The rule is that of the paper. Its constants are for microseconds and not taken over: an
//! interval of four targets here, steps of a tenth, a threshold of a quarter.

use std::time::Duration;

use tidegate_control::Timestamp;
use tidegate_sentry::Ending;

use super::server_queue::{AtGate, Ended, ServerRule};

/// Credits by marginal throughput.
#[derive(Debug)]
pub struct Protego {
    objective: Duration,
    credits: f64,
    /// Credits of the interval before, and answers per second in it.
    before: Option<(f64, f64)>,
    rises: bool,
    done: u32,
    /// Some request found no credit, so that throughput is that of the credits.
    binding: bool,
    since: Timestamp,
}

impl Protego {
    const STEP: f64 = 1.1;
    const WORTH: f64 = 0.25;
    const INTERVAL_TARGETS: u32 = 4;
    const ABORT_OF_TARGET: f64 = 0.8;

    /// For an objective of the response time, and this many credits at first.
    #[must_use]
    pub fn new(objective: Duration, credits: usize) -> Self {
        Self {
            objective,
            credits: credits as f64,
            before: None,
            rises: true,
            done: 0,
            binding: false,
            since: Timestamp::ZERO,
        }
    }

    fn tick(&mut self, now: Timestamp) {
        let seconds = now.since(self.since).as_secs_f64();
        if seconds < (self.objective * Self::INTERVAL_TARGETS).as_secs_f64() {
            return;
        }
        let rate = f64::from(self.done) / seconds;
        if self.binding {
            self.on_interval(rate);
        } else {
            self.before = None;
        }
        (self.since, self.done, self.binding) = (now, 0, false);
    }

    fn on_interval(&mut self, rate: f64) {
        if let Some((credits, before)) = self.before {
            let growth = (self.credits - credits) / credits;
            let gain = (rate - before) / before.max(f64::MIN_POSITIVE);
            self.rises = gain / growth > Self::WORTH;
        }
        self.before = Some((self.credits, rate));
        let factor = if self.rises {
            Self::STEP
        } else {
            1.0 / Self::STEP
        };
        self.credits = (self.credits * factor).max(1.0);
    }
}

impl ServerRule for Protego {
    fn admits(&mut self, request: &AtGate) -> bool {
        self.tick(request.now);
        let has_credit = (request.pending as f64) < self.credits;
        self.binding |= !has_credit;
        has_credit
    }

    /// What has a credit is in the server, where the locks are.
    fn slots(&self) -> usize {
        self.credits.ceil() as usize
    }

    fn drops(&self, waited: Duration) -> bool {
        waited > self.objective.mul_f64(Self::ABORT_OF_TARGET)
    }

    fn on_end(&mut self, ended: &Ended) {
        self.done += u32::from(ended.ending == Ending::Served);
        self.tick(ended.now);
    }

    fn level(&self) -> f64 {
        self.credits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Credits after this many intervals in front of a server of this throughput.
    fn settle(protego: &mut Protego, intervals: usize, throughput: impl Fn(f64) -> f64) -> f64 {
        for _ in 0..intervals {
            protego.on_interval(throughput(protego.credits));
        }
        protego.level()
    }

    #[test]
    fn credits_rise_while_they_bring_throughput_and_stop_where_a_lock_is_full() {
        let mut protego = Protego::new(Duration::from_millis(100), 4);
        // A lock that is held for 10 ms: 32 requests keep it busy, more bring nothing.
        let credits = settle(&mut protego, 200, |credits| 100.0 * credits.min(32.0));
        assert!((26.0..=40.0).contains(&credits), "{credits}");
    }

    #[test]
    fn credits_fall_where_more_of_them_cost_throughput() {
        let mut protego = Protego::new(Duration::from_millis(100), 100);
        let thrashing = |credits: f64| 100.0 * credits.min(16.0) / (1.0 + (credits / 64.0).powi(2));
        let credits = settle(&mut protego, 200, thrashing);
        assert!((12.0..=24.0).contains(&credits), "{credits}");
    }
}

//! Envoy's admission control filter: refusing by chance, by the success rate of the last while.
//!
//! With `n` requests in the sampling window, `s` of them successful, a request is refused with the
//! probability
//!
//! ```text
//! P = ((n - s / threshold) / (n + 1)) ^ (1 / aggression)
//! ```
//!
//! but no more than 80 %. Defaults of the filter: a window of 30 s, a threshold of 95 %, an
//! aggression of 1. It is client-side throttling of Google's SRE book. A success is an answer that
//! is no server error; as a route has a timeout, an answer after the timeout is none here.

use std::collections::VecDeque;
use std::time::Duration;

use tidegate_control::Timestamp;
use tidegate_sentry::Ending;

use super::server_queue::{AtGate, Ended, ServerRule};

/// Refusing by chance, by the success rate.
#[derive(Debug)]
pub struct EnvoyAdmission {
    timeout_s: f64,
    /// Seconds with their requests and successes.
    window: VecDeque<(u64, f64, f64)>,
    requests: f64,
    successes: f64,
}

impl EnvoyAdmission {
    const WINDOW_SECONDS: u64 = 30;
    const THRESHOLD: f64 = 0.95;
    const AGGRESSION: f64 = 1.0;
    const PROBABILITY_MAX: f64 = 0.8;

    /// With the timeout of the route.
    #[must_use]
    pub fn new(timeout: Duration) -> Self {
        Self {
            timeout_s: timeout.as_secs_f64(),
            window: VecDeque::new(),
            requests: 0.0,
            successes: 0.0,
        }
    }

    fn probability(&self) -> f64 {
        let failed = self.requests - self.successes / Self::THRESHOLD;
        let share = (failed / (self.requests + 1.0)).max(0.0);
        share
            .powf(1.0 / Self::AGGRESSION)
            .min(Self::PROBABILITY_MAX)
    }

    fn forget(&mut self, now: Timestamp) {
        let second = now.as_nanos() / 1_000_000_000;
        while let Some(&(oldest, requests, successes)) = self.window.front() {
            if oldest + Self::WINDOW_SECONDS > second {
                return;
            }
            self.window.pop_front();
            self.requests -= requests;
            self.successes -= successes;
        }
    }

    fn record(&mut self, now: Timestamp, success: bool) {
        self.forget(now);
        let second = now.as_nanos() / 1_000_000_000;
        if self
            .window
            .back()
            .is_none_or(|(newest, ..)| *newest < second)
        {
            self.window.push_back((second, 0.0, 0.0));
        }
        let success = f64::from(u8::from(success));
        if let Some((_, requests, successes)) = self.window.back_mut() {
            *requests += 1.0;
            *successes += success;
        }
        self.requests += 1.0;
        self.successes += success;
    }
}

impl ServerRule for EnvoyAdmission {
    fn admits(&mut self, request: &AtGate) -> bool {
        self.forget(request.now);
        request.draw >= self.probability()
    }

    /// The filter keeps no queue.
    fn slots(&self) -> usize {
        usize::MAX
    }

    fn on_end(&mut self, ended: &Ended) {
        let in_time = ended.response_s <= self.timeout_s;
        match ended.ending {
            Ending::Served => self.record(ended.now, in_time),
            Ending::Dropped => self.record(ended.now, false),
            // A client that leaves after the timeout would have had a 504 before.
            _ if !in_time => self.record(ended.now, false),
            _ => {}
        }
    }

    fn level(&self) -> f64 {
        self.probability()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(filter: &mut EnvoyAdmission, at: u64, served: u32, late: u32) {
        for index in 0..served + late {
            filter.on_end(&Ended {
                now: Timestamp::from_nanos(at * 1_000_000_000),
                response_s: if index < served { 0.1 } else { 2.0 },
                service_s: 0.1,
                in_flight: 1.0,
                ending: Ending::Served,
            });
        }
    }

    #[test]
    fn probability_is_that_of_the_documentation() {
        let mut filter = EnvoyAdmission::new(Duration::from_secs(1));
        second(&mut filter, 0, 95, 5);
        assert_eq!(filter.level(), 0.0, "at the threshold nothing is refused");
        second(&mut filter, 1, 0, 100);
        // 200 requests, 95 successes: (200 - 100) / 201.
        assert!((filter.level() - 100.0 / 201.0).abs() < 1e-12);
        second(&mut filter, 2, 0, 10_000);
        assert_eq!(filter.level(), 0.8);
    }

    #[test]
    fn failures_are_forgotten_after_the_window() {
        let mut filter = EnvoyAdmission::new(Duration::from_secs(1));
        second(&mut filter, 0, 0, 100);
        assert!(filter.level() > 0.7);
        second(&mut filter, 31, 10, 0);
        assert_eq!(filter.level(), 0.0);
    }
}

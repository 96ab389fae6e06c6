//! DAGOR (Zhou et al., SoCC 2018), WeChat's overload control: a level of importance below which
//! all are refused.
//!
//! A request has a business priority (its class here) and one of 128 user priorities (chance here,
//! a hash of the user that changes every hour there). Once per second or 2000 requests, whichever
//! is sooner, the server is overloaded if requests waited for more than 20 ms on average, with
//! requests that time out after 500 ms. With `N` requests that arrived and `N_adm` that were
//! admitted, it wants
//!
//! ```text
//! N_exp = (1 - α) N_adm      when overloaded,     α = 5 %
//! N_exp = N_adm + β N        otherwise,           β = 1 %
//! ```
//!
//! requests in the next window, and moves the level so that those above it were as many in the
//! last. The threshold is scaled to the target here: 4 % of it. That a server tells its level to
//! the ones upstream, which then do not even send, is left out: there is one proxy.

use std::time::Duration;

use tidegate_control::Timestamp;

use super::levels::{Histogram, level_of};
use super::server_queue::{AtGate, ServerRule};

/// A level of importance below which all are refused.
#[derive(Debug)]
pub struct Dagor {
    slots: usize,
    waiting_s: f64,
    /// Levels that are admitted.
    admitted_levels: usize,
    arrived: Histogram,
    admitted: u64,
    waits: f64,
    started: u64,
    ends: Timestamp,
}

impl Dagor {
    const LESS: f64 = 0.05;
    const MORE: f64 = 0.01;
    const WINDOW: Duration = Duration::from_secs(1);
    const WINDOW_REQUESTS: u64 = 2000;
    /// 20 ms of 500 ms.
    const WAITING_OF_TARGET: f64 = 0.04;

    /// For a target of the response time, and this many slots.
    #[must_use]
    pub fn new(target: Duration, slots: usize) -> Self {
        Self {
            slots,
            waiting_s: target.as_secs_f64() * Self::WAITING_OF_TARGET,
            admitted_levels: usize::MAX,
            arrived: Histogram::default(),
            admitted: 0,
            waits: 0.0,
            started: 0,
            ends: Timestamp::ZERO + Self::WINDOW,
        }
    }

    fn end_window(&mut self, now: Timestamp) {
        let overloaded = self.started > 0 && self.waits / self.started as f64 > self.waiting_s;
        let admitted = self.admitted as f64;
        let wanted = if overloaded {
            (1.0 - Self::LESS) * admitted
        } else {
            admitted + Self::MORE * self.arrived.total as f64
        };
        if overloaded || self.admitted_levels != usize::MAX {
            // The most important level is never refused.
            self.admitted_levels = self.arrived.levels_within(wanted).max(1);
        }
        self.arrived = Histogram::default();
        (self.admitted, self.waits, self.started) = (0, 0.0, 0);
        self.ends = now + Self::WINDOW;
    }
}

impl ServerRule for Dagor {
    fn admits(&mut self, request: &AtGate) -> bool {
        if request.now >= self.ends || self.arrived.total >= Self::WINDOW_REQUESTS {
            self.end_window(request.now);
        }
        let level = level_of(request.class, request.draw);
        self.arrived.count(level);
        let admits = level < self.admitted_levels;
        self.admitted += u64::from(admits);
        admits
    }

    fn slots(&self) -> usize {
        self.slots
    }

    fn on_start(&mut self, _: Timestamp, waited: Duration) {
        self.waits += waited.as_secs_f64();
        self.started += 1;
    }

    fn level(&self) -> f64 {
        self.admitted_levels.min(u32::MAX as usize) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One window of 1000 requests, half of them of each class; how many were admitted of each.
    fn window(dagor: &mut Dagor, second: u64, waited: Duration) -> [u32; 2] {
        let mut admitted = [0; 2];
        for index in 0..1000_u64 {
            let request = AtGate {
                now: Timestamp::from_nanos(second * 1_000_000_000 + index * 1_000_000),
                class: (index % 2) as u16,
                draw: (index / 2) as f64 / 500.0,
                pending: 0,
            };
            if dagor.admits(&request) {
                admitted[usize::from(request.class)] += 1;
                dagor.on_start(request.now, waited);
            }
        }
        admitted
    }

    #[test]
    fn overload_sheds_a_twentieth_per_window_of_the_least_important_and_gives_it_back_slowly() {
        let mut dagor = Dagor::new(Duration::from_millis(500), 4);
        let long = Duration::from_millis(30);
        assert_eq!(window(&mut dagor, 0, long), [500, 500]);
        let second = window(&mut dagor, 1, long);
        assert_eq!(second[0], 500, "the important are all admitted");
        assert!((430..=450).contains(&second[1]), "{second:?}");
        for at in 2..8 {
            window(&mut dagor, at, long);
        }
        let worst = window(&mut dagor, 8, Duration::ZERO);
        assert!(worst[0] == 500 && worst[1] < 250, "{worst:?}");
        let back = window(&mut dagor, 9, Duration::ZERO);
        assert!(
            back[1] >= worst[1] && back[1] <= worst[1] + 12,
            "{worst:?} {back:?}"
        );
    }

    #[test]
    fn wait_below_the_threshold_refuses_nobody() {
        let mut dagor = Dagor::new(Duration::from_millis(500), 4);
        for at in 0..5 {
            assert_eq!(
                window(&mut dagor, at, Duration::from_millis(19)),
                [500, 500]
            );
        }
    }
}

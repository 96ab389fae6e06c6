//! How many requests may be sent twice.
//!
//! Retries multiply load exactly when there is too much of it. A budget bounds what they add: every
//! request earns a share of a retry, time earns a few more so that a quiet service can retry at
//! all, and what is not spent fades with a time constant of ten seconds. Steadily, retries are
//! therefore at most `budget` times the requests plus `floor` a second, and a burst finds at most
//! ten seconds' worth saved up.

use std::cell::{Cell, RefCell, RefMut};

use tidegate_control::Timestamp;

use crate::config::Retry;

const FADING_S: f64 = 10.0;

/// One worker's budget. Workers see like traffic, so each has its own part of the floor.
#[derive(Debug, Default)]
pub(crate) struct Budget {
    /// Requests since the store was last looked at: all that a request costs is to be counted.
    sent: Cell<u32>,
    store: RefCell<Store>,
}

#[derive(Debug, Default)]
pub(crate) struct Store {
    tokens: f64,
    seen: Option<Timestamp>,
}

impl Budget {
    /// A request was sent.
    pub(crate) fn earn(&self) {
        self.sent.update(|sent| sent.saturating_add(1));
    }

    /// Whether a request was sent since the store was last looked at.
    pub(crate) fn is_used(&self) -> bool {
        self.sent.get() > 0
    }

    /// Takes a retry out, if there is one.
    pub(crate) fn spend(&self, now: Timestamp, rules: &Retry, workers: usize) -> bool {
        let mut store = self.settle(now, rules, workers);
        let enough = store.tokens >= 1.0;
        if enough {
            store.tokens -= 1.0;
        }
        enough
    }

    /// Lets what is saved fade towards what the floor alone would save up, and adds what was
    /// earned since. To be called often: what was earned counts as earned now.
    pub(crate) fn settle(
        &self,
        now: Timestamp,
        rules: &Retry,
        workers: usize,
    ) -> RefMut<'_, Store> {
        let mut store = self.store.borrow_mut();
        let floor = *rules.floor / workers.max(1) as f64 * FADING_S;
        let kept = match store.seen {
            None => 0.0,
            Some(seen) => (-now.since(seen).as_secs_f64() / FADING_S).exp(),
        };
        let earned = f64::from(self.sent.take()) * *rules.budget;
        store.seen = Some(now);
        store.tokens = floor + (store.tokens - floor) * kept + earned;
        store
    }
}

#[cfg(test)]
mod tests {
    use tidegate_config::{Rate, Share};

    use super::*;

    const RULES: Retry = Retry {
        attempts: 1,
        budget: Share(0.1),
        floor: Rate(1.0),
    };

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_nanos(millis * 1_000_000)
    }

    /// Retries granted when every one of the requests, one a millisecond, wants one.
    fn storm(budget: &Budget, rules: &Retry, from: u64, requests: u64) -> u64 {
        let granted = (from..from + requests).filter(|&millis| {
            budget.earn();
            budget.spend(at(millis), rules, 1)
        });
        granted.count() as u64
    }

    #[test]
    fn retries_are_a_share_of_the_traffic() {
        let retries = storm(&Budget::default(), &RULES, 0, 10_000);
        assert!((1000..=1020).contains(&retries), "{retries}");
    }

    #[test]
    fn a_quiet_night_saves_up_no_more_than_a_few() {
        let budget = Budget::default();
        assert!(
            budget.spend(at(0), &RULES, 4),
            "the first request may be retried"
        );
        storm(&budget, &RULES, 0, 1000);
        let morning = 8 * 3_600_000;
        let retries = storm(&budget, &RULES, morning, 100);
        assert!((10..=21).contains(&retries), "{retries}");
    }

    #[test]
    fn traffic_without_failures_saves_ten_seconds_worth() {
        let budget = Budget::default();
        for millis in 0..60_000 {
            budget.earn();
            if millis % 50 == 0 {
                drop(budget.settle(at(millis), &RULES, 1));
            }
        }
        let burst = (0..2000)
            .filter(|_| budget.spend(at(60_000), &RULES, 1))
            .count();
        assert!((990..=1020).contains(&burst), "{burst}");
    }

    #[test]
    fn nothing_is_earned_by_nothing() {
        let none = Retry {
            budget: Share(0.0),
            floor: Rate(0.0),
            ..RULES
        };
        assert_eq!(storm(&Budget::default(), &none, 0, 1000), 0);
    }
}

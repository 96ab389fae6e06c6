//! Which requests are looked at, and what becomes of them.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use tidegate_control::Timestamp;

use super::Outcome;
use crate::worker::LocalApplication;

/// Requests per second and thread that are looked at. Chosen: enough for shares of a percent within
/// a minute, and few enough not to be noticed.
const SAMPLES_PER_SECOND: f64 = 100.0;

/// One request in at most this many.
const EVERY_MAX: f64 = 1024.0;

/// How long requests are counted before the sampling follows their rate.
const PERIOD: Duration = Duration::from_secs(1);

/// Chooses requests, on one worker thread. The gaps are random, so that no rhythm of the requests
/// can meet or miss them.
#[derive(Debug)]
pub(crate) struct Sampler {
    /// Requests until the next one.
    left: Cell<u32>,
    /// One in this many, on average.
    every: Cell<f64>,
    period_began: Cell<Timestamp>,
    /// Requests of the period.
    count: Cell<u32>,
    dice: Cell<u64>,
}

impl Sampler {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            left: Cell::new(0),
            every: Cell::new(1.0),
            period_began: Cell::new(Timestamp::ZERO),
            count: Cell::new(0),
            dice: Cell::new(seed | 1),
        }
    }

    /// How many requests this one stands for, if it is to be looked at.
    pub(crate) fn choose(&self, now: Timestamp) -> Option<f64> {
        self.count.set(self.count.get().saturating_add(1));
        if let Some(left) = self.left.get().checked_sub(1) {
            self.left.set(left);
            return None;
        }
        let weight = self.every.get();
        self.follow(now);
        // Uniform from 0 to 2 (every - 1): the mean distance of two is `every`.
        let gap = self.roll() * (2.0 * self.every.get() - 1.0);
        self.left.set(gap as u32);
        Some(weight)
    }

    fn follow(&self, now: Timestamp) {
        let took = now.since(self.period_began.get());
        if took < PERIOD {
            return;
        }
        let rate = f64::from(self.count.replace(0)) / took.as_secs_f64();
        self.period_began.set(now);
        let every = (rate / SAMPLES_PER_SECOND).clamp(1.0, EVERY_MAX);
        self.every.set(every.round());
    }

    /// From 0 to 1, by xorshift64 (Marsaglia 2003).
    fn roll(&self) -> f64 {
        let mut x = self.dice.get();
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.dice.set(x);
        (x >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// A request that is looked at; counted when it is dropped.
#[derive(Debug)]
pub(crate) struct Sampled {
    application: Rc<LocalApplication>,
    path: String,
    tenant: Option<String>,
    outcome: Cell<Outcome>,
}

impl Sampled {
    pub(crate) fn new(
        application: &Rc<LocalApplication>,
        weight: f64,
        path: String,
        tenant: Option<String>,
    ) -> Self {
        let outcome = Outcome {
            weight,
            shed: false,
            service_s: None,
        };
        Self {
            application: Rc::clone(application),
            path,
            tenant,
            outcome: Cell::new(outcome),
        }
    }

    pub(crate) fn shed(&self) {
        let outcome = self.outcome.get();
        self.outcome.set(Outcome {
            shed: true,
            ..outcome
        });
    }

    /// A replica answered it, after it had held a slot for this long.
    pub(crate) fn served(&self, service: Duration) {
        let service_s = Some(service.as_secs_f64());
        let outcome = self.outcome.get();
        self.outcome.set(Outcome {
            service_s,
            ..outcome
        });
    }
}

impl Drop for Sampled {
    fn drop(&mut self) {
        let now = self.application.shared.now();
        let metrics = self.application.metrics();
        let tenant = self.tenant.as_deref();
        metrics.record_sampled(now, &self.path, tenant, self.outcome.get());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requests at a steady rate: how many were looked at in the last second, and for how many
    /// they stood.
    fn sampled(rate: u32) -> (f64, f64) {
        let sampler = Sampler::new(7);
        let mut last = (0.0, 0.0);
        for second in 0..20 {
            last = (0.0, 0.0);
            for request in 0..rate {
                let at = f64::from(second) + f64::from(request) / f64::from(rate);
                let now = Timestamp::ZERO + Duration::from_secs_f64(at);
                if let Some(weight) = sampler.choose(now) {
                    last = (last.0 + 1.0, last.1 + weight);
                }
            }
        }
        last
    }

    #[test]
    fn every_request_is_looked_at_while_there_are_few() {
        assert_eq!(sampled(50), (50.0, 50.0));
    }

    #[test]
    fn few_of_many_requests_stand_for_all() {
        let (looked_at, stand_for) = sampled(20_000);
        assert!((70.0..130.0).contains(&looked_at), "{looked_at}");
        assert!((stand_for / 20_000.0 - 1.0).abs() < 0.3, "{stand_for}");
    }
}

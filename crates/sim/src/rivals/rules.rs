//! The rules that adapt a limit.

use std::time::Duration;

use super::limit::{Limit, Sample};

/// A constant.
#[derive(Debug, Clone, Copy)]
pub struct Fixed {
    limit: f64,
}

impl Fixed {
    /// This many requests in flight, always.
    #[must_use]
    pub fn new(limit: f64) -> Self {
        Self { limit }
    }
}

impl Limit for Fixed {
    fn limit(&self) -> f64 {
        self.limit
    }

    fn on_sample(&mut self, _: &Sample) {}
}

/// One more for each answer in time while at least half of the limit is used; a tenth less for each
/// failure or answer that took longer than the timeout.
#[derive(Debug, Clone, Copy)]
pub struct Aimd {
    timeout_s: f64,
    limit: f64,
}

impl Aimd {
    const INITIAL: f64 = 20.0;
    const MIN: f64 = 1.0;
    const MAX: f64 = 200.0;
    const BACKOFF: f64 = 0.9;

    /// With the response time that counts as a failure.
    #[must_use]
    pub fn new(timeout: Duration) -> Self {
        Self {
            timeout_s: timeout.as_secs_f64(),
            limit: Self::INITIAL,
        }
    }
}

impl Limit for Aimd {
    fn limit(&self) -> f64 {
        self.limit
    }

    fn on_sample(&mut self, sample: &Sample) {
        if sample.dropped || sample.response_s > self.timeout_s {
            self.limit *= Self::BACKOFF;
        } else if 2.0 * sample.in_flight >= self.limit {
            self.limit += 1.0;
        }
        self.limit = self.limit.clamp(Self::MIN, Self::MAX);
    }
}

/// Keeps the estimated queue `limit (1 - r_min / r)` between alpha and beta, both of which grow
/// with the logarithm of the limit. The smallest response time is measured anew every `30 limit`
/// samples.
#[derive(Debug, Clone, Copy)]
pub struct Vegas {
    limit: f64,
    response_min_s: f64,
    samples: f64,
}

impl Default for Vegas {
    fn default() -> Self {
        Self {
            limit: Self::INITIAL,
            response_min_s: f64::INFINITY,
            samples: 0.0,
        }
    }
}

impl Vegas {
    const INITIAL: f64 = 20.0;
    const MAX: f64 = 1000.0;
    const PROBE_MULTIPLIER: f64 = 30.0;

    fn adapted(&self, sample: &Sample) -> f64 {
        let step = self.limit.log10().max(1.0);
        let queue = (self.limit * (1.0 - self.response_min_s / sample.response_s)).ceil();
        if sample.dropped {
            self.limit - step
        } else if 2.0 * sample.in_flight < self.limit {
            self.limit
        } else if queue <= step {
            self.limit + 6.0 * step
        } else if queue < 3.0 * step {
            self.limit + step
        } else if queue > 6.0 * step {
            self.limit - step
        } else {
            self.limit
        }
    }
}

impl Limit for Vegas {
    fn limit(&self) -> f64 {
        self.limit
    }

    fn on_sample(&mut self, sample: &Sample) {
        self.samples += 1.0;
        if self.samples >= Self::PROBE_MULTIPLIER * self.limit {
            self.samples = 0.0;
            self.response_min_s = sample.response_s;
        }
        if sample.response_s < self.response_min_s {
            self.response_min_s = sample.response_s;
            return;
        }
        self.limit = self.adapted(sample).clamp(1.0, Self::MAX);
    }
}

/// Compares the response time with a long-term average of it: `limit <- limit g + queue`, smoothed,
/// where `g` is 1.5 times the average over the sample, between a half and one.
#[derive(Debug, Clone, Copy)]
pub struct Gradient2 {
    limit: f64,
    long_s: f64,
    samples: f64,
}

impl Default for Gradient2 {
    fn default() -> Self {
        Self {
            limit: Self::INITIAL,
            long_s: 0.0,
            samples: 0.0,
        }
    }
}

impl Gradient2 {
    const INITIAL: f64 = 20.0;
    const MIN: f64 = 4.0;
    const MAX: f64 = 200.0;
    const QUEUE: f64 = 4.0;
    const TOLERANCE: f64 = 1.5;
    const SMOOTHING: f64 = 0.2;
    const LONG_WINDOW: f64 = 600.0;
    const WARM_UP: f64 = 10.0;

    /// A plain mean at first, then exponential with the factor of a window of that length.
    fn learn(&mut self, response_s: f64) {
        self.samples += 1.0;
        let weight = if self.samples <= Self::WARM_UP {
            1.0 / self.samples
        } else {
            2.0 / (Self::LONG_WINDOW + 1.0)
        };
        self.long_s += weight * (response_s - self.long_s);
        // Coming out of a long overload the average is far too high: let it fall faster.
        if self.long_s > 2.0 * response_s {
            self.long_s *= 0.95;
        }
    }
}

impl Limit for Gradient2 {
    fn limit(&self) -> f64 {
        self.limit
    }

    fn on_sample(&mut self, sample: &Sample) {
        self.learn(sample.response_s);
        if 2.0 * sample.in_flight < self.limit || sample.response_s <= 0.0 {
            return;
        }
        let gradient = (Self::TOLERANCE * self.long_s / sample.response_s).clamp(0.5, 1.0);
        let wanted = self.limit * gradient + Self::QUEUE;
        self.limit += Self::SMOOTHING * (wanted - self.limit);
        self.limit = self.limit.clamp(Self::MIN, Self::MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_control::Timestamp;

    /// A service with `workers` workers of `service_s`: the response time grows beyond them.
    fn settle(rule: &mut dyn Limit, workers: f64, service_s: f64, samples: usize) -> f64 {
        for _ in 0..samples {
            let in_flight = rule.limit();
            let response_s = service_s * (in_flight / workers).max(1.0);
            let now = Timestamp::ZERO;
            rule.on_sample(&Sample {
                now,
                response_s,
                in_flight,
                dropped: false,
            });
        }
        rule.limit()
    }

    #[test]
    fn aimd_oscillates_around_what_the_timeout_allows() {
        let mut aimd = Aimd::new(Duration::from_millis(100));
        let limit = settle(&mut aimd, 10.0, 0.02, 1000);
        assert!((40.0..=51.0).contains(&limit), "{limit}");
    }

    #[test]
    fn vegas_keeps_a_small_queue() {
        let mut vegas = Vegas::default();
        // One sample without load, so that it knows the smallest response time.
        let idle = Sample {
            now: Timestamp::ZERO,
            response_s: 0.02,
            in_flight: 1.0,
            dropped: false,
        };
        vegas.on_sample(&idle);
        let limit = settle(&mut vegas, 50.0, 0.02, 200);
        assert!((50.0..=70.0).contains(&limit), "{limit}");
    }

    #[test]
    fn gradient2_gives_way_when_the_service_slows_down() {
        let mut gradient = Gradient2::default();
        settle(&mut gradient, 100.0, 0.02, 2000);
        let before = gradient.limit();
        let after = settle(&mut gradient, 25.0, 0.08, 20);
        assert!(after < 0.8 * before, "{before} {after}");
    }
}

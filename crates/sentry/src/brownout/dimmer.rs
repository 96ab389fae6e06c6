//! The original brownout controller, one per replica: a coin of weight theta decides whether a
//! request is served in full.
//!
//! Response time is modelled as `alpha theta`; alpha is estimated by recursive least squares with
//! forgetting, and theta moves by a pole-placement step:
//!
//! ```text
//! theta(k+1) = theta(k) + h (1 - pole)/alpha (setpoint - p95)
//! ```
//!
//! What breaks it, and why it is here for comparison only: while theta is 0 nothing is learnt and
//! the covariance grows without bound, so alpha jumps when theta returns; and alpha may become
//! negative, which turns the feedback round. Both are left as they are in the original.

use super::TickSamples;

/// Parameters, as published.
const SETPOINT_QUANTILE: f64 = 0.95;
const POLE: f64 = 0.9;
const FORGETTING: f64 = 0.95;
const INITIAL_COVARIANCE: f64 = 1000.0;

/// The original brownout controller.
#[derive(Debug, Clone)]
pub struct Dimmer {
    setpoint_s: f64,
    period_s: f64,
    theta: f64,
    alpha: f64,
    covariance: f64,
    responses: TickSamples,
}

impl Dimmer {
    /// Starts with half of the requests served in full.
    #[must_use]
    pub fn new(setpoint_s: f64, period_s: f64) -> Self {
        Self {
            setpoint_s,
            period_s,
            theta: 0.5,
            alpha: 1.0,
            covariance: INITIAL_COVARIANCE,
            responses: TickSamples::default(),
        }
    }

    /// The share of requests served in full.
    #[must_use]
    pub fn theta(&self) -> f64 {
        self.theta
    }

    /// Whether the next request is served in full, given a uniform random number from `[0, 1)`.
    #[must_use]
    pub fn decide(&self, uniform: f64) -> bool {
        uniform <= self.theta
    }

    /// A response was completed, full or not.
    pub fn on_response(&mut self, response_s: f64) {
        self.responses.push(response_s);
    }

    /// Ends a sampling period; without a completion nothing changes.
    pub fn tick(&mut self) {
        let Some(measured) = self.responses.quantile(SETPOINT_QUANTILE) else {
            return;
        };
        self.responses.clear();
        self.estimate(measured);
        let step = self.period_s * (1.0 - POLE) / self.alpha * (self.setpoint_s - measured);
        if step.is_finite() {
            self.theta = (self.theta + step).clamp(0.0, 1.0);
        }
    }

    /// Recursive least squares of `measured = alpha theta`.
    fn estimate(&mut self, measured: f64) {
        let correlation = self.covariance * self.theta;
        let gain = 1.0 / (self.theta * correlation + FORGETTING);
        self.alpha += gain * correlation * (measured - self.theta * self.alpha);
        self.covariance = (self.covariance - gain * correlation * correlation) / FORGETTING;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_share_that_meets_the_setpoint() {
        let mut dimmer = Dimmer::new(1.0, 0.5);
        for _ in 0..400 {
            dimmer.on_response(2.5 * dimmer.theta());
            dimmer.tick();
        }
        assert!((dimmer.theta() - 0.4).abs() < 0.01, "{}", dimmer.theta());
    }

    #[test]
    fn stays_within_bounds_and_finite_when_samples_are_broken() {
        let mut dimmer = Dimmer::new(1.0, 0.5);
        for sample in [f64::NAN, 1e300, -5.0, f64::INFINITY, 0.0].repeat(200) {
            dimmer.on_response(sample);
            dimmer.tick();
            assert!((0.0..=1.0).contains(&dimmer.theta()));
        }
    }
}

//! Brownout-CC, one per replica: a request is served in full while the replica's queue is shorter
//! than a threshold, and a PI controller on response time moves the threshold.
//!
//! The gain of the loop is scheduled by an estimate `G` of response time per queued request, so
//! that the tuning holds at every speed:
//!
//! ```text
//! v = f K e + I      f = G_nominal / G      I += f K h/Ti e + h/Tr (q - v)      q = v within [0, arrival rate]
//! ```
//!
//! The last term of `I` is back-calculation: the integral follows the limited output.

use super::TickSamples;

const QUANTILE: f64 = 0.95;
const GAIN: f64 = 4.0;
const INTEGRAL_TIME_S: f64 = 0.56;
const TRACKING_TIME_S: f64 = 1.0;
const NOMINAL_GAIN_S: f64 = 0.05;
const INITIAL_ARRIVAL_RATE: f64 = 25.0;
/// Weight of one decision in the share of full responses that is reported to the balancer.
const REPORT_WEIGHT: f64 = 0.01;

/// The cascaded brownout controller.
#[derive(Debug, Clone)]
pub struct QueueCascade {
    setpoint_s: f64,
    period_s: f64,
    integral: f64,
    arrival_rate: f64,
    gain_s: f64,
    queue_setpoint: f64,
    theta: f64,
    arrivals: u64,
    full_responses: TickSamples,
}

impl QueueCascade {
    /// Starts with a threshold of zero: only a lone request is served in full.
    #[must_use]
    pub fn new(setpoint_s: f64, period_s: f64) -> Self {
        Self {
            setpoint_s,
            period_s,
            integral: 0.0,
            arrival_rate: INITIAL_ARRIVAL_RATE,
            gain_s: NOMINAL_GAIN_S,
            queue_setpoint: 0.0,
            theta: 0.0,
            arrivals: 0,
            full_responses: TickSamples::default(),
        }
    }

    /// A request arrived at the replica.
    pub fn on_arrival(&mut self) {
        self.arrivals += 1;
    }

    /// Whether a request that makes the replica hold `present` (itself included) is served in full.
    pub fn decide(&mut self, present: usize) -> bool {
        let full = present <= 1 || present as f64 <= self.queue_setpoint;
        self.theta += REPORT_WEIGHT * (f64::from(u8::from(full)) - self.theta);
        full
    }

    /// A response was completed.
    pub fn on_response(&mut self, response_s: f64, full: bool) {
        if full {
            self.full_responses.push(response_s);
        }
    }

    /// The recent share of requests served in full, for the balancer.
    #[must_use]
    pub fn theta(&self) -> f64 {
        self.theta
    }

    /// Ends a sampling period; without a full response nothing changes.
    pub fn tick(&mut self) {
        let arrivals = std::mem::take(&mut self.arrivals);
        let Some(measured) = self.full_responses.quantile(QUANTILE) else {
            return;
        };
        self.full_responses.clear();
        self.arrival_rate = 0.5 * self.arrival_rate + 0.5 * arrivals as f64 / self.period_s;
        if self.queue_setpoint > 0.0 {
            self.gain_s = 0.9 * self.gain_s + 0.1 * measured / self.queue_setpoint;
        }
        self.move_threshold(self.setpoint_s - measured);
    }

    fn move_threshold(&mut self, error_s: f64) {
        let gain = GAIN * NOMINAL_GAIN_S / self.gain_s.max(1e-9);
        let wanted = gain * error_s + self.integral;
        self.queue_setpoint = wanted.clamp(0.0, self.arrival_rate.max(0.0));
        self.integral += gain * self.period_s / INTEGRAL_TIME_S * error_s
            + self.period_s / TRACKING_TIME_S * (self.queue_setpoint - wanted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_queue_that_takes_the_setpoint() {
        let mut control = QueueCascade::new(1.0, 0.5);
        for _ in 0..300 {
            (0..50).for_each(|_| control.on_arrival());
            control.on_response(0.04 * control.queue_setpoint, true);
            control.tick();
        }
        assert!(
            (control.queue_setpoint - 25.0).abs() < 0.5,
            "{}",
            control.queue_setpoint
        );
    }

    #[test]
    fn lone_request_is_always_served_in_full() {
        let mut control = QueueCascade::new(1.0, 0.5);
        assert!(control.decide(1));
        assert!(!control.decide(2));
    }
}

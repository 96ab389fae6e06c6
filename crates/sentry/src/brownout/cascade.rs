//! ILAC at the balancer: the waiting-time controller under the top-level controller
//! (paper 004, sections III-A and III-C).
//!
//! **Waiting time.** A request that leaves the central queue is served in full when it waited at
//! most `psi`, and reduced otherwise (eq. 1). Reduced requests are cheap, so the queue moves faster
//! until requests wait less than `psi` again: the mean waiting time stays near `psi`. A slow
//! integral controller (eq. 4) removes what is left between the mean and its setpoint:
//!
//! ```text
//! psi(k) = r_w(k) + I_w(k)      I_w(k+1) = I_w(k) + k_w (r_w - mean waiting time)
//! ```
//!
//! **Top level.** A still slower integral controller (eq. 12) lowers the sum of the two setpoints
//! below the wanted response time until the chosen quantile (p95) of full responses meets it:
//!
//! ```text
//! r_c = r + I_c       I_c(k+1) = I_c(k) + k_c (r - p95)       r_w = gamma r_c     r_s = (1 - gamma) r_c
//! ```
//!
//! **Anti-windup.** Both integrals are confined: `I_c` to `[-r/2, 0]` (a quantile never lies below
//! the mean, so the sum of mean setpoints never has to exceed `r`), `I_w` to a share of `r_w`
//! (a fifth) on either side. A period without samples holds the last error.
//!
//! **Prediction (ours).** What has to meet the setpoint is the response time, of which the waiting
//! time is only the part already known. With `predict` a request is served in full when what it
//! waited plus what the chosen replica takes at the moment stays below `r_c`: slow and fast
//! replicas then answer equally late, and the waiting-time integral is not needed. Together with a
//! shorter stay at the replicas (gamma 0.98) this lowers the integrated error of the paper's
//! hundred scenarios from 135 to 80, of which 42 come from one scenario that has room for all
//! requests and answers sooner than the setpoint whatever one does (experiments/004).

/// Parameters of the balancer's two loops.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CascadeConfig {
    /// Wanted response time at the quantile, in seconds.
    pub setpoint_s: f64,
    /// Share of the response time that is spent waiting, 0 to 1.
    pub gamma: f64,
    /// Gain of the waiting-time integral, per sampling period.
    pub waiting_gain: f64,
    /// How far the threshold may lie from the setpoint of the waiting time, as a share of it.
    pub waiting_reach: f64,
    /// Gain of the top-level integral, per sampling period.
    pub top_gain: f64,
    /// Which quantile of full responses has to meet the setpoint.
    pub quantile: f64,
    /// Decide by the predicted response time instead of by the waiting time alone.
    pub predict: bool,
}

impl CascadeConfig {
    /// Our constants: decide by the predicted response time, keep requests in the queue until the
    /// last moment.
    #[must_use]
    pub const fn predictive(setpoint_s: f64) -> Self {
        Self {
            setpoint_s,
            gamma: 0.98,
            waiting_gain: 0.0,
            waiting_reach: 0.2,
            top_gain: 0.05,
            quantile: 0.95,
            predict: true,
        }
    }

    /// The paper's constants for a setpoint on the 95th percentile.
    #[must_use]
    pub const fn paper(setpoint_s: f64, gamma: f64) -> Self {
        Self {
            setpoint_s,
            gamma,
            waiting_gain: 0.07,
            waiting_reach: 0.2,
            top_gain: 0.01,
            quantile: 0.95,
            predict: false,
        }
    }
}

/// What was measured in a sampling period; a part without samples is `None`.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct CascadeSample {
    /// Mean time that the requests dispatched in the period had waited.
    pub waited_s: Option<f64>,
    /// The configured quantile of the full responses completed in the period.
    pub response_s: Option<f64>,
}

/// The balancer's side of ILAC.
#[derive(Debug, Clone)]
pub struct Cascade {
    config: CascadeConfig,
    waiting_error: f64,
    top_error: f64,
    waiting_integral: f64,
    top_integral: f64,
    waiting_setpoint_s: f64,
    service_setpoint_s: f64,
    threshold_s: f64,
}

impl Cascade {
    /// Starts with everything served in full, until the first tick.
    #[must_use]
    pub fn new(config: CascadeConfig) -> Self {
        Self {
            config,
            waiting_error: 0.0,
            top_error: 0.0,
            waiting_integral: 0.0,
            top_integral: 0.0,
            waiting_setpoint_s: 0.0,
            service_setpoint_s: 0.0,
            threshold_s: f64::INFINITY,
        }
    }

    /// Its parameters.
    #[must_use]
    pub fn config(&self) -> &CascadeConfig {
        &self.config
    }

    /// Goes on with other parameters; the integrals stay, within their new bounds.
    pub fn set_config(&mut self, config: CascadeConfig) {
        self.config = config;
    }

    /// Whether a request that waited so long, and goes to a replica that takes `service_s` at the
    /// moment, is served in full (eq. 1).
    #[must_use]
    pub fn decide(&self, waited_s: f64, service_s: f64) -> bool {
        let known_s = if self.config.predict {
            waited_s + service_s
        } else {
            waited_s
        };
        known_s <= self.limit_s()
    }

    /// What the waiting time, or with prediction the response time, is compared with.
    #[must_use]
    pub fn limit_s(&self) -> f64 {
        if self.config.predict {
            self.config.setpoint_s + self.top_integral
        } else {
            self.threshold_s
        }
    }

    /// Ends a sampling period: moves the setpoints and the threshold.
    pub fn tick(&mut self, sample: CascadeSample) {
        let config = self.config;
        if let Some(waited_s) = sample.waited_s {
            self.waiting_error = self.waiting_setpoint_s - waited_s;
        }
        if let Some(response_s) = sample.response_s {
            self.top_error = config.setpoint_s - response_s;
        }

        self.top_integral = self.top_integral.clamp(-0.5 * config.setpoint_s, 0.0);
        let total_s = config.setpoint_s + self.top_integral;
        self.waiting_setpoint_s = config.gamma * total_s;
        self.service_setpoint_s = (1.0 - config.gamma) * total_s;

        let reach = config.waiting_reach * self.waiting_setpoint_s;
        self.waiting_integral = self.waiting_integral.clamp(-reach, reach);
        self.threshold_s = self.waiting_setpoint_s + self.waiting_integral;

        self.top_integral += config.top_gain * self.top_error;
        self.waiting_integral += config.waiting_gain * self.waiting_error;
    }

    /// `psi`: a request that waited longer is served without optional content.
    #[must_use]
    pub fn threshold_s(&self) -> f64 {
        self.threshold_s
    }

    /// The mean waiting time aimed at.
    #[must_use]
    pub fn waiting_setpoint_s(&self) -> f64 {
        self.waiting_setpoint_s
    }

    /// The mean service time that every replica is told to aim at.
    #[must_use]
    pub fn service_setpoint_s(&self) -> f64 {
        self.service_setpoint_s
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serves_in_full_until_the_first_tick_and_by_the_threshold_after_it() {
        let mut cascade = Cascade::new(CascadeConfig::paper(1.0, 0.9));
        assert!(cascade.decide(100.0, 0.0));
        cascade.tick(CascadeSample::default());
        assert!(cascade.decide(0.89, 0.0));
        assert!(!cascade.decide(0.91, 0.0));
    }

    #[test]
    fn splits_the_response_time_by_gamma() {
        let mut cascade = Cascade::new(CascadeConfig::paper(2.0, 0.75));
        cascade.tick(CascadeSample::default());
        assert!((cascade.waiting_setpoint_s() - 1.5).abs() < 1e-12);
        assert!((cascade.service_setpoint_s() - 0.5).abs() < 1e-12);
    }

    /// Full responses take 30 % longer than the two setpoints together: the top level has to lower
    /// them until the quantile meets the setpoint.
    #[test]
    fn top_level_meets_the_setpoint_and_recovers_after_overload() {
        let mut cascade = Cascade::new(CascadeConfig::paper(1.0, 0.9));
        let mut response_s = 0.0;
        let mut run = |cascade: &mut Cascade, factor: f64, ticks: usize| {
            for _ in 0..ticks {
                cascade.tick(CascadeSample {
                    waited_s: Some(cascade.threshold_s()).filter(|s| s.is_finite()),
                    response_s: Some(response_s),
                });
                let mean_s = cascade.waiting_setpoint_s() + cascade.service_setpoint_s();
                response_s = factor * mean_s;
            }
            response_s
        };
        assert!((run(&mut cascade, 1.3, 1500) - 1.0).abs() < 0.01);
        run(&mut cascade, 50.0, 1000); // hopeless: the integral saturates
        assert!((run(&mut cascade, 1.3, 1500) - 1.0).abs() < 0.01);
    }

    #[test]
    fn idleness_does_not_wind_the_threshold_up() {
        let mut cascade = Cascade::new(CascadeConfig::paper(1.0, 0.9));
        for _ in 0..10_000 {
            cascade.tick(CascadeSample {
                waited_s: Some(0.0),
                response_s: Some(0.01),
            });
        }
        assert!(
            cascade.threshold_s() <= 1.2 * 0.9 + 1e-9,
            "{}",
            cascade.threshold_s()
        );
    }
}

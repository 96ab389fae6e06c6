//! Mode `lqr`: state feedback that balances response time and goodput (000 §III).
//!
//! Every measurement interval the mean response time `R` (ms) and the goodput `Λ` (requests/s)
//! are taken and filtered (eq. 2); every tuning interval
//!
//! ```text
//! x = [R - R̄, (Λmax - Λ) - (Λmax - Λ̄)]        u = -K x        λ_adm = λ̄ - u      (eq. 3, 5, 6)
//! ```
//!
//! in tokens per second, 100 of them a request, sets the token bucket at the entrance of the
//! queue.
//!
//! A goodput below its operating point has three causes (000 §III-C). That the offered load is
//! below the admitted rate (case b) is benign and told apart by the gate itself: fewer requests
//! arrived in the tuning interval than the rate in force would have let through. Then a missing
//! goodput counts as none missing.
//!
//! When nothing at all is completed although requests were admitted, there is no response time to
//! react to and the missing goodput alone would open the gate; the rate is halved instead, until
//! something gets through.
//!
//! With few completions the response time is held (`low_traffic`), but not while the gate itself
//! turns requests away: at the lowest rate there never are many, and the gate would stay there.
//!
//! **Adaptive operating point** (the paper's own next step, off by default). A server that became
//! slower by the factor `s` has the same response curve with time stretched by `1/s`: at
//! `s λ̄` it answers in `R̄/s`. So the same controller runs on the scaled plant: it sees `s R` and
//! `Λ/s`, and its command is multiplied by `s`. The scale follows the response time where
//! the gate is binding, `ln s ← ln s - k ln(s R / R̄)`, so that in the end `s R = R̄`.
//!
//! What breaks it: an operating point that was never measured on this service.

use std::time::Duration;

use tidegate_control::Timestamp;
use tidegate_control::controller::{ActuatorConfig, StateFeedback, StateFeedbackConfig};
use tidegate_control::filter::Ewma;

use super::{Handover, Step, Strategy};
use crate::config::{GateKind, LqrConfig, SentryConfig};
use crate::error::SentryError;
use crate::event::Event;
use crate::gate::Gate;
use crate::monitor::Totals;
use crate::plan::Plan;
use crate::status::ControllerStatus;

/// Mode `lqr`: state feedback that balances response time and goodput (000 §III).
#[derive(Debug)]
pub(crate) struct Lqr {
    config: LqrConfig,
    min_samples: f64,
    response_ms: Ewma,
    goodput: Ewma,
    controller: StateFeedback,
    scale: Scale,
    /// Counts and time since the last tuning.
    since_tuning: Totals,
    since_tuning_s: f64,
}

impl Lqr {
    pub(crate) fn new(config: &SentryConfig) -> Result<Self, SentryError> {
        let lqr = &config.lqr;
        let refused = |cause: tidegate_control::ControlError| SentryError::Controller {
            table: "lqr",
            cause: cause.to_string(),
        };
        Ok(Self {
            min_samples: f64::from(config.low_traffic.min_samples),
            response_ms: Ewma::new(lqr.response_filter).map_err(refused)?,
            goodput: Ewma::new(lqr.goodput_filter).map_err(refused)?,
            controller: controller(lqr).map_err(refused)?,
            scale: Scale::new(lqr),
            since_tuning: Totals::default(),
            since_tuning_s: 0.0,
            config: lqr.clone(),
        })
    }

    /// Tokens per second that stay below the maximum: the paper's `u1`.
    fn command_for(&self, requests_per_second: f64) -> f64 {
        let nominal = requests_per_second / self.scale.value;
        (self.config.rate_max.0 - nominal) * self.config.tokens_per_request
    }

    /// Requests per second in force.
    fn rate(&self) -> f64 {
        let below_max = self.controller.output() / self.config.tokens_per_request;
        (self.config.rate_max.0 - below_max) * self.scale.value
    }

    fn publish(&self, now: Timestamp, gate: &Gate) {
        gate.set_rate(now, self.rate(), self.config.burst);
    }

    fn measure(&mut self, step: &Step<'_>) {
        let interval = step.interval;
        self.since_tuning = self.since_tuning.plus(interval.counts);
        self.since_tuning_s += interval.seconds;
        self.goodput
            .on_sample(interval.per_second(interval.counts.served));
        if interval.has_samples(self.min_samples)
            && let Some(seconds) = interval.response.mean_seconds()
        {
            self.response_ms.on_sample(seconds * 1e3);
        }
    }

    fn tune(&mut self, step: &mut Step<'_>) {
        let offered = self.since_tuning.arrived as f64 / self.since_tuning_s;
        let benign = offered < self.rate();
        if self.collapsed() {
            let halved = self.command_for((self.rate() / 2.0).max(self.config.rate_min.0));
            self.controller.track(halved);
        } else if let Some(response_ms) = self.response_ms.value() {
            if self.config.adapt_operating_point && !benign {
                self.scale.follow(response_ms);
            }
            let state = self.state(response_ms, benign);
            self.controller.step(&state);
        }
        self.publish(step.now, step.gate);
        self.report(step);
        self.since_tuning = Totals::default();
        self.since_tuning_s = 0.0;
    }

    /// Requests went in and none came out.
    fn collapsed(&self) -> bool {
        let lost = self.since_tuning.abandoned + self.since_tuning.dropped;
        self.since_tuning.served == 0 && lost as f64 >= self.min_samples
    }

    /// The measured state in terms of the plant the controller was designed for.
    fn state(&self, response_ms: f64, benign: bool) -> [f64; 2] {
        let at_operating_point = self.config.rate_max.0 - self.config.goodput.0;
        let goodput = self.goodput.value().unwrap_or(f64::NAN) / self.scale.value;
        let mut missing = self.config.rate_max.0 - goodput;
        if benign {
            missing = missing.min(at_operating_point);
        }
        [response_ms * self.scale.value, missing]
    }

    fn report(&self, step: &mut Step<'_>) {
        let event = Event::Step {
            at: step.now,
            controller: "lqr",
            setpoint: self.config.response_time.as_secs_f64() / self.scale.value,
            measured: self.response_ms.value().unwrap_or(f64::NAN) / 1e3,
            output: self.rate(),
            terms: self.controller.terms(),
        };
        step.observe(&event);
    }
}

fn controller(lqr: &LqrConfig) -> Result<StateFeedback, tidegate_control::ControlError> {
    let (tokens, max) = (lqr.tokens_per_request, lqr.rate_max.0);
    let command = (max - lqr.rate.0) * tokens;
    StateFeedback::new(StateFeedbackConfig {
        gains: lqr.gain.to_vec(),
        state: vec![lqr.response_time.as_secs_f64() * 1e3, max - lqr.goodput.0],
        command,
        actuator: ActuatorConfig::within(0.0, (max - lqr.rate_min.0) * tokens).starting_at(command),
    })
}

impl Strategy for Lqr {
    fn interval(&self) -> Duration {
        self.config.measurement_interval.0
    }

    fn start(&mut self, now: Timestamp, plan: &Plan, gate: &Gate, handover: Option<&Handover>) {
        super::without_forecast(plan);
        if let Some(handover) = handover {
            let rate = handover.command(GateKind::Rate);
            self.controller.track(self.command_for(rate));
        }
        self.publish(now, gate);
    }

    fn step(&mut self, step: &mut Step<'_>) {
        self.measure(step);
        // Half an interval of slack: a tick that came late is still this tuning's tick.
        let slack = self.config.measurement_interval.as_secs_f64() / 2.0;
        if self.since_tuning_s + slack > self.config.tuning_interval.as_secs_f64() {
            self.tune(step);
        }
    }

    fn command(&self) -> Option<(GateKind, f64)> {
        Some((GateKind::Rate, self.rate()))
    }

    fn status(&self) -> Option<ControllerStatus> {
        Some(ControllerStatus {
            name: "lqr",
            setpoint: self.config.response_time.as_secs_f64() / self.scale.value,
            measured: self.response_ms.value().unwrap_or(f64::NAN) / 1e3,
            output: self.rate(),
            terms: self.controller.terms(),
            bad_samples: self.controller.bad_samples(),
        })
    }
}

/// Capacity now over the capacity at which the operating point was found.
#[derive(Debug)]
struct Scale {
    value: f64,
    max: f64,
    response_ms: f64,
}

impl Scale {
    /// Step of the logarithm per unit of error. Chosen: slower than the state feedback, which
    /// settles within two tuning intervals, fast enough to halve the scale in three.
    const GAIN: f64 = 0.3;
    /// A single tuning interval moves the scale by at most this much error.
    const ERROR_MAX: f64 = 1.0;
    const MIN: f64 = 0.05;

    fn new(lqr: &LqrConfig) -> Self {
        Self {
            value: 1.0,
            max: lqr.rate_max.0 / lqr.rate.0,
            response_ms: lqr.response_time.as_secs_f64() * 1e3,
        }
    }

    fn follow(&mut self, response_ms: f64) {
        let error = (response_ms * self.value / self.response_ms).ln();
        let step = Self::GAIN * error.clamp(-Self::ERROR_MAX, Self::ERROR_MAX);
        self.value = (self.value * (-step).exp()).clamp(Self::MIN, self.max);
    }
}

//! Modes `step`, `pi` and `pid`: one measured quantity, one controller, one gate (002 §2).
//!
//! Every interval `h` the controller turns `e = setpoint - measured` into a command for the
//! gate. Mode `pi` is 002 §5 to the letter: the integral sums errors up to the previous
//! interval, the command may go negative and counts as zero in the gate,
//!
//! ```text
//! u(k) = K e(k) + K h/Ti Σ_{i<k} e(i)
//! ```
//!
//! Three rules are ours. While the gate refuses nothing the command is confined to a ceiling above
//! what was realised ([`Ceiling`]), so that the integral does not grow through a quiet night.
//! Without enough samples (`low_traffic`, unless the gate itself keeps them away) or without a
//! report the command is held. And as long as nothing was ever measured the gate is open: a service
//! that reports no utilization cannot be regulated by it, and refusing its requests protects
//! nothing. The status says so ([`Strategy::is_blind`]).
//!
//! Reports come with answers. Where replicas used to report, and now every client abandons before
//! its answer, the replicas work in vain, and that counts as full utilization. Where the gate
//! admitted nothing and nothing is inside, they count as idle. Holding the command would keep it
//! too high, or keep the gate shut, for ever. Health checks that bring reports are better than
//! either guess.
//!
//! What breaks it: gains found for one capacity used at a quarter of it.

use std::time::Duration;

use tidegate_control::controller::{
    ActuatorConfig, Integration, Limits, Pid, PidConfig, PidGains, Step as StepController,
    StepConfig,
};
use tidegate_control::{ControlError, Controller, Timestamp};

use super::ceiling::Ceiling;
use super::{Handover, Step, Strategy};
use crate::config::{Feedback, GateKind, Measure, SentryConfig};
use crate::error::SentryError;
use crate::event::Event;
use crate::gate::Gate;
use crate::plan::Plan;
use crate::status::ControllerStatus;

/// A controller with what it measures and what it commands.
#[derive(Debug)]
pub(crate) struct FeedbackLoop {
    name: &'static str,
    feedback: Feedback,
    min_samples: f64,
    controller: Box<dyn Controller>,
    ceiling: Ceiling,
    /// The gate is open: the controller has nothing to begin with yet.
    open: bool,
    measured: f64,
    /// Replicas have reported their utilization.
    reported: bool,
    /// Replicas have answered requests.
    answered: bool,
}

impl FeedbackLoop {
    pub(crate) fn step(config: &SentryConfig) -> Result<Self, SentryError> {
        let feedback = config.step.feedback();
        let controller = StepController::new(StepConfig {
            step: config.step.step,
            dead_band: config.step.dead_band,
            actuator: actuator(&feedback),
        });
        Self::new(config, "step", feedback, controller)
    }

    pub(crate) fn pi(config: &SentryConfig) -> Result<Self, SentryError> {
        let feedback = config.pi.feedback();
        let gains = PidGains::pi(config.pi.gain, config.pi.integral_time.0);
        let controller = Pid::new(PidConfig {
            integration: Integration::Forward,
            ..PidConfig::new(gains, feedback.interval, actuator(&feedback))
        });
        Self::new(config, "pi", feedback, controller)
    }

    pub(crate) fn pid(config: &SentryConfig) -> Result<Self, SentryError> {
        let feedback = config.pid.feedback();
        let pid = &config.pid;
        let gains = PidGains::pid(pid.gain, pid.integral_time.0, pid.derivative_time.0);
        let controller = Pid::new(PidConfig {
            derivative_filter: pid.derivative_filter,
            ..PidConfig::new(gains, feedback.interval, actuator(&feedback))
        });
        Self::new(config, "pid", feedback, controller)
    }

    fn new<C: Controller + 'static>(
        config: &SentryConfig,
        name: &'static str,
        feedback: Feedback,
        controller: Result<C, ControlError>,
    ) -> Result<Self, SentryError> {
        let controller = controller.map_err(|cause| SentryError::Controller {
            table: name,
            cause: cause.to_string(),
        })?;
        Ok(Self {
            name,
            open: feedback.initial.is_none(),
            ceiling: Ceiling::default(),
            feedback,
            min_samples: f64::from(config.low_traffic.min_samples),
            controller: Box::new(controller),
            measured: f64::NAN,
            reported: false,
            answered: false,
        })
    }

    /// The measured quantity, NaN when there is none.
    fn measure(&self, step: &Step<'_>) -> f64 {
        let interval = step.interval;
        let enough = interval.has_samples(self.min_samples);
        let of_samples = |value: Option<f64>| value.filter(|_| enough);
        let value = match self.feedback.measure {
            Measure::Utilization => interval
                .utilization()
                .or_else(|| self.unreported_utilization(step)),
            Measure::ResponseTime => of_samples(interval.response.mean_seconds()),
            Measure::ResponseTimeP95 => of_samples(interval.response.quantile_seconds(0.95)),
            Measure::WaitingTime => of_samples(interval.waiting_seconds()),
            Measure::Goodput => of_samples(Some(interval.per_second(interval.counts.served))),
            Measure::InSystem => Some(f64::from(step.in_system())),
        };
        value.unwrap_or(f64::NAN)
    }

    /// What is known of replicas that report with their answers when there was none.
    fn unreported_utilization(&self, step: &Step<'_>) -> Option<f64> {
        let counts = &step.interval.counts;
        if self.reported && counts.served == 0 && counts.abandoned > 0 {
            return Some(1.0);
        }
        let shut = counts.refused_by_gate > 0 && counts.admitted == 0;
        (shut && step.in_system() == 0).then_some(0.0)
    }

    fn requests(&self) -> f64 {
        self.controller.output() / self.tokens()
    }

    /// Units of the controller's output per request.
    fn tokens(&self) -> f64 {
        match self.feedback.gate {
            GateKind::Rate => self.feedback.tokens_per_request,
            GateKind::Percent | GateKind::Window => 1.0,
        }
    }

    fn publish(&self, now: Timestamp, gate: &Gate) {
        if self.open {
            gate.open();
        } else {
            let (kind, burst) = (self.feedback.gate, self.feedback.burst);
            gate.set(now, kind, self.requests(), burst);
        }
    }

    /// Begins where the measurement stands, once there is one.
    fn begin(&mut self, step: &Step<'_>) {
        let error = self.feedback.setpoint - self.measured;
        let beginning = self.ceiling.beginning(&self.feedback, step, error);
        if let Some(command) = beginning.filter(|_| error.is_finite()) {
            self.controller.track(command * self.tokens());
            self.open = false;
        }
    }

    /// What the next command may be at most.
    fn confine(&mut self, step: &Step<'_>) {
        let refuses = step.interval.counts.refused_by_gate > 0;
        let max = self.feedback.max;
        self.controller.set_max(if refuses {
            max
        } else {
            let ceiling = self.ceiling.command(&self.feedback, step, self.requests());
            (ceiling * self.tokens()).min(max)
        });
    }
}

fn actuator(feedback: &Feedback) -> ActuatorConfig {
    ActuatorConfig {
        limits: Limits {
            min: feedback.min,
            max: feedback.max,
        },
        slew: feedback.max_change,
        initial: feedback.initial.unwrap_or(feedback.min),
    }
}

impl Strategy for FeedbackLoop {
    fn interval(&self) -> Duration {
        self.feedback.interval
    }

    fn start(&mut self, now: Timestamp, plan: &Plan, gate: &Gate, handover: Option<&Handover>) {
        super::without_forecast(plan);
        if let Some(handover) = handover {
            let command = handover.command(self.feedback.gate) * self.tokens();
            self.controller.track(command);
            // Nothing was admitted lately: there is nothing to go on from.
            self.open = command <= 0.0;
        }
        self.publish(now, gate);
    }

    fn step(&mut self, step: &mut Step<'_>) {
        self.reported |= step.interval.utilization().is_some();
        self.answered |= step.interval.counts.served > 0;
        self.measured = self.measure(step);
        self.ceiling.on_interval(step);
        self.open |= self.is_blind();
        if self.open {
            self.begin(step);
        }
        if !self.open {
            self.confine(step);
            self.controller.step(self.feedback.setpoint, self.measured);
        }
        self.publish(step.now, step.gate);
        let event = Event::Step {
            at: step.now,
            controller: self.name,
            setpoint: self.feedback.setpoint,
            measured: self.measured,
            output: self.controller.output(),
            terms: self.controller.terms(),
        };
        step.observe(&event);
    }

    fn command(&self) -> Option<(GateKind, f64)> {
        (!self.open).then(|| (self.feedback.gate, self.requests()))
    }

    fn is_blind(&self) -> bool {
        self.feedback.measure == Measure::Utilization && self.answered && !self.reported
    }

    fn status(&self) -> Option<ControllerStatus> {
        Some(ControllerStatus {
            name: self.name,
            setpoint: self.feedback.setpoint,
            measured: self.measured,
            output: self.controller.output(),
            terms: self.controller.terms(),
            bad_samples: self.controller.bad_samples(),
        })
    }
}

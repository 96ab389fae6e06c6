//! The flow model of 002 under its PI controller.

use serde::Deserialize;
use tidegate_config::Dur;
use tidegate_control::controller::{ActuatorConfig, Integration, Pid, PidConfig, PidGains};

use super::ModelError;
use crate::experiment::Record;
use crate::flow::{Flow, FlowSpec, FlowStep};
use crate::rng::Streams;

pub(super) const SERIES: [&str; 4] = ["utilization", "rate", "admitted", "queue"];

/// Limits of the command. 002 has none: a negative command is zero only in the gate.
const COMMAND_MAX: f64 = 1e6;

/// A run of the flow model in closed loop.
///
/// Series over time: `utilization`, `rate` (the command, per second), `admitted` (requests in the
/// interval) and `queue` (requests left at its end).
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowRun {
    /// How long.
    pub duration: Dur,
    /// Wanted utilization.
    pub setpoint: f64,
    /// `K`.
    pub gain: f64,
    /// `Ti`.
    pub integral_time: Dur,
    /// Arrivals, departures and the control interval.
    pub plant: FlowSpec,
}

impl FlowRun {
    pub(super) fn check(&self) -> Result<(), ModelError> {
        self.controller().map(drop)
    }

    pub(super) fn run(&self, seed: u64) -> Result<Record, ModelError> {
        let mut controller = self.controller()?;
        let steps = self.duration.as_secs_f64() / self.plant.interval.as_secs_f64();
        let steps = Flow::new(&self.plant, Streams::new(seed)).control(
            &mut controller,
            self.setpoint,
            steps.round() as usize,
        );
        let series = |of: fn(&FlowStep) -> f64| steps.iter().map(|s| (s.at, of(s))).collect();
        Ok(Record::default()
            .with_series("utilization", series(|step| step.utilization))
            .with_series("rate", series(|step| step.rate))
            .with_series("admitted", series(|step| step.admitted))
            .with_series("queue", series(|step| step.queue)))
    }

    /// The controller exactly as 002 §5 prints it: the integral sums errors up to the step before.
    fn controller(&self) -> Result<Pid, ModelError> {
        if self.plant.interval.is_zero() {
            return Err(ModelError("`plant.interval` must be above zero".to_owned()));
        }
        let gains = PidGains::pi(self.gain, self.integral_time.0);
        let limits = ActuatorConfig::within(-COMMAND_MAX, COMMAND_MAX);
        let config = PidConfig {
            integration: Integration::Forward,
            ..PidConfig::new(gains, self.plant.interval.0, limits)
        };
        Pid::new(config).map_err(ModelError::from)
    }
}

//! Mode `auto`.

use std::time::Duration;

use tidegate_control::Timestamp;

use super::{Handover, Step, Strategy};
use crate::config::SentryConfig;
use crate::gate::Gate;
use crate::plan::Plan;

/// See the module's description.
#[derive(Debug)]
pub(crate) struct Auto {
    interval: Duration,
}

impl Auto {
    pub(crate) fn new(config: &SentryConfig, _now: Timestamp) -> Self {
        Self {
            interval: config.auto.interval.0,
        }
    }
}

impl Strategy for Auto {
    fn interval(&self) -> Duration {
        self.interval
    }

    fn start(&mut self, _: Timestamp, plan: &Plan, gate: &Gate, _: Option<&Handover>) {
        super::without_forecast(plan);
        gate.open();
    }

    fn step(&mut self, _: &mut Step<'_>) {}
}

//! Mode `off`: the engine balances and measures, and admits everything.

use std::time::Duration;

use tidegate_control::Timestamp;

use super::{Handover, Step, Strategy};
use crate::gate::Gate;
use crate::plan::Plan;

/// No control at all.
#[derive(Debug)]
pub(crate) struct Off;

impl Strategy for Off {
    fn interval(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn start(&mut self, _: Timestamp, plan: &Plan, gate: &Gate, _: Option<&Handover>) {
        super::without_forecast(plan);
        gate.open();
    }

    fn step(&mut self, _: &mut Step<'_>) {}
}

//! Mode `static`: a fixed admission rate, share or window (002 §2.2, 000 §II-A).
//!
//! `u_fix = rho_ref / x̄` where a utilization and a mean service time are given. Breaks as soon
//! as the capacity is not what it was when somebody wrote the number.

use std::time::Duration;

use tidegate_control::Timestamp;

use super::{Handover, Step, Strategy};
use crate::config::{GateKind, SentryConfig};
use crate::error::SentryError;
use crate::gate::Gate;
use crate::plan::Plan;

/// A command that never changes.
#[derive(Debug)]
pub(crate) struct Fixed {
    kind: GateKind,
    command: f64,
    burst: f64,
}

impl Fixed {
    pub(crate) fn new(config: &SentryConfig) -> Result<Self, SentryError> {
        let (kind, command) = config.fixed.gate_value()?;
        Ok(Self {
            kind,
            command,
            burst: config.fixed.burst,
        })
    }
}

impl Strategy for Fixed {
    fn interval(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn start(&mut self, now: Timestamp, plan: &Plan, gate: &Gate, _: Option<&Handover>) {
        super::without_forecast(plan);
        gate.set(now, self.kind, self.command, self.burst);
    }

    fn step(&mut self, _: &mut Step<'_>) {}

    fn command(&self) -> Option<(GateKind, f64)> {
        Some((self.kind, self.command))
    }
}

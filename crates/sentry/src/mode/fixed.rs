//! Mode `static`: a fixed admission rate, share or window (002 §2.2, 000 §II-A).
//!
//! `u_fix = rho_ref / x̄` where a utilization and a mean service time are given. Breaks as soon
//! as the capacity is not what it was when the number was written.

use std::time::Duration;

use tidegate_control::Timestamp;

use super::{Handover, Step, Strategy};
use crate::config::{GateKind, SentryConfig};
use crate::error::SentryError;
use crate::fleet::FleetShare;
use crate::gate::Gate;
use crate::plan::Plan;

/// A command that never changes.
#[derive(Debug)]
pub(crate) struct Fixed {
    kind: GateKind,
    command: f64,
    burst: f64,
    /// This engine's part of a rate or window that is configured for several.
    share: f64,
}

impl Fixed {
    pub(crate) fn new(config: &SentryConfig) -> Result<Self, SentryError> {
        let (kind, command) = config.fixed.gate_value()?;
        Ok(Self {
            kind,
            command,
            burst: config.fixed.burst,
            share: 1.0,
        })
    }
}

impl Fixed {
    /// A share of requests is the same for every proxy; rates and windows are divided.
    fn shared(&self) -> f64 {
        match self.kind {
            GateKind::Percent => self.command,
            GateKind::Rate => self.share * self.command,
            GateKind::Window => (self.share * self.command).max(1.0),
        }
    }

    fn publish(&self, now: Timestamp, gate: &Gate) {
        let burst = (self.share * self.burst).max(1.0).min(self.burst);
        gate.set(now, self.kind, self.shared(), burst);
    }
}

impl Strategy for Fixed {
    fn interval(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn start(&mut self, now: Timestamp, plan: &Plan, gate: &Gate, _: Option<&Handover>) {
        super::without_forecast(plan);
        self.publish(now, gate);
    }

    fn share(&mut self, now: Timestamp, _: &Plan, gate: &Gate, share: &FleetShare) {
        let share = if share.is_shared() { share.share } else { 1.0 };
        if share != self.share {
            self.share = share;
            self.publish(now, gate);
        }
    }

    fn step(&mut self, _: &mut Step<'_>) {}

    fn command(&self) -> Option<(GateKind, f64)> {
        Some((self.kind, self.shared()))
    }
}

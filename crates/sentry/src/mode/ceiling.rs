//! How far a command may grow while its gate refuses nothing.
//!
//! What a service does at light load says nothing about a higher limit, and an integral that grows
//! through a quiet night lets the morning's burst through. 002 §2 names the quantity that has to be
//! looked at, the realised admission `ū = min(u, λ)`; its controllers integrate without regard to
//! it. While the gate refuses, `ū = u` and nothing is confined. While it refuses nothing, commands
//! are confined to a ceiling well above `ū`, and the integral by the controller's own anti-windup:
//!
//! - a rate by the utilization, where `U = X S` (the utilization law) gives the capacity `X/U` that
//!   the replicas themselves report; the ceiling is a quarter above it;
//! - any other command but a share: twice what was realised, but never below the command in force.
//!
//! To hold the command where it is instead turns the noise of the proportional term into a
//! ratchet: it can fall by chance, and never rise again.
//!
//! What breaks it: utilization that has little to do with requests. The ceiling is then too low,
//! the gate refuses, and the command grows as if there were none.
//!
//! Decision: docs/decisions/0085-command-ceiling.md.

use crate::config::{Feedback, GateKind, Measure};
use crate::mode::Step;

/// Share of the measured capacity up to which a rate may grow. A quarter above it Poisson arrivals
/// at nine tenths of a setpoint of 0.8 never empty a bucket of ten requests, and an overload
/// that begins there queues 16 requests of a service of 39/s before the paper's gains stop it.
/// Chosen: experiments/papers/002-light-load.toml.
const CEILING_OF_CAPACITY: f64 = 1.25;

/// Share of the realised admission up to which other commands may grow: they double per interval.
const CEILING_OF_REALISED: f64 = 2.0;

/// Weight of the newest interval in throughput and utilization. Chosen: forty intervals of
/// ten requests give the capacity of exponential service within a twentieth.
const CAPACITY_WEIGHT: f64 = 0.05;

/// What was realised of the commands so far.
#[derive(Debug, Default)]
pub(super) struct Ceiling {
    /// Decayed sums of the same intervals, so that their ratio has no bias at the start.
    throughput: f64,
    utilization: f64,
}

impl Ceiling {
    /// Takes an interval into account.
    pub(super) fn on_interval(&mut self, step: &Step<'_>) {
        let Some(utilization) = step.interval.utilization() else {
            return;
        };
        let throughput = step.interval.per_second(step.interval.counts.served);
        if throughput > 0.0 {
            self.throughput += CAPACITY_WEIGHT * (throughput - self.throughput);
            self.utilization += CAPACITY_WEIGHT * (utilization - self.utilization);
        }
    }

    /// Requests per second at full utilization, by the utilization law.
    fn capacity(&self) -> Option<f64> {
        (self.utilization > 0.0).then(|| self.throughput / self.utilization)
    }

    /// The largest command in an interval in which the gate refused nothing, in requests.
    pub(super) fn command(&self, feedback: &Feedback, step: &Step<'_>, in_force: f64) -> f64 {
        match (feedback.gate, feedback.measure) {
            (GateKind::Percent, _) => 1.0,
            (GateKind::Rate, Measure::Utilization) => self
                .capacity()
                .map_or(in_force, |capacity| CEILING_OF_CAPACITY * capacity)
                .max(feedback.burst),
            (kind, _) => (CEILING_OF_REALISED * realised(kind, step))
                .max(in_force)
                .max(feedback.burst),
        }
    }

    /// Where a controller begins that was not there when the interval was measured; nothing
    /// before there is something to begin with.
    pub(super) fn beginning(
        &self,
        feedback: &Feedback,
        step: &Step<'_>,
        error: f64,
    ) -> Option<f64> {
        let growth = if error > 0.0 {
            CEILING_OF_REALISED
        } else {
            1.0
        };
        match (feedback.gate, feedback.measure) {
            (GateKind::Percent, _) => Some(1.0),
            (GateKind::Rate, Measure::Utilization) => {
                self.capacity().map(|capacity| feedback.setpoint * capacity)
            }
            (GateKind::Rate, _) => {
                let served = step.interval.per_second(step.interval.counts.served);
                (served > 0.0).then_some(growth * served)
            }
            (GateKind::Window, _) => Some(growth * realised(GateKind::Window, step).max(1.0)),
        }
    }
}

/// What the gate let in, in the unit of its command.
fn realised(kind: GateKind, step: &Step<'_>) -> f64 {
    match kind {
        GateKind::Rate => step.interval.per_second(step.interval.counts.admitted),
        GateKind::Percent => 1.0,
        GateKind::Window => f64::from(step.in_system()),
    }
}

//! The search before any request has waited for the replica.
//!
//! Nothing is tried. What is done with many inside may show that the window is far beyond the
//! knee, and then it is made smaller before it is ever full.

use super::cause::Cause;
use super::phase::{Outcome, PhaseName};
use super::replica_window::ReplicaWindow;
use super::tuning::Tuning;
use super::window::ReplicaTick;

/// No request has waited for the replica yet.
#[derive(Debug)]
pub(super) struct Idle {
    /// The window that slow start will begin with.
    pub(super) first: f64,
}

impl Idle {
    /// Whether the phase ends before it takes the tick. No slow start is needed where requests were
    /// seen that met no queue inside.
    pub(super) fn end(
        &self,
        replica: &ReplicaWindow,
        tick: &ReplicaTick,
    ) -> Option<(PhaseName, Cause)> {
        let base = replica.base_below(Tuning::BASE_COMPLETIONS_FIRST.get(), f64::INFINITY);
        if base.is_some() {
            return Some((PhaseName::Searching, Cause::BaseSeen));
        }
        let waits = (PhaseName::SlowStart, Cause::RequestsWait);
        tick.binding.then_some(waits)
    }

    pub(super) fn on_tick(&self, replica: &mut ReplicaWindow, tick: &ReplicaTick) -> Outcome {
        if !replica.counts_at(tick.now) {
            return Outcome::STAYS;
        }
        replica.measure(&tick.full);
        let Some((_, enough)) = replica.enough_unknown(tick) else {
            return Outcome::STAYS;
        };
        replica.set(enough);
        Outcome::changed(Cause::AboveKnee)
    }
}

//! Several engines in front of the same replicas ([`crate::fleet`]): what this one says, and what
//! it may use.

use std::sync::atomic::Ordering;

use tidegate_control::Timestamp;

use super::{Resolutions, Sentry};
use crate::api::ReplicaId;
use crate::config::ModeName;
use crate::fleet::{ClassTotals, FleetReport, FleetShare, Portion, ReplicaShare, ReplicaTotals};
use crate::plan::{Plan, initial_window};
use crate::replica::Health;

impl<T> Sentry<T> {
    /// What this engine says to others that send requests to the same replicas.
    pub fn fleet_report(&self, now: Timestamp) -> FleetReport {
        let plan = self.plan.load();
        let adaptation = self.adaptation.lock();
        let found = adaptation.found();
        let replicas = plan.replicas.iter().enumerate();
        FleetReport {
            at: now,
            classes: plan
                .classes
                .iter()
                .map(|class| ClassTotals {
                    arrived: class.counters.arrived(),
                    admitted: class.counters.admitted.load(Ordering::Relaxed),
                    guaranteed: class.contract.guaranteed(),
                })
                .collect(),
            replicas: replicas
                .filter(|(_, replica)| replica.health() != Health::Retired)
                .map(|(index, replica)| {
                    let (found, capacity) = found.get(index).copied().unwrap_or_default();
                    ReplicaTotals {
                        found,
                        capacity,
                        ..replica.totals(ReplicaId(index as u16))
                    }
                })
                .collect(),
            queued: plan.queued(),
            overloaded: adaptation.overloaded().unwrap_or(false),
        }
    }

    /// Uses no more than this from now on of what is shared with others. It holds until it is
    /// given another one; a share of one engine ends the sharing.
    pub fn share(&self, now: Timestamp, share: &FleetShare) -> Resolutions<'_, T> {
        let mut adaptation = self.adaptation.lock();
        let plan = self.plan.load_full();
        let shared = share.is_shared();
        for (index, class) in plan.classes.iter().enumerate() {
            let part = share.guarantees.get(index).filter(|_| shared);
            class.contract.set_share(now, part.copied().unwrap_or(1.0));
        }
        for index in 0..plan.replicas.len() {
            share_replica(&plan, index, share.of(ReplicaId(index as u16)));
        }
        adaptation.share(now, &plan, &self.gate, share);
        drop(adaptation);
        self.resolutions(now)
    }
}

/// What others hold in a replica, and the slots where they are fixed. Windows that are searched for
/// belong to the strategy.
fn share_replica(plan: &Plan, index: usize, share: Option<&ReplicaShare>) {
    let replica = &plan.replicas[index];
    let elsewhere = share.map_or(0.0, |share| share.elsewhere.in_flight.round());
    let portion = share.map_or(Portion::WHOLE, |share| share.portion);
    // `as` saturates and maps NaN to zero.
    replica.set_elsewhere(elsewhere as u32, portion.share());
    if !matches!(plan.config.mode, ModeName::Auto | ModeName::Ilac) {
        let slots = initial_window(&plan.config, replica.weight());
        replica.set_limit(portion.of(slots));
    }
}

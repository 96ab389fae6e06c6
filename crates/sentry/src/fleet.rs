//! Several engines in front of the same replicas: what each says, and what each may use.
//!
//! One engine believes to be alone: it fills every replica to its knee, keeps whole guarantees, and
//! takes what it gets done for capacity. `n` of them hold `n` times as much. So a driver exchanges
//! [`FleetReport`]s between them, and gives each a [`FleetShare`] (the crate `tidegate-fleet`
//! computes it):
//!
//! - windows: a replica holds `W` requests in all, of which this engine may hold its [`Portion`].
//!   In mode `auto` one engine, the leader, searches for `W` with what all of them did; the others
//!   take over what it found ([`LeadWindow`]);
//! - guarantees: each class's rate and burst times the engine's share of its arrivals;
//! - equation 4 of mode `sentry`: requests of others in a replica count as in service.
//!
//! Admission stays where it was: each engine judges by its own queue and by what its part of the
//! windows gets done.
//!
//! What breaks it: engines that are configured differently. Each enforces its own configuration.

use std::time::Duration;

#[cfg(feature = "serde")]
use serde::{Deserialize, Serialize};
use tidegate_control::Timestamp;

use crate::api::ReplicaId;
use crate::mode::PhaseName;

/// The part of a quantity of whole slots that one of several engines gets.
///
/// Engines stand in line, each with an interval of `[0, 1)`; a quantity `n` is divided by
///
/// ```text
/// part = floor(until n + offset) - floor(before n + offset)
/// ```
///
/// so that parts add up to `n` exactly, and each is within one slot of its share. The offset
/// differs between replicas, so that it is not always the same engine that gets less.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
pub struct Portion {
    /// Sum of the shares before this one.
    pub before: f64,
    /// The same, and this one.
    pub until: f64,
    /// Where rounding begins, from 0 to 1.
    pub offset: f64,
    /// Least part, whatever the share: where sessions stick to a replica, or an engine would get
    /// nothing anywhere.
    pub least: u32,
}

impl Portion {
    /// All of it.
    pub const WHOLE: Self = Self {
        before: 0.0,
        until: 1.0,
        offset: 0.0,
        least: 0,
    };

    /// This part of `n`; what has no bound stays without.
    #[must_use]
    pub fn of(self, n: u32) -> u32 {
        if n == u32::MAX || self == Self::WHOLE {
            return n;
        }
        let line = |share: f64| (share * f64::from(n) + self.offset + ROUNDING).floor();
        // `as` saturates and maps NaN to zero.
        let part = (line(self.until) - line(self.before)) as u32;
        part.max(self.least).min(n)
    }

    /// Its size, from 0 to 1.
    #[must_use]
    pub fn share(self) -> f64 {
        self.until - self.before
    }
}

/// Sums of shares are off by some last digits.
const ROUNDING: f64 = 1e-9;

/// What the search of the leader has found for a replica, of all engines together.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
pub struct LeadWindow {
    /// Requests that the replica may hold.
    pub window: u32,
    /// How far the search is.
    pub phase: PhaseName,
    /// A window is tried that may be too small.
    pub tries_less: bool,
}

/// What other engines do in a replica, at the rates of their last reports.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
pub struct Elsewhere {
    /// Requests in flight from them.
    pub in_flight: f64,
    /// Requests that they get done per second.
    pub done_per_second: f64,
    /// Requests that they may hold in it.
    pub windows: f64,
    /// The same, each times the part of the time in which it was full.
    pub full_windows: f64,
    /// Requests done per second meanwhile, over all of the time.
    pub full_done_per_second: f64,
}

/// A replica, in what an engine may use.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
pub struct ReplicaShare {
    /// Which.
    pub replica: ReplicaId,
    /// This engine's part of its slots.
    pub portion: Portion,
    /// What the others do there.
    pub elsewhere: Elsewhere,
    /// What the leader has found; `None` where this engine searches.
    pub lead: Option<LeadWindow>,
}

/// What one of several engines may use, until it is given another.
#[derive(Debug, Clone, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
pub struct FleetShare {
    /// Engines that share, this one included; 1 or less for one that is alone.
    pub engines: u32,
    /// Share of each class's guarantee, by class; 1 where it is missing.
    pub guarantees: Vec<f64>,
    /// Share of what is configured for all and belongs to no replica: fixed rates and windows.
    pub share: f64,
    /// By replica, in the order of ids; one that is missing is this engine's alone.
    pub replicas: Vec<ReplicaShare>,
    /// Requests that wait at the others.
    pub queued_elsewhere: u32,
    /// Whether more arrives than can be served, at engines that get most of the requests.
    pub overloaded: bool,
    /// No window is smaller, so that each engine has a slot in some replica.
    pub window_min: u32,
    /// How long it takes until the others do what this engine says.
    pub lag: Duration,
}

impl FleetShare {
    /// Whether there are others.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.engines > 1
    }

    /// What may be used of a replica; `None` where it is this engine's alone.
    #[must_use]
    pub fn of(&self, replica: ReplicaId) -> Option<&ReplicaShare> {
        let at = self
            .replicas
            .binary_search_by_key(&replica.0, |share| share.replica.0);
        at.ok()
            .map(|at| &self.replicas[at])
            .filter(|_| self.is_shared())
    }
}

/// One class, in what an engine says: totals since its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClassTotals {
    /// Requests that arrived.
    pub arrived: u64,
    /// Requests that were admitted.
    pub admitted: u64,
    /// Of them, by the guarantee.
    pub guaranteed: u64,
}

/// One replica, in what an engine says: totals since its start, and how it is now.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ReplicaTotals {
    /// Which.
    pub replica: ReplicaId,
    /// Requests of this engine in it.
    pub in_flight: u32,
    /// What this engine may hold in it; `None` without a bound.
    pub window: Option<u32>,
    /// Requests done.
    pub done: f64,
    /// Time that requests spent inside, all of them together.
    pub inside_seconds: f64,
    /// Time in which this engine's window was full.
    pub full_seconds: f64,
    /// Requests done meanwhile.
    pub full_done: f64,
    /// What the search has found, where this engine searches.
    pub found: Option<LeadWindow>,
    /// Requests done per second with all of its window full, of all engines together.
    pub capacity: Option<f64>,
}

/// What an engine says about itself.
#[derive(Debug, Clone, PartialEq)]
pub struct FleetReport {
    /// When.
    pub at: Timestamp,
    /// By class.
    pub classes: Vec<ClassTotals>,
    /// By replica that is not retired.
    pub replicas: Vec<ReplicaTotals>,
    /// Requests that wait.
    pub queued: u32,
    /// Whether more arrives than can be served.
    pub overloaded: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(shares: &[f64], offset: f64) -> Vec<Portion> {
        let mut before = 0.0;
        let portion = |share: &f64| {
            let from = before;
            before += share;
            Portion {
                before: from,
                until: before,
                offset,
                least: 0,
            }
        };
        shares.iter().map(portion).collect()
    }

    #[test]
    fn portions_add_up_to_the_whole_and_are_fair_within_one() {
        let shares = [0.13, 0.0, 0.52, 0.05, 0.3];
        for n in 0..200 {
            for offset in [0.0, 0.3, 0.62, 0.99] {
                let parts = line(&shares, offset);
                let sum: u32 = parts.iter().map(|portion| portion.of(n)).sum();
                assert_eq!(sum, n, "offset {offset}");
                for (portion, share) in parts.iter().zip(shares) {
                    let off = f64::from(portion.of(n)) - share * f64::from(n);
                    assert!(off.abs() <= 1.0 + 1e-6, "{share} of {n}: off by {off}");
                }
            }
        }
    }

    #[test]
    fn portion_of_few_slots_differs_between_replicas() {
        // Eight engines, one slot in each of eight replicas: one each.
        let got = |engine: usize| -> u32 {
            let offsets = (0..8).map(|replica| f64::from(replica) / 8.0);
            offsets
                .map(|offset| line(&[0.125; 8], offset)[engine].of(1))
                .sum()
        };
        assert_eq!((0..8).map(got).collect::<Vec<_>>(), [1; 8]);
    }

    #[test]
    fn portion_has_a_least_and_leaves_the_unlimited_alone() {
        let none = Portion {
            until: 0.0,
            least: 1,
            ..Portion::WHOLE
        };
        assert_eq!((none.of(8), none.of(0)), (1, 0));
        assert_eq!(none.of(u32::MAX), u32::MAX);
        assert_eq!(Portion::WHOLE.of(7), 7);
    }
}

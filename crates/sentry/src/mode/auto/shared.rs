//! What the search sees of a replica that several engines share: what this one did in a tick, and
//! what the others do by their last reports ([`crate::fleet`]).

use super::fleet::FleetTick;
use crate::counts::Counts;
use crate::fleet::{Elsewhere, FleetShare, LeadWindow, Portion, ReplicaShare};

/// A replica that several engines share.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shared {
    pub(super) portion: Portion,
    elsewhere: Elsewhere,
    pub(super) lead: Option<LeadWindow>,
}

impl Shared {
    pub(super) fn of(share: &ReplicaShare) -> Self {
        Self {
            portion: share.portion,
            elsewhere: share.elsewhere,
            lead: share.lead,
        }
    }

    /// What all engines did in a tick in which this one did `own`.
    pub(super) fn all(&self, own: &Counts) -> Counts {
        Counts {
            done: own.done + self.elsewhere.done_per_second * own.seconds,
            seconds: own.seconds,
            inside_seconds: own.inside_seconds + self.elsewhere.in_flight * own.seconds,
        }
    }

    /// What all engines did with their windows full, as if of one window:
    ///
    /// ```text
    /// d = Σ dᵢ        t = Σ wᵢ tᵢ / Σ wᵢ
    /// ```
    ///
    /// where the i-th may hold `wᵢ` requests and was full for `tᵢ`. `own` is what this one did
    /// while its `limit` was reached, in a tick of `seconds`.
    pub(super) fn full(&self, own: &Counts, limit: u32, seconds: f64) -> Counts {
        let limit = f64::from(limit);
        let windows = limit + self.elsewhere.windows;
        if windows <= 0.0 {
            return Counts::default();
        }
        let full = limit * own.seconds + self.elsewhere.full_windows * seconds;
        let done = own.done + self.elsewhere.full_done_per_second * seconds;
        Counts::of(done, full / windows)
    }
}

/// What other engines do, of all replicas together.
#[derive(Debug, Clone, Copy)]
pub(super) struct OthersTick {
    queued: u32,
    overloaded: bool,
}

impl OthersTick {
    pub(super) fn of(share: &FleetShare) -> Self {
        Self {
            queued: share.queued_elsewhere,
            overloaded: share.overloaded,
        }
    }

    /// This engine's tick, as if all engines were one.
    pub(super) fn with(self, own: &FleetTick) -> FleetTick {
        let queued = if own.queued.is_finite() {
            own.queued
        } else {
            0.0
        };
        FleetTick {
            waiting: own.waiting || self.queued > 0,
            queued: if self.overloaded {
                f64::INFINITY
            } else {
                queued + f64::from(self.queued)
            },
            overloaded: self.overloaded,
            ..*own
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared(elsewhere: Elsewhere) -> Shared {
        Shared {
            portion: Portion::WHOLE,
            elsewhere,
            lead: None,
        }
    }

    #[test]
    fn engines_together_are_as_one() {
        // A quarter of a window of 8 that is full does 25/s, the rest 75/s.
        let shared = shared(Elsewhere {
            in_flight: 6.0,
            done_per_second: 75.0,
            windows: 6.0,
            full_windows: 6.0,
            full_done_per_second: 75.0,
        });
        let own = Counts {
            inside_seconds: 0.2,
            ..Counts::of(2.5, 0.1)
        };
        let all = shared.all(&own);
        assert!((all.rate() - 100.0).abs() < 1e-9);
        assert!((all.concurrency() - 8.0).abs() < 1e-9);
        let full = shared.full(&Counts::of(2.5, 0.1), 2, 0.1);
        assert!((full.rate() - 100.0).abs() < 1e-9);
        assert!((full.seconds - 0.1).abs() < 1e-9);
        // This engine has nothing to do: the others are full, and show what a window does.
        let full = shared.full(&Counts::default(), 2, 0.1);
        assert!((full.rate() - 100.0).abs() < 1e-9);
    }

    #[test]
    fn nothing_is_full_without_windows() {
        let nothing = shared(Elsewhere::default());
        assert_eq!(nothing.full(&Counts::default(), 0, 0.1), Counts::default());
    }
}

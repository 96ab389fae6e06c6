//! The phases of a replica's search, each with only what exists in it.
//!
//! ```text
//!            requests wait             a crowd, late or gone
//!  ┌──────┐                ┌───────────┐                ┌───────────┐
//!  │ Idle ├───────────────▶│ SlowStart ├───────────────▶│ Searching │◀─┐
//!  └──┬───┘                └───────────┘                └─┬───────┬─┘  │
//!     │        seen without a crowd                       ▲       │    │ far more was done
//!     └───────────────────────────────────────────────────┘       │    │ than the capacity
//!                             throughput is capacity    ┌─────────▼─┐  │
//!                                                       │  Settled  ├──┘
//!                                                       └───────────┘
//! ```
//!
//! - [`Idle`]: no request has waited for the replica yet.
//! - [`SlowStart`]: the first window grows with every completion.
//! - [`Searching`]: whether throughput at a full window is capacity is not known.
//! - [`Settled`]: it is, and the window is kept near the knee.
//!
//! Only [`Phase::enter`] changes the phase. What outlives a phase (the window, throughput, service
//! times) belongs to the [search](super::window).

#[cfg(feature = "serde")]
use schemars::JsonSchema;
#[cfg(feature = "serde")]
use serde::{Deserialize, Serialize};

use super::cause::Cause;
use super::slow_start::SlowStart;
use super::trial::Trial;

/// The phase of a replica's search, by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize, JsonSchema))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum PhaseName {
    /// No request has waited for the replica yet.
    Idle,
    /// The first window grows with every completion.
    SlowStart,
    /// Whether throughput at a full window is capacity is not known.
    Searching,
    /// Throughput at a full window is capacity; the window is kept near the knee.
    Settled,
}

impl PhaseName {
    /// The word in status, events and goldens.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::SlowStart => "slow_start",
            Self::Searching => "searching",
            Self::Settled => "settled",
        }
    }

    /// Whether the diagram has an arrow to the other.
    const fn may_become(self, next: Self) -> bool {
        matches!(
            (self, next),
            (Self::Idle, Self::SlowStart | Self::Searching)
                | (Self::SlowStart | Self::Settled, Self::Searching)
                | (Self::Searching, Self::Settled)
        )
    }
}

/// A change of the phase, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Transition {
    pub(super) from: PhaseName,
    pub(super) to: PhaseName,
    pub(super) cause: Cause,
}

/// The phase of a replica's search.
#[derive(Debug)]
pub(super) enum Phase {
    Idle(Idle),
    SlowStart(SlowStart),
    Searching(Searching),
    Settled(Settled),
}

/// No request has waited for the replica yet.
#[derive(Debug)]
pub(super) struct Idle {
    /// The window that slow start will begin with.
    pub(super) first: f64,
}

/// Whether throughput at a full window is capacity is not known.
#[derive(Debug, Default)]
pub(super) struct Searching {
    trial: Option<Trial>,
}

/// Throughput at a full window is capacity.
#[derive(Debug)]
pub(super) struct Settled {
    trial: Option<Trial>,
    /// A window that did as much as a larger one; the knee is not beyond it.
    pub(super) enough: f64,
    /// What was taken for capacity when the window was last made larger because of it.
    pub(super) outgrown: Option<f64>,
}

impl Default for Settled {
    fn default() -> Self {
        Self {
            trial: None,
            enough: f64::INFINITY,
            outgrown: None,
        }
    }
}

impl Phase {
    pub(super) fn name(&self) -> PhaseName {
        match self {
            Self::Idle(_) => PhaseName::Idle,
            Self::SlowStart(_) => PhaseName::SlowStart,
            Self::Searching(_) => PhaseName::Searching,
            Self::Settled(_) => PhaseName::Settled,
        }
    }

    /// Goes along an arrow of the diagram.
    pub(super) fn enter(&mut self, next: Self, cause: Cause) -> Transition {
        let (from, to) = (self.name(), next.name());
        debug_assert!(from.may_become(to), "{from:?} becomes {to:?}: {cause:?}");
        *self = next;
        Transition { from, to, cause }
    }

    pub(super) fn trial(&self) -> Option<&Trial> {
        match self {
            Self::Searching(searching) => searching.trial.as_ref(),
            Self::Settled(settled) => settled.trial.as_ref(),
            Self::Idle(_) | Self::SlowStart(_) => None,
        }
    }

    pub(super) fn take_trial(&mut self) -> Option<Trial> {
        match self {
            Self::Searching(searching) => searching.trial.take(),
            Self::Settled(settled) => settled.trial.take(),
            Self::Idle(_) | Self::SlowStart(_) => None,
        }
    }

    /// A trial begins or goes on.
    pub(super) fn set_trial(&mut self, trial: Trial) {
        match self {
            Self::Searching(searching) => searching.trial = Some(trial),
            Self::Settled(settled) => settled.trial = Some(trial),
            Self::Idle(_) | Self::SlowStart(_) => {
                debug_assert!(false, "no trial while {:?}", self.name());
            }
        }
    }

    pub(super) fn settled_mut(&mut self) -> Option<&mut Settled> {
        match self {
            Self::Settled(settled) => Some(settled),
            _ => None,
        }
    }

    /// The knee is not beyond this window.
    pub(super) fn enough(&self) -> f64 {
        match self {
            Self::Settled(settled) => settled.enough,
            _ => f64::INFINITY,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transition_says_where_from_and_why() {
        let mut phase = Phase::Idle(Idle { first: 16.0 });
        let transition = phase.enter(Phase::Searching(Searching::default()), Cause::BaseSeen);
        assert_eq!(transition.from, PhaseName::Idle);
        assert_eq!(transition.to, PhaseName::Searching);
        assert_eq!(transition.cause, Cause::BaseSeen);
        assert_eq!(phase.name(), PhaseName::Searching);
    }

    #[test]
    #[should_panic(expected = "Idle becomes Settled")]
    fn transition_that_the_diagram_lacks_is_a_bug() {
        let mut phase = Phase::Idle(Idle { first: 16.0 });
        phase.enter(Phase::Settled(Settled::default()), Cause::NoGain);
    }
}

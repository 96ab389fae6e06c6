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
//! Only [`Phase::enter`] changes the phase; a phase only asks for it ([`Outcome`]). What outlives
//! all phases (the window, throughput, service times) is the [`ReplicaWindow`].
//!
//! [`ReplicaWindow`]: super::replica_window::ReplicaWindow

#[cfg(feature = "serde")]
use schemars::JsonSchema;
#[cfg(feature = "serde")]
use serde::{Deserialize, Serialize};

use tidegate_control::Timestamp;

use super::cause::Cause;
use super::idle::Idle;
use super::searching::Searching;
use super::settled::Settled;
use super::slow_start::SlowStart;
use super::trial::{Trial, Trials};

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

/// What a tick comes to in a phase.
#[derive(Debug, Clone, Copy)]
pub(super) struct Outcome {
    /// Why the window changed, if it did.
    pub(super) window: Option<Cause>,
    /// The phase that begins, and why.
    pub(super) next: Option<(PhaseName, Cause)>,
}

impl Outcome {
    pub(super) const STAYS: Self = Self {
        window: None,
        next: None,
    };

    /// The window changed.
    pub(super) const fn changed(cause: Cause) -> Self {
        Self {
            window: Some(cause),
            next: None,
        }
    }

    /// Another phase begins.
    pub(super) const fn ends(next: PhaseName, cause: Cause) -> Self {
        Self {
            window: None,
            next: Some((next, cause)),
        }
    }

    /// The window changed too.
    pub(super) const fn with_window(self, cause: Cause) -> Self {
        Self {
            window: Some(cause),
            ..self
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

    /// Goes along an arrow of the diagram; where it has none, the phase stays.
    pub(super) fn enter(&mut self, next: PhaseName, cause: Cause, now: Timestamp) -> Transition {
        let from = self.name();
        let before = std::mem::replace(self, Self::Idle(Idle { first: 0.0 }));
        *self = before.become_phase(next, now);
        let to = self.name();
        debug_assert!(
            to == next && from != to,
            "{from:?} becomes {next:?}: {cause:?}"
        );
        Transition { from, to, cause }
    }

    /// The arrows of the diagram, each with what the next phase begins with.
    fn become_phase(self, next: PhaseName, now: Timestamp) -> Self {
        match (self, next) {
            (Self::Idle(idle), PhaseName::SlowStart) => {
                Self::SlowStart(SlowStart::new(idle.first, now))
            }
            (Self::Idle(_) | Self::SlowStart(_), PhaseName::Searching) => {
                let trials = Trials::new(now);
                Self::Searching(Searching { trials })
            }
            (Self::Settled(settled), PhaseName::Searching) => Self::Searching(Searching {
                trials: settled.trials,
            }),
            (Self::Searching(searching), PhaseName::Settled) => {
                Self::Settled(Settled::new(searching.trials))
            }
            (phase, _) => phase,
        }
    }

    pub(super) fn trial(&self) -> Option<&Trial> {
        match self {
            Self::Searching(searching) => searching.trials.running(),
            Self::Settled(settled) => settled.trials.running(),
            Self::Idle(_) | Self::SlowStart(_) => None,
        }
    }

    /// A trial that goes on ends without a finding.
    pub(super) fn cancel_trial(&mut self) {
        match self {
            Self::Searching(searching) => searching.trials.cancel(),
            Self::Settled(settled) => settled.trials.cancel(),
            Self::Idle(_) | Self::SlowStart(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [PhaseName; 4] = [
        PhaseName::Idle,
        PhaseName::SlowStart,
        PhaseName::Searching,
        PhaseName::Settled,
    ];

    fn in_phase(name: PhaseName) -> Phase {
        let now = Timestamp::ZERO;
        match name {
            PhaseName::Idle => Phase::Idle(Idle { first: 16.0 }),
            PhaseName::SlowStart => Phase::SlowStart(SlowStart::new(16.0, now)),
            PhaseName::Searching => Phase::Searching(Searching {
                trials: Trials::new(now),
            }),
            PhaseName::Settled => Phase::Settled(Settled::new(Trials::new(now))),
        }
    }

    #[test]
    fn transition_says_where_from_and_why() {
        let mut phase = in_phase(PhaseName::Idle);
        let transition = phase.enter(PhaseName::Searching, Cause::BaseSeen, Timestamp::ZERO);
        assert_eq!(transition.from, PhaseName::Idle);
        assert_eq!(transition.to, PhaseName::Searching);
        assert_eq!(transition.cause, Cause::BaseSeen);
        assert_eq!(phase.name(), PhaseName::Searching);
    }

    #[test]
    fn transitions_are_those_of_the_diagram() {
        let becomes = |from: PhaseName, to: PhaseName| {
            let next = in_phase(from).become_phase(to, Timestamp::ZERO);
            from != to && next.name() == to
        };
        let pairs = ALL.iter().flat_map(|&from| ALL.map(|to| (from, to)));
        let arrows: Vec<_> = pairs.filter(|&(from, to)| becomes(from, to)).collect();
        let expected = [
            (PhaseName::Idle, PhaseName::SlowStart),
            (PhaseName::Idle, PhaseName::Searching),
            (PhaseName::SlowStart, PhaseName::Searching),
            (PhaseName::Searching, PhaseName::Settled),
            (PhaseName::Settled, PhaseName::Searching),
        ];
        assert_eq!(arrows, expected);
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "Idle becomes Settled")]
    fn transition_that_the_diagram_lacks_is_a_bug() {
        let mut phase = in_phase(PhaseName::Idle);
        phase.enter(PhaseName::Settled, Cause::NoGain, Timestamp::ZERO);
    }
}

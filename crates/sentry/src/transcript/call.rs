//! What stands in a transcript: calls of the engine with their answers, in blocks.
//!
//! A block is a header and entries, all in postcard (varints, no names). Times are differences
//! from the entry before, so that an entry of a request takes about twenty bytes.

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};
use tidegate_control::Timestamp;

use crate::api::{
    Arrival, Content, Ending, Permit, Refusal, ReplicaChange, ReplicaId, Report, Resolution,
    Verdict,
};
use crate::fleet::FleetShare;

/// Version of the blocks.
pub(super) const VERSION: u16 = 3;

/// What a block begins with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Header {
    pub version: u16,
    /// Tells the engines of a recording apart.
    pub engine: u64,
    /// The application's name.
    pub name: String,
    /// Number of the first entry, from 1.
    pub first: u64,
    /// Time from which the first entry's difference counts, in nanoseconds.
    pub base_ns: u64,
}

/// One call and its answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Entry {
    /// Nanoseconds since the entry before; threads may read the clock in another order.
    pub after_ns: i64,
    pub call: Call,
    pub answer: Answer,
}

/// A call that changes the engine. A request has the number of the entry of its arrival.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) enum Call {
    Begin {
        /// The configuration as TOML, which keeps floating-point numbers exactly.
        config: String,
        weights: Vec<NonZeroU32>,
        seed: u64,
    },
    Arrival(Arrival),
    Abandon {
        ticket: u64,
    },
    Reassign {
        number: u64,
    },
    Requeue {
        number: u64,
        bytes: u32,
        deadline: Option<Timestamp>,
    },
    Stream {
        number: u64,
    },
    Pause {
        number: u64,
    },
    Resume {
        number: u64,
    },
    End {
        number: u64,
        ending: Ending,
    },
    Report {
        replica: ReplicaId,
        report: Report,
    },
    Load {
        cpu_share: f64,
    },
    Tick,
    Health {
        replica: ReplicaId,
        up: bool,
    },
    Reconfigure {
        config: String,
        changes: Vec<ReplicaChange>,
    },
    Windows(Vec<(ReplicaId, u32)>),
    DryRun(bool),
    KillSwitch(bool),
    Draining(bool),
    /// Entries from here on were lost.
    Lost,
    Share(Box<FleetShare>),
    Rest {
        until: Timestamp,
    },
}

/// What the engine answered: to the call, and to requests that waited.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(super) struct Answer {
    pub outcome: Outcome,
    pub woken: Vec<(u64, Outcome)>,
}

/// One decision.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(super) enum Outcome {
    #[default]
    Nothing,
    Admit {
        replica: ReplicaId,
        admitted: Timestamp,
        content: Option<Content>,
    },
    Wait {
        ticket: u64,
    },
    Shed(Refusal),
    /// The ticket was, or was not, in the queue.
    Left(bool),
    /// There was nothing else for the request to wait for.
    Refused,
    /// Ids of new replicas.
    Added(Vec<ReplicaId>),
    /// Hash of the events of a tick: every step of every controller.
    Events(u64),
}

impl Outcome {
    pub(super) fn admit(permit: &Permit) -> Self {
        Self::Admit {
            replica: permit.replica,
            admitted: permit.admitted,
            content: permit.content,
        }
    }

    pub(super) fn of_verdict(verdict: &Verdict) -> Self {
        match verdict {
            Verdict::Admit(permit) => Self::admit(permit),
            Verdict::Wait(ticket) => Self::Wait { ticket: ticket.0 },
            Verdict::Shed(refusal) => Self::Shed(*refusal),
        }
    }

    pub(super) fn of_resolution(resolution: &Resolution) -> Self {
        match resolution {
            Resolution::Admit(permit) => Self::admit(permit),
            Resolution::Shed(refusal) => Self::Shed(*refusal),
        }
    }
}

/// Hash of what the controllers did in a tick (FNV-1a of the events' text).
#[derive(Debug)]
pub(super) struct EventHash(u64);

impl EventHash {
    pub(super) const fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    pub(super) const fn value(&self) -> u64 {
        self.0
    }
}

impl std::fmt::Write for EventHash {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        for byte in text.bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        Ok(())
    }
}

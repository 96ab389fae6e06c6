//! What is recorded.

use serde::{Deserialize, Serialize};

/// One request, written when it has ended. Times are microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Request {
    /// Arrival, on the recording's clock.
    pub at_us: u64,
    /// Index into [`Tables::applications`].
    pub application: u16,
    /// Index into [`Tables::classes`].
    pub class: u16,
    /// Keyed hash of the path with its ids folded; 0 is none.
    pub path: u64,
    /// Keyed hash of the tenant; 0 is none.
    pub tenant: u64,
    /// Keyed hash of the client's address and tenant, to 21 bits; 0 is none. Tells a client that
    /// comes back from others, and no more.
    pub client: u32,
    /// What was decided.
    pub decision: Decision,
    /// Why it was not served: index into [`Tables::reasons`] plus one; 0 is none.
    pub reason: u8,
    /// How it ended.
    pub ending: Ending,
    /// Status of the response; 0 without one.
    pub status: u16,
    /// Index into [`Tables::replicas`] plus one; 0 is none.
    pub replica: u16,
    /// Time in the proxy's queue.
    pub waiting_us: u64,
    /// Time in the replica, from the slot granted to the slot given back.
    pub service_us: u64,
    /// From arrival to the last byte for the client.
    pub response_us: u64,
    /// Bytes of the request's body.
    pub request_bytes: u64,
    /// Bytes of the response's body.
    pub response_bytes: u64,
    /// How long after its arrival its answer is worthless, as its client said; 0 when it did not.
    pub deadline_us: u64,
    /// The `Retry-After` of a refusal in milliseconds; 0 without one.
    pub retry_after_ms: u64,
}

impl Request {
    /// When the request was sent to its replica.
    #[must_use]
    pub fn admitted_us(&self) -> u64 {
        self.at_us.saturating_add(self.waiting_us)
    }

    /// When it left its replica.
    #[must_use]
    pub fn left_us(&self) -> u64 {
        self.admitted_us().saturating_add(self.service_us)
    }

    /// Whether a replica got it.
    #[must_use]
    pub fn is_admitted(&self) -> bool {
        matches!(self.decision, Decision::Admitted | Decision::Waited)
    }

    /// Whether it was refused for load.
    #[must_use]
    pub fn is_shed(&self) -> bool {
        matches!(self.decision, Decision::Shed | Decision::ShedWaiting)
    }

    /// Whether it was answered in full by a replica.
    #[must_use]
    pub fn is_served(&self) -> bool {
        self.ending == Ending::Served
    }

    /// The replica's index into [`Tables::replicas`].
    #[must_use]
    pub fn replica_index(&self) -> Option<usize> {
        usize::from(self.replica).checked_sub(1)
    }
}

/// What was decided about a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[repr(u8)]
pub enum Decision {
    /// Nothing: it ended before it came to that.
    #[default]
    None = 0,
    /// Sent to a replica at once.
    Admitted = 1,
    /// Sent to a replica after it had waited.
    Waited = 2,
    /// Refused at once.
    Shed = 3,
    /// Refused after it had waited.
    ShedWaiting = 4,
    /// Rejected: malformed or forbidden.
    Rejected = 5,
}

impl Decision {
    /// Its number in a file.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The decision of a number; numbers of later versions are [`Decision::None`].
    #[must_use]
    pub const fn of_code(code: u64) -> Self {
        match code {
            1 => Self::Admitted,
            2 => Self::Waited,
            3 => Self::Shed,
            4 => Self::ShedWaiting,
            5 => Self::Rejected,
            _ => Self::None,
        }
    }

    /// Its word in exports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Admitted => "admitted",
            Self::Waited => "waited",
            Self::Shed => "shed",
            Self::ShedWaiting => "shed-waiting",
            Self::Rejected => "rejected",
        }
    }
}

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[repr(u8)]
pub enum Ending {
    /// Without a replica: refused or rejected.
    #[default]
    Unsent = 0,
    /// The replica answered in full.
    Served = 1,
    /// The replica failed.
    Failed = 2,
    /// The client left.
    Abandoned = 3,
    /// It became a stream, which is no sample of a service time.
    Streamed = 4,
}

impl Ending {
    /// Its number in a file.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The ending of a number; numbers of later versions are [`Ending::Unsent`].
    #[must_use]
    pub const fn of_code(code: u64) -> Self {
        match code {
            1 => Self::Served,
            2 => Self::Failed,
            3 => Self::Abandoned,
            4 => Self::Streamed,
            _ => Self::Unsent,
        }
    }

    /// Its word in exports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unsent => "unsent",
            Self::Served => "served",
            Self::Failed => "failed",
            Self::Abandoned => "abandoned",
            Self::Streamed => "streamed",
        }
    }
}

/// Something that is not a request: a controller's step, a change of the configuration, of a
/// replica, of the capacity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// When, on the recording's clock.
    pub at_us: u64,
    /// One JSON object with the key `event`.
    pub json: String,
}

impl Event {
    /// Whether it is about this application, or about all.
    #[must_use]
    pub fn concerns(&self, application: &str) -> bool {
        #[derive(Deserialize)]
        struct Named {
            application: Option<String>,
        }
        let named: Option<Named> = serde_json::from_str(&self.json).ok();
        let named = named.and_then(|named| named.application);
        named.is_none_or(|named| named == application)
    }
}

/// What a file says about itself; its first frame.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Meta {
    /// What wrote it, with its version.
    pub program: String,
    /// A random number of the process that wrote it: files of one process have one clock.
    pub process: u64,
    /// Zero of the recording's clock, in microseconds since 1970.
    pub epoch_unix_us: u64,
    /// `requests`, or `inputs` where the engine's inputs are recorded too.
    pub detail: String,
    /// Position of the file in its recording, from 0.
    pub sequence: u64,
    /// Names of what requests refer to by number.
    pub tables: Tables,
    /// The configuration in force, secrets redacted; absent where there was none.
    pub config: Option<serde_json::Value>,
}

/// Names of what requests refer to by number.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Tables {
    /// Applications.
    pub applications: Vec<String>,
    /// Classes, the most important first.
    pub classes: Vec<String>,
    /// Replicas.
    pub replicas: Vec<String>,
    /// Reasons of refusals, rejections and failures.
    pub reasons: Vec<String>,
    /// Of each class, the index of its application; empty where it is not known.
    pub class_applications: Vec<u16>,
    /// Of each replica, the index of its application; empty where it is not known.
    pub replica_applications: Vec<u16>,
}

impl Tables {
    /// The class's name.
    #[must_use]
    pub fn class(&self, request: &Request) -> &str {
        name(&self.classes, Some(usize::from(request.class)))
    }

    /// The application's name.
    #[must_use]
    pub fn application(&self, request: &Request) -> &str {
        name(&self.applications, Some(usize::from(request.application)))
    }

    /// The replica's name; empty without one.
    #[must_use]
    pub fn replica(&self, request: &Request) -> &str {
        name(&self.replicas, request.replica_index())
    }

    /// The reason's name; empty without one.
    #[must_use]
    pub fn reason(&self, request: &Request) -> &str {
        name(&self.reasons, usize::from(request.reason).checked_sub(1))
    }

    /// The number of a reason for [`Request::reason`]; 0 when it is not in the table.
    #[must_use]
    pub fn reason_code(&self, reason: &str) -> u8 {
        let position = self.reasons.iter().position(|known| known == reason);
        position.map_or(0, |at| u8::try_from(at + 1).unwrap_or(0))
    }
}

fn name(names: &[String], index: Option<usize>) -> &str {
    index
        .and_then(|at| names.get(at))
        .map_or("", String::as_str)
}

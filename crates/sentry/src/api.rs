//! The words the engine and its drivers exchange.

use std::num::{NonZeroU32, NonZeroU64};
use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "serde")]
use schemars::JsonSchema;
#[cfg(feature = "serde")]
use serde::{Deserialize, Serialize};
use tidegate_control::Timestamp;

use crate::engine::Unreported;
use crate::occupancy::Place;
use crate::policing::PathKey;
use crate::policing::cost_shares::CostBand;
use crate::policing::io_weight::Run;

/// Index of a class in the configuration; 0 is the most important.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
pub struct ClassId(pub u16);

/// Index of a replica in the configuration in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize, JsonSchema))]
pub struct ReplicaId(pub u16);

/// What the driver knows of a request when it arrives.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
pub struct Arrival {
    /// Its class, by the driver's classifier.
    pub class: ClassId,
    /// Bytes it would hold in memory while it waits.
    pub bytes: u32,
    /// When it is worthless to the client, where the client said so.
    pub deadline: Option<Timestamp>,
    /// The replica it has to go to (a sticky session), while that one is healthy.
    pub sticky: Option<ReplicaId>,
    /// Its path, by a [`PathHasher`](crate::policing::PathHasher): requests of a path cost alike.
    pub path: Option<PathKey>,
    /// A hash of what the operator tells tenants by; those of a class share it fairly.
    pub tenant: Option<u64>,
    /// A hash of its session's name. Once a request of a session was admitted, later ones are
    /// preferred within their class.
    pub session: Option<u64>,
    /// Whether this request may open the session.
    pub session_entry: bool,
    /// What it costs, where its client says so and is believed: milliseconds in a replica, or the
    /// unit in which replicas report ([`CostBy`](crate::CostBy)).
    pub cost: Option<f64>,
}

/// The engine's answer to an arrival.
#[derive(Debug)]
#[must_use]
pub enum Verdict {
    /// Send it now.
    Admit(Permit),
    /// Park it; it comes back among the [`Resolutions`](crate::Resolutions) of a later call.
    Wait(Ticket),
    /// Refuse it now.
    Shed(Refusal),
}

/// How waiting ended.
#[derive(Debug)]
#[must_use]
pub enum Resolution {
    /// Send it now.
    Admit(Permit),
    /// Refuse it now: it can no longer be served in time, or the queue was emptied.
    Shed(Refusal),
}

/// The right to occupy one slot of one replica. Not `Clone`: it ends in [`Sentry::on_end`],
/// exactly once.
///
/// Drivers wrap it in a guard that does so on drop. A permit that is dropped all the same loses no
/// slot: [`Sentry::handle_timeout`] ends it as [`Ending::Unreported`].
///
/// [`Sentry::on_end`]: crate::Sentry::on_end
/// [`Sentry::handle_timeout`]: crate::Sentry::handle_timeout
#[derive(Debug)]
#[must_use]
pub struct Permit {
    /// The request's number in a transcript; 0 where there is none.
    #[cfg_attr(
        not(feature = "serde"),
        expect(dead_code, reason = "transcripts need serde")
    )]
    pub(crate) number: u64,
    pub(crate) replica: ReplicaId,
    pub(crate) class: ClassId,
    pub(crate) arrived: Timestamp,
    pub(crate) admitted: Timestamp,
    pub(crate) path: Option<PathKey>,
    /// Its tenant, for what it costs. A permit is small: no tenant has the key 0.
    pub(crate) tenant: Option<NonZeroU64>,
    /// What was reserved for it, where cost counts.
    pub(crate) cost: Option<CostBand>,
    /// What it found in the replica when it came in.
    pub(crate) place: Place,
    /// Age group of the slot, for finding requests that are in flight for far too long.
    pub(crate) generation: u32,
    /// Counted by the window at the entrance.
    pub(crate) counted: bool,
    /// Became a long stream, or is paused: holds no slot.
    pub(crate) streaming: bool,
    /// Since when it is paused; whether the window at the entrance counted it before.
    pub(crate) paused: Option<(Timestamp, bool)>,
    /// Admitted before, to a replica that turned out to be dead.
    pub(crate) returned: bool,
    /// What the replica is told about optional content, if anything.
    pub(crate) content: Option<Content>,
    /// Where it goes when it is dropped; none once it has ended.
    pub(crate) unreported: Option<Arc<Unreported>>,
}

impl Drop for Permit {
    fn drop(&mut self) {
        let Some(unreported) = self.unreported.take() else {
            return;
        };
        unreported.add(Self {
            unreported: None,
            ..*self
        });
    }
}

/// What a replica is told about the content of one answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
pub(crate) struct Content {
    pub(crate) optional: bool,
    pub(crate) service_target: Option<Duration>,
}

impl Permit {
    /// The slot is given back by the engine: dropping the permit does nothing any more.
    pub(crate) fn disarm(&mut self) {
        self.unreported = None;
    }

    /// Where to send the request.
    #[must_use]
    pub fn replica(&self) -> ReplicaId {
        self.replica
    }

    /// The request's class.
    #[must_use]
    pub fn class(&self) -> ClassId {
        self.class
    }

    /// Whether to include optional content; `None` where the engine does not decide that.
    #[must_use]
    pub fn optional(&self) -> Option<bool> {
        self.content.map(|content| content.optional)
    }

    /// The mean service time the replica should aim at, where its concurrency depends on it.
    #[must_use]
    pub fn service_target(&self) -> Option<Duration> {
        self.content.and_then(|content| content.service_target)
    }

    /// Whether it was admitted before and came back ([`Sentry::requeue`](crate::Sentry::requeue)).
    #[must_use]
    pub fn returned(&self) -> bool {
        self.returned
    }

    /// When the request arrived.
    #[must_use]
    pub fn arrived(&self) -> Timestamp {
        self.arrived
    }

    /// When it was admitted; `admitted - arrived` is its waiting time.
    #[must_use]
    pub fn admitted(&self) -> Timestamp {
        self.admitted
    }
}

/// A place in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ticket(pub(crate) u64);

/// What a replica says about itself; every part is optional, a part that is not finite or not in
/// its range is ignored and counted.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
pub struct Report {
    /// Utilization since its last report, from 0 to 1 (a little above 1 is taken as 1).
    pub utilization: Option<f64>,
    /// Service time of a request as the replica measured it, in seconds.
    pub service_seconds: Option<f64>,
    /// How many requests it wants next: 1 for the one that ended, and the change since.
    pub demand: Option<i64>,
    /// Share of its answers with optional content, where it decides that itself, from 0 to 1.
    pub dimmer: Option<f64>,
    /// Whether an answer has its optional content, where the replica says so.
    pub optional: Option<bool>,
    /// CPU time of a request, in seconds.
    pub cpu_seconds: Option<f64>,
    /// Time the request waited for disk or network, in seconds.
    pub io_seconds: Option<f64>,
    /// Time requests lately waited in the replica before they were started, in seconds.
    pub queue_seconds: Option<f64>,
    /// Requests in the replica, those of other proxies included.
    pub in_service: Option<u32>,
    /// What the request cost, in a unit of the replica's choice.
    pub cost: Option<f64>,
    /// The class of the request whose times and cost are reported.
    pub class: ClassId,
    /// Its path.
    pub path: Option<PathKey>,
    /// Its tenant.
    pub tenant: Option<u64>,
    /// How long the request has been in the replica, as the driver measured it, in seconds. No
    /// time that the replica reports of the request is believed beyond it.
    pub measured_seconds: Option<f64>,
}

impl Report {
    /// The same with its times bounded by what the driver measured; a time that no replica can
    /// mean is left out. CPU and I/O are parts of one time.
    pub(crate) fn bounded(&self) -> Self {
        let Some(measured_s) = self.measured_seconds.filter(|&seconds| is_time(seconds)) else {
            return *self;
        };
        let at_most = |seconds: Option<f64>, most_s: f64| {
            seconds
                .filter(|&seconds| is_time(seconds))
                .map(|seconds| seconds.min(most_s))
        };
        let cpu_seconds = at_most(self.cpu_seconds, measured_s);
        Self {
            service_seconds: at_most(self.service_seconds, measured_s),
            cpu_seconds,
            io_seconds: at_most(self.io_seconds, measured_s - cpu_seconds.unwrap_or(0.0)),
            queue_seconds: at_most(self.queue_seconds, measured_s),
            ..*self
        }
    }

    /// What the request cost a server on its own (003 eq. 2): `cpu + io_weight * io`.
    pub(crate) fn service_cost(&self, io_weight: f64) -> Option<f64> {
        let cpu = self.cpu_seconds.filter(|&seconds| is_time(seconds))?;
        let io = self.io_seconds.filter(|&seconds| is_time(seconds));
        Some(cpu + io_weight * io.unwrap_or(0.0))
    }

    /// What this says about the weight of I/O, with `company` in service.
    pub(crate) fn run(&self, company: f64) -> Option<Run> {
        let time = |seconds: Option<f64>| seconds.filter(|&seconds| is_time(seconds));
        let (cpu_s, io_s) = time(self.cpu_seconds).zip(time(self.io_seconds))?;
        Some(Run {
            cpu_s,
            io_s,
            took_s: time(self.service_seconds).unwrap_or(cpu_s + io_s),
            company,
        })
    }
}

/// Whether a replica can mean it: no request takes longer than a day.
pub(crate) fn is_time(seconds: f64) -> bool {
    (0.0..=86_400.0).contains(&seconds)
}

/// No request costs more, in any unit: what exceeds it is a mistake.
const COST_MAX: f64 = 1e12;

/// Whether a replica can mean this cost.
pub(crate) fn is_cost(cost: f64) -> bool {
    (0.0..=COST_MAX).contains(&cost)
}

/// A change of the list of replicas in [`Sentry::reconfigure`]. Ids of the others stay as they
/// are; an added replica gets a new id, or that of a removed one nothing refers to any more.
///
/// [`Sentry::reconfigure`]: crate::Sentry::reconfigure
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
pub enum ReplicaChange {
    /// One more replica, of this weight.
    Add(NonZeroU32),
    /// It is meant to carry so much, relative to the others.
    Weigh(ReplicaId, NonZeroU32),
    /// It gets no more requests; those in flight end as usual.
    Remove(ReplicaId),
}

/// How an admitted request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Ending {
    /// The replica answered in full; its time is a sample.
    Served,
    /// The replica failed: refused, reset, timed out, or answered malformed bytes.
    Dropped,
    /// The client left. Says nothing about the replica; never a sample. In mode `auto` the slot
    /// is kept for as long as a request takes, because the replica may not have noticed.
    Abandoned,
    /// Not to be counted as a sample for another reason (a stream, a health check).
    Ignored,
    /// Its permit was dropped without [`Sentry::on_end`](crate::Sentry::on_end): a fault of the
    /// driver. Never a sample.
    Unreported,
}

/// A refusal, with what it takes to explain it.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
pub struct Refusal {
    /// Which mechanism refused.
    pub reason: ShedReason,
    /// The class refused.
    pub class: ClassId,
    /// When it makes sense to come back, from the drain rate; at most
    /// [`Refusal::RETRY_AFTER_MAX`].
    pub retry_after: Duration,
    /// What the decision compared, in the unit of the reason ([`ShedReason::unit`]).
    pub measured: f64,
    /// What it was compared with.
    pub limit: f64,
}

impl Refusal {
    /// Longest [`Refusal::retry_after`]: a forecast of more than this is not worth the name.
    pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);
}

/// Which mechanism refused a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum ShedReason {
    /// It would not be answered within its target: queued ahead over the drain rate.
    Predicted,
    /// It waited and can no longer be answered within its target.
    Expired,
    /// The gate's admission rate is used up.
    Rate,
    /// Percent blocking chose it.
    Blocked,
    /// The window at the entrance is full.
    Window,
    /// What is in service already, and what it would cost itself, leave it no time.
    Policed,
    /// The share of its class that fits is used up.
    Threshold,
    /// In overload, its path costs far more than others.
    Costly,
    /// In overload, the share of requests of its cost is used up.
    CostShare,
    /// The queue is full by count.
    QueueFull,
    /// The queue is full by bytes.
    QueueBytes,
    /// No replica is healthy.
    NoReplica,
    /// The operator is draining the proxy.
    Draining,
}

impl ShedReason {
    /// Every reason, in the order of [`ShedReason::index`].
    pub const ALL: [Self; 13] = [
        Self::Predicted,
        Self::Expired,
        Self::Rate,
        Self::Blocked,
        Self::Window,
        Self::Policed,
        Self::Threshold,
        Self::Costly,
        Self::CostShare,
        Self::QueueFull,
        Self::QueueBytes,
        Self::NoReplica,
        Self::Draining,
    ];

    /// Its place in [`ShedReason::ALL`], for arrays of counters.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The unit of a refusal's `measured` and `limit`.
    #[must_use]
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Predicted => "requests ahead",
            Self::Expired | Self::Policed => "seconds",
            Self::Rate => "tokens",
            Self::Blocked => "drawn from 0 to 1",
            Self::Threshold | Self::CostShare => "requests saved up",
            Self::Window | Self::QueueFull => "requests",
            Self::Costly => "requests ahead times cost",
            Self::QueueBytes => "bytes",
            Self::NoReplica | Self::Draining => "",
        }
    }

    /// The word on the wire (`tidegate-shed`), in metrics and in logs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Predicted => "predicted",
            Self::Expired => "expired",
            Self::Rate => "rate",
            Self::Blocked => "blocked",
            Self::Window => "window",
            Self::Policed => "policed",
            Self::Threshold => "threshold",
            Self::Costly => "costly",
            Self::CostShare => "cost-share",
            Self::QueueFull => "queue-full",
            Self::QueueBytes => "queue-bytes",
            Self::NoReplica => "no-replica",
            Self::Draining => "draining",
        }
    }
}

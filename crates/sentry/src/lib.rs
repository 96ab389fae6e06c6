//! The admission engine.
//!
//! A driver (the live proxy, the simulator, somebody's own server) tells the engine what happens
//! and carries out what it decides. The engine reads no clock and opens no socket.
//!
//! # The driver's manual
//!
//! 1. A request arrives: classify it and call [`Sentry::on_arrival`].
//!    - [`Verdict::Admit`]: send it to [`Permit::replica`].
//!    - [`Verdict::Wait`]: park it. Its waiter comes back once among the [`Resolutions`] of a
//!      later call, with a [`Resolution`]. If the client leaves first, call
//!      [`Sentry::on_abandon`] with the ticket.
//!    - [`Verdict::Shed`]: answer with the refusal at once.
//! 2. The upstream fails before it has seen the request: [`Sentry::reassign`] gives another
//!    replica; where none has room, [`Sentry::requeue`] puts the request at the head of the queue.
//! 3. The response's headers arrive and it turns out to be a stream that may last for hours:
//!    [`Sentry::on_stream`]; it no longer holds a slot and is no latency sample.
//! 4. The request ends, whichever way: [`Sentry::on_end`], exactly once per permit.
//! 5. Several engines share the replicas: give the others' drivers [`Sentry::fleet_report`], and
//!    what comes of it to [`Sentry::share`].
//! 6. Timers: call [`Sentry::handle_timeout`] at [`Sentry::poll_timeout`]; calling early is a
//!    no-op.
//!
//! Calls that may free a slot return [`Resolutions`]: take them to their end, and tell each waiter.
//! Everything takes `&self`, and no lock is held between two calls; while there is room only
//! atomics are touched.

mod api;
mod atomic;
mod balance;
mod clamp;
mod class;
mod completion_times;
mod config;
mod contract;
mod counts;
mod engine;
mod error;
mod event;
mod fleet;
pub mod gate;
mod mode;
mod monitor;
mod occupancy;
mod plan;
pub mod policing;
mod queue;
mod quota;
mod random;
mod replica;
mod replica_reports;
mod session;
mod shadow;
mod sla;
mod status;
#[cfg(feature = "serde")]
pub mod transcript;

pub use api::{
    Arrival, ClassId, Ending, Permit, Refusal, ReplicaChange, ReplicaId, Report, Resolution,
    ShedReason, Ticket, Verdict,
};
pub use config::{
    AutoConfig, Balance, Borrowed, ClassBuilder, ClassConfig, CostBy, DEFAULT_CLASS,
    FairnessConfig, Feedback, GateKind, IlacConfig, IlacPreset, LimitsConfig, LowTrafficConfig,
    LqrConfig, Measure, ModeName, PathConfig, PiConfig, PidConfig, Policing, Quantile, QueueConfig,
    SentryConfig, SentryConfigBuilder, SentryModeConfig, SessionConfig, StaticConfig, StepConfig,
    TargetBand, WarmUp,
};
pub use engine::{Resolutions, Sentry};
pub use error::SentryError;
pub use event::{Event, Measurement, Observer, Outlook};
pub use fleet::{
    ClassTotals, Elsewhere, FleetReport, FleetShare, LeadWindow, Portion, ReplicaShare,
    ReplicaTotals,
};
#[cfg(feature = "ablation")]
pub use mode::ablation;
pub use mode::{Cause, PhaseName, tuning_page};
pub use policing::PathKey;
pub use quota::{QuotaExceeded, QuotaLeft, QuotaLimits, QuotaTable};
pub use shadow::{Comparison, ShadowClass, ShadowEngine, ShadowStatus};
pub use status::{
    BandStatus, BrownoutReplica, BrownoutStatus, ClassStatus, ControllerStatus, CostBandStatus,
    GuaranteeStatus, MomentsStatus, PolicingStatus, QueueStatus, ReplicaStatus, Standing, Status,
    TimesStatus,
};

pub mod brownout;

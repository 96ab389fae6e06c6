//! What an operator may say about the protection of one application.
//!
//! Everything is optional. The doc comments of the fields are the reference that operators read.

mod borrowed;
mod builder;
mod classes;
mod ilac;
mod modes;
mod policing;

pub use borrowed::Borrowed;
pub use builder::{ClassBuilder, SentryConfigBuilder};
pub use classes::{ClassConfig, FairnessConfig, SessionConfig, TargetBand};
pub use ilac::{IlacConfig, IlacPreset, Quantile};
pub use modes::{
    AutoConfig, CostBy, Feedback, GateKind, LqrConfig, Measure, PiConfig, PidConfig, StaticConfig,
    StepConfig,
};
pub use policing::{PathConfig, Policing, SentryModeConfig};

#[cfg(feature = "serde")]
use schemars::JsonSchema;
#[cfg(feature = "serde")]
use serde::{Deserialize, Serialize};
use tidegate_config::{Dur, Size};

use crate::error::SentryError;

/// How an application is protected.
#[derive(Debug, Clone, PartialEq, Default)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize, JsonSchema))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct SentryConfig {
    /// Who decides how much is admitted. `auto` needs no tuning; the others are the papers'
    /// controllers; `off` admits everything.
    pub mode: ModeName,
    /// The response time within which an answer is worth something to the client, counted from
    /// the arrival of the request. Without it `auto` derives one from what the service does when
    /// it is just busy.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub target: Option<Dur>,
    /// Classes of requests, the most important first. Without any there is one, `default`.
    pub classes: Vec<ClassConfig>,
    /// How tenants of a class share it.
    pub fairness: FairnessConfig,
    /// Sessions whose requests are preferred within their class once they were admitted.
    pub sessions: SessionConfig,
    /// How a replica is chosen among those with a free slot.
    pub balance: Balance,
    /// Bounds of the central queue.
    pub queue: QueueConfig,
    /// Bounds of the concurrency windows.
    pub limits: LimitsConfig,
    /// When there is too little traffic to learn from.
    pub low_traffic: LowTrafficConfig,
    /// How long a replica that starts or comes back takes to get its full window; during the
    /// same time after the start nothing is shed on a forecast.
    pub warm_up: WarmUp,
    /// Decide and report, but admit everything.
    pub dry_run: bool,
    /// Parameters of mode `auto`.
    pub auto: AutoConfig,
    /// Parameters of mode `static`.
    #[cfg_attr(feature = "serde", serde(rename = "static"))]
    pub fixed: StaticConfig,
    /// Parameters of mode `step`.
    pub step: StepConfig,
    /// Parameters of mode `pi`.
    pub pi: PiConfig,
    /// Parameters of mode `pid`.
    pub pid: PidConfig,
    /// Parameters of mode `lqr`.
    pub lqr: LqrConfig,
    /// Parameters of mode `ilac`.
    pub ilac: IlacConfig,
    /// Parameters of mode `sentry`.
    pub sentry: SentryModeConfig,
    /// What is remembered of paths, in modes `auto` and `sentry`.
    pub paths: PathConfig,
}

/// Who decides how much is admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize, JsonSchema))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
pub enum ModeName {
    /// Concurrency windows that find the smallest concurrency with full throughput, a central
    /// queue, and admission by forecast against the target.
    #[default]
    Auto,
    /// A fixed admission rate, share or window.
    Static,
    /// A fixed step up or down outside a dead band.
    Step,
    /// Proportional-integral control of a measured quantity (PI-gate).
    Pi,
    /// The same with a filtered derivative.
    Pid,
    /// State feedback that balances response time and goodput (LQR-proxy).
    Lqr,
    /// Replicas ask for requests, and optional content is left out before anybody is refused
    /// (ILAC).
    Ilac,
    /// Policing at extreme overload: classes in order of importance, each request judged by
    /// what it will cost against its class's target (Cataclysm).
    Sentry,
    /// Everything is admitted; the engine only balances and measures.
    Off,
}

impl ModeName {
    /// The word in configuration, events and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Static => "static",
            Self::Step => "step",
            Self::Pi => "pi",
            Self::Pid => "pid",
            Self::Lqr => "lqr",
            Self::Ilac => "ilac",
            Self::Sentry => "sentry",
            Self::Off => "off",
        }
    }
}

/// How a replica is chosen among those with a free slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize, JsonSchema))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Balance {
    /// Two at random, the one with the lower recent response time times requests in flight. A
    /// replica that takes far longer than the others gets one request in 400 while they have room.
    #[default]
    PeakEwma,
    /// The one with the fewest requests in flight.
    LeastInFlight,
    /// The one with the most free slots. Mode `ilac` does this whatever is written here: the
    /// replica that asks for most requests gets the next.
    MostFree,
    /// Two at random, the one with fewer requests in flight.
    PowerOfTwo,
    /// By weights that shift requests to replicas with a larger share of full answers, for
    /// replicas that decide about optional content themselves (EPBH; `tidegate nucleus --dimmer`).
    EqualDimmers,
    /// One after the other.
    RoundRobin,
    /// Any.
    Random,
}

/// Bounds of the central queue.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize, JsonSchema))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct QueueConfig {
    /// Most requests that wait at a time.
    pub max_requests: u32,
    /// Most memory that waiting requests may hold.
    pub max_bytes: Size,
}

impl Default for QueueConfig {
    fn default() -> Self {
        Self {
            max_requests: 10_000,
            max_bytes: Size(64 << 20),
        }
    }
}

/// Bounds of the concurrency windows, per replica.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize, JsonSchema))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct LimitsConfig {
    /// Smallest window `auto` may choose.
    pub window_min: u32,
    /// Largest window `auto` may choose, and most requests that `ilac` lets a replica hold.
    pub window_max: u32,
    /// Window `auto` starts with.
    pub window_initial: u32,
    /// Slots of a replica in every other mode: what exceeds them waits in the central queue.
    /// Without it the replicas take whatever the gate lets through.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub slots: Option<u32>,
}

impl Default for LimitsConfig {
    fn default() -> Self {
        Self {
            window_min: 1,
            window_max: 10_000,
            window_initial: 16,
            slots: None,
        }
    }
}

/// When there is too little traffic to learn from.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize, JsonSchema))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct LowTrafficConfig {
    /// With fewer completed requests than this in a control interval, controllers that look at
    /// response time or goodput hold their output, unless their own gate turned requests away.
    pub min_samples: u32,
}

impl Default for LowTrafficConfig {
    fn default() -> Self {
        Self { min_samples: 5 }
    }
}

/// A warm-up time; see [`SentryConfig::warm_up`].
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize, JsonSchema))]
#[cfg_attr(feature = "serde", serde(transparent))]
pub struct WarmUp(pub Dur);

impl Default for WarmUp {
    fn default() -> Self {
        Self(Dur(std::time::Duration::from_secs(1)))
    }
}

/// Name of the only class when none is configured.
pub const DEFAULT_CLASS: &str = "default";

/// Classes have small ids: their counters are arrays.
pub(crate) const CLASSES_MAX: usize = 64;

impl SentryConfig {
    /// Whether the mode asks what a request's path costs.
    #[must_use]
    pub fn remembers_paths(&self) -> bool {
        match self.mode {
            ModeName::Sentry => true,
            ModeName::Auto => self.auto.path_costs || self.auto.cost_fairness > 0.0,
            _ => false,
        }
    }

    /// Checks what the types cannot: ranges, and values that belong together.
    ///
    /// # Errors
    /// The first problem found, with the key as it is written in the file.
    pub fn validate(&self) -> Result<(), SentryError> {
        self.validate_classes()?;
        self.validate_limits()?;
        self.paths.validate()?;
        self.sessions.validate()?;
        modes::validate(self)
    }

    fn validate_limits(&self) -> Result<(), SentryError> {
        let limits = &self.limits;
        if limits.window_min == 0 {
            return Err(SentryError::out_of_range(
                "limits.window_min",
                0,
                "a window below 1 admits nothing",
            ));
        }
        if limits.window_max < limits.window_min {
            return Err(SentryError::out_of_range(
                "limits.window_max",
                limits.window_max,
                "write at least limits.window_min",
            ));
        }
        if self.queue.max_requests >= crate::queue::CAPACITY_MAX {
            return Err(SentryError::out_of_range(
                "queue.max_requests",
                self.queue.max_requests,
                "write less than 16777216; a queue this long helps nobody",
            ));
        }
        if limits.slots == Some(0) {
            return Err(SentryError::out_of_range(
                "limits.slots",
                0,
                "a replica without slots serves nothing: write at least 1, or leave it out",
            ));
        }
        Ok(())
    }
}

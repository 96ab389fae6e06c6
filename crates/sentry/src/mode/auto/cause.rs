//! Why the search of mode `auto` changed a window or its phase.

#[cfg(feature = "serde")]
use schemars::JsonSchema;
#[cfg(feature = "serde")]
use serde::Serialize;

/// Why the search of mode `auto` changed a window or its phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize, JsonSchema))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Cause {
    /// Requests wait for the first time.
    RequestsWait,
    /// The service time without a crowd was seen before any request waited.
    BaseSeen,
    /// Slow start: each completion makes room for two requests.
    SlowStart,
    /// The service is so fast that a larger window delays no request.
    Fast,
    /// Slow start found a crowd, long service times or clients that leave: the first window is
    /// enough to begin with.
    FirstWindowEnough,
    /// Slow start found a crowd in a service that is wider than the first window.
    Wide,
    /// Requests hold each other up too little for throughput to be capacity.
    NoCrowd,
    /// Requests hold each other up, so throughput is capacity.
    Crowd,
    /// The window is as large, or as small, as the configuration allows.
    AtBound,
    /// Far more was done with a larger window than was taken for capacity.
    Outgrown,
    /// The window is below the knee.
    BelowKnee,
    /// The window is far above the knee, and no request waits.
    AboveKnee,
    /// Clients abandon inside the replica.
    AdmittedAbandon,
    /// A trial of a larger window begins.
    TryLarger,
    /// A trial of a smaller window begins.
    TrySmaller,
    /// A larger window brought more throughput: is it the window, or has capacity returned?
    CheckGain,
    /// A larger window brings more throughput.
    Gain,
    /// A larger window brought no more throughput.
    NoGain,
    /// A smaller window brought as much throughput.
    NoLoss,
    /// A smaller window cost throughput.
    Loss,
    /// No request waits any longer, so nothing more can be seen.
    LoadGone,
    /// The proxy of the fleet that searches has found it.
    Leader,
}

impl Cause {
    /// The word in events and goldens.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RequestsWait => "requests_wait",
            Self::BaseSeen => "base_seen",
            Self::SlowStart => "slow_start",
            Self::Fast => "fast",
            Self::FirstWindowEnough => "first_window_enough",
            Self::Wide => "wide",
            Self::NoCrowd => "no_crowd",
            Self::Crowd => "crowd",
            Self::AtBound => "at_bound",
            Self::Outgrown => "outgrown",
            Self::BelowKnee => "below_knee",
            Self::AboveKnee => "above_knee",
            Self::AdmittedAbandon => "admitted_abandon",
            Self::TryLarger => "try_larger",
            Self::TrySmaller => "try_smaller",
            Self::CheckGain => "check_gain",
            Self::Gain => "gain",
            Self::NoGain => "no_gain",
            Self::NoLoss => "no_loss",
            Self::Loss => "loss",
            Self::LoadGone => "load_gone",
            Self::Leader => "leader",
        }
    }
}

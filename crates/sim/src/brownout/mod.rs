//! Brownout replicas behind a balancer: the plant of paper 004.
//!
//! Requests arrive in an open loop; each is served in full or reduced to its mandatory part by one
//! of several replicas, which share their capacity among at most `cap` requests at a time. The
//! controllers are those of [`tidegate_sentry::brownout`], unchanged; or the whole admission engine
//! decides, as in the live proxy.
//!
//! The paper's own simulator has accidents that move its results a little: every generator is
//! seeded alike, so that all replicas draw the same service times; a request that arrives while
//! others wait for a place may overtake them; a raised cap lets in one waiter per completion.
//! [`Setup::reference`] reproduces them, to compare with the published table; without it the plant
//! does the sensible thing.

mod engine;
mod plant;
mod replica;
mod strategy;

pub use plant::{Outcome, TickRow, run};
pub use strategy::{IlacConfig, ReplicaControl, Route, Strategy};

/// Mean service times of one replica, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Speed {
    /// A full response.
    pub full_s: f64,
    /// The mandatory part alone.
    pub mandatory_s: f64,
}

/// A stretch of time with constant load and capacity.
#[derive(Debug, Clone, PartialEq)]
pub struct Phase {
    /// How long it lasts.
    pub duration_s: f64,
    /// Requests per second.
    pub rate: f64,
    /// One entry per replica.
    pub speeds: Vec<Speed>,
    /// Requests that a replica serves at once; the others wait in its line.
    pub cap: usize,
}

/// What is simulated.
#[derive(Debug, Clone, PartialEq)]
pub struct Setup {
    /// One after the other; controllers keep their state.
    pub phases: Vec<Phase>,
    /// Standard deviation of a full response's service time.
    pub full_sd_s: f64,
    /// Standard deviation of a mandatory response's service time.
    pub mandatory_sd_s: f64,
    /// No service takes less.
    pub service_min_s: f64,
    /// Left out of the outcome, except of its rows.
    pub warm_up_s: f64,
    /// Wanted response time at the 95th percentile of full responses.
    pub setpoint_s: f64,
    /// Sampling period of the balancer and of the statistic.
    pub period_s: f64,
    /// Sampling period of the controllers in the replicas.
    pub replica_period_s: f64,
    /// Reproduce the accidents of the paper's simulator.
    pub reference: bool,
}

/// Cap of a replica that has just joined, until it is told another.
const CAP_INITIAL: usize = 15;
/// A new replica appears so much later for each one before it.
const JOIN_DELAY_S: f64 = 0.01;
/// A change of the cap takes effect so much after the other changes of a phase.
const CAP_DELAY_S: f64 = 1.0;

//! The kinds of model that an experiment can name.
//!
//! Each kind is a table of the file (`[model.NAME.scenario]`) that turns a seed into a
//! [`Record`]. Kinds without randomness ignore the seed.

mod brownout;
mod characterization;
mod deferral;
mod design;
mod flow;
mod plane;
mod queue;
mod scenario;

pub use brownout::BrownoutRun;
pub use characterization::CharacterizationRun;
pub use deferral::{AuctionRun, BroadcastRun, CrowdRun, RefusingRun};
pub use design::{LqrDesign, PiDesign};
pub use flow::FlowRun;
pub use queue::QueueTheory;

use serde::Deserialize;

use super::record::Record;
use crate::plane::{HostingSpec, SentriesSpec};
use crate::scenario::Scenario;

/// A model of one kind, with its parameters.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Model {
    /// Clients, a protector and replicas, event by event.
    Scenario(Box<Scenario>),
    /// The discrete-time flow model of 002.
    Flow(FlowRun),
    /// The linear utilization loop of 002: poles and root locus.
    PiDesign(PiDesign),
    /// The state feedback of 000 from a model and weights.
    LqrDesign(LqrDesign),
    /// The characterization of 000, automated.
    Characterization(Box<CharacterizationRun>),
    /// A queue by formula.
    Queue(QueueTheory),
    /// Brownout replicas behind a balancer (004).
    Brownout(Box<BrownoutRun>),
    /// Very many clients that hold back, with fixed parameters (001).
    Crowd(CrowdRun),
    /// Clients that hold back as the server tells them (001).
    Auction(Box<AuctionRun>),
    /// One message over trees of relays (001).
    Broadcast(BroadcastRun),
    /// A server that refuses what it cannot process, at a price (001).
    Refusing(RefusingRun),
    /// Applications that share a pool of servers, under the control plane (003).
    Hosting(Box<HostingSpec>),
    /// Proxies added while the load climbs (003).
    Sentries(SentriesSpec),
}

/// A model cannot be run; the message names the key and the remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ModelError(pub(super) String);

impl ModelError {
    fn from(error: impl std::fmt::Display) -> Self {
        Self(error.to_string())
    }
}

impl Model {
    /// The names of the series of its records.
    #[must_use]
    pub fn series(&self) -> Vec<String> {
        let names: &[&str] = match self {
            Self::Scenario(scenario) => return scenario::series(scenario),
            Self::Flow(_) => &flow::SERIES,
            Self::PiDesign(_) => &design::PI_SERIES,
            Self::LqrDesign(_) => &[],
            Self::Characterization(_) => &characterization::SERIES,
            Self::Queue(_) => &queue::SERIES,
            Self::Brownout(_) => &brownout::SERIES,
            Self::Crowd(_) => &deferral::CROWD_SERIES,
            Self::Auction(_) => &deferral::AUCTION_SERIES,
            Self::Broadcast(_) | Self::Refusing(_) => &[],
            Self::Hosting(spec) => return plane::hosting_series(spec),
            Self::Sentries(_) => &plane::SENTRIES_SERIES,
        };
        names.iter().copied().map(str::to_owned).collect()
    }

    /// The names of the values of its records.
    #[must_use]
    pub fn values(&self) -> Vec<String> {
        let names: &[&str] = match self {
            Self::Scenario(scenario) => return scenario::values(scenario),
            Self::Flow(_) => &[],
            Self::PiDesign(_) => &design::PI_VALUES,
            Self::LqrDesign(model) => return model.values(),
            Self::Characterization(_) => &characterization::VALUES,
            Self::Queue(_) => &queue::VALUES,
            Self::Brownout(_) => &brownout::VALUES,
            Self::Crowd(_) => &deferral::CROWD_VALUES,
            Self::Auction(_) => &deferral::AUCTION_VALUES,
            Self::Broadcast(_) => &deferral::BROADCAST_VALUES,
            Self::Refusing(_) => &deferral::REFUSING_VALUES,
            Self::Hosting(_) => &plane::HOSTING_VALUES,
            Self::Sentries(_) => &[],
        };
        names.iter().copied().map(str::to_owned).collect()
    }

    /// What keeps the model from running, found without running it.
    ///
    /// # Errors
    /// With the cause.
    pub fn check(&self) -> Result<(), ModelError> {
        match self {
            Self::Scenario(scenario) => scenario.check().map_err(ModelError::from),
            Self::Flow(model) => model.check(),
            Self::Characterization(model) => model.check(),
            Self::Brownout(model) => model.check(),
            Self::Crowd(model) => model.check(),
            Self::Auction(model) => model.check(),
            Self::Broadcast(model) => model.check(),
            Self::Refusing(model) => model.check(),
            Self::Hosting(spec) => plane::check_hosting(spec),
            Self::Sentries(spec) => plane::check_sentries(spec),
            // These are cheap: to run them is to check them.
            Self::PiDesign(_) | Self::LqrDesign(_) | Self::Queue(_) => self.run(0).map(drop),
        }
    }

    /// Runs the model once; the same seed gives the same record.
    ///
    /// # Errors
    /// What [`check`](Self::check) finds.
    pub fn run(&self, seed: u64) -> Result<Record, ModelError> {
        match self {
            Self::Scenario(scenario) => scenario::run(scenario, seed),
            Self::Flow(model) => model.run(seed),
            Self::PiDesign(model) => model.run(),
            Self::LqrDesign(model) => model.run(),
            Self::Characterization(model) => model.run(seed),
            Self::Queue(model) => model.run(),
            Self::Brownout(model) => model.run(seed),
            Self::Crowd(model) => model.run(seed),
            Self::Auction(model) => model.run(seed),
            Self::Broadcast(model) => model.run(seed),
            Self::Refusing(model) => model.run(seed),
            Self::Hosting(spec) => plane::run_hosting(spec, seed),
            Self::Sentries(spec) => plane::run_sentries(spec, seed),
        }
    }
}

//! Clients, a protector and replicas together: one run of a service under load.
//!
//! ```text
//! load ─ arrival ─▶ protector ─ admit ─▶ replica ─ done ─▶ served │ streamed
//!          ▲            │ wait ─▶ (wake) admit │ shed     │ client left ─▶ abandoned
//!          │            └ shed                            └ replica died ─▶ dropped
//!          └── retry after a backoff, or the user thinks and sends the next ──┘
//! ```
//!
//! The protector is the engine that also runs in the live proxy ([`SentryProtector`]), a plain
//! balancer ([`NoProtection`]), or anything else that implements [`Protector`]. Every attempt of a
//! client ends exactly once, in one of the [`Fate`]s. Arrivals, work and patience are drawn from
//! streams of their own when a request is born, so that two protections under one seed face the
//! same requests (common random numbers); a retry is the same request again.
//!
//! ```
//! use tidegate_sim::scenario::Scenario;
//!
//! let scenario: Scenario = tidegate_config::parse(
//!     "overload.toml",
//!     r#"
//!     duration = "30s"
//!     warm_up = "5s"
//!     target = "500ms"
//!     service = { law = "exponential", mean = "10ms" }
//!
//!     [load]
//!     rate = [{ at = "0s", value = "80/s" }, { at = "10s", value = "300/s" }]
//!     client = { timeout = "1s", retry = { attempts = 2 } }
//!
//!     [replica]
//!     cores = 1
//!     slots = 50
//!     speed = [{ at = "0s", value = 1 }, { at = "20s", value = 0.5 }]
//!     "#,
//! )
//! .unwrap();
//! let outcome = scenario.run(7).unwrap();
//! assert!(outcome.totals.counts.offered > outcome.totals.counts.served);
//! ```
//!
//! What breaks it: the network takes no time, and the protector's own work costs nothing.

mod fleet;
mod guarded;
mod load;
mod nucleus;
mod one_or_many;
mod outcome;
mod protector;
mod recorder;
mod replica;
mod revenue;
mod spec;
mod trace;
mod unprotected;
mod world;

use tidegate_sentry::{Event, Observer};

use crate::rng::Streams;

pub use fleet::{FleetProtector, FleetSpec, ProxyOutage};
pub use guarded::SentryProtector;
pub use one_or_many::OneOrMany;
pub use outcome::{Counts, Fate, Outcome, Row, Times, Totals};
pub use protector::{Decision, Orders, PoolChange, Protector, RequestId, Wakes};
pub use spec::{
    Abandoned, ClassSpec, LoadSpec, Outage, Protect, ReplicaSpec, Reweighted, Scenario,
    ScenarioError,
};
pub use trace::{Trace, TraceKind, TraceRequest};
pub use unprotected::{Choice, NoProtection};

impl Scenario {
    /// Runs it once; the same seed gives the same outcome.
    ///
    /// # Errors
    /// What [`check`](Self::check) finds.
    pub fn run(&self, seed: u64) -> Result<Outcome, ScenarioError> {
        self.run_with(seed, self.protector(seed)?.as_mut())
    }

    /// Runs it with another protector than the one it names.
    ///
    /// # Errors
    /// What [`check`](Self::check) finds.
    pub fn run_with(
        &self,
        seed: u64,
        protector: &mut dyn Protector,
    ) -> Result<Outcome, ScenarioError> {
        self.run_observed(seed, protector, &mut |_: &Event| {})
    }

    /// Runs it with a protector whose own events somebody wants to see.
    ///
    /// # Errors
    /// What [`check`](Self::check) finds.
    pub fn run_observed(
        &self,
        seed: u64,
        protector: &mut dyn Protector,
        observer: &mut dyn Observer,
    ) -> Result<Outcome, ScenarioError> {
        self.check()?;
        world::run(self, Streams::new(seed), protector, observer)
    }

    /// The protector that it names.
    ///
    /// # Errors
    /// What the engine refuses about its configuration.
    pub fn protector(&self, seed: u64) -> Result<Box<dyn Protector>, ScenarioError> {
        let streams = Streams::new(seed);
        let replicas = self.replica_count();
        Ok(match (&self.protect, &self.fleet) {
            (Protect::Unprotected(choice), _) => Box::new(NoProtection::new(
                *choice,
                replicas,
                streams.stream("balancer"),
            )),
            (Protect::Sentry(config), Some(fleet)) => Box::new(FleetProtector::new(
                fleet,
                config,
                &self.first_weights(),
                &streams,
            )?),
            (Protect::Sentry(config), None) => Box::new(SentryProtector::weighted(
                config,
                &self.first_weights(),
                streams.seed_of("sentry"),
            )?),
        })
    }
}

#[cfg(test)]
mod tests;

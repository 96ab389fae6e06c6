//! What people use today, for comparison: concurrency limits that adapt by published rules, a fixed
//! limit, queues in a server with a gate in front, and a balancer that probes.
//!
//! Each is written from its published equations, with the defaults of the publication. All of them
//! decide by what a client-side limiter or a proxy's filter can see: requests in flight, response
//! times, failures. A request beyond the limit is refused at once; replicas are chosen by the
//! fewest requests in flight, as the proxies that carry these limiters do.
//!
//! | name | source of the rule |
//! | --- | --- |
//! | [`Aimd`] | additive increase, multiplicative decrease (Chiu and Jain 1989), constants of Netflix concurrency-limits |
//! | [`Vegas`] | TCP Vegas (Brakmo 1994) on requests, constants of Netflix concurrency-limits |
//! | [`Gradient2`] | Netflix concurrency-limits, Gradient2 |
//! | [`CoDel`] | RFC 8289 on a queue in front of a fixed number of slots |
//! | [`Fixed`] | a constant |
//! | [`Breakwater`] | credits by queueing delay (OSDI 2020) |
//! | [`Protego`] | credits by marginal throughput (NSDI 2023) |
//! | [`Dagor`] | a level of importance by waiting time (SoCC 2018) |
//! | [`Rajomon`] | a price by queueing delay, against tokens of requests (NSDI 2025) |
//! | [`Cinnamon`] | a PID controller of the rejected share (Uber 2023) |
//! | [`EnvoyAdmission`] | refusing by the success rate (Envoy's admission control) |
//! | [`Prequal`] | balancing by probes (NSDI 2024); it refuses nothing |
//!
//! Breakwater, DAGOR and Rajomon go by the time that requests wait inside their server. A proxy
//! does not see that, so they get a queue of their own in front of slots ([`ServerQueue`]).

mod breakwater;
mod cinnamon;
mod codel;
mod dagor;
mod envoy;
mod levels;
mod limit;
mod prequal;
mod protego;
mod rajomon;
mod rules;
mod server_queue;

pub use breakwater::Breakwater;
pub use cinnamon::Cinnamon;
pub use codel::CoDel;
pub use dagor::Dagor;
pub use envoy::EnvoyAdmission;
pub use limit::{Limit, LimitProtector, Sample};
pub use prequal::Prequal;
pub use protego::Protego;
pub use rajomon::Rajomon;
pub use rules::{Aimd, Fixed, Gradient2, Vegas};
pub use server_queue::{AtGate, Ended, ServerQueue, ServerRule};

use serde::Deserialize;
use tidegate_config::Dur;

use crate::rng::SimRng;
use crate::scenario::Protector;

/// A rival by name, with what a person would have to tune.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(tag = "rule", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Rival {
    /// A constant number of requests in flight.
    Fixed {
        /// The number.
        limit: f64,
    },
    /// Additive increase, multiplicative decrease.
    Aimd {
        /// A response that takes longer counts as a failure.
        timeout: Dur,
    },
    /// Vegas.
    Vegas,
    /// Gradient2.
    Gradient2,
    /// CoDel in front of this many slots.
    Codel {
        /// Requests in flight at once.
        slots: usize,
        /// Acceptable standing delay.
        target: Dur,
        /// How long it may stand.
        interval: Dur,
    },
    /// Breakwater in front of this many slots.
    Breakwater {
        /// Objective of the response time.
        target: Dur,
        /// Requests in service at once.
        slots: usize,
    },
    /// Protego.
    Protego {
        /// Objective of the response time.
        target: Dur,
        /// Credits at first.
        slots: usize,
    },
    /// DAGOR in front of this many slots.
    Dagor {
        /// Objective of the response time.
        target: Dur,
        /// Requests in service at once.
        slots: usize,
    },
    /// Rajomon in front of this many slots.
    Rajomon {
        /// Objective of the response time.
        target: Dur,
        /// Requests in service at once.
        slots: usize,
    },
    /// Cinnamon.
    Cinnamon {
        /// A request that waits longer is rejected.
        timeout: Dur,
    },
    /// Envoy's admission control.
    EnvoyAdmission {
        /// A response that takes longer is no success.
        timeout: Dur,
    },
    /// Prequal, which only balances.
    Prequal,
}

impl Rival {
    /// The protector for `replicas` replicas.
    #[must_use]
    pub fn protector(self, replicas: usize, rng: SimRng) -> Box<dyn Protector> {
        let limited = |limit: Box<dyn Limit>, rng| -> Box<dyn Protector> {
            Box::new(LimitProtector::new(limit, replicas, rng))
        };
        let server = |rule: Box<dyn ServerRule>, rng| -> Box<dyn Protector> {
            Box::new(ServerQueue::new(rule, replicas, rng))
        };
        match self {
            Self::Fixed { limit } => limited(Box::new(Fixed::new(limit)), rng),
            Self::Aimd { timeout } => limited(Box::new(Aimd::new(*timeout)), rng),
            Self::Vegas => limited(Box::<Vegas>::default(), rng),
            Self::Gradient2 => limited(Box::<Gradient2>::default(), rng),
            Self::Codel {
                slots,
                target,
                interval,
            } => Box::new(CoDel::new(slots, *target, *interval, replicas, rng)),
            Self::Breakwater { target, slots } => {
                server(Box::new(Breakwater::new(*target, slots)), rng)
            }
            Self::Protego { target, slots } => server(Box::new(Protego::new(*target, slots)), rng),
            Self::Dagor { target, slots } => server(Box::new(Dagor::new(*target, slots)), rng),
            Self::Rajomon { target, slots } => server(Box::new(Rajomon::new(*target, slots)), rng),
            Self::Cinnamon { timeout } => server(Box::new(Cinnamon::new(*timeout)), rng),
            Self::EnvoyAdmission { timeout } => {
                server(Box::new(EnvoyAdmission::new(*timeout)), rng)
            }
            Self::Prequal => Box::new(Prequal::new(replicas, rng)),
        }
    }
}

//! What people use today, for comparison: concurrency limits that adapt by published rules, a fixed
//! limit, and a queue with CoDel.
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

mod codel;
mod limit;
mod rules;

pub use codel::CoDel;
pub use limit::{Limit, LimitProtector, Sample};
pub use rules::{Aimd, Fixed, Gradient2, Vegas};

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
    /// CoDel in front of so many slots.
    Codel {
        /// Requests in flight at once.
        slots: usize,
        /// Acceptable standing delay.
        target: Dur,
        /// How long it may stand.
        interval: Dur,
    },
}

impl Rival {
    /// The protector for `replicas` replicas.
    #[must_use]
    pub fn protector(self, replicas: usize, rng: SimRng) -> Box<dyn Protector> {
        let limited = |limit: Box<dyn Limit>, rng| -> Box<dyn Protector> {
            Box::new(LimitProtector::new(limit, replicas, rng))
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
        }
    }
}

//! Arrival processes: when requests come.
//!
//! Two independent choices make an open-loop process: how the rate changes with time
//! ([`RateFunction`]: constant, steps, ramps, sinusoidal, a Gaussian rush) and how regular arrivals
//! are at a given rate ([`Spacing`]: Poisson, deterministic, or any law of gaps). A recorded list
//! of times is played back as it is. Closed loops, where users wait for their answer and think, are
//! made of [`client`](crate::client)s.

pub mod rate;
pub mod schedule;

use std::fmt;
use std::sync::Arc;

use serde::de::{self, value::MapAccessDeserializer};
use serde::{Deserialize, Deserializer};
use tidegate_control::Timestamp;

use crate::rng::SimRng;
use crate::service::Law;
use crate::time::after;

pub use rate::RateFunction;
pub use schedule::Schedule;

/// How regular arrivals are: the law of the gaps on the clock on which the rate is 1.
///
/// In a file `"poisson"`, `"deterministic"`, or a [`Law`] as a table, of which only the shape
/// counts.
#[derive(Debug, Clone)]
pub struct Spacing(Law);

impl Default for Spacing {
    fn default() -> Self {
        Self::poisson()
    }
}

impl Spacing {
    /// Independent arrivals.
    #[must_use]
    pub fn poisson() -> Self {
        Self(Law::exponential(1.0))
    }

    /// Equal gaps.
    #[must_use]
    pub fn deterministic() -> Self {
        Self(Law::constant(1.0))
    }

    /// A renewal process with gaps of that shape.
    #[must_use]
    pub fn renewal(law: &Law) -> Self {
        Self(law.normalized())
    }

    /// The law of the gaps, with mean 1.
    #[must_use]
    pub fn law(&self) -> &Law {
        &self.0
    }
}

impl<'de> Deserialize<'de> for Spacing {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Spacing;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"poisson\", \"deterministic\" or a table with the key `law`")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Spacing, E> {
                match text {
                    "poisson" => Ok(Spacing::poisson()),
                    "deterministic" => Ok(Spacing::deterministic()),
                    other => Err(E::unknown_variant(other, &["poisson", "deterministic"])),
                }
            }

            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Spacing, A::Error> {
                let law = Law::deserialize(MapAccessDeserializer::new(map))?;
                match law.mean() {
                    0.0 => Err(de::Error::custom("gaps that are always 0 have no rate")),
                    _ => Ok(Spacing::renewal(&law)),
                }
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

/// An open-loop process that is running: hands out its arrivals one after the other.
#[derive(Debug, Clone)]
pub struct Arrivals {
    kind: Kind,
    rng: SimRng,
}

#[derive(Debug, Clone)]
enum Kind {
    Flow {
        rate: RateFunction,
        spacing: Spacing,
        /// Time of the last arrival in seconds; `None` when there will be no other.
        last: Option<f64>,
    },
    Recorded {
        times: Arc<[Timestamp]>,
        next: usize,
    },
}

impl Arrivals {
    /// Arrivals at `rate` with gaps of the given regularity, from time zero on.
    #[must_use]
    pub fn new(rate: RateFunction, spacing: Spacing, rng: SimRng) -> Self {
        let kind = Kind::Flow {
            rate,
            spacing,
            last: Some(0.0),
        };
        Self { kind, rng }
    }

    /// Arrivals at exactly these times; they are put in order.
    #[must_use]
    pub fn recorded(mut times: Vec<Timestamp>, rng: SimRng) -> Self {
        times.sort_unstable();
        let kind = Kind::Recorded {
            times: times.into(),
            next: 0,
        };
        Self { kind, rng }
    }
}

impl Iterator for Arrivals {
    type Item = Timestamp;

    /// The next arrival, at or after the one before; none when the load has ended for good.
    #[inline]
    fn next(&mut self) -> Option<Timestamp> {
        match &mut self.kind {
            Kind::Flow {
                rate,
                spacing,
                last,
            } => {
                *last = rate.time_of((*last)?, spacing.0.sample(&mut self.rng));
                last.map(|seconds| after(Timestamp::ZERO, seconds))
            }
            Kind::Recorded { times, next } => {
                let time = times.get(*next).copied();
                *next += 1;
                time
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Streams;

    fn count(rate: RateFunction, spacing: Spacing, seconds: f64) -> usize {
        Arrivals::new(rate, spacing, Streams::new(3).stream("arrivals"))
            .take_while(|time| time.as_secs_f64() < seconds)
            .count()
    }

    #[test]
    fn deterministic_arrivals_are_counted_exactly() {
        let rate = RateFunction::constant(8.0);
        assert_eq!(count(rate, Spacing::deterministic(), 10.01), 80);
    }

    /// A count of a Poisson process is Poisson: its mean within five standard deviations.
    #[test]
    fn a_varying_rate_gives_the_mean_count() {
        let ramp = "rate = [{at='0s', value='0/s'}, {at='100s', value='400/s', ramp=true}]";
        let sine = "rate = {shape='sinusoidal', mean='200/s', amplitude='150/s', period='40s'}";
        #[derive(Deserialize)]
        struct File {
            rate: RateFunction,
        }
        for text in [ramp, sine] {
            let rate = tidegate_config::parse::<File>("t.toml", text).unwrap().rate;
            let expected = rate.cumulative(100.0);
            let counted = count(rate, Spacing::poisson(), 100.0) as f64;
            assert!(
                (counted - expected).abs() < 5.0 * expected.sqrt(),
                "{counted}"
            );
        }
    }

    #[test]
    fn renewal_gaps_keep_the_rate() {
        let gaps = Law::exponential(17.0);
        let counted = count(
            RateFunction::constant(100.0),
            Spacing::renewal(&gaps),
            100.0,
        );
        assert!((counted as f64 - 1e4).abs() < 500.0, "{counted}");
    }

    #[test]
    fn recorded_times_are_played_back_in_order() {
        let times = [3, 1, 2].map(Timestamp::from_nanos);
        let rng = Streams::new(1).stream("x");
        let played: Vec<_> = Arrivals::recorded(times.to_vec(), rng).collect();
        assert_eq!(played, [1, 2, 3].map(Timestamp::from_nanos));
    }

    #[test]
    fn a_load_that_ends_stays_ended() {
        let rate = "rate = [{at='0s', value='10/s'}, {at='1s', value='0/s'}]";
        #[derive(Deserialize)]
        struct File {
            rate: RateFunction,
        }
        let rate = tidegate_config::parse::<File>("t.toml", rate).unwrap().rate;
        let mut arrivals =
            Arrivals::new(rate, Spacing::deterministic(), Streams::new(1).stream("x"));
        assert_eq!(arrivals.by_ref().count(), 10);
        assert_eq!(arrivals.next(), None);
    }
}

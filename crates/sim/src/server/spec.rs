//! A server as a file describes it.

use std::fmt;
use std::num::NonZeroU32;

use serde::{Deserialize, Deserializer, de};

/// What a [`Station`](super::Station) is made of. The default is one core behind one queue without
/// end, one job at a time.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StationSpec {
    /// How many jobs can progress at full speed at once.
    pub cores: NonZeroU32,
    /// How many jobs can be in service at once; more than `cores` share them equally. As many as
    /// `cores` when not given.
    pub slots: Option<Bound>,
    /// How many jobs can wait for a slot; the next one is refused.
    pub queue: Bound,
    /// What concurrency costs.
    pub penalty: Option<Penalty>,
}

impl Default for StationSpec {
    fn default() -> Self {
        Self {
            cores: NonZeroU32::MIN,
            slots: None,
            queue: Bound::Unlimited,
            penalty: None,
        }
    }
}

impl StationSpec {
    /// `cores` workers behind one queue: first come first served.
    #[must_use]
    pub fn fifo(cores: NonZeroU32) -> Self {
        Self {
            cores,
            ..Self::default()
        }
    }

    /// One core shared equally by at most `slots` jobs.
    #[must_use]
    pub fn sharing(slots: Bound) -> Self {
        Self {
            slots: Some(slots),
            ..Self::default()
        }
    }

    /// The same server with a bounded queue.
    #[must_use]
    pub fn with_queue(self, queue: Bound) -> Self {
        Self { queue, ..self }
    }

    pub(super) fn slot_count(&self) -> usize {
        self.slots
            .map_or(self.cores.get() as usize, Bound::as_count)
    }
}

/// Throughput falls with concurrency: with `n > knee` jobs in service every core runs at
/// `1 / (1 + slope (n - knee))` of its speed.
///
/// The simplest form of the universal scalability law's contention (Gunther 1993): locks, cache
/// misses, garbage collection, swapping.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Penalty {
    /// Up to here concurrency is free.
    pub knee: u32,
    /// Relative slowdown per job beyond the knee.
    #[serde(deserialize_with = "slope")]
    pub slope: f64,
}

impl Penalty {
    pub(super) fn speed(self, in_service: usize) -> f64 {
        self.speed_at(in_service as f64)
    }

    /// The speed of every core with this many jobs in service, on the mean.
    #[must_use]
    pub fn speed_at(self, in_service: f64) -> f64 {
        let excess = (in_service - f64::from(self.knee)).max(0.0);
        1.0 / (1.0 + self.slope * excess)
    }
}

fn slope<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    let slope = f64::deserialize(deserializer)?;
    if slope >= 0.0 && slope.is_finite() {
        Ok(slope)
    } else {
        Err(de::Error::custom(
            "the slope of a penalty is a number from 0",
        ))
    }
}

/// A number of places: `32`, or `"unlimited"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// At most this many.
    Limited(u32),
    /// As many as come.
    Unlimited,
}

impl Bound {
    pub(super) fn as_count(self) -> usize {
        match self {
            Self::Limited(count) => count as usize,
            Self::Unlimited => usize::MAX,
        }
    }
}

impl<'de> Deserialize<'de> for Bound {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl de::Visitor<'_> for Visitor {
            type Value = Bound;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of places from 0, or \"unlimited\"")
            }

            fn visit_i64<E: de::Error>(self, count: i64) -> Result<Bound, E> {
                u32::try_from(count)
                    .map(Bound::Limited)
                    .map_err(|_| E::invalid_value(de::Unexpected::Signed(count), &self))
            }

            fn visit_u64<E: de::Error>(self, count: u64) -> Result<Bound, E> {
                u32::try_from(count)
                    .map(Bound::Limited)
                    .map_err(|_| E::invalid_value(de::Unexpected::Unsigned(count), &self))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Bound, E> {
                match text {
                    "unlimited" => Ok(Bound::Unlimited),
                    other => Err(E::invalid_value(de::Unexpected::Str(other), &self)),
                }
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

//! Requests that come together: how many, and within what time.
//!
//! A browser that opens a connection, a cron job and clients that were synchronised by an outage
//! send several requests at once. The rate of a load stays its rate in requests per second; what
//! gets rarer is the occasion.
//!
//! ```toml
//! batch = 8                                                # eight at the same instant
//! batch = { size = 8, over = "2ms" }                       # as streams of an HTTP/2 connection
//! batch = { mean = 8 }                                     # geometric: 8 on average
//! fan_out = { requests = 12, after = "20ms", over = "5ms" } # a page, and its 12 parts later
//! ```

use std::fmt;

use rand::RngExt;
use serde::de::{self, value::MapAccessDeserializer};
use serde::{Deserialize, Deserializer};
use tidegate_config::Dur;

use crate::rng::SimRng;
use crate::service::Law;

/// More than this at once is a slip of the finger.
const SIZE_MAX: f64 = 1e6;

/// Requests of one occasion.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Batch {
    size: Size,
    /// They come within this time of the first, in seconds.
    over_s: f64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Size {
    Fixed(u32),
    /// Geometric with this mean, at least one.
    Geometric(f64),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BatchSpec {
    size: Option<u32>,
    mean: Option<f64>,
    #[serde(default)]
    over: Dur,
}

impl Batch {
    /// This many at the same instant.
    #[must_use]
    pub fn fixed(size: u32) -> Self {
        Self {
            size: Size::Fixed(size),
            over_s: 0.0,
        }
    }

    /// Mean number of requests.
    #[must_use]
    pub fn mean(&self) -> f64 {
        match self.size {
            Size::Fixed(size) => f64::from(size),
            Size::Geometric(mean) => mean,
        }
    }

    /// Seconds after the first of each request, in any order.
    pub(super) fn delays(&self, rng: &mut SimRng) -> Vec<f64> {
        let count = self.size.sample(rng);
        let mut delays: Vec<f64> = (1..count).map(|_| self.delay(rng)).collect();
        delays.push(0.0);
        delays
    }

    fn delay(&self, rng: &mut SimRng) -> f64 {
        if self.over_s > 0.0 {
            self.over_s * rng.random::<f64>()
        } else {
            0.0
        }
    }
}

impl Size {
    /// Inverse of the geometric distribution function `1 - (1 - 1/mean)^k`.
    fn sample(self, rng: &mut SimRng) -> u32 {
        match self {
            Self::Fixed(size) => size,
            Self::Geometric(mean) => {
                let none = (-1.0 / mean).ln_1p();
                let count = ((1.0 - rng.random::<f64>()).ln() / none).ceil();
                // `as` saturates and maps NaN to zero.
                (count as u32).clamp(1, SIZE_MAX as u32)
            }
        }
    }
}

impl TryFrom<BatchSpec> for Batch {
    type Error = &'static str;

    fn try_from(spec: BatchSpec) -> Result<Self, Self::Error> {
        let size = match (spec.size, spec.mean) {
            (Some(size), None) => Size::Fixed(size),
            (None, Some(mean)) => Size::Geometric(mean),
            _ => return Err("a batch has one of `size` and `mean`"),
        };
        let batch = Self {
            size,
            over_s: spec.over.as_secs_f64(),
        };
        if (1.0..=SIZE_MAX).contains(&batch.mean()) {
            Ok(batch)
        } else {
            Err("a batch has from one to a million requests")
        }
    }
}

impl<'de> Deserialize<'de> for Batch {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Batch;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of requests, or a table with `size` or `mean`, and `over`")
            }

            fn visit_u64<E: de::Error>(self, size: u64) -> Result<Batch, E> {
                let size = u32::try_from(size).unwrap_or(u32::MAX);
                let spec = BatchSpec {
                    size: Some(size),
                    mean: None,
                    over: Dur::default(),
                };
                spec.try_into().map_err(E::custom)
            }

            fn visit_i64<E: de::Error>(self, size: i64) -> Result<Batch, E> {
                self.visit_u64(u64::try_from(size).unwrap_or(0))
            }

            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Batch, A::Error> {
                let spec = BatchSpec::deserialize(MapAccessDeserializer::new(map))?;
                spec.try_into().map_err(de::Error::custom)
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

/// A page whose parts are asked for some time after it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FanOut {
    /// Parts of a page, itself not counted.
    pub requests: u32,
    /// How long after the page they are asked for.
    #[serde(default = "at_once")]
    pub after: Law,
    /// They come within this time of the first of them.
    #[serde(default)]
    pub over: Dur,
}

fn at_once() -> Law {
    Law::constant(0.0)
}

impl FanOut {
    /// Requests of a page, itself counted.
    pub(super) fn mean(&self) -> f64 {
        1.0 + f64::from(self.requests)
    }

    /// Seconds after the page of itself and each of its parts.
    pub(super) fn delays(&self, rng: &mut SimRng) -> Vec<f64> {
        let after = self.after.sample(rng);
        let parts = Batch {
            size: Size::Fixed(self.requests),
            over_s: self.over.as_secs_f64(),
        };
        let mut delays = vec![0.0];
        if self.requests > 0 {
            delays.extend(parts.delays(rng).into_iter().map(|delay| after + delay));
        }
        delays
    }
}

//! A law as a file writes it, and which of them cannot be.

use std::fmt;

use rand_distr::Gamma;
use serde::de::{self, value::MapAccessDeserializer};
use serde::{Deserialize, Deserializer};
use tidegate_config::{Dur, Share};

use super::{Law, Shape};

/// The table form of a [`Law`].
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(tag = "law", rename_all = "kebab-case", deny_unknown_fields)]
pub enum LawSpec {
    /// Always the same.
    Deterministic {
        /// That time.
        mean: Dur,
    },
    /// No memory.
    Exponential {
        /// Mean time.
        mean: Dur,
    },
    /// Normal, where everything below the floor is the floor; the mean is the one before that.
    Normal {
        /// Mean of the normal law.
        mean: Dur,
        /// Standard deviation of the normal law.
        sd: Dur,
        /// The least time that occurs.
        #[serde(default)]
        floor: Dur,
    },
    /// Its logarithm is normal.
    LogNormal {
        /// Mean time.
        mean: Dur,
        /// Squared coefficient of variation.
        cv2: f64,
    },
    /// Heavy tail: the chance of more than `x` falls like `x^-shape`.
    Pareto {
        /// Mean time.
        mean: Dur,
        /// Above 1; up to 2 there is no variance.
        shape: f64,
    },
    /// A sum of exponential stages: less variable than one.
    Erlang {
        /// Mean time.
        mean: Dur,
        /// How many stages.
        stages: u32,
    },
    /// One of two exponential laws, with balanced means: more variable than one.
    HyperExponential {
        /// Mean time.
        mean: Dur,
        /// Squared coefficient of variation, at least 1.
        cv2: f64,
    },
    /// One of two fixed times.
    Bimodal {
        /// The usual time.
        fast: Dur,
        /// The rare time.
        slow: Dur,
        /// How often the rare one.
        slow_share: Share,
    },
    /// One of several laws.
    Mixture {
        /// The laws, by weight.
        parts: Vec<Part>,
    },
    /// Drawn with equal chance from measured times.
    Recorded {
        /// The measured times.
        times: Vec<Dur>,
    },
}

/// One law of a mixture.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// Weight against the other parts.
    pub share: f64,
    /// What is drawn.
    pub law: LawOrTime,
}

/// A law in either of its two forms.
#[derive(Debug, Clone, PartialEq)]
pub enum LawOrTime {
    /// A bare duration: always that long.
    Time(Dur),
    /// A table.
    Law(Box<LawSpec>),
}

/// Why a law cannot be.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum LawError {
    /// A Pareto law without a mean.
    #[error("a Pareto law has a mean only with a shape above 1, not {0}")]
    Shape(f64),
    /// Hyper-exponential below exponential.
    #[error("a hyper-exponential law has cv2 of at least 1, not {0}; use an Erlang law")]
    TooRegular(f64),
    /// A variation that is no number from 0.
    #[error("cv2 is a number from 0, not {0}")]
    Variation(f64),
    /// An Erlang law of no stages.
    #[error("an Erlang law needs at least one stage")]
    NoStage,
    /// A mixture of nothing.
    #[error("a mixture needs parts, with shares from 0 that are not all 0")]
    NoShare,
    /// Nothing was recorded.
    #[error("a recorded law needs at least one time")]
    NothingRecorded,
}

impl TryFrom<LawSpec> for Law {
    type Error = LawError;

    fn try_from(spec: LawSpec) -> Result<Self, LawError> {
        shape(spec).map(Self::new)
    }
}

impl TryFrom<LawOrTime> for Law {
    type Error = LawError;

    fn try_from(spec: LawOrTime) -> Result<Self, LawError> {
        match spec {
            LawOrTime::Time(time) => Ok(Self::constant(time.as_secs_f64())),
            LawOrTime::Law(law) => (*law).try_into(),
        }
    }
}

fn shape(spec: LawSpec) -> Result<Shape, LawError> {
    Ok(match spec {
        LawSpec::Deterministic { mean } => Shape::Constant(mean.as_secs_f64()),
        LawSpec::Exponential { mean } => Shape::Exponential {
            mean: mean.as_secs_f64(),
        },
        LawSpec::Normal { mean, sd, floor } => Shape::Floored {
            mean: mean.as_secs_f64(),
            sd: sd.as_secs_f64(),
            floor: floor.as_secs_f64(),
        },
        LawSpec::LogNormal { mean, cv2 } => log_normal(mean.as_secs_f64(), cv2)?,
        LawSpec::Pareto { mean, shape } => pareto(mean.as_secs_f64(), shape)?,
        LawSpec::Erlang { mean, stages } => erlang(mean.as_secs_f64(), stages)?,
        LawSpec::HyperExponential { mean, cv2 } => hyper(mean.as_secs_f64(), cv2)?,
        LawSpec::Bimodal {
            fast,
            slow,
            slow_share,
        } => Shape::Mixture(
            [
                (1.0 - slow_share.0, Law::constant(fast.as_secs_f64())),
                (1.0, Law::constant(slow.as_secs_f64())),
            ]
            .into(),
        ),
        LawSpec::Mixture { parts } => mixture(parts)?,
        LawSpec::Recorded { times } if times.is_empty() => return Err(LawError::NothingRecorded),
        LawSpec::Recorded { times } => {
            Shape::Recorded(times.iter().map(|time| time.as_secs_f64()).collect())
        }
    })
}

/// With variance `cv2 * mean^2`: `sigma^2 = ln(1 + cv2)`, `mu = ln mean - sigma^2 / 2`.
fn log_normal(mean: f64, cv2: f64) -> Result<Shape, LawError> {
    if !(cv2 >= 0.0 && cv2.is_finite()) {
        return Err(LawError::Variation(cv2));
    }
    let variance = (1.0 + cv2).ln();
    Ok(Shape::LogNormal {
        mu: mean.ln() - variance / 2.0,
        sigma: variance.sqrt(),
    })
}

fn pareto(mean: f64, shape: f64) -> Result<Shape, LawError> {
    if !(shape > 1.0 && shape.is_finite()) {
        return Err(LawError::Shape(shape));
    }
    Ok(Shape::Pareto {
        least: mean * (shape - 1.0) / shape,
        shape,
    })
}

fn erlang(mean: f64, stages: u32) -> Result<Shape, LawError> {
    let count = f64::from(stages);
    // A scale of zero has no Gamma law, but a time that is always zero is a fair one.
    if mean == 0.0 {
        return Ok(Shape::Constant(0.0));
    }
    let sum = Gamma::new(count, mean / count).map_err(|_| LawError::NoStage)?;
    Ok(Shape::Erlang {
        mean,
        stages: count,
        sum,
    })
}

/// Balanced means: each of the two laws carries half the load, `p1 m1 = p2 m2 = mean / 2`, which
/// gives `p1 = (1 + sqrt((cv2 - 1) / (cv2 + 1))) / 2`.
fn hyper(mean: f64, cv2: f64) -> Result<Shape, LawError> {
    if !(cv2 >= 1.0 && cv2.is_finite()) {
        return Err(LawError::TooRegular(cv2));
    }
    let first = (1.0 + ((cv2 - 1.0) / (cv2 + 1.0)).sqrt()) / 2.0;
    Ok(Shape::Hyper {
        first,
        means: (mean / (2.0 * first), mean / (2.0 * (1.0 - first))),
    })
}

fn mixture(parts: Vec<Part>) -> Result<Shape, LawError> {
    let total: f64 = parts.iter().map(|part| part.share).sum();
    let valid = parts.iter().all(|part| part.share >= 0.0);
    if !(valid && total > 0.0 && total.is_finite()) {
        return Err(LawError::NoShare);
    }
    let mut up_to = 0.0;
    let laws = parts.into_iter().map(|part| {
        up_to += part.share / total;
        Ok((up_to, part.law.try_into()?))
    });
    Ok(Shape::Mixture(laws.collect::<Result<_, LawError>>()?))
}

impl<'de> Deserialize<'de> for LawOrTime {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl<'de> de::Visitor<'de> for Visitor {
            type Value = LawOrTime;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a duration, like \"20ms\", or a table with the key `law`")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<LawOrTime, E> {
                text.parse().map(LawOrTime::Time).map_err(E::custom)
            }

            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<LawOrTime, A::Error> {
                let law = LawSpec::deserialize(MapAccessDeserializer::new(map))?;
                Ok(LawOrTime::Law(Box::new(law)))
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

impl<'de> Deserialize<'de> for Law {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        LawOrTime::deserialize(deserializer)?
            .try_into()
            .map_err(de::Error::custom)
    }
}

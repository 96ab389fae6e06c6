//! Laws of positive times: service, think time, patience, gaps between arrivals.
//!
//! In a file a law is a duration (always that long) or a table:
//!
//! ```
//! use tidegate_sim::service::Law;
//!
//! #[derive(serde::Deserialize)]
//! struct File {
//!     service: Law,
//! }
//!
//! let file: File = tidegate_config::parse(
//!     "shop.toml",
//!     "service = { law = 'log-normal', mean = '25ms', cv2 = 4 }",
//! )
//! .unwrap();
//! assert!((file.service.mean() - 0.025).abs() < 1e-12);
//! assert!((file.service.cv2() - 4.0).abs() < 1e-12);
//! ```
//!
//! A law given by its mean keeps that mean whatever its shape, so that laws can be exchanged at
//! equal load; `cv2` is the squared coefficient of variation, variance over squared mean. What
//! breaks it: a Pareto law with shape at most 2 has no variance, and a mean of samples then
//! converges slower than any confidence interval says.

mod spec;

use std::sync::Arc;

use rand::RngExt;
use rand_distr::{Distribution, Exp1, Gamma, StandardNormal};
use statrs::distribution::{Continuous, ContinuousCDF, Normal};
use statrs::function::gamma::gamma_lr;

use crate::rng::SimRng;

pub use spec::{LawError, LawOrTime, LawSpec, Part};

/// A distribution of times in seconds, ready to be drawn from.
#[derive(Debug, Clone)]
pub struct Law {
    shape: Shape,
    scale: f64,
}

/// The shapes, with what each needs to be drawn fast; times in seconds.
#[derive(Debug, Clone)]
enum Shape {
    Constant(f64),
    Exponential {
        mean: f64,
    },
    /// `max(N(mean, sd), floor)`.
    Floored {
        mean: f64,
        sd: f64,
        floor: f64,
    },
    LogNormal {
        mu: f64,
        sigma: f64,
    },
    Pareto {
        least: f64,
        shape: f64,
    },
    Erlang {
        mean: f64,
        stages: f64,
        sum: Gamma<f64>,
    },
    /// Exponential with mean `means.0` with the chance `first`, else with mean `means.1`.
    Hyper {
        first: f64,
        means: (f64, f64),
    },
    /// Laws with the chance of each or an earlier one.
    Mixture(Arc<[(f64, Law)]>),
    Recorded(Arc<[f64]>),
}

impl Law {
    fn new(shape: Shape) -> Self {
        Self { shape, scale: 1.0 }
    }

    /// Always `seconds`.
    #[must_use]
    pub fn constant(seconds: f64) -> Self {
        Self::new(Shape::Constant(seconds))
    }

    /// Exponential with that mean in seconds.
    #[must_use]
    pub fn exponential(mean: f64) -> Self {
        Self::new(Shape::Exponential { mean })
    }

    /// The same law, every time multiplied by `factor`.
    #[must_use]
    pub fn scaled(&self, factor: f64) -> Self {
        Self {
            shape: self.shape.clone(),
            scale: self.scale * factor,
        }
    }

    /// The same law with mean 1; a law that is always zero stays so.
    #[must_use]
    pub fn normalized(&self) -> Self {
        match self.mean() {
            0.0 => self.clone(),
            mean => self.scaled(1.0 / mean),
        }
    }

    /// Draws a time in seconds.
    #[inline]
    pub fn sample(&self, rng: &mut SimRng) -> f64 {
        self.scale * self.shape.sample(rng)
    }

    /// Mean in seconds.
    #[must_use]
    pub fn mean(&self) -> f64 {
        self.scale * self.shape.moments().0
    }

    /// Squared coefficient of variation: 0 for a constant, 1 for the exponential law, infinite for
    /// a Pareto law with shape at most 2.
    #[must_use]
    pub fn cv2(&self) -> f64 {
        let (mean, square) = self.shape.moments();
        match mean {
            0.0 => 0.0,
            mean => (square / (mean * mean) - 1.0).max(0.0),
        }
    }

    /// Chance of a time of at most this.
    #[must_use]
    pub fn share_within(&self, seconds: f64) -> f64 {
        if self.scale > 0.0 {
            self.shape.share_within(seconds / self.scale)
        } else {
            f64::from(u8::from(seconds >= 0.0))
        }
    }

    /// Whether this is the exponential law (of any mean).
    #[must_use]
    pub fn is_exponential(&self) -> bool {
        matches!(self.shape, Shape::Exponential { .. })
    }

    /// Whether every draw is the same.
    #[must_use]
    pub fn is_constant(&self) -> bool {
        matches!(self.shape, Shape::Constant(_))
    }

    /// Mean and mean square in seconds.
    fn raw_moments(&self) -> (f64, f64) {
        let (mean, square) = self.shape.moments();
        (self.scale * mean, self.scale * self.scale * square)
    }
}

impl Shape {
    #[inline]
    fn sample(&self, rng: &mut SimRng) -> f64 {
        match self {
            Self::Constant(value) => *value,
            Self::Exponential { mean } => mean * unit_exponential(rng),
            Self::Floored { mean, sd, floor } => (mean + sd * unit_normal(rng)).max(*floor),
            Self::LogNormal { mu, sigma } => (mu + sigma * unit_normal(rng)).exp(),
            Self::Pareto { least, shape } => least * open_unit(rng).powf(-1.0 / shape),
            Self::Erlang { sum, .. } => sum.sample(rng),
            Self::Hyper { first, means } => {
                let mean = if rng.random::<f64>() < *first {
                    means.0
                } else {
                    means.1
                };
                mean * unit_exponential(rng)
            }
            Self::Mixture(parts) => {
                let chance = rng.random::<f64>();
                let at = parts.partition_point(|&(up_to, _)| up_to <= chance);
                parts[at.min(parts.len() - 1)].1.sample(rng)
            }
            Self::Recorded(times) => times[rng.random_range(0..times.len())],
        }
    }

    /// Distribution function.
    fn share_within(&self, seconds: f64) -> f64 {
        match self {
            Self::Constant(value) => f64::from(u8::from(*value <= seconds)),
            Self::Exponential { mean } => exponential_within(*mean, seconds),
            Self::Floored { floor, .. } if seconds < *floor => 0.0,
            Self::Floored { mean, sd, .. } if *sd == 0.0 => f64::from(u8::from(*mean <= seconds)),
            Self::Floored { mean, sd, .. } => Normal::standard().cdf((seconds - mean) / sd),
            Self::LogNormal { mu, sigma } => log_normal_within(*mu, *sigma, seconds),
            Self::Pareto { least, .. } if seconds <= *least => 0.0,
            Self::Pareto { least, shape } => 1.0 - (least / seconds).powf(*shape),
            Self::Erlang { mean, stages, .. } if *mean > 0.0 => {
                gamma_lr(*stages, (stages * seconds / mean).max(f64::MIN_POSITIVE))
            }
            Self::Erlang { .. } => 1.0,
            Self::Hyper { first, means } => {
                first * exponential_within(means.0, seconds)
                    + (1.0 - first) * exponential_within(means.1, seconds)
            }
            Self::Mixture(parts) => {
                let mut before = 0.0;
                let part = |(up_to, law): &(f64, Law)| {
                    let share = up_to - before;
                    before = *up_to;
                    share * law.share_within(seconds)
                };
                parts.iter().map(part).sum()
            }
            Self::Recorded(times) => {
                let within = times.iter().filter(|time| **time <= seconds).count();
                within as f64 / times.len() as f64
            }
        }
    }

    /// Mean and mean square.
    fn moments(&self) -> (f64, f64) {
        match self {
            Self::Constant(value) => (*value, value * value),
            Self::Exponential { mean } => (*mean, 2.0 * mean * mean),
            Self::Floored { mean, sd, floor } => floored_normal_moments(*mean, *sd, *floor),
            Self::LogNormal { mu, sigma } => {
                let s2 = sigma * sigma;
                ((mu + s2 / 2.0).exp(), (2.0 * mu + 2.0 * s2).exp())
            }
            Self::Pareto { least, shape } => pareto_moments(*least, *shape),
            Self::Erlang { mean, stages, .. } => (*mean, mean * mean * (1.0 + 1.0 / stages)),
            Self::Hyper { first, means } => (
                first * means.0 + (1.0 - first) * means.1,
                2.0 * (first * means.0.powi(2) + (1.0 - first) * means.1.powi(2)),
            ),
            Self::Mixture(parts) => mixture_moments(parts),
            Self::Recorded(times) => {
                let n = times.len() as f64;
                let squares: f64 = times.iter().map(|time| time * time).sum();
                (times.iter().sum::<f64>() / n, squares / n)
            }
        }
    }
}

#[inline]
pub(crate) fn unit_exponential(rng: &mut SimRng) -> f64 {
    Exp1.sample(rng)
}

fn exponential_within(mean: f64, seconds: f64) -> f64 {
    if mean > 0.0 {
        1.0 - (-seconds.max(0.0) / mean).exp()
    } else {
        1.0
    }
}

fn log_normal_within(mu: f64, sigma: f64, seconds: f64) -> f64 {
    if seconds <= 0.0 {
        return 0.0;
    }
    if sigma > 0.0 {
        Normal::standard().cdf((seconds.ln() - mu) / sigma)
    } else {
        f64::from(u8::from(seconds.ln() >= mu))
    }
}

fn unit_normal(rng: &mut SimRng) -> f64 {
    StandardNormal.sample(rng)
}

/// Uniform on (0, 1]: never the zero whose power would be infinite.
fn open_unit(rng: &mut SimRng) -> f64 {
    1.0 - rng.random::<f64>()
}

/// Moments of `max(N(mean, sd), floor)`.
fn floored_normal_moments(mean: f64, sd: f64, floor: f64) -> (f64, f64) {
    if sd == 0.0 {
        let value = mean.max(floor);
        return (value, value * value);
    }
    let normal = Normal::standard();
    let a = (floor - mean) / sd;
    let (below, above, density) = (normal.cdf(a), normal.sf(a), normal.pdf(a));
    (
        floor * below + mean * above + sd * density,
        floor * floor * below + (mean * mean + sd * sd) * above + sd * (mean + floor) * density,
    )
}

fn pareto_moments(least: f64, shape: f64) -> (f64, f64) {
    let mean = shape * least / (shape - 1.0);
    let square = if shape > 2.0 {
        shape * least * least / (shape - 2.0)
    } else {
        f64::INFINITY
    };
    (mean, square)
}

fn mixture_moments(parts: &[(f64, Law)]) -> (f64, f64) {
    let mut before = 0.0;
    parts
        .iter()
        .fold((0.0, 0.0), |(mean, square), (up_to, law)| {
            let share = up_to - before;
            before = *up_to;
            let (part_mean, part_square) = law.raw_moments();
            (mean + share * part_mean, square + share * part_square)
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Streams;

    fn law(text: &str) -> Law {
        #[derive(serde::Deserialize)]
        struct File {
            law: Law,
        }
        tidegate_config::parse::<File>("t.toml", &format!("law = {text}"))
            .unwrap()
            .law
    }

    fn laws_with_a_variance() -> Vec<Law> {
        [
            "'20ms'",
            "{ law = 'deterministic', mean = '2s' }",
            "{ law = 'exponential', mean = '1s' }",
            "{ law = 'normal', mean = '14ms', sd = '10ms', floor = '100us' }",
            "{ law = 'log-normal', mean = '1s', cv2 = 2 }",
            "{ law = 'pareto', mean = '1s', shape = 6 }",
            "{ law = 'erlang', mean = '3s', stages = 4 }",
            "{ law = 'hyper-exponential', mean = '1s', cv2 = 4 }",
            "{ law = 'bimodal', fast = '10ms', slow = '1s', slow_share = '5%' }",
            "{ law = 'mixture', parts = [ \
                { share = 3, law = '1s' }, \
                { share = 1, law = { law = 'exponential', mean = '5s' } } ] }",
            "{ law = 'recorded', times = ['1s', '2s', '4s'] }",
        ]
        .map(law)
        .into()
    }

    /// What is drawn has the moments that are promised, within five standard errors.
    #[test]
    fn draws_have_the_promised_mean() {
        const DRAWS: usize = 200_000;
        for (index, law) in laws_with_a_variance().iter().enumerate() {
            let mut rng = Streams::new(1).indexed("law", index);
            let sum: f64 = (0..DRAWS).map(|_| law.sample(&mut rng)).sum();
            let sd = law.mean() * law.cv2().sqrt();
            let error = 5.0 * sd / (DRAWS as f64).sqrt() + 1e-9;
            assert!(
                (sum / DRAWS as f64 - law.mean()).abs() <= error,
                "{law:?}: {} is not {}",
                sum / DRAWS as f64,
                law.mean()
            );
        }
    }

    #[test]
    fn draws_have_the_promised_variation() {
        const DRAWS: usize = 400_000;
        for (index, law) in laws_with_a_variance().iter().enumerate() {
            let mut rng = Streams::new(2).indexed("law", index);
            let squares: f64 = (0..DRAWS)
                .map(|_| (law.sample(&mut rng) - law.mean()).powi(2))
                .sum();
            let cv2 = squares / DRAWS as f64 / law.mean().powi(2);
            assert!(
                (cv2 - law.cv2()).abs() <= 0.05 * law.cv2() + 1e-9,
                "{law:?}: {cv2} is not {}",
                law.cv2()
            );
        }
    }

    /// The distribution function is that of the draws, within five standard errors.
    #[test]
    fn share_within_is_the_share_of_draws() {
        const DRAWS: usize = 40_000;
        for (index, law) in laws_with_a_variance().iter().enumerate() {
            let mut rng = Streams::new(3).indexed("law", index);
            let drawn: Vec<f64> = (0..DRAWS).map(|_| law.sample(&mut rng)).collect();
            for times in [0.3, 0.7, 1.001, 2.0, 4.0] {
                let bound = times * law.mean();
                let within = drawn.iter().filter(|time| **time <= bound).count() as f64;
                let (share, expected) = (within / DRAWS as f64, law.share_within(bound));
                let error = 5.0 * (expected * (1.0 - expected) / DRAWS as f64).sqrt() + 1e-3;
                assert!(
                    (share - expected).abs() <= error,
                    "{law:?} within {times} means: {share} is not {expected}"
                );
            }
        }
        assert_eq!(law("'20ms'").scaled(0.5).share_within(0.0101), 1.0);
    }

    #[test]
    fn known_variations() {
        assert_eq!(
            law("{ law = 'erlang', mean = '1s', stages = 4 }").cv2(),
            0.25
        );
        let hyper = law("{ law = 'hyper-exponential', mean = '1s', cv2 = 4 }");
        assert!((hyper.cv2() - 4.0).abs() < 1e-12 && (hyper.mean() - 1.0).abs() < 1e-12);
        assert_eq!(
            law("{ law = 'pareto', mean = '1s', shape = 1.5 }").cv2(),
            f64::INFINITY
        );
    }

    /// reference-ilac: t_o = 0.014 and t_m = 0.0002 with the floor at 0.0001.
    #[test]
    fn the_floor_raises_the_mean() {
        let optional = law("{ law = 'normal', mean = '14ms', sd = '10ms', floor = '0.1ms' }");
        assert!((optional.mean() - 0.014375).abs() < 5e-7, "{optional:?}");
        let mandatory = law("{ law = 'normal', mean = '0.2ms', sd = '1ms', floor = '0.1ms' }");
        assert!((mandatory.mean() - 0.000551).abs() < 5e-7, "{mandatory:?}");
    }

    #[test]
    fn scaling_keeps_the_shape() {
        let slow = law("{ law = 'log-normal', mean = '1s', cv2 = 2 }").scaled(20.0);
        assert!((slow.mean() - 20.0).abs() < 1e-12 && (slow.cv2() - 2.0).abs() < 1e-12);
        assert!((slow.normalized().mean() - 1.0).abs() < 1e-12);
    }

    #[test]
    fn a_law_that_cannot_be_is_refused_with_its_place() {
        #[derive(Debug, serde::Deserialize)]
        struct File {
            #[allow(dead_code)]
            law: Law,
        }
        for (text, message) in [
            (
                "law = { law = 'pareto', mean = '1s', shape = 1 }",
                "t.toml:1:7: a Pareto law has a mean only with a shape above 1, not 1",
            ),
            (
                "law = { law = 'hyper-exponential', mean = '1s', cv2 = 0.5 }",
                "t.toml:1:7: a hyper-exponential law has cv2 of at least 1, not 0.5; use an Erlang law",
            ),
            (
                "law = { law = 'exponential', meen = '1s' }",
                "t.toml:1:7: unknown key `meen`; did you mean `mean`?",
            ),
            (
                "law = { law = 'recorded', times = [] }",
                "t.toml:1:7: a recorded law needs at least one time",
            ),
        ] {
            let error = tidegate_config::parse::<File>("t.toml", text).unwrap_err();
            assert_eq!(error.to_string(), message);
        }
    }
}

//! How an arrival rate changes with time.
//!
//! Arrivals at a rate that varies are arrivals at rate 1 on a clock that runs at speed `rate(t)`:
//! the next one comes when the cumulative rate `Λ(t) = ∫ rate` has grown by one more gap of the
//! unit-rate process (time change; Çinlar 1975). Every shape therefore gives its cumulative rate
//! and the inverse. For Poisson gaps the result is the non-homogeneous Poisson process, exactly and
//! with one random number per arrival.

use std::f64::consts::TAU;
use std::fmt;

use serde::de::{
    self, IntoDeserializer, value::MapAccessDeserializer, value::SeqAccessDeserializer,
};
use serde::{Deserialize, Deserializer};
use statrs::function::erf::erf;
use tidegate_config::{Dur, Rate};

use super::schedule::{Rates, Schedule};

/// An arrival rate as a function of time.
///
/// In a file: a rate (`"40/s"`), a list of points (see [`schedule`](super::schedule)), or a table
/// with a `shape`.
#[derive(Debug, Clone, PartialEq)]
pub enum RateFunction {
    /// Constant, steps and ramps.
    Schedule(Schedule),
    /// `mean + amplitude sin(2π t / period)`.
    Sinusoid(Sinusoid),
    /// `base + (peak - base) exp(-(t - at)² / 2σ²)`.
    Peak(Peak),
}

/// A rate that swings around its mean; `amplitude` at most `mean`.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sinusoid {
    /// Mean rate.
    pub mean: Rate,
    /// Greatest distance from the mean.
    pub amplitude: Rate,
    /// Time from one maximum to the next.
    pub period: Dur,
}

/// A Gaussian rush on top of a base rate.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Peak {
    /// Rate long before and after.
    #[serde(default)]
    pub base: Rate,
    /// Greatest rate.
    pub peak: Rate,
    /// When it is reached.
    pub at: Dur,
    /// Standard deviation: 68 % of the rush come within one of it on either side.
    pub sigma: Dur,
}

#[derive(Deserialize)]
#[serde(tag = "shape", rename_all = "kebab-case")]
enum Shaped {
    Sinusoidal(Sinusoid),
    Gaussian(Peak),
}

impl RateFunction {
    /// The same rate for ever.
    #[must_use]
    pub fn constant(per_second: f64) -> Self {
        Self::Schedule(Schedule::constant(per_second))
    }

    /// Arrivals per second at `seconds`.
    #[must_use]
    pub fn at(&self, seconds: f64) -> f64 {
        match self {
            Self::Schedule(schedule) => schedule.value_at(seconds),
            Self::Sinusoid(sinusoid) => sinusoid.at(seconds),
            Self::Peak(peak) => peak.at(seconds),
        }
    }

    /// The greatest rate.
    #[must_use]
    pub fn max(&self) -> f64 {
        match self {
            Self::Schedule(schedule) => schedule.max(),
            Self::Sinusoid(sinusoid) => sinusoid.mean.0 + sinusoid.amplitude.0,
            Self::Peak(peak) => peak.peak.0.max(peak.base.0),
        }
    }

    /// Mean number of arrivals from time zero to `seconds`.
    #[must_use]
    pub fn cumulative(&self, seconds: f64) -> f64 {
        match self {
            Self::Schedule(schedule) => schedule.area_at(seconds),
            Self::Sinusoid(sinusoid) => sinusoid.cumulative(seconds),
            Self::Peak(peak) => peak.cumulative(seconds),
        }
    }

    /// When the cumulative rate since `seconds` has grown by `amount`; never, when the load ends
    /// before.
    #[must_use]
    pub fn time_of(&self, seconds: f64, amount: f64) -> Option<f64> {
        match self {
            Self::Schedule(schedule) => schedule.time_of(seconds, amount),
            _ => self.solve(seconds, amount),
        }
    }

    /// Newton's method, kept inside a bracket that halves when a step would leave it.
    fn solve(&self, seconds: f64, amount: f64) -> Option<f64> {
        const CLOSE_ENOUGH: f64 = 1e-10; // seconds: a tenth of the clock's nanosecond
        let wanted = self.cumulative(seconds) + amount;
        let (mut low, mut high) = (seconds, self.bracket(seconds, wanted)?);
        let mut time = low;
        while high - low > CLOSE_ENOUGH {
            let excess = self.cumulative(time) - wanted;
            if excess < 0.0 {
                low = time;
            } else {
                high = time;
            }
            let newton = time - excess / self.at(time);
            let next = if newton > low && newton < high {
                newton
            } else {
                0.5 * (low + high)
            };
            if (next - time).abs() < CLOSE_ENOUGH {
                return Some(next);
            }
            time = next;
        }
        Some(time)
    }

    /// A time at which the cumulative rate has passed `wanted`.
    fn bracket(&self, seconds: f64, wanted: f64) -> Option<f64> {
        const FOREVER: f64 = 1e10; // seconds: beyond it a rate that has not done its work never will
        let mut step = 1.0 / self.max().max(1e-9);
        while self.cumulative(seconds + step) < wanted {
            step *= 2.0;
            if step > FOREVER {
                return None;
            }
        }
        Some(seconds + step)
    }
}

impl Sinusoid {
    fn omega(&self) -> f64 {
        TAU / self.period.as_secs_f64()
    }

    fn at(&self, t: f64) -> f64 {
        self.mean.0 + self.amplitude.0 * (self.omega() * t).sin()
    }

    fn cumulative(&self, t: f64) -> f64 {
        let omega = self.omega();
        self.mean.0 * t + self.amplitude.0 * (1.0 - (omega * t).cos()) / omega
    }

    fn check(self) -> Result<Self, &'static str> {
        if self.period.is_zero() {
            Err("the period of a sinusoidal rate cannot be 0")
        } else if self.amplitude.0 > self.mean.0 {
            Err("the amplitude of a sinusoidal rate is at most its mean: rates are not negative")
        } else {
            Ok(self)
        }
    }
}

impl Peak {
    fn deviation(&self, t: f64) -> f64 {
        (t - self.at.as_secs_f64()) / self.sigma.as_secs_f64()
    }

    fn at(&self, t: f64) -> f64 {
        let z = self.deviation(t);
        self.base.0 + (self.peak.0 - self.base.0) * (-0.5 * z * z).exp()
    }

    fn cumulative(&self, t: f64) -> f64 {
        let up_to = |t| erf(self.deviation(t) / std::f64::consts::SQRT_2);
        let sigma = self.sigma.as_secs_f64();
        let bell = sigma * (TAU / 4.0).sqrt() * (up_to(t) - up_to(0.0));
        self.base.0 * t + (self.peak.0 - self.base.0) * bell
    }

    fn check(self) -> Result<Self, &'static str> {
        if self.sigma.is_zero() {
            Err("the sigma of a Gaussian rate cannot be 0")
        } else {
            Ok(self)
        }
    }
}

impl<'de> Deserialize<'de> for RateFunction {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RateVisitor)
    }
}

struct RateVisitor;

impl<'de> de::Visitor<'de> for RateVisitor {
    type Value = RateFunction;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "a rate like \"40/s\", a list of points with `at` and `value`, or a table with a `shape`",
        )
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<RateFunction, E> {
        let rates = Rates::deserialize(text.into_deserializer())?;
        Ok(RateFunction::Schedule(Schedule::clone(&rates)))
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, seq: A) -> Result<RateFunction, A::Error> {
        let rates = Rates::deserialize(SeqAccessDeserializer::new(seq))?;
        Ok(RateFunction::Schedule(Schedule::clone(&rates)))
    }

    fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<RateFunction, A::Error> {
        let function = match Shaped::deserialize(MapAccessDeserializer::new(map))? {
            Shaped::Sinusoidal(sinusoid) => sinusoid.check().map(RateFunction::Sinusoid),
            Shaped::Gaussian(peak) => peak.check().map(RateFunction::Peak),
        };
        function.map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(text: &str) -> Result<RateFunction, tidegate_config::ConfigError> {
        #[derive(Deserialize)]
        struct File {
            rate: RateFunction,
        }
        tidegate_config::parse::<File>("t.toml", &format!("rate = {text}")).map(|file| file.rate)
    }

    fn shapes() -> [RateFunction; 4] {
        [
            "'40/s'",
            "[{ at = '0s', value = '5/s' }, { at = '100s', value = '50/s', ramp = true }]",
            "{ shape = 'sinusoidal', mean = '10/s', amplitude = '10/s', period = '30s' }",
            "{ shape = 'gaussian', base = '1/s', peak = '100/s', at = '60s', sigma = '10s' }",
        ]
        .map(|text| rate(text).unwrap())
    }

    #[test]
    fn the_cumulative_rate_is_the_integral() {
        for shape in shapes() {
            let step = 1e-3;
            let sum: f64 = (0..120_000)
                .map(|i| step * shape.at((f64::from(i) + 0.5) * step))
                .sum();
            assert!(
                (sum - shape.cumulative(120.0)).abs() < 1e-3 * sum,
                "{shape:?}"
            );
        }
    }

    #[test]
    fn the_inverse_undoes_the_integral() {
        for shape in shapes() {
            for (from, amount) in [(0.0, 0.01), (3.3, 1.0), (22.5, 1e-3), (70.0, 500.0)] {
                let to = shape.time_of(from, amount).unwrap();
                let grown = shape.cumulative(to) - shape.cumulative(from);
                assert!(
                    (grown - amount).abs() < 1e-6,
                    "{shape:?}: {grown}, not {amount}"
                );
            }
        }
    }

    #[test]
    fn a_rush_without_a_base_ends() {
        let rush =
            rate("{ shape = 'gaussian', peak = '10/s', at = '60s', sigma = '10s' }").unwrap();
        let total = rush.cumulative(1e6);
        assert!(rush.time_of(0.0, 0.999 * total).is_some());
        assert_eq!(rush.time_of(0.0, 1.001 * total), None);
    }

    #[test]
    fn impossible_rates_are_refused() {
        for (text, part) in [
            (
                "{ shape = 'sinusoidal', mean = '1/s', amplitude = '2/s', period = '1s' }",
                "at most its mean",
            ),
            (
                "{ shape = 'gaussian', peak = '1/s', at = '1s', sigma = '0s' }",
                "sigma",
            ),
            (
                "{ shape = 'sinusoid', mean = '1/s' }",
                "did you mean `sinusoidal`",
            ),
            (
                "{ shape = 'gaussian', peek = '1/s' }",
                "did you mean `peak`",
            ),
            ("40", "a rate like"),
        ] {
            let error = rate(text).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}

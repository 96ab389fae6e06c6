//! A rate that chance changes: phases, each with its share of the rate and its length.
//!
//! With lengths that are exponential it is a Markov-modulated process; two phases of which one has
//! no arrivals are an on-off source. `times` is relative: the mean over time is the load's rate.
//!
//! ```toml
//! # 100 ms at four times the mean rate, then 300 ms of nothing.
//! phases = [{ times = 1, lasts = "100ms" }, { times = 0, lasts = "300ms" }]
//! # Calm and busy, each for a time that is exponential.
//! phases = [
//!     { times = 1, lasts = { law = "exponential", mean = "2s" } },
//!     { times = 3, lasts = { law = "exponential", mean = "500ms" } },
//! ]
//! ```

use serde::Deserialize;

use super::rate::RateFunction;
use crate::rng::SimRng;
use crate::service::Law;

/// One phase.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Phase {
    /// Its rate, relative to that of the other phases.
    pub times: f64,
    /// How long it lasts.
    pub lasts: Law,
}

/// Phases that follow each other for ever; none is a rate that does not change.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(try_from = "Vec<Phase>")]
pub struct Phases(Vec<Phase>);

impl TryFrom<Vec<Phase>> for Phases {
    type Error = &'static str;

    /// Makes the mean over time 1.
    fn try_from(mut phases: Vec<Phase>) -> Result<Self, Self::Error> {
        let from_zero = |phase: &Phase| phase.times >= 0.0 && phase.times.is_finite();
        if !phases.iter().all(from_zero) {
            return Err("`times` of a phase is a number from 0");
        }
        if phases.iter().any(|phase| phase.lasts.mean() <= 0.0) {
            return Err("a phase `lasts` longer than 0");
        }
        let length: f64 = phases.iter().map(|phase| phase.lasts.mean()).sum();
        let area: f64 = phases
            .iter()
            .map(|phase| phase.times * phase.lasts.mean())
            .sum();
        if !phases.is_empty() && area <= 0.0 {
            return Err("`times` cannot be 0 in all phases");
        }
        for phase in &mut phases {
            phase.times *= length / area;
        }
        Ok(Self(phases))
    }
}

impl Phases {
    /// The greatest rate over the mean rate.
    #[must_use]
    pub fn peak(&self) -> f64 {
        let times = self.0.iter().map(|phase| phase.times);
        times.reduce(f64::max).unwrap_or(1.0)
    }
}

/// Phases while they run.
#[derive(Debug, Clone)]
pub(super) struct Clock {
    phases: Phases,
    at: usize,
    /// When the present phase ends, in seconds.
    ends: f64,
}

impl Clock {
    pub(super) fn new(phases: Phases, rng: &mut SimRng) -> Self {
        let ends = match phases.0.first() {
            Some(first) => first.lasts.sample(rng),
            None => f64::INFINITY,
        };
        let at = 0;
        Self { phases, at, ends }
    }

    /// When the integral of `rate` times the phase, since `seconds`, has grown by `amount`.
    pub(super) fn time_of(
        &mut self,
        rate: &RateFunction,
        mut seconds: f64,
        mut amount: f64,
        rng: &mut SimRng,
    ) -> Option<f64> {
        while self.ends.is_finite() {
            let times = self.phases.0[self.at].times;
            let grows = times * (rate.cumulative(self.ends) - rate.cumulative(seconds));
            if grows >= amount && times > 0.0 {
                return rate.time_of(seconds, amount / times);
            }
            // A rate that is 0 for good ends the load in any phase.
            rate.time_of(self.ends, f64::MIN_POSITIVE)?;
            amount -= grows;
            seconds = self.ends;
            self.next_phase(rng);
        }
        rate.time_of(seconds, amount)
    }

    fn next_phase(&mut self, rng: &mut SimRng) {
        self.at = (self.at + 1) % self.phases.0.len();
        self.ends += self.phases.0[self.at].lasts.sample(rng);
    }
}

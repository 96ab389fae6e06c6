//! Arrival processes: when requests come.
//!
//! Two independent choices make an open-loop process: how the rate changes with time
//! ([`RateFunction`]: constant, steps, ramps, sinusoidal, a Gaussian rush) and how regular arrivals
//! are at a given rate ([`Pattern`]): gaps that are Poisson, deterministic or of any law
//! ([`Spacing`]), requests that come together ([`batch`]), and phases that chance changes
//! ([`phases`]). A recorded list of times is played back as it is. Closed loops, where users wait
//! for their answer and think, are made of [`client`](crate::client)s.

pub mod batch;
pub mod phases;
pub mod rate;
pub mod schedule;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;
use std::sync::Arc;

use serde::de::{self, value::MapAccessDeserializer};
use serde::{Deserialize, Deserializer};
use tidegate_control::Timestamp;

use crate::rng::SimRng;
use crate::service::Law;
use crate::time::after;

pub use batch::{Batch, FanOut};
pub use phases::Phases;
pub use rate::RateFunction;
pub use schedule::Schedule;

/// How regular the arrivals of an open loop are at a given rate.
#[derive(Debug, Clone, Default)]
pub struct Pattern {
    /// Gaps between occasions.
    pub spacing: Spacing,
    /// Requests of an occasion.
    pub batch: Option<Batch>,
    /// Parts of a page, in place of a batch.
    pub fan_out: Option<FanOut>,
    /// How chance changes the rate.
    pub phases: Phases,
}

impl From<Spacing> for Pattern {
    fn from(spacing: Spacing) -> Self {
        Self {
            spacing,
            ..Self::default()
        }
    }
}

impl Pattern {
    /// Requests of an occasion, on average.
    fn size(&self) -> f64 {
        let batch = self.batch.as_ref().map(Batch::mean);
        let page = self.fan_out.as_ref().map(FanOut::mean);
        batch.or(page).unwrap_or(1.0)
    }

    /// What is wrong with it.
    ///
    /// # Errors
    /// Keys that do not fit together.
    pub fn check(&self) -> Result<(), &'static str> {
        match (&self.batch, &self.fan_out) {
            (Some(_), Some(_)) => Err("a load has `batch` or `fan_out`, not both"),
            _ => Ok(()),
        }
    }

    /// Seconds after an occasion of its requests.
    fn delays(&self, rng: &mut SimRng) -> Vec<f64> {
        match (&self.batch, &self.fan_out) {
            (Some(batch), _) => batch.delays(rng),
            (None, Some(page)) => page.delays(rng),
            (None, None) => vec![0.0],
        }
    }
}

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
    Flow(Box<Flow>),
    Recorded {
        times: Arc<[Timestamp]>,
        next: usize,
    },
}

/// Occasions at a rate, and the requests of those that have come.
#[derive(Debug, Clone)]
struct Flow {
    rate: RateFunction,
    pattern: Pattern,
    clock: phases::Clock,
    /// Time of the next occasion in seconds; `None` when there will be no other.
    next: Option<f64>,
    /// Requests of occasions before that.
    pending: BinaryHeap<Reverse<Timestamp>>,
}

impl Flow {
    fn new(rate: RateFunction, pattern: Pattern, rng: &mut SimRng) -> Self {
        let clock = phases::Clock::new(pattern.phases.clone(), rng);
        let mut flow = Self {
            rate,
            pattern,
            clock,
            next: Some(0.0),
            pending: BinaryHeap::new(),
        };
        flow.advance(rng);
        flow
    }

    /// To the next occasion: on the clock on which the rate is 1 as many requests later as one has.
    fn advance(&mut self, rng: &mut SimRng) {
        let gap = self.pattern.spacing.0.sample(rng) * self.pattern.size();
        let from = self.next;
        self.next = from.and_then(|from| self.clock.time_of(&self.rate, from, gap, rng));
    }

    fn next(&mut self, rng: &mut SimRng) -> Option<Timestamp> {
        while let Some(seconds) = self.next {
            let occasion = after(Timestamp::ZERO, seconds);
            if let Some(Reverse(first)) = self.pending.peek()
                && *first <= occasion
            {
                break;
            }
            for delay in self.pattern.delays(rng) {
                self.pending
                    .push(Reverse(after(Timestamp::ZERO, seconds + delay)));
            }
            self.advance(rng);
        }
        self.pending.pop().map(|Reverse(time)| time)
    }
}

impl Arrivals {
    /// Arrivals at `rate` with the given regularity, from time zero on.
    #[must_use]
    pub fn new(rate: RateFunction, pattern: impl Into<Pattern>, mut rng: SimRng) -> Self {
        let kind = Kind::Flow(Box::new(Flow::new(rate, pattern.into(), &mut rng)));
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
            Kind::Flow(flow) => flow.next(&mut self.rng),
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

    fn arrivals(text: &str, seconds: f64) -> Vec<f64> {
        #[derive(Deserialize)]
        #[serde(default)]
        struct File {
            spacing: Spacing,
            batch: Option<Batch>,
            fan_out: Option<FanOut>,
            phases: Phases,
        }
        impl Default for File {
            fn default() -> Self {
                let Pattern {
                    spacing,
                    batch,
                    fan_out,
                    phases,
                } = Pattern::default();
                Self {
                    spacing,
                    batch,
                    fan_out,
                    phases,
                }
            }
        }
        let file: File = tidegate_config::parse("t.toml", text).unwrap();
        let pattern = Pattern {
            spacing: file.spacing,
            batch: file.batch,
            fan_out: file.fan_out,
            phases: file.phases,
        };
        let rng = Streams::new(5).stream("arrivals");
        Arrivals::new(RateFunction::constant(80.0), pattern, rng)
            .map(Timestamp::as_secs_f64)
            .take_while(|time| *time < seconds)
            .collect()
    }

    #[test]
    fn batches_keep_the_rate_and_come_together() {
        let times = arrivals("spacing = 'deterministic'\nbatch = 8", 10.05);
        assert_eq!(times.len(), 800);
        assert!(times.chunks(8).all(|batch| batch[0] == batch[7]));
        assert!((times[8] - times[0] - 0.1).abs() < 1e-9);
    }

    #[test]
    fn every_pattern_keeps_the_mean_rate() {
        for text in [
            "batch = { mean = 8 }",
            "batch = { size = 5, over = '20ms' }",
            "fan_out = { requests = 7, after = '20ms', over = '5ms' }",
            "phases = [{ times = 1, lasts = '100ms' }, { times = 0, lasts = '300ms' }]",
            "phases = [{ times = 1, lasts = { law = 'exponential', mean = '100ms' } }, \
             { times = 4, lasts = { law = 'exponential', mean = '50ms' } }]",
        ] {
            let times = arrivals(text, 1000.0);
            assert!(times.is_sorted(), "{text}");
            let rate = times.len() as f64 / 1000.0;
            assert!((rate / 80.0 - 1.0).abs() < 0.05, "{text}: {rate}");
        }
    }

    #[test]
    fn nothing_comes_in_a_phase_without_arrivals() {
        let text = "phases = [{ times = 1, lasts = '100ms' }, { times = 0, lasts = '300ms' }]";
        let on = |time: &f64| time % 0.4 < 0.1 + 1e-9;
        assert!(arrivals(text, 100.0).iter().all(on));
    }

    #[test]
    fn impossible_patterns_are_refused() {
        #[derive(Debug, Deserialize)]
        #[serde(deny_unknown_fields)]
        struct File {
            #[serde(default)]
            _batch: Option<Batch>,
            #[serde(default)]
            _phases: Phases,
        }
        for (text, part) in [
            ("_batch = 0", "from one"),
            ("_batch = { size = 3, mean = 3 }", "one of"),
            ("_phases = [{ times = 0, lasts = '1s' }]", "all phases"),
            ("_phases = [{ times = -1, lasts = '1s' }]", "from 0"),
            ("_phases = [{ times = 1, lasts = '0s' }]", "longer than 0"),
        ] {
            let error = tidegate_config::parse::<File>("t", text).unwrap_err();
            assert!(error.to_string().contains(part), "{error}");
        }
    }
}

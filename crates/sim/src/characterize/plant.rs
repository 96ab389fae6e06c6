//! Something that can be loaded and measured.

use std::f64::consts::TAU;
use std::time::Duration;

use tidegate_control::Timestamp;
use tidegate_sentry::gate::TokenBucket;
use tidegate_sentry::{Arrival, Ending, Observer, Refusal, ReplicaId, ShedReason};

use super::Settings;
use crate::rng::Streams;
use crate::scenario::{
    Choice, Decision, LoadSpec, NoProtection, OneOrMany, Protect, Protector, RequestId, Scenario,
    ScenarioError, Wakes,
};
use crate::workload::RateFunction;

/// A service that can be driven: a scenario in the simulator, or a live upstream behind a gate.
pub trait Plant {
    /// Drives it from rest and returns one sample per measurement interval.
    ///
    /// # Errors
    /// When it could not be driven to the end.
    fn run(&mut self, drive: &Drive) -> Result<Vec<Sample>, PlantError>;

    /// The 99th percentile of the response times of the last run, in seconds, where it is known.
    fn tail_s(&self) -> Option<f64> {
        None
    }
}

/// A service could not be driven.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("the service could not be driven: {0}")]
pub struct PlantError(pub String);

impl From<ScenarioError> for PlantError {
    fn from(error: ScenarioError) -> Self {
        Self(error.to_string())
    }
}

/// How a plant is driven.
#[derive(Debug, Clone, PartialEq)]
pub struct Drive {
    /// Offered requests per second: independent arrivals, no retries.
    pub offered_per_s: f64,
    /// What a token bucket lets through.
    pub limit: Limit,
    /// How long.
    pub duration: Duration,
    /// How often it is measured.
    pub measurement_interval: Duration,
}

/// A limit on the admission rate, per second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Limit {
    /// Everything is admitted.
    None,
    /// The same rate throughout.
    Constant(f64),
    /// `low + (high - low) (1 + sin(2π t / period)) / 2`, constant within each step, and in every
    /// step `dither` more or less than that, by a fixed sequence of signs.
    ///
    /// The slow sine of 000 §III-A covers the operating range but hardly tells the state from
    /// the input, which both follow it; the small dither does.
    Sine {
        /// Smallest rate.
        low: f64,
        /// Largest rate.
        high: f64,
        /// Length of a cycle.
        period_s: f64,
        /// Length of a step.
        step_s: f64,
        /// Distance from the sine.
        dither: f64,
    },
}

impl Limit {
    /// The rate in force at `time_s`.
    #[must_use]
    pub fn at(&self, time_s: f64) -> f64 {
        match *self {
            Self::None => f64::INFINITY,
            Self::Constant(rate) => rate,
            Self::Sine {
                low,
                high,
                period_s,
                step_s,
                dither,
            } => {
                // A hair of rounding must not put the start of a step into the step before.
                let step = (time_s / step_s + 1e-9).floor();
                let phase = TAU * step * step_s / period_s;
                let sine = low + (high - low) * f64::midpoint(1.0, phase.sin());
                (sine + dither * sign(step)).clamp(low, high)
            }
        }
    }
}

/// +1 or -1: the maximum-length sequence of `x^9 + x^5 + 1`, the customary excitation in
/// identification because all of its 9-step patterns but one occur in a period of 511.
fn sign(step: f64) -> f64 {
    let mut register: u16 = 0x1ff;
    for _ in 0..step as u64 % 511 {
        let bit = (register >> 8 ^ register >> 4) & 1;
        register = (register << 1 | bit) & 0x1ff;
    }
    if register & 1 == 1 { 1.0 } else { -1.0 }
}

/// What was measured in one interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// End of the interval.
    pub at_s: f64,
    /// The limit in force during it.
    pub limit_per_s: f64,
    /// Requests that arrived, per second.
    pub offered_per_s: f64,
    /// Requests answered, per second; abandoned ones are not among them.
    pub goodput_per_s: f64,
    /// Their mean response time; NaN when there were none.
    pub response_s: f64,
}

impl Drive {
    fn new(offered_per_s: f64, limit: Limit, steps: u32, settings: &Settings) -> Self {
        Self {
            offered_per_s,
            limit,
            duration: settings.time_of(steps),
            measurement_interval: settings.measurement_interval,
        }
    }

    /// A load without a gate, for the sweep.
    #[must_use]
    pub fn open(offered_per_s: f64, settings: &Settings) -> Self {
        let steps = settings.settle_steps + settings.sweep_steps;
        Self::new(offered_per_s, Limit::None, steps, settings)
    }

    /// A load of which the gate admits `rate_per_s`.
    #[must_use]
    pub fn gated(offered_per_s: f64, rate_per_s: f64, settings: &Settings) -> Self {
        let steps = settings.settle_steps + settings.sweep_steps;
        Self::new(offered_per_s, Limit::Constant(rate_per_s), steps, settings)
    }

    /// A load of which the gate admits a sine between the ends of `range`.
    #[must_use]
    pub fn sine(offered_per_s: f64, range: (f64, f64), settings: &Settings) -> Self {
        let limit = Limit::Sine {
            low: range.0,
            high: range.1,
            period_s: settings.time_of(settings.cycle_steps).as_secs_f64(),
            step_s: settings.tuning_interval.as_secs_f64(),
            dither: settings.dither * (range.1 - range.0),
        };
        Self::new(
            offered_per_s,
            limit,
            settings.cycle_steps * settings.cycles,
            settings,
        )
    }
}

/// A scenario as a plant: its service, its replicas and its clients' patience; load and protection
/// are the drive's.
#[derive(Debug, Clone)]
pub struct SimPlant {
    scenario: Scenario,
    seed: u64,
    runs: usize,
    tail_s: Option<f64>,
}

impl SimPlant {
    /// A plant whose runs are all different, and the same for the same seed.
    #[must_use]
    pub fn new(scenario: Scenario, seed: u64) -> Self {
        Self {
            scenario,
            seed,
            runs: 0,
            tail_s: None,
        }
    }

    fn driven(&self, drive: &Drive) -> Scenario {
        let client = self
            .scenario
            .load
            .iter()
            .next()
            .map(|load| load.client.clone());
        let load = LoadSpec {
            rate: Some(RateFunction::constant(drive.offered_per_s)),
            client: client.unwrap_or_default(),
            ..LoadSpec::default()
        };
        Scenario {
            duration: drive.duration.into(),
            warm_up: Duration::ZERO.into(),
            interval: drive.measurement_interval.into(),
            load: OneOrMany::from(load),
            fleet: None,
            protect: Protect::default(),
            ..self.scenario.clone()
        }
    }
}

impl Plant for SimPlant {
    fn run(&mut self, drive: &Drive) -> Result<Vec<Sample>, PlantError> {
        let streams = Streams::new(self.seed);
        let seed = streams.seed_of(&format!("run {}", self.runs));
        self.runs += 1;
        let scenario = self.driven(drive);
        let mut gate = Metered::new(drive, scenario.replica_count(), seed);
        let outcome = scenario.run_with(seed, &mut gate)?;
        let tail_s = outcome.totals.histogram.quantile(0.99);
        self.tail_s = Some(tail_s).filter(|tail| tail.is_finite());
        let interval = outcome.interval;
        let samples = outcome.rows.iter().map(|row| Sample {
            at_s: row.at,
            limit_per_s: drive.limit.at(row.at - interval),
            offered_per_s: row.counts.offered as f64 / interval,
            goodput_per_s: row.counts.served as f64 / interval,
            response_s: row.response.mean,
        });
        Ok(samples.collect())
    }

    fn tail_s(&self) -> Option<f64> {
        self.tail_s
    }
}

/// A token bucket whose rate follows the drive, in front of a plain balancer.
#[derive(Debug)]
struct Metered {
    bucket: TokenBucket,
    limit: Limit,
    step: Duration,
    next_step: Timestamp,
    balancer: NoProtection,
}

/// Requests that a full bucket lets through at once.
const BURST: f64 = 10.0;

impl Metered {
    fn new(drive: &Drive, replicas: usize, seed: u64) -> Self {
        let step = drive.measurement_interval;
        let rng = Streams::new(seed).stream("balancer");
        Self {
            bucket: TokenBucket::new(Timestamp::ZERO, drive.limit.at(0.0), BURST),
            limit: drive.limit,
            step,
            next_step: Timestamp::ZERO + step,
            balancer: NoProtection::new(Choice::LeastInFlight, replicas, rng),
        }
    }

    fn admits(&self, now: Timestamp) -> bool {
        self.limit == Limit::None || self.bucket.try_take(now)
    }
}

impl Protector for Metered {
    fn on_arrival(&mut self, now: Timestamp, request: RequestId, arrival: &Arrival) -> Decision {
        if self.admits(now) {
            return self.balancer.on_arrival(now, request, arrival);
        }
        Decision::Shed(Refusal {
            reason: ShedReason::Rate,
            class: arrival.class,
            retry_after: self.step,
            measured: self.bucket.tokens(now),
            limit: 1.0,
        })
    }

    fn reassign(&mut self, now: Timestamp, request: RequestId) -> Option<ReplicaId> {
        self.balancer.reassign(now, request)
    }

    fn on_stream(&mut self, now: Timestamp, request: RequestId, wakes: &mut Wakes) {
        self.balancer.on_stream(now, request, wakes);
    }

    fn on_end(&mut self, now: Timestamp, request: RequestId, ending: Ending, wakes: &mut Wakes) {
        self.balancer.on_end(now, request, ending, wakes);
    }

    fn on_abandon(&mut self, now: Timestamp, request: RequestId) {
        self.balancer.on_abandon(now, request);
    }

    fn on_report(&mut self, now: Timestamp, replica: ReplicaId, utilization: f64) {
        self.balancer.on_report(now, replica, utilization);
    }

    fn set_health(&mut self, now: Timestamp, replica: ReplicaId, up: bool, wakes: &mut Wakes) {
        self.balancer.set_health(now, replica, up, wakes);
    }

    fn poll_timeout(&self) -> Timestamp {
        self.next_step
    }

    fn handle_timeout(&mut self, now: Timestamp, _: &mut dyn Observer, _: &mut Wakes) {
        self.bucket
            .set_rate(now, self.limit.at(now.as_secs_f64()), BURST);
        self.next_step = now + self.step;
    }

    fn gauges(&self, _: Timestamp, _: &mut dyn FnMut(&'static str, f64)) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sine_covers_its_range_in_steps() {
        let limit = Limit::Sine {
            low: 1.0,
            high: 5.0,
            period_s: 40.0,
            step_s: 10.0,
            dither: 0.0,
        };
        let rates = [0.0, 9.9, 10.0, 20.0, 30.0, 39.9].map(|time| limit.at(time));
        let expected = [3.0, 3.0, 5.0, 3.0, 1.0, 1.0];
        for (rate, expected) in rates.iter().zip(expected) {
            assert!((rate - expected).abs() < 1e-9, "{rates:?}");
        }
    }

    #[test]
    fn dither_stays_within_the_range_and_goes_both_ways() {
        let limit = Limit::Sine {
            low: 1.0,
            high: 5.0,
            period_s: 1000.0,
            step_s: 1.0,
            dither: 0.5,
        };
        let rates: Vec<f64> = (0..1000).map(|step| limit.at(f64::from(step))).collect();
        assert!(rates.iter().all(|rate| (1.0..=5.0).contains(rate)));
        let period: Vec<f64> = (0..511).map(|step| sign(f64::from(step))).collect();
        assert_eq!(
            period.iter().sum::<f64>(),
            1.0,
            "as balanced as an odd period can be"
        );
        let flips = period.windows(2).filter(|pair| pair[0] != pair[1]).count();
        assert!((254..=256).contains(&flips), "{flips}");
    }

    #[test]
    fn a_limit_holds_and_runs_differ_but_repeat() {
        let scenario = tidegate_config::parse(
            "plant.toml",
            "duration = '1s'\nservice = { law = 'exponential', mean = '10ms' }\n\
             load = { rate = '1/s' }\nreplica = { cores = 4 }",
        )
        .unwrap();
        let settings = Settings::default();
        let drive = Drive::gated(100.0, 20.0, &settings);
        let mut plant = SimPlant::new(scenario, 1);
        let first = plant.run(&drive).unwrap();
        let second = plant.run(&drive).unwrap();
        assert_ne!(first, second);
        let served: f64 = first.iter().map(|sample| sample.goodput_per_s).sum();
        let mean = served / first.len() as f64;
        assert!((mean - 20.0).abs() < 0.5, "{mean}");
    }
}

//! Brownout replicas behind a balancer (004), under one of its strategies.

use serde::Deserialize;
use tidegate_config::{Dur, Rate, Share};
use tidegate_sentry::SentryConfig;
use tidegate_sentry::brownout::{CascadeConfig, ServiceControlConfig};

use super::ModelError;
use crate::brownout::{
    IlacConfig, Outcome, Phase, ReplicaControl, Route, Setup, Speed, Strategy, TickRow, run,
};
use crate::experiment::Record;

pub(super) const SERIES: [&str; 9] = [
    "p95",
    "waited",
    "threshold",
    "service",
    "concurrency",
    "gain",
    "full_share",
    "full_distribution",
    "distribution",
];
pub(super) const VALUES: [&str; 6] = ["iae", "sd", "max", "full_share", "served", "shed"];

/// A run of the plant of 004.
///
/// Series over time, one point per sampling period: `p95` of full responses, and under ILAC
/// `waited` (mean), `threshold` (psi), of the first replica `service` (mean of full responses),
/// `concurrency` (u) and `gain` (K). `full_distribution` and `distribution` are the shares of full
/// and of all responses at or below a response time. Values: `iae`, `sd` and `max` of full
/// responses, `full_share`, `served`, `shed`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BrownoutRun {
    /// Who decides.
    pub strategy: StrategySpec,
    /// Load and capacity, one stretch after the other.
    pub phase: Vec<PhaseSpec>,
    /// At the beginning, left out of values and distributions (not of the series over time).
    #[serde(default)]
    pub warm_up: Dur,
    /// Wanted 95th percentile of full responses.
    #[serde(default = "one_second")]
    pub setpoint: Dur,
    /// Sampling period of the balancer and of the statistic.
    #[serde(default = "quarter_second")]
    pub period: Dur,
    /// Sampling period in the replicas.
    #[serde(default = "half_second")]
    pub replica_period: Dur,
    /// Standard deviation of full service (the paper calls it a variance).
    #[serde(default = "ten_ms")]
    pub full_sd: Dur,
    /// Standard deviation of mandatory service.
    #[serde(default = "one_ms")]
    pub mandatory_sd: Dur,
    /// The least service time.
    #[serde(default = "tenth_ms")]
    pub service_min: Dur,
    /// Reproduce the accidents of the paper's simulator.
    #[serde(default)]
    pub reference: bool,
}

/// A stretch of constant load and capacity.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PhaseSpec {
    /// How long.
    pub duration: Dur,
    /// Arrivals.
    pub rate: Rate,
    /// Requests served at once by a replica.
    pub cap: usize,
    /// Mean service times of each replica in seconds, full and mandatory.
    pub speeds: Vec<(f64, f64)>,
}

/// Who decides about optional content, and where requests go.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StrategySpec {
    /// ILAC with the paper's constants, unless told otherwise.
    Ilac(IlacSpec),
    /// Decide by the predicted response time: ours.
    Predictive {},
    /// Routed on arrival, the replica decides.
    Routed(RoutedSpec),
    /// The admission engine of the live proxy, with its configuration.
    Engine(Box<SentryConfig>),
}

/// ILAC's parameters.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IlacSpec {
    /// Share of the response time that is spent waiting.
    pub gamma: Share,
    /// Gain of the waiting-time integral.
    #[serde(default = "waiting_gain")]
    pub waiting_gain: f64,
    /// How far the threshold may lie from the waiting time's setpoint, as a share of it.
    #[serde(default = "waiting_reach")]
    pub waiting_reach: f64,
    /// Gain of the top-level integral; 0 keeps the setpoints where they are.
    #[serde(default = "top_gain")]
    pub top_gain: f64,
    /// Loop gain of the service-time controllers, 0.16 in the paper.
    #[serde(default = "service_gain")]
    pub service_gain: f64,
}

/// A balancer and a controller in each replica.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoutedSpec {
    /// The balancer.
    pub route: Route,
    /// The controller.
    pub control: ReplicaControl,
}

fn one_second() -> Dur {
    std::time::Duration::from_secs(1).into()
}

fn quarter_second() -> Dur {
    std::time::Duration::from_millis(250).into()
}

fn half_second() -> Dur {
    std::time::Duration::from_millis(500).into()
}

fn ten_ms() -> Dur {
    std::time::Duration::from_millis(10).into()
}

fn one_ms() -> Dur {
    std::time::Duration::from_millis(1).into()
}

fn tenth_ms() -> Dur {
    std::time::Duration::from_micros(100).into()
}

fn service_gain() -> f64 {
    ServiceControlConfig::default().loop_gain
}

fn waiting_gain() -> f64 {
    CascadeConfig::paper(1.0, 0.0).waiting_gain
}

fn waiting_reach() -> f64 {
    CascadeConfig::paper(1.0, 0.0).waiting_reach
}

fn top_gain() -> f64 {
    CascadeConfig::paper(1.0, 0.0).top_gain
}

impl BrownoutRun {
    pub(super) fn check(&self) -> Result<(), ModelError> {
        let refuse = |cause: &str| Err(ModelError(cause.to_owned()));
        if self.phase.is_empty() {
            return refuse("a brownout model needs at least one `[[phase]]`");
        }
        if self.period.is_zero() || self.replica_period.is_zero() {
            return refuse("`period` and `replica_period` must be above zero");
        }
        for phase in &self.phase {
            let positive = |&(full, mandatory): &(f64, f64)| full > 0.0 && mandatory > 0.0;
            if phase.speeds.is_empty() || !phase.speeds.iter().all(positive) {
                return refuse("`speeds` of a phase lists [full, mandatory] seconds above zero");
            }
            if phase.cap == 0 || phase.rate.0 <= 0.0 {
                return refuse("`cap` and `rate` of a phase must be above zero");
            }
        }
        Ok(())
    }

    pub(super) fn run(&self, seed: u64) -> Result<Record, ModelError> {
        self.check()?;
        let outcome = run(&self.setup(), &self.strategy(), seed).map_err(ModelError::from)?;
        Ok(record(&outcome))
    }

    fn setup(&self) -> Setup {
        let phases = self.phase.iter().map(|phase| Phase {
            duration_s: phase.duration.as_secs_f64(),
            rate: phase.rate.0,
            speeds: phase
                .speeds
                .iter()
                .map(|&(full_s, mandatory_s)| Speed {
                    full_s,
                    mandatory_s,
                })
                .collect(),
            cap: phase.cap,
        });
        Setup {
            phases: phases.collect(),
            full_sd_s: self.full_sd.as_secs_f64(),
            mandatory_sd_s: self.mandatory_sd.as_secs_f64(),
            service_min_s: self.service_min.as_secs_f64(),
            warm_up_s: self.warm_up.as_secs_f64(),
            setpoint_s: self.setpoint.as_secs_f64(),
            period_s: self.period.as_secs_f64(),
            replica_period_s: self.replica_period.as_secs_f64(),
            reference: self.reference,
        }
    }

    fn strategy(&self) -> Strategy {
        let setpoint_s = self.setpoint.as_secs_f64();
        let service = ServiceControlConfig::default();
        match &self.strategy {
            StrategySpec::Ilac(ilac) => Strategy::Ilac(IlacConfig {
                cascade: CascadeConfig {
                    waiting_gain: ilac.waiting_gain,
                    waiting_reach: ilac.waiting_reach,
                    top_gain: ilac.top_gain,
                    ..CascadeConfig::paper(setpoint_s, ilac.gamma.0)
                },
                service: ServiceControlConfig {
                    loop_gain: ilac.service_gain,
                    ..service
                },
            }),
            StrategySpec::Predictive {} => Strategy::Ilac(IlacConfig {
                cascade: CascadeConfig::predictive(setpoint_s),
                service,
            }),
            StrategySpec::Routed(routed) => Strategy::Routed {
                route: routed.route,
                control: routed.control,
            },
            StrategySpec::Engine(config) => Strategy::Engine(config.clone()),
        }
    }
}

fn record(outcome: &Outcome) -> Record {
    let series =
        |of: fn(&TickRow) -> f64| outcome.rows.iter().map(|row| (row.at_s, of(row))).collect();
    Record::default()
        .with_series("p95", series(|row| row.p95_s))
        .with_series("waited", series(|row| row.waited_s))
        .with_series("threshold", series(|row| row.threshold_s))
        .with_series("service", series(|row| row.service_s))
        .with_series("concurrency", series(|row| row.concurrency))
        .with_series("gain", series(|row| row.gain_s))
        .with_series("full_share", series(|row| row.full_share))
        .with_series("full_distribution", distribution(&outcome.full_us))
        .with_series("distribution", distribution(&outcome.all_us))
        .with_value("iae", outcome.iae)
        .with_value("sd", outcome.sd_s)
        .with_value("max", outcome.max_s)
        .with_value(
            "full_share",
            outcome.full as f64 / outcome.served.max(1) as f64,
        )
        .with_value("served", outcome.served as f64)
        .with_value("shed", outcome.shed as f64)
}

/// Share at or below a response time in seconds, in steps of ten milliseconds.
fn distribution(micros: &hdrhistogram::Histogram<u64>) -> Vec<(f64, f64)> {
    const STEP_US: u64 = 10_000;
    let last = micros.max() / STEP_US + 1;
    (0..=last)
        .map(|step| {
            let at_us = step * STEP_US;
            (at_us as f64 / 1e6, micros.quantile_below(at_us))
        })
        .collect()
}

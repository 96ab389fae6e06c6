//! The automated characterization of 000 as a model: sweep, excitation, fit and gain.

use serde::Deserialize;

use super::ModelError;
use crate::characterize::{Characterization, Settings, SimPlant, characterize};
use crate::chart::Point;
use crate::experiment::{Progress, Record};
use crate::scenario::Scenario;

pub(super) const SERIES: [&str; 6] = [
    "goodput",
    "response",
    "power",
    "admission",
    "excited_response",
    "excited_goodput",
];

pub(super) const VALUES: [&str; 13] = [
    "peak_goodput",
    "max_power_load",
    "rate",
    "goodput",
    "response",
    "a_1",
    "a_2",
    "b_1",
    "b_2",
    "fit_1",
    "fit_2",
    "gain_1",
    "gain_2",
];

/// A plant to be characterized.
///
/// Series over load: `goodput`, `response` (s) and `power` of the sweep. Series over time:
/// `admission` (requests/s), `excited_response` (ms, filtered) and `excited_goodput` (requests/s,
/// filtered). Values: peak goodput and load of maximum power; `rate`, `goodput` and `response` (s)
/// of the operating point; model, share of variance explained, and gain in the units of 000.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CharacterizationRun {
    /// Its load and its protection are replaced.
    pub plant: Scenario,
    /// Where the operating point lies between maximum power (0) and peak goodput (1).
    #[serde(default = "default_balance")]
    pub balance: f64,
    /// Dither of the excitation, as a share of its range.
    #[serde(default = "default_dither")]
    pub dither: f64,
    /// Relative costs of response time, goodput and admission.
    #[serde(default = "default_costs")]
    pub costs: [f64; 3],
}

fn default_dither() -> f64 {
    Settings::default().dither
}

fn default_costs() -> [f64; 3] {
    Settings::default().costs
}

fn default_balance() -> f64 {
    Settings::default().balance
}

/// The experiment reports progress itself, run by run.
struct Silent;

impl Progress for Silent {
    fn start(&self, _: usize) {}
    fn done(&self, _: &str) {}
}

impl CharacterizationRun {
    pub(super) fn check(&self) -> Result<(), ModelError> {
        if !(0.0..=1.0).contains(&self.balance) {
            return Err(ModelError("`balance` must lie between 0 and 1".to_owned()));
        }
        self.plant.check().map_err(ModelError::from)
    }

    pub(super) fn run(&self, seed: u64) -> Result<Record, ModelError> {
        let settings = Settings {
            balance: self.balance,
            dither: self.dither,
            costs: self.costs,
            ..Settings::default()
        };
        let mut plant = SimPlant::new(self.plant.clone(), seed);
        let found = characterize(&mut plant, &settings, &Silent).map_err(ModelError::from)?;
        Ok(with_values(with_series(Record::default(), &found), &found))
    }
}

fn with_series(record: Record, found: &Characterization) -> Record {
    let (sweep, excitation) = (&found.sweep, &found.excitation);
    let loads = sweep.points.iter();
    let loads = loads.map(|point| (point.offered_per_s, point, sweep.power(point)));
    let over_time = |values: &[f64], of: &dyn Fn(f64) -> f64| -> Vec<Point> {
        let times = excitation.at_s.iter().copied();
        times.zip(values.iter().map(|&value| of(value))).collect()
    };
    let (peak, tokens) = (excitation.peak_per_s, found.settings.tokens_per_request);
    let admission = |withheld: f64| peak - withheld / tokens;
    record
        .with_series(
            "goodput",
            loads
                .clone()
                .map(|(x, p, _)| (x, p.goodput_per_s))
                .collect(),
        )
        .with_series(
            "response",
            loads.clone().map(|(x, p, _)| (x, p.response_s)).collect(),
        )
        .with_series("power", loads.map(|(x, _, power)| (x, power)).collect())
        .with_series(
            "admission",
            over_time(&excitation.withheld_tokens_per_s, &admission),
        )
        .with_series(
            "excited_response",
            over_time(&excitation.response_ms, &|ms| ms),
        )
        .with_series(
            "excited_goodput",
            over_time(&excitation.missing_per_s, &|x| peak - x),
        )
}

fn with_values(record: Record, found: &Characterization) -> Record {
    let (point, regulator) = (&found.operating_point, &found.regulator);
    let fit = &regulator.fit;
    record
        .with_value("peak_goodput", found.sweep.peak_goodput_per_s)
        .with_value("max_power_load", found.sweep.max_power_load_per_s)
        .with_value("rate", point.rate_per_s)
        .with_value("goodput", point.goodput_per_s)
        .with_value("response", point.response_s)
        .with_value("a_1", fit.a[(0, 0)])
        .with_value("a_2", fit.a[(1, 1)])
        .with_value("b_1", fit.b[(0, 0)])
        .with_value("b_2", fit.b[(1, 0)])
        .with_value("fit_1", fit.states[0].r_squared)
        .with_value("fit_2", fit.states[1].r_squared)
        .with_value("gain_1", regulator.gain[0])
        .with_value("gain_2", regulator.gain[1])
}

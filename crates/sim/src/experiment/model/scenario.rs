//! A scenario as a model: its time series and totals, with 000's power.

use tidegate_sentry::ShedReason;

use super::ModelError;
use crate::chart::Point;
use crate::experiment::Record;
use crate::scenario::{Outcome, Scenario};

/// Besides [`Outcome::SERIES`].
const GAUGES: [&str; 7] = [
    "gauge.setpoint",
    "gauge.measured",
    "gauge.output",
    "gauge.window",
    "gauge.threshold",
    "gauge.refusing",
    "gauge.proxies",
];

/// The counts that a class has of its own.
const CLASS_COUNTS: [&str; 8] = [
    "offered",
    "admitted",
    "goodput",
    "goodput_in_target",
    "degraded",
    "shed",
    "abandoned",
    "displaced",
];

/// What a class has of its own, over all after the warm-up.
const CLASS_VALUES: [&str; 3] = ["in_target_share", "displaced_share", "response_p95"];

/// Totals after the warm-up: rates per second, times in seconds.
pub(super) const VALUES: [&str; 15] = [
    "offered",
    "goodput",
    "goodput_in_target",
    "shed_share",
    "abandoned_share",
    "response",
    "response_p95",
    "response_p99",
    "response_max",
    "full_share",
    "full_p95",
    "utilization",
    "power",
    "revenue",
    "revenue_share",
];

/// [`VALUES`], and for each class `class.<name>.<value>`.
pub(super) fn values(scenario: &Scenario) -> Vec<String> {
    let classes = scenario
        .classes()
        .into_iter()
        .flat_map(|class| CLASS_VALUES.map(|value| format!("class.{}.{value}", class.name)));
    VALUES
        .map(str::to_owned)
        .into_iter()
        .chain(classes)
        .collect()
}

pub(super) fn series(scenario: &Scenario) -> Vec<String> {
    let common = Outcome::SERIES.into_iter().chain(GAUGES).chain(["power"]);
    let reasons = ShedReason::ALL
        .iter()
        .map(|reason| format!("shed.{}", reason.as_str()));
    let classes = scenario
        .classes()
        .into_iter()
        .flat_map(|class| CLASS_COUNTS.map(|count| format!("class.{}.{count}", class.name)));
    common
        .map(str::to_owned)
        .chain(reasons)
        .chain(classes)
        .collect()
}

pub(super) fn run(scenario: &Scenario, seed: u64) -> Result<Record, ModelError> {
    let outcome = scenario.run(seed).map_err(ModelError::from)?;
    let scale = Scale::of(scenario);
    let record = series(scenario)
        .into_iter()
        .filter_map(|name| outcome.series(&name).map(|points| (name, points)))
        .fold(Record::default(), |record, (name, points)| {
            record.with_series(name, points)
        });
    let record = with_classes(record, &outcome);
    Ok(with_totals(record, &outcome, &scale).with_series("power", power(&outcome, &scale)))
}

fn with_totals(record: Record, outcome: &Outcome, scale: &Scale) -> Record {
    let totals = &outcome.totals;
    let (served, counts) = (totals.goodput(), &totals.counts);
    record
        .with_value("offered", totals.offered())
        .with_value("goodput", served)
        .with_value("goodput_in_target", totals.goodput_in_target())
        .with_value("shed_share", totals.shed_share())
        .with_value(
            "abandoned_share",
            counts.abandoned as f64 / counts.offered as f64,
        )
        .with_value("response", totals.response.mean())
        .with_value("response_p95", totals.histogram.quantile(0.95))
        .with_value("response_p99", totals.histogram.quantile(0.99))
        .with_value("response_max", totals.response.max())
        .with_value("full_share", totals.full_share())
        .with_value("full_p95", totals.full.quantile(0.95))
        .with_value("utilization", outcome.utilization)
        .with_value("power", scale.power(served, totals.response.mean()))
        .with_value("revenue", outcome.revenue() / totals.seconds)
        .with_value("revenue_share", outcome.revenue() / outcome.revenue_optimum)
}

fn with_classes(record: Record, outcome: &Outcome) -> Record {
    let classes = outcome.classes.iter().zip(&outcome.class_totals);
    classes.fold(record, |record, (name, totals)| {
        record
            .with_value(
                format!("class.{name}.in_target_share"),
                totals.in_target_share(),
            )
            .with_value(
                format!("class.{name}.displaced_share"),
                totals.displaced_share(),
            )
            .with_value(
                format!("class.{name}.response_p95"),
                totals.histogram.quantile(0.95),
            )
    })
}

/// What goodput and response time are normalised by in 000 eq. 1: the service at full capacity.
struct Scale {
    capacity_per_s: f64,
    service_s: f64,
}

impl Scale {
    fn of(scenario: &Scenario) -> Self {
        let service_s = scenario.service.mean();
        let cores = scenario
            .replica
            .iter()
            .map(|replica| f64::from(replica.count.get()) * f64::from(replica.cores.get()));
        Self {
            capacity_per_s: cores.sum::<f64>() / service_s,
            service_s,
        }
    }

    /// Kleinrock's power, 000 eq. 1; none where nothing was served.
    fn power(&self, goodput_per_s: f64, response_s: f64) -> f64 {
        if goodput_per_s == 0.0 {
            return 0.0;
        }
        (goodput_per_s / self.capacity_per_s) / (response_s / self.service_s)
    }
}

fn power(outcome: &Outcome, scale: &Scale) -> Vec<Point> {
    let rows = outcome.rows.iter();
    rows.map(|row| {
        let goodput = row.counts.served as f64 / outcome.interval;
        (row.at, scale.power(goodput, row.response.mean))
    })
    .collect()
}

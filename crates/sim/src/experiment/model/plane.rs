//! The hosting platform and the sentries of 003 as models.

use super::ModelError;
use crate::experiment::Record;
use crate::plane::{HostedRun, HostingSpec, SentriesSpec};

pub(super) const SENTRIES_SERIES: [&str; 3] = ["rate", "cpu", "proxies"];

const HOSTED_SERIES: [&str; 5] = ["offered", "admitted", "servers", "target", "response_p95"];

/// `NAME.offered` and so on for each application.
pub(super) fn hosting_series(spec: &HostingSpec) -> Vec<String> {
    let applications = spec.plane.applications.iter();
    applications
        .flat_map(|it| HOSTED_SERIES.map(|series| format!("{}.{series}", it.name)))
        .collect()
}

/// `target_kept_share` over all samples of all applications.
pub(super) const HOSTING_VALUES: [&str; 1] = ["target_kept_share"];

pub(super) fn check_hosting(spec: &HostingSpec) -> Result<(), ModelError> {
    spec.check().map_err(ModelError)
}

pub(super) fn check_sentries(spec: &SentriesSpec) -> Result<(), ModelError> {
    spec.check().map_err(ModelError)
}

pub(super) fn run_hosting(spec: &HostingSpec, seed: u64) -> Result<Record, ModelError> {
    check_hosting(spec)?;
    let runs = spec.run(seed).map_err(ModelError::from)?;
    let samples: u32 = runs.iter().map(|run| run.samples).sum();
    let kept: u32 = runs.iter().map(|run| run.samples_kept).sum();
    let share = f64::from(kept) / f64::from(samples.max(1));
    let record = Record::default().with_value("target_kept_share", share);
    let named = spec.plane.applications.iter().zip(runs);
    Ok(named.fold(record, |record, (application, run)| {
        with_hosted(record, &application.name, run)
    }))
}

fn with_hosted(record: Record, name: &str, run: HostedRun) -> Record {
    record
        .with_series(format!("{name}.offered"), run.offered)
        .with_series(format!("{name}.admitted"), run.admitted)
        .with_series(format!("{name}.servers"), run.servers)
        .with_series(format!("{name}.target"), run.target)
        .with_series(format!("{name}.response_p95"), run.response_p95)
}

pub(super) fn run_sentries(spec: &SentriesSpec, seed: u64) -> Result<Record, ModelError> {
    check_sentries(spec)?;
    let run = spec.run(seed);
    Ok(Record::default()
        .with_series("rate", run.rate)
        .with_series("cpu", run.cpu)
        .with_series("proxies", run.proxies))
}

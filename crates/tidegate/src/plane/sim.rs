//! `tidegate sim plane`: the control plane against other scalers, in the simulator.

use std::process::ExitCode;

use tidegate_sim::plane::{self, Trace};

use crate::check::print;
use crate::error::CliError;
use crate::progress::Shown;
use crate::sim::{Args, origin};

/// Seeds per pair when none are asked for.
const REPETITIONS: u32 = 3;

pub(crate) fn run(args: &Args) -> Result<ExitCode, CliError> {
    let traces = selected(&args.only)?;
    let first = args.seed.unwrap_or(1);
    let seeds: Vec<u64> = (0..u64::from(args.repetitions.unwrap_or(REPETITIONS)))
        .map(|offset| first.wrapping_add(offset))
        .collect();
    let origin = origin();
    eprintln!(
        "tidegate {} (commit {}), seeds {seeds:?}",
        origin.version, origin.commit
    );
    let progress = Shown::new();
    let report = plane::run(&traces, &seeds, &progress);
    progress.finish();
    let usage = |error: &dyn std::fmt::Display| CliError::Usage(error.to_string());
    let report = report.map_err(|error| usage(&error))?;
    let page = report
        .write(&args.out, origin)
        .map_err(|error| usage(&error))?;
    print(&if args.json {
        report.json()
    } else {
        report.table()
    })?;
    eprintln!("report: {}", page.display());
    Ok(ExitCode::SUCCESS)
}

/// All traces, or those that were named.
fn selected(only: &[String]) -> Result<Vec<Trace>, CliError> {
    let mut traces = plane::traces();
    for name in only {
        if !traces.iter().any(|trace| trace.name == name) {
            let known: Vec<&str> = traces.iter().map(|trace| trace.name).collect();
            let known = known.join(", ");
            return Err(CliError::Usage(format!(
                "--only {name}: no such trace; there are: {known}"
            )));
        }
    }
    if !only.is_empty() {
        traces.retain(|trace| only.iter().any(|name| name == trace.name));
    }
    Ok(traces)
}

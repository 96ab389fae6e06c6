//! `tidegate sim reaction`: how soon a protection reacts to a step of the load.

use std::process::ExitCode;

use tidegate_sim::reaction;

use crate::arena::contenders;
use crate::check::print;
use crate::error::CliError;
use crate::progress::Shown;
use crate::sim::{Args, origin};

/// Seeds when none are asked for: a slot of ten milliseconds has some hundred requests then.
const REPETITIONS: u32 = 40;

pub(crate) fn run(args: &Args) -> Result<ExitCode, CliError> {
    let contenders = contenders(&args.contender)?;
    let first = args.seed.unwrap_or(1);
    let repetitions = u64::from(args.repetitions.unwrap_or(REPETITIONS));
    let seeds: Vec<u64> = (0..repetitions)
        .map(|offset| first.wrapping_add(offset))
        .collect();
    let origin = origin();
    eprintln!(
        "tidegate {} (commit {}), {repetitions} seeds from {first} on",
        origin.version, origin.commit
    );
    let arrivals = args.arrivals.as_deref().unwrap_or_default();
    let progress = Shown::new();
    let report = reaction::run(&contenders, &seeds, arrivals, &progress);
    progress.finish();
    let report = report.map_err(|error| CliError::Usage(error.to_string()))?;
    print(&if args.json {
        report.json()
    } else {
        report.table()
    })?;
    Ok(ExitCode::SUCCESS)
}

//! `tidegate sim plane`: the control plane against other scalers, in the simulator.

use std::process::ExitCode;

use tidegate_sim::plane::{self, Trace};

use crate::comparison;
use crate::error::CliError;
use crate::sim::Args;

pub(crate) fn run(args: &Args) -> Result<ExitCode, CliError> {
    let traces = selected(&args.only)?;
    comparison::run(args, |seeds, progress| plane::run(&traces, seeds, progress))
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

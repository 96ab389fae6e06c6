//! `tidegate characterize`: finds the operating point and the regulator of a service.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::json;
use tidegate_config::Dur;
use tidegate_sim::characterize::{Characterization, Settings, SimPlant, characterize, page};
use tidegate_sim::report::write_all;
use tidegate_sim::scenario::Scenario;

use crate::check::print;
use crate::error::CliError;
use crate::progress::Shown;
use crate::sim::origin;

/// Finds the operating point and the regulator of a service.
///
/// Sweeps the load, proposes an operating point, excites the service, fits a model and
/// computes the gain. Prints what it found and the configuration to paste, and writes a report.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A scenario file; its load and its protection are replaced by the characterization's own.
    #[arg(long, value_name = "FILE")]
    sim: PathBuf,
    /// Where characterization.html is written.
    #[arg(long, value_name = "DIR", default_value = "out")]
    out: PathBuf,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
    /// Root of all randomness.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Time between two measurements.
    #[arg(long, value_name = "TIME", default_value = "5s")]
    measurement_interval: Dur,
    /// Time between two steps of the controller.
    #[arg(long, value_name = "TIME", default_value = "10s")]
    tuning_interval: Dur,
    /// Where the operating point lies between maximum power (0) and peak goodput (1).
    #[arg(long, value_name = "SHARE", default_value_t = Settings::default().balance)]
    balance: f64,
    /// Relative costs of response time, goodput and admission rate.
    #[arg(long, value_name = "R:G:U", default_value = "7:1:1", value_parser = costs)]
    costs: Costs,
}

type Costs = [f64; 3];

fn costs(text: &str) -> Result<Costs, String> {
    let numbers: Result<Vec<f64>, _> = text.split(':').map(str::parse).collect();
    let numbers = numbers
        .ok()
        .filter(|numbers| numbers.iter().all(|number| *number > 0.0));
    numbers
        .and_then(|numbers| numbers.try_into().ok())
        .ok_or_else(|| "write three numbers above zero, like 7:1:1".to_owned())
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, CliError> {
    let settings = settings(args)?;
    let mut plant = SimPlant::new(read(&args.sim)?, args.seed);
    let origin = origin();
    eprintln!(
        "tidegate {} (commit {}), seed {}",
        origin.version, origin.commit, args.seed
    );
    let progress = Shown::new();
    let found = characterize(&mut plant, &settings, &progress);
    progress.finish();
    let found = found.map_err(|error| usage(&args.sim, error))?;

    let page = page(&found, &args.sim.display().to_string(), origin);
    let html = page.map_err(|error| usage(&args.sim, error))?.html();
    let name = PathBuf::from("characterization.html");
    write_all(&args.out, &[(name.clone(), html)])
        .map_err(|error| CliError::Usage(error.to_string()))?;
    print(&if args.json {
        json_line(&found)
    } else {
        text(&found)
    })?;
    eprintln!("report: {}", args.out.join(name).display());
    Ok(ExitCode::SUCCESS)
}

fn settings(args: &Args) -> Result<Settings, CliError> {
    let refuse = |message: &str| Err(CliError::Usage(message.to_owned()));
    if !(0.0..=1.0).contains(&args.balance) {
        return refuse("--balance: write a number from 0 (maximum power) to 1 (peak goodput)");
    }
    let (measurement, tuning) = (args.measurement_interval.0, args.tuning_interval.0);
    let whole = !measurement.is_zero() && tuning.as_nanos() % measurement.as_nanos() == 0;
    if !whole || tuning.is_zero() {
        return refuse("--tuning-interval: write a whole multiple of --measurement-interval");
    }
    Ok(Settings {
        measurement_interval: measurement,
        tuning_interval: tuning,
        balance: args.balance,
        costs: args.costs,
        ..Settings::default()
    })
}

fn read(path: &Path) -> Result<Scenario, CliError> {
    let name = path.display().to_string();
    let text = fs::read_to_string(path).map_err(|source| CliError::File {
        path: name.clone(),
        source,
    })?;
    let scenario: Scenario = tidegate_config::parse(&name, &text)?;
    scenario.check().map_err(|error| usage(path, error))?;
    Ok(scenario)
}

fn usage(path: &Path, error: impl std::fmt::Display) -> CliError {
    CliError::Usage(format!("{}: {error}", path.display()))
}

fn text(found: &Characterization) -> String {
    let facts = found.facts();
    let width = facts.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let lines: String = facts
        .iter()
        .map(|(name, value)| format!("{name:width$}  {value}\n"))
        .collect();
    format!("{lines}\n{}", found.snippet())
}

fn json_line(found: &Characterization) -> String {
    let (point, fit) = (&found.operating_point, &found.regulator.fit);
    let value = json!({
        "peak_goodput_per_s": found.sweep.peak_goodput_per_s,
        "max_power_load_per_s": found.sweep.max_power_load_per_s,
        "operating_point": {
            "rate_per_s": point.rate_per_s,
            "goodput_per_s": point.goodput_per_s,
            "response_s": point.response_s,
        },
        "a": [fit.a[(0, 0)], fit.a[(1, 1)]],
        "b": [fit.b[(0, 0)], fit.b[(1, 0)]],
        "r_squared": [fit.states[0].r_squared, fit.states[1].r_squared],
        "weights": found.regulator.weights,
        "gain": [found.regulator.gain],
        "protect": found.snippet(),
    });
    format!("{value}\n")
}

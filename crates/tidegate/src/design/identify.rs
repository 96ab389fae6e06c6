//! `tidegate design identify`: a model from a recorded run.

use std::path::PathBuf;

use serde::Serialize;
use tidegate_control::identify::{
    FitOptions, FopdtFit, IdentifyError, StateSpaceFit, Structure, fit_fopdt, fit_state_space,
};
use tidegate_control::system::{SystemError, spectral_radius};

use super::format::{Root, Table, matrix, root, rows, short, show, upper};
use super::input::{Seconds, required};
use super::record::Record;
use crate::error::CliError;

const TOOL: &str = "identify";
/// Share of variance below which a fitted state deserves a word of caution: half of the movement
/// is not explained by the model when it runs by itself.
const CAUTION_BELOW: f64 = 0.5;

/// A model from a recorded run: x(k+1) = A x(k) + B u(k) + c, or a lag with dead time.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// CSV file with a header, one line per sample.
    #[arg(long, value_name = "FILE")]
    file: PathBuf,
    /// Columns that are states (with --fopdt: the output).
    #[arg(
        long,
        value_name = "COLUMN,...",
        value_delimiter = ',',
        required = true
    )]
    state: Vec<String>,
    /// Columns that are inputs.
    #[arg(
        long,
        value_name = "COLUMN,...",
        value_delimiter = ',',
        required = true
    )]
    input: Vec<String>,
    /// Let every state depend on every other; without it A is diagonal.
    #[arg(long)]
    full: bool,
    /// Leave c out: the columns are deviations from the operating point.
    #[arg(long)]
    no_offset: bool,
    /// Fit a lag with dead time instead (one state, one input, needs --interval).
    #[arg(long, conflicts_with_all = ["full", "no_offset"])]
    fopdt: bool,
    /// Sampling interval.
    #[arg(long, value_name = "TIME", allow_negative_numbers = true)]
    interval: Option<Seconds>,
    /// Print one JSON object instead of the table.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result<String, CliError> {
    let columns: Vec<&str> = args
        .state
        .iter()
        .chain(&args.input)
        .map(String::as_str)
        .collect();
    let record = Record::read(&args.file, &columns)?;
    if args.fopdt {
        return lag(args, &record);
    }
    let series = record.series();
    let (states, inputs) = series.split_at(args.state.len());
    let options = FitOptions {
        structure: if args.full {
            Structure::Full
        } else {
            Structure::Diagonal
        },
        offset: !args.no_offset,
    };
    let fit = fit_state_space(states, inputs, options).map_err(|error| refused(&record, &error))?;
    let model = Model::of(&fit, &args.state).map_err(|error| refused(&record, &error.into()))?;
    Ok(show(args.json, &model, model_table))
}

fn refused(record: &Record, error: &IdentifyError) -> CliError {
    CliError::Usage(format!("design {TOOL}: {}: {error}", record.file()))
}

#[derive(Debug, Serialize)]
struct Model {
    a: Vec<Vec<f64>>,
    b: Vec<Vec<f64>>,
    offset: Vec<f64>,
    a_standard_error: Vec<Vec<f64>>,
    b_standard_error: Vec<Vec<f64>>,
    poles: Vec<Root>,
    max_abs: f64,
    states: Vec<Quality>,
    transitions: usize,
    warning: Option<String>,
}

#[derive(Debug, Serialize)]
struct Quality {
    name: String,
    r_squared: f64,
    r_squared_free_run: f64,
    residual_sd: f64,
    condition: f64,
}

impl Model {
    fn of(fit: &StateSpaceFit, names: &[String]) -> Result<Self, SystemError> {
        let poles = fit.system()?.poles()?;
        let states = fit.states.iter().zip(names).map(|(state, name)| Quality {
            name: name.clone(),
            r_squared: state.r_squared,
            r_squared_free_run: state.r_squared_free_run,
            residual_sd: state.residual_sd,
            condition: state.condition,
        });
        let states: Vec<Quality> = states.collect();
        Ok(Self {
            a: rows(&fit.a),
            b: rows(&fit.b),
            offset: fit.offset.iter().copied().collect(),
            a_standard_error: rows(&fit.a_error),
            b_standard_error: rows(&fit.b_error),
            max_abs: spectral_radius(&poles),
            poles: Root::all(&poles),
            warning: caution(&states),
            states,
            transitions: fit.transitions,
        })
    }
}

fn caution(states: &[Quality]) -> Option<String> {
    let poor: Vec<String> = states
        .iter()
        .filter(|state| state.r_squared_free_run < CAUTION_BELOW)
        .map(|state| format!("`{}`", state.name))
        .collect();
    (!poor.is_empty()).then(|| {
        format!(
            "run by itself, the model explains less than half of the movement of {}: look for a \
             missing input, a wrong order or too much noise before designing with it",
            poor.join(", ")
        )
    })
}

fn model_table(model: &Model) -> String {
    let poles: Vec<String> = upper(&model.poles).map(root).collect();
    let table = Table::new(&format!(
        "x(k+1) = A x(k) + B u(k) + c from {} transitions",
        model.transitions
    ))
    .row("A", matrix(&model.a))
    .row("  standard errors", matrix(&model.a_standard_error))
    .row("B", matrix(&model.b))
    .row("  standard errors", matrix(&model.b_standard_error))
    .row("c", matrix(std::slice::from_ref(&model.offset)))
    .row(
        "poles",
        format!("{}   |z| {}", poles.join(", "), short(model.max_abs)),
    );
    let table = model.states.iter().fold(table, |table, state| {
        let quality = format!(
            "explained {:.2} % one step ahead, {:.2} % running free; residual sd {}, \
             condition {:.1e}",
            100.0 * state.r_squared,
            100.0 * state.r_squared_free_run,
            short(state.residual_sd),
            state.condition
        );
        table.row(&format!("state {}", state.name), quality)
    });
    table.warning(model.warning.as_deref()).finish()
}

#[derive(Debug, Serialize)]
struct Lag {
    gain: f64,
    time_constant_s: f64,
    dead_time_s: f64,
    initial_output: f64,
    r_squared: f64,
    residual_sd: f64,
}

impl From<FopdtFit> for Lag {
    fn from(fit: FopdtFit) -> Self {
        Self {
            gain: fit.plant.gain,
            time_constant_s: fit.plant.time_constant_s,
            dead_time_s: fit.plant.dead_time_s,
            initial_output: fit.initial_output,
            r_squared: fit.r_squared,
            residual_sd: fit.residual_sd,
        }
    }
}

fn lag(args: &Args, record: &Record) -> Result<String, CliError> {
    let interval_s = required(args.interval, TOOL, "interval")?.0;
    let [output, input] = record.series()[..] else {
        let message = "--fopdt needs exactly one --state and one --input";
        return Err(CliError::Usage(format!("design {TOOL}: {message}")));
    };
    let fit = fit_fopdt(input, output, interval_s).map_err(|error| refused(record, &error))?;
    Ok(show(args.json, &Lag::from(fit), lag_table))
}

fn lag_table(lag: &Lag) -> String {
    Table::new("First order plus dead time")
        .row("gain", short(lag.gain))
        .row("time constant", format!("{} s", short(lag.time_constant_s)))
        .row("dead time", format!("{} s", short(lag.dead_time_s)))
        .row("initial output", short(lag.initial_output))
        .row("explained", format!("{:.2} %", 100.0 * lag.r_squared))
        .row("residual sd", short(lag.residual_sd))
        .finish()
}

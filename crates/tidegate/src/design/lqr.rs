//! `tidegate design lqr`: the linear-quadratic regulator of 000.

use serde::{Deserialize, Serialize};
use tidegate_control::design::{DesignError, Lqr, Weight, Weights};
use tidegate_control::system::{StateSpace, SystemError};

use super::assess::Assessment;
use super::format::{Root, Table, matrix, root, rows, show, upper};
use super::input::{Common, Grid, Seconds, refused, required};
use crate::error::CliError;

const TOOL: &str = "lqr";

/// The state feedback u = -K x of least cost for x(k+1) = A x(k) + B u(k).
///
/// A matrix is written [[1, 2], [3, 4]] or names a CSV file; for --b a list is a column, for
/// --q and --r a diagonal. Instead of --q and --r, --cost and --largest give wanted relative
/// costs and the largest deviations, states first, then inputs.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    input: Input,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Clone, Default, clap::Args, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Input {
    /// System matrix.
    #[arg(long, value_name = "MATRIX")]
    a: Option<Grid>,
    /// Input matrix.
    #[arg(long, value_name = "MATRIX")]
    b: Option<Grid>,
    /// State weights.
    #[arg(long, value_name = "MATRIX")]
    q: Option<Grid>,
    /// Input weights.
    #[arg(long, value_name = "MATRIX")]
    r: Option<Grid>,
    /// Relative costs, states first, then inputs: 7,1,1.
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        allow_hyphen_values = true
    )]
    cost: Option<Vec<f64>>,
    /// Largest deviations in the operating range, in the same order.
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        allow_hyphen_values = true
    )]
    largest: Option<Vec<f64>>,
    /// Control interval, to show times in seconds.
    #[arg(long, value_name = "TIME", allow_negative_numbers = true)]
    interval: Option<Seconds>,
}

impl Input {
    fn or(self, other: Self) -> Self {
        Self {
            a: self.a.or(other.a),
            b: self.b.or(other.b),
            q: self.q.or(other.q),
            r: self.r.or(other.r),
            cost: self.cost.or(other.cost),
            largest: self.largest.or(other.largest),
            interval: self.interval.or(other.interval),
        }
    }

    fn system(&self) -> Result<StateSpace, CliError> {
        let a = required(self.a.as_ref(), TOOL, "a")?.column("A");
        let b = required(self.b.as_ref(), TOOL, "b")?.column("B");
        a.and_then(|a| StateSpace::new(a, b?))
            .map_err(|error| refused(TOOL, &error))
    }

    fn weights(&self, states: usize) -> Result<Weights, CliError> {
        if self.cost.is_some() || self.largest.is_some() {
            return self.relative_weights(states);
        }
        let q = required(self.q.as_ref(), TOOL, "q")?.diagonal("Q");
        let r = required(self.r.as_ref(), TOOL, "r")?.diagonal("R");
        let weights = |q| Ok::<_, SystemError>(Weights { q, r: r? });
        q.and_then(weights).map_err(|error| refused(TOOL, &error))
    }

    fn relative_weights(&self, states: usize) -> Result<Weights, CliError> {
        if self.q.is_some() || self.r.is_some() {
            let message = "give either --q and --r, or --cost and --largest";
            return Err(CliError::Usage(format!("design {TOOL}: {message}")));
        }
        let shares = required(self.cost.as_ref(), TOOL, "cost")?;
        let largest = required(self.largest.as_ref(), TOOL, "largest")?;
        if shares.len() != largest.len() || shares.len() <= states {
            return Err(CliError::Usage(format!(
                "design {TOOL}: --cost has {} and --largest {} numbers; both need one per state \
                 ({states}), then one per input",
                shares.len(),
                largest.len()
            )));
        }
        let pairs = shares.iter().zip(largest);
        let weights: Vec<Weight> = pairs
            .map(|(&share, &largest)| Weight { share, largest })
            .collect();
        let (states, inputs) = weights.split_at(states);
        Weights::new(states, inputs).map_err(|error| refused(TOOL, &error))
    }
}

#[derive(Debug, Serialize)]
struct Answer {
    gain: Vec<Vec<f64>>,
    #[serde(flatten)]
    assessment: Assessment,
    open_loop_poles: Vec<Root>,
    q: Vec<Vec<f64>>,
    r: Vec<Vec<f64>>,
    cost_matrix: Vec<Vec<f64>>,
    riccati_residual: f64,
}

pub(super) fn run(args: &Args) -> Result<String, CliError> {
    let input = args.input.clone().or(args.common.file_input()?);
    let system = input.system()?;
    let weights = input.weights(system.order())?;
    let interval_s = input
        .interval
        .map(|interval| interval.positive(TOOL, "interval"))
        .transpose()?;
    let answer = answer(&system, &weights, interval_s).map_err(|error| refused(TOOL, &error))?;
    Ok(show(args.common.json, &answer, table))
}

fn answer(
    system: &StateSpace,
    weights: &Weights,
    interval_s: Option<f64>,
) -> Result<Answer, DesignError> {
    let lqr = Lqr::solve(system, &weights.q, &weights.r)?;
    let mut assessment = Assessment::of_poles(&lqr.poles, interval_s);
    // With one input the loop opens at that input: K (zI - A)⁻¹ B.
    if system.b().ncols() == 1 {
        let open = system
            .clone()
            .with_output(lqr.gain.clone())?
            .transfer(0, 0)?;
        assessment = assessment.with_margins(&open, interval_s)?;
    }
    Ok(Answer {
        gain: rows(&lqr.gain),
        assessment,
        open_loop_poles: Root::all(&system.poles()?),
        q: rows(&weights.q),
        r: rows(&weights.r),
        cost_matrix: rows(&lqr.cost),
        riccati_residual: lqr.residual,
    })
}

fn table(answer: &Answer) -> String {
    let open: Vec<String> = upper(&answer.open_loop_poles).map(root).collect();
    let table = Table::new("Linear-quadratic regulator, u = -K x")
        .row("gain K", matrix(&answer.gain))
        .row("weights Q", matrix(&answer.q))
        .row("weights R", matrix(&answer.r))
        .row(
            "residual",
            format!("{:.1e} of the Riccati equation", answer.riccati_residual),
        )
        .row("open-loop poles", open.join(", "));
    answer.assessment.rows(table).finish()
}

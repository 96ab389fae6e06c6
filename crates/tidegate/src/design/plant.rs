//! A plant from flags or a file: lag with dead time, transfer function, or state space.

use serde::Deserialize;
use tidegate_control::system::{Fopdt, StateSpace, SystemError, TransferFunction};

use super::input::{Grid, Seconds, refused, required};
use crate::error::CliError;

/// Every interval of dead time is a pole; finding them takes the cube of their number, some two
/// seconds for this many.
const DEAD_INTERVALS_MAX: f64 = 200.0;

#[derive(Debug, Clone, Default, clap::Args, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Input {
    /// Sampling interval.
    #[arg(long, value_name = "TIME", allow_negative_numbers = true)]
    interval: Option<Seconds>,
    /// Lag with dead time: output per input in the long run.
    #[arg(long, value_name = "K", allow_negative_numbers = true)]
    plant_gain: Option<f64>,
    /// Lag with dead time: time to 63 % of a step after the dead time.
    #[arg(long, value_name = "TIME", allow_negative_numbers = true)]
    time_constant: Option<Seconds>,
    /// Lag with dead time: time before anything happens.
    #[arg(long, value_name = "TIME", allow_negative_numbers = true)]
    dead_time: Option<Seconds>,
    /// Transfer function: numerator, highest power of z first: 1,0.5.
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        allow_hyphen_values = true
    )]
    num: Option<Vec<f64>>,
    /// Transfer function: denominator.
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        allow_hyphen_values = true
    )]
    den: Option<Vec<f64>>,
    /// State space: system matrix.
    #[arg(long, value_name = "MATRIX")]
    a: Option<Grid>,
    /// State space: input matrix, one column.
    #[arg(long, value_name = "MATRIX")]
    b: Option<Grid>,
    /// State space: output matrix, one row; without it the first state is the output.
    #[arg(long, value_name = "MATRIX")]
    c: Option<Grid>,
}

impl Input {
    pub(super) fn or(self, other: Self) -> Self {
        Self {
            interval: self.interval.or(other.interval),
            plant_gain: self.plant_gain.or(other.plant_gain),
            time_constant: self.time_constant.or(other.time_constant),
            dead_time: self.dead_time.or(other.dead_time),
            num: self.num.or(other.num),
            den: self.den.or(other.den),
            a: self.a.or(other.a),
            b: self.b.or(other.b),
            c: self.c.or(other.c),
        }
    }

    pub(super) fn interval_s(&self, tool: &'static str) -> Result<f64, CliError> {
        required(self.interval, tool, "interval")?.positive(tool, "interval")
    }

    /// The plant as sampled, whichever way it was given.
    pub(super) fn plant(&self, tool: &'static str) -> Result<TransferFunction, CliError> {
        let kinds = [
            self.plant_gain.is_some() || self.time_constant.is_some() || self.dead_time.is_some(),
            self.num.is_some() || self.den.is_some(),
            self.a.is_some() || self.b.is_some() || self.c.is_some(),
        ];
        let plant = match kinds {
            [true, false, false] => self.lag(tool)?,
            [false, true, false] => TransferFunction::new(
                required(self.num.as_ref(), tool, "num")?,
                required(self.den.as_ref(), tool, "den")?,
            ),
            [false, false, true] => self.state_space(tool)?,
            _ => {
                return Err(CliError::Usage(format!(
                    "design {tool}: give the plant one way: --plant-gain, --time-constant and \
                     --dead-time; --num and --den; or --a and --b"
                )));
            }
        };
        plant.map_err(|error| refused(tool, &error))
    }

    fn lag(&self, tool: &'static str) -> Result<Result<TransferFunction, SystemError>, CliError> {
        let plant = Fopdt {
            gain: required(self.plant_gain, tool, "plant-gain")?,
            time_constant_s: required(self.time_constant, tool, "time-constant")?.0,
            dead_time_s: self.dead_time.map_or(0.0, |time| time.0),
        };
        let interval_s = self.interval_s(tool)?;
        let intervals = plant.dead_time_s / interval_s;
        if intervals > DEAD_INTERVALS_MAX {
            return Err(CliError::Usage(format!(
                "design {tool}: --dead-time is {intervals:.0} sampling intervals, more than \
                 {DEAD_INTERVALS_MAX}; a longer --interval, a tenth of the dead time, shows the \
                 same loop"
            )));
        }
        Ok(plant.sampled(interval_s))
    }

    fn state_space(
        &self,
        tool: &'static str,
    ) -> Result<Result<TransferFunction, SystemError>, CliError> {
        let a = required(self.a.as_ref(), tool, "a")?;
        let b = required(self.b.as_ref(), tool, "b")?;
        Ok(single_loop(a, b, self.c.as_ref()))
    }
}

fn single_loop(a: &Grid, b: &Grid, c: Option<&Grid>) -> Result<TransferFunction, SystemError> {
    let system = StateSpace::new(a.column("A")?, b.column("B")?)?;
    let system = match c {
        Some(c) => system.with_output(c.row("C")?)?,
        None => system,
    };
    if system.b().ncols() != 1 {
        return Err(SystemError::Shape {
            what: "B",
            rows: system.b().nrows(),
            columns: system.b().ncols(),
            expected: "one column: the loop has one input".to_owned(),
        });
    }
    system.transfer(0, 0)
}

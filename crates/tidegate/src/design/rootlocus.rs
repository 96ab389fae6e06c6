//! `tidegate design rootlocus`: where the poles go as the gain moves.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tidegate_control::design::{DesignError, RootLocus, UtilizationLoop};
use tidegate_control::system::{Complex, SystemError, TransferFunction};
use tidegate_sim::chart::{Chart, svg};

use super::format::{Root, Table, root, short, show, upper};
use super::input::{Common, Seconds, refused, required, write};
use crate::error::CliError;

const TOOL: &str = "rootlocus";
/// Gains listed in the table.
const ROWS: usize = 12;

/// Where the closed-loop poles go as the gain moves.
///
/// The loop is the PI loop on a server's utilization (--sigma, --interval, --integral-time) or any
/// open loop of gain one (--num, --den).
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    input: Input,
    /// Write every point as CSV: gain, branch, re, im.
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Draw the locus with the unit circle.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Clone, Default, clap::Args, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Input {
    /// PI loop: requests the server completes per interval.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    sigma: Option<f64>,
    /// PI loop: control interval.
    #[arg(long, value_name = "TIME", allow_negative_numbers = true)]
    interval: Option<Seconds>,
    /// PI loop: integral time.
    #[arg(long, value_name = "TIME", allow_negative_numbers = true)]
    integral_time: Option<Seconds>,
    /// Any loop: numerator, highest power of z first: 1,0.5.
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        allow_hyphen_values = true
    )]
    num: Option<Vec<f64>>,
    /// Any loop: denominator.
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        allow_hyphen_values = true
    )]
    den: Option<Vec<f64>>,
    /// Smallest gain; 0 unless said otherwise.
    #[arg(long, value_name = "K", allow_negative_numbers = true)]
    gain_min: Option<f64>,
    /// Largest gain.
    #[arg(long, value_name = "K", allow_negative_numbers = true)]
    gain_max: Option<f64>,
}

impl Input {
    fn or(self, other: Self) -> Self {
        Self {
            sigma: self.sigma.or(other.sigma),
            interval: self.interval.or(other.interval),
            integral_time: self.integral_time.or(other.integral_time),
            num: self.num.or(other.num),
            den: self.den.or(other.den),
            gain_min: self.gain_min.or(other.gain_min),
            gain_max: self.gain_max.or(other.gain_max),
        }
    }

    fn locus(&self) -> Result<RootLocus, CliError> {
        let gains = self.gain_min.unwrap_or(0.0)..=required(self.gain_max, TOOL, "gain-max")?;
        let any = self.num.is_some() || self.den.is_some();
        let pi = self.sigma.is_some() || self.integral_time.is_some();
        let locus = match (pi, any) {
            (true, false) => self.pi_locus(gains)?,
            (false, true) => {
                let num = required(self.num.as_ref(), TOOL, "num")?;
                let den = required(self.den.as_ref(), TOOL, "den")?;
                TransferFunction::new(num, den)
                    .map_err(DesignError::from)
                    .and_then(|open| RootLocus::trace(&open, gains))
            }
            _ => {
                return Err(CliError::Usage(format!(
                    "design {TOOL}: give the loop one way: --sigma, --interval and \
                     --integral-time; or --num and --den"
                )));
            }
        };
        locus.map_err(|error| refused(TOOL, &error))
    }

    fn pi_locus(
        &self,
        gains: RangeInclusive<f64>,
    ) -> Result<Result<RootLocus, DesignError>, CliError> {
        let sigma = required(self.sigma, TOOL, "sigma")?;
        let interval_s = required(self.interval, TOOL, "interval")?.0;
        let integral_time_s = required(self.integral_time, TOOL, "integral-time")?.0;
        let server: Result<_, SystemError> = UtilizationLoop::new(sigma, interval_s);
        Ok(server
            .map_err(DesignError::from)
            .and_then(|server| server.root_locus(integral_time_s, gains)))
    }
}

#[derive(Debug, Serialize)]
struct Answer {
    gains: Vec<f64>,
    branches: Vec<Vec<Root>>,
    zeros: Vec<Root>,
    crossings: Vec<Crossing>,
}

#[derive(Debug, Serialize)]
struct Crossing {
    gain: f64,
    pole: Root,
    outwards: bool,
}

pub(super) fn run(args: &Args) -> Result<String, CliError> {
    let locus = args.input.clone().or(args.common.file_input()?).locus()?;
    // Drawn before anything is written, so that a failure leaves nothing half done.
    let picture = args
        .svg
        .as_ref()
        .map(|path| drawn(&locus).map(|svg| (path, svg)));
    if let Some((path, svg)) = picture.transpose()? {
        write(path, &svg)?;
    }
    if let Some(path) = &args.csv {
        write(path, &csv(&locus))?;
    }
    Ok(show(args.common.json, &answer(&locus), table))
}

fn answer(locus: &RootLocus) -> Answer {
    let crossings = locus.crossings.iter().map(|crossing| Crossing {
        gain: crossing.gain,
        pole: crossing.at.into(),
        outwards: crossing.outwards,
    });
    Answer {
        gains: locus.gains.clone(),
        branches: locus
            .branches
            .iter()
            .map(|branch| Root::all(branch))
            .collect(),
        zeros: Root::all(&locus.zeros),
        crossings: crossings.collect(),
    }
}

fn drawn(locus: &RootLocus) -> Result<String, CliError> {
    let plane = |roots: &[Complex<f64>]| roots.iter().map(|z| (z.re, z.im)).collect::<Vec<_>>();
    let (first, last) = (locus.gains.first(), locus.gains.last());
    let title = format!(
        "Root locus, gain {} to {}",
        first.map_or(String::new(), |&gain| short(gain)),
        last.map_or(String::new(), |&gain| short(gain))
    );
    let chart = Chart::new(title)
        .x("real part")
        .y("imaginary part")
        .unit_circle();
    let branches = locus.branches.iter().enumerate();
    let chart = branches.fold(chart, |chart, (i, branch)| {
        chart.line(format!("pole {}", i + 1), plane(branch))
    });
    let starts: Vec<Complex<f64>> = locus.branches.iter().map(|branch| branch[0]).collect();
    let mut chart = chart.poles("smallest gain", plane(&starts));
    if !locus.zeros.is_empty() {
        chart = chart.points("zeros", plane(&locus.zeros));
    }
    svg(&chart).map_err(|error| CliError::Usage(format!("design {TOOL}: {error}")))
}

fn csv(locus: &RootLocus) -> String {
    let mut text = String::from("gain,branch,re,im\n");
    for (i, branch) in locus.branches.iter().enumerate() {
        for (gain, pole) in locus.gains.iter().zip(branch) {
            text += &format!("{gain},{},{},{}\n", i + 1, pole.re, pole.im);
        }
    }
    text
}

fn table(answer: &Answer) -> String {
    let table = Table::new("Root locus: gain, closed-loop poles, slowest");
    let table = listed(&answer.gains).fold(table, |table, at| {
        table.row(&short(answer.gains[at]), poles_at(answer, at))
    });
    let table = answer.crossings.iter().fold(table, |table, crossing| {
        let way = if crossing.outwards {
            "leaves"
        } else {
            "enters"
        };
        table.line(&format!(
            "a pole {way} the unit circle at gain {} ({})",
            short(crossing.gain),
            root(&crossing.pole)
        ))
    });
    table.finish()
}

/// Places of about evenly spaced gains, though they were traced more densely where poles move fast.
fn listed(gains: &[f64]) -> impl Iterator<Item = usize> {
    let last = gains.len() - 1;
    let (low, high) = (gains[0], gains[last]);
    (0..=ROWS).map(move |row| {
        let wanted = low + (high - low) * row as f64 / ROWS as f64;
        gains.partition_point(|&gain| gain < wanted).min(last)
    })
}

fn poles_at(answer: &Answer, at: usize) -> String {
    let poles: Vec<Root> = answer.branches.iter().map(|branch| branch[at]).collect();
    let slowest = poles
        .iter()
        .map(|pole| pole.re.hypot(pole.im))
        .fold(0.0, f64::max);
    let shown: Vec<String> = upper(&poles).map(root).collect();
    let outside = if slowest > 1.0 { "  unstable" } else { "" };
    format!("{:<36}|z| {}{outside}", shown.join(", "), short(slowest))
}

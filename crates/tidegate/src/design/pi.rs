//! `tidegate design pi`: the utilization loop of 002.

use serde::{Deserialize, Serialize};
use tidegate_control::design::{DesignError, PiGains, UtilizationLoop};

use super::assess::Assessment;
use super::format::{Table, short, show};
use super::input::{Common, Seconds, refused, required};
use crate::error::CliError;

const TOOL: &str = "pi";

/// PI control of a server's utilization: poles of given gains, or gains for wanted poles.
///
/// Give --gain and --integral-time to see what they do, or --settling-time and --damping, or
/// --a1 and --a2, to get gains.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    input: Input,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Clone, Copy, Default, clap::Args, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Input {
    /// Requests the server completes per interval (one over its mean service time, for an interval
    /// of one second), in the unit in which the gain counts.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    sigma: Option<f64>,
    /// Control interval: seconds, or with a unit (250ms).
    #[arg(long, value_name = "TIME", allow_negative_numbers = true)]
    interval: Option<Seconds>,
    /// Gain K of the controller.
    #[arg(long, value_name = "K", allow_negative_numbers = true)]
    gain: Option<f64>,
    /// Integral time Ti of the controller.
    #[arg(long, value_name = "TIME", allow_negative_numbers = true)]
    integral_time: Option<Seconds>,
    /// Wanted: time after which the loop stays within 2 %.
    #[arg(long, value_name = "TIME", allow_negative_numbers = true)]
    settling_time: Option<Seconds>,
    /// Wanted: damping of the poles (1 does not oscillate, 0.7 is brisk).
    #[arg(long, value_name = "ZETA", allow_negative_numbers = true)]
    damping: Option<f64>,
    /// Wanted: a1 of the closed loop z² + a1 z + a2.
    #[arg(long, value_name = "A1", allow_negative_numbers = true)]
    a1: Option<f64>,
    /// Wanted: a2 of the closed loop z² + a1 z + a2.
    #[arg(long, value_name = "A2", allow_negative_numbers = true)]
    a2: Option<f64>,
}

impl Input {
    fn or(self, other: Self) -> Self {
        Self {
            sigma: self.sigma.or(other.sigma),
            interval: self.interval.or(other.interval),
            gain: self.gain.or(other.gain),
            integral_time: self.integral_time.or(other.integral_time),
            settling_time: self.settling_time.or(other.settling_time),
            damping: self.damping.or(other.damping),
            a1: self.a1.or(other.a1),
            a2: self.a2.or(other.a2),
        }
    }

    /// What was asked for, when it is exactly one thing.
    fn wish(&self) -> Result<Wish, CliError> {
        let analyse = self.gain.zip(self.integral_time);
        let settle = self.settling_time.zip(self.damping);
        let place = self.a1.zip(self.a2);
        let parts = [
            self.gain.is_some() || self.integral_time.is_some(),
            self.settling_time.is_some() || self.damping.is_some(),
            self.a1.is_some() || self.a2.is_some(),
        ];
        match (
            analyse,
            settle,
            place,
            parts.iter().filter(|&&part| part).count(),
        ) {
            (Some((gain, time)), None, None, 1) => Ok(Wish::Analyse(PiGains {
                gain,
                integral_time_s: time.0,
            })),
            (None, Some((time, damping)), None, 1) => Ok(Wish::Settle(time.0, damping)),
            (None, None, Some((a1, a2)), 1) => Ok(Wish::Place(a1, a2)),
            _ => Err(CliError::Usage(format!(
                "design {TOOL}: give one of: --gain with --integral-time; --settling-time with \
                 --damping; --a1 with --a2"
            ))),
        }
    }
}

enum Wish {
    Analyse(PiGains),
    Settle(f64, f64),
    Place(f64, f64),
}

impl Wish {
    fn gains(&self, server: UtilizationLoop) -> Result<PiGains, DesignError> {
        match *self {
            Self::Analyse(gains) => Ok(gains),
            Self::Settle(settling_s, damping) => server.settling(settling_s, damping),
            Self::Place(a1, a2) => server.place(a1, a2),
        }
    }
}

#[derive(Debug, Serialize)]
struct Answer {
    sigma: f64,
    interval_s: f64,
    gain: f64,
    integral_time_s: f64,
    #[serde(flatten)]
    assessment: Assessment,
}

pub(super) fn run(args: &Args) -> Result<String, CliError> {
    let input = args.input.or(args.common.file_input()?);
    let sigma = required(input.sigma, TOOL, "sigma")?;
    let interval_s = required(input.interval, TOOL, "interval")?.0;
    let answer =
        answer(sigma, interval_s, &input.wish()?).map_err(|error| refused(TOOL, &error))?;
    Ok(show(args.common.json, &answer, table))
}

fn answer(sigma: f64, interval_s: f64, wish: &Wish) -> Result<Answer, DesignError> {
    let server = UtilizationLoop::new(sigma, interval_s)?;
    let gains = wish.gains(server)?;
    let step = server.closed_loop(gains)?.step_info()?;
    let assessment = Assessment::of_poles(&server.poles(gains)?, Some(interval_s))
        .with_margins(&server.open_loop(gains)?, Some(interval_s))?
        .with_step(step, interval_s);
    Ok(Answer {
        sigma,
        interval_s,
        gain: gains.gain,
        integral_time_s: gains.integral_time_s,
        assessment,
    })
}

fn table(answer: &Answer) -> String {
    let title = format!(
        "PI on utilization, sigma {}, interval {} s",
        short(answer.sigma),
        short(answer.interval_s)
    );
    let table = Table::new(&title).row("gain K", short(answer.gain)).row(
        "integral time Ti",
        format!("{} s", short(answer.integral_time_s)),
    );
    answer.assessment.rows(table).finish()
}

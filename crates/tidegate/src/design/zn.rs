//! `tidegate design zn`: Ziegler–Nichols on a given plant, by raising the gain and by relay.

use std::f64::consts::PI;

use serde::{Deserialize, Serialize};
use tidegate_control::design::{
    DesignError, Form, Gains, RaisingConfig, Relay, RelayConfig, Rule, SampledPlant, Ultimate,
    raise_gain, relay_experiment,
};
use tidegate_control::system::{Margins, TransferFunction};

use super::assess::Assessment;
use super::format::{Table, short, show};
use super::input::{Common, refused};
use super::plant;
use crate::error::CliError;

const TOOL: &str = "zn";

/// Ultimate gain and period of a plant, and P, PI and PID gains from them.
///
/// The plant is a lag with dead time (--plant-gain, --time-constant, --dead-time), a transfer
/// function (--num, --den) or a state space (--a, --b, --c). On a live system only the relay is
/// safe: its command never leaves two chosen values.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    plant: plant::Input,
    /// How to find the ultimate gain; both by default, and by raising alone for a plant that is
    /// unstable by itself.
    #[arg(long, value_enum)]
    method: Option<Method>,
    /// Hysteresis of the relay, in units of the measurement, for a relay of height one.
    #[arg(
        long,
        value_name = "E",
        default_value_t = 0.0,
        allow_negative_numbers = true
    )]
    hysteresis: f64,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Method {
    /// Raise a proportional gain until the loop oscillates for ever.
    Raise,
    /// Let a relay oscillate the plant.
    Relay,
}

#[derive(Debug, Serialize)]
struct Answer {
    interval_s: f64,
    methods: Vec<Found>,
    warning: Option<String>,
}

#[derive(Debug, Serialize)]
struct Found {
    method: Method,
    ultimate_gain: f64,
    ultimate_period_s: f64,
    tunings: Vec<Tuning>,
}

#[derive(Debug, Serialize)]
struct Tuning {
    rule: &'static str,
    form: &'static str,
    gain: f64,
    integral_time_s: Option<f64>,
    derivative_time_s: Option<f64>,
    #[serde(flatten)]
    assessment: Assessment,
}

const RULES: [(Rule, &str); 2] = [
    (Rule::ZieglerNichols, "ziegler-nichols"),
    (Rule::TyreusLuyben, "tyreus-luyben"),
];
const FORMS: [(Form, &str); 3] = [(Form::P, "P"), (Form::Pi, "PI"), (Form::Pid, "PID")];

pub(super) fn run(args: &Args) -> Result<String, CliError> {
    let input = args.plant.clone().or(args.common.file_input()?);
    let plant = input.plant(TOOL)?;
    let bench = Bench::new(&plant, input.interval_s(TOOL)?, args.hysteresis)
        .map_err(|error| refused(TOOL, &error))?;
    let relay = relay_is_safe(&plant).map_err(|error| refused(TOOL, &error))?;
    let methods = match args.method {
        Some(method) => vec![method],
        None if relay => vec![Method::Raise, Method::Relay],
        None => vec![Method::Raise],
    };
    let found: Result<Vec<Found>, DesignError> = methods
        .into_iter()
        .map(|method| bench.found(method))
        .collect();
    let found = found.map_err(|error| refused(TOOL, &error))?;
    let answer = Answer {
        interval_s: bench.interval_s,
        warning: sampler_warning(&found, bench.interval_s),
        methods: found,
    };
    Ok(show(args.common.json, &answer, table))
}

/// Where a loop begins to oscillate.
struct Oscillation {
    gain: f64,
    omega: f64,
    stable_gain: f64,
}

/// The first proportional gain at which a stable loop around the plant becomes unstable. A plant
/// that is unstable by itself may need some gain to be stable at all, and the sign of its gain at
/// rest says nothing: both are tried.
fn oscillation(plant: &TransferFunction) -> Result<Option<Oscillation>, DesignError> {
    let gain = plant.dc_gain().filter(|&gain| gain != 0.0);
    let sign = gain.map_or(1.0, f64::signum);
    match oscillation_of_sign(plant, sign)? {
        None if !plant.is_stable()? => oscillation_of_sign(plant, -sign),
        found => Ok(found),
    }
}

fn oscillation_of_sign(
    plant: &TransferFunction,
    sign: f64,
) -> Result<Option<Oscillation>, DesignError> {
    /// Small enough that every crossing lies above it.
    const FROM: f64 = 1e-12;
    let mut from = FROM;
    while let Some(crossing) = Margins::of(&plant.scaled(sign * from))?.gain_up {
        let gain = from * crossing.factor;
        let below = (from * gain).sqrt().max(gain / 50.0);
        if plant.scaled(sign * below).feedback()?.is_stable()? {
            return Ok(Some(Oscillation {
                gain: sign * gain,
                omega: crossing.omega,
                stable_gain: sign * below,
            }));
        }
        from = gain * (1.0 + 1e-6);
    }
    Ok(None)
}

/// Whether a relay can hold the plant: an unstable one runs away from it.
fn relay_is_safe(plant: &TransferFunction) -> Result<bool, DesignError> {
    let poles = plant.poles()?;
    Ok(poles.iter().all(|pole| pole.norm() <= 1.0 + 1e-9))
}

/// The plant with what sets the scale of experiments on it.
struct Bench<'a> {
    plant: &'a TransferFunction,
    interval_s: f64,
    hysteresis: f64,
    /// Where the phase is -180°; sign of the plant's gain included.
    expected_gain: f64,
    /// A gain below it at which the loop is stable.
    stable_gain: f64,
    expected_period_samples: f64,
}

impl<'a> Bench<'a> {
    fn new(
        plant: &'a TransferFunction,
        interval_s: f64,
        hysteresis: f64,
    ) -> Result<Self, DesignError> {
        let oscillation = oscillation(plant)?.ok_or_else(|| DesignError::NoUltimate {
            reason: "this plant does not oscillate under any proportional gain".to_owned(),
        })?;
        let omega = oscillation.omega.max(1e-5);
        Ok(Self {
            plant,
            interval_s,
            hysteresis,
            expected_gain: oscillation.gain,
            stable_gain: oscillation.stable_gain,
            expected_period_samples: 2.0 * PI / omega,
        })
    }

    fn found(&self, method: Method) -> Result<Found, DesignError> {
        let ultimate = match method {
            Method::Raise => self.raise(),
            Method::Relay => self.relay(),
        }?;
        Ok(Found {
            method,
            ultimate_gain: ultimate.gain,
            ultimate_period_s: ultimate.period_s,
            tunings: self.tunings(ultimate)?,
        })
    }

    fn raise(&self) -> Result<Ultimate, DesignError> {
        let config = RaisingConfig {
            gain_first: self.stable_gain,
            gain_max: self.expected_gain.abs() * 10.0,
            samples: self.samples(80.0),
            interval_s: self.interval_s,
        };
        let fresh = SampledPlant::new(self.plant)?;
        raise_gain(&config, || fresh.clone())
    }

    fn relay(&self) -> Result<Ultimate, DesignError> {
        let relay = Relay::new(RelayConfig {
            setpoint: 0.0,
            bias: 0.0,
            amplitude: self.expected_gain.signum(),
            hysteresis: self.hysteresis,
            interval_s: self.interval_s,
            samples_max: self.samples(200.0),
        })?;
        relay_experiment(relay, SampledPlant::new(self.plant)?)
    }

    /// Samples of this many expected periods, within reason.
    fn samples(&self, periods: f64) -> usize {
        (periods * self.expected_period_samples).clamp(500.0, 500_000.0) as usize
    }

    fn tunings(&self, ultimate: Ultimate) -> Result<Vec<Tuning>, DesignError> {
        let mut tunings = Vec::new();
        for (rule, rule_name) in RULES {
            for (form, form_name) in FORMS {
                if let Some(gains) = ultimate.gains(rule, form) {
                    tunings.push(self.tuning(gains, rule_name, form_name)?);
                }
            }
        }
        Ok(tunings)
    }

    fn tuning(
        &self,
        gains: Gains,
        rule: &'static str,
        form: &'static str,
    ) -> Result<Tuning, DesignError> {
        let open = controller(gains, self.interval_s)?.series(self.plant);
        Ok(Tuning {
            rule,
            form,
            gain: gains.gain,
            integral_time_s: gains.integral_time_s,
            derivative_time_s: gains.derivative_time_s,
            assessment: Assessment::of_loop(&open, self.interval_s)?,
        })
    }
}

/// `K (1 + h z/(Ti (z-1)) + Td (z-1)/(h z))`, over the common denominator of the terms it has: the
/// backward integral of `tidegate_control::controller::Pid`, without the filter of its derivative.
fn controller(gains: Gains, interval_s: f64) -> Result<TransferFunction, DesignError> {
    let integral = gains.integral_time_s.map_or(0.0, |time| interval_s / time);
    let derivative = gains.derivative_time_s.unwrap_or(0.0) / interval_s;
    let (num, den): (Vec<f64>, &[f64]) = match (gains.integral_time_s, gains.derivative_time_s) {
        (None, None) => (vec![1.0], &[1.0]),
        (Some(_), None) => (vec![1.0 + integral, -1.0], &[1.0, -1.0]),
        _ => (
            // z(z-1) + i z² + d (z-1)²
            vec![
                1.0 + integral + derivative,
                -1.0 - 2.0 * derivative,
                derivative,
            ],
            &[1.0, -1.0, 0.0],
        ),
    };
    Ok(TransferFunction::new(&num, den)?.scaled(gains.gain))
}

fn sampler_warning(found: &[Found], interval_s: f64) -> Option<String> {
    let shortest = found
        .iter()
        .map(|found| found.ultimate_period_s / interval_s);
    let shortest = shortest.fold(f64::INFINITY, f64::min);
    (shortest < 4.0).then(|| {
        format!(
            "the oscillation has a period of {} sampling intervals: it is the sampling that \
             oscillates, not the plant. Sample faster, or take gains well below these.",
            short(shortest)
        )
    })
}

fn table(answer: &Answer) -> String {
    let mut table = Table::new("Ziegler-Nichols");
    for found in &answer.methods {
        let how = match found.method {
            Method::Raise => "by raising the gain",
            Method::Relay => "by relay",
        };
        let line = format!(
            "{how}: ultimate gain {}, period {} s",
            short(found.ultimate_gain),
            short(found.ultimate_period_s)
        );
        table = found
            .tunings
            .iter()
            .fold(table.line(&line), |table, tuning| {
                table.row(
                    &format!("{} {}", tuning.rule, tuning.form),
                    tuning_row(tuning),
                )
            });
    }
    table.warning(answer.warning.as_deref()).finish()
}

fn tuning_row(tuning: &Tuning) -> String {
    let time = |name: &str, value: Option<f64>| {
        value.map_or(String::new(), |value| {
            format!("  {name} {} s", short(value))
        })
    };
    format!(
        "K {}{}{}   {}",
        short(tuning.gain),
        time("Ti", tuning.integral_time_s),
        time("Td", tuning.derivative_time_s),
        tuning.assessment.brief()
    )
}

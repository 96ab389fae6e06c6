//! Parameters of the modes.

use std::time::Duration;

#[cfg(feature = "serde")]
use schemars::JsonSchema;
#[cfg(feature = "serde")]
use serde::{Deserialize, Serialize};
use tidegate_config::{Dur, Rate, Share};
use tidegate_control::Timestamp;

use super::{ModeName, SentryConfig};
use crate::error::SentryError;
use crate::mode;

/// Parameters of mode `auto`. None of them needs a change for ordinary services.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize, JsonSchema))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct AutoConfig {
    /// Smallest target that is derived when none is configured.
    pub target_min: Dur,
    /// Largest target that is derived when none is configured.
    pub target_max: Dur,
    /// In overload, let requests of paths that take more than three times as long as the mean of
    /// their class wait only where as many times fewer are ahead of them: the slowest pages are
    /// refused first, and get what the others leave over.
    pub path_costs: bool,
    /// In overload, prefer cheap requests within a class: from 0, fairness by request, to 1,
    /// fairness by cost, where a request of twice the cost is admitted half as often. Above 0 it
    /// stands in for `path_costs`.
    pub cost_fairness: f64,
    /// What the cost of a request is.
    pub cost_by: CostBy,
}

/// What the cost of a request is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize, JsonSchema))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
pub enum CostBy {
    /// The time it spends in a replica, learned by path and tenant.
    #[default]
    Time,
    /// What replicas report with their answers (`tidegate-cost`, or `request_cost` of ORCA),
    /// learned by path and tenant: tokens, rows, CPU time.
    Report,
}

impl Default for AutoConfig {
    fn default() -> Self {
        Self {
            target_min: Dur(Duration::from_millis(100)),
            target_max: Dur(Duration::from_secs(5)),
            path_costs: true,
            cost_fairness: 0.0,
            cost_by: CostBy::default(),
        }
    }
}

/// What a controller looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize, JsonSchema))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Measure {
    /// Mean utilization the replicas report, 0 to 1.
    #[default]
    Utilization,
    /// Mean response time of the requests that ended, in seconds, from arrival to end.
    ResponseTime,
    /// 95th percentile of the response time, in seconds.
    ResponseTimeP95,
    /// Mean waiting time in the central queue, in seconds.
    WaitingTime,
    /// Requests served per second.
    Goodput,
    /// Requests in the central queue and in flight, at the end of the interval.
    InSystem,
}

/// What a controller's output is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize, JsonSchema))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
pub enum GateKind {
    /// Tokens per second of a token bucket.
    #[default]
    Rate,
    /// Share of the requests that is admitted, 0 to 1 (percent blocking).
    Percent,
    /// Requests in the system, waiting or in flight (dynamic window).
    Window,
}

/// What modes with a feedback loop have in common: what is measured, and what the output does.
#[derive(Debug, Clone, PartialEq)]
pub struct Feedback {
    /// The control interval.
    pub interval: Duration,
    /// What is measured.
    pub measure: Measure,
    /// The value the measured quantity is held at.
    pub setpoint: f64,
    /// What the output is.
    pub gate: GateKind,
    /// Smallest output.
    pub min: f64,
    /// Largest output.
    pub max: f64,
    /// Output before the first step; without it the gate is open until there is something
    /// measured to begin with.
    pub initial: Option<f64>,
    /// Largest change between two steps.
    pub max_change: Option<f64>,
    /// Tokens a request costs.
    pub tokens_per_request: f64,
    /// Requests that a full token bucket lets through at once.
    pub burst: f64,
}

/// A table with the keys of [`Feedback`] and some of its own: serde cannot both flatten a table
/// and refuse unknown keys, so the common keys are written into each.
macro_rules! feedback_table {
    (
        $(#[$table_doc:meta])*
        $name:ident { $( $(#[$doc:meta])* $field:ident: $type:ty = $default:expr, )* }
    ) => {
        $(#[$table_doc])*
        #[derive(Debug, Clone, PartialEq)]
        #[cfg_attr(feature = "serde", derive(Serialize, Deserialize, JsonSchema))]
        #[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
        pub struct $name {
            $( $(#[$doc])* pub $field: $type, )*
            /// The control interval.
            pub interval: Dur,
            /// What is measured.
            pub measure: Measure,
            /// The value the measured quantity is held at, in its own unit.
            pub setpoint: f64,
            /// What the output is.
            pub gate: GateKind,
            /// Smallest output. The gate treats a negative one as zero; the integral goes down to
            /// it in a long overload, and has to come up again from there.
            pub min: f64,
            /// Largest output.
            pub max: f64,
            /// Output before the first step. Without it the gate is open until the quantity is
            /// measured for the first time, and the output begins at what was measured.
            #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
            pub initial: Option<f64>,
            /// Largest change between two steps; without it there is no bound.
            #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
            pub max_change: Option<f64>,
            /// Tokens a request costs, where the gate is a token bucket.
            pub tokens_per_request: f64,
            /// Requests that a full token bucket lets through at once.
            pub burst: f64,
        }

        impl Default for $name {
            fn default() -> Self {
                Self {
                    $( $field: $default, )*
                    interval: Dur(Duration::from_secs(1)),
                    measure: Measure::Utilization,
                    setpoint: 0.8,
                    gate: GateKind::Rate,
                    min: 0.0,
                    max: 1e6,
                    initial: None,
                    max_change: None,
                    tokens_per_request: 1.0,
                    burst: 10.0,
                }
            }
        }

        impl $name {
            /// The part that every feedback loop has.
            #[must_use]
            pub fn feedback(&self) -> Feedback {
                Feedback {
                    interval: self.interval.0,
                    measure: self.measure,
                    setpoint: self.setpoint,
                    gate: self.gate,
                    min: self.min,
                    max: self.max,
                    initial: self.initial,
                    max_change: self.max_change,
                    tokens_per_request: self.tokens_per_request,
                    burst: self.burst,
                }
            }
        }
    };
}

feedback_table! {
    /// Parameters of mode `step` (PI-gate, section 2.2): above the setpoint plus the dead band
    /// the output falls by `step`, below the setpoint minus the dead band it rises by `step`.
    StepConfig {
        /// Change of the output in one interval.
        step: f64 = 1.0,
        /// How far the measured quantity may be from the setpoint before anything happens.
        dead_band: f64 = 0.05,
    }
}

feedback_table! {
    /// Parameters of mode `pi` (PI-gate, section 5). The output rises when the measured quantity
    /// is below its setpoint. The default gains are the paper's, for a server of about 40
    /// requests a second; `tidegate design pi` computes those of another.
    PiConfig {
        /// Proportional gain K, output per unit of error.
        gain: f64 = 20.0,
        /// Integral time.
        integral_time: Dur = Dur(Duration::from_millis(2800)),
    }
}

feedback_table! {
    /// Parameters of mode `pid`.
    PidConfig {
        /// Proportional gain K, output per unit of error.
        gain: f64 = 20.0,
        /// Integral time.
        integral_time: Dur = Dur(Duration::from_millis(2800)),
        /// Derivative time.
        derivative_time: Dur = Dur(Duration::from_millis(250)),
        /// The derivative is low-pass filtered with the time constant
        /// `derivative_time / derivative_filter`; 5 to 20 is usual.
        derivative_filter: f64 = 8.0,
    }
}

/// Parameters of mode `static`: exactly one of `rate`, `share`, `window`; or `setpoint` and
/// `service_time`, which give the rate `setpoint / service_time` (PI-gate, section 2.2).
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize, JsonSchema))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct StaticConfig {
    /// Requests admitted per second.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub rate: Option<Rate>,
    /// Share of the requests admitted.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub share: Option<Share>,
    /// Requests in the system, waiting or in flight.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub window: Option<u32>,
    /// Wanted utilization, with `service_time`.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub setpoint: Option<Share>,
    /// Mean service time, with `setpoint`.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub service_time: Option<Dur>,
    /// Requests that a full token bucket lets through at once.
    pub burst: f64,
}

impl Default for StaticConfig {
    fn default() -> Self {
        Self {
            rate: None,
            share: None,
            window: None,
            setpoint: None,
            service_time: None,
            burst: 10.0,
        }
    }
}

/// Parameters of mode `lqr` (LQR-proxy, section III). The defaults are the paper's test-bed;
/// `tidegate characterize` finds those of another service.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize, JsonSchema))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct LqrConfig {
    /// How often response time and goodput are measured and filtered.
    pub measurement_interval: Dur,
    /// How often the admission rate is set; a multiple of `measurement_interval`.
    pub tuning_interval: Dur,
    /// Weight of the past in the filter of the response time (equation 2).
    pub response_filter: f64,
    /// Weight of the past in the filter of the goodput (equation 2).
    pub goodput_filter: f64,
    /// Operating point: mean response time.
    pub response_time: Dur,
    /// Operating point: goodput.
    pub goodput: Rate,
    /// Operating point: admitted rate.
    pub rate: Rate,
    /// Smallest admitted rate.
    pub rate_min: Rate,
    /// Largest admitted rate.
    pub rate_max: Rate,
    /// The gain: tokens per second for each millisecond of response time above the operating
    /// point, and for each request per second of goodput below it (equation 10).
    pub gain: [f64; 2],
    /// Tokens a request costs.
    pub tokens_per_request: f64,
    /// Requests that a full token bucket lets through at once.
    pub burst: f64,
    /// Move the operating point with the capacity: the paper's own next step.
    pub adapt_operating_point: bool,
}

impl Default for LqrConfig {
    fn default() -> Self {
        Self {
            measurement_interval: Dur(Duration::from_secs(5)),
            tuning_interval: Dur(Duration::from_secs(10)),
            response_filter: 0.5,
            goodput_filter: 0.4,
            response_time: Dur(Duration::from_millis(400)),
            goodput: Rate(9.6),
            rate: Rate(10.0),
            rate_min: Rate(0.5),
            rate_max: Rate(13.0),
            gain: [-0.81782, 10.27185],
            tokens_per_request: 100.0,
            burst: 10.0,
            adapt_operating_point: false,
        }
    }
}

pub(super) fn validate(config: &SentryConfig) -> Result<(), SentryError> {
    validate_tables(config)?;
    // The controllers look at their own gains.
    mode::strategy(config, Timestamp::ZERO).map(drop)
}

fn validate_tables(config: &SentryConfig) -> Result<(), SentryError> {
    match config.mode {
        ModeName::Auto => validate_auto(&config.auto),
        ModeName::Static => config.fixed.gate_value().map(|_| ()),
        ModeName::Step => validate_feedback("step", &config.step.feedback()),
        ModeName::Pi => validate_feedback("pi", &config.pi.feedback()),
        ModeName::Pid => validate_feedback("pid", &config.pid.feedback()),
        ModeName::Lqr => validate_lqr(&config.lqr),
        ModeName::Ilac => config.ilac.validate(config.target),
        ModeName::Sentry => config.sentry.validate(config),
        ModeName::Off => Ok(()),
    }
}

fn validate_auto(auto: &AutoConfig) -> Result<(), SentryError> {
    if !(0.0..=1.0).contains(&auto.cost_fairness) {
        let remedy = "write 0 for fairness by request, 1 for fairness by cost, or a number between";
        let key = "auto.cost_fairness";
        return Err(SentryError::out_of_range(key, auto.cost_fairness, remedy));
    }
    Ok(())
}

/// The shortest control interval. A step takes some ten microseconds, and measures what happened
/// since the last one: within less than a millisecond nothing has.
const INTERVAL_MIN: Duration = Duration::from_millis(1);

pub(super) fn interval_above_zero(key: &'static str, interval: Dur) -> Result<(), SentryError> {
    if interval.0 < INTERVAL_MIN {
        let remedy = "a controller needs time between two steps: write at least \"1ms\"";
        return Err(SentryError::out_of_range(key, interval, remedy));
    }
    Ok(())
}

pub(super) fn refuse(table: &'static str, cause: &str) -> SentryError {
    SentryError::Controller {
        table,
        cause: cause.to_owned(),
    }
}

/// What the controllers cannot see, which check their own gains.
fn validate_feedback(table: &'static str, feedback: &Feedback) -> Result<(), SentryError> {
    let initial = feedback.initial.unwrap_or(feedback.min);
    let finite = [feedback.setpoint, feedback.min, feedback.max, initial];
    if feedback.interval.is_zero() {
        return Err(refuse(table, "`interval` must be above zero"));
    }
    if finite.iter().any(|value| !value.is_finite()) || feedback.min > feedback.max {
        return Err(refuse(table, "`min` must not be above `max`"));
    }
    validate_bucket(table, feedback.tokens_per_request, feedback.burst)
}

fn validate_bucket(table: &'static str, tokens: f64, burst: f64) -> Result<(), SentryError> {
    if !(tokens.is_finite() && tokens > 0.0) {
        return Err(refuse(table, "`tokens_per_request` must be above zero"));
    }
    if !(burst.is_finite() && burst >= 1.0) {
        return Err(refuse(
            table,
            "`burst` must be at least 1: a bucket that holds no whole request admits none",
        ));
    }
    Ok(())
}

fn validate_lqr(lqr: &LqrConfig) -> Result<(), SentryError> {
    interval_above_zero("lqr.measurement_interval", lqr.measurement_interval)?;
    if lqr.tuning_interval.0 < lqr.measurement_interval.0 {
        return Err(refuse(
            "lqr",
            "`tuning_interval` must be at least `measurement_interval`",
        ));
    }
    let filters = [lqr.response_filter, lqr.goodput_filter];
    if filters.iter().any(|weight| !(0.0..1.0).contains(weight)) {
        return Err(refuse(
            "lqr",
            "`response_filter` and `goodput_filter` must be at least 0 and below 1",
        ));
    }
    if !(lqr.rate_min.0 <= lqr.rate.0 && lqr.rate.0 <= lqr.rate_max.0) {
        return Err(refuse(
            "lqr",
            "`rate` must lie between `rate_min` and `rate_max`",
        ));
    }
    if lqr.response_time.is_zero() || lqr.goodput.0 <= 0.0 || lqr.rate_min.0 <= 0.0 {
        return Err(refuse(
            "lqr",
            "the operating point (`response_time`, `goodput`) and `rate_min` must be above zero",
        ));
    }
    validate_bucket("lqr", lqr.tokens_per_request, lqr.burst)
}

impl StaticConfig {
    /// The gate and its fixed value.
    ///
    /// # Errors
    /// When none or more than one is given.
    pub fn gate_value(&self) -> Result<(GateKind, f64), SentryError> {
        let derived = match (self.setpoint, self.service_time) {
            (Some(setpoint), Some(service_time)) if !service_time.is_zero() => {
                Some((GateKind::Rate, setpoint.0 / service_time.as_secs_f64()))
            }
            _ => None,
        };
        let given = [
            self.rate.map(|rate| (GateKind::Rate, rate.0)),
            self.share.map(|share| (GateKind::Percent, share.0)),
            self.window
                .map(|window| (GateKind::Window, f64::from(window))),
            derived,
        ];
        let mut values = given.into_iter().flatten();
        match (values.next(), values.next()) {
            (Some(value), None) => validate_bucket("static", 1.0, self.burst).map(|()| value),
            _ => Err(SentryError::Missing {
                mode: "static",
                what: "exactly one of `static.rate`, `static.share`, `static.window`, or \
                       `static.setpoint` with `static.service_time`",
            }),
        }
    }
}

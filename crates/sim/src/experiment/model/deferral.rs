//! Clients that hold back (001): a crowd with fixed parameters, an auction in a closed loop, a
//! broadcast over trees, and what refusing costs instead.

use std::time::Duration;

use serde::Deserialize;
use tidegate_channel::regulate::{Means, Regulator, RegulatorConfig, Scale, ziegler_nichols};
use tidegate_channel::strategy::Groups;
use tidegate_channel::{Strategy, Variant};
use tidegate_config::{Dur, Share};
use tidegate_control::controller::PidGains;

use super::ModelError;
use crate::deferral::{auction, broadcast, crowd, refusing};
use crate::experiment::Record;

pub(super) const CROWD_SERIES: [&str; 2] = ["made", "sent"];
pub(super) const CROWD_VALUES: [&str; 4] = ["peak_made", "peak_sent", "last_sent", "delay_max"];
pub(super) const AUCTION_SERIES: [&str; 4] = ["delay", "command", "throughput", "inside"];
pub(super) const AUCTION_VALUES: [&str; 9] = [
    "served",
    "refused",
    "duration",
    "throughput",
    "ultimate_gain",
    "ultimate_period",
    "gain",
    "integral_time",
    "derivative_time",
];
pub(super) const BROADCAST_VALUES: [&str; 4] = ["copies", "reached", "delay_max", "delay_mean"];
pub(super) const REFUSING_VALUES: [&str; 3] = ["processed_share", "refusing_share", "of_bound"];

/// Seconds about the peak that are counted; in a crowd nothing happens before, and what a queue
/// sends later is little.
const WINDOW_S: std::ops::Range<i64> = -600..2000;

/// Very many clients that were told once what to do.
///
/// Series over time, per second: `made` and `sent`. Values: `peak_made` and `peak_sent` (means over
/// ten seconds), `last_sent` (when 99.9 % had arrived), `delay_max`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CrowdRun {
    /// How many clients.
    pub clients: u64,
    /// Items that each makes.
    pub items: usize,
    /// Standard deviation of the times of the items about zero.
    pub spread: Dur,
    /// What clients were told; nothing when missing.
    #[serde(default)]
    pub strategy: FixedStrategy,
    /// Whether a newer item replaces an older one.
    #[serde(default)]
    pub variant: Variant,
    /// From zero for so long nothing reaches the server.
    #[serde(default)]
    pub outage: Dur,
}

/// A strategy with fixed parameters.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum FixedStrategy {
    /// Everybody at any time.
    #[default]
    Open,
    /// One of this many groups at a time.
    Group {
        /// How many groups.
        groups: u16,
        /// How long each is active.
        slot: Dur,
    },
    /// One item per interval.
    Interval(Dur),
}

impl FixedStrategy {
    fn strategy(self) -> Strategy {
        match self {
            Self::Open => Strategy::Open,
            Self::Group { groups, slot } => Strategy::Group(Groups::one_of(groups, slot.0)),
            Self::Interval(interval) => Strategy::Interval(interval.0),
        }
    }
}

impl CrowdRun {
    pub(super) fn check(&self) -> Result<(), ModelError> {
        positive("spread", self.spread)?;
        match self.strategy {
            FixedStrategy::Group { slot, .. } => positive("strategy.group.slot", slot),
            FixedStrategy::Interval(interval) => positive("strategy.interval", interval),
            FixedStrategy::Open => Ok(()),
        }
    }

    pub(super) fn run(&self, seed: u64) -> Result<Record, ModelError> {
        self.check()?;
        let outage_s = self.outage.as_secs_f64();
        let setup = crowd::Setup {
            clients: self.clients,
            items: self.items,
            spread_s: self.spread.as_secs_f64(),
            strategy: self.strategy.strategy(),
            variant: self.variant,
            outage_s: (outage_s > 0.0).then_some(0.0..outage_s),
        };
        let outcome = crowd::run(&setup, WINDOW_S, seed);
        let series = |counts: &[u32]| {
            let points = counts.iter().zip(WINDOW_S);
            points
                .map(|(&count, second)| (second as f64, f64::from(count)))
                .collect()
        };
        Ok(Record::default()
            .with_series("made", series(&outcome.made))
            .with_series("sent", series(&outcome.sent))
            .with_value("peak_made", peak(&outcome.made))
            .with_value("peak_sent", peak(&outcome.sent))
            .with_value("last_sent", almost_all(&outcome.sent))
            .with_value("delay_max", outcome.delay_s_max))
    }
}

/// The largest mean over ten seconds.
fn peak(counts: &[u32]) -> f64 {
    let means = counts
        .windows(10)
        .map(|window| window.iter().copied().map(f64::from).sum::<f64>() / 10.0);
    means.fold(0.0, f64::max)
}

/// The second by which 99.9 % had arrived.
fn almost_all(counts: &[u32]) -> f64 {
    let total: f64 = counts.iter().copied().map(f64::from).sum();
    let mut sum = 0.0;
    for (&count, second) in counts.iter().zip(WINDOW_S) {
        sum += f64::from(count);
        if sum >= 0.999 * total {
            return second as f64;
        }
    }
    f64::NAN
}

/// Clients, server, controller and channel in a closed loop.
///
/// Series, one point per period: `delay` (mean, seconds), `command` (share of clients, or seconds),
/// `throughput` (per second) and `inside` (requests in the server). Values: `served`, `refused`,
/// `duration` (until the last was served), `throughput` over it; with `tune` also `ultimate_gain`
/// and `ultimate_period`, and what Ziegler and Nichols make of them.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuctionRun {
    /// How long.
    pub duration: Dur,
    /// How many clients.
    pub clients: usize,
    /// Clients that join later.
    pub join: Option<Join>,
    /// When they have something to send; always when missing.
    pub peak: Option<Peak>,
    /// Mean work of a request.
    pub work: Dur,
    /// Its standard deviation.
    #[serde(default)]
    pub work_sd: Dur,
    /// Wanted delay.
    pub setpoint: Dur,
    /// Time between two steps of the controller.
    pub period: Dur,
    /// Who is held back how.
    pub control: Control,
    /// What is commanded.
    #[serde(default)]
    pub means: MeansName,
    /// How long a group is active.
    #[serde(default = "four_seconds")]
    pub slot: Dur,
    /// `K`, per second of delay.
    pub gain: f64,
    /// `Ti`.
    pub integral_time: Dur,
    /// `Td`.
    #[serde(default)]
    pub derivative_time: Dur,
    /// Whether the change per step is bounded (001 §5.4).
    #[serde(default)]
    pub bounded: bool,
    /// Whether a Smith predictor takes the channel's dead time out of the loop.
    #[serde(default)]
    pub predict: bool,
    /// First wait of a client that was refused.
    #[serde(default = "three_seconds")]
    pub backoff: Dur,
    /// Wanted number of requests inside, which the controller sees instead of the delay: this many
    /// count as one `setpoint`.
    pub queue: Option<f64>,
    /// A relay experiment instead of the controller.
    pub tune: Option<Tune>,
}

/// Clients that join while it runs.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Join {
    /// When.
    pub at: Dur,
    /// How many.
    pub clients: usize,
}

/// Normally distributed items.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Peak {
    /// Items per client.
    pub items: usize,
    /// Mean of their times.
    pub mean: Dur,
    /// Standard deviation of their times.
    pub spread: Dur,
}

/// How clients are held back.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Control {
    /// They are not.
    None,
    /// Over a tree of this many children each, level by level.
    Tree {
        /// Children of each client.
        arity: usize,
        /// From one level to the next.
        dead_time: Dur,
    },
    /// With each response.
    Piggyback,
    /// They are refused, which costs this much of a request's work.
    Reject(Share),
}

/// What is commanded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MeansName {
    /// The share of clients that may send at a time.
    #[default]
    Group,
    /// The interval between two items of a client.
    Interval,
}

/// A relay experiment.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tune {
    /// The command about which it swings.
    pub bias: f64,
    /// How far.
    pub swing: f64,
    /// How far past the setpoint the delay must be.
    pub hysteresis: Dur,
}

/// Longest interval that the controller may command.
const INTERVAL_MAX: Duration = Duration::from_secs(300);

/// The initial retransmission timeout of RFC 2988.
fn three_seconds() -> Dur {
    Dur(Duration::from_secs(3))
}

fn four_seconds() -> Dur {
    Dur(Duration::from_secs(4))
}

impl AuctionRun {
    pub(super) fn check(&self) -> Result<(), ModelError> {
        positive("period", self.period)?;
        positive("work", self.work)?;
        positive("slot", self.slot)?;
        positive("backoff", self.backoff)?;
        if self
            .queue
            .is_some_and(|queue| queue.is_nan() || queue <= 0.0)
        {
            return Err(ModelError("`queue` must be above zero".to_owned()));
        }
        if let Some(peak) = self.peak {
            positive("peak.spread", peak.spread)?;
        }
        self.regulator().map(drop)
    }

    pub(super) fn run(&self, seed: u64) -> Result<Record, ModelError> {
        self.check()?;
        let outcome = auction::run(&self.setup(), self.regulator()?, seed);
        let series = |of: &dyn Fn(&auction::Row) -> f64| {
            let points = outcome.rows.iter().map(|row| (row.at_s, of(row)));
            points.collect()
        };
        let period_s = self.period.as_secs_f64();
        let record = Record::default()
            .with_series("delay", series(&|row| row.delay_s))
            .with_series("command", series(&|row| row.command))
            .with_series(
                "throughput",
                series(&|row| f64::from(row.completed) / period_s),
            )
            .with_series("inside", series(&|row| row.inside as f64))
            .with_value("served", outcome.served as f64)
            .with_value("refused", outcome.refused as f64)
            .with_value("duration", outcome.last_s)
            .with_value("throughput", outcome.served as f64 / outcome.last_s);
        let Some(Ok(ultimate)) = outcome.tuned else {
            return Ok(record);
        };
        let record = record
            .with_value("ultimate_gain", ultimate.gain)
            .with_value("ultimate_period", ultimate.period_s);
        Ok(match ziegler_nichols(&ultimate) {
            None => record,
            Some(gains) => record
                .with_value("gain", gains.gain)
                .with_value(
                    "integral_time",
                    gains.integral_time.unwrap_or_default().as_secs_f64(),
                )
                .with_value("derivative_time", gains.derivative_time.as_secs_f64()),
        })
    }

    fn setup(&self) -> auction::Setup {
        let demand = match self.peak {
            None => auction::Demand::Always,
            Some(peak) => auction::Demand::Peak {
                items: peak.items,
                mean_s: peak.mean.as_secs_f64(),
                spread_s: peak.spread.as_secs_f64(),
            },
        };
        auction::Setup {
            clients: self.clients,
            join: self.join.map(|join| (join.at.as_secs_f64(), join.clients)),
            demand,
            work_s: self.work.as_secs_f64(),
            work_sd_s: self.work_sd.as_secs_f64(),
            duration_s: self.duration.as_secs_f64(),
            period: self.period.0,
            delivery: self.delivery(),
            backoff_first: self.backoff.0,
            queue_per_s: self.queue.map(|queue| queue / self.setpoint.as_secs_f64()),
        }
    }

    fn delivery(&self) -> auction::Delivery {
        match self.control {
            Control::None => auction::Delivery::None,
            Control::Tree { arity, dead_time } => auction::Delivery::Tree {
                arity,
                dead_time: dead_time.0,
            },
            Control::Piggyback => auction::Delivery::Piggyback,
            Control::Reject(cost) => auction::Delivery::Reject {
                work_s: cost.0 * self.work.as_secs_f64(),
            },
        }
    }

    fn regulator(&self) -> Result<Option<Regulator>, ModelError> {
        if let Control::None = self.control {
            return Ok(None);
        }
        let mut regulator = Regulator::new(self.config()).map_err(ModelError::from)?;
        if let Some(tune) = self.tune {
            let steps = self.duration.as_secs_f64() / self.period.as_secs_f64();
            regulator
                .tune(tune.bias, tune.swing, tune.hysteresis.0, steps as usize)
                .map_err(ModelError::from)?;
        }
        Ok(Some(regulator))
    }

    fn config(&self) -> RegulatorConfig {
        let lag = match self.control {
            Control::Tree { arity, dead_time } => {
                auction::mean_lag(self.clients, arity, dead_time.0)
            }
            _ => Duration::ZERO,
        };
        RegulatorConfig {
            means: match self.means {
                MeansName::Group => Means::Group { slot: self.slot.0 },
                MeansName::Interval => Means::Interval { max: INTERVAL_MAX },
            },
            setpoint: self.setpoint.0,
            period: self.period.0,
            gains: PidGains::pid(self.gain, self.integral_time.0, self.derivative_time.0),
            bounded: self.bounded,
            closing: false,
            dead_time: self.predict.then_some(lag),
            scale: Scale {
                clients: self.clients as f64,
                service_s: self.work.as_secs_f64(),
            },
        }
    }
}

/// A server that refuses what it cannot process (001 section 6.1).
///
/// Values: `processed_share` of what it could process without refusing, `refusing_share` of its
/// time, and that as a share of the paper's bound, `of_bound`.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RefusingRun {
    /// How long.
    pub duration: Dur,
    /// Mean work of a request.
    pub work: Dur,
    /// Its standard deviation.
    #[serde(default)]
    pub work_sd: Dur,
    /// Arrivals for each that can be processed (`factor_peak`).
    pub factor_peak: f64,
    /// Work of a request for that of a refusal (`factor_request`).
    pub factor_request: f64,
    /// Requests that may wait or be processed; beyond that they are refused.
    pub inside_max: usize,
}

impl RefusingRun {
    pub(super) fn check(&self) -> Result<(), ModelError> {
        positive("duration", self.duration)?;
        positive("work", self.work)?;
        for (name, factor) in [
            ("factor_peak", self.factor_peak),
            ("factor_request", self.factor_request),
        ] {
            if !(factor > 0.0 && factor.is_finite()) {
                return Err(ModelError(format!("`{name}` must be above zero")));
            }
        }
        Ok(())
    }

    pub(super) fn run(&self, seed: u64) -> Result<Record, ModelError> {
        self.check()?;
        let setup = refusing::Setup {
            work_s: self.work.as_secs_f64(),
            work_sd_s: self.work_sd.as_secs_f64(),
            factor_peak: self.factor_peak,
            factor_request: self.factor_request,
            inside_max: self.inside_max,
            duration_s: self.duration.as_secs_f64(),
        };
        let found = refusing::run(&setup, seed);
        let bound = self.factor_peak / self.factor_request;
        Ok(Record::default()
            .with_value("processed_share", found.processed_share)
            .with_value("refusing_share", found.refusing_share)
            .with_value("of_bound", found.refusing_share / bound))
    }
}

/// One message over trees of relays, right after some of them died.
///
/// Values: `copies` that the server sent, share of the living that it `reached`, `delay_max` and
/// `delay_mean` in seconds.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BroadcastRun {
    /// How many clients.
    pub clients: usize,
    /// Children of each.
    pub arity: usize,
    /// Independent trees.
    pub trees: usize,
    /// Share of the clients that die.
    #[serde(default)]
    pub killed: Share,
    /// Time from a parent to its child.
    pub hop: Dur,
    /// Whether the tracker of the channel forms the trees, for clients that join one after the
    /// other and are all relays; `trees` is then what it gives everybody.
    #[serde(default)]
    pub tracker: bool,
}

impl BroadcastRun {
    pub(super) fn check(&self) -> Result<(), ModelError> {
        if self.arity > 0 && self.clients > 0 {
            Ok(())
        } else {
            Err(ModelError(
                "`clients` and `arity` must be above zero".to_owned(),
            ))
        }
    }

    pub(super) fn run(&self, seed: u64) -> Result<Record, ModelError> {
        self.check()?;
        let setup = broadcast::Setup {
            clients: self.clients,
            arity: self.arity,
            trees: self.trees,
            killed: self.killed.0,
            hop_s: self.hop.as_secs_f64(),
            tracker: self.tracker,
        };
        let outcome = broadcast::run(&setup, seed);
        Ok(Record::default()
            .with_value("copies", outcome.copies as f64)
            .with_value("reached", outcome.reached)
            .with_value("delay_max", outcome.delay_s_max)
            .with_value("delay_mean", outcome.delay_s_mean))
    }
}

fn positive(name: &str, value: Dur) -> Result<(), ModelError> {
    if value.is_zero() {
        Err(ModelError(format!("`{name}` must be above zero")))
    } else {
        Ok(())
    }
}

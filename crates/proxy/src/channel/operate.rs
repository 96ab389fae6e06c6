//! What operators see of the channel, and what they can do.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tidegate_channel::compliance::{Offender, Verdicts};
use tidegate_channel::net::tracker::RelayStatus;
use tidegate_channel::net::unix_now;
use tidegate_channel::regulate::ziegler_nichols;
use tidegate_channel::{ClientId, Strategy, Terms};
use tidegate_control::Timestamp;
use tidegate_control::controller::PidGains;

use super::{Channel, saved_terms};

/// Offenders that are listed.
const OFFENDERS_MAX: usize = 50;

/// Relays that are listed.
const RELAYS_MAX: usize = 50;

/// How the channel is doing.
#[derive(Debug, Serialize)]
pub struct ChannelStatus {
    /// The key that clients verify with.
    pub public_key: String,
    /// Number of the message in force.
    pub seq: u64,
    /// What clients were told.
    pub strategy: Strategy,
    /// The same in words.
    pub strategy_words: String,
    /// The command behind it: a share of clients, or seconds.
    pub command: f64,
    /// Mean delay of the last period in seconds.
    pub delay_s: Option<f64>,
    /// Wanted delay in seconds.
    pub setpoint_s: f64,
    /// Clients that sent something lately.
    pub clients: f64,
    /// Estimated work of a request in seconds.
    pub work_s: f64,
    /// How long messages take to reach clients, in seconds: `dead_time`, or the median of what
    /// members say.
    pub dead_time_s: f64,
    /// Who listens to this proxy directly.
    pub listeners: usize,
    /// Relays that the tracker gives to others.
    pub relays: usize,
    /// The relays that the tracker knows, the nearest first.
    pub relay_list: Vec<RelayStatus>,
    /// Copies of messages sent, and their bytes.
    pub copies: u64,
    /// See `copies`.
    pub bytes: u64,
    /// Gain, integral and derivative time in force.
    pub gains: Gains,
    /// The relay experiment.
    pub tuning: Tuning,
    /// What became of clients' requests.
    pub verdicts: Verdicts,
    /// Items refused because of their time.
    pub late: u64,
    /// Requests refused because they did not prove who sent them, or what.
    pub strangers: u64,
    /// Items that are remembered, so that none comes twice with another content.
    pub items: usize,
    /// Items that were forgotten too early, for want of room.
    pub items_forgotten: u64,
    /// The worst offenders.
    pub offenders: Vec<Offender>,
    /// What was added to the longest delay of every item, in seconds.
    pub prolonged_s: f64,
    /// Items made later are refused: seconds since the Unix epoch.
    pub deadline_s: Option<f64>,
}

/// What clients were told.
fn in_words(strategy: &Strategy) -> String {
    match strategy {
        Strategy::Open => "all clients may send at any time".to_owned(),
        Strategy::Group(groups) => format!(
            "groups of clients take turns: {:.0} % of them may send at a time, the next after {:.1} s",
            100.0 * groups.share(),
            groups.slot.as_secs_f64()
        ),
        Strategy::Interval(interval) => format!(
            "each client may send one item in {:.1} s",
            interval.as_secs_f64()
        ),
    }
}

/// Gains of the controller.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Gains {
    /// Per second of delay.
    pub gain: f64,
    /// In seconds.
    pub integral_time_s: f64,
    /// In seconds.
    #[serde(default)]
    pub derivative_time_s: f64,
}

/// Where a relay experiment stands.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Tuning {
    /// There was none.
    None,
    /// It is running.
    Running,
    /// It gave up; the remedy is in the words.
    Failed(&'static str),
    /// It found these.
    Done {
        /// Ultimate gain.
        ultimate_gain: f64,
        /// Ultimate period in seconds.
        ultimate_period_s: f64,
        /// What Ziegler and Nichols make of them.
        gains: Gains,
    },
}

/// What an operator can do to the channel. One at a time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ChannelCommand {
    /// Forgives a client, by its number in hexadecimal digits.
    Pardon(String),
    /// Adds this many seconds to the longest delay of every item, after an outage; 0 takes it back.
    Prolong(f64),
    /// Moves the deadline for making items: seconds since the Unix epoch.
    Deadline(u64),
    /// Puts these gains in force.
    Gains(Gains),
    /// Begins a relay experiment.
    Tune {
        /// The command about which it swings: a share of clients, or seconds.
        bias: f64,
        /// How far.
        swing: f64,
        /// How far past the setpoint the delay must be before it turns, in seconds.
        hysteresis_s: f64,
        /// Periods after which it gives up.
        periods_max: usize,
    },
}

impl Channel {
    /// How it is doing.
    #[must_use]
    pub fn status(&self) -> ChannelStatus {
        let now = unix_now();
        let mut offenders = self.auditor.lock().offenders(now);
        offenders.truncate(OFFENDERS_MAX);
        let verdicts = self.auditor.lock().verdicts();
        let policy = *self.policy.lock();
        let tracker = self.desk.tracker();
        let dead_time_s = self.dead_time().as_secs_f64();
        let (items, items_forgotten) = {
            let ledger = self.ledger.lock();
            (ledger.len(), ledger.forgotten())
        };
        let mut regulator = self.regulator.lock();
        let measured = self.measured.lock();
        let message = measured.message.as_ref();
        ChannelStatus {
            public_key: self.public_key().to_string(),
            seq: message.map_or(0, |message| message.seq),
            strategy: message.map_or(Strategy::Open, |message| message.strategy.clone()),
            strategy_words: message
                .map_or_else(|| in_words(&Strategy::Open), |it| in_words(&it.strategy)),
            command: regulator.command(),
            delay_s: Some(measured.delay_s).filter(|delay| delay.is_finite()),
            setpoint_s: self.config.setpoint.as_secs_f64(),
            clients: measured.scale.clients,
            work_s: measured.scale.service_s,
            dead_time_s,
            listeners: self.desk.hub.listeners(),
            relays: tracker.map_or(0, |tracker| tracker.lock().relays()),
            relay_list: tracker.map_or_else(Vec::new, |it| it.lock().list(RELAYS_MAX)),
            copies: self.desk.hub.copies(),
            bytes: self.desk.hub.bytes(),
            gains: Gains::from(regulator.gains()),
            tuning: Tuning::of(&regulator),
            verdicts,
            late: measured.late,
            strangers: measured.strangers,
            items,
            items_forgotten,
            offenders,
            prolonged_s: policy.prolonged.as_secs_f64(),
            deadline_s: policy.deadline.map(Timestamp::as_secs_f64),
        }
    }

    /// Does what an operator wants.
    ///
    /// # Errors
    /// Why it cannot be done.
    pub fn command(&self, command: &ChannelCommand) -> Result<(), String> {
        match command {
            ChannelCommand::Pardon(client) => self.pardon(client),
            ChannelCommand::Prolong(seconds) => {
                let prolonged = Duration::try_from_secs_f64(*seconds);
                let prolonged = prolonged.map_err(|error| error.to_string())?;
                self.decide(|terms| terms.prolonged = Duration::from_secs(prolonged.as_secs()))
            }
            ChannelCommand::Deadline(seconds) => {
                let deadline = Timestamp::ZERO + Duration::from_secs(*seconds);
                self.decide(|terms| terms.deadline = Some(deadline))
            }
            ChannelCommand::Gains(_) | ChannelCommand::Tune { .. } if self.followed.is_some() => {
                Err(
                    "this proxy follows another one's channel: tune the controller there"
                        .to_owned(),
                )
            }
            ChannelCommand::Gains(gains) => {
                let gains = gains.checked()?;
                let set = self.regulator.lock().set_gains(gains);
                set.map_err(|error| error.to_string())
            }
            ChannelCommand::Tune {
                bias,
                swing,
                hysteresis_s,
                periods_max,
            } => {
                let hysteresis = Duration::try_from_secs_f64(*hysteresis_s);
                let hysteresis = hysteresis.map_err(|error| error.to_string())?;
                let begun = self
                    .regulator
                    .lock()
                    .tune(*bias, *swing, hysteresis, *periods_max);
                begun.map_err(|error| error.to_string())
            }
        }
    }

    /// Puts a decision about deadlines in force, with the next message, and over a restart.
    fn decide(&self, change: impl FnOnce(&mut Terms)) -> Result<(), String> {
        if self.followed.is_some() {
            return Err("this proxy follows another one's channel: decide there".to_owned());
        }
        let mut terms = self.terms();
        change(&mut terms);
        let mut policy = self.policy.lock();
        (policy.prolonged, policy.deadline) = (terms.prolonged, terms.deadline);
        drop(policy);
        saved_terms::write(&self.config, &terms).map_err(|error| {
            let file = saved_terms::path(&self.config);
            let file = file.display();
            format!("it is in force, but a restart will forget it: {file}: {error}")
        })
    }

    fn pardon(&self, client: &str) -> Result<(), String> {
        let unknown = || {
            format!(
                "no client `{client}` has anything to be forgiven; `offenders` lists those who do"
            )
        };
        let id = u64::from_str_radix(client, 16).map_err(|_| unknown())?;
        if self.auditor.lock().pardon(ClientId(id)) {
            Ok(())
        } else {
            Err(unknown())
        }
    }
}

impl Gains {
    fn checked(&self) -> Result<PidGains, String> {
        let time =
            |seconds: f64| Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string());
        Ok(PidGains::pid(
            self.gain,
            time(self.integral_time_s)?,
            time(self.derivative_time_s)?,
        ))
    }
}

impl From<PidGains> for Gains {
    fn from(gains: PidGains) -> Self {
        Self {
            gain: gains.gain,
            integral_time_s: gains.integral_time.unwrap_or_default().as_secs_f64(),
            derivative_time_s: gains.derivative_time.as_secs_f64(),
        }
    }
}

impl Tuning {
    fn of(regulator: &tidegate_channel::Regulator) -> Self {
        if regulator.is_tuning() {
            return Self::Running;
        }
        match regulator.tuned() {
            None => Self::None,
            Some(Err(_)) => Self::Failed(
                "the delay did not swing regularly about the setpoint: move the bias, raise the swing or the hysteresis, or keep the load steady",
            ),
            Some(Ok(ultimate)) => match ziegler_nichols(&ultimate) {
                None => Self::Failed("the experiment gave no usable gains"),
                Some(gains) => Self::Done {
                    ultimate_gain: ultimate.gain,
                    ultimate_period_s: ultimate.period_s,
                    gains: gains.into(),
                },
            },
        }
    }
}

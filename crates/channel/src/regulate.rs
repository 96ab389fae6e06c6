//! The server's controller (001 §4.2): from the delay that it measures to what it tells clients.
//!
//! The measured delay is queueing plus processing; the command is the share of clients that may
//! send at a time (group) or the interval between two items of a client. Gains come from
//! Ziegler–Nichols, by a relay experiment on the running system ([`Regulator::tune`]).
//!
//! **Step bound** (001 §5.4). With `N` clients and a mean work of `s`, an interval of `N s` just
//! fills the server; that is the scale of all sensible changes, so one step moves the interval by
//! at most [`STEP_SHARE`] of it. The share of the groups has the scale `setpoint/(N s)`, the share
//! that holds the setpoint when all clients want to send.
//!
//! **Closing** ([`CLOSE_ABOVE`]). How many clients want to send is not known until they are held
//! back. While few do, most of the range of the command does nothing, and a controller whose gains
//! suit the state in which all of them want to send takes many periods to cross it; meanwhile a
//! deadline's peak reaches the server. There the delay is proportional to the share, so a delay `d`
//! above the setpoint `r` says how much too large the share is:
//!
//! ```text
//! share <= share * CLOSE_ABOVE r/d        while  d > CLOSE_ABOVE r,  and down to setpoint/(N s)
//! ```
//!
//! and likewise an interval is lengthened up to `N s`. Below that, and near the setpoint, the PID
//! controller is alone. The paper has no such rule, and its experiments run without.
//!
//! **Smith predictor.** A message needs time to reach all clients. With the measured dead time the
//! controller sees the delay as it will be once its commands have arrived. Model: the delay
//! follows the share with gain `N s` (all wanting to send, concurrency is `share N`, each taking
//! `s`), and a time constant of one setpoint, since what is inside leaves in that time. Under
//! intervals the plant integrates, where such a predictor leaves a lasting error: there the dead
//! time stays in the loop.
//!
//! What breaks it: a delay that does not come from these clients. Then the command goes to its
//! limit, and what is left is the admission engine's business.
//!
//! Decision: docs/decisions/0041-channel-controller-far-from-setpoint.md.

use std::time::Duration;

use tidegate_control::ControlError;
use tidegate_control::controller::{
    ActuatorConfig, Controller, Pid, PidConfig, PidGains, ProcessModel, SmithConfig,
    SmithPredictor, Terms,
};
use tidegate_control::design::{
    Form, Relay, RelayConfig, RelayFailure, RelayState, Rule, Ultimate,
};
use tidegate_control::system::SystemError;

use crate::strategy::{Groups, Strategy};

/// Part of the scale that one step may move the command by. With it the loop of
/// `experiments/papers/001-9-interval.toml` holds 0.9 s with a standard deviation of 0.56 s; other
/// values were not tried.
pub const STEP_SHARE: f64 = 0.1;

/// A delay of more than this many setpoints closes the channel faster than the PID controller does.
/// Chosen: `bench/channel/run auction`; the noise of the delay near the setpoint stays below.
pub const CLOSE_ABOVE: f64 = 1.5;

/// Smallest share of clients: what a message can say.
const SHARE_MIN: f64 = 1.0 / 256.0;

/// What is commanded.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Means {
    /// The share of clients that may send at a time.
    Group {
        /// How long a group is active.
        slot: Duration,
    },
    /// The interval between two items of a client.
    Interval {
        /// Longest interval.
        max: Duration,
    },
}

/// The size of the loop, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scale {
    /// Clients that may want to send.
    pub clients: f64,
    /// Mean work of a request in seconds.
    pub service_s: f64,
}

/// Parameters of a [`Regulator`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RegulatorConfig {
    /// What is commanded.
    pub means: Means,
    /// Wanted delay.
    pub setpoint: Duration,
    /// Time between two steps.
    pub period: Duration,
    /// Gains on the delay in seconds. Positive: a larger error (more room) lets more through.
    pub gains: PidGains,
    /// Whether the change per step is bounded.
    pub bounded: bool,
    /// Whether a delay far above the setpoint closes the channel faster than the PID controller.
    pub closing: bool,
    /// Dead time of the channel to be predicted over; `None` for no prediction.
    pub dead_time: Option<Duration>,
    /// The loop's size at the beginning.
    pub scale: Scale,
}

#[derive(Debug)]
enum Law {
    Direct(Pid),
    Predictive(SmithPredictor<Pid>),
}

impl Law {
    fn controller(&mut self) -> &mut dyn Controller {
        match self {
            Self::Direct(pid) => pid,
            Self::Predictive(smith) => smith,
        }
    }

    fn pid(&mut self) -> &mut Pid {
        match self {
            Self::Direct(pid) => pid,
            Self::Predictive(smith) => smith.inner_mut(),
        }
    }
}

/// Turns measured delays into strategies.
#[derive(Debug)]
pub struct Regulator {
    config: RegulatorConfig,
    law: Law,
    relay: Option<Relay>,
    tuned: Option<Result<Ultimate, RelayFailure>>,
}

impl Regulator {
    /// Starts open: no client is held back.
    ///
    /// # Errors
    /// Gains, times or a scale that mean nothing.
    pub fn new(config: RegulatorConfig) -> Result<Self, ControlError> {
        let pid = Pid::new(PidConfig::new(
            config.signed_gains(config.gains),
            config.period,
            config.actuator(),
        ))?;
        let law = match (config.dead_time, config.means) {
            (None, _) | (_, Means::Interval { .. }) => Law::Direct(pid),
            (Some(dead_time), Means::Group { .. }) => {
                let smith = SmithConfig {
                    model: config.model(),
                    dead_time,
                    interval: config.period,
                };
                Law::Predictive(SmithPredictor::new(pid, smith)?)
            }
        };
        let mut regulator = Self {
            config,
            law,
            relay: None,
            tuned: None,
        };
        regulator.rescale(config.scale);
        Ok(regulator)
    }

    /// Takes the mean delay of the last period, NaN when it is not known, and gives what clients
    /// are to be told.
    pub fn step(&mut self, delay_s: f64) -> Strategy {
        let command = match &mut self.relay {
            Some(relay) => {
                let command = relay.step(delay_s);
                self.law.controller().track(command);
                self.finish_tuning();
                command
            }
            None => {
                let closed = self.config.closed(self.law.controller().output(), delay_s);
                self.regulate(delay_s, closed)
            }
        };
        self.config.strategy(command)
    }

    /// The PID controller's step, or `closed` where that lets less through.
    fn regulate(&mut self, delay_s: f64, closed: Option<f64>) -> f64 {
        let setpoint_s = self.config.setpoint.as_secs_f64();
        let controller = self.law.controller();
        let Some(closed) = closed else {
            return controller.step(setpoint_s, delay_s);
        };
        // The rest of the delay is answered by closing: once it is gone nothing is to be taken
        // back.
        let command = controller.step(setpoint_s, delay_s.min(CLOSE_ABOVE * setpoint_s));
        if !self.config.lets_more(command, closed) {
            return command;
        }
        controller.track(closed);
        closed
    }

    /// The command in force: a share, or seconds.
    pub fn command(&mut self) -> f64 {
        match &self.relay {
            Some(relay) => relay.command(),
            None => self.law.controller().output(),
        }
    }

    /// The parts of the command.
    pub fn terms(&mut self) -> Terms {
        self.law.controller().terms()
    }

    /// The loop's size has changed: moves the step bound.
    pub fn rescale(&mut self, scale: Scale) {
        self.config.scale = scale;
        let slew = self.config.step_bound();
        // A bound that is not positive is no bound; the estimate is not there yet.
        let _ = self.law.pid().actuator_mut().set_slew(slew);
    }

    /// The channel's dead time was measured anew. Does nothing without prediction, or when it has
    /// hardly changed.
    pub fn set_dead_time(&mut self, dead_time: Duration) {
        let Law::Predictive(smith) = &self.law else {
            return;
        };
        let known = self.config.dead_time.unwrap_or_default();
        if dead_time.abs_diff(known) * 2 < self.config.period {
            return;
        }
        let config = SmithConfig {
            model: self.config.model(),
            dead_time,
            interval: self.config.period,
        };
        // A scale that means nothing leaves the old predictor in force.
        if let Ok(smith) = SmithPredictor::new(smith.inner().clone(), config) {
            self.law = Law::Predictive(smith);
            self.config.dead_time = Some(dead_time);
        }
    }

    /// Gains in force, without the sign of the command.
    pub fn gains(&mut self) -> PidGains {
        let gains = self.law.pid().gains();
        self.config.signed_gains(gains)
    }

    /// Changes the gains, without a jump.
    ///
    /// # Errors
    /// Gains that mean nothing.
    pub fn set_gains(&mut self, gains: PidGains) -> Result<(), ControlError> {
        let gains = self.config.signed_gains(gains);
        self.law.pid().set_gains(gains)
    }

    /// Begins a relay experiment about the present command: `swing` to either side, a change of
    /// direction when the delay is `hysteresis` past the setpoint.
    ///
    /// # Errors
    /// Numbers that mean nothing.
    pub fn tune(
        &mut self,
        bias: f64,
        swing: f64,
        hysteresis: Duration,
        samples_max: usize,
    ) -> Result<(), SystemError> {
        self.tuned = None;
        self.relay = Some(Relay::new(RelayConfig {
            setpoint: self.config.setpoint.as_secs_f64(),
            bias,
            amplitude: swing * self.config.sign(),
            hysteresis: hysteresis.as_secs_f64(),
            interval_s: self.config.period.as_secs_f64(),
            samples_max,
        })?);
        Ok(())
    }

    /// Whether an experiment is running.
    #[must_use]
    pub fn is_tuning(&self) -> bool {
        self.relay.is_some()
    }

    /// What the last experiment found.
    #[must_use]
    pub fn tuned(&self) -> Option<Result<Ultimate, RelayFailure>> {
        self.tuned
    }

    fn finish_tuning(&mut self) {
        let state = self.relay.as_ref().map(Relay::state);
        self.tuned = match state {
            Some(RelayState::Done(ultimate)) => Some(Ok(Ultimate {
                gain: ultimate.gain.abs(),
                ..ultimate
            })),
            Some(RelayState::Failed(failure)) => Some(Err(failure)),
            _ => return,
        };
        self.relay = None;
    }
}

/// The PID gains of the classic table for what a relay experiment found (001 §4.2).
#[must_use]
pub fn ziegler_nichols(ultimate: &Ultimate) -> Option<PidGains> {
    let gains = ultimate.gains(Rule::ZieglerNichols, Form::Pid)?;
    Some(PidGains::pid(
        gains.gain,
        Duration::try_from_secs_f64(gains.integral_time_s?).ok()?,
        Duration::try_from_secs_f64(gains.derivative_time_s?).ok()?,
    ))
}

impl RegulatorConfig {
    /// A longer interval lowers the delay, a larger share raises it.
    fn sign(&self) -> f64 {
        match self.means {
            Means::Group { .. } => 1.0,
            Means::Interval { .. } => -1.0,
        }
    }

    fn signed_gains(&self, gains: PidGains) -> PidGains {
        PidGains {
            gain: gains.gain * self.sign(),
            ..gains
        }
    }

    fn actuator(&self) -> ActuatorConfig {
        match self.means {
            Means::Group { .. } => ActuatorConfig::within(SHARE_MIN, 1.0).starting_at(1.0),
            Means::Interval { max } => ActuatorConfig::within(0.0, max.as_secs_f64()),
        }
    }

    /// Interval or share that holds the setpoint when all clients want to send.
    fn operating_point(&self) -> f64 {
        let fill_s = self.scale.clients * self.scale.service_s;
        match self.means {
            Means::Group { .. } => (self.setpoint.as_secs_f64() / fill_s).min(1.0),
            Means::Interval { .. } => fill_s,
        }
    }

    /// Whether one command lets more through than another.
    fn lets_more(&self, command: f64, other: f64) -> bool {
        (command - other) * self.sign() > 0.0
    }

    /// What `command` has to become when all clients that want to send still send too fast; `None`
    /// when the delay is not so long, or the command is where it would hold the setpoint with all
    /// of them wanting to send.
    fn closed(&self, command: f64, delay_s: f64) -> Option<f64> {
        let excess = delay_s / (CLOSE_ABOVE * self.setpoint.as_secs_f64());
        let limit = self.operating_point();
        // False for a delay that is not known.
        let far = excess > 1.0 && limit.is_finite() && self.lets_more(command, limit);
        if !(self.closing && far) {
            return None;
        }
        Some(match self.means {
            Means::Group { .. } => (command / excess).max(limit),
            // A client without an interval has no rate that could be divided.
            Means::Interval { .. } => (command.max(self.period.as_secs_f64()) * excess).min(limit),
        })
    }

    fn step_bound(&self) -> Option<f64> {
        let bound = STEP_SHARE * self.operating_point();
        (self.bounded && bound.is_finite() && bound > 0.0).then_some(bound)
    }

    /// Of the delay under groups.
    fn model(&self) -> ProcessModel {
        ProcessModel::FirstOrder {
            gain: self.scale.clients * self.scale.service_s,
            time_constant: self.setpoint.max(self.period),
        }
    }

    fn strategy(&self, command: f64) -> Strategy {
        match self.means {
            Means::Group { .. } if command >= 1.0 - 0.5 / 256.0 => Strategy::Open,
            Means::Group { slot } => Strategy::Group(Groups::with_share(command, slot)),
            Means::Interval { .. } => match Duration::try_from_secs_f64(command) {
                Ok(interval) if interval >= Duration::from_millis(1) => {
                    Strategy::Interval(interval)
                }
                _ => Strategy::Open,
            },
        }
    }
}

#[cfg(test)]
mod tests;

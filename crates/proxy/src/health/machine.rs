//! Which replicas get requests: the rules, without a clock or a socket.
//!
//! A replica is taken out by checks (`active`: this many failed in a row) or by its vitals
//! (`passive`: it tripped, see [`Board`]). What took it out decides how it comes back:
//!
//! | cause | back when |
//! | --- | --- |
//! | checks failed | `healthy_after` checks succeed in a row |
//! | unreachable | a check succeeds; without a path to ask, opening a connection |
//! | faulty | its time is over (`eject`, doubled every time up to `eject_max`), and checks succeed |
//!
//! What breaks such rules is an outage that looks like many ill replicas, such as a shared
//! database: ejecting them all makes it worse. So vitals take out at most the share `ejected_max`,
//! and never the last replica that works. Checks may take out all. While no replica works there is
//! an *emergency*: all that are out are asked four times a second, one success is enough, and
//! faulty ones are let back in at once. One that stays in although it cannot be reached is asked as
//! well, so that the proxy knows that it is back also when nobody sends it requests any more
//! (`/readyz`). A service that comes back is therefore found within a second.

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate_control::Timestamp;
use tidegate_sentry::ReplicaId;

use super::{Board, CHECKS_FAIL, Trip};
use crate::config::{ActiveHealth, Health, PassiveHealth};

/// Time between two probes of a replica in an emergency: four fit into the second that the first
/// success may take.
const EMERGENCY_PERIOD: Duration = Duration::from_millis(250);
/// Probes of one replica under way in an emergency; a hanging one must not hide that it is back.
const EMERGENCY_PROBES_MAX: u32 = 4;
/// A check comes this much early or late, so that checks of many replicas and proxies spread.
const JITTER: f64 = 0.1;

/// What the driver has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Ask the replica, then call [`Machine::on_probe`].
    Probe(ReplicaId),
    /// Start or stop sending it requests.
    SetHealth {
        /// Which replica.
        replica: ReplicaId,
        /// Whether it gets requests from now on.
        up: bool,
        /// Why, in a few words for the log.
        cause: &'static str,
    },
}

/// Which replicas get requests: the rules, without a clock or a socket. Timers are data: call
/// [`Machine::handle_timeout`] at [`Machine::poll_timeout`] and whenever the [`Board`] raises its
/// alarm.
#[derive(Debug)]
pub struct Machine {
    config: Health,
    patients: BTreeMap<ReplicaId, Patient>,
    jitter: u64,
}

#[derive(Debug)]
struct Patient {
    state: State,
    next_probe: Timestamp,
    /// Probes under way.
    probes: u32,
    /// Checks that succeeded (above zero) or failed (below) in a row.
    streak: i64,
    /// Whether it is up although it cannot be reached, since no other one works.
    stranded: bool,
    /// Times it was found faulty lately.
    ejections: u32,
    back_since: Timestamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Up,
    Unhealthy,
    Unreachable,
    Faulty { until: Timestamp },
}

impl Patient {
    fn new(now: Timestamp) -> Self {
        Self {
            state: State::Up,
            next_probe: now,
            probes: 0,
            streak: 0,
            stranded: false,
            ejections: 0,
            back_since: now,
        }
    }

    fn is_up(&self) -> bool {
        self.state == State::Up
    }

    fn is_ejected(&self) -> bool {
        matches!(self.state, State::Unreachable | State::Faulty { .. })
    }

    fn wants_probes(&self, active: &ActiveHealth) -> bool {
        // Without a path one that checks took out before a reload is tried like an unreachable one.
        active.path.is_some()
            || self.stranded
            || matches!(self.state, State::Unhealthy | State::Unreachable)
    }

    fn come_back(&mut self, now: Timestamp) {
        self.state = State::Up;
        self.back_since = now;
    }

    fn note_check(&mut self, ok: bool) {
        self.streak = if ok {
            self.streak.max(0) + 1
        } else {
            self.streak.min(0) - 1
        };
    }

    /// How long this ejection lasts. A replica that has worked since for longer than the longest
    /// ejection starts anew.
    fn ejection(&mut self, now: Timestamp, rules: &PassiveHealth) -> Duration {
        if now.since(self.back_since) > rules.eject_max.0 {
            self.ejections = 0;
        }
        let doubled = 1u32.checked_shl(self.ejections).unwrap_or(u32::MAX);
        self.ejections += 1;
        rules.eject.saturating_mul(doubled).min(rules.eject_max.0)
    }
}

impl Machine {
    /// A machine without replicas; `seed` spreads the checks of different proxies.
    #[must_use]
    pub fn new(config: Health, seed: u64) -> Self {
        Self {
            config,
            patients: BTreeMap::new(),
            jitter: seed,
        }
    }

    /// Puts a configuration and a list of replicas in force. New replicas are taken to be up.
    pub fn reconfigure(&mut self, now: Timestamp, config: Health, replicas: &[ReplicaId]) {
        self.config = config;
        self.patients.retain(|id, _| replicas.contains(id));
        for &id in replicas {
            self.patients.entry(id).or_insert_with(|| Patient::new(now));
        }
    }

    /// Whether requests are sent to a replica.
    #[must_use]
    pub fn is_up(&self, replica: ReplicaId) -> bool {
        self.patients.get(&replica).is_some_and(Patient::is_up)
    }

    /// When it next wants to be called.
    #[must_use]
    pub fn poll_timeout(&self) -> Timestamp {
        let active = &self.config.active;
        let timers = self.patients.values().flat_map(|patient| {
            let probe = patient.wants_probes(active).then_some(patient.next_probe);
            let back = match patient.state {
                State::Faulty { until } => Some(until),
                _ => None,
            };
            [probe, back]
        });
        timers.flatten().min().unwrap_or(Timestamp::MAX)
    }

    /// Acts on timers and trips.
    pub fn handle_timeout(&mut self, now: Timestamp, board: &Board) -> Vec<Action> {
        let mut actions = Vec::new();
        self.let_back(now, board, &mut actions);
        self.eject(now, board, &mut actions);
        self.find_stranded(board);
        self.probe(now, board, &mut actions);
        actions
    }

    /// A probe ended.
    pub fn on_probe(
        &mut self,
        now: Timestamp,
        board: &Board,
        replica: ReplicaId,
        ok: bool,
    ) -> Option<Action> {
        let none_up = !self.patients.values().any(Patient::is_up);
        let Self {
            config, patients, ..
        } = self;
        let active = &config.active;
        let patient = patients.get_mut(&replica)?;
        patient.probes = patient.probes.saturating_sub(1);
        patient.note_check(ok);
        let needed = match active.path {
            Some(_) if !none_up => i64::from(active.healthy_after),
            _ => 1,
        };
        let failed = -patient.streak >= i64::from(active.unhealthy_after);
        match patient.state {
            State::Up if ok => {
                if board.trip(replica) == Some(Trip::Unreachable) {
                    board.reset(replica);
                }
                None
            }
            State::Up if failed && active.path.is_some() => {
                patient.state = State::Unhealthy;
                Some(down(replica, CHECKS_FAIL))
            }
            State::Unhealthy | State::Unreachable if patient.streak >= needed => {
                patient.come_back(now);
                board.reset(replica);
                Some(up(replica, "its checks succeed"))
            }
            _ => None,
        }
    }

    fn eject(&mut self, now: Timestamp, board: &Board, actions: &mut Vec<Action>) {
        let tripped: Vec<_> = self
            .patients
            .iter()
            .filter(|(_, patient)| patient.is_up())
            .filter_map(|(&id, _)| board.trip(id).map(|trip| (id, trip)))
            .collect();
        for (id, trip) in tripped {
            if self.may_eject(id, board)
                && let Some(patient) = self.patients.get_mut(&id)
            {
                board.reset(id);
                actions.push(Self::take_out(patient, now, &self.config, id, trip));
            }
        }
    }

    fn find_stranded(&mut self, board: &Board) {
        for (&id, patient) in &mut self.patients {
            patient.stranded = patient.is_up() && board.trip(id) == Some(Trip::Unreachable);
        }
    }

    fn take_out(
        patient: &mut Patient,
        now: Timestamp,
        config: &Health,
        id: ReplicaId,
        trip: Trip,
    ) -> Action {
        patient.streak = 0;
        match trip {
            Trip::Unreachable => {
                patient.state = State::Unreachable;
                patient.next_probe = now + EMERGENCY_PERIOD;
                down(id, trip.as_str())
            }
            Trip::Faulty => {
                let until = now + patient.ejection(now, &config.passive);
                patient.state = State::Faulty { until };
                down(id, trip.as_str())
            }
        }
    }

    /// Whether another replica works, and the share that may be out is not used up.
    fn may_eject(&self, id: ReplicaId, board: &Board) -> bool {
        let another = self
            .patients
            .iter()
            .any(|(&other, patient)| other != id && works(other, patient, board));
        let ejected = self.patients.values().filter(|p| p.is_ejected()).count();
        let share = *self.config.passive.ejected_max * self.patients.len() as f64;
        another && ejected < (share as usize).max(1)
    }

    fn let_back(&mut self, now: Timestamp, board: &Board, actions: &mut Vec<Action>) {
        let none_up = !self.patients.values().any(Patient::is_up);
        for (&id, patient) in &mut self.patients {
            let State::Faulty { until } = patient.state else {
                continue;
            };
            if none_up || (until <= now && patient.streak >= 0) {
                patient.come_back(now);
                // Requests that were under way when it was taken out have failed since.
                board.reset(id);
                actions.push(up(id, "its time out is over"));
            } else if until <= now {
                patient.state = State::Unhealthy;
            }
        }
    }

    fn probe(&mut self, now: Timestamp, board: &Board, actions: &mut Vec<Action>) {
        let emergency = !self.patients.iter().any(|(&id, p)| works(id, p, board));
        let period = self.config.active.interval.0;
        for (&id, patient) in &mut self.patients {
            let urgent = emergency && (!patient.is_up() || patient.stranded);
            if urgent {
                patient.next_probe = patient.next_probe.min(now + EMERGENCY_PERIOD);
            }
            if !patient.wants_probes(&self.config.active) || now < patient.next_probe {
                continue;
            }
            patient.next_probe = if urgent {
                now + EMERGENCY_PERIOD.min(period)
            } else {
                now + spread(period, &mut self.jitter)
            };
            let under_way_max = if urgent { EMERGENCY_PROBES_MAX } else { 1 };
            if patient.probes < under_way_max {
                patient.probes += 1;
                actions.push(Action::Probe(id));
            }
        }
    }
}

fn works(id: ReplicaId, patient: &Patient, board: &Board) -> bool {
    patient.is_up() && board.trip(id).is_none()
}

const fn up(replica: ReplicaId, cause: &'static str) -> Action {
    Action::SetHealth {
        replica,
        up: true,
        cause,
    }
}

const fn down(replica: ReplicaId, cause: &'static str) -> Action {
    Action::SetHealth {
        replica,
        up: false,
        cause,
    }
}

/// `period`, a little longer or shorter.
fn spread(period: Duration, jitter: &mut u64) -> Duration {
    *jitter = splitmix(*jitter);
    let uniform = (*jitter >> 11) as f64 / (1u64 << 53) as f64;
    period.mul_f64(1.0 + JITTER * (2.0 * uniform - 1.0))
}

/// SplitMix64 (Steele et al. 2014): spreads well enough for a jitter, from one word of state.
const fn splitmix(state: u64) -> u64 {
    let mut z = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests;

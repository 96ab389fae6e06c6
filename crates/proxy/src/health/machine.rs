//! Which replicas get requests: the rules, without a clock or a socket.
//!
//! A replica is taken out by checks (`active`: so many failed in a row) or by its vitals
//! (`passive`: it tripped, see [`Board`]). What took it out decides how it comes back:
//!
//! | cause | back when |
//! | --- | --- |
//! | checks failed | `healthy_after` checks succeed in a row |
//! | unreachable | a check succeeds; without a path to ask, opening a connection |
//! | faulty | its time is over (`eject`, doubled every time up to `eject_max`), and checks succeed |
//!
//! What breaks such rules is an outage that looks like many ill replicas, such as a shared database:
//! ejecting them all makes it worse. So vitals take out at most the share `ejected_max`, and never the
//! last replica that works. Checks may take out all. While no replica works there is an *emergency*: all
//! that are out are asked four times a second, one success is enough, and faulty ones are let back
//! in at once. A service that comes back is therefore found within a second.

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate_control::Timestamp;
use tidegate_sentry::ReplicaId;

use super::{Board, Trip};
use crate::config::{ActiveHealth, Health, PassiveHealth};

/// Time between two probes of a replica in an emergency: four fit into the second that the first success may take.
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

/// See the module's description. Timers are data: call [`Machine::handle_timeout`] at
/// [`Machine::poll_timeout`] and whenever the [`Board`] raises its alarm.
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
        active.path.is_some() || matches!(self.state, State::Unhealthy | State::Unreachable)
    }

    fn come_back(&mut self, now: Timestamp) {
        self.state = State::Up;
        self.back_since = now;
    }

    fn note_check(&mut self, ok: bool) {
        self.streak = match ok {
            true => self.streak.max(0) + 1,
            false => self.streak.min(0) - 1,
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
            State::Up if failed => {
                patient.state = State::Unhealthy;
                Some(down(replica, "its health checks fail"))
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
                down(id, "connections to it fail")
            }
            Trip::Faulty => {
                let until = now + patient.ejection(now, &config.passive);
                patient.state = State::Faulty { until };
                down(id, "too many requests to it fail")
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
            let urgent = emergency && !patient.is_up();
            if urgent {
                patient.next_probe = patient.next_probe.min(now + EMERGENCY_PERIOD);
            }
            if !patient.wants_probes(&self.config.active) || now < patient.next_probe {
                continue;
            }
            patient.next_probe = match urgent {
                true => now + EMERGENCY_PERIOD.min(period),
                false => now + spread(period, &mut self.jitter),
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
mod tests {
    use super::*;
    use crate::health::Outcome;
    use crate::metrics::UpstreamFailure;
    use tidegate_config::{Dur, Share};

    const A: ReplicaId = ReplicaId(0);
    const B: ReplicaId = ReplicaId(1);
    const REFUSED: UpstreamFailure = UpstreamFailure::Connect;
    const RESET: UpstreamFailure = UpstreamFailure::Reset;

    /// A machine with its board and a clock that only moves when told to. Probes are answered by
    /// `answers`; one without an entry hangs.
    struct Ward {
        machine: Machine,
        board: Board,
        now: Timestamp,
        answers: BTreeMap<ReplicaId, bool>,
        log: Vec<(Duration, ReplicaId, bool)>,
        probes: Vec<(Duration, ReplicaId)>,
    }

    impl Ward {
        fn new(replicas: &[ReplicaId], config: Health) -> Self {
            let board = Board::new(config.passive.clone(), replicas.len());
            let mut machine = Machine::new(config.clone(), 7);
            machine.reconfigure(Timestamp::ZERO, config, replicas);
            Self {
                machine,
                board,
                now: Timestamp::ZERO,
                answers: BTreeMap::new(),
                log: Vec::new(),
                probes: Vec::new(),
            }
        }

        fn at(&self) -> Duration {
            self.now.since(Timestamp::ZERO)
        }

        fn carry_out(&mut self, actions: Vec<Action>) {
            for action in actions {
                match action {
                    Action::SetHealth { replica, up, .. } => {
                        self.log.push((self.at(), replica, up));
                    }
                    Action::Probe(replica) => {
                        self.probes.push((self.at(), replica));
                        if let Some(&ok) = self.answers.get(&replica) {
                            let ended = self.machine.on_probe(self.now, &self.board, replica, ok);
                            self.carry_out(ended.into_iter().collect());
                        }
                    }
                }
            }
        }

        fn fail(&mut self, replica: ReplicaId, failure: UpstreamFailure) {
            for _ in 0..5 {
                self.board.record(replica, Outcome::Failed(failure));
            }
            let actions = self.machine.handle_timeout(self.now, &self.board);
            self.carry_out(actions);
        }

        fn run(&mut self, time: Duration) {
            let end = self.now + time;
            loop {
                let next = self.machine.poll_timeout();
                if next > end {
                    break;
                }
                assert!(
                    next >= self.now || self.log.is_empty(),
                    "timers go backwards"
                );
                self.now = next.max(self.now);
                let actions = self.machine.handle_timeout(self.now, &self.board);
                self.carry_out(actions);
            }
            self.now = end;
        }

        fn up(&self) -> Vec<ReplicaId> {
            let ids = self.machine.patients.keys().copied();
            ids.filter(|&id| self.machine.is_up(id)).collect()
        }
    }

    fn with_path() -> Health {
        Health {
            active: ActiveHealth {
                path: Some("/healthz".into()),
                ..ActiveHealth::default()
            },
            ..Health::default()
        }
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn without_a_path_nothing_is_asked_while_all_is_well() {
        let mut ward = Ward::new(&[A, B], Health::default());
        ward.run(60 * SECOND);
        assert!(ward.probes.is_empty());
        assert_eq!(ward.up(), [A, B]);
    }

    #[test]
    fn checks_take_out_after_three_and_bring_back_after_two() {
        let mut ward = Ward::new(&[A, B], with_path());
        ward.answers = [(A, true), (B, false)].into();
        ward.run(3 * SECOND);
        assert_eq!(ward.up(), [A, B], "two checks are not enough");
        ward.run(2 * SECOND);
        assert_eq!(ward.up(), [A]);
        ward.answers.insert(B, true);
        ward.run(2 * SECOND);
        assert_eq!(ward.up(), [A], "one check is not enough");
        ward.run(3 * SECOND);
        assert_eq!(ward.up(), [A, B]);
    }

    #[test]
    fn checks_are_spread_by_a_tenth() {
        let mut ward = Ward::new(&[A], with_path());
        ward.answers.insert(A, true);
        ward.run(100 * SECOND);
        let gaps: Vec<_> = ward.probes.windows(2).map(|w| w[1].0 - w[0].0).collect();
        let within = Duration::from_millis(1800)..=Duration::from_millis(2200);
        assert!(gaps.iter().all(|gap| within.contains(gap)));
        assert!(gaps.iter().max() > gaps.iter().min());
    }

    #[test]
    fn an_unreachable_replica_comes_back_when_it_accepts_connections() {
        let mut ward = Ward::new(&[A, B], Health::default());
        ward.answers.insert(A, false);
        ward.fail(A, REFUSED);
        assert_eq!(ward.up(), [B]);
        ward.run(20 * SECOND);
        assert_eq!(ward.up(), [B]);
        ward.answers.insert(A, true);
        ward.run(3 * SECOND);
        assert_eq!(ward.up(), [A, B]);
    }

    #[test]
    fn a_faulty_replica_is_out_twice_as_long_every_time() {
        let mut ward = Ward::new(&[A, B], Health::default());
        let mut out = Vec::new();
        for _ in 0..9 {
            ward.fail(A, RESET);
            let from = ward.at();
            assert_eq!(ward.up(), [B]);
            ward.run(61 * SECOND);
            let back = ward.log.last().unwrap();
            assert_eq!((back.1, back.2), (A, true));
            out.push((back.0 - from).as_secs());
            ward.now = Timestamp::ZERO + back.0;
        }
        assert_eq!(out, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        ward.run(61 * SECOND);
        ward.fail(A, RESET);
        let from = ward.at();
        ward.run(2 * SECOND);
        assert_eq!(ward.log.last().unwrap().0 - from, SECOND, "starts anew");
    }

    #[test]
    fn vitals_never_take_out_the_last_one_that_works() {
        let mut ward = Ward::new(&[A, B], Health::default());
        ward.fail(A, REFUSED);
        ward.fail(B, REFUSED);
        assert_eq!(ward.up(), [B]);
        let mut alone = Ward::new(&[A], Health::default());
        alone.fail(A, RESET);
        assert_eq!(alone.up(), [A]);
    }

    #[test]
    fn vitals_take_out_no_more_than_their_share() {
        let ids: Vec<_> = (0..10).map(ReplicaId).collect();
        let mut config = Health::default();
        config.passive.ejected_max = Share(0.3);
        let mut ward = Ward::new(&ids, config);
        for &id in &ids[..5] {
            ward.fail(id, RESET);
        }
        assert_eq!(ward.up(), ids[3..]);
        ward.run(Duration::from_millis(1001));
        let waited: Vec<_> = ids.iter().filter(|id| !ward.up().contains(id)).collect();
        assert_eq!(
            waited,
            [&ids[3], &ids[4]],
            "they take the places that came free"
        );
    }

    #[test]
    fn after_all_were_dead_the_first_is_found_within_a_second() {
        for config in [Health::default(), with_path()] {
            let mut ward = Ward::new(&[A, B], config);
            ward.answers = [(A, false), (B, false)].into();
            ward.run(60 * SECOND);
            ward.fail(A, REFUSED);
            ward.fail(B, REFUSED);
            ward.run(600 * SECOND);
            let died = ward.at();
            ward.answers.insert(A, true);
            ward.run(SECOND);
            let back = ward.log.iter().rfind(|entry| entry.2);
            let up_again = back.is_some_and(|&(at, id, _)| id == A && at >= died);
            assert!(up_again || ward.up().contains(&A), "{:?}", ward.log);
        }
    }

    #[test]
    fn hanging_probes_do_not_hide_a_replica_that_is_back() {
        let mut ward = Ward::new(&[A], with_path());
        ward.answers.insert(A, false);
        ward.run(10 * SECOND);
        assert_eq!(ward.up(), []);
        ward.answers.remove(&A);
        ward.run(Duration::from_millis(250));
        assert_eq!(ward.machine.patients[&A].probes, 1, "it hangs");
        ward.answers.insert(A, true);
        ward.run(Duration::from_millis(300));
        assert_eq!(ward.up(), [A]);
    }

    #[test]
    fn probes_under_way_are_bounded() {
        let mut ward = Ward::new(&[A], with_path());
        ward.answers.insert(A, false);
        ward.run(10 * SECOND);
        ward.answers.remove(&A);
        ward.run(60 * SECOND);
        assert_eq!(ward.machine.patients[&A].probes, EMERGENCY_PROBES_MAX);
    }

    #[test]
    fn when_checks_take_out_the_others_a_faulty_one_is_let_back_at_once() {
        let mut config = with_path();
        config.passive.eject = Dur(60 * SECOND);
        let mut ward = Ward::new(&[A, B], config);
        ward.answers = [(A, true), (B, true)].into();
        ward.run(SECOND);
        ward.fail(A, RESET);
        assert_eq!(ward.up(), [B]);
        ward.answers.insert(B, false);
        ward.run(8 * SECOND);
        assert_eq!(ward.up(), [A]);
    }

    #[test]
    fn who_was_out_when_the_checks_went_away_comes_back() {
        let mut ward = Ward::new(&[A, B], with_path());
        ward.answers = [(A, true), (B, false)].into();
        ward.run(10 * SECOND);
        assert_eq!(ward.up(), [A]);
        ward.machine
            .reconfigure(ward.now, Health::default(), &[A, B]);
        ward.answers.insert(B, true);
        ward.run(3 * SECOND);
        assert_eq!(ward.up(), [A, B]);
    }

    #[test]
    fn replicas_come_and_go_and_keep_their_state() {
        let mut ward = Ward::new(&[A, B], Health::default());
        ward.fail(A, REFUSED);
        let c = ReplicaId(2);
        ward.machine
            .reconfigure(ward.now, Health::default(), &[A, c]);
        assert_eq!(ward.up(), [c]);
        let late = ward.machine.on_probe(ward.now, &ward.board, B, true);
        assert_eq!(late, None);
    }
}

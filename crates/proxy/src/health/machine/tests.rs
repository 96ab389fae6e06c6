//! Stories of replicas that fall ill and recover, told with a clock that only moves when told to.

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
fn one_that_stays_in_and_cannot_be_reached_is_asked_until_it_can() {
    let mut ward = Ward::new(&[A], Health::default());
    ward.answers.insert(A, false);
    ward.fail(A, UpstreamFailure::Connect);
    ward.run(10 * SECOND);
    assert_eq!(ward.up(), [A], "there is no other one");
    assert_eq!(ward.board.trip(A), Some(Trip::Unreachable));
    ward.answers.insert(A, true);
    ward.run(SECOND / 2);
    assert_eq!(ward.board.trip(A), None);
    let asked = ward.probes.len();
    ward.run(10 * SECOND);
    assert!(ward.probes.len() <= asked + 1, "all is well again");
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

//! How replicas answer real requests, counted on the request path.
//!
//! A request that ends well costs one relaxed load. A replica *trips* when requests failed
//! `failures` times in a row, or when at least the share `errors` of the last `window` answers
//! were 5xx. A trip is a level, not an edge: it stays until the replica answers well again or the
//! [`Machine`](super::Machine) has acted on it, so a trip that could not be acted on at once (the
//! last healthy replica is never ejected) is not lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, Ordering};

use arc_swap::ArcSwap;
use tidegate_sentry::ReplicaId;
use tokio::sync::Notify;

use crate::config::PassiveHealth;
use crate::metrics::UpstreamFailure;

/// How a replica ended a request, as far as its health is concerned. What a client broke off says
/// nothing and is not recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It answered with this status.
    Answered(u16),
    /// It did not answer, or not in full.
    Failed(UpstreamFailure),
}

/// What is wrong with a replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trip {
    /// Connections to it fail.
    Unreachable,
    /// It can be reached, but requests fail.
    Faulty,
}

impl Trip {
    /// In a few words for the log.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unreachable => "connections to it fail",
            Self::Faulty => "too many requests to it fail",
        }
    }
}

/// The vitals of every replica, shared by the request path and the health task.
#[derive(Debug)]
pub struct Board {
    chart: ArcSwap<Chart>,
    alarm: Notify,
}

/// What is replaced as a whole on a reload.
#[derive(Debug)]
struct Chart {
    rules: PassiveHealth,
    /// By replica id; an id that was never used has untouched vitals.
    replicas: Vec<Arc<Vitals>>,
}

impl Board {
    /// A board for replicas whose ids are below `replicas`.
    #[must_use]
    pub fn new(rules: PassiveHealth, replicas: usize) -> Self {
        let replicas = (0..replicas).map(|_| Arc::default()).collect();
        Self {
            chart: ArcSwap::from_pointee(Chart { rules, replicas }),
            alarm: Notify::new(),
        }
    }

    /// Records how a request ended.
    pub fn record(&self, replica: ReplicaId, outcome: Outcome) {
        let chart = self.chart.load();
        let Some(vitals) = chart.replicas.get(usize::from(replica.0)) else {
            return;
        };
        if vitals.record(&chart.rules, outcome) {
            self.alarm.notify_one();
        }
    }

    /// What is wrong with a replica now.
    #[must_use]
    pub fn trip(&self, replica: ReplicaId) -> Option<Trip> {
        let chart = self.chart.load();
        chart.replicas.get(usize::from(replica.0))?.trip()
    }

    /// How a request to it went wrong last: it failed, or its answer was 5xx.
    #[must_use]
    pub fn last_error(&self, replica: ReplicaId) -> Option<Outcome> {
        let chart = self.chart.load();
        chart.replicas.get(usize::from(replica.0))?.last_error()
    }

    /// Forgets what is known about a replica: it was ejected, or its id is another one's now.
    pub fn reset(&self, replica: ReplicaId) {
        if let Some(vitals) = self.chart.load().replicas.get(usize::from(replica.0)) {
            vitals.reset();
        }
    }

    /// Puts new rules in force and makes room for ids below `replicas`.
    pub fn reconfigure(&self, rules: &PassiveHealth, replicas: usize) {
        let mut known = self.chart.load().replicas.clone();
        known.resize_with(replicas.max(known.len()), Arc::default);
        self.chart.store(Arc::new(Chart {
            rules: rules.clone(),
            replicas: known,
        }));
    }

    /// Waits until a replica trips.
    pub async fn alarmed(&self) {
        self.alarm.notified().await;
    }
}

#[derive(Debug, Default)]
struct Vitals {
    /// Failures since the last answer.
    failures: AtomicU32,
    /// Answers and failures in the current window.
    answers: AtomicU32,
    /// 5xx and failures among them.
    errors: AtomicU32,
    /// A [`Trip`], or `WELL`.
    trip: AtomicU8,
    /// The status of the last 5xx, or below that one more than the place of a failure in
    /// [`UpstreamFailure::ALL`]; 0 at first.
    last: AtomicU16,
}

const WELL: u8 = 0;
const UNREACHABLE: u8 = 1;
const FAULTY: u8 = 2;
/// Tripped by the share of errors: one good answer does not undo it.
const ERRONEOUS: u8 = 3;

impl Vitals {
    /// Returns whether the replica has just tripped.
    fn record(&self, rules: &PassiveHealth, outcome: Outcome) -> bool {
        let in_a_row = match outcome {
            Outcome::Answered(_) => self.answered(),
            Outcome::Failed(failure) => self.failed(rules, failure),
        };
        let error = !matches!(outcome, Outcome::Answered(status) if status < 500);
        if error {
            self.last.store(code(outcome), Ordering::Relaxed);
        }
        let by_share = rules.errors.is_some() && self.counted(rules, error);
        in_a_row || by_share
    }

    fn answered(&self) -> bool {
        if self.failures.load(Ordering::Relaxed) != 0 {
            self.failures.store(0, Ordering::Relaxed);
            for trip in [UNREACHABLE, FAULTY] {
                self.change_trip(trip, WELL);
            }
        }
        false
    }

    fn failed(&self, rules: &PassiveHealth, failure: UpstreamFailure) -> bool {
        let failures = self
            .failures
            .fetch_add(1, Ordering::Relaxed)
            .saturating_add(1);
        if rules.failures == 0 || failures < rules.failures {
            return false;
        }
        let trip = match failure {
            UpstreamFailure::Connect => UNREACHABLE,
            _ => FAULTY,
        };
        self.change_trip(WELL, trip)
    }

    fn counted(&self, rules: &PassiveHealth, error: bool) -> bool {
        let errors = self.errors.fetch_add(u32::from(error), Ordering::Relaxed) + u32::from(error);
        let answers = self.answers.fetch_add(1, Ordering::Relaxed) + 1;
        if answers < rules.window {
            return false;
        }
        // Answers that other threads add between the two stores move to the next window.
        self.answers.store(0, Ordering::Relaxed);
        self.errors.store(0, Ordering::Relaxed);
        let share = f64::from(errors) / f64::from(answers);
        if rules.errors.is_some_and(|limit| share >= *limit) {
            self.change_trip(WELL, ERRONEOUS)
        } else {
            self.change_trip(ERRONEOUS, WELL);
            false
        }
    }

    fn change_trip(&self, from: u8, to: u8) -> bool {
        let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
        self.trip
            .compare_exchange(from, to, success, failure)
            .is_ok()
    }

    fn trip(&self) -> Option<Trip> {
        match self.trip.load(Ordering::Relaxed) {
            UNREACHABLE => Some(Trip::Unreachable),
            FAULTY | ERRONEOUS => Some(Trip::Faulty),
            _ => None,
        }
    }

    fn last_error(&self) -> Option<Outcome> {
        let code = self.last.load(Ordering::Relaxed);
        let failure = UpstreamFailure::ALL.get(usize::from(code.checked_sub(1)?));
        Some(failure.map_or(Outcome::Answered(code), |&failure| Outcome::Failed(failure)))
    }

    fn reset(&self) {
        self.failures.store(0, Ordering::Relaxed);
        self.answers.store(0, Ordering::Relaxed);
        self.errors.store(0, Ordering::Relaxed);
        self.trip.store(WELL, Ordering::Relaxed);
    }
}

/// An error in a few bits.
const fn code(outcome: Outcome) -> u16 {
    match outcome {
        Outcome::Answered(status) => status,
        Outcome::Failed(failure) => failure as u16 + 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_config::Share;

    const A: ReplicaId = ReplicaId(0);
    const GOOD: Outcome = Outcome::Answered(200);
    const ERROR: Outcome = Outcome::Answered(500);
    const REFUSED: Outcome = Outcome::Failed(UpstreamFailure::Connect);
    const RESET: Outcome = Outcome::Failed(UpstreamFailure::Reset);

    fn after(rules: PassiveHealth, outcomes: &[Outcome]) -> Option<Trip> {
        let board = Board::new(rules, 1);
        for &outcome in outcomes {
            board.record(A, outcome);
        }
        board.trip(A)
    }

    fn three_in_a_row() -> PassiveHealth {
        PassiveHealth {
            failures: 3,
            ..PassiveHealth::default()
        }
    }

    #[test]
    fn failures_in_a_row_trip_and_an_answer_undoes_them() {
        assert_eq!(after(three_in_a_row(), &[RESET; 2]), None);
        assert_eq!(after(three_in_a_row(), &[RESET; 3]), Some(Trip::Faulty));
        assert_eq!(
            after(three_in_a_row(), &[REFUSED; 3]),
            Some(Trip::Unreachable)
        );
        assert_eq!(after(three_in_a_row(), &[RESET, RESET, GOOD, RESET]), None);
        assert_eq!(after(three_in_a_row(), &[RESET, RESET, RESET, GOOD]), None);
    }

    #[test]
    fn the_last_error_is_known() {
        let board = Board::new(three_in_a_row(), 1);
        assert_eq!(board.last_error(A), None);
        for failure in UpstreamFailure::ALL {
            board.record(A, Outcome::Failed(failure));
            board.record(A, GOOD);
            assert_eq!(board.last_error(A), Some(Outcome::Failed(failure)));
        }
        board.record(A, ERROR);
        assert_eq!(board.last_error(A), Some(ERROR));
    }

    #[test]
    fn zero_failures_never_trips() {
        let rules = PassiveHealth {
            failures: 0,
            ..PassiveHealth::default()
        };
        assert_eq!(after(rules, &[REFUSED; 50]), None);
    }

    #[test]
    fn a_share_of_errors_trips_only_when_it_is_configured() {
        assert_eq!(after(three_in_a_row(), &[ERROR; 500]), None);
        let half = PassiveHealth {
            errors: Some(Share(0.5)),
            window: 4,
            ..PassiveHealth::default()
        };
        assert_eq!(after(half.clone(), &[ERROR, GOOD, ERROR]), None);
        assert_eq!(
            after(half.clone(), &[ERROR, GOOD, ERROR, GOOD]),
            Some(Trip::Faulty)
        );
        assert_eq!(after(half.clone(), &[ERROR, GOOD, GOOD, GOOD]), None);
        let then_well = [ERROR, ERROR, ERROR, ERROR, GOOD, GOOD, GOOD, GOOD];
        assert_eq!(after(half, &then_well), None);
    }

    #[test]
    fn a_replica_the_board_does_not_know_is_ignored() {
        let board = Board::new(three_in_a_row(), 0);
        board.record(A, REFUSED);
        assert_eq!(board.trip(A), None);
        board.reconfigure(&three_in_a_row(), 1);
        for _ in 0..3 {
            board.record(A, REFUSED);
        }
        assert_eq!(board.trip(A), Some(Trip::Unreachable));
        board.reset(A);
        assert_eq!(board.trip(A), None);
    }
}

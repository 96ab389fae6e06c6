//! How full servers may be, so that hardly anybody is late.
//!
//! Equation 4 of paper 003 keeps the *mean* response time of a batch within the target. Servers are
//! filled up to that, so that near the limit every second answer of a path whose requests differ
//! would be late, and a more important request that arrives in a burst finds no room. How much to
//! keep free is learnt from what went wrong: class `i` is admitted as long as servers hold at most
//! the share `room_i` of the requests that its target allows, with
//!
//! ```text
//! room_i  <-  room_i - s failed_i + s late_max * seen_i,     ROOM_MIN <= room_i <= room_{i-1}
//! ```
//!
//! Failed are requests of this and of more important classes that were answered late, and those of
//! more important classes that the test refused; seen are all of them that were answered or
//! refused; `s` is [`ROOM_PER_FAILURE`]. In balance the share that fails is `late_max` (the
//! quantile tracker of Robbins and Monro with a fixed step). With `late_max = 1` nothing is kept
//! free, which is the paper's test.
//!
//! Servers that hold a third of what the target allows are still busy, so that nothing is lost by
//! it: what changes is which requests are in them.
//!
//! What breaks it: answers that are late for other reasons than company. `ROOM_MIN` bounds what
//! they cost, and the test leaves a server [`SPARED`](super::servers::SPARED) requests in any case.

use std::time::Duration;

use tidegate_control::Timestamp;

/// What one failure takes away. Chosen: three in a thousand of a hundred requests a second are
/// noticed within seconds (`experiments/papers/003-revenue.toml`); what was taken by mistake comes
/// back slowly, a tenth in a hundred seconds, which costs little because servers stay busy.
const ROOM_PER_FAILURE: f64 = 0.02;

/// What all failures of a step together take away at most: they have one cause.
const STEP_MAX: f64 = 0.05;

/// The least that is left. With exponential service times a third keeps the 95th percentile
/// within the target (`ln 20 = 3`).
pub(crate) const ROOM_MIN: f64 = 1.0 / 3.0;

/// What became of a class's requests, since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Outcome {
    pub(crate) served: u64,
    pub(crate) late: u64,
    /// Refused by the test.
    pub(crate) refused: u64,
    /// The class's target: for so long after a change, answers tell of the time before it.
    pub(crate) target: Duration,
}

#[derive(Debug, Clone, Copy)]
struct Room {
    share: f64,
    settled: Timestamp,
}

/// How full servers may be, so that hardly anybody is late.
#[derive(Debug, Default)]
pub(crate) struct Rooms {
    rooms: Vec<Room>,
    before: Vec<Outcome>,
}

impl Rooms {
    /// All servers for all classes, until something goes wrong.
    pub(crate) fn start(&mut self, now: Timestamp, outcomes: Vec<Outcome>) {
        let whole = Room {
            share: 1.0,
            settled: now,
        };
        self.rooms = vec![whole; outcomes.len()];
        self.before = outcomes;
    }

    /// Takes the outcomes so far, most important class first; gives the share of each class.
    pub(crate) fn step(
        &mut self,
        now: Timestamp,
        outcomes: Vec<Outcome>,
        late_max: f64,
    ) -> impl Iterator<Item = f64> + '_ {
        if self.rooms.len() != outcomes.len() {
            self.start(now, outcomes.clone());
        }
        let (mut failed, mut seen, mut most) = (0, 0, 1.0);
        let classes = outcomes.iter().zip(&self.before).zip(&mut self.rooms);
        for ((outcome, before), room) in classes {
            failed += outcome.late.saturating_sub(before.late);
            seen += outcome.served.saturating_sub(before.served);
            room.step(now, (failed, seen), late_max, outcome.target);
            room.share = room.share.min(most);
            most = room.share;
            let refused = outcome.refused.saturating_sub(before.refused);
            failed += refused;
            seen += refused;
        }
        self.before = outcomes;
        self.rooms.iter().map(|room| room.share)
    }
}

impl Room {
    fn step(&mut self, now: Timestamp, (failed, seen): (u64, u64), late_max: f64, wait: Duration) {
        if now < self.settled {
            return;
        }
        let change = ROOM_PER_FAILURE * (late_max * seen as f64 - failed as f64);
        if change < 0.0 {
            self.settled = now + wait;
        }
        self.share = (self.share + change.max(-STEP_MAX)).clamp(ROOM_MIN, 1.0);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TARGET: Duration = Duration::from_millis(500);

    fn at(step: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_secs(step)
    }

    fn outcome(served: u64, late: u64, refused: u64) -> Outcome {
        Outcome {
            served,
            late,
            refused,
            target: TARGET,
        }
    }

    /// Steps a second apart, with the same outcomes in each; the shares after the last.
    fn after(steps: u64, late_max: f64, each: &[Outcome]) -> Vec<f64> {
        let mut rooms = Rooms::default();
        rooms.start(at(0), vec![Outcome::default(); each.len()]);
        let sum = |step: u64| {
            let times = |o: &Outcome| outcome(o.served * step, o.late * step, o.refused * step);
            each.iter().map(times).collect::<Vec<_>>()
        };
        let mut shares = Vec::new();
        for step in 1..=steps {
            shares = rooms.step(at(step), sum(step), late_max).collect();
        }
        shares
    }

    #[test]
    fn nothing_is_kept_free_while_nobody_is_late() {
        assert_eq!(after(100, 0.001, &[outcome(100, 0, 0); 2]), [1.0, 1.0]);
    }

    #[test]
    fn late_answers_take_room_from_their_class_and_those_below() {
        let shares = after(
            3,
            0.001,
            &[outcome(100, 0, 0), outcome(100, 2, 0), outcome(9, 0, 0)],
        );
        assert_eq!(shares[0], 1.0);
        assert!(shares[1] < 0.9 && shares[2] <= shares[1], "{shares:?}");
    }

    #[test]
    fn refusals_take_room_from_less_important_classes_alone() {
        let shares = after(60, 0.001, &[outcome(100, 0, 50), outcome(10, 0, 0)]);
        assert_eq!(shares, [1.0, ROOM_MIN]);
    }

    #[test]
    fn what_is_allowed_to_be_late_takes_nothing() {
        assert_eq!(after(60, 0.02, &[outcome(100, 2, 0)]), [1.0]);
        assert_eq!(
            after(60, 1.0, &[outcome(0, 0, 9), outcome(9, 9, 0)]),
            [1.0; 2]
        );
    }

    #[test]
    fn room_comes_back_when_all_is_well() {
        let mut rooms = Rooms::default();
        rooms.start(at(0), vec![Outcome::default()]);
        let first = rooms.step(at(1), vec![outcome(100, 50, 0)], 0.001).next();
        assert_eq!(first, Some(1.0 - STEP_MAX));
        let mut last = None;
        for step in 2..200 {
            last = rooms
                .step(at(step), vec![outcome(100 * step, 50, 0)], 0.001)
                .next();
        }
        assert_eq!(last, Some(1.0));
    }

    #[test]
    fn one_episode_one_reaction() {
        let mut rooms = Rooms::default();
        rooms.start(at(0), vec![Outcome::default()]);
        let soon = at(1) + TARGET / 2;
        rooms
            .step(at(1), vec![outcome(10, 5, 0)], 0.001)
            .for_each(drop);
        let share = rooms.step(soon, vec![outcome(20, 10, 0)], 0.001).next();
        assert_eq!(share, Some(1.0 - STEP_MAX));
    }

    proptest! {
        #[test]
        fn shares_are_bounded_and_in_order(
            steps in proptest::collection::vec(
                proptest::collection::vec((0..1000u64, 0..1000u64, 0..1000u64), 3), 1..50),
            late_max in 0.0..1.0f64,
        ) {
            let mut rooms = Rooms::default();
            rooms.start(at(0), vec![Outcome::default(); 3]);
            for (number, step) in steps.iter().enumerate() {
                let outcomes = step.iter().map(|&(s, l, r)| outcome(s, l, r)).collect();
                let shares: Vec<f64> = rooms.step(at(number as u64 + 1), outcomes, late_max).collect();
                prop_assert!(shares.iter().all(|share| (ROOM_MIN..=1.0).contains(share)));
                prop_assert!(shares.is_sorted_by(|more, less| more >= less));
            }
        }
    }
}

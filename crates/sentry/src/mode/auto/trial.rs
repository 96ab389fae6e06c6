//! A trial of another window: throughput with it is compared with throughput before ([`RateTest`]).

use tidegate_control::Timestamp;

use super::profile::Seen;
use super::sprt::{Finding, RateTest};
use crate::occupancy::Full;

/// What is tested for: a change of throughput by the factor `alternative`. The test changes sign at
/// a ratio of `(g - 1) / ln g`: a smaller change than that counts as none. `reference` completions
/// and `reference_seconds` have to be behind the throughput before, and the trial lasts for
/// `seconds`: where a few requests take long, less says little.
#[derive(Debug, Clone, Copy)]
pub(super) struct Test {
    pub(super) alternative: f64,
    pub(super) reference: f64,
    pub(super) reference_seconds: f64,
    pub(super) seconds: f64,
}

/// Up, while nothing is known: a gain of 44 % counts. Where twenty are done within two ticks they
/// may have come fast by luck, and 200 workers looked full with 16 requests in one start of
/// fifteen; chosen over 120 seeds, where slow services lose no time by it (docs/decisions/0014).
pub(super) const UP_FIRST: Test = Test {
    alternative: 2.0,
    reference: 20.0,
    reference_seconds: 0.7,
    seconds: 0.5,
};
/// Down, while nothing is known: a loss of 34 % counts.
pub(super) const DOWN_FIRST: Test = Test {
    alternative: 0.4,
    reference: 20.0,
    reference_seconds: 0.7,
    seconds: 0.5,
};
/// Up, later: a gain of 23 % counts.
pub(super) const UP: Test = Test {
    alternative: 1.5,
    reference: 100.0,
    reference_seconds: 0.0,
    seconds: 0.0,
};
/// Back down after that: a loss of 18 % counts.
pub(super) const CHECK: f64 = 1.0 / UP.alternative;
/// Down without a knee to go by: a loss of 16 % counts.
pub(super) const DOWN: Test = Test {
    alternative: 0.7,
    reference: 100.0,
    reference_seconds: 1.0,
    seconds: 1.0,
};
/// Down with one, or where answers are late: a loss of 34 % counts. Where requests share a
/// processor the long ones stay behind, and for a while few are done.
pub(super) const DOWN_TO_KNEE: Test = Test {
    alternative: 0.4,
    reference: 40.0,
    reference_seconds: 0.0,
    seconds: 0.0,
};
/// Down to the knee where answers are late: half of the throughput counts. Less says that the
/// service itself is too slow for the target.
pub(super) const DOWN_FROM_LATE: Test = Test {
    alternative: 0.2,
    reference: 20.0,
    reference_seconds: 0.0,
    seconds: 0.0,
};

/// More than this many times the throughput before, with nobody left to wait, is more.
const MORE: f64 = 1.1;

/// A trial that goes on.
#[derive(Debug)]
pub(super) struct Trial {
    pub(super) kind: Kind,
    /// The window to go back to.
    pub(super) from: u32,
    pub(super) until: Timestamp,
    pub(super) last_binding: Timestamp,
    pub(super) test: RateTest,
    /// All that was seen, while the window was not full too, and for how long.
    pub(super) all: Seen,
    pub(super) all_seconds: f64,
    /// Sooner it decides nothing.
    pub(super) seconds: f64,
}

impl Trial {
    /// Takes all that was seen in a tick.
    pub(super) fn see(&mut self, seen: Seen, seconds: f64) {
        self.all.inside_seconds += seen.inside_seconds;
        self.all.done += seen.done;
        self.all_seconds += seconds;
    }

    /// Whether a larger window brings so much that it is never full: more is done than before, with
    /// more requests inside than the smaller one has room for. If the load had gone away, or
    /// capacity had returned, there would be fewer.
    pub(super) fn brings_more(&self) -> bool {
        let before = self.test.rate() * self.all_seconds;
        let room = f64::from(self.from) * self.all_seconds;
        self.kind == Kind::Up && self.all.done > MORE * before && self.all.inside_seconds > room
    }

    /// Takes what was done in a tick with the window full.
    pub(super) fn on_tick(&mut self, full: Full) -> Finding {
        let finding = self.test.on_tick(full.done, full.seconds);
        let too_early = self.test.seconds() < self.seconds;
        if too_early { Finding::Open } else { finding }
    }
}

/// Which way it goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Up,
    Down,
    /// Back down after a trial up with more throughput: was it the window, or has capacity
    /// returned?
    Check,
}

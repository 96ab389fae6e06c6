//! A trial of another window: throughput with it is compared with throughput before ([`RateTest`]).

use tidegate_control::Timestamp;

use super::sprt::{Finding, RateTest};
use super::tuning::Tuning;
use crate::counts::Counts;

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

/// A trial that goes on.
#[derive(Debug)]
pub(super) struct Trial {
    pub(super) kind: Kind,
    /// The window to go back to.
    pub(super) from: u32,
    pub(super) until: Timestamp,
    pub(super) last_binding: Timestamp,
    pub(super) test: RateTest,
    /// All that was seen, while the window was not full too.
    pub(super) all: Counts,
    /// Sooner it decides nothing.
    pub(super) seconds: f64,
}

impl Trial {
    /// Takes all that was seen in a tick.
    pub(super) fn see(&mut self, seen: &Counts) {
        self.all = self.all.plus(seen);
    }

    /// Whether a larger window brings so much that it is never full: more is done than before, with
    /// more requests inside than the smaller one has room for. If the load had gone away, or
    /// capacity had returned, there would be fewer.
    pub(super) fn brings_more(&self) -> bool {
        let before = self.test.rate() * self.all.seconds;
        let room = f64::from(self.from) * self.all.seconds;
        self.kind == Kind::Up
            && self.all.done > Tuning::TRIAL_BRINGS_MORE.get() * before
            && self.all.inside_seconds > room
    }

    /// Takes what was done in a tick with the window full.
    pub(super) fn on_tick(&mut self, full: &Counts) -> Finding {
        let finding = self.test.on_tick(full);
        let too_early = self.test.counts().seconds < self.seconds;
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

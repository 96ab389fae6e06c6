//! Trials of other windows: throughput with one is compared with throughput before ([`RateTest`]).
//!
//! [`Trials`] is what the phases with trials have in common, and what one hands over to the next:
//! the trial that goes on, and what the last ones have shown.

use std::time::Duration;

use tidegate_control::Timestamp;

use super::cause::Cause;
use super::replica_window::ReplicaWindow;
use super::sprt::{Finding, RateTest};
use super::tuning::Tuning;
use super::window::ReplicaTick;
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
    fn see(&mut self, seen: &Counts) {
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

    /// The window from before is in force again.
    pub(super) fn go_back(&self, replica: &mut ReplicaWindow, now: Timestamp) {
        replica.window = self.from;
        let leaving = Tuning::LEAVING_UP.get() * f64::from(self.from) / self.test.rate();
        replica.let_leave(now, leaving);
    }

    /// Takes what was done in a tick with the window full.
    fn on_tick(&mut self, full: &Counts) -> Finding {
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

/// A trial that may begin.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    pub(super) kind: Kind,
    pub(super) test: Test,
    /// The window to try.
    pub(super) to: f64,
    /// Not sooner than this after the last one up.
    pub(super) pause: Duration,
}

/// What became of a trial that was to begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Start {
    /// Too little is known of throughput, or the last one up was not long ago.
    NotNow,
    /// The window is already as large, or small, as it may be.
    AtBound,
    Begun(Cause),
}

/// What a tick was to the trial that goes on.
#[derive(Debug)]
pub(super) enum Progress {
    /// There is none.
    None,
    GoesOn,
    /// No request has waited for a while, so that it is over.
    LoadGone(Trial),
    /// It is over; an open finding is one for which time ran out.
    Decided(Trial, Finding),
}

/// Whether a smaller window is known to cost throughput.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refutation {
    None,
    Holds,
    /// It did, long ago: the base was not what it seemed.
    Expired,
}

/// A smaller window cost throughput, or seemed to: capacity may have fallen at the same time.
#[derive(Debug, Clone, Copy)]
struct Refuted {
    until: Timestamp,
    /// Throughput before.
    rate: f64,
}

/// The trial that goes on, and what the last ones have shown.
#[derive(Debug)]
pub(super) struct Trials {
    running: Option<Trial>,
    /// When a larger window was last found to be of no use.
    last_up: Option<Timestamp>,
    refuted: Option<Refuted>,
    /// For how long the base of the last trials is believed.
    trust: Duration,
    trusted_until: Timestamp,
}

impl Trials {
    pub(super) fn new(now: Timestamp) -> Self {
        Self {
            running: None,
            last_up: None,
            refuted: None,
            trust: Tuning::TRUST.get(),
            trusted_until: now,
        }
    }

    pub(super) fn running(&self) -> Option<&Trial> {
        self.running.as_ref()
    }

    /// The trial that goes on ends without a finding.
    pub(super) fn cancel(&mut self) {
        self.running = None;
    }

    /// Starts a trial.
    pub(super) fn start(
        &mut self,
        replica: &mut ReplicaWindow,
        tick: &ReplicaTick,
        plan: &Plan,
    ) -> Start {
        let to = replica.bounds.nearest(plan.to);
        let known = replica.has_reference(&plan.test);
        let too_soon = |last| tick.now < last + plan.pause;
        let Some(rate) = replica.meter.rate().filter(|_| known) else {
            return Start::NotNow;
        };
        if self.last_up.is_some_and(too_soon) {
            return Start::NotNow;
        }
        if to == replica.window {
            return Start::AtBound;
        }
        let service_time = replica.service_time(rate);
        let leaving = match plan.kind {
            Kind::Up => Tuning::LEAVING_UP.get() * service_time,
            _ => Tuning::LEAVING_DOWN.get() * service_time.max(tick.residence_long),
        };
        replica.let_leave(tick.now, leaving);
        let from = std::mem::replace(&mut replica.window, to);
        self.run(replica, tick.now, plan.kind, from, rate, &plan.test);
        Start::Begun(match plan.kind {
            Kind::Up => Cause::TryLarger,
            _ => Cause::TrySmaller,
        })
    }

    /// There was more throughput with a larger window than before. If that is because of the
    /// window, what is known of the service is wrong, and finding it out anew costs throughput; so
    /// first it is made sure that capacity has not returned meanwhile.
    pub(super) fn check(&mut self, replica: &mut ReplicaWindow, now: Timestamp, trial: &Trial) {
        let rate = trial.test.counts().rate();
        let larger = std::mem::replace(&mut replica.window, trial.from);
        let leaving = Tuning::LEAVING_DOWN.get() * f64::from(larger) / rate;
        replica.let_leave(now, leaving);
        let test = Test {
            seconds: 0.0,
            ..Tuning::TRIAL_CHECK.get()
        };
        self.run(replica, now, Kind::Check, larger, rate, &test);
    }

    fn run(
        &mut self,
        replica: &ReplicaWindow,
        now: Timestamp,
        kind: Kind,
        from: u32,
        rate: f64,
        test: &Test,
    ) {
        self.running = Some(Trial {
            kind,
            from,
            until: replica.counts_from() + duration(rate),
            last_binding: now,
            test: RateTest::new(rate, test.alternative, replica.meter.dispersion()),
            all: Counts::default(),
            seconds: test.seconds,
        });
    }

    /// Takes a tick.
    pub(super) fn advance(
        &mut self,
        replica: &ReplicaWindow,
        tick: &ReplicaTick,
        seen: &Counts,
    ) -> Progress {
        let Some(mut trial) = self.running.take() else {
            return Progress::None;
        };
        let counts = replica.counts_at(tick.now);
        if counts {
            trial.see(seen);
        }
        if !tick.binding {
            // No more evidence, and after a while no trial.
            return self.without_load(tick.now, trial);
        }
        trial.last_binding = tick.now;
        if !counts {
            return self.go_on(trial);
        }
        match trial.on_tick(&tick.full) {
            Finding::Open if tick.now < trial.until => self.go_on(trial),
            finding => Progress::Decided(trial, finding),
        }
    }

    fn go_on(&mut self, trial: Trial) -> Progress {
        self.running = Some(trial);
        Progress::GoesOn
    }

    fn without_load(&mut self, now: Timestamp, trial: Trial) -> Progress {
        if now < trial.last_binding + Tuning::LOAD_ABSENCE.get() {
            return self.go_on(trial);
        }
        self.last_up = Some(now);
        Progress::LoadGone(trial)
    }

    /// A larger window was of no use.
    pub(super) fn on_no_use(&mut self, now: Timestamp) {
        self.last_up = Some(now);
    }

    /// A smaller window cost throughput.
    pub(super) fn refute(&mut self, now: Timestamp, trial: &Trial) {
        self.refuted = Some(Refuted {
            until: now + Tuning::REFUTED.get(),
            rate: trial.test.rate(),
        });
    }

    /// Whether a smaller window is known to cost throughput. If it did, the base was not what it
    /// seemed; if throughput is not what it was with this window either, capacity had fallen.
    pub(super) fn refutation(&mut self, now: Timestamp, rate: f64) -> Refutation {
        let Some(refuted) = self.refuted else {
            return Refutation::None;
        };
        let as_before = rate > Tuning::REFUTED_THROUGHPUT.get() * refuted.rate;
        if as_before && now < refuted.until {
            return Refutation::Holds;
        }
        self.refuted = None;
        if as_before {
            Refutation::Expired
        } else {
            Refutation::None
        }
    }

    /// Whether the base of the last trials is believed.
    pub(super) fn is_trusted(&self, now: Timestamp) -> bool {
        now < self.trusted_until
    }

    /// A trial has shown the base.
    pub(super) fn trust_from(&mut self, now: Timestamp) {
        self.trusted_until = now + self.trust;
    }

    /// The base was doubted; it is doubted again, but later each time.
    pub(super) fn trust_for_longer(&mut self, now: Timestamp) {
        self.trust = (self.trust * 2).min(Tuning::TRUST_MAX.get());
        self.trust_from(now);
    }
}

/// A trial that has not decided in this time decides nothing.
fn duration(rate: f64) -> Duration {
    let completions = Duration::try_from_secs_f64(Tuning::TRIAL_COMPLETIONS_MAX.get() / rate);
    Tuning::TRIAL_DURATION_MAX
        .get()
        .max(completions.unwrap_or(Duration::ZERO))
}

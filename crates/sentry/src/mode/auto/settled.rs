//! The search once throughput at a full window is capacity.
//!
//! The window is kept at somewhat more than the knee. It grows when it is found below the knee,
//! and shrinks when it is far above; should throughput fall with it, the knee was wrong, and it
//! goes back. From time to time a larger window is tried, which costs nothing but some requests
//! waiting in the replica.
//!
//! **Without a knee**, because the replica was never seen without a queue inside, a smaller window
//! is tried in overload, or where requests take too long, for as long as throughput stays the same:
//! of two windows with the same throughput the smaller one answers sooner. The first that costs
//! throughput shows the base ([`Profile`](super::profile::Profile)). While the window has room
//! nothing is made smaller just to see what happens.
//!
//! Where work varies much such a comparison misleads: the slots of a smaller window are left to the
//! long requests. So a base that was found by trials is doubted again, ever less often, for as long
//! as requests stay long (docs/decisions/0018-trials-under-variable-work.md).

use std::time::Duration;

use tidegate_control::Timestamp;

use super::cause::Cause;
use super::phase::{Outcome, PhaseName};
use super::replica_window::{ReplicaWindow, roomy};
use super::sprt::Finding;
use super::trial::{Kind, Plan, Progress, Refutation, Start, Test, Trial, Trials};
use super::tuning::Tuning;
use super::window::ReplicaTick;
use crate::counts::Counts;

/// Throughput at a full window is capacity.
#[derive(Debug)]
pub(super) struct Settled {
    pub(super) trials: Trials,
    /// A window that did as much as a larger one; the knee is not beyond it.
    enough: f64,
    /// What was taken for capacity when the window was last made larger because of it.
    outgrown: Option<f64>,
}

impl Settled {
    pub(super) fn new(trials: Trials) -> Self {
        Self {
            trials,
            enough: f64::INFINITY,
            outgrown: None,
        }
    }

    pub(super) fn on_tick(
        &mut self,
        replica: &mut ReplicaWindow,
        tick: &ReplicaTick,
        seen: &Counts,
    ) -> Outcome {
        match self.trials.advance(replica, tick, seen) {
            Progress::None => self.hold(replica, tick),
            Progress::GoesOn => Outcome::STAYS,
            Progress::LoadGone(trial) => self.without_load(replica, tick, &trial),
            Progress::Decided(trial, finding) => self.conclude(replica, tick.now, &trial, finding),
        }
    }

    fn hold(&mut self, replica: &mut ReplicaWindow, tick: &ReplicaTick) -> Outcome {
        if !replica.counts_at(tick.now) {
            return Outcome::STAYS;
        }
        replica.measure(&tick.full);
        let Some(rate) = replica.meter.rate() else {
            return Outcome::STAYS;
        };
        let rests = replica.rests_on(Tuning::THROUGHPUT_COMPLETIONS.get());
        if rests && self.was_no_capacity(rate) {
            replica.forget();
            return Outcome::ends(PhaseName::Searching, Cause::Outgrown);
        }
        if replica.rests_on(Tuning::SPEED_COMPLETIONS.get()) {
            replica.speed.on_rate(rate);
        }
        if !tick.binding {
            return self.shrink_unused(replica, tick, rate);
        }
        match replica.larger_for_a_moment(rate) {
            Some(to) => {
                replica.grow(tick.now, rate, to);
                Outcome::changed(Cause::Fast)
            }
            None if rests => self.adjust(replica, tick, rate),
            None => Outcome::STAYS,
        }
    }

    /// Whether far more is done with a larger window than was taken for capacity with the smaller
    /// one.
    fn was_no_capacity(&mut self, rate: f64) -> bool {
        let before = self.outgrown.take();
        before.is_some_and(|before| rate > Tuning::CAPACITY_OUTGROWN.get() * before)
    }

    /// Requests that the replica holds at its maximal throughput without queueing, if known.
    pub(super) fn knee(&self, replica: &ReplicaWindow, rate: f64) -> Option<f64> {
        replica.knee(rate).map(|knee| knee.min(self.enough))
    }

    /// What is known is about another service.
    fn forget(&mut self, replica: &mut ReplicaWindow) {
        self.enough = f64::INFINITY;
        replica.forget();
    }

    fn shrink_unused(
        &mut self,
        replica: &mut ReplicaWindow,
        tick: &ReplicaTick,
        rate: f64,
    ) -> Outcome {
        let knee = self.knee(replica, rate);
        let enough = knee.and_then(|knee| replica.enough_unused(tick, rate, knee));
        let Some(enough) = enough else {
            return Outcome::STAYS;
        };
        if self.is_refuted(replica, tick.now, rate) {
            return Outcome::STAYS;
        }
        replica.set(enough);
        Outcome::changed(Cause::AboveKnee)
    }

    /// Is the window what capacity takes?
    fn adjust(&mut self, replica: &mut ReplicaWindow, tick: &ReplicaTick, rate: f64) -> Outcome {
        if self.doubts(replica, tick, rate) {
            self.trials.trust_for_longer(tick.now);
            // The next trial must not rest on old luck.
            replica.restart_meter(None);
            return Outcome::STAYS;
        }
        let late =
            replica.service_time(rate) > Tuning::SERVICE_TIME_LATE_OF_TARGET.get() * tick.target;
        let smaller = match self.knee(replica, rate) {
            Some(knee) => {
                let enough = roomy(knee, rate * tick.residence_max, least_for(knee, late));
                if f64::from(replica.window) < Tuning::WINDOW_PER_KNEE_NARROW.get() * knee {
                    self.outgrown.get_or_insert(rate);
                    replica.grow(tick.now, rate, enough);
                    return Outcome::changed(Cause::BelowKnee);
                }
                smaller_with_knee(replica, enough, late)
            }
            None => smaller_without_knee(replica, tick, rate, late),
        };
        let smaller = smaller.filter(|(_, to)| *to >= rate * Tuning::WINDOW_MIN_SECONDS.get());
        if let Some((test, to)) = smaller
            && !self.is_refuted(replica, tick.now, rate)
        {
            let pause = Duration::ZERO;
            let kind = Kind::Down;
            return self.start_trial(
                replica,
                tick,
                &Plan {
                    kind,
                    test,
                    to,
                    pause,
                },
            );
        }
        self.try_larger(replica, tick, rate)
    }

    fn try_larger(
        &mut self,
        replica: &mut ReplicaWindow,
        tick: &ReplicaTick,
        rate: f64,
    ) -> Outcome {
        let long = Tuning::SERVICE_TIME_LONG_OF_TARGET.get() * tick.target;
        if replica.service_time(rate) > long
            || !replica.waits_for(Tuning::TRIAL_UP_ONSET.get(), tick.now)
        {
            return Outcome::STAYS;
        }
        let plan = Plan {
            kind: Kind::Up,
            test: Tuning::TRIAL_UP.get(),
            to: f64::from(replica.window) * Tuning::WINDOW_GROWTH.get(),
            pause: Tuning::TRIAL_UP_PAUSE.get(),
        };
        self.start_trial(replica, tick, &plan)
    }

    fn start_trial(
        &mut self,
        replica: &mut ReplicaWindow,
        tick: &ReplicaTick,
        plan: &Plan,
    ) -> Outcome {
        match self.trials.start(replica, tick, plan) {
            Start::NotNow | Start::AtBound => Outcome::STAYS,
            Start::Begun(cause) => Outcome::changed(cause),
        }
    }

    /// In overload what is known is doubted from time to time: all of it where all answers are
    /// late, and the base that trials have shown where requests take long. It goes by how long they
    /// took when it was found: a service that got slower is no reason.
    fn doubts(&mut self, replica: &mut ReplicaWindow, tick: &ReplicaTick, rate: f64) -> bool {
        if !tick.overloaded || self.trials.is_trusted(tick.now) {
            return false;
        }
        let service_time = replica.service_time(replica.speed.unit_rate(rate));
        if service_time > Tuning::SERVICE_TIME_LATE_OF_TARGET.get() * tick.target
            && self.knee(replica, rate).is_some()
        {
            self.forget(replica);
            return true;
        }
        service_time > tick.residence_doubtful && replica.profile.doubt()
    }

    fn conclude(
        &mut self,
        replica: &mut ReplicaWindow,
        now: Timestamp,
        trial: &Trial,
        finding: Finding,
    ) -> Outcome {
        match (trial.kind, finding) {
            (Kind::Up, Finding::Changed) => {
                self.trials.check(replica, now, trial);
                Outcome::changed(Cause::CheckGain)
            }
            (Kind::Up, _) => {
                self.trials.on_no_use(now);
                self.enough = f64::from(trial.from);
                trial.go_back(replica, now);
                Outcome::changed(Cause::NoGain)
            }
            (Kind::Check, Finding::Changed) => {
                replica.window = trial.from;
                self.forget(replica);
                replica.restart_meter(None);
                Outcome::changed(Cause::Gain)
            }
            (Kind::Check, _) => {
                replica.set_throughput(&trial.test);
                self.trials.on_no_use(now);
                Outcome::STAYS
            }
            (Kind::Down, Finding::Changed) => self.on_loss(replica, now, trial),
            (Kind::Down, _) => {
                replica.profile.on_large_enough();
                replica.meter.on_tick(trial.test.counts());
                Outcome::STAYS
            }
        }
    }

    /// The load has gone during a trial. In an overload that may be because the larger window has
    /// ended it.
    fn without_load(
        &mut self,
        replica: &mut ReplicaWindow,
        tick: &ReplicaTick,
        trial: &Trial,
    ) -> Outcome {
        if trial.kind != Kind::Up {
            return Outcome::STAYS;
        }
        if tick.overloaded && trial.brings_more() {
            self.enough = f64::INFINITY;
            replica.restart_meter(None);
            return Outcome::changed(Cause::Gain);
        }
        replica.window = trial.from;
        Outcome::changed(Cause::LoadGone)
    }

    /// The smaller window cost throughput: below the knee, or there was none to go by and now there
    /// is.
    fn on_loss(&mut self, replica: &mut ReplicaWindow, now: Timestamp, trial: &Trial) -> Outcome {
        let small = f64::from(replica.window);
        trial.go_back(replica, now);
        if self.knee(replica, trial.test.rate()).is_some() {
            self.trials.refute(now, trial);
        } else {
            // The next trial must not rest on the same luck.
            replica.restart_meter(None);
            show_base(replica, small, trial);
            self.trials.trust_from(now);
        }
        Outcome::changed(Cause::Loss)
    }

    fn is_refuted(&mut self, replica: &mut ReplicaWindow, now: Timestamp, rate: f64) -> bool {
        let refutation = self.trials.refutation(now, rate);
        if refutation == Refutation::Expired {
            self.forget(replica);
        }
        refutation != Refutation::None
    }
}

/// A window that costs throughput shows the base. The larger one was enough, so the knee is not far
/// beyond that, however little is done where long requests have taken all slots of the smaller one.
fn show_base(replica: &mut ReplicaWindow, small: f64, trial: &Trial) {
    let rate = trial.test.rate();
    let expected = rate * trial.test.counts().seconds;
    let kept = trial.test.counts().done / expected;
    let kept_min = small / (Tuning::KNEE_PER_ENOUGH_MAX.get() * f64::from(trial.from));
    let knee = small / kept.max(kept_min);
    let clear = kept < Tuning::THROUGHPUT_KEPT_CLEAR.get()
        && expected >= Tuning::THROUGHPUT_KEPT_COMPLETIONS.get();
    let base = knee / rate * replica.speed.now();
    replica.profile.on_too_small(base, clear);
}

/// A smaller window to try where the knee is known and less is enough.
fn smaller_with_knee(replica: &ReplicaWindow, enough: f64, late: bool) -> Option<(Test, f64)> {
    let (test, worth) = if late {
        (Tuning::TRIAL_DOWN_FROM_LATE.get(), 1.0)
    } else {
        let worth = Tuning::WINDOW_WORTH_SHRINKING.get();
        (Tuning::TRIAL_DOWN_TO_KNEE.get(), worth)
    };
    (enough < f64::from(replica.window) * worth).then_some((test, enough))
}

/// The next smaller window to try without a knee: in overload, and where requests take too long.
fn smaller_without_knee(
    replica: &ReplicaWindow,
    tick: &ReplicaTick,
    rate: f64,
    late: bool,
) -> Option<(Test, f64)> {
    let window = f64::from(replica.window);
    let bound = rate * tick.residence_max;
    let excess = window > bound * Tuning::WINDOW_OF_BOUND_EXCESS.get() + 1.0;
    if !excess && (!tick.overloaded || is_small_enough(replica, tick, rate)) {
        return None;
    }
    let test = if late {
        Tuning::TRIAL_DOWN_TO_KNEE.get()
    } else {
        Tuning::TRIAL_DOWN.get()
    };
    let to = replica.smaller();
    (to < window).then_some((test, to))
}

/// Whether answers come soon enough for a configured target, and a trial of a smaller window would
/// take so long that it costs more than it brings.
fn is_small_enough(replica: &ReplicaWindow, tick: &ReplicaTick, rate: f64) -> bool {
    let service_time = replica.service_time(rate);
    let leaving = Tuning::LEAVING_DOWN.get() * service_time.max(tick.residence_long);
    let trial = leaving + Tuning::TRIAL_COMPLETIONS_MAX.get() / rate;
    tick.target_configured
        && service_time < Tuning::SERVICE_TIME_OF_TARGET.get() * tick.target
        && trial > Tuning::TRIAL_DEAR_SECONDS.get()
}

/// The least window for a knee. Where answers are late every request inside counts: no more than
/// what keeps many workers busy, the chance deviation of how many are inside above a window that is
/// just not too small.
fn least_for(knee: f64, late: bool) -> f64 {
    let tight = Tuning::WINDOW_PER_KNEE_TIGHT.get() * knee;
    if late {
        tight.min(Tuning::WINDOW_PER_KNEE_NARROW.get() * knee + knee.sqrt())
    } else {
        tight
    }
}

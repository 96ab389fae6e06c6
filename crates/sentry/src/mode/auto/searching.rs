//! The search while it is not known whether throughput at a full window is capacity.
//!
//! Speed matters more than precision. While requests wait and service times are short against the
//! target, a larger window costs nothing: it grows. Otherwise the throughput at a larger one is
//! compared ([`RateTest`](super::sprt::RateTest)), until it does not follow any more: then
//! throughput is capacity. Where requests take long already, or clients abandon, a larger window
//! would make all of them late, and a smaller one is compared: if that brings as much, throughput
//! is capacity as well.
//!
//! Throughput while the first window fills is not what a trial is compared with: slots that are
//! filled anew bring more than they will (a renewal process gains `(cv² - 1) / 2` completions for
//! each).

use std::time::Duration;

use tidegate_control::Timestamp;

use super::cause::Cause;
use super::phase::{Outcome, PhaseName};
use super::profile::crowd_samples;
use super::replica_window::ReplicaWindow;
use super::sprt::Finding;
use super::trial::{Kind, Plan, Progress, Refutation, Start, Trial, Trials};
use super::tuning::Tuning;
use super::window::ReplicaTick;
use crate::counts::Counts;

/// Whether throughput at a full window is capacity is not known.
#[derive(Debug)]
pub(super) struct Searching {
    pub(super) trials: Trials,
}

impl Searching {
    pub(super) fn on_tick(
        &mut self,
        replica: &mut ReplicaWindow,
        tick: &ReplicaTick,
        seen: &Counts,
    ) -> Outcome {
        match self.trials.advance(replica, tick, seen) {
            Progress::None => self.hold(replica, tick),
            Progress::GoesOn | Progress::LoadGone(_) => Outcome::STAYS,
            Progress::Decided(trial, finding) => self.conclude(replica, tick.now, &trial, finding),
        }
    }

    fn hold(&mut self, replica: &mut ReplicaWindow, tick: &ReplicaTick) -> Outcome {
        if !replica.counts_at(tick.now) {
            return Outcome::STAYS;
        }
        replica.measure(&tick.full);
        if !tick.binding {
            self.shrink_unused(replica, tick)
        } else if tick.admitted_clients_abandon {
            serve_fewer(replica, tick.now)
        } else {
            self.judge(replica, tick)
        }
    }

    /// Decides by throughput as it was measured.
    pub(super) fn judge(&mut self, replica: &mut ReplicaWindow, tick: &ReplicaTick) -> Outcome {
        let Some(rate) = replica.meter.rate().filter(|_| tick.binding) else {
            return Outcome::STAYS;
        };
        match replica.larger_for_a_moment(rate) {
            Some(to) => {
                replica.grow(tick.now, rate, to);
                Outcome::changed(Cause::Fast)
            }
            None => self.find_capacity(replica, tick, rate),
        }
    }

    fn shrink_unused(&mut self, replica: &mut ReplicaWindow, tick: &ReplicaTick) -> Outcome {
        let Some((rate, enough)) = replica.enough_unknown(tick) else {
            return Outcome::STAYS;
        };
        if self.is_refuted(replica, tick.now, rate) {
            return Outcome::STAYS;
        }
        replica.set(enough);
        Outcome::changed(Cause::AboveKnee)
    }

    fn find_capacity(
        &mut self,
        replica: &mut ReplicaWindow,
        tick: &ReplicaTick,
        rate: f64,
    ) -> Outcome {
        if tick.queued < Tuning::QUEUE_PRESSING_OF_TARGET.get() * tick.target * rate {
            return Outcome::STAYS;
        }
        let samples = Tuning::BASE_COMPLETIONS_FIRST.get();
        let base = replica.base_below(samples, f64::INFINITY);
        let service_time = typical_service_time(replica, rate, base);
        match base {
            Some(_) if !replica.rests_on(samples) => Outcome::STAYS,
            // Where all answers are late a larger window has to show what it is good for.
            Some(base)
                if service_time
                    < (base * Tuning::CROWD_BASES_NARROW.get())
                        .min(Tuning::SERVICE_TIME_LATE_OF_TARGET.get() * tick.target) =>
            {
                let to = f64::from(replica.window) * Tuning::WINDOW_GROWTH_FIRST.get();
                replica.grow(tick.now, rate, to);
                Outcome::changed(Cause::NoCrowd)
            }
            Some(base) if service_time > base * Tuning::CROWD_BASES.get() => {
                let needed = crowd_samples(service_time / base).max(samples);
                if replica.rests_on(needed) {
                    return Outcome::ends(PhaseName::Settled, Cause::Crowd);
                }
                Outcome::STAYS
            }
            _ => self.start_trial(replica, tick, rate, service_time),
        }
    }

    fn start_trial(
        &mut self,
        replica: &mut ReplicaWindow,
        tick: &ReplicaTick,
        rate: f64,
        service_time: f64,
    ) -> Outcome {
        let long = Tuning::SERVICE_TIME_LONG_FIRST_OF_TARGET.get() * tick.target;
        let down = (tick.most_clients_abandon || service_time > long)
            && !self.is_refuted(replica, tick.now, rate);
        let (kind, test, to) = if down {
            let to = replica.smaller();
            (Kind::Down, Tuning::TRIAL_DOWN_FIRST.get(), to)
        } else {
            let to = f64::from(replica.window) * Tuning::WINDOW_GROWTH_FIRST.get();
            (Kind::Up, Tuning::TRIAL_UP_FIRST.get(), to)
        };
        let pause: Duration = Tuning::TRIAL_PAUSE_FIRST.get();
        let plan = Plan {
            kind,
            test,
            to,
            pause,
        };
        match self.trials.start(replica, tick, &plan) {
            Start::NotNow => Outcome::STAYS,
            Start::AtBound => Outcome::ends(PhaseName::Settled, Cause::AtBound),
            Start::Begun(cause) => Outcome::changed(cause),
        }
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
                replica.restart_meter(Some(&trial.test));
                Outcome::STAYS
            }
            (Kind::Down, Finding::Changed) => {
                trial.go_back(replica, now);
                // The next trial must not rest on the same luck, and a first look says too little
                // to show the base.
                replica.restart_meter(None);
                self.trials.refute(now, trial);
                Outcome::changed(Cause::Loss)
            }
            (Kind::Down, _) => {
                // As much with half the window: throughput is capacity.
                replica.restart_meter(Some(&trial.test));
                Outcome::ends(PhaseName::Settled, Cause::NoLoss)
            }
            (Kind::Up | Kind::Check, _) => {
                self.trials.on_no_use(now);
                // Until now the window was filling up, and the short ones left first.
                replica.restart_meter(None);
                trial.go_back(replica, now);
                Outcome::ends(PhaseName::Settled, Cause::NoGain).with_window(Cause::NoGain)
            }
        }
    }

    fn is_refuted(&mut self, replica: &mut ReplicaWindow, now: Timestamp, rate: f64) -> bool {
        let refutation = self.trials.refutation(now, rate);
        if refutation == Refutation::Expired {
            replica.forget();
        }
        refutation != Refutation::None
    }
}

/// Requests take longer inside than their clients wait, so that nothing is ever known of
/// throughput: fewer at once.
fn serve_fewer(replica: &mut ReplicaWindow, now: Timestamp) -> Outcome {
    let to = replica.bounds.nearest(replica.smaller());
    replica.window = replica.window.min(to);
    replica.restart_meter(None);
    replica.let_leave(now, Tuning::ABANDONED_SECONDS.get());
    Outcome::changed(Cause::AdmittedAbandon)
}

/// Service time with the window full. Requests that take long by themselves are no crowd.
fn typical_service_time(replica: &ReplicaWindow, rate: f64, base: Option<f64>) -> f64 {
    let most = f64::from(replica.window) * Tuning::BASE_BELOW_WINDOW.get();
    let samples = Tuning::BASE_COMPLETIONS_FIRST.get();
    let typical = replica.profile.typical_bases(replica.window, most, samples);
    let service_time = replica.service_time(rate);
    match (base, typical) {
        (Some(base), Some(typical)) => service_time.min(base * typical),
        _ => service_time,
    }
}

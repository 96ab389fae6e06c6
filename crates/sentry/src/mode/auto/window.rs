//! The window of one replica: the smallest concurrency that keeps its throughput at its maximum.
//!
//! By Little's law a service without queueing inside holds
//!
//! ```text
//! knee = r S
//! ```
//!
//! requests at its maximal throughput `r`, with the residence `S` of a request that meets no crowd
//! ([`Profile`]). What exceeds the knee only queues inside the replica, where nothing can be put in
//! order or taken back; a window below it costs throughput. The knee is a property of the service
//! (its workers), not of its speed: when capacity falls by half, `r` halves and `S` doubles
//! ([`Speed`]).
//!
//! Which of the steps below comes next is the search's [`Phase`].
//!
//! **Discovery.** At first nothing is known, and the window grows with every request that is done
//! until there is a crowd ([`SlowStart`]). From there on, while requests wait and residence is
//! short against the target, a larger window costs nothing: it grows. Otherwise the throughput at a
//! larger one is compared ([`RateTest`]), until it does not follow any more: then throughput is
//! capacity. Where requests take long already, or clients give up, a larger one would make
//! everybody late, and a smaller one is compared: if that brings as much, throughput is capacity as
//! well. While nobody waits, what is done with many inside shows it too
//! ([`Profile::crowded_rate`]), and the window is made smaller before it is ever full.
//!
//! **Afterwards** the window is kept at somewhat more than the knee. It grows when it is found
//! below the knee, and shrinks when it is far above; should throughput fall with it, the knee was
//! wrong, and it goes back. From time to time a larger window is tried, which costs nothing but
//! some requests waiting in the replica.
//!
//! **Without a knee**, because the replica was never seen without a crowd, a smaller window is
//! tried in overload, or where requests take too long, for as long as throughput stays the same: of
//! two windows with the same throughput the smaller one answers sooner. The first that costs
//! throughput shows the base ([`Profile`]). While there is room nothing is made smaller just to see
//! what happens.
//!
//! Where work varies much such a comparison misleads: places that are filled anew bring more than
//! they will (a renewal process gains `(cv² - 1) / 2` completions for each), those of a smaller
//! window are left to the long requests. So throughput while the first window fills is not what a
//! trial is compared with, and a base that was found by trials is doubted again, ever less often,
//! for as long as requests stay long (docs/decisions/0018).
//!
//! **Very fast services.** Nobody notices a wait of a few milliseconds, be it in the queue or in
//! the replica, so no window is smaller than what the replica does in
//! [`Tuning::WINDOW_MIN_SECONDS`]. A smaller one makes proxy and replica take turns, each waking
//! the other for a handful of requests.
//!
//! What breaks it: a residence measured on another mix of requests than today's. Throughput is the
//! judge in the end.

mod together;

use std::time::Duration;

use tidegate_control::Timestamp;

use super::cause::Cause;
use super::cohort::Cohort;
use super::drain::DrainMeter;
use super::phase::{Idle, Phase, PhaseName, Searching, Settled, Transition};
use super::profile::{Profile, crowd_samples};
use super::slow_start::{Course, SlowStart};
use super::speed::Speed;
use super::sprt::{Finding, RateTest};
use super::trial::{Kind, Test, Trial};
use super::tuning::Tuning;
use crate::counts::Counts;
use crate::occupancy::Occupancy;

/// Bounds of a window.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) min: u32,
    pub(crate) max: u32,
}

impl Bounds {
    /// The nearest whole window that is allowed.
    fn nearest(self, window: f64) -> u32 {
        // `as` saturates and maps NaN to zero.
        (window.round() as u32).clamp(self.min, self.max)
    }
}

/// What a replica did in a tick.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReplicaTick {
    pub(crate) now: Timestamp,
    /// What was done with the window full.
    pub(crate) full: Counts,
    /// Somebody had to wait for it.
    pub(crate) binding: bool,
    /// The replica's part of those who wait; without bound in overload.
    pub(crate) queued: f64,
    /// More arrives than can be served.
    pub(crate) overloaded: bool,
    /// The target, in seconds.
    pub(crate) target: f64,
    /// Somebody has set it.
    pub(crate) target_configured: bool,
    /// Most clients give up, and more of them than are served.
    pub(crate) most_clients_abandon: bool,
    /// So do those who are inside.
    pub(crate) admitted_clients_abandon: bool,
    /// What few requests take longer than, at present, in seconds.
    pub(crate) residence_long: f64,
    /// Largest mean time a request should spend in the replica, in seconds.
    pub(crate) residence_max: f64,
    /// Beyond this mean time in the replica what trials have shown is doubted in overload, in
    /// seconds.
    pub(crate) residence_doubtful: f64,
}

/// What is known of the other replicas.
#[derive(Debug, Clone, Copy)]
pub(super) struct Others<'a> {
    /// Those whose first windows grow.
    pub(super) growing: Option<&'a Cohort>,
    /// Those whose first windows grew until some of them stopped.
    pub(super) stopped: Option<&'a Cohort>,
}

/// A smaller window cost throughput, or seemed to: capacity may have fallen at the same time.
#[derive(Debug, Clone, Copy)]
struct Refuted {
    until: Timestamp,
    /// Throughput before.
    rate: f64,
}

/// The window of one replica: the smallest concurrency that keeps its throughput at its maximum.
#[derive(Debug)]
pub(crate) struct WindowSearch {
    bounds: Bounds,
    window: u32,
    phase: Phase,
    /// Changes of the phase that have not been taken.
    transitions: Vec<Transition>,
    meter: DrainMeter,
    /// Residence at speed 1.
    profile: Profile,
    speed: Speed,
    /// Before this the requests of an older window are still leaving.
    counts_from: Timestamp,
    residence_long: f64,
    /// How long it takes until other engines do what this one found, in seconds.
    lag: f64,
    /// When a larger window was last found to be of no use.
    last_up: Option<Timestamp>,
    refuted: Option<Refuted>,
    /// For how long the base of the last trials is believed.
    trust: Duration,
    trusted_until: Timestamp,
    /// Since when somebody has had to wait.
    binding_since: Option<Timestamp>,
}

impl WindowSearch {
    pub(crate) fn new(window: u32, bounds: Bounds, now: Timestamp) -> Self {
        let window = window.clamp(bounds.min, bounds.max);
        let first = f64::from(window);
        Self {
            bounds,
            window,
            phase: Phase::Idle(Idle { first }),
            transitions: Vec::new(),
            meter: DrainMeter::default(),
            profile: Profile::new(),
            speed: Speed::new(),
            counts_from: now,
            residence_long: 0.0,
            lag: 0.0,
            last_up: None,
            refuted: None,
            trust: Tuning::TRUST.get(),
            trusted_until: now,
            binding_since: None,
        }
    }

    pub(crate) fn window(&self) -> u32 {
        self.window
    }

    /// The window that stays if what is being tried is of no use.
    pub(crate) fn settled(&self) -> u32 {
        match self.phase.trial() {
            Some(trial) if trial.kind != Kind::Check => trial.from,
            _ => self.window,
        }
    }

    /// Residence of a request that meets no crowd, if that was ever seen.
    pub(crate) fn base(&self) -> Option<f64> {
        let any = f64::INFINITY;
        let base = self
            .profile
            .base(any, Tuning::BASE_COMPLETIONS.get(), any)?;
        Some(base / self.speed.now())
    }

    /// Completions per second with the window full.
    pub(crate) fn rate(&self) -> Option<f64> {
        self.meter.rate()
    }

    /// Takes over changed bounds.
    pub(crate) fn set_bounds(&mut self, bounds: Bounds) {
        self.bounds = bounds;
        self.window = self.window.clamp(bounds.min, bounds.max);
    }

    /// Whether throughput with the window full is capacity.
    pub(crate) fn confirmed(&self) -> bool {
        self.phase.name() == PhaseName::Settled
    }

    pub(super) fn phase(&self) -> PhaseName {
        self.phase.name()
    }

    /// Changes of the phase since the last call.
    pub(super) fn take_transitions(&mut self) -> Vec<Transition> {
        std::mem::take(&mut self.transitions)
    }

    fn enter(&mut self, next: Phase, cause: Cause) {
        self.transitions.push(self.phase.enter(next, cause));
    }

    /// Throughput with the window full is capacity; it may have been known before.
    fn settle(&mut self, cause: Cause) {
        if !self.confirmed() {
            self.enter(Phase::Settled(Settled::default()), cause);
        }
    }

    /// Whether the window grows with what is done, so that throughput is no capacity.
    pub(crate) fn is_growing(&self) -> bool {
        self.phase.name() == PhaseName::SlowStart
    }

    /// Whether a window is being tried that may be too small.
    pub(crate) fn tries_less(&self) -> bool {
        let trial = self.phase.trial();
        trial.is_some_and(|trial| trial.kind != Kind::Up)
    }

    /// What was seen so far and the first window, while that grows.
    pub(super) fn growing(&self) -> Option<(f64, &Profile)> {
        let Phase::SlowStart(slow_start) = &self.phase else {
            return None;
        };
        Some((slow_start.first(), &self.profile))
    }

    /// Takes what was seen in a tick of so many seconds, before [`on_tick`](Self::on_tick).
    pub(crate) fn see(
        &mut self,
        now: Timestamp,
        seconds: f64,
        clumped: bool,
        occupancy: &Occupancy,
    ) -> Counts {
        self.profile.set_clumped(clumped);
        let seen = match self.phase.trial() {
            // What a smaller window shows is for the trial to say.
            Some(trial) if trial.kind == Kind::Down => {
                self.profile.pass_over(occupancy, now, seconds)
            }
            _ => self
                .profile
                .absorb(occupancy, now, seconds, self.speed.now()),
        };
        self.speed.on_done(seen);
        seen
    }

    /// Takes a tick in which that was seen; says why the window changed if it did.
    pub(super) fn on_tick(
        &mut self,
        tick: &ReplicaTick,
        seen: Counts,
        others: &Others<'_>,
    ) -> Option<Cause> {
        let before = self.window;
        self.residence_long = tick.residence_long;
        let since = self.binding_since.unwrap_or(tick.now);
        self.binding_since = tick.binding.then_some(since);
        let cause = match self.phase.take_trial() {
            Some(trial) => self.continue_trial(tick, trial, seen),
            None if self.ramps(tick) => self.go_on(tick, seen, others),
            None if tick.now >= self.counts_from => self.hold(tick),
            None => None,
        };
        cause.filter(|_| self.window != before)
    }

    /// Whether the first window grows with what is done. It does not where requests were seen
    /// without a crowd.
    fn ramps(&mut self, tick: &ReplicaTick) -> bool {
        let most = f64::from(self.window) * Tuning::BASE_BELOW_WINDOW.get();
        let base = || {
            self.profile
                .base(most, Tuning::BASE_COMPLETIONS_FIRST.get(), f64::INFINITY)
        };
        match &mut self.phase {
            Phase::Idle(_) if base().is_some() => self.begin_search(Cause::BaseSeen),
            Phase::Idle(idle) if tick.binding => {
                let slow_start = SlowStart::new(idle.first, tick.now);
                self.enter(Phase::SlowStart(slow_start), Cause::RequestsWait);
            }
            Phase::SlowStart(slow_start) if slow_start.is_over(tick.now) => {
                self.begin_search(Cause::LoadGone);
            }
            Phase::SlowStart(slow_start) if tick.binding => slow_start.on_waiting(tick.now),
            _ => {}
        }
        self.is_growing()
    }

    /// Lets the first window grow, or ends that.
    fn go_on(&mut self, tick: &ReplicaTick, seen: Counts, others: &Others<'_>) -> Option<Cause> {
        let window = f64::from(self.window);
        let rate = seen.rate();
        let pressed = tick.binding
            && tick.queued >= Tuning::QUEUE_PRESSING_OF_TARGET.get() * tick.target * rate;
        let (Phase::SlowStart(slow_start), true) = (&mut self.phase, pressed) else {
            let brief = if tick.binding {
                rate * Tuning::WINDOW_MIN_SECONDS.get()
            } else {
                0.0
            };
            self.window = self.bounds.nearest(window.max(brief));
            return Some(Cause::Fast);
        };
        let long = match tick.target_configured {
            true => Tuning::SERVICE_TIME_LONG_OF_TARGET.get() * tick.target,
            false => f64::INFINITY,
        };
        let all = self.profile.all();
        let (first, seen_here) = (slow_start.first(), &self.profile);
        let together = others
            .growing
            .and_then(|cohort| cohort.seen_with(first, seen_here));
        let before = others
            .stopped
            .and_then(|cohort| cohort.seen_without(first, seen_here));
        let crowd = |seen: &Profile| seen.crowd(Tuning::SLOW_START_COMPLETIONS.get());
        let crowd = crowd(together.unwrap_or(seen_here)).or_else(|| crowd(before?));
        let course = slow_start.on_tick(
            window,
            seen.done,
            crowd,
            &all,
            long,
            tick.most_clients_abandon,
        );
        let (to, leaving, cause) = match course {
            Course::Grows(to) => {
                self.window = self.bounds.nearest(to);
                return Some(Cause::SlowStart);
            }
            Course::First { leaving } => {
                // What was seen of a crowd that filled up is no base, and what is smaller was not
                // seen.
                self.profile.forget();
                (slow_start.first(), leaving, Cause::FirstWindowEnough)
            }
            Course::Wide { window, leaving } => (window, leaving, Cause::Wide),
        };
        self.window = self.bounds.nearest(to);
        self.begin_search(cause);
        self.let_leave(tick.now, leaving);
        Some(cause)
    }

    /// From here on throughput with the window full is measured.
    fn begin_search(&mut self, cause: Cause) {
        self.enter(Phase::Searching(Searching::default()), cause);
        self.restart_meter(None);
    }

    fn hold(&mut self, tick: &ReplicaTick) -> Option<Cause> {
        if tick.full.seconds > 0.0 {
            self.meter.on_tick(&tick.full);
        }
        if !self.confirmed() && !tick.binding {
            return self.adjust_unknown(tick);
        }
        if !self.confirmed() && tick.admitted_clients_abandon {
            return self.serve_somebody(tick.now);
        }
        let rate = self.meter.rate()?;
        if self.confirmed()
            && self.rests_on(Tuning::THROUGHPUT_COMPLETIONS.get())
            && self.was_no_capacity(rate)
        {
            self.enter(Phase::Searching(Searching::default()), Cause::Outgrown);
            self.forget();
        }
        if self.confirmed() && self.rests_on(Tuning::SPEED_COMPLETIONS.get()) {
            self.speed.on_rate(rate);
        }
        let brief = rate * Tuning::WINDOW_MIN_SECONDS.get();
        match (self.confirmed(), tick.binding) {
            (_, true) if self.bounds.nearest(brief) > self.window => {
                self.grow(tick.now, rate, brief, Cause::Fast)
            }
            (false, true) => self.find_capacity(tick, rate),
            (true, true) if self.rests_on(Tuning::THROUGHPUT_COMPLETIONS.get()) => {
                self.adjust(tick, rate)
            }
            (true, false) => self.adjust_unused(tick, rate),
            _ => None,
        }
    }

    /// Whether far more is done with a larger window than was taken for capacity with the smaller
    /// one.
    fn was_no_capacity(&mut self, rate: f64) -> bool {
        let settled = self.phase.settled_mut();
        let before = settled.and_then(|settled| settled.outgrown.take());
        before.is_some_and(|before| rate > Tuning::CAPACITY_OUTGROWN.get() * before)
    }

    /// What is known is about another service.
    fn forget(&mut self) {
        self.set_enough(f64::INFINITY);
        self.profile.forget();
        self.speed.forget_done();
    }

    /// The knee is not beyond this window, where throughput is capacity.
    fn set_enough(&mut self, window: f64) {
        if let Some(settled) = self.phase.settled_mut() {
            settled.enough = window;
        }
    }

    fn rests_on(&self, completions: f64) -> bool {
        self.meter
            .rests_on(completions, Tuning::THROUGHPUT_SECONDS.get())
    }

    /// Whether enough is known of throughput to compare another with it.
    fn has_reference(&self, test: &Test) -> bool {
        self.rests_on(test.reference) && self.meter.seconds() >= test.reference_seconds
    }

    /// Requests take longer inside than their clients wait, so that nothing is ever known of
    /// throughput: fewer at once.
    fn serve_somebody(&mut self, now: Timestamp) -> Option<Cause> {
        let to = (f64::from(self.window) * Tuning::WINDOW_SHRINK.get())
            .max(Tuning::WINDOW_SHRINK_MIN.get());
        self.window = self.window.min(self.bounds.nearest(to));
        self.restart_meter(None);
        self.let_leave(now, Tuning::ABANDONED_SECONDS.get());
        Some(Cause::AdmittedAbandon)
    }

    /// Whether throughput is capacity is not known yet: speed matters more than precision.
    fn find_capacity(&mut self, tick: &ReplicaTick, rate: f64) -> Option<Cause> {
        let window = f64::from(self.window);
        let residence = window / rate;
        if tick.queued < Tuning::QUEUE_PRESSING_OF_TARGET.get() * tick.target * rate {
            return None;
        }
        let (most, samples) = (
            window * Tuning::BASE_BELOW_WINDOW.get(),
            Tuning::BASE_COMPLETIONS_FIRST.get(),
        );
        let typical = self.profile.typical_bases(self.window, most, samples);
        let base = self.profile.base(most, samples, f64::INFINITY);
        // Requests that take long by themselves are no crowd.
        let residence = match (base, typical) {
            (Some(base), Some(typical)) => residence.min(base * typical),
            _ => residence,
        };
        match base {
            Some(_) if !self.rests_on(Tuning::BASE_COMPLETIONS_FIRST.get()) => None,
            // Where everybody is late a larger window has to show what it is good for.
            Some(base)
                if residence
                    < (base * Tuning::CROWD_BASES_NARROW.get())
                        .min(Tuning::SERVICE_TIME_LATE_OF_TARGET.get() * tick.target) =>
            {
                self.grow(
                    tick.now,
                    rate,
                    window * Tuning::WINDOW_GROWTH_FIRST.get(),
                    Cause::NoCrowd,
                )
            }
            Some(base) if residence > base * Tuning::CROWD_BASES.get() => {
                let samples = crowd_samples(residence / base);
                if self.rests_on(samples.max(Tuning::BASE_COMPLETIONS_FIRST.get())) {
                    self.settle(Cause::Crowd);
                }
                None
            }
            _ if (tick.most_clients_abandon
                || residence > Tuning::SERVICE_TIME_LONG_FIRST_OF_TARGET.get() * tick.target)
                && !self.is_refuted(tick.now, rate) =>
            {
                let to =
                    (window * Tuning::WINDOW_SHRINK.get()).max(Tuning::WINDOW_SHRINK_MIN.get());
                self.start(
                    tick,
                    Kind::Down,
                    Tuning::TRIAL_DOWN_FIRST.get(),
                    to,
                    Tuning::TRIAL_PAUSE_FIRST.get(),
                )
            }
            _ => {
                let to = window * Tuning::WINDOW_GROWTH_FIRST.get();
                self.start(
                    tick,
                    Kind::Up,
                    Tuning::TRIAL_UP_FIRST.get(),
                    to,
                    Tuning::TRIAL_PAUSE_FIRST.get(),
                )
            }
        }
    }

    /// Requests that the replica holds at its maximal throughput without queueing, if known.
    fn knee(&self, rate: f64) -> Option<f64> {
        let most = f64::from(self.window) * Tuning::BASE_BELOW_WINDOW.get();
        let capacity = self.speed.unit_rate(rate);
        let base = self
            .profile
            .base(most, Tuning::BASE_COMPLETIONS.get(), capacity)?;
        Some((base * capacity).min(self.phase.enough()))
    }

    /// Throughput is capacity; is the window what it takes?
    fn adjust(&mut self, tick: &ReplicaTick, rate: f64) -> Option<Cause> {
        if self.doubts(tick, rate) {
            self.trust = (self.trust * 2).min(Tuning::TRUST_MAX.get());
            self.trusted_until = tick.now + self.trust;
            // The next trial must not rest on old luck.
            self.restart_meter(None);
            return None;
        }
        let window = f64::from(self.window);
        let residence = window / rate;
        let late = residence > Tuning::SERVICE_TIME_LATE_OF_TARGET.get() * tick.target;
        let bound = rate * tick.residence_max;
        let smaller = match self.knee(rate) {
            Some(knee) => {
                let least = if late {
                    tightest(knee)
                } else {
                    Tuning::WINDOW_PER_KNEE_TIGHT.get() * knee
                };
                let enough = roomy(knee, bound, least);
                if window < Tuning::WINDOW_PER_KNEE_NARROW.get() * knee {
                    if let Some(settled) = self.phase.settled_mut() {
                        settled.outgrown.get_or_insert(rate);
                    }
                    return self.grow(tick.now, rate, enough, Cause::BelowKnee);
                }
                let (test, worth) = match late {
                    true => (Tuning::TRIAL_DOWN_FROM_LATE.get(), 1.0),
                    false => (
                        Tuning::TRIAL_DOWN_TO_KNEE.get(),
                        Tuning::WINDOW_WORTH_SHRINKING.get(),
                    ),
                };
                (enough < window * worth).then_some((test, enough))
            }
            None if (tick.overloaded && !self.is_small_enough(tick, rate))
                || window > bound * Tuning::WINDOW_OF_BOUND_EXCESS.get() + 1.0 =>
            {
                self.smaller(late)
            }
            None => None,
        };
        let smaller = smaller.filter(|(_, to)| *to >= rate * Tuning::WINDOW_MIN_SECONDS.get());
        if let Some((test, to)) = smaller
            && !self.is_refuted(tick.now, rate)
        {
            return self.start(tick, Kind::Down, test, to, Duration::ZERO);
        }
        let just_now = |since| tick.now < since + Tuning::TRIAL_UP_ONSET.get();
        if residence > Tuning::SERVICE_TIME_LONG_OF_TARGET.get() * tick.target
            || self.binding_since.is_none_or(just_now)
        {
            return None;
        }
        self.start(
            tick,
            Kind::Up,
            Tuning::TRIAL_UP.get(),
            window * Tuning::WINDOW_GROWTH.get(),
            Tuning::TRIAL_UP_PAUSE.get(),
        )
    }

    /// In overload what is known is doubted from time to time: all of it where everybody is late,
    /// and the base that trials have shown where requests take long. It goes by how long they took
    /// when it was found: a service that got slower is no reason.
    fn doubts(&mut self, tick: &ReplicaTick, rate: f64) -> bool {
        if !tick.overloaded || tick.now < self.trusted_until {
            return false;
        }
        let residence = f64::from(self.window) / self.speed.unit_rate(rate);
        if residence > Tuning::SERVICE_TIME_LATE_OF_TARGET.get() * tick.target
            && self.knee(rate).is_some()
        {
            self.forget();
            return true;
        }
        residence > tick.residence_doubtful && self.profile.doubt()
    }

    /// Whether answers come soon enough for a configured target, and a trial of a smaller window
    /// would take so long that it costs more than it brings.
    fn is_small_enough(&self, tick: &ReplicaTick, rate: f64) -> bool {
        let residence = f64::from(self.window) / rate;
        let leaving = Tuning::LEAVING_DOWN.get() * residence.max(tick.residence_long);
        let trial = leaving + Tuning::TRIAL_COMPLETIONS_MAX.get() / rate;
        tick.target_configured
            && residence < Tuning::SERVICE_TIME_OF_TARGET.get() * tick.target
            && trial > Tuning::TRIAL_DEAR_SECONDS.get()
    }

    /// The next smaller window to try without a knee.
    fn smaller(&self, late: bool) -> Option<(Test, f64)> {
        let window = f64::from(self.window);
        let to = (window * Tuning::WINDOW_SHRINK.get()).max(Tuning::WINDOW_SHRINK_MIN.get());
        let test = if late {
            Tuning::TRIAL_DOWN_TO_KNEE.get()
        } else {
            Tuning::TRIAL_DOWN.get()
        };
        (to < window).then_some((test, to))
    }

    /// The window has hardly ever been full; what was done with many inside shows what it takes.
    fn adjust_unknown(&mut self, tick: &ReplicaTick) -> Option<Cause> {
        let rate = self.profile.crowded_rate(Tuning::BASE_COMPLETIONS.get());
        rate.and_then(|rate| self.adjust_unused(tick, rate))
    }

    /// Nobody waits, so no trial can tell; but what is far beyond the knee would only fill up when
    /// capacity falls.
    fn adjust_unused(&mut self, tick: &ReplicaTick, rate: f64) -> Option<Cause> {
        let bound = rate * tick.residence_max;
        let roomy = |knee: f64| {
            roomy(knee, bound, Tuning::WINDOW_PER_KNEE_TIGHT.get() * knee)
                .max(rate * Tuning::WINDOW_MIN_SECONDS.get())
        };
        let enough = self.knee(rate).map(roomy);
        let worth =
            |enough: &f64| *enough < f64::from(self.window) * Tuning::WINDOW_WORTH_SHRINKING.get();
        if let Some(enough) = enough.filter(worth)
            && !self.is_refuted(tick.now, rate)
        {
            self.window = self.bounds.nearest(enough);
        }
        Some(Cause::AboveKnee)
    }

    /// Nobody holds anybody up: more are served with more.
    fn grow(&mut self, now: Timestamp, rate: f64, to: f64, cause: Cause) -> Option<Cause> {
        self.let_leave(
            now,
            Tuning::LEAVING_UP.get() * f64::from(self.window) / rate,
        );
        self.window = self.bounds.nearest(to);
        self.restart_meter(None);
        Some(cause)
    }

    /// Throughput with another window is to be measured.
    fn restart_meter(&mut self, seen: Option<&RateTest>) {
        self.speed.on_new_window();
        self.meter = seen.map(meter_of).unwrap_or_default();
    }

    fn let_leave(&mut self, now: Timestamp, seconds: f64) {
        let seconds = seconds.min(Tuning::LEAVING_SECONDS_MAX.get()) + self.lag;
        self.counts_from = now + Duration::from_secs_f64(seconds);
    }

    /// Starts a trial, not sooner than some time after the last one up.
    fn start(
        &mut self,
        tick: &ReplicaTick,
        kind: Kind,
        test: Test,
        to: f64,
        pause: Duration,
    ) -> Option<Cause> {
        let to = self.bounds.nearest(to);
        let known = self.has_reference(&test);
        let rate = self.meter.rate().filter(|_| known)?;
        if self.last_up.is_some_and(|last| tick.now < last + pause) {
            return None;
        }
        if to == self.window {
            // Already as large, or small, as it may be.
            self.settle(Cause::AtBound);
            return None;
        }
        let residence = f64::from(self.window) / rate;
        self.let_leave(
            tick.now,
            match kind {
                Kind::Up => Tuning::LEAVING_UP.get() * residence,
                _ => Tuning::LEAVING_DOWN.get() * residence.max(self.residence_long),
            },
        );
        let from = std::mem::replace(&mut self.window, to);
        self.phase.set_trial(Trial {
            kind,
            from,
            until: self.counts_from + trial_duration(rate),
            last_binding: tick.now,
            test: RateTest::new(rate, test.alternative, self.meter.dispersion()),
            all: Counts::default(),
            seconds: test.seconds,
        });
        Some(match kind {
            Kind::Up => Cause::TryLarger,
            _ => Cause::TrySmaller,
        })
    }

    fn continue_trial(
        &mut self,
        tick: &ReplicaTick,
        mut trial: Trial,
        seen: Counts,
    ) -> Option<Cause> {
        let counts = tick.now >= self.counts_from;
        if counts {
            trial.see(&seen);
        }
        if !tick.binding {
            return self.without_load(tick, trial);
        }
        trial.last_binding = tick.now;
        if !counts {
            self.phase.set_trial(trial);
            return None;
        }
        let finding = trial.on_tick(&tick.full);
        match (trial.kind, finding) {
            (_, Finding::Open) if tick.now < trial.until => {
                self.phase.set_trial(trial);
                None
            }
            (Kind::Up, Finding::Changed) if self.confirmed() => self.check(tick.now, &trial),
            (Kind::Up, Finding::Changed) => {
                self.restart_meter(Some(&trial.test));
                None
            }
            (Kind::Check, Finding::Changed) => {
                self.window = trial.from;
                self.forget();
                self.restart_meter(None);
                Some(Cause::Gain)
            }
            (Kind::Check, _) => {
                self.meter = meter_of(&trial.test);
                self.last_up = Some(tick.now);
                None
            }
            (Kind::Up, _) => self.of_no_use(tick.now, &trial),
            (Kind::Down, Finding::Changed) => self.go_back(tick.now, &trial),
            (Kind::Down, _) if !self.confirmed() => {
                // As much with half the window: throughput is capacity.
                self.settle(Cause::NoLoss);
                self.restart_meter(Some(&trial.test));
                None
            }
            (Kind::Down, _) => {
                self.profile.on_large_enough();
                self.meter.on_tick(trial.test.counts());
                None
            }
        }
    }

    /// Throughput did not follow a larger window, so that it is capacity.
    fn of_no_use(&mut self, now: Timestamp, trial: &Trial) -> Option<Cause> {
        self.window = trial.from;
        self.last_up = Some(now);
        if self.confirmed() {
            self.set_enough(f64::from(trial.from));
        } else {
            self.settle(Cause::NoGain);
            // Until now the window was filling up, and the short ones left first.
            self.restart_meter(None);
        }
        self.let_leave(
            now,
            Tuning::LEAVING_UP.get() * f64::from(trial.from) / trial.test.rate(),
        );
        Some(Cause::NoGain)
    }

    /// There was more throughput with a larger window than before. If that is because of the
    /// window, what is known of the service is wrong, and finding it out anew costs throughput; so
    /// first it is made sure that capacity has not returned meanwhile.
    fn check(&mut self, now: Timestamp, trial: &Trial) -> Option<Cause> {
        let rate = trial.test.counts().rate();
        let larger = std::mem::replace(&mut self.window, trial.from);
        let residence = f64::from(larger) / rate;
        self.let_leave(now, Tuning::LEAVING_DOWN.get() * residence);
        self.phase.set_trial(Trial {
            kind: Kind::Check,
            from: larger,
            until: self.counts_from + trial_duration(rate),
            last_binding: now,
            test: RateTest::new(
                rate,
                Tuning::TRIAL_CHECK.get().alternative,
                self.meter.dispersion(),
            ),
            all: Counts::default(),
            seconds: 0.0,
        });
        Some(Cause::CheckGain)
    }

    /// Nobody waits: no more evidence, and after a while no trial. In an overload that may be
    /// because the larger window has ended it.
    fn without_load(&mut self, tick: &ReplicaTick, trial: Trial) -> Option<Cause> {
        if tick.now < trial.last_binding + Tuning::LOAD_ABSENCE.get() {
            self.phase.set_trial(trial);
            return None;
        }
        self.last_up = Some(tick.now);
        if trial.kind == Kind::Up && self.confirmed() {
            if tick.overloaded && trial.brings_more() {
                self.set_enough(f64::INFINITY);
                self.restart_meter(None);
                return Some(Cause::Gain);
            }
            self.window = trial.from;
        }
        Some(Cause::LoadGone)
    }

    /// The smaller window cost throughput: below the knee, or there was none to go by and now there
    /// is.
    fn go_back(&mut self, now: Timestamp, trial: &Trial) -> Option<Cause> {
        let small = f64::from(std::mem::replace(&mut self.window, trial.from));
        self.let_leave(
            now,
            Tuning::LEAVING_UP.get() * f64::from(trial.from) / trial.test.rate(),
        );
        let known = self.knee(trial.test.rate()).is_some();
        if !(known && self.confirmed()) {
            // The next trial must not rest on the same luck.
            self.restart_meter(None);
        }
        // A first look says too little to show the base.
        if self.confirmed() && !known {
            self.on_too_small(now, small, trial);
        } else {
            self.refuted = Some(Refuted {
                until: now + Tuning::REFUTED.get(),
                rate: trial.test.rate(),
            });
        }
        Some(Cause::Loss)
    }

    /// A window that costs throughput shows the base. The larger one was enough, so the knee is not
    /// far beyond that, however little is done where long requests have taken all places of the
    /// smaller one.
    fn on_too_small(&mut self, now: Timestamp, small: f64, trial: &Trial) {
        let rate = trial.test.rate();
        let expected = rate * trial.test.counts().seconds;
        let kept = trial.test.counts().done / expected;
        let knee =
            small / kept.max(small / (Tuning::KNEE_PER_ENOUGH_MAX.get() * f64::from(trial.from)));
        let clear = kept < Tuning::THROUGHPUT_KEPT_CLEAR.get()
            && expected >= Tuning::THROUGHPUT_KEPT_COMPLETIONS.get();
        let residence = knee / rate * self.speed.now();
        self.profile.on_too_small(residence, clear);
        self.trusted_until = now + self.trust;
    }

    /// Whether a smaller window is known to cost throughput. If it did, the base was not what it
    /// seemed; if throughput is not what it was with this window either, capacity had fallen.
    fn is_refuted(&mut self, now: Timestamp, rate: f64) -> bool {
        let Some(refuted) = self.refuted else {
            return false;
        };
        let as_before = rate > Tuning::REFUTED_THROUGHPUT.get() * refuted.rate;
        if as_before && now < refuted.until {
            return true;
        }
        if as_before {
            self.forget();
        }
        self.refuted = None;
        as_before
    }
}

/// The window for a knee: room to spare as far as the bound leaves any, beside what it takes at
/// least.
fn roomy(knee: f64, bound: f64, least: f64) -> f64 {
    bound.clamp(
        least + 1.0,
        Tuning::WINDOW_PER_KNEE_ROOMY.get() * knee + 1.0,
    )
}

/// Where answers are late every request inside counts: no more than what keeps many workers busy,
/// the chance deviation of how many are inside above a window that is just not too small.
fn tightest(knee: f64) -> f64 {
    (Tuning::WINDOW_PER_KNEE_TIGHT.get() * knee)
        .min(Tuning::WINDOW_PER_KNEE_NARROW.get() * knee + knee.sqrt())
}

/// A trial that has not decided in this time decides nothing.
fn trial_duration(rate: f64) -> Duration {
    let completions = Duration::try_from_secs_f64(Tuning::TRIAL_COMPLETIONS_MAX.get() / rate);
    Tuning::TRIAL_DURATION_MAX
        .get()
        .max(completions.unwrap_or(Duration::ZERO))
}

/// Throughput as a trial has seen it.
fn meter_of(test: &RateTest) -> DrainMeter {
    let mut meter = DrainMeter::default();
    meter.on_tick(test.counts());
    meter
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { min: 1, max: 4096 };

    /// The windows, from tick to tick, of a replica that does `rate` requests a second, whatever
    /// its window, in ten seconds in which `queued` always wait.
    fn windows(
        rate: f64,
        queued: f64,
        most_clients_abandon: bool,
        admitted_clients_abandon: bool,
    ) -> Vec<u32> {
        let mut now = Timestamp::ZERO;
        let mut search = WindowSearch::new(16, BOUNDS, now);
        let occupancy = Occupancy::new();
        let others = Others {
            growing: None,
            stopped: None,
        };
        let mut tick = || {
            now += Duration::from_millis(100);
            let inside = search.window();
            occupancy.on_change(now, inside, inside);
            (0..(rate * 0.1) as u32).for_each(|_| occupancy.on_done(inside, inside));
            let tick = ReplicaTick {
                now,
                full: Counts::of(rate * 0.1, 0.1),
                binding: true,
                queued,
                overloaded: false,
                target: 0.5,
                target_configured: true,
                most_clients_abandon,
                admitted_clients_abandon,
                residence_long: 0.001,
                residence_max: 0.1,
                residence_doubtful: 0.1,
            };
            let seen = search.see(tick.now, 0.1, false, &occupancy);
            search.on_tick(&tick, seen, &others);
            search.window()
        };
        (0..100).map(|_| tick()).collect()
    }

    fn found_at(rate: f64) -> u32 {
        windows(rate, 4.0, false, false)[99]
    }

    #[test]
    fn where_clients_give_up_a_smaller_window_is_tried_first() {
        let first_after_sixteen = |windows: &[u32]| {
            let back = windows.iter().position(|&window| window == 16);
            let mut later = windows[back.unwrap()..].iter().copied();
            later.find(|&window| window != 16)
        };
        // The crowd of a slow start ends it, and then twice the window is tried.
        assert_eq!(
            first_after_sixteen(&windows(100.0, 99.0, false, false)),
            Some(32)
        );
        let given_up = windows(100.0, 99.0, true, false);
        assert_eq!(first_after_sixteen(&given_up), Some(6));
        assert!(given_up.iter().all(|&window| window >= 6), "{given_up:?}");
    }

    #[test]
    fn where_those_inside_give_up_fewer_are_let_in() {
        let windows = windows(100.0, 99.0, true, true);
        assert_eq!(windows.last(), Some(&2), "{windows:?}");
    }

    #[test]
    fn no_window_is_smaller_than_what_is_done_in_a_moment() {
        assert_eq!(found_at(20_000.0), 100);
        assert_eq!(found_at(200_000.0), 1000);
        assert_eq!(found_at(1000.0), 16);
    }
}

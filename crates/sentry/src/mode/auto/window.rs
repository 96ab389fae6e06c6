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
//! **Others.** Replicas of one weight that have found out what they can do show what may be enough
//! ([`Peers`]): where most of them do as much with a smaller window, and nothing is known here,
//! that is tried.
//!
//! **Very fast services.** Nobody notices a wait of a few milliseconds, be it in the queue or in
//! the replica, so no window is smaller than what the replica does in [`BRIEF_S`]. A smaller one
//! makes proxy and replica take turns, each waking the other for a handful of requests.
//!
//! What breaks it: a residence measured on another mix of requests than today's. Throughput is the
//! judge in the end.

use std::time::Duration;

use tidegate_control::Timestamp;

use super::cohort::Cohort;
use super::drain::DrainMeter;
use super::peers::{Found, Peers};
use super::profile::{CROWDED_FIRST, NARROW_FIRST, Profile, Seen, crowd_samples};
use super::slow_start::{self, Course, SlowStart};
use super::speed::Speed;
use super::sprt::{Finding, RateTest};
use super::trial::{
    CHECK, DOWN, DOWN_FIRST, DOWN_FROM_LATE, DOWN_TO_KNEE, Kind, Test, Trial, UP, UP_FIRST,
};
use crate::occupancy::{Full, Occupancy};

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
    /// Its length.
    pub(crate) seconds: f64,
    /// What was done with the window full.
    pub(crate) full: Full,
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
    /// The replica's weight.
    pub(crate) weight: u32,
}

/// What is known of the other replicas.
#[derive(Debug, Clone, Copy)]
pub(super) struct Others<'a> {
    /// Those whose first windows grow.
    pub(super) growing: Option<&'a Cohort>,
    /// Those whose first windows grew until some of them stopped.
    pub(super) stopped: Option<&'a Cohort>,
    pub(super) peers: &'a Peers,
}

/// Why a window changed, for the event.
pub(crate) type Cause = &'static str;

/// Where the window is set, in knees, and one more: room for the time between two requests, and
/// for an error of the estimate.
pub(super) const ROOMY: f64 = 1.5;
/// The same where requests would take too long otherwise.
const TIGHT: f64 = 1.25;
/// A window below this many knees is too small.
const NARROW: f64 = 1.05;
/// Samples it takes at least to compare residence with the base while capacity is unknown.
const FIRST_SAMPLES: f64 = 15.0;
/// While capacity is unknown, a queue that takes less than this share of the target is no reason to
/// look for more.
const PRESSING: f64 = 0.1;
/// Samples of a base that is to be relied on.
const BASE_SAMPLES: f64 = 100.0;
/// A smaller window has to be below this share of the present one to be worth it, unless answers
/// are late.
const WORTH: f64 = 0.75;
/// Without a knee it is this share of it, and not below so many: two keep one worker busy.
const AT_ONCE: f64 = 0.4;
const LEAST: f64 = 2.0;
/// Without a knee and without an overload, residence beyond its bound by this factor calls for it.
const EXCESS: f64 = 1.25;
/// The base is looked for at concurrencies below this share of the window.
const ELSEWHERE: f64 = 0.67;
/// Throughput that falls below this share in a smaller window, with so many completions to expect,
/// fell because of it: long requests that stay behind cost less than that.
const CLEAR: f64 = 0.6;
const CLEAR_SAMPLES: f64 = 60.0;
/// How far the knee can be beyond a window that was enough: a trial lets a loss of a third pass.
const BEYOND: f64 = 1.5;
/// A base that was found by trials is doubted after this time, and after twice the time whenever it
/// was found again, while requests take too long.
const TRUST: Duration = Duration::from_secs(5);
const TRUST_MOST: Duration = Duration::from_secs(600);
/// Throughput that is this many times what was taken for capacity, with a larger window, says that
/// it was none.
const OUTGROWN: f64 = 1.5;
/// Growth while capacity is unknown, and later.
const GROWTH_FIRST: f64 = 2.0;
const GROWTH: f64 = 1.5;

/// A wait that nobody notices, in seconds. Chosen: a twentieth of the shortest target that is
/// derived (`auto.target_min`).
const BRIEF_S: f64 = 0.005;

/// Completions that make a throughput, and what stands in for them in a slow service.
const REFERENCE: f64 = 30.0;
const REFERENCE_SECONDS: f64 = 8.0;
/// Completions of a throughput that the speed is measured by.
const SPEED_REFERENCE: f64 = 100.0;
/// Share of the target beyond which residence makes most answers late, and from which on a larger
/// window is not tried.
const LATE: f64 = 0.8;
const LONG: f64 = 0.5;
/// The same while nothing is known, where a larger window that is of no use makes more of them late
/// for longer.
const LONG_FIRST: f64 = 0.4;
/// A larger window is not tried before requests have had to wait for this long. When they begin to,
/// capacity may just have fallen: throughput before says nothing then, and the larger window fills
/// up for nothing.
const ONSET: Duration = Duration::from_secs(1);
/// Pause between trials up.
const PAUSE: Duration = Duration::from_secs(20);
/// The same before capacity is known, after load that went away.
const PAUSE_FIRST: Duration = Duration::from_secs(2);
/// A trial that has not come to a decision in this time has none.
const TRIAL_LONGEST: Duration = Duration::from_secs(20);
/// Load that went away for this long ends a trial, and the growth of the first window.
pub(super) const ABSENCE: Duration = Duration::from_secs(1);
/// The requests of the old window have left after this many residence times. Where they share a
/// processor the long ones stay behind in a smaller window, and for a while few are done.
const LEAVING_UP: f64 = 1.0;
const LEAVING_DOWN: f64 = 2.0;
/// Nothing waits longer than this for them to leave.
const LEAVING_MAX: f64 = 5.0;
/// Where clients give up a smaller window is looked at for so many seconds.
const GIVEN_UP: f64 = 1.0;
/// How long a smaller window that cost throughput is not tried again, as long as throughput at the
/// larger one is above this share of what it was before.
const REFUTED_FOR: Duration = Duration::from_secs(30);
const AS_BEFORE: f64 = 0.8;

/// What is enough for others is tried no more often than this.
const HINTS: Duration = Duration::from_secs(30);

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
    trial: Option<Trial>,
    meter: DrainMeter,
    /// Residence at speed 1.
    profile: Profile,
    speed: Speed,
    /// Throughput with the window full is capacity.
    confirmed: bool,
    /// Before this the requests of an older window are still leaving.
    counts_from: Timestamp,
    residence_long: f64,
    /// When a larger window was last found to be of no use.
    last_up: Option<Timestamp>,
    refuted: Option<Refuted>,
    /// Before this what is enough for others is not tried.
    next_hint: Timestamp,
    /// A window that did as much as a larger one; the knee is not beyond it.
    enough: f64,
    /// For how long the base of the last trials is believed.
    trust: Duration,
    trusted_until: Timestamp,
    /// Since when somebody has had to wait.
    binding_since: Option<Timestamp>,
    /// What was taken for capacity when the window was last made larger because of it.
    outgrown: Option<f64>,
    /// While nothing is known.
    slow_start: Option<SlowStart>,
}

impl WindowSearch {
    pub(crate) fn new(window: u32, bounds: Bounds, now: Timestamp) -> Self {
        Self {
            bounds,
            window: window.clamp(bounds.min, bounds.max),
            trial: None,
            meter: DrainMeter::default(),
            profile: Profile::new(),
            speed: Speed::new(),
            confirmed: false,
            counts_from: now,
            residence_long: 0.0,
            last_up: None,
            refuted: None,
            next_hint: now,
            enough: f64::INFINITY,
            trust: TRUST,
            trusted_until: now,
            binding_since: None,
            outgrown: None,
            slow_start: Some(SlowStart::new(window.clamp(bounds.min, bounds.max))),
        }
    }

    pub(crate) fn window(&self) -> u32 {
        self.window
    }

    /// The window that stays if what is being tried is of no use.
    pub(crate) fn settled(&self) -> u32 {
        match &self.trial {
            Some(trial) if trial.kind != Kind::Check => trial.from,
            _ => self.window,
        }
    }

    /// Residence of a request that meets no crowd, if that was ever seen.
    pub(crate) fn base(&self) -> Option<f64> {
        let any = f64::INFINITY;
        let base = self.profile.base(any, BASE_SAMPLES, any)?;
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
        self.confirmed
    }

    /// Whether the window grows with what is done, so that throughput is no capacity.
    pub(crate) fn is_growing(&self) -> bool {
        self.slow_start.as_ref().is_some_and(SlowStart::has_begun)
    }

    /// Whether a window is being tried that may be too small.
    pub(crate) fn tries_less(&self) -> bool {
        let trial = self.trial.as_ref();
        trial.is_some_and(|trial| trial.kind != Kind::Up)
    }

    /// The window and what it brings, where that is known to be capacity.
    pub(super) fn found(&self) -> Option<Found> {
        let rate = match &self.trial {
            Some(trial) if trial.kind == Kind::Check => None,
            Some(trial) => Some(trial.test.rate()),
            None => self.meter.rate().filter(|_| self.rests_on(REFERENCE)),
        };
        Some(Found {
            window: self.settled(),
            rate: rate.filter(|_| self.confirmed)?,
        })
    }

    /// What was seen so far and the first window, while that grows.
    pub(super) fn growing(&self) -> Option<(f64, &Profile)> {
        let slow_start = self
            .slow_start
            .as_ref()
            .filter(|slow_start| slow_start.has_begun())?;
        Some((slow_start.first(), &self.profile))
    }

    /// Takes what was seen in a tick of so many seconds, before [`on_tick`](Self::on_tick).
    pub(crate) fn see(
        &mut self,
        now: Timestamp,
        seconds: f64,
        clumped: bool,
        occupancy: &Occupancy,
    ) -> Seen {
        self.profile.set_clumped(clumped);
        let seen = match &self.trial {
            // What a smaller window shows is for the trial to say.
            Some(trial) if trial.kind == Kind::Down => self.profile.pass_over(occupancy, now),
            _ => self.profile.absorb(occupancy, now, self.speed.now()),
        };
        self.speed.on_done(seen.done, seconds);
        seen
    }

    /// Takes a tick in which that was seen; says why the window changed if it did.
    pub(super) fn on_tick(
        &mut self,
        tick: &ReplicaTick,
        seen: Seen,
        others: &Others<'_>,
    ) -> Option<Cause> {
        let before = self.window;
        self.residence_long = tick.residence_long;
        let since = self.binding_since.unwrap_or(tick.now);
        self.binding_since = tick.binding.then_some(since);
        let hint = self.enough_for_others(tick, others.peers);
        let cause = match (hint, self.trial.take()) {
            (Some(to), trial) => self.try_as_others(tick, trial, to),
            (None, Some(trial)) => self.continue_trial(tick, trial, seen),
            (None, None) if self.ramps(tick) => self.go_on(tick, seen, others),
            (None, None) if tick.now >= self.counts_from => self.hold(tick),
            (None, None) => "hold",
        };
        (self.window != before).then_some(cause)
    }

    /// Whether the first window grows with what is done. It does not where requests were seen
    /// without a crowd.
    fn ramps(&mut self, tick: &ReplicaTick) -> bool {
        let Some(slow_start) = &mut self.slow_start else {
            return false;
        };
        let most = f64::from(self.window) * ELSEWHERE;
        let base = || self.profile.base(most, FIRST_SAMPLES, f64::INFINITY);
        if slow_start.is_over(tick.now) || (!slow_start.has_begun() && base().is_some()) {
            self.end_ramp();
        } else if tick.binding {
            slow_start.on_waiting(tick.now);
        }
        self.is_growing()
    }

    /// Lets the first window grow, or ends that.
    fn go_on(&mut self, tick: &ReplicaTick, seen: Seen, others: &Others<'_>) -> Cause {
        let window = f64::from(self.window);
        let rate = seen.done / tick.seconds;
        let pressed = tick.binding && tick.queued >= PRESSING * tick.target * rate;
        let Some(slow_start) = self.slow_start.as_mut().filter(|_| pressed) else {
            let brief = if tick.binding { rate * BRIEF_S } else { 0.0 };
            self.window = self.bounds.nearest(window.max(brief));
            return "grow";
        };
        let long = match tick.target_configured {
            true => LONG * tick.target,
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
        let crowd = |seen: &Profile| seen.crowd(slow_start::SAMPLES);
        let crowd = crowd(together.unwrap_or(seen_here)).or_else(|| crowd(before?));
        let course = slow_start.on_tick(
            window,
            seen.done,
            crowd,
            &all,
            long,
            tick.most_clients_abandon,
        );
        let (to, leaving) = match course {
            Course::Grows(to) => {
                self.window = self.bounds.nearest(to);
                return "grow";
            }
            Course::First { leaving } => {
                // What was seen of a crowd that filled up is no base, and what is smaller was not
                // seen.
                self.profile.forget();
                (slow_start.first(), leaving)
            }
            Course::Wide { window, leaving } => (window, leaving),
        };
        self.window = self.bounds.nearest(to);
        self.end_ramp();
        self.let_leave(tick.now, leaving);
        "back"
    }

    /// From here on throughput with the window full is measured.
    fn end_ramp(&mut self) {
        self.slow_start = None;
        self.restart_meter(None);
    }

    fn hold(&mut self, tick: &ReplicaTick) -> Cause {
        if tick.full.seconds > 0.0 {
            self.meter.on_tick(tick.full.done, tick.full.seconds);
        }
        if !self.confirmed && !tick.binding {
            return self.adjust_unknown(tick);
        }
        if !self.confirmed && tick.admitted_clients_abandon {
            return self.serve_somebody(tick.now);
        }
        let Some(rate) = self.meter.rate() else {
            return "hold";
        };
        if self.confirmed && self.rests_on(REFERENCE) && self.was_no_capacity(rate) {
            self.confirmed = false;
            self.forget();
        }
        if self.confirmed && self.rests_on(SPEED_REFERENCE) {
            self.speed.on_rate(rate);
        }
        let brief = rate * BRIEF_S;
        match (self.confirmed, tick.binding) {
            (_, true) if self.bounds.nearest(brief) > self.window => {
                self.grow(tick.now, rate, brief)
            }
            (false, true) => self.find_capacity(tick, rate),
            (true, true) if self.rests_on(REFERENCE) => self.adjust(tick, rate),
            (true, false) => self.adjust_unused(tick, rate),
            _ => "hold",
        }
    }

    /// Whether far more is done with a larger window than was taken for capacity with the smaller
    /// one.
    fn was_no_capacity(&mut self, rate: f64) -> bool {
        let before = self.outgrown.take();
        before.is_some_and(|before| rate > OUTGROWN * before)
    }

    /// What is known is about another service.
    fn forget(&mut self) {
        self.enough = f64::INFINITY;
        self.profile.forget();
        self.speed.forget_done();
    }

    fn rests_on(&self, completions: f64) -> bool {
        self.meter.rests_on(completions, REFERENCE_SECONDS)
    }

    /// Whether enough is known of throughput to compare another with it.
    fn has_reference(&self, test: &Test) -> bool {
        self.rests_on(test.reference) && self.meter.seconds() >= test.reference_seconds
    }

    /// Requests take longer inside than their clients wait, so that nothing is ever known of
    /// throughput: fewer at once.
    fn serve_somebody(&mut self, now: Timestamp) -> Cause {
        let to = (f64::from(self.window) * AT_ONCE).max(LEAST);
        self.window = self.window.min(self.bounds.nearest(to));
        self.restart_meter(None);
        self.let_leave(now, GIVEN_UP);
        "shrink"
    }

    /// Whether throughput is capacity is not known yet: speed matters more than precision.
    fn find_capacity(&mut self, tick: &ReplicaTick, rate: f64) -> Cause {
        let window = f64::from(self.window);
        let residence = window / rate;
        if tick.queued < PRESSING * tick.target * rate {
            return "hold";
        }
        match self
            .profile
            .base(window * ELSEWHERE, FIRST_SAMPLES, f64::INFINITY)
        {
            Some(_) if !self.rests_on(FIRST_SAMPLES) => "hold",
            // Where everybody is late a larger window has to show what it is good for.
            Some(base) if residence < (base * NARROW_FIRST).min(LATE * tick.target) => {
                self.grow(tick.now, rate, window * GROWTH_FIRST)
            }
            Some(base) if residence > base * CROWDED_FIRST => {
                let samples = crowd_samples(residence / base);
                self.confirmed = self.rests_on(samples.max(FIRST_SAMPLES));
                "hold"
            }
            _ if (tick.most_clients_abandon || residence > LONG_FIRST * tick.target)
                && !self.is_refuted(tick.now, rate) =>
            {
                let to = (window * AT_ONCE).max(LEAST);
                self.start(tick, Kind::Down, DOWN_FIRST, to, PAUSE_FIRST)
            }
            _ => {
                let to = window * GROWTH_FIRST;
                self.start(tick, Kind::Up, UP_FIRST, to, PAUSE_FIRST)
            }
        }
    }

    /// Requests that the replica holds at its maximal throughput without queueing, if known.
    fn knee(&self, rate: f64) -> Option<f64> {
        let most = f64::from(self.window) * ELSEWHERE;
        let capacity = self.speed.unit_rate(rate);
        let base = self.profile.base(most, BASE_SAMPLES, capacity)?;
        Some((base * capacity).min(self.enough))
    }

    /// Throughput is capacity; is the window what it takes?
    fn adjust(&mut self, tick: &ReplicaTick, rate: f64) -> Cause {
        if self.doubts(tick, rate) {
            self.trust = (self.trust * 2).min(TRUST_MOST);
            self.trusted_until = tick.now + self.trust;
            // The next trial must not rest on old luck.
            self.restart_meter(None);
            return "hold";
        }
        let window = f64::from(self.window);
        let residence = window / rate;
        let late = residence > LATE * tick.target;
        let bound = rate * tick.residence_max;
        let smaller = match self.knee(rate) {
            Some(knee) => {
                let least = if late { tightest(knee) } else { TIGHT * knee };
                let enough = roomy(knee, bound, least);
                if window < NARROW * knee {
                    self.outgrown.get_or_insert(rate);
                    return self.grow(tick.now, rate, enough);
                }
                let (test, worth) = match late {
                    true => (DOWN_FROM_LATE, 1.0),
                    false => (DOWN_TO_KNEE, WORTH),
                };
                (enough < window * worth).then_some((test, enough))
            }
            None if tick.overloaded || window > bound * EXCESS + 1.0 => self.smaller(late),
            None => None,
        };
        let smaller = smaller.filter(|(_, to)| *to >= rate * BRIEF_S);
        if let Some((test, to)) = smaller
            && !self.is_refuted(tick.now, rate)
        {
            return self.start(tick, Kind::Down, test, to, Duration::ZERO);
        }
        let just_now = |since| tick.now < since + ONSET;
        if residence > LONG * tick.target || self.binding_since.is_none_or(just_now) {
            return "hold";
        }
        self.start(tick, Kind::Up, UP, window * GROWTH, PAUSE)
    }

    /// In overload what is known is doubted from time to time: all of it where everybody is late,
    /// and the base that trials have shown where requests take long. It goes by how long they took
    /// when it was found: a service that got slower is no reason.
    fn doubts(&mut self, tick: &ReplicaTick, rate: f64) -> bool {
        if !tick.overloaded || tick.now < self.trusted_until {
            return false;
        }
        let residence = f64::from(self.window) / self.speed.unit_rate(rate);
        if residence > LATE * tick.target && self.knee(rate).is_some() {
            self.forget();
            return true;
        }
        residence > tick.residence_doubtful && self.profile.doubt()
    }

    /// The next smaller window to try without a knee.
    fn smaller(&self, late: bool) -> Option<(Test, f64)> {
        let window = f64::from(self.window);
        let to = (window * AT_ONCE).max(LEAST);
        let test = if late { DOWN_TO_KNEE } else { DOWN };
        (to < window).then_some((test, to))
    }

    /// The window has hardly ever been full; what was done with many inside shows what it takes.
    fn adjust_unknown(&mut self, tick: &ReplicaTick) -> Cause {
        let rate = self.profile.crowded_rate(BASE_SAMPLES);
        rate.map_or("hold", |rate| self.adjust_unused(tick, rate))
    }

    /// Nobody waits, so no trial can tell; but what is far beyond the knee would only fill up when
    /// capacity falls.
    fn adjust_unused(&mut self, tick: &ReplicaTick, rate: f64) -> Cause {
        let bound = rate * tick.residence_max;
        let roomy = |knee: f64| roomy(knee, bound, TIGHT * knee).max(rate * BRIEF_S);
        let enough = self.knee(rate).map(roomy);
        let worth = |enough: &f64| *enough < f64::from(self.window) * WORTH;
        if let Some(enough) = enough.filter(worth)
            && !self.is_refuted(tick.now, rate)
        {
            self.window = self.bounds.nearest(enough);
        }
        "shrink"
    }

    /// Nobody holds anybody up: more are served with more.
    fn grow(&mut self, now: Timestamp, rate: f64, to: f64) -> Cause {
        self.let_leave(now, LEAVING_UP * f64::from(self.window) / rate);
        self.window = self.bounds.nearest(to);
        self.restart_meter(None);
        "grow"
    }

    /// Throughput with another window is to be measured.
    fn restart_meter(&mut self, seen: Option<&RateTest>) {
        self.speed.on_new_window();
        self.meter = seen.map(meter_of).unwrap_or_default();
    }

    fn let_leave(&mut self, now: Timestamp, seconds: f64) {
        self.counts_from = now + Duration::from_secs_f64(seconds.min(LEAVING_MAX));
    }

    /// Starts a trial, not sooner than some time after the last one up.
    fn start(
        &mut self,
        tick: &ReplicaTick,
        kind: Kind,
        test: Test,
        to: f64,
        pause: Duration,
    ) -> Cause {
        let to = self.bounds.nearest(to);
        let known = self.has_reference(&test);
        let Some(rate) = self.meter.rate().filter(|_| known) else {
            return "hold";
        };
        if self.last_up.is_some_and(|last| tick.now < last + pause) {
            return "hold";
        }
        if to == self.window {
            // Already as large, or small, as it may be.
            self.confirmed = true;
            return "hold";
        }
        let residence = f64::from(self.window) / rate;
        self.let_leave(
            tick.now,
            match kind {
                Kind::Up => LEAVING_UP * residence,
                _ => LEAVING_DOWN * residence.max(self.residence_long),
            },
        );
        self.trial = Some(Trial {
            kind,
            from: std::mem::replace(&mut self.window, to),
            until: self.counts_from + TRIAL_LONGEST,
            last_binding: tick.now,
            test: RateTest::new(rate, test.alternative, self.meter.dispersion()),
            all: Seen::default(),
            all_seconds: 0.0,
            seconds: test.seconds,
        });
        match kind {
            Kind::Up => "try",
            _ => "shrink",
        }
    }

    /// In overload, and while nothing is known, from time to time: a smaller window that does as
    /// much for others. A trial of another smaller one is not disturbed.
    fn enough_for_others(&self, tick: &ReplicaTick, peers: &Peers) -> Option<f64> {
        let unknown = !self.confirmed && self.slow_start.is_none();
        let busy = tick.now < self.counts_from || self.tries_less();
        if busy || !unknown || !tick.overloaded || tick.now < self.next_hint {
            return None;
        }
        let rate = self.meter.rate().filter(|_| tick.binding)?;
        let to = f64::from(peers.window_for(tick.weight, rate)?);
        let worth = to <= WORTH * f64::from(self.settled());
        (worth && self.has_reference(&DOWN_FIRST)).then_some(to)
    }

    /// Tries it instead of what was being tried.
    fn try_as_others(&mut self, tick: &ReplicaTick, trial: Option<Trial>, to: f64) -> Cause {
        self.window = trial.map_or(self.window, |trial| trial.from);
        self.next_hint = tick.now + HINTS;
        self.start(tick, Kind::Down, DOWN_FIRST, to, Duration::ZERO)
    }

    fn continue_trial(&mut self, tick: &ReplicaTick, mut trial: Trial, seen: Seen) -> Cause {
        let counts = tick.now >= self.counts_from;
        if counts {
            trial.see(seen, tick.seconds);
        }
        if !tick.binding {
            return self.without_load(tick, trial);
        }
        trial.last_binding = tick.now;
        if !counts {
            self.trial = Some(trial);
            return "hold";
        }
        let finding = trial.on_tick(tick.full);
        match (trial.kind, finding) {
            (_, Finding::Open) if tick.now < trial.until => {
                self.trial = Some(trial);
                "hold"
            }
            (Kind::Up, Finding::Changed) if self.confirmed => self.check(tick.now, &trial),
            (Kind::Up, Finding::Changed) => {
                self.restart_meter(Some(&trial.test));
                "hold"
            }
            (Kind::Check, Finding::Changed) => {
                self.window = trial.from;
                self.forget();
                self.restart_meter(None);
                "grow"
            }
            (Kind::Check, _) => {
                self.meter = meter_of(&trial.test);
                self.last_up = Some(tick.now);
                "hold"
            }
            (Kind::Up, _) => self.of_no_use(tick.now, &trial),
            (Kind::Down, Finding::Changed) => self.go_back(tick.now, &trial),
            (Kind::Down, _) if !self.confirmed => {
                // As much with half the window: throughput is capacity.
                self.confirmed = true;
                self.restart_meter(Some(&trial.test));
                "hold"
            }
            (Kind::Down, _) => {
                self.profile.on_large_enough();
                self.meter
                    .on_tick(trial.test.served(), trial.test.seconds());
                "hold"
            }
        }
    }

    /// Throughput did not follow a larger window, so that it is capacity.
    fn of_no_use(&mut self, now: Timestamp, trial: &Trial) -> Cause {
        self.window = trial.from;
        self.last_up = Some(now);
        if self.confirmed {
            self.enough = f64::from(trial.from);
        } else {
            self.confirmed = true;
            // Until now the window was filling up, and the short ones left first.
            self.restart_meter(None);
        }
        self.let_leave(now, LEAVING_UP * f64::from(trial.from) / trial.test.rate());
        "back"
    }

    /// There was more throughput with a larger window than before. If that is because of the
    /// window, what is known of the service is wrong, and finding it out anew costs throughput; so
    /// first it is made sure that capacity has not returned meanwhile.
    fn check(&mut self, now: Timestamp, trial: &Trial) -> Cause {
        let rate = trial.test.served() / trial.test.seconds();
        let larger = std::mem::replace(&mut self.window, trial.from);
        let residence = f64::from(larger) / rate;
        self.let_leave(now, LEAVING_DOWN * residence);
        self.trial = Some(Trial {
            kind: Kind::Check,
            from: larger,
            until: self.counts_from + TRIAL_LONGEST,
            last_binding: now,
            test: RateTest::new(rate, CHECK, self.meter.dispersion()),
            all: Seen::default(),
            all_seconds: 0.0,
            seconds: 0.0,
        });
        "back"
    }

    /// Nobody waits: no more evidence, and after a while no trial. In an overload that may be
    /// because the larger window has ended it.
    fn without_load(&mut self, tick: &ReplicaTick, trial: Trial) -> Cause {
        if tick.now < trial.last_binding + ABSENCE {
            self.trial = Some(trial);
            return "hold";
        }
        self.last_up = Some(tick.now);
        if trial.kind == Kind::Up && self.confirmed {
            if tick.overloaded && trial.brings_more() {
                self.enough = f64::INFINITY;
                self.restart_meter(None);
                return "grow";
            }
            self.window = trial.from;
        }
        "back"
    }

    /// The smaller window cost throughput: below the knee, or there was none to go by and now there
    /// is.
    fn go_back(&mut self, now: Timestamp, trial: &Trial) -> Cause {
        let small = f64::from(std::mem::replace(&mut self.window, trial.from));
        self.let_leave(now, LEAVING_UP * f64::from(trial.from) / trial.test.rate());
        let known = self.knee(trial.test.rate()).is_some();
        if !(known && self.confirmed) {
            // The next trial must not rest on the same luck.
            self.restart_meter(None);
        }
        // A first look says too little to show the base.
        if self.confirmed && !known {
            self.on_too_small(now, small, trial);
        } else {
            self.refuted = Some(Refuted {
                until: now + REFUTED_FOR,
                rate: trial.test.rate(),
            });
        }
        "back"
    }

    /// A window that costs throughput shows the base. The larger one was enough, so the knee is not
    /// far beyond that, however little is done where long requests have taken all places of the
    /// smaller one.
    fn on_too_small(&mut self, now: Timestamp, small: f64, trial: &Trial) {
        let rate = trial.test.rate();
        let expected = rate * trial.test.seconds();
        let kept = trial.test.served() / expected;
        let knee = small / kept.max(small / (BEYOND * f64::from(trial.from)));
        let clear = kept < CLEAR && expected >= CLEAR_SAMPLES;
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
        let as_before = rate > AS_BEFORE * refuted.rate;
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
    bound.clamp(least + 1.0, ROOMY * knee + 1.0)
}

/// Where answers are late every request inside counts: no more than what keeps many workers busy,
/// the chance deviation of how many are inside above a window that is just not too small.
fn tightest(knee: f64) -> f64 {
    (TIGHT * knee).min(NARROW * knee + knee.sqrt())
}

/// Throughput as a trial has seen it.
fn meter_of(test: &RateTest) -> DrainMeter {
    let mut meter = DrainMeter::default();
    meter.on_tick(test.served(), test.seconds());
    meter
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { min: 1, max: 4096 };

    /// The windows, from tick to tick, of a replica that does `rate` requests a second, whatever
    /// its window, in ten seconds in which a few always wait.
    fn windows(
        rate: f64,
        queued: f64,
        most_clients_abandon: bool,
        admitted_clients_abandon: bool,
    ) -> Vec<u32> {
        let change = |tick: ReplicaTick| ReplicaTick {
            queued,
            most_clients_abandon,
            admitted_clients_abandon,
            ..tick
        };
        windows_beside(&Peers::default(), rate, change)
    }

    /// The same beside others, and with something changed in each tick.
    fn windows_beside(
        peers: &Peers,
        rate: f64,
        change: impl Fn(ReplicaTick) -> ReplicaTick,
    ) -> Vec<u32> {
        let mut now = Timestamp::ZERO;
        let mut search = WindowSearch::new(16, BOUNDS, now);
        let occupancy = Occupancy::new();
        let others = Others {
            growing: None,
            stopped: None,
            peers,
        };
        let mut tick = || {
            now += Duration::from_millis(100);
            let inside = search.window();
            occupancy.on_change(now, inside, inside);
            (0..(rate * 0.1) as u32).for_each(|_| occupancy.on_done(inside, inside));
            let tick = change(ReplicaTick {
                now,
                seconds: 0.1,
                full: Full {
                    done: rate * 0.1,
                    seconds: 0.1,
                },
                binding: true,
                queued: 4.0,
                overloaded: false,
                target: 0.5,
                target_configured: true,
                most_clients_abandon: false,
                admitted_clients_abandon: false,
                residence_long: 0.001,
                residence_max: 0.1,
                residence_doubtful: 0.1,
                weight: 1,
            });
            let seen = search.see(tick.now, tick.seconds, false, &occupancy);
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
    fn what_is_enough_for_others_is_tried_in_overload() {
        let found = |rate| Some(Found { window: 5, rate });
        let beside = |rate, overloaded| {
            let peers = Peers::of([(1, None), (1, found(rate)), (1, found(rate))].into_iter());
            let change = |tick: ReplicaTick| ReplicaTick {
                queued: 99.0,
                overloaded,
                ..tick
            };
            windows_beside(&peers, 100.0, change)
        };
        assert!(beside(100.0, true).contains(&5));
        assert!(!beside(100.0, false).contains(&5), "there may be room");
        assert!(!beside(50.0, true).contains(&5), "they do less");
    }

    #[test]
    fn no_window_is_smaller_than_what_is_done_in_a_moment() {
        assert_eq!(found_at(20_000.0), 100);
        assert_eq!(found_at(200_000.0), 1000);
        assert_eq!(found_at(1000.0), 16);
    }
}

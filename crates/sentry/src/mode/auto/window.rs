//! The window of one replica: the smallest concurrency that keeps its throughput at its maximum.
//!
//! By Little's law a service without queueing inside holds `knee = r S` requests at its maximal
//! throughput `r`, with the residence `S` of a request that meets no crowd. What exceeds the
//! knee only queues inside the replica, where nothing can be put in order or taken back; a window
//! below it costs throughput. So while requests wait, the residence at the full window (the
//! window over the throughput) is compared with the base residence ([`Profile`]):
//!
//! - the same: nobody holds anybody up, the window is too small, it **grows**;
//! - much longer: the window is larger than it needs to be, it **shrinks** to somewhat above the
//!   knee. Should throughput fall then, the base was outdated; it goes back, and the base
//!   is what was just seen. Nothing is ever made smaller just to see what happens.
//!
//! Where the profile knows nothing but the window itself (a start into full load) and from time
//! to time, a larger window is tried: costs nothing but some requests waiting in the replica.
//! Whether throughput followed says a sequential test ([`RateTest`]). It is the judge in
//! the end, because a service may do more at a time than its residence tells.
//!
//! A window that keeps requests in the replica for more than a share of the target shrinks as
//! well, as long as throughput allows.
//!
//! What breaks it: a base residence measured on another mix of requests than today's.

use std::time::Duration;

use tidegate_control::Timestamp;

use super::drain::{Change, DrainMeter};
use super::profile::Profile;
use super::sprt::{Finding, RateTest};
use crate::occupancy::{Full, Occupancy};

/// Bounds of a window.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) min: u32,
    pub(crate) max: u32,
}

impl Bounds {
    /// The smallest whole window that is at least `window`.
    fn at_least(self, window: f64) -> u32 {
        // `as` saturates and maps NaN to zero.
        (window.ceil() as u32).clamp(self.min, self.max)
    }
}

/// What a replica did in a tick.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReplicaTick {
    pub(crate) now: Timestamp,
    /// What was done with the window full.
    pub(crate) full: Full,
    /// Somebody had to wait for it.
    pub(crate) binding: bool,
    /// What few requests take longer than, at present.
    pub(crate) residence_long: f64,
    /// Largest time a request should spend in the replica, in seconds.
    pub(crate) residence_max: f64,
    /// A residence that is short enough for the window not to matter.
    pub(crate) residence_min: f64,
}

/// Why a window changed, for the event.
pub(crate) type Cause = &'static str;

/// Where the window is set, in knees, and one more: room for the time between two requests, and
/// for an error of the estimate.
const SLACK: f64 = 1.5;
/// Residence at the full window below this many bases is no longer than the base.
const NARROW: f64 = 1.15;
/// While capacity is unknown: residence below this many bases calls for a larger window, above
/// that many it is longer for certain and throughput is capacity; and the samples it takes.
const NARROW_FIRST: f64 = 1.35;
const CROWDED_FIRST: f64 = 1.6;
const FIRST_SAMPLES: f64 = 15.0;
const CROWDED_SAMPLES: f64 = 40.0;
/// Samples of a base that is to be relied on.
const BASE_SAMPLES: f64 = 50.0;
/// A smaller window has to be below this share of the present one to be worth it, and is not below
/// that share of it at once.
const WORTH: f64 = 0.75;
const AT_ONCE: f64 = 0.4;
/// The base is looked for at concurrencies below this share of the window.
const ELSEWHERE: f64 = 0.67;
/// Growth while capacity is unknown, and later.
const GROWTH_FIRST: f64 = 2.0;
const GROWTH: f64 = 1.5;

/// A trial: the window changes, and throughput is tested for a change by the factor
/// `alternative`. The test changes sign at a ratio of `(g - 1) / ln g`: a smaller change than that
/// counts as none. `reference` completions have to be behind the throughput before.
#[derive(Debug, Clone, Copy)]
struct Test {
    alternative: f64,
    reference: f64,
}

/// Up, while nothing is known: a gain of 44 % counts.
const UP_FIRST: Test = Test {
    alternative: 2.0,
    reference: 40.0,
};
/// Up, later: a gain of 23 % counts.
const UP: Test = Test {
    alternative: 1.5,
    reference: 100.0,
};
/// Down: a loss of 31 % counts. A base that is wrong costs more, and for a while after the change
/// only long requests are inside.
const DOWN: Test = Test {
    alternative: 0.45,
    reference: 60.0,
};

/// Completions that make a throughput, and what stands in for them in a slow service.
const REFERENCE: f64 = 30.0;
const REFERENCE_SECONDS: f64 = 8.0;
/// Pause between trials up, and before capacity is known.
const PAUSE: Duration = Duration::from_secs(20);
const PAUSE_FIRST: Duration = Duration::from_secs(2);
/// A trial that has not come to a decision in this time has none.
const TRIAL_LONGEST: Duration = Duration::from_secs(20);
/// Load that went away for this long ends a trial.
const ABSENCE: Duration = Duration::from_secs(1);
/// The requests of the old window have left after this many residence times. Where they share a
/// processor the long ones stay behind in a smaller window, and for a while few are done.
const LEAVING_UP: f64 = 1.0;
const LEAVING_DOWN: f64 = 2.0;
/// Nothing waits longer than this for them to leave.
const LEAVING_MAX: f64 = 5.0;
/// Residence beyond its bound by this factor calls for a smaller window.
const EXCESS: f64 = 1.25;
/// How long a smaller window that cost throughput is not tried again.
const REFUTED_FOR: Duration = Duration::from_secs(30);
/// Completions after a change of capacity from which on the new throughput is known.
const CHANGE_REFERENCE: f64 = 60.0;

#[derive(Debug)]
struct Trial {
    kind: Kind,
    /// The window to go back to.
    from: u32,
    until: Timestamp,
    last_binding: Timestamp,
    test: RateTest,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Up,
    Down,
    /// Back from a trial up that succeeded; `from` is the larger window.
    Again,
}

/// See the module's description.
#[derive(Debug)]
pub(crate) struct WindowSearch {
    bounds: Bounds,
    window: u32,
    trial: Option<Trial>,
    meter: DrainMeter,
    profile: Profile,
    /// Throughput before a change of capacity, until the new one is known.
    changed_from: Option<f64>,
    /// The window is known to be large enough: throughput is capacity.
    confirmed: bool,
    /// Before this the requests of an older window are still leaving.
    counts_from: Timestamp,
    /// Grew once without a residence to compare with.
    grew_blindly: bool,
    residence_long: f64,
    next_up: Timestamp,
    /// Until then a smaller window is known to cost throughput.
    refuted_until: Timestamp,
}

impl WindowSearch {
    pub(crate) fn new(window: u32, bounds: Bounds, now: Timestamp) -> Self {
        Self {
            bounds,
            window: window.clamp(bounds.min, bounds.max),
            trial: None,
            meter: DrainMeter::default(),
            profile: Profile::new(),
            changed_from: None,
            confirmed: false,
            counts_from: now,
            grew_blindly: false,
            residence_long: 0.0,
            next_up: now,
            refuted_until: now,
        }
    }

    pub(crate) fn window(&self) -> u32 {
        self.window
    }

    /// Residence of a request that meets no crowd, if that was ever seen.
    pub(crate) fn base(&self) -> Option<f64> {
        let base = self.profile.base(f64::INFINITY, BASE_SAMPLES);
        base.map(|base| base.residence)
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

    /// Whether the window is known to be large enough, so that throughput is capacity.
    pub(crate) fn confirmed(&self) -> bool {
        self.confirmed
    }

    /// Takes a tick; says why the window changed if it did.
    pub(crate) fn on_tick(&mut self, tick: &ReplicaTick, occupancy: &Occupancy) -> Option<Cause> {
        let before = self.window;
        self.residence_long = tick.residence_long;
        self.profile.absorb(occupancy);
        let cause = match self.trial.take() {
            Some(trial) => self.continue_trial(tick, trial),
            None if tick.now >= self.counts_from && tick.full.seconds > 0.0 => self.hold(tick),
            None => "hold",
        };
        (self.window != before).then_some(cause)
    }

    fn hold(&mut self, tick: &ReplicaTick) -> Cause {
        let change = self.meter.on_tick(tick.full.done, tick.full.seconds);
        if let Some(change) = change.filter(Change::is_large) {
            self.changed_from.get_or_insert(change.before);
            self.refuted_until = tick.now;
        }
        let Some(rate) = self.meter.rate() else {
            return "hold";
        };
        if !self.follow_change(rate) || !tick.binding {
            return "hold";
        }
        match self.confirmed {
            true => self.adjust(tick, rate),
            false => self.find_capacity(tick, rate),
        }
    }

    /// Whether throughput is capacity is not known yet: speed matters more than precision.
    fn find_capacity(&mut self, tick: &ReplicaTick, rate: f64) -> Cause {
        let window = f64::from(self.window);
        let residence = window / rate;
        match self.profile.base(window * ELSEWHERE, FIRST_SAMPLES) {
            // Nothing is known but this window: once, without knowing.
            None if !std::mem::replace(&mut self.grew_blindly, true) => self.grow(tick.now, rate),
            None => self.start(tick, Kind::Up, UP_FIRST, window * GROWTH_FIRST),
            Some(_) if !self.rests_on(FIRST_SAMPLES) => "hold",
            Some(base) if residence < base.residence * NARROW_FIRST => self.grow(tick.now, rate),
            Some(_) if !self.rests_on(CROWDED_SAMPLES) => "hold",
            Some(base) if residence > base.residence * CROWDED_FIRST => {
                self.confirmed = true;
                self.next_up = tick.now + PAUSE_FIRST;
                "hold"
            }
            Some(_) => self.start(tick, Kind::Up, UP_FIRST, window * GROWTH_FIRST),
        }
    }

    /// Throughput is capacity; is the window what it takes?
    fn adjust(&mut self, tick: &ReplicaTick, rate: f64) -> Cause {
        if !self.rests_on(REFERENCE) {
            return "hold";
        }
        let window = f64::from(self.window);
        match self.profile.base(window * ELSEWHERE, BASE_SAMPLES) {
            Some(base) if window / rate < base.residence * NARROW => self.grow(tick.now, rate),
            Some(base) => {
                let needed = base.residence * rate * SLACK + 1.0;
                self.shrink_or_try_up(tick, rate, Some(needed), base.proven)
            }
            None => self.shrink_or_try_up(tick, rate, None, false),
        }
    }

    fn rests_on(&self, completions: f64) -> bool {
        self.meter.rests_on(completions, REFERENCE_SECONDS)
    }

    /// After a change of capacity the knee stays: the profile is stretched as soon as the new
    /// throughput is known. False while it is not.
    fn follow_change(&mut self, rate: f64) -> bool {
        if self.changed_from.is_some() && !self.rests_on(CHANGE_REFERENCE) {
            return false;
        }
        if let Some(before) = self.changed_from.take() {
            self.profile.stretch(before / rate);
        }
        true
    }

    /// The residence at the full window is that of an idle service: more are served with more.
    fn grow(&mut self, now: Timestamp, rate: f64) -> Cause {
        let growth = if self.confirmed { GROWTH } else { GROWTH_FIRST };
        self.window = self.bounds.at_least(f64::from(self.window) * growth);
        self.let_leave(now, LEAVING_UP, rate);
        self.meter = DrainMeter::default();
        "grow"
    }

    /// The window is large enough. `needed` is what it takes, and that `proven` or not.
    fn shrink_or_try_up(
        &mut self,
        tick: &ReplicaTick,
        rate: f64,
        needed: Option<f64>,
        proven: bool,
    ) -> Cause {
        let window = f64::from(self.window);
        let bound = rate * tick.residence_max;
        let too_long = window > bound * EXCESS + 1.0;
        let short = rate * tick.residence_min;
        let enough = match needed {
            Some(needed) if proven || !too_long => needed.max(short),
            Some(needed) => needed.min(bound),
            None if too_long => bound,
            None => window,
        };
        if enough < window * WORTH && tick.now >= self.refuted_until {
            return self.start(tick, Kind::Down, DOWN, enough.max(window * AT_ONCE));
        }
        self.start(tick, Kind::Up, UP, window * GROWTH)
    }

    fn let_leave(&mut self, now: Timestamp, times: f64, rate: f64) {
        let leaving = times * (f64::from(self.window) / rate).max(self.residence_long);
        self.counts_from = now + Duration::from_secs_f64(leaving.min(LEAVING_MAX));
    }

    fn start(&mut self, tick: &ReplicaTick, kind: Kind, test: Test, to: f64) -> Cause {
        let to = self.bounds.at_least(to);
        let Some(rate) = self.meter.rate().filter(|_| self.rests_on(test.reference)) else {
            return "hold";
        };
        if kind == Kind::Up && tick.now < self.next_up {
            return "hold";
        }
        if to == self.window {
            self.settled(tick.now, kind);
            return "hold";
        }
        let from = self.window;
        self.window = to.max(from);
        self.let_leave(tick.now, kind.leaving(), rate);
        self.window = to;
        self.trial = Some(Trial {
            kind,
            from,
            until: self.counts_from + TRIAL_LONGEST,
            last_binding: tick.now,
            test: RateTest::new(rate, test.alternative, self.meter.dispersion()),
        });
        match kind {
            Kind::Up => "try",
            Kind::Down | Kind::Again => "shrink",
        }
    }

    fn continue_trial(&mut self, tick: &ReplicaTick, mut trial: Trial) -> Cause {
        if !tick.binding {
            return self.without_load(tick.now, trial);
        }
        trial.last_binding = tick.now;
        if tick.now < self.counts_from {
            self.trial = Some(trial);
            return "hold";
        }
        let finding = trial.test.on_tick(tick.full.done, tick.full.seconds);
        match (trial.kind, finding) {
            (_, Finding::Open) if tick.now < trial.until => {
                self.trial = Some(trial);
                "hold"
            }
            (Kind::Up, Finding::Changed) if self.confirmed => self.check_again(tick, &trial),
            (Kind::Up, Finding::Changed) => {
                self.meter.restart(trial.test.observed());
                "grow"
            }
            (Kind::Again, Finding::Changed) => {
                self.window = trial.from;
                self.meter.restart(trial.test.rate());
                self.let_leave(tick.now, LEAVING_UP, trial.test.rate());
                "grow"
            }
            (Kind::Again, _) => {
                self.profile.stretch(1.0 / trial.test.factor());
                self.meter.restart(trial.test.observed());
                self.settled(tick.now, Kind::Up);
                "hold"
            }
            (Kind::Down, Finding::Changed) => self.go_back(tick.now, &trial),
            (Kind::Up, _) => {
                self.window = trial.from;
                self.settled(tick.now, Kind::Up);
                self.let_leave(tick.now, LEAVING_UP, trial.test.rate());
                "back"
            }
            (Kind::Down, _) => {
                self.meter
                    .on_tick(trial.test.served(), trial.test.seconds());
                "hold"
            }
        }
    }

    /// Throughput grew with the window, or because capacity grew at the same time: back at the old
    /// window it shows.
    fn check_again(&mut self, tick: &ReplicaTick, up: &Trial) -> Cause {
        let (before, after) = (up.test.rate(), up.test.observed());
        let larger = std::mem::replace(&mut self.window, up.from);
        self.let_leave(tick.now, LEAVING_DOWN, after);
        self.trial = Some(Trial {
            kind: Kind::Again,
            from: larger,
            until: self.counts_from + TRIAL_LONGEST,
            last_binding: tick.now,
            test: RateTest::new(after, before / after, self.meter.dispersion()),
        });
        "again"
    }

    /// Nobody waits: no more evidence, and after a while no trial.
    fn without_load(&mut self, now: Timestamp, trial: Trial) -> Cause {
        if now < trial.last_binding + ABSENCE {
            self.trial = Some(trial);
            return "hold";
        }
        if trial.kind == Kind::Up {
            self.window = trial.from;
        }
        let pause = if self.confirmed { PAUSE } else { PAUSE_FIRST };
        self.next_up = now + pause;
        "back"
    }

    /// The smaller window cost throughput, so the base was not what it seemed.
    fn go_back(&mut self, now: Timestamp, trial: &Trial) -> Cause {
        self.profile.forget();
        self.window = trial.from;
        self.let_leave(now, LEAVING_UP, trial.test.rate());
        self.refuted_until = now + REFUTED_FOR;
        "back"
    }

    /// A trial up has shown that the window is large enough.
    fn settled(&mut self, now: Timestamp, kind: Kind) {
        if kind == Kind::Up {
            self.confirmed = true;
            self.next_up = now + PAUSE;
        }
    }
}

impl Kind {
    fn leaving(self) -> f64 {
        match self {
            Self::Up => LEAVING_UP,
            Self::Down | Self::Again => LEAVING_DOWN,
        }
    }
}

//! The window in force at a replica, and what is measured with it: what outlives the
//! [phases](super::phase) of its search.
//!
//! After a change of the window, requests of the older one are still leaving. Throughput counts
//! only once they are gone ([`ReplicaWindow::let_leave`]).

use std::time::Duration;

use tidegate_control::Timestamp;

use super::drain::DrainMeter;
use super::profile::Profile;
use super::speed::Speed;
use super::sprt::RateTest;
use super::trial::Test;
use super::tuning::Tuning;
use super::window::{Bounds, ReplicaTick};
use crate::counts::Counts;

/// The window in force at a replica, and what is measured with it.
#[derive(Debug)]
pub(super) struct ReplicaWindow {
    pub(super) bounds: Bounds,
    pub(super) window: u32,
    pub(super) meter: DrainMeter,
    /// Service times at speed 1.
    pub(super) profile: Profile,
    pub(super) speed: Speed,
    /// Before this the requests of an older window are still leaving.
    counts_from: Timestamp,
    /// How long it takes until other engines do what this one found, in seconds.
    lag: f64,
    /// Since when requests have had to wait.
    waiting_since: Option<Timestamp>,
}

impl ReplicaWindow {
    pub(super) fn new(window: u32, bounds: Bounds, now: Timestamp) -> Self {
        Self {
            bounds,
            window: window.clamp(bounds.min, bounds.max),
            meter: DrainMeter::default(),
            profile: Profile::new(),
            speed: Speed::new(),
            counts_from: now,
            lag: 0.0,
            waiting_since: None,
        }
    }

    /// How long it takes until the other engines do what this one found.
    pub(super) fn set_lag(&mut self, lag: Duration) {
        self.lag = lag.as_secs_f64();
    }

    /// Takes over changed bounds.
    pub(super) fn set_bounds(&mut self, bounds: Bounds) {
        self.bounds = bounds;
        self.window = self.window.clamp(bounds.min, bounds.max);
    }

    /// The window becomes the nearest that is allowed.
    pub(super) fn set(&mut self, window: f64) {
        self.window = self.bounds.nearest(window);
    }

    /// Takes whether requests have to wait.
    pub(super) fn on_waiting(&mut self, tick: &ReplicaTick) {
        let since = self.waiting_since.unwrap_or(tick.now);
        self.waiting_since = tick.binding.then_some(since);
    }

    /// Whether requests have had to wait for so long.
    pub(super) fn waits_for(&self, duration: Duration, now: Timestamp) -> bool {
        self.waiting_since
            .is_some_and(|since| now >= since + duration)
    }

    /// Whether the requests of an older window are gone.
    pub(super) fn counts_at(&self, now: Timestamp) -> bool {
        now >= self.counts_from
    }

    /// When they will be.
    pub(super) fn counts_from(&self) -> Timestamp {
        self.counts_from
    }

    /// The requests of an older window leave within this many seconds.
    pub(super) fn let_leave(&mut self, now: Timestamp, seconds: f64) {
        let seconds = seconds.min(Tuning::LEAVING_SECONDS_MAX.get()) + self.lag;
        self.counts_from = now + Duration::from_secs_f64(seconds);
    }

    /// Takes the throughput of a tick with the window full.
    pub(super) fn measure(&mut self, full: &Counts) {
        if full.seconds > 0.0 {
            self.meter.on_tick(full);
        }
    }

    /// Throughput with another window is to be measured; a trial may have seen some of it.
    pub(super) fn restart_meter(&mut self, seen: Option<&RateTest>) {
        self.speed.on_new_window();
        self.meter = seen.map(meter_of).unwrap_or_default();
    }

    /// Throughput is what a trial has seen.
    pub(super) fn set_throughput(&mut self, seen: &RateTest) {
        self.meter = meter_of(seen);
    }

    /// What is known is about another service.
    pub(super) fn forget(&mut self) {
        self.profile.forget();
        self.speed.forget_done();
    }

    /// Whether throughput rests on this many completions.
    pub(super) fn rests_on(&self, completions: f64) -> bool {
        self.meter
            .rests_on(completions, Tuning::THROUGHPUT_SECONDS.get())
    }

    /// Whether enough is known of throughput to compare another with it.
    pub(super) fn has_reference(&self, test: &Test) -> bool {
        self.rests_on(test.reference) && self.meter.seconds() >= test.reference_seconds
    }

    /// Mean service time with the window full, in seconds.
    pub(super) fn service_time(&self, rate: f64) -> f64 {
        f64::from(self.window) / rate
    }

    /// Base service time by what was seen below the window, if known.
    pub(super) fn base_below(&self, completions: f64, capacity: f64) -> Option<f64> {
        let most = f64::from(self.window) * Tuning::BASE_BELOW_WINDOW.get();
        self.profile.base(most, completions, capacity)
    }

    /// Requests that the replica holds at its maximal throughput without queueing, if known.
    pub(super) fn knee(&self, rate: f64) -> Option<f64> {
        let capacity = self.speed.unit_rate(rate);
        let base = self.base_below(Tuning::BASE_COMPLETIONS.get(), capacity)?;
        Some(base * capacity)
    }

    /// The window without which a replica that answers in a moment would take turns with the proxy,
    /// where that is larger.
    pub(super) fn larger_for_a_moment(&self, rate: f64) -> Option<f64> {
        let brief = rate * Tuning::WINDOW_MIN_SECONDS.get();
        (self.bounds.nearest(brief) > self.window).then_some(brief)
    }

    /// No request is held up by it: more are served with a larger window.
    pub(super) fn grow(&mut self, now: Timestamp, rate: f64, to: f64) {
        self.let_leave(now, Tuning::LEAVING_UP.get() * self.service_time(rate));
        self.set(to);
        self.restart_meter(None);
    }

    /// The next smaller window to try where no knee is known.
    pub(super) fn smaller(&self) -> f64 {
        (f64::from(self.window) * Tuning::WINDOW_SHRINK.get()).max(Tuning::WINDOW_SHRINK_MIN.get())
    }

    /// No request waits, so no trial can tell; but a window far beyond the knee would only fill up
    /// when capacity falls. The window that is enough, where that is far smaller.
    pub(super) fn enough_unused(&self, tick: &ReplicaTick, rate: f64, knee: f64) -> Option<f64> {
        let least = Tuning::WINDOW_PER_KNEE_TIGHT.get() * knee;
        let enough = roomy(knee, rate * tick.residence_max, least)
            .max(rate * Tuning::WINDOW_MIN_SECONDS.get());
        let worth = f64::from(self.window) * Tuning::WINDOW_WORTH_SHRINKING.get();
        (enough < worth).then_some(enough)
    }

    /// The same while the window has hardly ever been full: what was done with many inside shows
    /// what it takes.
    pub(super) fn enough_unknown(&self, tick: &ReplicaTick) -> Option<(f64, f64)> {
        let rate = self.profile.crowded_rate(Tuning::BASE_COMPLETIONS.get())?;
        let enough = self.enough_unused(tick, rate, self.knee(rate)?)?;
        Some((rate, enough))
    }
}

/// The window for a knee: room to spare as far as the bound leaves any, beside what it takes at
/// least.
pub(super) fn roomy(knee: f64, bound: f64, least: f64) -> f64 {
    bound.clamp(
        least + 1.0,
        Tuning::WINDOW_PER_KNEE_ROOMY.get() * knee + 1.0,
    )
}

/// Throughput as a trial has seen it.
fn meter_of(test: &RateTest) -> DrainMeter {
    let mut meter = DrainMeter::default();
    meter.on_tick(test.counts());
    meter
}

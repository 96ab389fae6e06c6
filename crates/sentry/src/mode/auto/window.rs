//! The window of one replica: the smallest concurrency that keeps its throughput at its maximum.
//!
//! By Little's law a service without queueing inside holds
//!
//! ```text
//! knee = r S
//! ```
//!
//! requests at its maximal throughput `r`, with the base service time `S`
//! ([`Profile`](super::profile::Profile)). What exceeds the knee only queues inside the replica,
//! where nothing can be put in order or taken back; a window below it costs throughput. The knee is
//! a property of the service (its workers), not of its speed: when capacity falls by half, `r`
//! halves and `S` doubles ([`Speed`](super::speed::Speed)).
//!
//! Which step comes next is the search's [`Phase`], and each phase is a file:
//! [`idle`](super::idle), [`slow_start`](super::slow_start), [`searching`](super::searching) and
//! [`settled`](super::settled). They change the [`ReplicaWindow`] and say when another phase is to
//! begin; only [`WindowSearch::enter`] lets it.
//!
//! **Very fast services.** No client notices a wait of a few milliseconds, be it in the queue or in
//! the replica, so no window is smaller than what the replica does in
//! [`Tuning::WINDOW_MIN_SECONDS`]. A smaller one makes proxy and replica take turns, each waking
//! the other for a handful of requests.
//!
//! What breaks it: service times measured on another mix of requests than today's. Throughput is
//! the judge in the end.

mod together;

use tidegate_control::Timestamp;

use super::cause::Cause;
use super::cohort::Cohort;
use super::idle::Idle;
use super::phase::{Outcome, Phase, PhaseName, Transition};
use super::profile::Profile;
use super::replica_window::ReplicaWindow;
use super::trial::Kind;
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
    pub(super) fn nearest(self, window: f64) -> u32 {
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
    /// A request had to wait for it.
    pub(crate) binding: bool,
    /// The replica's part of the requests that wait; without bound in overload.
    pub(crate) queued: f64,
    /// More arrives than can be served.
    pub(crate) overloaded: bool,
    /// The target, in seconds.
    pub(crate) target: f64,
    /// It is configured.
    pub(crate) target_configured: bool,
    /// Most clients abandon, and more of them than are served.
    pub(crate) most_clients_abandon: bool,
    /// So do those of admitted requests.
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

/// The window of one replica: the smallest concurrency that keeps its throughput at its maximum.
#[derive(Debug)]
pub(crate) struct WindowSearch {
    phase: Phase,
    /// Changes of the phase that have not been taken.
    transitions: Vec<Transition>,
    replica: ReplicaWindow,
}

impl WindowSearch {
    pub(crate) fn new(window: u32, bounds: Bounds, now: Timestamp) -> Self {
        let replica = ReplicaWindow::new(window, bounds, now);
        let first = f64::from(replica.window);
        Self {
            phase: Phase::Idle(Idle { first }),
            transitions: Vec::new(),
            replica,
        }
    }

    pub(crate) fn window(&self) -> u32 {
        self.replica.window
    }

    /// The window that stays if what is being tried is of no use.
    pub(crate) fn settled(&self) -> u32 {
        match self.phase.trial() {
            Some(trial) if trial.kind != Kind::Check => trial.from,
            _ => self.replica.window,
        }
    }

    /// Base service time, if that was ever seen.
    pub(crate) fn base(&self) -> Option<f64> {
        let any = f64::INFINITY;
        let profile = &self.replica.profile;
        let base = profile.base(any, Tuning::BASE_COMPLETIONS.get(), any)?;
        Some(base / self.replica.speed.now())
    }

    /// Completions per second with the window full.
    pub(crate) fn rate(&self) -> Option<f64> {
        self.replica.meter.rate()
    }

    /// Takes over changed bounds.
    pub(crate) fn set_bounds(&mut self, bounds: Bounds) {
        self.replica.set_bounds(bounds);
    }

    /// Whether throughput with the window full is capacity.
    pub(crate) fn confirmed(&self) -> bool {
        self.phase.name() == PhaseName::Settled
    }

    pub(super) fn phase(&self) -> PhaseName {
        self.phase.name()
    }

    /// The knee by the throughput at a full window, as an operator is shown it.
    pub(super) fn known_knee(&self) -> Option<f64> {
        let profile = &self.replica.profile;
        let rate = profile.crowded_rate(Tuning::BASE_COMPLETIONS.get())?;
        match &self.phase {
            Phase::Settled(settled) => settled.knee(&self.replica, rate),
            _ => self.replica.knee(rate),
        }
    }

    /// Changes of the phase since the last call.
    pub(super) fn take_transitions(&mut self) -> Vec<Transition> {
        std::mem::take(&mut self.transitions)
    }

    fn enter(&mut self, next: PhaseName, cause: Cause, now: Timestamp) {
        let transition = self.phase.enter(next, cause, now);
        // From the first search on throughput with the window full is measured.
        if next == PhaseName::Searching && transition.from != PhaseName::Settled {
            self.replica.restart_meter(None);
        }
        self.transitions.push(transition);
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
        Some((slow_start.first(), &self.replica.profile))
    }

    /// Takes what was seen in a tick of `seconds`, before [`on_tick`](Self::on_tick).
    pub(crate) fn see(
        &mut self,
        now: Timestamp,
        seconds: f64,
        clumped: bool,
        occupancy: &Occupancy,
    ) -> Counts {
        let replica = &mut self.replica;
        replica.profile.set_clumped(clumped);
        let seen = match self.phase.trial() {
            // What a smaller window shows is for the trial to say.
            Some(trial) if trial.kind == Kind::Down => {
                replica.profile.pass_over(occupancy, now, seconds)
            }
            _ => {
                let speed = replica.speed.now();
                replica.profile.absorb(occupancy, now, seconds, speed)
            }
        };
        replica.speed.on_done(seen);
        seen
    }

    /// Takes a tick in which `seen` was done; says why the window changed if it did.
    pub(super) fn on_tick(
        &mut self,
        tick: &ReplicaTick,
        seen: Counts,
        others: &Others<'_>,
    ) -> Option<Cause> {
        let before = self.replica.window;
        self.replica.on_waiting(tick);
        self.leave_first_phases(tick);
        let replica = &mut self.replica;
        let outcome = match &mut self.phase {
            Phase::Idle(idle) => idle.on_tick(replica, tick),
            Phase::SlowStart(slow_start) => slow_start.on_tick(replica, tick, &seen, others),
            Phase::Searching(searching) => searching.on_tick(replica, tick, &seen),
            Phase::Settled(settled) => settled.on_tick(replica, tick, &seen),
        };
        let cause = self.apply(outcome, tick);
        cause.filter(|_| self.replica.window != before)
    }

    /// The phases before the search may end before they take a tick.
    fn leave_first_phases(&mut self, tick: &ReplicaTick) {
        let end = match &self.phase {
            Phase::Idle(idle) => idle.end(&self.replica, tick),
            Phase::SlowStart(slow_start) => slow_start.end(tick),
            Phase::Searching(_) | Phase::Settled(_) => None,
        };
        if let Some((next, cause)) = end {
            self.enter(next, cause, tick.now);
        }
    }

    /// Lets the phase begin that a tick asks for; says why the window changed.
    fn apply(&mut self, outcome: Outcome, tick: &ReplicaTick) -> Option<Cause> {
        let Some((next, cause)) = outcome.next else {
            return outcome.window;
        };
        let again = self.confirmed();
        self.enter(next, cause, tick.now);
        match &mut self.phase {
            // What took the window for settled has measured this tick; the search goes by that.
            Phase::Searching(searching) if again => {
                let outcome = searching.judge(&mut self.replica, tick);
                self.apply(outcome, tick)
            }
            _ => outcome.window,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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

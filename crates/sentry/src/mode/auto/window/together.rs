//! A window that several engines share: the search sees what all of them did, and one of them
//! searches ([`crate::fleet`]).
//!
//! Of the others no more is known than means over a report, so the profile gets one level per tick:
//! the mean concurrency of all engines together, at which by Little's law the mean service time is
//! right. In overload the windows are full and the level is the window.
//!
//! The others follow what the leader found, and keep profile and throughput meanwhile. One that has
//! to take over goes on from there, and discovers nothing anew.
//!
//! What breaks it: a load that comes and goes within a report. Its levels are smeared.

use std::time::Duration;

use tidegate_control::Timestamp;

use super::WindowSearch;
use crate::counts::Counts;
use crate::fleet::LeadWindow;
use crate::mode::auto::cause::Cause;
use crate::mode::auto::phase::PhaseName;
use crate::mode::auto::trial::Kind;
use crate::mode::auto::tuning::Tuning;
use crate::occupancy::Occupancy;

impl WindowSearch {
    /// How long it takes until the other engines do what this one found.
    pub(in crate::mode::auto) fn set_lag(&mut self, lag: Duration) {
        self.replica.set_lag(lag);
    }

    /// What the search says to other engines.
    pub(in crate::mode::auto) fn lead_window(&self) -> LeadWindow {
        LeadWindow {
            window: self.window(),
            phase: self.phase(),
            tries_less: self.tries_less(),
        }
    }

    /// What this engine did in a tick; the profile gets it with what the others did.
    pub(in crate::mode::auto) fn pass_over(
        &self,
        now: Timestamp,
        seconds: f64,
        occupancy: &Occupancy,
    ) -> Counts {
        self.replica.profile.pass_over(occupancy, now, seconds)
    }

    /// Takes what all engines did in a tick, before the tick.
    pub(in crate::mode::auto) fn see_together(&mut self, seen: Counts) -> Counts {
        let trial = self.phase.trial().map(|trial| trial.kind);
        // What a smaller window shows is for the trial to say.
        let replica = &mut self.replica;
        if trial != Some(Kind::Down) {
            replica.profile.absorb_mean(&seen, replica.speed.now());
        }
        replica.speed.on_done(seen);
        seen
    }

    /// Takes over what the leader has found, and what all engines did with their windows full.
    pub(in crate::mode::auto) fn follow(
        &mut self,
        now: Timestamp,
        lead: &LeadWindow,
        full: &Counts,
    ) -> Option<Cause> {
        // A trial of this engine's own ends: its window is not the one in force.
        self.phase.cancel_trial();
        let replica = &mut self.replica;
        let before = replica.window;
        let bounds = replica.bounds;
        replica.window = lead.window.clamp(bounds.min, bounds.max);
        let changed = replica.window != before;
        if changed {
            replica.restart_meter(None);
            replica.let_leave(now, 0.0);
        }
        self.follow_phase(lead.phase, now);
        if self.replica.counts_at(now) && full.seconds > 0.0 && !lead.tries_less {
            self.replica.measure(full);
            self.follow_speed();
        }
        changed.then_some(Cause::Leader)
    }

    fn follow_phase(&mut self, lead: PhaseName, now: Timestamp) {
        let first = matches!(self.phase(), PhaseName::Idle | PhaseName::SlowStart);
        match lead {
            PhaseName::Idle | PhaseName::SlowStart => return,
            PhaseName::Settled if !first => {}
            PhaseName::Searching if !first && !self.confirmed() => {}
            _ => self.enter(PhaseName::Searching, Cause::Leader, now),
        }
        if lead == PhaseName::Settled && !self.confirmed() {
            self.enter(PhaseName::Settled, Cause::Leader, now);
        }
    }

    fn follow_speed(&mut self) {
        let confirmed = self.confirmed();
        let replica = &mut self.replica;
        if confirmed
            && replica.rests_on(Tuning::SPEED_COMPLETIONS.get())
            && let Some(rate) = replica.meter.rate()
        {
            replica.speed.on_rate(rate);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mode::auto::window::Bounds;

    const BOUNDS: Bounds = Bounds { min: 1, max: 1000 };

    fn at(seconds: f64) -> Timestamp {
        Timestamp::from_secs_f64(seconds)
    }

    fn lead(window: u32, phase: PhaseName) -> LeadWindow {
        LeadWindow {
            window,
            phase,
            tries_less: false,
        }
    }

    /// Ten requests per tick of 0.1 s in a window of 8: 80 ms each.
    fn run(search: &mut WindowSearch, ticks: std::ops::Range<u32>, lead: &LeadWindow) {
        for tick in ticks {
            let seen = Counts {
                inside_seconds: 0.8,
                ..Counts::of(10.0, 0.1)
            };
            search.see_together(seen);
            search.follow(at(f64::from(tick) * 0.1), lead, &Counts::of(10.0, 0.1));
        }
    }

    #[test]
    fn follower_takes_over_window_and_phase_and_knows_the_capacity() {
        let mut search = WindowSearch::new(16, BOUNDS, at(0.0));
        let idle = lead(16, PhaseName::SlowStart);
        assert_eq!(search.follow(at(0.0), &idle, &Counts::default()), None);
        assert_eq!(search.phase(), PhaseName::Idle);
        let found = lead(8, PhaseName::Settled);
        run(&mut search, 1..50, &found);
        assert_eq!((search.window(), search.phase()), (8, PhaseName::Settled));
        assert!(search.rate().is_some_and(|rate| (rate - 100.0).abs() < 1.0));
        // Taken over: what it says is what the leader said.
        assert_eq!(search.lead_window(), found);
        let base = search.base().unwrap();
        assert!((base - 0.08).abs() < 1e-6, "{base}");
    }

    #[test]
    fn follower_searches_again_when_the_leader_does() {
        let mut search = WindowSearch::new(16, BOUNDS, at(0.0));
        run(&mut search, 0..5, &lead(8, PhaseName::Settled));
        run(&mut search, 5..6, &lead(12, PhaseName::Searching));
        assert_eq!(
            (search.window(), search.phase()),
            (12, PhaseName::Searching)
        );
    }

    #[test]
    fn window_of_a_leader_with_other_bounds_is_confined() {
        let mut search = WindowSearch::new(16, Bounds { min: 2, max: 20 }, at(0.0));
        run(&mut search, 0..1, &lead(u32::MAX, PhaseName::Searching));
        assert_eq!(search.window(), 20);
    }
}

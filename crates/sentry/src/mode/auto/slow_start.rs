//! The first window, while nothing is known: it grows by one with every request that is done.
//!
//! A service that waits for others holds hundreds of requests at once, and one that computes a
//! handful. They cannot be told apart by a window of sixteen that is full. So as long as requests
//! wait, each that is done makes room for two (slow start, Jacobson 1988): a wide service is filled
//! within a few service times, since its completions grow with what is inside. Where they do not,
//! no more pile up than were done meanwhile, whatever arrives, and by Little's law service times
//! grow with the pile. Once it has, beyond the chance of work that varies and the bias of a service
//! that fills up (short requests leave first), there is a crowd, and what it takes is about
//!
//! ```text
//! throughput of the crowd x least service time
//! ```
//!
//! That is where the search begins ([`super::window`]); it is no proof. Where a target is
//! configured and requests take too long for it, the search begins with no more than
//!
//! ```text
//! throughput x the time in a replica that the target allows
//! ```
//!
//! which by Little's law is in time. Replicas that are alike are looked at together
//! ([`super::cohort`]).
//!
//! What breaks it: a service that thrashes with a hundred more requests inside than it can bear
//! takes a second or two to work them off.

use tidegate_control::Timestamp;

use super::cause::Cause;
use super::phase::{Outcome, PhaseName};
use super::profile::Profile;
use super::replica_window::ReplicaWindow;
use super::tuning::Tuning;
use super::window::{Others, ReplicaTick};
use crate::counts::Counts;

/// What is to become of the window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Course {
    /// It grows to this.
    Grows(f64),
    /// The first one did as much, or its requests took too long already: then it is what is in
    /// time. What is inside beyond it takes this many seconds.
    First { window: f64, leaving: f64 },
    /// The service is wide, and this is about what it takes.
    Wide { window: f64, leaving: f64 },
}

/// The first window, while nothing is known: it grows by one with every request that is done.
#[derive(Debug)]
pub(super) struct SlowStart {
    first: f64,
    last_binding: Timestamp,
    /// Service times in the first window were found short enough.
    looked: bool,
}

impl SlowStart {
    /// Begins at a window, when a request has to wait for the first time.
    pub(super) fn new(first: f64, now: Timestamp) -> Self {
        Self {
            first,
            last_binding: now,
            looked: false,
        }
    }

    /// Where it began.
    pub(super) fn first(&self) -> f64 {
        self.first
    }

    /// Whether the phase ends before it takes the tick: no request has had to wait for a while.
    pub(super) fn end(&self, tick: &ReplicaTick) -> Option<(PhaseName, Cause)> {
        let over = tick.now > self.last_binding + Tuning::LOAD_ABSENCE.get();
        over.then_some((PhaseName::Searching, Cause::LoadGone))
    }

    /// Lets the first window grow, or ends that.
    pub(super) fn on_tick(
        &mut self,
        replica: &mut ReplicaWindow,
        tick: &ReplicaTick,
        seen: &Counts,
        others: &Others<'_>,
    ) -> Outcome {
        if tick.binding {
            self.last_binding = tick.now;
        }
        let rate = seen.rate();
        if !tick.binding
            || tick.queued < Tuning::QUEUE_PRESSING_OF_TARGET.get() * tick.target * rate
        {
            return grow_for_a_moment(replica, tick, rate);
        }
        let crowd = self.crowd(&replica.profile, others);
        let all = replica.profile.all();
        let target = if tick.target_configured {
            tick.target
        } else {
            f64::INFINITY
        };
        let abandon = tick.most_clients_abandon;
        let window = f64::from(replica.window);
        let course = self.course(window, seen.done, crowd, &all, target, abandon);
        let (to, leaving, cause) = match course {
            Course::Grows(to) => {
                replica.set(to);
                return Outcome::changed(Cause::SlowStart);
            }
            Course::First { window, leaving } => {
                // What was seen of a crowd that filled up is no base, and what is smaller was not
                // seen.
                replica.profile.forget();
                (window, leaving, Cause::FirstWindowEnough)
            }
            Course::Wide { window, leaving } => (window, leaving, Cause::Wide),
        };
        replica.set(to);
        replica.let_leave(tick.now, leaving);
        Outcome::ends(PhaseName::Searching, cause).with_window(cause)
    }

    /// Least service time and throughput of a crowd that this replica has seen, or those like it.
    fn crowd(&self, seen: &Profile, others: &Others<'_>) -> Option<(f64, f64)> {
        let crowd = |seen: &Profile| seen.crowd(Tuning::SLOW_START_COMPLETIONS.get());
        let growing = others.growing;
        let together = growing.and_then(|cohort| cohort.seen_with(self.first, seen));
        let before = || others.stopped?.seen_without(self.first, seen);
        crowd(together.unwrap_or(seen)).or_else(|| crowd(before()?))
    }

    /// Takes what was done in a tick by a window that is not large enough for all that wait. What
    /// ends it: a crowd, of which least service time and throughput are given; service times in
    /// `all` that was seen, at first, that are long against a target in seconds; and clients that
    /// abandon.
    fn course(
        &mut self,
        window: f64,
        done: f64,
        crowd: Option<(f64, f64)>,
        all: &Counts,
        target: f64,
        most_clients_abandon: bool,
    ) -> Course {
        if let Some((least, rate)) = crowd {
            let enough = least * rate;
            if enough <= Tuning::SLOW_START_WIDE.get() * self.first {
                return self.back(window, self.first, rate);
            }
            let leaving = window / rate;
            let window = (Tuning::WINDOW_PER_KNEE_ROOMY.get() * enough).min(window);
            return Course::Wide { window, leaving };
        }
        let first_look = !self.looked && all.done >= Tuning::SLOW_START_COMPLETIONS.get();
        self.looked |= first_look;
        let long = Tuning::SERVICE_TIME_LONG_OF_TARGET.get() * target;
        if most_clients_abandon || (first_look && all.service_time() > long) || at_least(all) > long
        {
            return self.back(window, self.in_time(all, target), all.rate());
        }
        Course::Grows(window + done.min(window))
    }

    /// The first window, or one whose requests are in time at the throughput that was seen.
    fn in_time(&self, all: &Counts, target: f64) -> f64 {
        if all.done < Tuning::FIRST_WINDOW_COMPLETIONS.get() {
            return self.first;
        }
        let in_time = Tuning::SERVICE_TIME_OF_TARGET.get() * target * all.rate();
        self.first.min(in_time.max(Tuning::WINDOW_SHRINK_MIN.get()))
    }

    fn back(&self, window: f64, to: f64, rate: f64) -> Course {
        Course::First {
            window: to,
            leaving: (window - self.first).max(self.first) / rate,
        }
    }
}

/// Few requests wait, or none: the window is only as large as a replica that answers in a moment
/// needs.
fn grow_for_a_moment(replica: &mut ReplicaWindow, tick: &ReplicaTick, rate: f64) -> Outcome {
    let brief = if tick.binding {
        rate * Tuning::WINDOW_MIN_SECONDS.get()
    } else {
        0.0
    };
    replica.set(brief.max(f64::from(replica.window)));
    Outcome::changed(Cause::Fast)
}

/// How long requests take at least, but for chance, before many are done: those in progress have
/// been inside for so long. None was for longer than that took.
fn at_least(all: &Counts) -> f64 {
    let done_at_most = all.done
        + Tuning::EARLY_LOOK_Z.get() * all.done.sqrt()
        + Tuning::EARLY_LOOK_COMPLETIONS.get();
    (all.inside_seconds / done_at_most).min(all.seconds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::occupancy::Occupancy;

    const TICK: f64 = 0.1;

    /// The course of a service that does `rate(n)` per second with `n` inside, while more wait than
    /// fit, and its last window.
    fn end(rate: impl Fn(f64) -> f64, target: f64) -> (Course, f64) {
        let (mut slow_start, mut profile, occupancy) = (
            SlowStart::new(16.0, Timestamp::ZERO),
            Profile::new(),
            Occupancy::new(),
        );
        let (mut window, mut seconds, mut owed) = (16.0, 0.0, 0.0);
        occupancy.on_change(Timestamp::ZERO, 0, u32::MAX);
        loop {
            seconds += TICK;
            owed += rate(window) * TICK;
            let done = owed.floor();
            owed -= done;
            let inside = window as u32;
            occupancy.on_change(Timestamp::from_secs_f64(seconds), inside, u32::MAX);
            (0..done as u32).for_each(|_| occupancy.on_done(inside, u32::MAX));
            profile.absorb(&occupancy, Timestamp::ZERO, TICK, 1.0);
            let (crowd, all) = (
                profile.crowd(Tuning::SLOW_START_COMPLETIONS.get()),
                profile.all(),
            );
            match slow_start.course(window, done, crowd, &all, target, false) {
                Course::Grows(to) if seconds < 10.0 => window = to,
                course => return (course, window),
            }
        }
    }

    /// Sixteen requests of which none is done in three seconds take longer than a second; sixteen
    /// of a tenth of a second may yet take no longer than that.
    #[test]
    fn requests_in_progress_that_take_too_long_end_it_before_one_is_done() {
        let course = |seconds: f64| {
            let none = Counts {
                inside_seconds: 16.0 * seconds,
                ..Counts::of(0.0, seconds)
            };
            let mut slow_start = SlowStart::new(16.0, Timestamp::ZERO);
            slow_start.course(20.0, 0.0, None, &none, 2.0, false)
        };
        assert!(matches!(course(3.0), Course::First { .. }));
        assert_eq!(course(0.1), Course::Grows(20.0));
        assert_eq!(course(0.9), Course::Grows(20.0));
    }

    /// One worker of a second and a target of eight: three requests inside are in time, sixteen
    /// take two targets. Without a target, or with hardly any completions, the first window stays.
    #[test]
    fn first_window_that_takes_too_long_is_cut_to_what_is_in_time() {
        let window = |done: f64, target: f64, abandon: bool| {
            let all = Counts {
                inside_seconds: 16.0 * 5.0,
                ..Counts::of(done, 5.0)
            };
            let mut slow_start = SlowStart::new(16.0, Timestamp::ZERO);
            match slow_start.course(21.0, 1.0, None, &all, target, abandon) {
                Course::First { window, .. } => window,
                course => panic!("{course:?}"),
            }
        };
        assert!((window(5.0, 8.0, false) - 3.2).abs() < 1e-9);
        assert_eq!(window(1.0, 8.0, false), 16.0);
        assert_eq!(window(5.0, f64::INFINITY, true), 16.0);
    }

    #[test]
    fn service_that_does_no_more_with_more_inside_begins_with_the_first_window() {
        let (course, most) = end(|_| 100.0, f64::INFINITY);
        assert!(
            matches!(course, Course::First { leaving, .. } if leaving < 2.0),
            "{course:?}"
        );
        assert!(most < 150.0, "{most} were inside");
    }

    #[test]
    fn service_with_many_workers_is_filled_within_a_few_of_its_residence_times() {
        let (course, _) = end(|n| n.min(200.0) / 0.2, f64::INFINITY);
        let Course::Wide { window, .. } = course else {
            panic!("{course:?}");
        };
        assert!((200.0..=600.0).contains(&window), "{window}");
    }

    #[test]
    fn requests_that_take_too_long_in_the_first_window_end_it() {
        let (course, most) = end(|_| 20.0, 1.0);
        assert!(matches!(course, Course::First { .. }), "{course:?}");
        assert!(most < 48.0, "{most} were inside");
    }
}

//! From what is known to what a newcomer is judged by: how many may be ahead of it, and for how
//! long it may have waited when its turn comes.

use std::time::Duration;

use super::burst::burst;
use super::tuning::Tuning;
use crate::clamp::within;
use crate::class::{NEVER, saturating_nanos};

/// What is known of the service.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Situation {
    /// Requests per second that can be served.
    pub(crate) drain: f64,
    /// Offered load over that, at least 1; and the same with requests as often as they pay
    /// ([`toll`](crate::policing::toll)).
    pub(crate) pressure: f64,
    pub(crate) pressure_with_tolls: f64,
    pub(crate) overloaded: bool,
    /// The queue is of our own making: windows were not known, or a smaller one was tried.
    pub(crate) queue_self_inflicted: bool,
    /// Index of dispersion of what arrives.
    pub(crate) burstiness: f64,
    /// Index of dispersion of what is served.
    pub(crate) dispersion: f64,
    /// Time in a replica: mean, what most and what nearly all stay below.
    pub(crate) residence: f64,
    pub(crate) residence_most: f64,
    pub(crate) residence_nearly_all: f64,
}

/// What of it concerns a class.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part {
    /// Requests per second that the more important classes leave over.
    pub(crate) drain: f64,
    /// Offered load of the class and the more important ones, over all that can be served; and with
    /// tolls.
    pub(crate) pressure: f64,
    pub(crate) pressure_with_tolls: f64,
}

/// What a newcomer is judged by.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Limits {
    /// Waiters ahead with which it is still in time.
    pub(crate) ahead: u32,
    /// The same for requests that pay a toll: where without them there is room for all, they may
    /// not wait as if there were.
    pub(crate) ahead_with_tolls: u32,
    /// Waiting time beyond which it is too late to start, in nanoseconds.
    pub(crate) wait_ns: u64,
    /// Waiting time beyond which it lets the others pass, in nanoseconds.
    pub(crate) late_ns: u64,
}

impl Situation {
    /// The limits of a class with this target.
    pub(crate) fn limits(&self, target: f64, part: Part) -> Limits {
        let wait = |pressure| {
            if self.overloaded {
                self.in_overload(target, pressure)
            } else {
                self.in_a_burst(target)
            }
        };
        let ahead = |wait: f64| {
            let waiters = part.drain * wait.max(Tuning::QUEUE_BUSY_MIN.get() / self.drain);
            // `as` saturates.
            (waiters.ceil() as u32).max(1)
        };
        Limits {
            late_ns: nanos(late_after(target, self.residence_most)),
            ahead: ahead(wait(part.pressure)),
            ahead_with_tolls: ahead(wait(part.pressure_with_tolls)),
            wait_ns: if self.overloaded {
                nanos(self.expiry(target))
            } else {
                NEVER
            },
        }
    }

    /// A request that has waited so long that most would be late is not started, there are fresher
    /// ones.
    fn expiry(&self, target: f64) -> f64 {
        (target - self.residence_most).max(2.0 * Tuning::QUEUE_BUSY_MIN.get() / self.drain)
    }

    /// Longest wait after which most are in time and nearly all not much late.
    fn in_time(&self, target: f64) -> f64 {
        let most = target - self.residence_most;
        most.min(Tuning::ANSWERED_LATER_OF_TARGET.get() * target - self.residence_nearly_all)
    }

    /// As many wait as keep the replicas busy, whatever the target: with more all would be
    /// answered later and none more. But a class for which, with the more important ones, there
    /// is room enough is not overloaded: its bursts are waited for as long as they are in time.
    fn in_overload(&self, target: f64, pressure: f64) -> f64 {
        let busy = if pressure > 1.0 {
            busy_requests(pressure) * self.dispersion / self.drain
        } else {
            f64::INFINITY
        };
        self.in_time(target).min(busy)
    }

    fn in_a_burst(&self, target: f64) -> f64 {
        if self.queue_self_inflicted {
            return f64::INFINITY;
        }
        (burst(self.drain, self.burstiness, self.dispersion) / self.drain)
            .max(Tuning::BURST_TARGETS.get() * target)
    }
}

/// Wait after which most would be late, so that others are let pass. Where none can be in time
/// there is nothing to be gained by that before half of the target has passed.
pub(crate) fn late_after(target: f64, residence_most: f64) -> f64 {
    (target - residence_most).max(Tuning::YIELD_OF_TARGET_MIN.get() * target)
}

/// The same while capacity is unknown.
pub(crate) fn late_at_first(target: f64, residence_most: f64) -> f64 {
    (target - residence_most).max(Tuning::YIELD_OF_TARGET_MIN_FIRST.get() * target)
}

/// With `rho` times the capacity arriving, a queue of at most `k` is empty for about `rho^-k` of
/// the time (M/M/1/K). In heavy traffic queues grow in proportion to the dispersion (Kingman 1961).
fn busy_requests(pressure: f64) -> f64 {
    within(
        -Tuning::QUEUE_IDLE.get().ln() / pressure.ln(),
        Tuning::QUEUE_BUSY_MIN.get(),
        Tuning::QUEUE_BUSY_MAX.get(),
    )
}

pub(crate) fn nanos(seconds: f64) -> u64 {
    saturating_nanos(Duration::from_secs_f64(within(seconds, 0.0, 1e9)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn situation(overloaded: bool) -> Situation {
        Situation {
            drain: 100.0,
            pressure: 4.0,
            pressure_with_tolls: 4.0,
            overloaded,
            queue_self_inflicted: false,
            burstiness: 1.0,
            dispersion: 1.0,
            residence: 0.02,
            residence_most: 0.06,
            residence_nearly_all: 0.09,
        }
    }

    fn part(pressure: f64) -> Part {
        Part {
            drain: 100.0,
            pressure,
            pressure_with_tolls: 2.0 * pressure,
        }
    }

    #[test]
    fn queue_is_shorter_the_more_arrives() {
        let ahead = |pressure| situation(true).limits(0.5, part(pressure)).ahead;
        assert!(ahead(1.1) > ahead(2.0) && ahead(2.0) > ahead(4.0));
        assert!(ahead(1000.0) >= 2);
    }

    #[test]
    fn class_with_room_waits_as_long_as_it_is_in_time() {
        let ahead = |pressure| situation(true).limits(0.5, part(pressure)).ahead;
        assert_eq!(ahead(0.8), 44, "half a second less the residence of most");
        assert!(ahead(0.8) > ahead(1.1));
    }

    #[test]
    fn who_pays_for_the_overload_waits_less() {
        let limits = situation(true).limits(0.5, part(0.8));
        assert!(limits.ahead_with_tolls < limits.ahead, "{limits:?}");
    }

    #[test]
    fn burst_waits_and_never_expires() {
        let calm = situation(false).limits(0.2, part(1.0));
        assert_eq!(f64::from(calm.ahead), burst(100.0, 1.0, 1.0).ceil());
        assert_eq!(calm.wait_ns, NEVER);
        // Two targets are waited for anyway.
        assert_eq!(situation(false).limits(5.0, part(1.0)).ahead, 1000);
    }

    #[test]
    fn nobody_is_refused_for_a_queue_of_our_own_making() {
        let ours = Situation {
            queue_self_inflicted: true,
            ..situation(false)
        };
        assert_eq!(ours.limits(0.2, part(1.0)).ahead, u32::MAX);
    }

    #[test]
    fn others_are_let_pass_when_most_would_be_late() {
        assert_eq!(late_after(0.5, 0.06), 0.44);
        assert_eq!(late_after(0.5, 4.0), 0.25, "nobody is in time anyway");
        assert_eq!(late_at_first(0.5, 0.06), 0.44);
        assert_eq!(late_at_first(0.5, 4.0), 0.125, "a pile is worked off");
    }

    #[test]
    fn target_that_cannot_be_met_still_keeps_the_service_busy() {
        let slow = Situation {
            residence: 2.0,
            residence_most: 4.0,
            residence_nearly_all: 6.0,
            ..situation(true)
        };
        assert_eq!(slow.limits(0.5, part(3.0)).ahead, 2);
        assert!(slow.limits(0.5, part(3.0)).wait_ns > 0);
    }

    #[test]
    fn nothing_is_left_for_a_class_below_a_full_one() {
        let part = Part {
            drain: 2.0,
            ..part(4.0)
        };
        assert_eq!(situation(true).limits(0.5, part).ahead, 1);
    }

    #[test]
    fn busy_by_the_formula_of_the_bounded_queue() {
        // 2^-k = 1 %.
        assert!((busy_requests(2.0) - 6.64).abs() < 0.01);
        assert_eq!(busy_requests(1.0), Tuning::QUEUE_BUSY_MAX.get());
    }
}

//! A burst, or more than the service can do?
//!
//! A queue that is longer than the target allows can be either. Random arrivals at four fifths of
//! capacity pile up as well now and then (a backlog of `b` requests has a chance of about `0.8^b`,
//! more with irregular service), and then the right thing is to wait: nothing is refused while
//! the service has room. So a long queue alone counts as a burst until
//!
//! - more arrived than could be served, by more than chance allows ([`Counts::z_above`]), over some
//!   recent time, where chance is as bursty as arrivals were before that; or
//! - the queue is beyond the target, and the load of the last while leaves no room for bursts; or
//! - it is beyond the target, and longer than chance brings about ([`burst`]).
//!
//! The last does not hold for a queue of our own making: while windows are not known yet, or a
//! smaller one is being tried, requests wait because of that. No request is shed for the length of
//! such a queue until it has been worked off; what arrives is compared with what could be served
//! before.
//!
//! A fixed number of clients that ask again as soon as they are answered is always exactly as much
//! as can be served. They wait for each other, and are refused only if that takes longer than the
//! target. That they have all come at once is no excess: while the queue that this has made is in
//! time, a stretch is looked at without the two ticks that brought most.
//!
//! It is over when arrivals have been within capacity and the queue short for a second.

use super::burst::burst;
use super::significance::Significance;
use super::tick_counts::TickCounts;
use super::tuning::Tuning;
use crate::counts::Counts;

/// What is looked at every tick.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pressure {
    /// Arrivals of the tick, those that pay a toll ([`toll`](crate::policing::toll)) as often as
    /// they pay.
    pub(crate) arrived: Counts,
    /// Requests per second that can be served, and how long it took to measure that.
    pub(crate) drain: f64,
    pub(crate) drain_seconds: f64,
    pub(crate) dispersion: f64,
    /// The target, in seconds.
    pub(crate) target: f64,
    /// Requests that wait.
    pub(crate) queued: f64,
    /// A window that may be too small is being tried.
    pub(crate) queue_self_inflicted: bool,
}

impl Pressure {
    /// Time to drain the queue, over the target.
    fn backlog(&self) -> f64 {
        self.queued / self.drain / self.target
    }

    /// Whether arrivals exceed what can be served, where those are bursty beyond Poisson.
    fn is_exceeded(&self, arrivals: &Counts, test: Significance, burstiness: f64) -> bool {
        let dispersion = self.dispersion.max(1.0).max(burstiness);
        test.is_above(arrivals, &self.served(), dispersion)
    }

    /// What the drain rate rests on.
    fn served(&self) -> Counts {
        let seconds = self.drain_seconds.max(f64::MIN_POSITIVE);
        Counts::of(self.drain * seconds, seconds)
    }
}

/// A burst, or more than the service can do?
#[derive(Debug)]
pub(crate) struct Overload {
    overloaded: bool,
    arrivals: TickCounts,
    /// The queue is of our own making, and has not been worked off.
    queue_self_inflicted: bool,
    quiet_seconds: f64,
    /// Index of dispersion of what arrives.
    burstiness: f64,
    /// The same as gaps between arrivals show it.
    clump_dispersion: f64,
}

impl Overload {
    pub(crate) fn new() -> Self {
        Self {
            overloaded: false,
            arrivals: TickCounts::new(Tuning::LOAD_PERIOD.ticks()),
            queue_self_inflicted: true,
            quiet_seconds: 0.0,
            burstiness: 1.0,
            clump_dispersion: 1.0,
        }
    }

    pub(crate) fn is_overloaded(&self) -> bool {
        self.overloaded
    }

    /// Requests arrived per second lately, each as often as it counts.
    pub(crate) fn arrival_rate(&self) -> f64 {
        self.arrivals.rate_over(Tuning::RATE_PERIOD.ticks())
    }

    /// Whether the load of the last while leaves room, so that a long queue can be a burst.
    fn has_room(&self, pressure: &Pressure) -> bool {
        !self.arrivals.is_full()
            || !pressure.is_exceeded(
                &self.arrivals.total(),
                Tuning::LOAD_WITHOUT_ROOM.get(),
                self.burstiness,
            )
    }

    /// Counts arrivals while nothing is known to compare them with.
    pub(crate) fn on_arrivals(&mut self, arrived: Counts) {
        self.count(arrived);
        self.queue_self_inflicted = true;
    }

    fn count(&mut self, arrived: Counts) {
        self.arrivals.push(arrived);
        self.burstiness = if self.clump_dispersion > 1.0 {
            self.arrivals
                .dispersion(Tuning::OVERLOAD_PERIOD.ticks())
                .max(self.clump_dispersion)
        } else {
            1.0
        };
    }

    /// Takes the index of dispersion of arrivals that gaps between them show.
    pub(crate) fn set_clump_dispersion(&mut self, dispersion: f64) {
        self.clump_dispersion = dispersion;
    }

    /// Index of dispersion of what arrives, as far as it is beyond chance; 1 for Poisson.
    pub(crate) fn burstiness(&self) -> f64 {
        self.burstiness
    }

    /// Whether the queue is of our own making.
    pub(crate) fn queue_is_self_inflicted(&self) -> bool {
        self.queue_self_inflicted
    }

    pub(crate) fn on_tick(&mut self, pressure: &Pressure) {
        self.count(pressure.arrived);
        let backlog = pressure.backlog();
        let long = backlog > Tuning::QUEUE_LONG_OF_TARGET.get();
        self.queue_self_inflicted =
            pressure.queue_self_inflicted || (self.queue_self_inflicted && long);
        let quiet =
            backlog < Tuning::QUEUE_QUIET_OF_TARGET.get() && self.arrival_rate() < pressure.drain;
        count(&mut self.quiet_seconds, quiet, pressure.arrived.seconds);
        if self.overloaded {
            self.overloaded = self.quiet_seconds < Tuning::QUIET_SECONDS.get();
        } else if long {
            self.overloaded = self.is_no_burst(pressure) || self.exceeds(pressure);
        }
    }

    /// Whether the queue is beyond the target, and there is no room for bursts or the queue is
    /// longer than they are.
    fn is_no_burst(&self, pressure: &Pressure) -> bool {
        let longer =
            || pressure.queued > burst(pressure.drain, self.burstiness, pressure.dispersion);
        pressure.backlog() > 1.0
            && (!self.has_room(pressure) || (!self.queue_self_inflicted && longer()))
    }

    /// Whether some stretch of the recent past brought more than can be served; while all are in
    /// time, without a crowd that came at once.
    fn exceeds(&self, pressure: &Pressure) -> bool {
        let more = |stretch: Counts| {
            pressure.is_exceeded(&stretch, Tuning::OVERLOAD_EXCESS.get(), self.burstiness)
        };
        if pressure.backlog() > 1.0 {
            self.arrivals
                .stretches(Tuning::OVERLOAD_PERIOD.ticks())
                .any(more)
        } else {
            self.arrivals
                .stretches_without_crowd(Tuning::OVERLOAD_PERIOD.ticks())
                .any(more)
        }
    }
}

fn count(seconds: &mut f64, holds: bool, tick: f64) {
    *seconds = if holds { *seconds + tick } else { 0.0 };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A hundred requests per second can be served, so that a target is worth fifty.
    fn pressure(arrived: f64, backlog: f64) -> Pressure {
        Pressure {
            arrived: Counts::of(arrived, 0.1),
            drain: 100.0,
            drain_seconds: 10.0,
            dispersion: 1.0,
            target: 0.5,
            queued: 50.0 * backlog,
            queue_self_inflicted: false,
        }
    }

    /// With a queue of one and a half targets that grows by what cannot be served.
    fn ticks_until_overloaded(arrived: f64) -> u32 {
        let mut overload = Overload::new();
        (0..40).for_each(|_| overload.on_tick(&pressure(8.0, 0.0)));
        (1..100)
            .find(|&tick| {
                let beyond = f64::from(tick - 1) * (arrived - 10.0) / 50.0;
                overload.on_tick(&pressure(arrived, 1.5 + beyond));
                overload.is_overloaded()
            })
            .unwrap()
    }

    #[test]
    fn larger_the_excess_the_sooner_it_is_known() {
        assert_eq!(ticks_until_overloaded(100.0), 1);
        assert!(ticks_until_overloaded(20.0) <= 4);
        assert!(ticks_until_overloaded(12.0) <= 30);
    }

    #[test]
    fn burst_that_fits_is_no_overload() {
        let mut overload = Overload::new();
        (0..40).for_each(|_| overload.on_tick(&pressure(8.0, 0.5)));
        overload.on_tick(&pressure(20.0, 1.2));
        (0..5).for_each(|_| overload.on_tick(&pressure(8.0, 1.1)));
        assert!(!overload.is_overloaded());
    }

    /// Forty come at once, and from then on as many as are served: they wait for each other.
    #[test]
    fn crowd_that_is_in_time_is_no_overload_however_it_came() {
        let mut overload = Overload::new();
        (0..40).for_each(|_| overload.on_tick(&pressure(0.0, 0.0)));
        overload.on_tick(&pressure(50.0, 0.8));
        (0..400).for_each(|_| overload.on_tick(&pressure(10.0, 0.8)));
        assert!(!overload.is_overloaded());
        // Twice as many are more than a crowd.
        (0..10).for_each(|_| overload.on_tick(&pressure(20.0, 0.9)));
        assert!(overload.is_overloaded());
    }

    #[test]
    fn queue_that_chance_does_not_bring_about_is_no_burst() {
        let mut overload = Overload::new();
        (0..200).for_each(|_| overload.on_tick(&pressure(8.0, 0.4)));
        overload.on_tick(&pressure(8.0, 2.0));
        assert!(!overload.is_overloaded());
        overload.on_tick(&pressure(8.0, 3.0));
        assert!(overload.is_overloaded());
    }

    #[test]
    fn queue_of_our_own_making_is_no_evidence_until_it_is_worked_off() {
        let mut overload = Overload::new();
        let trial = Pressure {
            queue_self_inflicted: true,
            ..pressure(8.0, 3.0)
        };
        (0..20).for_each(|_| overload.on_tick(&trial));
        (0..20).for_each(|_| overload.on_tick(&pressure(8.0, 3.0)));
        assert!(overload.queue_is_self_inflicted() && !overload.is_overloaded());
        overload.on_tick(&pressure(8.0, 0.4));
        overload.on_tick(&pressure(8.0, 3.0));
        assert!(!overload.queue_is_self_inflicted() && overload.is_overloaded());
    }

    #[test]
    fn what_arrives_is_evidence_whatever_the_queue_is() {
        let mut overload = Overload::new();
        (0..40).for_each(|_| overload.on_arrivals(Counts::of(8.0, 0.1)));
        (0..10).for_each(|_| overload.on_tick(&pressure(40.0, 3.0)));
        assert!(overload.queue_is_self_inflicted() && overload.is_overloaded());
    }

    #[test]
    fn load_without_room_is_no_overload_while_all_are_in_time() {
        let mut overload = Overload::new();
        (0..400).for_each(|_| overload.on_tick(&pressure(11.0, 0.8)));
        assert!(!overload.is_overloaded());
        overload.on_tick(&pressure(11.0, 1.1));
        assert!(overload.is_overloaded());
    }

    #[test]
    fn it_ends_when_the_queue_is_short_for_a_while() {
        let mut overload = Overload::new();
        (0..10).for_each(|_| overload.on_tick(&pressure(50.0, 2.0)));
        assert!(overload.is_overloaded());
        (0..9).for_each(|_| overload.on_tick(&pressure(8.0, 0.1)));
        assert!(overload.is_overloaded());
        // The arrival rate of the last second has to fall first, then a second of quiet.
        (0..20).for_each(|_| overload.on_tick(&pressure(8.0, 0.1)));
        assert!(!overload.is_overloaded());
    }
}

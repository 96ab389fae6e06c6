//! The upstream's virtual clock: exact service on late timers.
//!
//! Service takes time, not CPU, so that what a replica can do does not depend on the machine. A
//! runtime's timers fire up to some milliseconds late; were each service started when the timer
//! of the one before fires, capacity would shrink by that much. Here completions are computed
//! instead ([`Station`]): whenever the core is called at real time `t`, it works off everything
//! that was to happen up to `t` at the exact time it was due, successors included. Throughput and
//! busy time are then exact, and an answer is merely handed over late (see
//! [`Stats::late_ms_max`]).
//!
//! What breaks it: nothing called for so long that answers come later than a client waits.

use std::time::Duration;

use serde::Serialize;
use tidegate_control::Timestamp;
use tidegate_sim::rng::{SimRng, Streams};
use tidegate_sim::server::{Bound, JobId, Station};
use tidegate_sim::service::Law;

use super::config::{AppConfig, Checked};

/// Ramps of the capacity schedule become steps of this length.
const RAMP_STEP: Duration = Duration::from_millis(100);

/// A request inside; `R` is how its client is told.
#[derive(Debug)]
struct Visit<R> {
    reply: R,
    arrived: Timestamp,
    work: f64,
}

/// A request that was served, at the exact time at which that was.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Served {
    pub(super) at: Timestamp,
    /// How long it was inside.
    pub(super) took: Duration,
}

/// The state of one upstream. Time comes in with every call.
#[derive(Debug)]
pub(super) struct Core<R> {
    station: Station<Visit<R>>,
    service: Law,
    optional: f64,
    cancel: bool,
    workers: u32,
    /// Changes of speed still to come, the next one last.
    speeds: Vec<(Timestamp, f64)>,
    rng: SimRng,
    counts: Counts,
}

/// What has happened so far; see [`Stats`] for the meaning of each.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    arrivals: u64,
    completions: u64,
    refused: u64,
    abandoned: u64,
    wasted: u64,
    degraded: u64,
    concurrency_max: u64,
    work_s: f64,
    sojourn_s: f64,
    late_s: f64,
    late_s_max: f64,
}

/// Counts on the virtual clock: exact whatever the machine does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Stats {
    /// Seconds since the upstream started.
    pub time_s: f64,
    /// Requests that came.
    pub arrivals: u64,
    /// Requests served to the end, abandoned ones included.
    pub completions: u64,
    /// Requests refused because the queue was full.
    pub refused: u64,
    /// Clients that left before their answer.
    pub abandoned: u64,
    /// Requests served after their client had left.
    pub wasted: u64,
    /// Requests served without optional content.
    pub degraded: u64,
    /// Being worked on now.
    pub in_service: u64,
    /// Waiting now.
    pub waiting: u64,
    /// Most that were inside at once.
    pub concurrency_max: u64,
    /// Worker seconds used, whatever the speed.
    pub busy_s: f64,
    /// Work completed, in worker seconds at nominal speed.
    pub work_s: f64,
    /// Mean time inside of the requests completed.
    pub sojourn_ms_mean: f64,
    /// Mean delay of answers by the machine's timers.
    pub late_ms_mean: f64,
    /// The longest such delay; as long as a service time means the machine is too busy to trust.
    pub late_ms_max: f64,
}

impl<R> Core<R> {
    pub(super) fn new(config: &AppConfig) -> Self {
        let mut station = Station::new(&config.station());
        station.set_speed(Timestamp::ZERO, config.speed.value_at(0.0));
        let mut speeds = config.speed.steps(RAMP_STEP);
        speeds.reverse();
        Self {
            station,
            service: config.service.clone(),
            optional: config.optional.0,
            cancel: config.cancel,
            workers: config.workers.get(),
            speeds,
            rng: Streams::new(config.seed).stream("app/service"),
            counts: Counts::default(),
        }
    }

    /// A request arrives. `factor` is how many times the usual work it is.
    ///
    /// Gives the reply back when the queue is full.
    pub(super) fn on_arrival(
        &mut self,
        now: Timestamp,
        factor: f64,
        with_optional: bool,
        reply: R,
    ) -> Result<JobId, R> {
        self.counts.arrivals += 1;
        // Drawn for every arrival, refused or not: the same seed gives the same request the
        // same work under every protection.
        let drawn = factor * self.service.sample(&mut self.rng);
        let work = if with_optional || self.optional == 0.0 {
            drawn
        } else {
            self.counts.degraded += 1;
            drawn * (1.0 - self.optional)
        };
        let visit = Visit {
            reply,
            arrived: now,
            work,
        };
        let entered = self.station.arrive(now, visit, work);
        self.counts.refused += u64::from(entered.is_err());
        let inside = self.station.len() as u64;
        self.counts.concurrency_max = self.counts.concurrency_max.max(inside);
        entered.map_err(|visit| visit.reply)
    }

    /// The client of a job left. Its work is finished all the same, unless told otherwise.
    pub(super) fn on_abandon(&mut self, now: Timestamp, job: JobId) {
        self.counts.abandoned += 1;
        if self.cancel {
            self.station.cancel(now, job);
        }
    }

    /// When something is due next.
    pub(super) fn poll_timeout(&self) -> Option<Timestamp> {
        let speed = self.speeds.last().map(|(at, _)| *at);
        match (self.station.next_completion(), speed) {
            (Some(completion), Some(speed)) => Some(completion.min(speed)),
            (completion, speed) => completion.or(speed),
        }
    }

    /// Works off everything due until `now`; `deliver` returns whether the client was still there.
    pub(super) fn advance(&mut self, now: Timestamp, deliver: &mut impl FnMut(R, Served) -> bool) {
        while let Some(at) = self.poll_timeout().filter(|at| *at <= now) {
            match self.speeds.pop_if(|(change, _)| *change <= at) {
                Some((_, speed)) => self.station.set_speed(at, speed),
                None => self.complete(at, now, deliver),
            }
        }
    }

    fn complete(
        &mut self,
        at: Timestamp,
        now: Timestamp,
        deliver: &mut impl FnMut(R, Served) -> bool,
    ) {
        let Some(visit) = self.station.finish(at) else {
            return;
        };
        let late_s = (now - at).as_secs_f64();
        let counts = &mut self.counts;
        counts.completions += 1;
        counts.work_s += visit.work;
        let took = at - visit.arrived;
        counts.sojourn_s += took.as_secs_f64();
        counts.late_s += late_s;
        counts.late_s_max = counts.late_s_max.max(late_s);
        let delivered = deliver(visit.reply, Served { at, took });
        self.counts.wasted += u64::from(!delivered);
    }

    /// Changes what `checked` names, from `now` on; requests inside keep the work they came with.
    pub(super) fn apply(&mut self, now: Timestamp, checked: &Checked) {
        if let Some(workers) = checked.workers {
            self.workers = workers.get();
            self.station.set_slots(now, Bound::Limited(workers.get()));
        }
        if let Some(speed) = checked.speed {
            self.station.set_speed(now, speed);
        }
        if let Some(service) = &checked.service {
            self.service = service.clone();
        }
        self.optional = checked.optional.unwrap_or(self.optional);
        self.cancel = checked.cancel.unwrap_or(self.cancel);
    }

    /// Whether it has optional content that could be left out.
    pub(super) fn has_optional(&self) -> bool {
        self.optional > 0.0
    }

    /// Worker seconds used since the start, and how many workers there are.
    pub(super) fn busy(&self, now: Timestamp) -> (f64, f64) {
        (self.station.busy(now), f64::from(self.workers))
    }

    /// The counts at `now`, up to which [`advance`](Self::advance) was called.
    pub(super) fn stats(&self, now: Timestamp) -> Stats {
        let counts = &self.counts;
        let per_completion = |seconds: f64| 1e3 * seconds / counts.completions.max(1) as f64;
        Stats {
            time_s: now.as_secs_f64(),
            arrivals: counts.arrivals,
            completions: counts.completions,
            refused: counts.refused,
            abandoned: counts.abandoned,
            wasted: counts.wasted,
            degraded: counts.degraded,
            in_service: self.station.in_service() as u64,
            waiting: self.station.waiting() as u64,
            concurrency_max: counts.concurrency_max,
            busy_s: self.station.busy(now),
            work_s: counts.work_s,
            sojourn_ms_mean: per_completion(counts.sojourn_s),
            late_ms_mean: per_completion(counts.late_s),
            late_ms_max: 1e3 * counts.late_s_max,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::config::{Discipline, Params};
    use super::*;
    use std::num::NonZeroU32;
    use tidegate_config::Share;
    use tidegate_sim::workload::Schedule;
    use tidegate_sim::workload::schedule::Point;

    fn config(workers: u32, service: Law) -> AppConfig {
        AppConfig::new(NonZeroU32::new(workers).unwrap(), service)
    }

    fn ms(ms: u64) -> Timestamp {
        Timestamp::from_nanos(ms * 1_000_000)
    }

    /// Advances to `now` and returns who was served when, in milliseconds.
    fn served(core: &mut Core<u64>, now: Timestamp) -> Vec<(u64, u64)> {
        let mut served = Vec::new();
        core.advance(now, &mut |id, done: Served| {
            served.push((id, done.at.as_nanos() / 1_000_000));
            true
        });
        served
    }

    fn arrive(core: &mut Core<u64>, now: Timestamp, id: u64) -> JobId {
        core.on_arrival(now, 1.0, true, id).unwrap()
    }

    #[test]
    fn late_call_costs_no_capacity() {
        let mut core = Core::new(&config(1, Law::constant(0.01)));
        for id in 0..100 {
            arrive(&mut core, Timestamp::ZERO, id);
        }
        // The timer of the first completion fires half a second late.
        let all = served(&mut core, ms(510));
        assert_eq!(all.len(), 51);
        assert_eq!(all[0], (0, 10));
        assert_eq!(all[50], (50, 510));
        let stats = core.stats(ms(510));
        assert_eq!((stats.in_service, stats.waiting), (1, 48));
        assert!((stats.busy_s - 0.51).abs() < 1e-9);
        assert!((stats.late_ms_max - 500.0).abs() < 1e-6);
    }

    #[test]
    fn capacity_schedule_bites_in_the_middle_of_a_service() {
        let mut config = config(1, Law::constant(0.1));
        let point = |at_ms, value| Point {
            at: Duration::from_millis(at_ms).into(),
            value,
            ramp: false,
        };
        config.speed = Schedule::new(&[point(0, 1.0), point(50, 0.5)]).unwrap();
        let mut core = Core::new(&config);
        arrive(&mut core, Timestamp::ZERO, 7);
        assert_eq!(core.poll_timeout(), Some(ms(50)));
        assert_eq!(served(&mut core, ms(1000)), [(7, 150)]);
    }

    #[test]
    fn work_for_a_client_that_left_is_wasted_unless_cancelled() {
        for (cancel, second_at) in [(false, 200), (true, 130)] {
            let mut config = config(1, Law::constant(0.1));
            config.cancel = cancel;
            let mut core = Core::new(&config);
            let first = arrive(&mut core, Timestamp::ZERO, 1);
            arrive(&mut core, Timestamp::ZERO, 2);
            core.on_abandon(ms(30), first);
            let all = served(&mut core, ms(1000));
            assert_eq!(*all.last().unwrap(), (2, second_at));
            assert_eq!(core.stats(ms(1000)).abandoned, 1);
        }
    }

    #[test]
    fn optional_content_costs_its_share() {
        let mut config = config(1, Law::constant(0.1));
        config.optional = Share(0.6);
        let mut core = Core::new(&config);
        core.on_arrival(Timestamp::ZERO, 1.0, false, 1).unwrap();
        core.on_arrival(Timestamp::ZERO, 2.0, true, 2).unwrap();
        assert_eq!(served(&mut core, ms(1000)), [(1, 40), (2, 240)]);
        assert_eq!(core.stats(ms(1000)).degraded, 1);
    }

    #[test]
    fn full_queue_refuses() {
        let mut config = config(1, Law::constant(0.1));
        config.queue = Bound::Limited(1);
        let mut core = Core::new(&config);
        arrive(&mut core, Timestamp::ZERO, 1);
        arrive(&mut core, Timestamp::ZERO, 2);
        assert_eq!(core.on_arrival(Timestamp::ZERO, 1.0, true, 3), Err(3));
        let stats = core.stats(Timestamp::ZERO);
        assert_eq!((stats.arrivals, stats.refused), (3, 1));
        assert_eq!(stats.concurrency_max, 2);
    }

    #[test]
    fn workers_and_law_change_while_it_runs() {
        let config = config(1, Law::constant(0.1));
        let mut core = Core::new(&config);
        for id in 0..3 {
            arrive(&mut core, Timestamp::ZERO, id);
        }
        let params = Params {
            workers: NonZeroU32::new(3),
            service: Some("det:10ms".to_owned()),
            ..Params::default()
        };
        core.apply(ms(50), &params.check(Discipline::Fifo).unwrap());
        arrive(&mut core, ms(100), 3);
        assert_eq!(served(&mut core, ms(120)), [(0, 100), (3, 110)]);
        assert_eq!(served(&mut core, ms(200)), [(1, 150), (2, 150)]);
    }

    #[test]
    fn sharing_slows_everybody_alike() {
        let mut config = config(1, Law::constant(0.1));
        config.discipline = Discipline::Sharing {
            at_once: Bound::Unlimited,
        };
        let mut core = Core::new(&config);
        arrive(&mut core, Timestamp::ZERO, 1);
        arrive(&mut core, ms(50), 2);
        assert_eq!(served(&mut core, ms(1000)), [(1, 150), (2, 200)]);
    }
}

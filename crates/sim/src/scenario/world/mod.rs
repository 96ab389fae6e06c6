//! The running scenario, event by event.

mod clock;
mod life;
mod plant;

use std::num::NonZeroU32;
use std::time::Duration;

use tidegate_control::Timestamp;
use tidegate_sentry::{Observer, ReplicaId};

use super::load::{Attempt, Load};
use super::outcome::Outcome;
use super::protector::{Protector, RequestId, Wakes};
use super::recorder::Recorder;
use super::replica::Replica;
use super::spec::{ReplicaSpec, Scenario, ScenarioError};
use crate::engine::{self, Calendar, EventId, Model};
use crate::rng::Streams;
use crate::server::JobId;
use crate::slab::Slab;

/// A ramp of capacity becomes steps of this length.
const RAMP_STEP: Duration = Duration::from_millis(100);

#[derive(Debug, Clone, Copy)]
enum Event {
    /// An arrival of an open loop.
    Arrive {
        load: usize,
    },
    /// A user of a closed loop has thought.
    Ready {
        load: usize,
    },
    /// A client tries again.
    Retry(Attempt),
    /// A client's patience ends.
    Timeout(RequestId),
    /// A stream, or slow reading, ends.
    TailEnd(RequestId),
    /// A replica has done a job.
    Complete {
        replica: usize,
    },
    /// A replica's speed changes.
    Speed {
        replica: usize,
        speed: f64,
    },
    Die {
        replica: usize,
    },
    Return {
        replica: usize,
    },
    /// The pool changes.
    Pool {
        replica: usize,
        step: PoolStep,
    },
    /// A health check notices how a replica is.
    Health {
        replica: usize,
    },
    /// Replicas report their utilization.
    Report,
    /// The protector's timer.
    Timer,
    /// An interval of the record ends.
    Interval,
}

/// What happens to a replica's place in the pool.
#[derive(Debug, Clone, Copy)]
enum PoolStep {
    /// It has started, and is to carry so much.
    Enter(NonZeroU32),
    /// It is to carry so much from now on.
    Weigh(NonZeroU32),
    Drain,
    Undrain,
    Leave,
}

#[derive(Debug)]
struct Request {
    attempt: Attempt,
    arrived: Timestamp,
    dispatched: Timestamp,
    /// Whether optional content is included.
    full: bool,
    /// It was admitted to a replica that turned out to be dead, and waits again.
    returned: bool,
    stage: Stage,
    /// The end of the client's patience, or of the tail.
    alarm: Option<EventId>,
}

#[derive(Debug, Clone, Copy)]
enum Stage {
    /// Waiting for the protector.
    Waiting,
    /// Waiting or in service in a replica.
    Working { replica: usize, job: JobId },
    /// Streamed or read; `job` is the slot it keeps taken.
    Tail { replica: usize, job: Option<JobId> },
}

struct World<'a> {
    scenario: &'a Scenario,
    protector: &'a mut dyn Protector,
    observer: &'a mut dyn Observer,
    loads: Vec<Load>,
    replicas: Vec<Replica>,
    requests: Slab<Request>,
    wakes: Wakes,
    timer: Option<(Timestamp, EventId)>,
    next_report: Timestamp,
    recorder: Recorder,
}

/// Runs a checked scenario.
pub(super) fn run(
    scenario: &Scenario,
    streams: Streams,
    protector: &mut dyn Protector,
    observer: &mut dyn Observer,
) -> Result<Outcome, ScenarioError> {
    let mut calendar = Calendar::new();
    let mut world = World::new(scenario, &streams, protector, observer)?;
    world.begin(&mut calendar);
    let end = Timestamp::ZERO + scenario.duration.0;
    let simulated = engine::run(&mut world, &mut calendar, end);
    let unfinished = world.requests.len() as u64;
    Ok(world.recorder.finish(scenario, simulated, unfinished))
}

impl<'a> World<'a> {
    fn new(
        scenario: &'a Scenario,
        streams: &Streams,
        protector: &'a mut dyn Protector,
        observer: &'a mut dyn Observer,
    ) -> Result<Self, ScenarioError> {
        let loads = 0..scenario.load.len();
        Ok(Self {
            scenario,
            protector,
            observer,
            loads: loads
                .map(|index| Load::new(scenario, index, streams))
                .collect::<Result<_, _>>()?,
            replicas: scenario.replicas().map(Replica::new).collect(),
            requests: Slab::new(),
            wakes: Wakes::new(),
            timer: None,
            next_report: Timestamp::ZERO + scenario.report_interval.0,
            recorder: Recorder::new(scenario),
        })
    }

    /// Puts the first events on the calendar.
    fn begin(&mut self, calendar: &mut Calendar<Event>) {
        self.schedule_replicas(calendar);
        self.hide_later_replicas();
        for load in 0..self.loads.len() {
            self.expect_arrival(load, calendar);
            for delay in self.loads[load].first_requests() {
                calendar.after(delay, Event::Ready { load });
            }
        }
        calendar.after(self.scenario.report_interval.0, Event::Report);
        calendar.after(self.scenario.interval.0, Event::Interval);
        self.update_capacity(Timestamp::ZERO);
        self.expect_timer(calendar);
    }

    fn schedule_replicas(&self, calendar: &mut Calendar<Event>) {
        for (replica, spec) in self.scenario.replicas().enumerate() {
            for (time, speed) in spec.speed.steps(RAMP_STEP) {
                calendar.at(time, Event::Speed { replica, speed });
            }
            for outage in &spec.down {
                calendar.at(Timestamp::ZERO + outage.from.0, Event::Die { replica });
                if let Some(until) = outage.until {
                    calendar.at(Timestamp::ZERO + until.0, Event::Return { replica });
                }
            }
            for (at, step) in pool_steps(spec) {
                calendar.at(Timestamp::ZERO + at, Event::Pool { replica, step });
            }
        }
    }

    /// Replicas that are added later are not there yet.
    fn hide_later_replicas(&mut self) {
        let later = self.scenario.first_weights().len()..self.replicas.len();
        for replica in later {
            self.protector
                .set_health(Timestamp::ZERO, replica_id(replica), false, &mut self.wakes);
        }
    }

    fn expect_arrival(&mut self, load: usize, calendar: &mut Calendar<Event>) {
        if let Some(time) = self.loads[load].next_arrival() {
            calendar.at(time, Event::Arrive { load });
        }
    }
}

/// What happens to a replica's place in the pool, in order of time.
fn pool_steps(spec: &ReplicaSpec) -> Vec<(Duration, PoolStep)> {
    let mut steps = Vec::new();
    if spec.never_serves() {
        return steps;
    }
    if !spec.is_first() {
        steps.push((spec.serves_from(), PoolStep::Enter(spec.weight)));
    }
    let weights = spec.reweighted.iter();
    steps.extend(weights.map(|weight| (weight.at.0, PoolStep::Weigh(weight.weight))));
    for drained in &spec.drained {
        steps.push((drained.from.0, PoolStep::Drain));
        steps.extend(drained.until.map(|until| (until.0, PoolStep::Undrain)));
    }
    steps.sort_by_key(|(at, _)| *at);
    if let Some(removed) = spec.removed {
        steps.retain(|(at, _)| *at < removed.0);
        steps.push((removed.0, PoolStep::Leave));
    }
    steps
}

fn replica_id(index: usize) -> ReplicaId {
    ReplicaId(u16::try_from(index).expect("a checked scenario has fewer than 2^16 replicas"))
}

impl Model for World<'_> {
    type Event = Event;

    fn handle(&mut self, event: Event, calendar: &mut Calendar<Event>) {
        let now = calendar.now();
        match event {
            Event::Arrive { load } => {
                let attempt = self.loads[load].request();
                self.arrive(attempt, calendar);
                self.expect_arrival(load, calendar);
            }
            Event::Ready { load } => {
                let attempt = self.loads[load].request();
                self.arrive(attempt, calendar);
            }
            Event::Retry(attempt) => self.arrive(attempt, calendar),
            Event::Timeout(id) => self.abandon(id, calendar),
            Event::TailEnd(id) => self.end_tail(id, calendar),
            Event::Complete { replica } => self.complete(replica, calendar),
            Event::Speed { replica, speed } => self.set_speed(replica, speed, calendar),
            Event::Die { replica } => self.die(replica, calendar),
            Event::Return { replica } => self.come_back(replica, calendar),
            Event::Pool { replica, step } => self.change_pool(replica, step, now),
            Event::Health { replica } => self.check_health(replica, now),
            Event::Report => {
                self.report_if_due(now);
                calendar.at(self.next_report, Event::Report);
            }
            Event::Timer => self.tick(now),
            Event::Interval => self.close_interval(calendar),
        }
        while let Some((id, decision)) = self.wakes.pop_front() {
            self.resolve(id, decision, calendar);
        }
        self.expect_timer(calendar);
    }
}

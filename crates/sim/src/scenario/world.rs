//! The life of requests, event by event.

use std::time::Duration;

use tidegate_control::Timestamp;
use tidegate_sentry::{Ending, Event as EngineEvent, Refusal, ReplicaId};

use super::load::{Attempt, Load, Tail};
use super::outcome::{Fate, Outcome};
use super::protector::{Decision, Protector, RequestId, Wakes};
use super::recorder::Recorder;
use super::replica::Replica;
use super::spec::{Abandoned, Scenario, ScenarioError};
use crate::client::Failure;
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

#[derive(Debug)]
struct Request {
    attempt: Attempt,
    arrived: Timestamp,
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
) -> Result<Outcome, ScenarioError> {
    let mut calendar = Calendar::new();
    let mut world = World::new(scenario, &streams, protector)?;
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
    ) -> Result<Self, ScenarioError> {
        let loads = 0..scenario.load.len();
        let replicas = scenario
            .replica
            .iter()
            .flat_map(|spec| (0..spec.count.get()).map(move |_| Replica::new(spec)));
        Ok(Self {
            scenario,
            protector,
            loads: loads
                .map(|index| Load::new(scenario, index, streams))
                .collect::<Result<_, _>>()?,
            replicas: replicas.collect(),
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
        let specs = self.scenario.replica.iter();
        let each = specs.flat_map(|spec| (0..spec.count.get()).map(move |_| spec));
        for (replica, spec) in each.enumerate() {
            for (time, speed) in spec.speed.steps(RAMP_STEP) {
                calendar.at(time, Event::Speed { replica, speed });
            }
            for outage in &spec.down {
                calendar.at(Timestamp::ZERO + outage.from.0, Event::Die { replica });
                if let Some(until) = outage.until {
                    calendar.at(Timestamp::ZERO + until.0, Event::Return { replica });
                }
            }
        }
    }

    fn expect_arrival(&mut self, load: usize, calendar: &mut Calendar<Event>) {
        if let Some(time) = self.loads[load].next_arrival() {
            calendar.at(time, Event::Arrive { load });
        }
    }

    // Arriving

    fn arrive(&mut self, attempt: Attempt, calendar: &mut Calendar<Event>) {
        let now = calendar.now();
        let arrival = self.loads[attempt.load as usize].arrival(now, &attempt);
        let id = RequestId(self.requests.insert(Request {
            attempt,
            arrived: now,
            stage: Stage::Waiting,
            alarm: None,
        }));
        self.recorder.queued.add(now, 1.0);
        self.recorder
            .offered(now, arrival.class, attempt.tries == 1);
        if let Some(patience) = attempt.patience {
            self.request(id).alarm = Some(calendar.after(patience, Event::Timeout(id)));
        }
        let decision = self.protector.on_arrival(now, id, &arrival);
        self.resolve(id, decision, calendar);
    }

    fn request(&mut self, id: RequestId) -> &mut Request {
        self.requests
            .get_mut(id.0)
            .expect("a request that has not ended is known")
    }

    fn resolve(&mut self, id: RequestId, decision: Decision, calendar: &mut Calendar<Event>) {
        match decision {
            Decision::Wait => {}
            Decision::Admit(replica) => self.dispatch(id, replica, calendar),
            Decision::Shed(refusal) => self.shed(id, &refusal, calendar),
        }
    }

    fn shed(&mut self, id: RequestId, refusal: &Refusal, calendar: &mut Calendar<Event>) {
        let attempt = self.end(id, Fate::Shed(refusal.reason), calendar);
        self.failed(attempt, Failure::Shed, refusal.retry_after, calendar);
    }

    /// Sends an admitted request to its replica, or to another one when that is dead.
    fn dispatch(&mut self, id: RequestId, to: ReplicaId, calendar: &mut Calendar<Event>) {
        let now = calendar.now();
        let &mut Request {
            attempt, arrived, ..
        } = self.request(id);
        let class = self.loads[attempt.load as usize].class(&attempt);
        self.recorder.admitted(now, class, now.since(arrived));
        let mut replica = usize::from(to.0);
        for _ in 0..self.replicas.len() {
            let station = &mut self.replicas[replica].station;
            if let Ok(job) = station.arrive(now, id, attempt.work) {
                self.enter(now, id, Stage::Working { replica, job });
                self.expect_completion(replica, calendar);
                return;
            }
            if station.is_up() {
                break; // its own queue is full: it has seen the request and refused it
            }
            match self.protector.reassign(now, id) {
                Some(other) => replica = usize::from(other.0),
                None => break,
            }
        }
        self.drop_request(id, calendar);
    }

    fn drop_request(&mut self, id: RequestId, calendar: &mut Calendar<Event>) {
        self.protector
            .on_end(calendar.now(), id, Ending::Dropped, &mut self.wakes);
        let attempt = self.end(id, Fate::Dropped, calendar);
        self.failed(attempt, Failure::Dropped, Duration::ZERO, calendar);
    }

    // Leaving

    fn complete(&mut self, replica: usize, calendar: &mut Calendar<Event>) {
        let now = calendar.now();
        self.replicas[replica].completion = None;
        if let Some(&id) = self.replicas[replica].station.due(now) {
            match self.requests.get(id.0).map(|request| request.attempt.tail) {
                None => {
                    self.replicas[replica].station.finish(now);
                    self.recorder.wasted();
                }
                Some(None) => self.serve(id, replica, calendar),
                Some(Some(tail)) => self.start_tail(id, replica, tail, calendar),
            }
        }
        self.expect_completion(replica, calendar);
    }

    fn serve(&mut self, id: RequestId, replica: usize, calendar: &mut Calendar<Event>) {
        let now = calendar.now();
        self.replicas[replica].station.finish(now);
        self.protector
            .on_end(now, id, Ending::Served, &mut self.wakes);
        let attempt = self.end(id, Fate::Served, calendar);
        self.think(attempt.load as usize, calendar);
    }

    fn start_tail(
        &mut self,
        id: RequestId,
        replica: usize,
        tail: Tail,
        calendar: &mut Calendar<Event>,
    ) {
        let now = calendar.now();
        let station = &mut self.replicas[replica].station;
        let (length, job) = match tail {
            Tail::Read(length) => (length, station.hold(now)),
            Tail::Stream(length) => {
                station.finish(now);
                (length, None)
            }
        };
        self.protector.on_stream(now, id, &mut self.wakes);
        self.enter(now, id, Stage::Tail { replica, job });
        let alarm = calendar.after(length, Event::TailEnd(id));
        if let Some(patience) = self.request(id).alarm.replace(alarm) {
            calendar.cancel(patience);
        }
    }

    fn end_tail(&mut self, id: RequestId, calendar: &mut Calendar<Event>) {
        if let Stage::Tail {
            replica,
            job: Some(job),
        } = self.request(id).stage
        {
            self.replicas[replica].station.cancel(calendar.now(), job);
            self.expect_completion(replica, calendar);
        }
        self.protector
            .on_end(calendar.now(), id, Ending::Ignored, &mut self.wakes);
        let attempt = self.end(id, Fate::Streamed, calendar);
        self.think(attempt.load as usize, calendar);
    }

    fn abandon(&mut self, id: RequestId, calendar: &mut Calendar<Event>) {
        let now = calendar.now();
        match self.request(id).stage {
            Stage::Waiting => self.protector.on_abandon(now, id),
            Stage::Working { replica, job } => {
                if self.replicas[replica].abandoned == Abandoned::Cancel {
                    self.replicas[replica].station.cancel(now, job);
                    self.expect_completion(replica, calendar);
                }
                self.protector
                    .on_end(now, id, Ending::Abandoned, &mut self.wakes);
            }
            Stage::Tail { .. } => unreachable!("whoever reads or listens is not impatient"),
        }
        let attempt = self.end(id, Fate::Abandoned, calendar);
        self.failed(attempt, Failure::Timeout, Duration::ZERO, calendar);
    }

    /// The one place where an attempt ends.
    fn end(&mut self, id: RequestId, fate: Fate, calendar: &mut Calendar<Event>) -> Attempt {
        let now = calendar.now();
        let request = self
            .requests
            .remove(id.0)
            .expect("an attempt ends exactly once");
        self.leave(now, request.stage);
        if let Some(alarm) = request.alarm {
            calendar.cancel(alarm);
        }
        let class = self.loads[request.attempt.load as usize].class(&request.attempt);
        self.recorder
            .ended(now, class, fate, now.since(request.arrived));
        request.attempt
    }

    /// The client tries again, or gives up.
    fn failed(
        &mut self,
        attempt: Attempt,
        failure: Failure,
        retry_after: Duration,
        calendar: &mut Calendar<Event>,
    ) {
        let load = &mut self.loads[attempt.load as usize];
        match load.retry(&attempt, failure, retry_after) {
            Some(delay) => {
                calendar.after(delay, Event::Retry(attempt.again()));
            }
            None => {
                self.recorder.gave_up(calendar.now(), load.class(&attempt));
                self.think(attempt.load as usize, calendar);
            }
        }
    }

    /// A user of a closed loop thinks before its next request.
    fn think(&mut self, load: usize, calendar: &mut Calendar<Event>) {
        if let Some(delay) = self.loads[load].think() {
            calendar.after(delay, Event::Ready { load });
        }
    }

    fn enter(&mut self, now: Timestamp, id: RequestId, stage: Stage) {
        let before = std::mem::replace(&mut self.request(id).stage, stage);
        self.leave(now, before);
        match stage {
            Stage::Waiting => self.recorder.queued.add(now, 1.0),
            Stage::Working { .. } => self.recorder.in_flight.add(now, 1.0),
            Stage::Tail { .. } => {}
        }
    }

    fn leave(&mut self, now: Timestamp, stage: Stage) {
        match stage {
            Stage::Waiting => self.recorder.queued.add(now, -1.0),
            Stage::Working { .. } => self.recorder.in_flight.add(now, -1.0),
            Stage::Tail { .. } => {}
        }
    }

    // Replicas

    fn die(&mut self, replica: usize, calendar: &mut Calendar<Event>) {
        let mut lost = self.replicas[replica].station.fail(calendar.now());
        // What is only streamed uses nothing of the station, but its connection breaks all the
        // same.
        lost.extend(self.requests.iter().filter_map(|(key, request)| {
            let streamed = matches!(
                request.stage,
                Stage::Tail { replica: at, job: None } if at == replica
            );
            streamed.then_some(RequestId(key))
        }));
        for id in lost {
            if self.requests.contains(id.0) {
                self.drop_request(id, calendar);
            }
        }
        self.capacity_changed(replica, calendar);
        calendar.after(self.scenario.health_delay.0, Event::Health { replica });
    }

    fn come_back(&mut self, replica: usize, calendar: &mut Calendar<Event>) {
        self.replicas[replica].station.restore();
        self.capacity_changed(replica, calendar);
        calendar.after(self.scenario.health_delay.0, Event::Health { replica });
    }

    fn set_speed(&mut self, replica: usize, speed: f64, calendar: &mut Calendar<Event>) {
        let now = calendar.now();
        self.replicas[replica].speed = speed;
        self.replicas[replica].station.set_speed(now, speed);
        self.capacity_changed(replica, calendar);
    }

    fn capacity_changed(&mut self, replica: usize, calendar: &mut Calendar<Event>) {
        self.expect_completion(replica, calendar);
        self.update_capacity(calendar.now());
    }

    fn update_capacity(&mut self, now: Timestamp) {
        let capacity = self.replicas.iter().map(Replica::capacity).sum();
        self.recorder.capacity.set(now, capacity);
    }

    fn check_health(&mut self, replica: usize, now: Timestamp) {
        let up = self.replicas[replica].station.is_up();
        self.protector
            .set_health(now, replica_id(replica), up, &mut self.wakes);
    }

    /// Keeps a replica's one completion event where its station wants it.
    fn expect_completion(&mut self, replica: usize, calendar: &mut Calendar<Event>) {
        let state = &mut self.replicas[replica];
        let wanted = state.station.next_completion();
        if state.completion.map(|(time, _)| time) == wanted {
            return;
        }
        if let Some((_, event)) = state.completion.take() {
            calendar.cancel(event);
        }
        let event = Event::Complete { replica };
        state.completion = wanted.map(|time| (time, calendar.at(time, event)));
    }

    // Clockwork

    /// Reports come before a controller's step at the same instant: its sample is the interval that
    /// ends there.
    fn report_if_due(&mut self, now: Timestamp) {
        if now < self.next_report {
            return;
        }
        self.next_report = now + self.scenario.report_interval.0;
        for (index, replica) in self.replicas.iter_mut().enumerate() {
            let utilization = replica.report(now);
            if replica.station.is_up() {
                self.protector
                    .on_report(now, replica_id(index), utilization);
            }
        }
    }

    fn tick(&mut self, now: Timestamp) {
        self.timer = None;
        self.report_if_due(now);
        let events = &mut self.recorder.events;
        let mut observer = |event: &EngineEvent| events.push(event.clone());
        self.protector
            .handle_timeout(now, &mut observer, &mut self.wakes);
        assert!(
            self.protector.poll_timeout() > now,
            "after its timeout a protector wants to be called later"
        );
    }

    fn expect_timer(&mut self, calendar: &mut Calendar<Event>) {
        let wanted = self.protector.poll_timeout();
        if self.timer.is_some_and(|(time, _)| time == wanted) {
            return;
        }
        if let Some((_, event)) = self.timer.take() {
            calendar.cancel(event);
        }
        if wanted < Timestamp::MAX {
            self.timer = Some((wanted, calendar.at(wanted, Event::Timer)));
        }
    }

    fn close_interval(&mut self, calendar: &mut Calendar<Event>) {
        let now = calendar.now();
        let count = self.replicas.len() as f64;
        let replicas = self.replicas.iter_mut();
        let sum: f64 = replicas.map(|replica| replica.utilization(now)).sum();
        self.recorder.close(now, sum / count, &*self.protector);
        calendar.after(self.scenario.interval.0, Event::Interval);
    }
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

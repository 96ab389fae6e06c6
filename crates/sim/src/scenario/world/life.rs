//! The life of a request: arriving, being resolved, leaving.

use std::time::Duration;

use tidegate_control::Timestamp;
use tidegate_sentry::{Arrival, ClassId, Ending, Refusal, ReplicaId, Report};

use super::{Event, Request, Stage, World, replica_id};
use crate::client::Failure;
use crate::engine::Calendar;
use crate::scenario::load::{Attempt, Tail};
use crate::scenario::outcome::Fate;
use crate::scenario::protector::{Decision, RequestId};
use crate::scenario::spec::Abandoned;

impl World<'_> {
    pub(super) fn arrive(&mut self, attempt: Attempt, calendar: &mut Calendar<Event>) {
        let now = calendar.now();
        let arrival = self.loads[attempt.load as usize].arrival(now, &attempt);
        let id = RequestId(self.requests.insert(Request {
            attempt,
            arrived: now,
            dispatched: now,
            full: true,
            returned: false,
            stage: Stage::Waiting,
            alarm: None,
        }));
        self.recorder.queued.add(now, 1.0);
        self.recorder.offered(now, arrival.class, &attempt);
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

    pub(super) fn resolve(
        &mut self,
        id: RequestId,
        decision: Decision,
        calendar: &mut Calendar<Event>,
    ) {
        match decision {
            Decision::Wait => {}
            Decision::Admit(replica) => self.dispatch(id, replica, calendar),
            Decision::Shed(refusal) => self.shed(id, &refusal, calendar),
        }
    }

    /// Who was admitted before is not refused for want of capacity: its replica failed.
    fn shed(&mut self, id: RequestId, refusal: &Refusal, calendar: &mut Calendar<Event>) {
        let (fate, failure) = if self.request(id).returned {
            (Fate::Dropped, Failure::Dropped)
        } else {
            (Fate::Shed(refusal.reason), Failure::Shed)
        };
        let attempt = self.end(id, fate, calendar);
        self.failed(attempt, failure, refusal.retry_after, calendar);
    }

    /// Sends an admitted request to its replica, or to another one when that is dead.
    fn dispatch(&mut self, id: RequestId, to: ReplicaId, calendar: &mut Calendar<Event>) {
        let now = calendar.now();
        let &mut Request {
            attempt,
            arrived,
            returned,
            ..
        } = self.request(id);
        if !returned {
            let class = self.loads[attempt.load as usize].class(&attempt);
            self.recorder.admitted(now, class, now.since(arrived));
        }
        let mut replica = usize::from(to.0);
        for _ in 0..self.replicas.len() {
            let orders = self.protector.orders(id);
            let request = self.request(id);
            (request.dispatched, request.full) = (now, orders.full);
            let optional = if orders.full { attempt.optional } else { 0.0 };
            let station = &mut self.replicas[replica].station;
            if let Ok(job) = station.arrive(now, id, attempt.work + optional) {
                self.replicas[replica].told(now, &orders);
                self.enter(now, id, Stage::Working { replica, job });
                self.expect_completion(replica, calendar);
                return;
            }
            if station.is_up() {
                break; // its own queue is full: it has seen the request and refused it
            }
            match self.protector.reassign(now, id) {
                Some(other) => replica = usize::from(other.0),
                None if self.waits_again(id, now) => return,
                None => break,
            }
        }
        self.drop_request(id, calendar);
    }

    /// Whether a request that its replica never saw goes back to where it waited.
    fn waits_again(&mut self, id: RequestId, now: Timestamp) -> bool {
        let &mut Request {
            attempt, arrived, ..
        } = self.request(id);
        let arrival = self.loads[attempt.load as usize].arrival(arrived, &attempt);
        let waits = self.protector.requeue(now, id, &arrival, &mut self.wakes);
        self.request(id).returned |= waits;
        waits
    }

    pub(super) fn drop_request(&mut self, id: RequestId, calendar: &mut Calendar<Event>) {
        self.protector
            .on_end(calendar.now(), id, Ending::Dropped, &mut self.wakes);
        let attempt = self.end(id, Fate::Dropped, calendar);
        self.failed(attempt, Failure::Dropped, Duration::ZERO, calendar);
    }

    pub(super) fn complete(&mut self, replica: usize, calendar: &mut Calendar<Event>) {
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
        self.answer(id, replica, now);
        self.protector
            .on_end(now, id, Ending::Served, &mut self.wakes);
        let attempt = self.end(id, Fate::Served, calendar);
        self.think(attempt.load as usize, calendar);
    }

    /// What a replica says with an answer.
    fn answer(&mut self, id: RequestId, replica: usize, now: Timestamp) {
        if self.scenario.report_with_answers {
            let utilization = self.replicas[replica].metered(now);
            self.protector
                .on_report(now, replica_id(replica), utilization);
        }
        let &mut Request {
            dispatched,
            full,
            attempt,
            ..
        } = self.request(id);
        let cost = self.replicas[replica].cost(attempt.work, now.since(dispatched));
        if let Some(cost) = cost {
            let Arrival {
                class,
                path,
                tenant,
                ..
            } = self.loads[attempt.load as usize].arrival(now, &attempt);
            let report = Report {
                class,
                path,
                tenant,
                ..cost
            };
            self.protector.on_answer(now, replica_id(replica), &report);
        }
        if self.scenario.optional.is_none() {
            return;
        }
        let report = self.replicas[replica].answer(now, now.since(dispatched), full);
        self.protector.on_answer(now, replica_id(replica), &report);
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

    pub(super) fn end_tail(&mut self, id: RequestId, calendar: &mut Calendar<Event>) {
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

    pub(super) fn abandon(&mut self, id: RequestId, calendar: &mut Calendar<Event>) {
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
        let class = self.loads[request.attempt.load as usize].class(&request.attempt);
        self.leave(now, class, request.stage);
        if let Some(alarm) = request.alarm {
            calendar.cancel(alarm);
        }
        self.recorder
            .ended(now, class, fate, now.since(request.arrived), request.full);
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
        let attempt = self.request(id).attempt;
        let class = self.loads[attempt.load as usize].class(&attempt);
        self.leave(now, class, before);
        match stage {
            Stage::Waiting => self.recorder.queued.add(now, 1.0),
            Stage::Working { .. } => self.recorder.enters(now, class),
            Stage::Tail { .. } => {}
        }
    }

    fn leave(&mut self, now: Timestamp, class: ClassId, stage: Stage) {
        match stage {
            Stage::Waiting => self.recorder.queued.add(now, -1.0),
            Stage::Working { .. } => self.recorder.leaves(now, class),
            Stage::Tail { .. } => {}
        }
    }
}

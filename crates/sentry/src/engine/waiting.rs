//! Waiters: parking, leaving, and what becomes of them.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tidegate_control::Timestamp;

use super::Sentry;
use crate::api::{
    Arrival, ClassId, Ending, Refusal, ReplicaId, Resolution, ShedReason, Ticket, Verdict,
};
use crate::atomic::add_one;
use crate::balance::Slots;
use crate::gate::Passed;
use crate::plan::Plan;
use crate::policing::PathKey;
use crate::policing::cost_shares::CostBand;
use crate::policing::exams::Exams;
use crate::queue::{Queue, Returned, Waiter};

/// The queue, and the waiters that were put out of it and are not resolved yet.
#[derive(Debug)]
pub(super) struct Waiting<T> {
    pub(super) queue: Queue<T>,
    /// When classes whose requests are held are examined.
    pub(super) exams: Exams,
    evicted: VecDeque<Evicted<T>>,
}

impl<T> Waiting<T> {
    pub(super) fn new(plan: &Plan) -> Self {
        Self {
            queue: Queue::new(plan.classes.len(), plan.config.fairness.shards),
            exams: Exams::default(),
            evicted: VecDeque::new(),
        }
    }
}

/// Out of the queue, not resolved yet.
#[derive(Debug)]
struct Evicted<T> {
    ticket: Ticket,
    waiter: Waiter<T>,
    refusal: Refusal,
}

/// What a permit keeps of how its request came in.
#[derive(Debug, Clone, Copy)]
pub(super) struct Origin {
    pub(super) class: ClassId,
    pub(super) arrived: Timestamp,
    pub(super) path: Option<PathKey>,
    pub(super) tenant: Option<u64>,
    pub(super) cost: Option<CostBand>,
    /// The session it opens.
    pub(super) opens: Option<u64>,
    pub(super) passed: Passed,
    /// It was admitted before.
    pub(super) returned: Option<Returned>,
    /// When the one that has waited longest arrived, of those that waited with it and itself.
    pub(super) oldest: Timestamp,
}

impl Origin {
    pub(super) fn arriving(now: Timestamp, arrival: &Arrival, passed: Passed) -> Self {
        Self {
            class: arrival.class,
            arrived: now,
            path: arrival.path,
            tenant: arrival.tenant,
            cost: arrival.cost.map(CostBand::of),
            opens: opens(arrival),
            passed,
            returned: None,
            oldest: now,
        }
    }

    fn of<T>(waiter: &Waiter<T>) -> Self {
        Self {
            class: waiter.class,
            arrived: waiter.arrived,
            path: waiter.path,
            tenant: waiter.tenant,
            cost: waiter.cost,
            opens: waiter.opens,
            passed: waiter.passed,
            returned: waiter.returned,
            oldest: waiter.arrived,
        }
    }

    /// With the others that wait, for decisions about content: less important ones may have waited
    /// longer.
    fn among<T>(self, queue: &Queue<T>) -> Self {
        let oldest = queue
            .oldest()
            .map_or(self.oldest, |oldest| oldest.min(self.oldest));
        Self { oldest, ..self }
    }
}

fn opens(arrival: &Arrival) -> Option<u64> {
    arrival.session.filter(|_| arrival.session_entry)
}

/// What can be done about the waiter at the head of a lane.
enum Next {
    Admit(ReplicaId),
    Expire(Refusal),
}

impl<T> Sentry<T> {
    /// No slot was free a moment ago: looks once more, then parks or refuses.
    pub(super) fn park(
        &self,
        plan: &Plan,
        now: Timestamp,
        arrival: &Arrival,
        passed: Passed,
        waiter: impl FnOnce() -> T,
    ) -> Result<Verdict, Refusal> {
        let mut waiting = self.waiting.lock();
        // Counted before looking again: see the engine's description.
        self.parked.fetch_add(1, Ordering::SeqCst);
        let parked = self.park_counted(plan, now, arrival, passed, waiter, &mut waiting);
        if !matches!(parked, Ok(Verdict::Wait(_))) {
            self.parked.fetch_sub(1, Ordering::SeqCst);
        }
        parked
    }

    fn park_counted(
        &self,
        plan: &Plan,
        now: Timestamp,
        arrival: &Arrival,
        passed: Passed,
        waiter: impl FnOnce() -> T,
        waiting: &mut Waiting<T>,
    ) -> Result<Verdict, Refusal> {
        if waiting.queue.none_before(arrival.class, arrival.sticky)
            && let Some(replica) = self.place(plan, now, arrival.sticky, Slots::Free)
        {
            let origin = Origin::arriving(now, arrival, passed).among(&waiting.queue);
            return Ok(Verdict::Admit(self.permit(plan, now, origin, replica)));
        }
        self.refuse_if_sticky_is_late(plan, now, arrival, &waiting.queue)?;
        self.make_room(plan, waiting, arrival)?;
        let class = plan.class(arrival.class);
        add_one(&class.counters.waited);
        class.queued.fetch_add(1, Ordering::Relaxed);
        let waiter = self.waiter(plan, now, arrival, passed, waiter());
        let ticket = waiting.queue.push(waiter);
        self.publish_bytes(waiting);
        Ok(Verdict::Wait(ticket))
    }

    pub(super) fn waiter(
        &self,
        plan: &Plan,
        now: Timestamp,
        arrival: &Arrival,
        passed: Passed,
        value: T,
    ) -> Waiter<T> {
        Waiter {
            value,
            class: arrival.class,
            bytes: arrival.bytes,
            arrived: now,
            deadline: arrival.deadline,
            sticky: arrival.sticky,
            path: arrival.path,
            tenant: arrival.tenant,
            cost: arrival.cost.map(CostBand::of),
            opens: opens(arrival),
            preferred: plan.prefers(now, arrival),
            bucket: None,
            late: false,
            passed,
            returned: None,
        }
    }

    /// A newcomer for whom the queue is too long takes the place of the last in its class if it
    /// would be served sooner: its session was admitted, or its tenant has fewer waiting.
    pub(super) fn displace_last(
        &self,
        plan: &Plan,
        now: Timestamp,
        arrival: &Arrival,
        refusal: Refusal,
    ) -> Result<(), Refusal> {
        let preferred = plan.prefers(now, arrival);
        if arrival.tenant.is_none() && !preferred {
            return Err(refusal);
        }
        let mut waiting = self.waiting.lock();
        let jumps = waiting
            .queue
            .jumps(arrival.class, arrival.tenant, preferred);
        let class = plan.class_index(arrival.class);
        match jumps.then(|| waiting.queue.pop_last(class)).flatten() {
            Some(last) => {
                self.evict(plan, &mut waiting, last, refusal);
                Ok(())
            }
            None => Err(refusal),
        }
    }

    /// A sticky session waits for one replica only, at that one's rate.
    fn refuse_if_sticky_is_late(
        &self,
        plan: &Plan,
        now: Timestamp,
        arrival: &Arrival,
        queue: &Queue<T>,
    ) -> Result<(), Refusal> {
        let Some((id, replica)) = arrival.sticky.and_then(|id| Some((id, plan.replica(id)?)))
        else {
            return Ok(());
        };
        let share = replica.drain_share.load();
        if share <= 0.0 || !replica.is_up() {
            return Ok(());
        }
        let in_lane = f64::from(queue.len_for(arrival.class, id));
        // As many in the common queue would take as long. `as` saturates.
        self.refuse_if_late(plan, now, arrival, (in_lane / share) as u32)
    }

    /// Finds room within the queue's bounds, at the expense of less important waiters if need be.
    pub(super) fn make_room(
        &self,
        plan: &Plan,
        waiting: &mut Waiting<T>,
        arrival: &Arrival,
    ) -> Result<(), Refusal> {
        while let Err(mut refusal) = self.fits(plan, &waiting.queue, arrival) {
            let Some(last) = waiting.queue.pop_less_important(arrival.class) else {
                return Err(refusal);
            };
            refusal.class = last.1.class;
            self.evict(plan, waiting, last, refusal);
        }
        Ok(())
    }

    fn fits(&self, plan: &Plan, queue: &Queue<T>, arrival: &Arrival) -> Result<(), Refusal> {
        let bounds = &plan.config.queue;
        if queue.len() >= bounds.max_requests {
            return Err(self.full(plan, arrival.class));
        }
        let bytes = queue.bytes() + u64::from(arrival.bytes);
        if bytes > bounds.max_bytes.0 {
            return Err(Refusal {
                measured: bytes as f64,
                limit: bounds.max_bytes.0 as f64,
                ..self.refusal(plan, ShedReason::QueueBytes, arrival.class)
            });
        }
        Ok(())
    }

    /// There are more waiters than the queue may hold.
    pub(super) fn full(&self, plan: &Plan, class: ClassId) -> Refusal {
        let limit = f64::from(plan.config.queue.max_requests);
        Refusal {
            measured: limit,
            limit,
            ..self.refusal(plan, ShedReason::QueueFull, class)
        }
    }

    /// Puts a waiter, already out of the queue, among those that are refused next.
    pub(super) fn evict(
        &self,
        plan: &Plan,
        waiting: &mut Waiting<T>,
        (ticket, mut waiter): (Ticket, Waiter<T>),
        refusal: Refusal,
    ) {
        if waiter.bucket.take().is_some() {
            self.held.fetch_sub(1, Ordering::SeqCst);
            self.parked.fetch_add(1, Ordering::SeqCst);
        }
        plan.class(waiter.class).on_left_queue(waiter.late);
        waiting.evicted.push_back(Evicted {
            ticket,
            waiter,
            refusal,
        });
    }

    pub(super) fn publish_bytes(&self, waiting: &Waiting<T>) {
        self.parked_bytes
            .store(waiting.queue.bytes(), Ordering::Relaxed);
    }

    /// The client left while its request was queued: it leaves the queue at once. False when the
    /// request was resolved already.
    pub fn on_abandon(&self, _now: Timestamp, ticket: Ticket) -> bool {
        let plan = self.plan.load();
        let mut waiting = self.waiting.lock();
        let Some(waiter) = self.leave_queue(&plan, &mut waiting, ticket) else {
            return false;
        };
        add_one(&plan.class(waiter.class).counters.abandoned);
        let origin = self.settle(&waiting, &waiter);
        self.gate.leave(origin.passed);
        true
    }

    fn leave_queue(
        &self,
        plan: &Plan,
        waiting: &mut Waiting<T>,
        ticket: Ticket,
    ) -> Option<Waiter<T>> {
        if let Some(waiter) = waiting.queue.remove(ticket) {
            plan.class(waiter.class).on_left_queue(waiter.late);
            return Some(waiter);
        }
        let evicted = &mut waiting.evicted;
        let position = evicted.iter().position(|out| out.ticket == ticket)?;
        evicted.remove(position).map(|out| out.waiter)
    }

    /// A waiter is gone from here, whichever way.
    fn settle(&self, waiting: &Waiting<T>, waiter: &Waiter<T>) -> Origin {
        let count = match waiter.bucket {
            Some(_) => &self.held,
            None => &self.parked,
        };
        count.fetch_sub(1, Ordering::SeqCst);
        self.publish_bytes(waiting);
        Origin::of(waiter)
    }

    /// Decides about one waiter: one that was put out of the queue, else the next that can go.
    pub(super) fn resolve_one(&self, now: Timestamp) -> Option<(T, Resolution)> {
        let plan = self.plan.load();
        let mut waiting = self.waiting.lock();
        if let Some(out) = waiting.evicted.pop_front() {
            return Some(self.shed(&plan, &waiting, out.waiter, out.refusal));
        }
        set_late_aside(&plan, now, &mut waiting.queue);
        let (waiter, next) = waiting
            .queue
            .pop_placed(|waiter| self.next_for(&plan, now, waiter))?;
        plan.class(waiter.class).on_left_queue(waiter.late);
        Some(match next {
            Next::Expire(refusal) => self.shed(&plan, &waiting, waiter, refusal),
            Next::Admit(replica) => {
                let origin = self.settle(&waiting, &waiter).among(&waiting.queue);
                let permit = self.permit(&plan, now, origin, replica);
                (waiter.value, Resolution::Admit(permit))
            }
        })
    }

    fn shed(
        &self,
        plan: &Plan,
        waiting: &Waiting<T>,
        waiter: Waiter<T>,
        refusal: Refusal,
    ) -> (T, Resolution) {
        let origin = self.settle(waiting, &waiter);
        self.gate.leave(origin.passed);
        let counters = &plan.class(waiter.class).counters;
        match waiter.returned {
            Some(_) => counters.ended(Ending::Dropped),
            None => counters.shed(refusal.reason),
        }
        (waiter.value, Resolution::Shed(refusal))
    }

    /// A slot for the waiter, or the end of its hopes; none if it has to wait on.
    fn next_for(&self, plan: &Plan, now: Timestamp, waiter: &Waiter<T>) -> Option<Next> {
        if self.bypass() {
            let placed = self.place_waiter(plan, now, waiter, Slots::Any);
            return placed
                .map(Next::Admit)
                .or_else(|| self.no_replica(plan, waiter));
        }
        if let Some(refusal) = self.expired(plan, now, waiter) {
            return Some(Next::Expire(refusal));
        }
        match self.place_waiter(plan, now, waiter, Slots::Free) {
            Some(replica) => Some(Next::Admit(replica)),
            None if plan.any_up_but(waiter.avoids()) => None,
            None => self.no_replica(plan, waiter),
        }
    }

    /// A slot: of any replica but the one it comes back from, if it does.
    fn place_waiter(
        &self,
        plan: &Plan,
        now: Timestamp,
        waiter: &Waiter<T>,
        slots: Slots,
    ) -> Option<ReplicaId> {
        match waiter.avoids() {
            None => self.place(plan, now, waiter.sticky, slots),
            except => self
                .balancer
                .place(plan.balance(), &plan.replicas, now, slots, except),
        }
    }

    /// None if a newer plan may have a replica: the reload that made it looks at the queue again.
    fn no_replica(&self, plan: &Plan, waiter: &Waiter<T>) -> Option<Next> {
        let refusal = self.refusal(plan, ShedReason::NoReplica, waiter.class);
        self.newer_than(plan)
            .is_none()
            .then_some(Next::Expire(refusal))
    }

    /// It waited so long that it could not be answered in time any more.
    fn expired(&self, plan: &Plan, now: Timestamp, waiter: &Waiter<T>) -> Option<Refusal> {
        let waited = now - waiter.arrived;
        let forecast = &plan.class(waiter.class).forecast;
        let left = |deadline: Timestamp| deadline.since(waiter.arrived);
        let limit = waiter
            .deadline
            .map_or(Duration::MAX, left)
            .min(forecast.wait_limit());
        let too_late = waiter.deadline.is_some_and(|deadline| deadline <= now);
        (too_late || waited > limit).then(|| Refusal {
            measured: waited.as_secs_f64(),
            limit: limit.as_secs_f64(),
            ..self.refusal(plan, ShedReason::Expired, waiter.class)
        })
    }

    /// Refuses those at the end of the queue that cannot be served in time any more, after the
    /// forecast got worse. They have waited least, and waiting longer would not help them.
    pub(super) fn trim(&self, plan: &Plan, now: Timestamp) {
        let mut waiting = self.waiting.lock();
        for index in (0..plan.classes.len()).rev() {
            let class = ClassId(index as u16);
            while let Some(refusal) = self.last_is_late(plan, now, class, &waiting.queue) {
                let Some(last) = waiting.queue.pop_last(index) else {
                    break;
                };
                self.evict(plan, &mut waiting, last, refusal);
            }
        }
    }

    fn last_is_late(
        &self,
        plan: &Plan,
        now: Timestamp,
        class: ClassId,
        queue: &Queue<T>,
    ) -> Option<Refusal> {
        let forecast = &plan.class(class).forecast;
        let last = queue.peek_last(usize::from(class.0))?;
        let waited = (now - last.arrived).as_secs_f64();
        let ahead = plan.queued_at_or_above(class).saturating_sub(1);
        let limit = f64::from(forecast.ahead_limit.load(Ordering::Relaxed));
        // A request that is late already loses nothing by waiting.
        let counted = if last.late { 0.0 } else { waited };
        let allowed = limit * TRIM_TOLERANCE + 1.0 - counted * forecast.drain.load();
        (f64::from(ahead) > allowed).then(|| Refusal {
            measured: f64::from(ahead),
            limit: allowed.max(0.0),
            ..self.refusal(plan, ShedReason::Predicted, class)
        })
    }

    /// Brings the queue in line with a new list of classes.
    pub(super) fn reclassify(&self, old: &Plan, new: &Plan) {
        let mut waiting = self.waiting.lock();
        let index_of = |class: ClassId| {
            let name = &old.class(class).name;
            let position = new.classes.iter().position(|class| class.name == *name);
            ClassId(position.unwrap_or(new.classes.len() - 1) as u16)
        };
        let shards = new.config.fairness.shards;
        waiting
            .queue
            .reclassify(new.classes.len(), shards, index_of);
        waiting.exams = Exams::default();
        for class in old.classes.iter().chain(&new.classes) {
            class.queued.store(0, Ordering::Relaxed);
            class.late.store(0, Ordering::Relaxed);
        }
        for (index, class) in new.classes.iter().enumerate() {
            let (all, late) = (waiting.queue.len_of(index), waiting.queue.late_of(index));
            class.queued.store(all, Ordering::Relaxed);
            class.late.store(late, Ordering::Relaxed);
        }
        for out in &mut waiting.evicted {
            out.waiter.class = index_of(out.waiter.class);
            out.refusal.class = out.waiter.class;
        }
    }
}

/// A request that has waited so long that it cannot be answered in time lets the others of its
/// class pass: they still can. None is refused for that, and while a queue may be a burst or an
/// overload nothing is lost by not knowing: those that are late are served when there is room, and
/// expire when there is none.
fn set_late_aside<T>(plan: &Plan, now: Timestamp, queue: &mut Queue<T>) {
    for (index, class) in plan.classes.iter().enumerate() {
        if let Some(limit) = class.forecast.late_after() {
            let moved = queue.set_aside(index, |waiter| now - waiter.arrived > limit);
            class.late.fetch_add(moved, Ordering::Relaxed);
        }
    }
}

/// A request in the queue is not shed because the estimate wavers. Chosen: above the
/// noise of the drain rate's estimate, far below a real change.
const TRIM_TOLERANCE: f64 = 1.3;

//! A request arrives: admit, park or refuse.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

use tidegate_control::Timestamp;

use super::Sentry;
use super::policing::Judged;
use super::waiting::Origin;
use crate::api::{Arrival, ClassId, Permit, Refusal, ReplicaId, ShedReason, Verdict};
use crate::atomic::add_one;
use crate::balance::Slots;
use crate::clamp::within;
use crate::gate::Passed;
use crate::plan::Plan;

/// Shortest [`Refusal::retry_after`], in seconds.
const RETRY_AFTER_MIN_S: f64 = 1.0;

impl<T> Sentry<T> {
    /// Decides about a request that arrives. `waiter` is called only when it has to wait; it must
    /// not call back into the engine.
    pub fn on_arrival(
        &self,
        now: Timestamp,
        arrival: &Arrival,
        waiter: impl FnOnce() -> T,
    ) -> Verdict {
        let plan = self.plan.load();
        let counters = &plan.class(arrival.class).counters;
        add_one(&counters.arrived);
        self.tally.gaps.on_arrival(now);
        let arrival = &Arrival {
            cost: plan.expected_cost(arrival),
            ..*arrival
        };
        let decision = if self.bypass() {
            self.decide_open(&plan, now, arrival)
        } else {
            self.decide(&plan, now, arrival, waiter)
        };
        decision.unwrap_or_else(|refusal| {
            counters.shed(refusal.reason);
            Verdict::Shed(refusal)
        })
    }

    fn decide(
        &self,
        plan: &Plan,
        now: Timestamp,
        arrival: &Arrival,
        waiter: impl FnOnce() -> T,
    ) -> Result<Verdict, Refusal> {
        self.refuse_if_draining(plan, arrival.class)?;
        if let Some(permit) = self.guaranteed(plan, now, arrival) {
            return Ok(Verdict::Admit(permit));
        }
        if let Some(cost) = arrival.cost {
            plan.class(arrival.class).cost_shares.on_arrival(cost);
        }
        if let Judged::Held(bucket) = self.police(plan, now, arrival)? {
            return self.hold(plan, now, arrival, bucket, waiter);
        }
        let passed = self.pass_gate(plan, now, arrival.class)?;
        let verdict = self.enter(plan, now, arrival, passed, waiter);
        if verdict.is_err() {
            self.gate.leave(passed);
        }
        verdict
    }

    /// Within its class's guarantee a request goes straight to a replica, room or not.
    fn guaranteed(&self, plan: &Plan, now: Timestamp, arrival: &Arrival) -> Option<Permit> {
        if !plan.class(arrival.class).contract.guarantees(now) {
            return None;
        }
        let replica = self
            .place(plan, now, arrival.sticky, Slots::Free)
            .or_else(|| self.place(plan, now, arrival.sticky, Slots::Any))?;
        let origin = Origin {
            // What is guaranteed is no part of what is shared.
            cost: None,
            ..Origin::arriving(now, arrival, Passed { counted: false })
        };
        Some(self.permit(plan, now, origin, replica))
    }

    /// The request passed the gate: a slot, a place in the queue, or neither.
    fn enter(
        &self,
        plan: &Plan,
        now: Timestamp,
        arrival: &Arrival,
        passed: Passed,
        waiter: impl FnOnce() -> T,
    ) -> Result<Verdict, Refusal> {
        if self.parked.load(Ordering::SeqCst) == 0
            && let Some(replica) = self.place(plan, now, arrival.sticky, Slots::Free)
        {
            let origin = Origin::arriving(now, arrival, passed);
            return Ok(Verdict::Admit(self.permit(plan, now, origin, replica)));
        }
        if !plan.any_up() {
            return match self.newer_than(plan) {
                Some(newer) => self.enter(&newer, now, arrival, passed, waiter),
                None => Err(self.refusal(plan, ShedReason::NoReplica, arrival.class)),
            };
        }
        let ahead = plan.queued_ahead(arrival.class);
        // Not at the expense of another: that one was within the share of its cost.
        self.refuse_beyond_cost_share(plan, arrival)?;
        let in_time = self
            .refuse_if_costly(plan, arrival, ahead)
            .and_then(|()| self.refuse_if_late(plan, now, arrival, ahead));
        if let Err(refusal) = in_time {
            self.displace_last(plan, now, arrival, refusal)?;
        }
        self.park(plan, now, arrival, passed, waiter)
    }

    /// The plan in force, if it is not this one: a reload may have replaced all its replicas.
    pub(super) fn newer_than(&self, plan: &Plan) -> Option<Arc<Plan>> {
        fence(Ordering::Acquire);
        let newest = self.plan.load_full();
        (!std::ptr::eq(plan, &raw const *newest)).then_some(newest)
    }

    /// Kill switch or dry run: admitted whatever the decision would have been.
    fn decide_open(
        &self,
        plan: &Plan,
        now: Timestamp,
        arrival: &Arrival,
    ) -> Result<Verdict, Refusal> {
        self.refuse_if_draining(plan, arrival.class)?;
        let passed = if self.kill_switch.load(Ordering::Relaxed) {
            Passed { counted: false }
        } else {
            self.rehearse(plan, now, arrival)
        };
        let Some(replica) = self.place(plan, now, arrival.sticky, Slots::Any) else {
            self.gate.leave(passed);
            return match self.newer_than(plan) {
                Some(newer) => self.decide_open(&newer, now, arrival),
                None => Err(self.refusal(plan, ShedReason::NoReplica, arrival.class)),
            };
        };
        let origin = Origin::arriving(now, arrival, passed);
        Ok(Verdict::Admit(self.permit(plan, now, origin, replica)))
    }

    /// Dry run: makes the decision and counts a refusal, which is not carried out; what is in
    /// flight beyond the windows stands for the queue. Where a shadow says what enforcing would do,
    /// the request is left to it.
    fn rehearse(&self, plan: &Plan, now: Timestamp, arrival: &Arrival) -> Passed {
        if self.shadowed(plan) {
            self.inbox.lock().on_arrival(now, arrival);
            return Passed { counted: false };
        }
        let counters = &plan.class(arrival.class).counters;
        if plan.class(arrival.class).contract.guarantees(now) {
            return Passed { counted: false };
        }
        let judged = self.police(plan, now, arrival);
        let passed = judged.and_then(|_| self.pass_gate(plan, now, arrival.class));
        let late = passed.as_ref().err().copied().map_or_else(
            || {
                let excess = plan.in_flight_beyond_windows();
                self.refuse_if_costly(plan, arrival, excess)?;
                self.refuse_if_late(plan, now, arrival, excess)
            },
            Err,
        );
        if let Err(refusal) = late {
            counters.would_shed(refusal.reason);
        }
        passed.unwrap_or(Passed { counted: false })
    }

    fn refuse_if_draining(&self, plan: &Plan, class: ClassId) -> Result<(), Refusal> {
        if self.draining.load(Ordering::Relaxed) {
            Err(self.refusal(plan, ShedReason::Draining, class))
        } else {
            Ok(())
        }
    }

    fn pass_gate(&self, plan: &Plan, now: Timestamp, class: ClassId) -> Result<Passed, Refusal> {
        let pass = || self.gate.pass(now, &self.gate_dice);
        let given_back = |closed| {
            if self.departed_slots.release(now, &self.gate) {
                pass()
            } else {
                Err(closed)
            }
        };
        pass().or_else(given_back).map_err(|closed| Refusal {
            measured: closed.measured,
            limit: closed.limit,
            ..self.refusal(plan, closed.reason, class)
        })
    }

    /// The prediction test: with `ahead` in front of it, would it be answered in time?
    pub(super) fn refuse_if_late(
        &self,
        plan: &Plan,
        now: Timestamp,
        arrival: &Arrival,
        ahead: u32,
    ) -> Result<(), Refusal> {
        let forecast = &plan.class(arrival.class).forecast;
        let refusal = |measured: f64, limit: f64| Refusal {
            measured,
            limit,
            ..self.refusal(plan, ShedReason::Predicted, arrival.class)
        };
        let limit = forecast.ahead_limit.load(Ordering::Relaxed);
        if ahead >= limit {
            return Err(refusal(f64::from(ahead), f64::from(limit)));
        }
        let Some(deadline) = arrival.deadline.filter(|_| ahead > 0) else {
            return Ok(());
        };
        // As requests ahead, the unit of this reason, not as seconds: the comparison is the same.
        let left = deadline.since(now).as_secs_f64();
        let place = f64::from(ahead + 1);
        match forecast
            .places_within(left)
            .filter(|&places| place > places)
        {
            Some(places) => Err(refusal(place, places)),
            None => Ok(()),
        }
    }

    /// In overload, whether there is room for as many requests as this one costs.
    fn refuse_if_costly(&self, plan: &Plan, arrival: &Arrival, ahead: u32) -> Result<(), Refusal> {
        let toll = plan.toll(arrival.class, arrival.path);
        let toll = plan.policer.tolls.charge(toll);
        let forecast = &plan.class(arrival.class).forecast;
        let limit = f64::from(forecast.toll_limit.load(Ordering::Relaxed));
        let measured = (f64::from(ahead) + 1.0) * toll;
        if toll > 1.0 && measured > limit {
            Err(Refusal {
                measured,
                limit,
                ..self.refusal(plan, ShedReason::Costly, arrival.class)
            })
        } else {
            Ok(())
        }
    }

    /// In overload, whether the share of requests of this cost is used up.
    fn refuse_beyond_cost_share(&self, plan: &Plan, arrival: &Arrival) -> Result<(), Refusal> {
        let shares = &plan.class(arrival.class).cost_shares;
        let admitted = arrival.cost.map_or(Ok(()), |cost| shares.admit(cost));
        admitted.map_err(|saved| Refusal {
            measured: saved,
            limit: 1.0,
            ..self.refusal(plan, ShedReason::CostShare, arrival.class)
        })
    }

    /// Takes a slot: of the sticky replica while it is healthy, else of any.
    pub(super) fn place(
        &self,
        plan: &Plan,
        now: Timestamp,
        sticky: Option<ReplicaId>,
        slots: Slots,
    ) -> Option<ReplicaId> {
        let wanted = sticky.and_then(|id| plan.replica(id).map(|replica| (id, replica)));
        match wanted {
            Some((id, replica)) if replica.is_up() => replica.take(now, slots).then_some(id),
            _ => {
                let policy = plan.balance();
                self.balancer
                    .place(policy, &plan.replicas, now, slots, None)
            }
        }
    }

    /// Fills in the permit for a slot that was taken.
    pub(super) fn permit(
        &self,
        plan: &Plan,
        now: Timestamp,
        origin: Origin,
        replica: ReplicaId,
    ) -> Permit {
        if origin.returned.is_none() {
            add_one(&plan.class(origin.class).counters.admitted);
        }
        if let Some(session) = origin.opens {
            plan.sessions.open(now, session);
        }
        // The thread that freed the slot may have read its clock before this request arrived.
        let now = now.max(origin.arrived);
        let state = &plan.replicas[usize::from(replica.0)];
        let generation = state.enter();
        let content = match (origin.returned, self.bypass()) {
            (Some(returned), _) => returned.content,
            (None, true) => None,
            (None, false) => {
                let queued = self.waiting_now();
                self.content.decide(now - origin.oldest, queued, state)
            }
        };
        self.content.enter(content);
        Permit {
            number: 0,
            replica,
            class: origin.class,
            arrived: origin.arrived,
            admitted: now,
            path: origin.path,
            tenant: origin.tenant.and_then(NonZeroU64::new),
            cost: origin.cost,
            place: state.admit(now, origin.arrived < now),
            generation,
            counted: origin.passed.counted,
            streaming: false,
            paused: None,
            returned: origin.returned.is_some(),
            content,
            unreported: Some(Arc::clone(&self.unreported)),
        }
    }

    /// A refusal without figures.
    pub(super) fn refusal(&self, plan: &Plan, reason: ShedReason, class: ClassId) -> Refusal {
        Refusal {
            reason,
            class,
            retry_after: self.retry_after(plan, class),
            measured: 0.0,
            limit: 0.0,
        }
    }

    /// Waiters of this importance or above. A refusal has to be cheap, whatever the number of
    /// classes, so they are added up only when a request waits.
    fn queued_ahead(&self, plan: &Plan, class: ClassId) -> u32 {
        match self.waiting_now() {
            0 => 0,
            _ => plan.queued_ahead(class),
        }
    }

    /// Requests that wait, of all classes.
    fn waiting_now(&self) -> u32 {
        self.parked.load(Ordering::Relaxed) + self.held.load(Ordering::Relaxed)
    }

    /// When the queue of now will be drained, longer the more is asked for: if all come
    /// back after it, they come at the rate that can be served.
    fn retry_after(&self, plan: &Plan, class: ClassId) -> Duration {
        let forecast = &plan.class(class).forecast;
        let drained = forecast.response_seconds(self.queued_ahead(plan, class));
        let at_gate = || self.gate.wait_seconds();
        let seconds = drained.or_else(at_gate).unwrap_or(0.0) * forecast.pressure.load();
        let longest = Refusal::RETRY_AFTER_MAX.as_secs_f64();
        Duration::from_secs_f64(within(seconds, RETRY_AFTER_MIN_S, longest))
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;
    use crate::api::ReplicaChange;

    /// A decision that began before a reload and ends after it.
    #[test]
    fn replicas_that_are_all_replaced_meanwhile_lose_no_request() {
        let config = tidegate_config::parse("test.toml", "mode = 'auto'").unwrap();
        let sentry = Sentry::<u32>::new(&config, 1, Timestamp::ZERO, 1).unwrap();
        let old = sentry.plan.load_full();
        let changes = [
            ReplicaChange::Add(NonZeroU32::MIN),
            ReplicaChange::Remove(ReplicaId(0)),
        ];
        let (added, resolutions) = sentry
            .reconfigure(Timestamp::ZERO, &config, &changes)
            .unwrap();
        assert_eq!(resolutions.count(), 0);
        let arrival = Arrival::default();
        let passed = Passed { counted: false };
        let verdict = sentry.enter(&old, Timestamp::ZERO, &arrival, passed, || 1);
        let Ok(Verdict::Admit(permit)) = verdict else {
            panic!("{verdict:?}");
        };
        assert_eq!(Some(&permit.replica()), added.first());
        let open = sentry.decide_open(&old, Timestamp::ZERO, &arrival);
        assert!(matches!(open, Ok(Verdict::Admit(_))), "{open:?}");
    }
}

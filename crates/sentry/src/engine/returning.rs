//! An admitted request comes back: its replica is dead, and no other one has room.
//!
//! It was promised an answer, so it goes to the head of its class instead of failing, and waits
//! for any replica but the one it comes from. To the counters it stays one request that was
//! admitted once: if it is refused after all it counts as dropped, because a replica failed.
//!
//! Decision: docs/decisions/0314-requests-that-come-back.md.

use std::sync::atomic::Ordering;

use tidegate_control::Timestamp;

use super::waiting::Waiting;
use super::{Resolutions, Sentry};
use crate::api::{Arrival, Permit, Ticket};
use crate::gate::Passed;
use crate::plan::Plan;
use crate::policing::cost_shares::CostBand;
use crate::queue::{Returned, Waiter};

impl<T> Sentry<T> {
    /// Back to the head of the queue, for a request that may be sent again and for which
    /// [`Sentry::reassign`] found no room. It takes `bytes` of the queue, and `deadline` is the
    /// client's own. Its waiter is resolved like any other, perhaps in what this call returns.
    ///
    /// # Errors
    /// Gives the permit back unchanged when there is nothing to wait for: no other replica is
    /// healthy, or the queue cannot hold it.
    pub fn requeue(
        &self,
        now: Timestamp,
        mut permit: Permit,
        bytes: u32,
        deadline: Option<Timestamp>,
        waiter: impl FnOnce() -> T,
    ) -> Result<(Ticket, Resolutions<'_, T>), Permit> {
        let plan = self.plan.load_full();
        if permit.streaming || self.bypass() || !plan.any_up_but(Some(permit.replica)) {
            return Err(permit);
        }
        let arrival = Arrival {
            class: permit.class,
            bytes,
            deadline,
            path: permit.path,
            cost: permit.cost.map(CostBand::cost),
            ..Arrival::default()
        };
        let mut waiting = self.waiting.lock();
        if !self.clear_the_end(&plan, &mut waiting, &arrival) {
            return Err(permit);
        }
        permit.disarm();
        self.content.leave(permit.content);
        self.parked.fetch_add(1, Ordering::SeqCst);
        plan.class(permit.class)
            .queued
            .fetch_add(1, Ordering::Relaxed);
        let passed = Passed {
            counted: permit.counted,
        };
        let ticket = waiting.queue.push(Waiter {
            arrived: permit.arrived,
            preferred: false,
            returned: Some(Returned {
                from: permit.replica,
                content: permit.content,
            }),
            ..self.waiter(&plan, now, &arrival, passed, waiter())
        });
        self.publish_bytes(&waiting);
        drop(waiting);
        let replica = &plan.replicas[usize::from(permit.replica.0)];
        replica.on_failure(now);
        replica.depart(now, permit.place, false);
        replica.release(now, permit.generation);
        drop(plan);
        Ok((ticket, self.resolutions(now)))
    }

    /// Room within the queue's bounds at the expense of those that would be served last; they have
    /// not been promised anything.
    fn clear_the_end(&self, plan: &Plan, waiting: &mut Waiting<T>, arrival: &Arrival) -> bool {
        let class = plan.class_index(arrival.class);
        while self.make_room(plan, waiting, arrival).is_err() {
            let Some((ticket, last)) = waiting.queue.pop_last(class) else {
                return false;
            };
            let refusal = self.full(plan, last.class);
            self.evict(plan, waiting, (ticket, last), refusal);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{Ending, ReplicaId, Resolution, ShedReason, Verdict};

    const NOW: Timestamp = Timestamp::ZERO;

    /// Two replicas with one slot each, both taken; the queue holds two.
    fn full() -> (Sentry<u32>, [Permit; 2]) {
        let text = "mode = 'static'\nstatic.window = 100\nlimits.slots = 1\nqueue.max_requests = 2";
        let config = tidegate_config::parse("test.toml", text).unwrap();
        let sentry = Sentry::new(&config, 2, NOW, 1).unwrap();
        let permits = [(), ()].map(|()| match arrive(&sentry, 0) {
            Verdict::Admit(permit) => permit,
            other => panic!("there is room, not {other:?}"),
        });
        (sentry, permits)
    }

    fn arrive(sentry: &Sentry<u32>, id: u32) -> Verdict {
        sentry.on_arrival(NOW, &Arrival::default(), || id)
    }

    /// Sends the first back as request 9; what is resolved by it and by the end of the second.
    fn resolved(
        sentry: &Sentry<u32>,
        [dead, other]: [Permit; 2],
    ) -> Vec<(u32, Result<ReplicaId, ShedReason>)> {
        let told = |(id, resolution)| match resolution {
            Resolution::Admit(permit) => (id, Ok(permit.replica())),
            Resolution::Shed(refusal) => (id, Err(refusal.reason)),
        };
        let (_, back) = sentry.requeue(NOW, dead, 1, None, || 9).unwrap();
        let mut resolved: Vec<_> = back.map(told).collect();
        resolved.extend(sentry.on_end(NOW, other, Ending::Served).map(told));
        resolved
    }

    #[test]
    fn it_goes_first_and_elsewhere() {
        let (sentry, permits) = full();
        let (dead, alive) = (permits[0].replica(), permits[1].replica());
        assert!(matches!(arrive(&sentry, 1), Verdict::Wait(_)));
        let resolved = resolved(&sentry, permits);
        assert_eq!(
            resolved,
            [(1, Ok(dead)), (9, Ok(alive))],
            "the slot it gave back is for others"
        );
        let class = &sentry.status(NOW).classes[0];
        assert_eq!((class.arrived, class.admitted), (3, 3));
    }

    #[test]
    fn it_takes_the_place_of_the_last_in_a_full_queue() {
        let (sentry, permits) = full();
        let alive = permits[1].replica();
        let _waiting = [arrive(&sentry, 1), arrive(&sentry, 2)];
        let resolved = resolved(&sentry, permits);
        assert!(resolved.contains(&(2, Err(ShedReason::QueueFull))));
        assert!(resolved.contains(&(9, Ok(alive))));
    }

    #[test]
    fn it_does_not_wait_for_nobody() {
        let (sentry, [dead, other]) = full();
        assert_eq!(sentry.set_health(NOW, other.replica(), false).count(), 0);
        assert!(sentry.requeue(NOW, dead, 1, None, || 9).is_err());
        assert_eq!(sentry.status(NOW).queue.requests, 0);
    }

    #[test]
    fn when_the_last_hope_dies_it_counts_as_dropped() {
        let (sentry, [dead, other]) = full();
        let (_, back) = sentry.requeue(NOW, dead, 1, None, || 9).unwrap();
        assert_eq!(back.count(), 0);
        let resolved: Vec<_> = sentry.set_health(NOW, other.replica(), false).collect();
        assert!(
            matches!(&resolved[..], [(9, Resolution::Shed(it))] if it.reason == ShedReason::NoReplica),
            "{resolved:?}"
        );
        let class = &sentry.status(NOW).classes[0];
        assert_eq!(class.dropped, 1);
        assert!(class.shed.iter().all(|(_, count)| *count == 0));
    }
}

//! CoDel (RFC 8289) on a first-come first-served queue in front of a fixed number of slots.
//!
//! When requests have waited longer than `target` for a whole `interval`, the head of the queue is
//! refused, and again after `interval / sqrt(n)`, until a request is found that waited less.

use std::collections::VecDeque;
use std::time::Duration;

use tidegate_control::Timestamp;
use tidegate_sentry::{Arrival, Ending, Observer, Refusal, ReplicaId, ShedReason};

use crate::rng::SimRng;
use crate::scenario::{Choice, Decision, NoProtection, Protector, RequestId, Wakes};

/// A queue with CoDel, slots behind it.
#[derive(Debug)]
pub struct CoDel {
    balancer: NoProtection,
    slots: usize,
    in_flight: usize,
    queue: VecDeque<Waiting>,
    law: DropLaw,
}

#[derive(Debug, Clone, Copy)]
struct Waiting {
    request: RequestId,
    arrival: Arrival,
    since: Timestamp,
}

impl CoDel {
    /// The RFC's defaults for `target` and `interval` are 5 ms and 100 ms, for packets.
    #[must_use]
    pub fn new(
        slots: usize,
        target: Duration,
        interval: Duration,
        replicas: usize,
        rng: SimRng,
    ) -> Self {
        Self {
            balancer: NoProtection::new(Choice::LeastInFlight, replicas, rng),
            slots,
            in_flight: 0,
            queue: VecDeque::new(),
            law: DropLaw {
                target,
                interval,
                first_above: None,
                dropping: false,
                next: Timestamp::ZERO,
                count: 0,
            },
        }
    }

    fn fill(&mut self, now: Timestamp, wakes: &mut Wakes) {
        while self.in_flight < self.slots {
            let Some(head) = self.queue.pop_front() else {
                self.law.first_above = None;
                return;
            };
            let waited = now.since(head.since);
            let decision = if self.law.drops(now, waited) {
                Decision::Shed(self.refusal(&head.arrival, waited))
            } else {
                self.admit(now, &head)
            };
            wakes.push_back((head.request, decision));
        }
    }

    fn admit(&mut self, now: Timestamp, head: &Waiting) -> Decision {
        let decision = self.balancer.on_arrival(now, head.request, &head.arrival);
        self.in_flight += usize::from(matches!(decision, Decision::Admit(_)));
        decision
    }

    fn refusal(&self, arrival: &Arrival, waited: Duration) -> Refusal {
        Refusal {
            reason: ShedReason::Expired,
            class: arrival.class,
            retry_after: Duration::from_secs(1),
            measured: waited.as_secs_f64(),
            limit: self.law.target.as_secs_f64(),
        }
    }
}

#[derive(Debug)]
struct DropLaw {
    target: Duration,
    interval: Duration,
    /// When the delay will have been above the target for a whole interval.
    first_above: Option<Timestamp>,
    dropping: bool,
    next: Timestamp,
    count: u32,
}

impl DropLaw {
    fn drops(&mut self, now: Timestamp, waited: Duration) -> bool {
        if !self.stands(now, waited) {
            self.dropping = false;
            return false;
        }
        if self.dropping {
            if now < self.next {
                return false;
            }
            self.count += 1;
            self.next += self.gap();
            return true;
        }
        self.dropping = true;
        // Soon after the last episode it goes on where it left off.
        let recent = now.since(self.next) < 16 * self.interval;
        self.count = if recent && self.count > 2 {
            self.count - 2
        } else {
            1
        };
        self.next = now + self.gap();
        true
    }

    /// Whether the delay has stood above the target for an interval.
    fn stands(&mut self, now: Timestamp, waited: Duration) -> bool {
        if waited < self.target {
            self.first_above = None;
            return false;
        }
        let over_at = *self.first_above.get_or_insert(now + self.interval);
        now >= over_at
    }

    fn gap(&self) -> Duration {
        self.interval.div_f64(f64::from(self.count).sqrt())
    }
}

impl Protector for CoDel {
    fn on_arrival(&mut self, now: Timestamp, request: RequestId, arrival: &Arrival) -> Decision {
        let waiting = Waiting {
            request,
            arrival: *arrival,
            since: now,
        };
        if self.in_flight < self.slots && self.queue.is_empty() {
            return self.admit(now, &waiting);
        }
        self.queue.push_back(waiting);
        Decision::Wait
    }

    fn reassign(&mut self, now: Timestamp, request: RequestId) -> Option<ReplicaId> {
        self.balancer.reassign(now, request)
    }

    fn on_stream(&mut self, now: Timestamp, request: RequestId, wakes: &mut Wakes) {
        self.balancer.on_stream(now, request, wakes);
    }

    fn on_end(&mut self, now: Timestamp, request: RequestId, ending: Ending, wakes: &mut Wakes) {
        self.balancer.on_end(now, request, ending, wakes);
        self.in_flight -= 1;
        self.fill(now, wakes);
    }

    fn on_abandon(&mut self, _: Timestamp, request: RequestId) {
        self.queue.retain(|waiting| waiting.request != request);
    }

    fn on_report(&mut self, _: Timestamp, _: ReplicaId, _: f64) {}

    fn set_health(&mut self, now: Timestamp, replica: ReplicaId, up: bool, wakes: &mut Wakes) {
        self.balancer.set_health(now, replica, up, wakes);
    }

    fn poll_timeout(&self) -> Timestamp {
        Timestamp::MAX
    }

    fn handle_timeout(&mut self, _: Timestamp, _: &mut dyn Observer, _: &mut Wakes) {}

    fn gauges(&self, _: Timestamp, gauge: &mut dyn FnMut(&'static str, f64)) {
        gauge("in_flight", self.in_flight as f64);
        gauge("queued", self.queue.len() as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn law() -> DropLaw {
        DropLaw {
            target: Duration::from_millis(5),
            interval: Duration::from_millis(100),
            first_above: None,
            dropping: false,
            next: Timestamp::ZERO,
            count: 0,
        }
    }

    #[test]
    fn a_short_burst_is_not_punished_and_a_standing_queue_is_more_and_more() {
        let mut law = law();
        let at = |ms: u64| Timestamp::from_nanos(ms * 1_000_000);
        let long = Duration::from_millis(50);
        let drops: Vec<u64> = (0..600)
            .step_by(2)
            .filter(|&ms| law.drops(at(ms), long))
            .collect();
        assert_eq!(drops[0], 100, "nothing in the first interval");
        let gaps: Vec<u64> = drops.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(gaps[0] >= gaps[3], "{gaps:?}");
        assert!(!law.drops(at(600), Duration::from_millis(1)));
        assert!(!law.drops(at(602), long), "a new interval begins");
    }
}

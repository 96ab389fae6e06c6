//! Rules that live in the server: a gate, and a first-come first-served queue in front of slots.
//!
//! The delay that such a rule goes by is the time that a request waits in its server for a worker.
//! A proxy does not see it, so the queue is here and the slots stand for the workers. The number of
//! slots is a person's: it needs to be known what the service has.
//!
//! A worker finishes what its client has abandoned, so such a request keeps its slot for as long as
//! requests take on average.
//!
//! What breaks it: service times that grow at once. Abandoned work then lasts longer than its slot
//! is kept, and the queue that the rule should see is inside the replica (decision 0256).

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use rand::RngExt;
use tidegate_control::Timestamp;
use tidegate_sentry::{Arrival, Ending, Observer, Refusal, ReplicaId, ShedReason};

use crate::rng::SimRng;
use crate::scenario::{Choice, Decision, NoProtection, Protector, RequestId, Wakes};

/// A request at the gate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AtGate {
    /// When it arrives.
    pub now: Timestamp,
    /// Its class, 0 for the most important.
    pub class: u16,
    /// Chance of its own, the same for all rules: from 0 to 1.
    pub draw: f64,
    /// Requests in the queue and in the slots.
    pub pending: usize,
}

/// A request that ends.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ended {
    /// When it ends.
    pub now: Timestamp,
    /// Seconds since it arrived.
    pub response_s: f64,
    /// Seconds since it left the queue.
    pub service_s: f64,
    /// Requests in the slots when it left the queue, itself included.
    pub in_flight: f64,
    /// How it ended.
    pub ending: Ending,
}

/// A rule that admits requests into a server's queue.
pub trait ServerRule: std::fmt::Debug {
    /// Whether a request may enter.
    fn admits(&mut self, request: &AtGate) -> bool;

    /// Requests that the server works on at once.
    fn slots(&self) -> usize;

    /// Whether one that has waited for so long is refused instead of started.
    fn drops(&self, waited: Duration) -> bool {
        let _ = waited;
        false
    }

    /// A request has left the queue after this wait, be it for a slot or refused.
    fn on_start(&mut self, now: Timestamp, waited: Duration) {
        let _ = (now, waited);
    }

    /// A started request ends.
    fn on_end(&mut self, ended: &Ended) {
        let _ = ended;
    }

    /// What it adapts, for a curve.
    fn level(&self) -> f64;
}

/// Enforces a [`ServerRule`].
#[derive(Debug)]
pub struct ServerQueue {
    rule: Box<dyn ServerRule>,
    balancer: NoProtection,
    rng: SimRng,
    in_flight: usize,
    queue: VecDeque<Waiting>,
    /// Arrival, start and requests in the slots of each started request, by its slot.
    started: Vec<(Timestamp, Timestamp, usize)>,
    /// When workers will have finished what was abandoned, in order.
    abandoned: BinaryHeap<Reverse<Timestamp>>,
    /// Mean time in a slot of what was served lately.
    service_s: f64,
}

/// Weight of a service time in the mean.
const SERVICE_WEIGHT: f64 = 0.05;

#[derive(Debug, Clone, Copy)]
struct Waiting {
    request: RequestId,
    arrival: Arrival,
    since: Timestamp,
}

impl ServerQueue {
    /// One queue for all replicas together; they are chosen by the fewest requests in flight.
    #[must_use]
    pub fn new(rule: Box<dyn ServerRule>, replicas: usize, rng: SimRng) -> Self {
        Self {
            rule,
            balancer: NoProtection::new(Choice::LeastInFlight, replicas, rng.clone()),
            rng,
            in_flight: 0,
            queue: VecDeque::new(),
            started: Vec::new(),
            abandoned: BinaryHeap::new(),
            service_s: 0.0,
        }
    }

    fn fill(&mut self, now: Timestamp, wakes: &mut Wakes) {
        while self.in_flight < self.rule.slots().max(1) {
            let Some(head) = self.queue.pop_front() else {
                return;
            };
            let decision = self.leave_queue(now, &head);
            wakes.push_back((head.request, decision));
        }
    }

    fn leave_queue(&mut self, now: Timestamp, head: &Waiting) -> Decision {
        let waited = now.since(head.since);
        let drops = self.rule.drops(waited);
        self.rule.on_start(now, waited);
        if drops {
            Decision::Shed(self.refusal(&head.arrival, waited.as_secs_f64()))
        } else {
            self.start(now, head)
        }
    }

    fn start(&mut self, now: Timestamp, head: &Waiting) -> Decision {
        let decision = self.balancer.on_arrival(now, head.request, &head.arrival);
        if matches!(decision, Decision::Admit(_)) {
            self.in_flight += 1;
            let slot = head.request.slot();
            if self.started.len() <= slot {
                let none = (Timestamp::ZERO, Timestamp::ZERO, 0);
                self.started.resize(slot + 1, none);
            }
            self.started[slot] = (head.since, now, self.in_flight);
        }
        decision
    }

    fn refusal(&self, arrival: &Arrival, measured: f64) -> Refusal {
        Refusal {
            reason: ShedReason::Window,
            class: arrival.class,
            retry_after: Duration::from_secs(1),
            measured,
            limit: self.rule.level(),
        }
    }
}

impl Protector for ServerQueue {
    fn on_arrival(&mut self, now: Timestamp, request: RequestId, arrival: &Arrival) -> Decision {
        let pending = self.in_flight + self.queue.len();
        let at_gate = AtGate {
            now,
            class: arrival.class.0,
            draw: self.rng.random(),
            pending,
        };
        if !self.rule.admits(&at_gate) {
            return Decision::Shed(self.refusal(arrival, pending as f64));
        }
        let waiting = Waiting {
            request,
            arrival: *arrival,
            since: now,
        };
        if self.in_flight < self.rule.slots().max(1) && self.queue.is_empty() {
            return self.leave_queue(now, &waiting);
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
        let (arrived, started, in_flight) = self.started[request.slot()];
        let service_s = now.since(started).as_secs_f64();
        if ending == Ending::Served {
            self.service_s += SERVICE_WEIGHT * (service_s - self.service_s);
        }
        self.rule.on_end(&Ended {
            now,
            response_s: now.since(arrived).as_secs_f64(),
            service_s,
            in_flight: in_flight as f64,
            ending,
        });
        if ending == Ending::Abandoned {
            let finished = now + Duration::from_secs_f64(self.service_s);
            self.abandoned.push(Reverse(finished));
            return;
        }
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
        let next = self.abandoned.peek();
        next.map_or(Timestamp::MAX, |Reverse(finished)| *finished)
    }

    fn handle_timeout(&mut self, now: Timestamp, _: &mut dyn Observer, wakes: &mut Wakes) {
        while self.abandoned.peek().is_some_and(|first| first.0 <= now) {
            self.abandoned.pop();
            self.in_flight -= 1;
        }
        self.fill(now, wakes);
    }

    fn gauges(&self, _: Timestamp, gauge: &mut dyn FnMut(&'static str, f64)) {
        gauge("level", self.rule.level());
        gauge("in_flight", self.in_flight as f64);
        gauge("queued", self.queue.len() as f64);
    }
}

//! A concurrency limit as a protector: in flight below the limit, or refused.

use std::time::Duration;

use tidegate_control::Timestamp;
use tidegate_sentry::{Arrival, Ending, Observer, Refusal, ReplicaId, ShedReason};

use crate::rng::SimRng;
use crate::scenario::{Choice, Decision, NoProtection, Protector, RequestId, Wakes};

/// What a rule learns from one request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// When it ended.
    pub now: Timestamp,
    /// How long it took.
    pub response_s: f64,
    /// How many were in flight when it began, itself included.
    pub in_flight: f64,
    /// Whether the replica failed it.
    pub dropped: bool,
}

/// A rule that adapts a limit on requests in flight.
pub trait Limit: std::fmt::Debug {
    /// The limit in force.
    fn limit(&self) -> f64;
    /// A request ended.
    fn on_sample(&mut self, sample: &Sample);
}

/// Enforces a [`Limit`].
#[derive(Debug)]
pub struct LimitProtector {
    limit: Box<dyn Limit>,
    balancer: NoProtection,
    in_flight: usize,
    /// When each request in flight began and how many there were, by its slot.
    began: Vec<(Timestamp, usize)>,
}

impl LimitProtector {
    /// One limit for all replicas together.
    #[must_use]
    pub fn new(limit: Box<dyn Limit>, replicas: usize, rng: SimRng) -> Self {
        let balancer = NoProtection::new(Choice::LeastInFlight, replicas, rng);
        Self {
            limit,
            balancer,
            in_flight: 0,
            began: Vec::new(),
        }
    }

    fn refusal(&self, arrival: &Arrival) -> Refusal {
        Refusal {
            reason: ShedReason::Window,
            class: arrival.class,
            retry_after: Duration::from_secs(1),
            measured: self.in_flight as f64,
            limit: self.limit.limit(),
        }
    }
}

impl Protector for LimitProtector {
    fn on_arrival(&mut self, now: Timestamp, request: RequestId, arrival: &Arrival) -> Decision {
        if self.in_flight as f64 + 1.0 > self.limit.limit() {
            return Decision::Shed(self.refusal(arrival));
        }
        let decision = self.balancer.on_arrival(now, request, arrival);
        if matches!(decision, Decision::Admit(_)) {
            self.in_flight += 1;
            if self.began.len() <= request.slot() {
                self.began.resize(request.slot() + 1, (Timestamp::ZERO, 0));
            }
            self.began[request.slot()] = (now, self.in_flight);
        }
        decision
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
        let (began, in_flight) = self.began[request.slot()];
        if matches!(ending, Ending::Served | Ending::Dropped) {
            self.limit.on_sample(&Sample {
                now,
                response_s: now.since(began).as_secs_f64(),
                in_flight: in_flight as f64,
                dropped: ending == Ending::Dropped,
            });
        }
    }

    fn on_abandon(&mut self, _: Timestamp, _: RequestId) {
        unreachable!("nobody waits for a limit");
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
        gauge("limit", self.limit.limit());
        gauge("in_flight", self.in_flight as f64);
    }
}

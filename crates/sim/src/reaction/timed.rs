//! A protector that keeps when each request arrived and how long it took.

use tidegate_control::Timestamp;
use tidegate_sentry::{Arrival, Ending, Observer, ReplicaId, Report};

use crate::scenario::{Decision, Orders, PoolChange, Protector, RequestId, Wakes};

/// A request with what became of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Admitted {
    /// When it arrived, in seconds.
    pub(super) arrived_s: f64,
    /// Seconds until its answer; without end where it was admitted and not answered. Nothing where
    /// it was not admitted.
    pub(super) response_s: Option<f64>,
}

/// A protector that keeps when each request arrived and how long it took.
#[derive(Debug)]
pub(super) struct Timed {
    inner: Box<dyn Protector>,
    requests: Vec<Admitted>,
    /// The index of each live request, by its slot.
    live: Vec<usize>,
}

impl Timed {
    pub(super) fn new(inner: Box<dyn Protector>) -> Self {
        Self {
            inner,
            requests: Vec::new(),
            live: Vec::new(),
        }
    }

    /// All requests, in the order of their arrival.
    pub(super) fn finish(self) -> Vec<Admitted> {
        self.requests
    }

    fn on_decision(&mut self, request: RequestId, decision: &Decision) {
        if matches!(decision, Decision::Admit(_)) {
            self.requests[self.live[request.slot()]].response_s = Some(f64::INFINITY);
        }
    }

    /// What a call has resolved beyond those that were there before it.
    fn on_wakes(&mut self, from: usize, wakes: &Wakes) {
        for (request, decision) in wakes.iter().skip(from) {
            self.on_decision(*request, decision);
        }
    }
}

impl Protector for Timed {
    fn on_arrival(&mut self, now: Timestamp, request: RequestId, arrival: &Arrival) -> Decision {
        if self.live.len() <= request.slot() {
            self.live.resize(request.slot() + 1, 0);
        }
        self.live[request.slot()] = self.requests.len();
        self.requests.push(Admitted {
            arrived_s: now.as_secs_f64(),
            response_s: None,
        });
        let decision = self.inner.on_arrival(now, request, arrival);
        self.on_decision(request, &decision);
        decision
    }

    fn orders(&self, request: RequestId) -> Orders {
        self.inner.orders(request)
    }

    fn on_answer(&mut self, now: Timestamp, replica: ReplicaId, report: &Report) {
        self.inner.on_answer(now, replica, report);
    }

    fn reassign(&mut self, now: Timestamp, request: RequestId) -> Option<ReplicaId> {
        self.inner.reassign(now, request)
    }

    fn requeue(
        &mut self,
        now: Timestamp,
        request: RequestId,
        arrival: &Arrival,
        wakes: &mut Wakes,
    ) -> bool {
        let from = wakes.len();
        let waits = self.inner.requeue(now, request, arrival, wakes);
        self.on_wakes(from, wakes);
        waits
    }

    fn on_stream(&mut self, now: Timestamp, request: RequestId, wakes: &mut Wakes) {
        let from = wakes.len();
        self.inner.on_stream(now, request, wakes);
        self.on_wakes(from, wakes);
    }

    fn on_end(&mut self, now: Timestamp, request: RequestId, ending: Ending, wakes: &mut Wakes) {
        let from = wakes.len();
        self.inner.on_end(now, request, ending, wakes);
        if ending == Ending::Served {
            let kept = &mut self.requests[self.live[request.slot()]];
            kept.response_s = Some(now.as_secs_f64() - kept.arrived_s);
        }
        self.on_wakes(from, wakes);
    }

    fn on_abandon(&mut self, now: Timestamp, request: RequestId) {
        self.inner.on_abandon(now, request);
    }

    fn on_report(&mut self, now: Timestamp, replica: ReplicaId, utilization: f64) {
        self.inner.on_report(now, replica, utilization);
    }

    fn set_health(&mut self, now: Timestamp, replica: ReplicaId, up: bool, wakes: &mut Wakes) {
        let from = wakes.len();
        self.inner.set_health(now, replica, up, wakes);
        self.on_wakes(from, wakes);
    }

    fn change_pool(&mut self, now: Timestamp, change: PoolChange, wakes: &mut Wakes) {
        let from = wakes.len();
        self.inner.change_pool(now, change, wakes);
        self.on_wakes(from, wakes);
    }

    fn poll_timeout(&self) -> Timestamp {
        self.inner.poll_timeout()
    }

    fn handle_timeout(&mut self, now: Timestamp, observer: &mut dyn Observer, wakes: &mut Wakes) {
        let from = wakes.len();
        self.inner.handle_timeout(now, observer, wakes);
        self.on_wakes(from, wakes);
    }

    fn gauges(&self, now: Timestamp, gauge: &mut dyn FnMut(&'static str, f64)) {
        self.inner.gauges(now, gauge);
    }
}

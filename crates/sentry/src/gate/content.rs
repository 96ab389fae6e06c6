//! The gate for optional content: whether a request that is dispatched is served in full.
//!
//! ```text
//! full  ⇔  waited (+ what its replica takes for a full response, with prediction) ≤ limit
//! ```
//!
//! and no more than a bound wait (004 eq. 1; the prediction and the bound are ours: when load steps
//! up, the queue is long before its head has waited for long). What counts as waited is the wait of
//! the request that has waited longest at that moment: the same in a queue of one class, and in a
//! queue of several the less important are not kept waiting for the optional content of others. The
//! limit comes from the adaptation; requests only compare and count. Off, nothing is said about
//! content and nothing is counted.
//!
//! Decision: docs/decisions/0003-brownout-by-predicted-response-time.md.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crate::api::Content;
use crate::atomic::{AtomicF64, add_one};
use crate::monitor::{AtomicHistogram, Histogram};
use crate::replica::Replica;

/// What requests are judged by.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ContentRule {
    /// Seconds up to which a request is served in full.
    pub(crate) limit_s: f64,
    /// Most requests that may wait while a request is served in full.
    pub(crate) queued_max: u32,
    /// Compare with the predicted response time, not with the waiting time alone.
    pub(crate) predict: bool,
    /// Service time that replicas are told to aim at; nothing without it.
    pub(crate) service_target_s: Option<f64>,
    /// For every replica, or only for those that have said that they can leave something out.
    pub(crate) everywhere: bool,
}

/// What was dispatched since the last look.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Dispatched {
    pub(crate) requests: u64,
    pub(crate) full: u64,
    waited_s: f64,
}

impl Dispatched {
    /// Mean waiting time, where anything was dispatched.
    pub(crate) fn waited_s(&self) -> Option<f64> {
        (self.requests > 0).then(|| self.waited_s / self.requests as f64)
    }

    /// Share of the requests to be served in full, where anything was dispatched.
    pub(crate) fn full_share(&self) -> Option<f64> {
        (self.requests > 0).then(|| self.full as f64 / self.requests as f64)
    }
}

const OFF: u8 = 0;
const WHERE_UNDERSTOOD: u8 = 1;
const EVERYWHERE: u8 = 2;

/// The gate for optional content: whether a request that is dispatched is served in full.
#[derive(Debug)]
pub(crate) struct ContentGate {
    scope: AtomicU8,
    predict: AtomicBool,
    limit_s: AtomicF64,
    queued_max: AtomicU32,
    /// NaN without one.
    service_target_s: AtomicF64,
    requests: AtomicU64,
    full: AtomicU64,
    waited_ns: AtomicU64,
    /// Requests to be served in full that hold a slot.
    full_inside: AtomicU32,
    full_responses: AtomicHistogram,
}

impl ContentGate {
    pub(crate) fn new() -> Self {
        Self {
            scope: AtomicU8::new(OFF),
            predict: AtomicBool::new(false),
            limit_s: AtomicF64::new(f64::INFINITY),
            queued_max: AtomicU32::new(u32::MAX),
            service_target_s: AtomicF64::new(f64::NAN),
            requests: AtomicU64::new(0),
            full: AtomicU64::new(0),
            waited_ns: AtomicU64::new(0),
            full_inside: AtomicU32::new(0),
            full_responses: AtomicHistogram::new(),
        }
    }

    /// Says nothing about content.
    pub(crate) fn turn_off(&self) {
        self.scope.store(OFF, Ordering::Relaxed);
    }

    pub(crate) fn set(&self, rule: &ContentRule) {
        self.predict.store(rule.predict, Ordering::Relaxed);
        self.limit_s.store(rule.limit_s);
        self.queued_max.store(rule.queued_max, Ordering::Relaxed);
        self.service_target_s
            .store(rule.service_target_s.unwrap_or(f64::NAN));
        let scope = if rule.everywhere {
            EVERYWHERE
        } else {
            WHERE_UNDERSTOOD
        };
        self.scope.store(scope, Ordering::Relaxed);
    }

    /// Tells replicas to aim at this service time from now on.
    pub(crate) fn set_service_target(&self, seconds: f64) {
        self.service_target_s.store(seconds);
    }

    /// What to send to the replica about a request, when the head of the queue has waited for
    /// `waited` and `queued` requests wait.
    pub(crate) fn decide(
        &self,
        waited: Duration,
        queued: u32,
        replica: &Replica,
    ) -> Option<Content> {
        match self.scope.load(Ordering::Relaxed) {
            OFF => return None,
            WHERE_UNDERSTOOD if !replica.reports.understands_optional() => return None,
            _ => {}
        }
        let service_s = if self.predict.load(Ordering::Relaxed) {
            replica.reports.expected_full_s()
        } else {
            0.0
        };
        let optional = waited.as_secs_f64() + service_s <= self.limit_s.load()
            && queued <= self.queued_max.load(Ordering::Relaxed);
        add_one(&self.requests);
        self.full.fetch_add(u64::from(optional), Ordering::Relaxed);
        let waited_ns = u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX);
        self.waited_ns.fetch_add(waited_ns, Ordering::Relaxed);
        let target = Duration::try_from_secs_f64(self.service_target_s.load());
        Some(Content {
            optional,
            service_target: target.ok(),
        })
    }

    /// A request takes a slot.
    pub(crate) fn enter(&self, content: Option<Content>) {
        if content.is_some_and(|content| content.optional) {
            self.full_inside.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A request gives its slot back.
    pub(crate) fn leave(&self, content: Option<Content>) {
        if content.is_some_and(|content| content.optional) {
            self.full_inside.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Requests to be served in full that hold a slot.
    pub(crate) fn full_inside(&self) -> u32 {
        self.full_inside.load(Ordering::Relaxed)
    }

    /// A full response was completed, so long after its request had arrived.
    pub(crate) fn on_full_response(&self, response: Duration) {
        self.full_responses.record(response);
    }

    /// What happened since the last call; the response times are added to `responses`.
    pub(crate) fn take(&self, responses: &mut Histogram) -> Dispatched {
        self.full_responses.drain_into(responses);
        let take = |counter: &AtomicU64| counter.swap(0, Ordering::Relaxed);
        Dispatched {
            requests: take(&self.requests),
            full: take(&self.full),
            waited_s: take(&self.waited_ns) as f64 * 1e-9,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: ContentRule = ContentRule {
        limit_s: 0.5,
        queued_max: 100,
        predict: true,
        service_target_s: Some(0.1),
        everywhere: true,
    };

    fn optional(gate: &ContentGate, waited_ms: u64, replica: &Replica) -> Option<bool> {
        let content = gate.decide(Duration::from_millis(waited_ms), 100, replica);
        content.map(|content| content.optional)
    }

    #[test]
    fn request_is_served_in_full_while_it_is_expected_in_time() {
        let (gate, replica) = (ContentGate::new(), Replica::new(1));
        assert_eq!(optional(&gate, 900, &replica), None, "off says nothing");
        gate.set(&RULE);
        assert_eq!(optional(&gate, 450, &replica), Some(true));
        for _ in 0..50 {
            replica.reports.on_full(Duration::from_millis(200));
        }
        assert_eq!(optional(&gate, 250, &replica), Some(true));
        assert_eq!(optional(&gate, 350, &replica), Some(false));
        let taken = gate.take(&mut Histogram::default());
        assert_eq!((taken.requests, taken.full), (3, 2));
        assert!((taken.waited_s().unwrap() - 0.35).abs() < 1e-9);
        assert_eq!(gate.take(&mut Histogram::default()), Dispatched::default());
        let crowded = gate.decide(Duration::ZERO, 101, &replica);
        assert!(!crowded.expect("it is on").optional, "the queue is long");
    }

    #[test]
    fn full_requests_inside_are_those_that_hold_a_slot() {
        let gate = ContentGate::new();
        let content = |optional| {
            Some(Content {
                optional,
                service_target: None,
            })
        };
        for content in [content(true), content(false), None, content(true)] {
            gate.enter(content);
        }
        gate.leave(content(false));
        gate.leave(content(true));
        assert_eq!(gate.full_inside(), 1);
    }

    #[test]
    fn replica_that_cannot_leave_anything_out_is_not_told_to() {
        let (gate, replica) = (ContentGate::new(), Replica::new(1));
        gate.set(&ContentRule {
            everywhere: false,
            ..RULE
        });
        assert_eq!(optional(&gate, 900, &replica), None);
        replica.reports.on_report(&crate::api::Report {
            demand: Some(1),
            ..Default::default()
        });
        assert_eq!(optional(&gate, 900, &replica), Some(false));
    }
}

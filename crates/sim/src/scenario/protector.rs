//! What stands between clients and replicas.

use std::num::NonZeroU32;
use std::time::Duration;

use tidegate_control::Timestamp;
use tidegate_sentry::{Arrival, Ending, Observer, Refusal, ReplicaId, Report};

use crate::slab::Key;

/// A request inside the scenario, from its arrival to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RequestId(pub(super) Key);

impl RequestId {
    /// A small number that no other live request has: an index for a protector's own table.
    #[must_use]
    pub fn slot(self) -> usize {
        self.0.slot()
    }
}

/// What a protector says about a request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Decision {
    /// Send it there now.
    Admit(ReplicaId),
    /// Keep it; a later call resolves it through [`Wakes`].
    Wait,
    /// Refuse it now.
    Shed(Refusal),
}

/// Requests whose waiting ended in this call, each with [`Decision::Admit`] or [`Decision::Shed`].
pub type Wakes = std::collections::VecDeque<(RequestId, Decision)>;

/// A change of the pool of replicas; its replicas have the numbers of the scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolChange {
    /// It serves from now on, and is to carry so much relative to the others.
    Add(ReplicaId, NonZeroU32),
    /// It is to carry so much from now on.
    Weigh(ReplicaId, NonZeroU32),
    /// It gets no more requests; those inside it finish.
    Remove(ReplicaId),
}

/// What a replica is told with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Orders {
    /// Whether to include optional content.
    pub full: bool,
    /// The mean service time to aim at.
    pub service_target: Option<Duration>,
}

/// Admission control and balancing, as the scenario drives it.
///
/// The contract is that of [`tidegate_sentry`]: every request that arrived is admitted or shed, now
/// or later, or abandoned while it waits; every admitted one ends exactly once.
pub trait Protector: std::fmt::Debug {
    /// A request arrives.
    fn on_arrival(&mut self, now: Timestamp, request: RequestId, arrival: &Arrival) -> Decision;

    /// What the replica of an admitted request is told with it.
    fn orders(&self, request: RequestId) -> Orders {
        let _ = request;
        Orders {
            full: true,
            service_target: None,
        }
    }

    /// A replica that can leave something out says something with an answer, before that ends.
    fn on_answer(&mut self, now: Timestamp, replica: ReplicaId, report: &Report) {
        let _ = (now, replica, report);
    }

    /// The replica it was sent to is not there; another one, if any.
    fn reassign(&mut self, now: Timestamp, request: RequestId) -> Option<ReplicaId>;

    /// No other one has room: whether it waits for one again, to be resolved like any that waits.
    /// `arrival` is the one it came with.
    fn requeue(
        &mut self,
        now: Timestamp,
        request: RequestId,
        arrival: &Arrival,
        wakes: &mut Wakes,
    ) -> bool {
        let _ = (now, request, arrival, wakes);
        false
    }

    /// Its answer turned out to be a stream: it no longer uses the replica's capacity.
    fn on_stream(&mut self, now: Timestamp, request: RequestId, wakes: &mut Wakes);

    /// An admitted request ends.
    fn on_end(&mut self, now: Timestamp, request: RequestId, ending: Ending, wakes: &mut Wakes);

    /// Its client leaves while it waits.
    fn on_abandon(&mut self, now: Timestamp, request: RequestId);

    /// A replica tells its utilization since the last time it did, or with an answer the latest.
    fn on_report(&mut self, now: Timestamp, replica: ReplicaId, utilization: f64);

    /// The share of its CPU that it uses itself; once per report interval.
    fn on_load(&mut self, now: Timestamp, cpu_share: f64) {
        let _ = (now, cpu_share);
    }

    /// A health check found that a replica died or is back.
    fn set_health(&mut self, now: Timestamp, replica: ReplicaId, up: bool, wakes: &mut Wakes);

    /// The pool changes. To a balancer that keeps nothing about a replica one that is added is one
    /// that is back; it knows all replicas of the scenario from the start, and those that are not
    /// in the pool yet as down.
    fn change_pool(&mut self, now: Timestamp, change: PoolChange, wakes: &mut Wakes) {
        match change {
            PoolChange::Add(replica, _) => self.set_health(now, replica, true, wakes),
            PoolChange::Remove(replica) => self.set_health(now, replica, false, wakes),
            PoolChange::Weigh(..) => {}
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) wants to be called next.
    fn poll_timeout(&self) -> Timestamp;

    /// The time is there. Afterwards [`poll_timeout`](Self::poll_timeout) is later than `now`.
    fn handle_timeout(&mut self, now: Timestamp, observer: &mut dyn Observer, wakes: &mut Wakes);

    /// Quantities worth a curve, by name; called once per interval of the record.
    fn gauges(&self, now: Timestamp, gauge: &mut dyn FnMut(&'static str, f64));
}

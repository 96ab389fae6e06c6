//! No protection: everything goes to some replica at once.

use rand::RngExt;
use serde::Deserialize;
use tidegate_control::Timestamp;
use tidegate_sentry::{Arrival, Ending, Observer, Refusal, ReplicaId, ShedReason};

use super::protector::{Decision, Protector, RequestId, Wakes};
use crate::rng::SimRng;

/// How a replica is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Choice {
    /// One after the other.
    #[default]
    RoundRobin,
    /// Any.
    Random,
    /// The one with the fewest requests.
    LeastInFlight,
}

/// A plain balancer. It refuses only when no replica is alive.
#[derive(Debug)]
pub struct NoProtection {
    choice: Choice,
    rng: SimRng,
    replicas: Vec<Replica>,
    next: usize,
    /// Where each request is, by its slot.
    placed: Vec<usize>,
}

#[derive(Debug, Clone, Copy)]
struct Replica {
    up: bool,
    in_flight: usize,
}

impl NoProtection {
    /// Balances over `replicas`, all of them alive.
    #[must_use]
    pub fn new(choice: Choice, replicas: usize, rng: SimRng) -> Self {
        let replica = Replica {
            up: true,
            in_flight: 0,
        };
        Self {
            choice,
            rng,
            replicas: vec![replica; replicas],
            next: 0,
            placed: Vec::new(),
        }
    }

    /// The indices of replicas that are alive, less `except`.
    fn alive(&self, except: Option<usize>) -> impl Iterator<Item = usize> + '_ {
        let alive = self.replicas.iter().enumerate().filter(|(_, r)| r.up);
        alive
            .map(|(at, _)| at)
            .filter(move |&at| Some(at) != except)
    }

    fn choose(&mut self, except: Option<usize>) -> Option<usize> {
        let count = self.alive(except).count();
        if count == 0 {
            return None;
        }
        match self.choice {
            Choice::RoundRobin => {
                let next = self.next;
                let chosen = self.alive(except).find(|&at| at >= next);
                let chosen = chosen.or_else(|| self.alive(except).next())?;
                self.next = chosen + 1;
                Some(chosen)
            }
            Choice::Random => {
                let nth = self.rng.random_range(0..count);
                self.alive(except).nth(nth)
            }
            Choice::LeastInFlight => self
                .alive(except)
                .min_by_key(|&at| self.replicas[at].in_flight),
        }
    }

    fn place(&mut self, request: RequestId, replica: usize) -> ReplicaId {
        if self.placed.len() <= request.slot() {
            self.placed.resize(request.slot() + 1, 0);
        }
        self.placed[request.slot()] = replica;
        self.replicas[replica].in_flight += 1;
        ReplicaId(u16::try_from(replica).expect("a scenario has fewer than 2^16 replicas"))
    }
}

impl Protector for NoProtection {
    fn on_arrival(&mut self, _: Timestamp, request: RequestId, arrival: &Arrival) -> Decision {
        match self.choose(None) {
            Some(replica) => Decision::Admit(self.place(request, replica)),
            None => Decision::Shed(Refusal {
                reason: ShedReason::NoReplica,
                class: arrival.class,
                retry_after: std::time::Duration::from_secs(1),
                measured: 0.0,
                limit: 1.0,
            }),
        }
    }

    fn reassign(&mut self, _: Timestamp, request: RequestId) -> Option<ReplicaId> {
        let from = self.placed[request.slot()];
        let to = self.choose(Some(from))?;
        self.replicas[from].in_flight -= 1;
        Some(self.place(request, to))
    }

    fn on_stream(&mut self, _: Timestamp, _: RequestId, _: &mut Wakes) {}

    fn on_end(&mut self, _: Timestamp, request: RequestId, _: Ending, _: &mut Wakes) {
        self.replicas[self.placed[request.slot()]].in_flight -= 1;
    }

    fn on_abandon(&mut self, _: Timestamp, _: RequestId) {
        unreachable!("nobody waits where everything is admitted");
    }

    fn on_report(&mut self, _: Timestamp, _: ReplicaId, _: f64) {}

    fn set_health(&mut self, _: Timestamp, replica: ReplicaId, up: bool, _: &mut Wakes) {
        self.replicas[usize::from(replica.0)].up = up;
    }

    fn poll_timeout(&self) -> Timestamp {
        Timestamp::MAX
    }

    fn handle_timeout(&mut self, _: Timestamp, _: &mut dyn Observer, _: &mut Wakes) {}

    fn gauges(&self, _: Timestamp, _: &mut dyn FnMut(&'static str, f64)) {}
}

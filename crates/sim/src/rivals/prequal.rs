//! Prequal (Wydrowski et al., NSDI 2024): balancing by probes of requests in flight and latency.
//!
//! With each request three replicas drawn at random are probed; answers go into a pool of 16, from
//! which each request also removes one: in turn the oldest and the worst. A probe is worth a second
//! and as many uses as keep the pool filled,
//!
//! ```text
//! uses = max(1, (1 + δ) / ((1 - m / n) r_probe - r_remove)),   δ = 1
//! ```
//!
//! for a pool of `m` and `n` replicas. A replica is *hot* when its requests in flight are at or
//! above the quantile 0.84 of those probed lately. Of the cold ones the one with the least latency
//! is chosen; where all are hot, the one with the fewest requests in flight (hot-cold
//! lexicographic). A probe that was used counts one request more.
//!
//! A replica answers with what is in flight now and with the median of the last response times.
//! Probes take no time here. Nothing is ever refused: it balances and does not protect.

use std::collections::VecDeque;
use std::time::Duration;

use rand::RngExt;
use tidegate_control::Timestamp;
use tidegate_sentry::{Arrival, Ending, Observer, Refusal, ReplicaId, ShedReason};

use crate::rng::SimRng;
use crate::scenario::{Decision, Protector, RequestId, Wakes};

/// Balancing by probes.
#[derive(Debug)]
pub struct Prequal {
    rng: SimRng,
    replicas: Vec<Replica>,
    pool: VecDeque<Probe>,
    /// Requests in flight as the last probes had them.
    in_flight_lately: VecDeque<usize>,
    removes_oldest: bool,
    /// Where each request is and since when, by its slot.
    placed: Vec<(usize, Timestamp)>,
}

#[derive(Debug, Clone)]
struct Replica {
    up: bool,
    in_flight: usize,
    /// The last response times, in seconds.
    lately: VecDeque<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Probe {
    replica: usize,
    at: Timestamp,
    in_flight: usize,
    latency_s: f64,
    uses: u32,
}

impl Prequal {
    const PROBES: usize = 3;
    const POOL: usize = 16;
    const AGE: Duration = Duration::from_secs(1);
    const HOT: f64 = 0.84;
    const DELTA: f64 = 1.0;
    const REMOVED: f64 = 1.0;
    /// Probes whose requests in flight make the quantile.
    const LATELY: usize = 128;
    /// Response times that a replica remembers.
    const RESPONSES: usize = 16;

    /// Balances over `replicas`, all of them alive.
    #[must_use]
    pub fn new(replicas: usize, rng: SimRng) -> Self {
        let replica = Replica {
            up: true,
            in_flight: 0,
            lately: VecDeque::new(),
        };
        Self {
            rng,
            replicas: vec![replica; replicas],
            pool: VecDeque::new(),
            in_flight_lately: VecDeque::new(),
            removes_oldest: true,
            placed: Vec::new(),
        }
    }

    /// Uses of a probe, by the size of the pool and of the fleet.
    fn uses(&self) -> u32 {
        let replicas = self.replicas.len() as f64;
        let pool = Self::POOL.min(self.replicas.len()) as f64;
        let net = (1.0 - pool / replicas) * Self::PROBES as f64 - Self::REMOVED;
        if net > 0.0 {
            ((1.0 + Self::DELTA) / net).max(1.0).round() as u32
        } else {
            // Fewer replicas than the pool has room for: probes end by their age.
            u32::MAX
        }
    }

    fn probe(&mut self, now: Timestamp) {
        for _ in 0..Self::PROBES {
            let replica = self.rng.random_range(0..self.replicas.len());
            if !self.replicas[replica].up {
                continue;
            }
            let probe = Probe {
                replica,
                at: now,
                in_flight: self.replicas[replica].in_flight,
                latency_s: self.replicas[replica].latency(),
                uses: self.uses(),
            };
            // One replica has one probe in the pool.
            self.pool.retain(|old| old.replica != replica);
            self.pool.push_back(probe);
            self.in_flight_lately.push_back(probe.in_flight);
        }
        while self.pool.len() > Self::POOL {
            self.pool.pop_front();
        }
        while self.in_flight_lately.len() > Self::LATELY {
            self.in_flight_lately.pop_front();
        }
    }

    /// Drops what is too old, and one more: the oldest and the worst in turn.
    fn tidy(&mut self, now: Timestamp) {
        let replicas = &self.replicas;
        self.pool.retain(|probe| {
            now.since(probe.at) < Self::AGE && probe.uses > 0 && replicas[probe.replica].up
        });
        if self.pool.len() <= Self::PROBES {
            return;
        }
        self.removes_oldest = !self.removes_oldest;
        let removed = if self.removes_oldest {
            Some(0)
        } else {
            self.worst()
        };
        if let Some(at) = removed {
            self.pool.remove(at);
        }
    }

    fn hot_from(&self) -> usize {
        let mut sorted: Vec<usize> = self.in_flight_lately.iter().copied().collect();
        sorted.sort_unstable();
        let at = (sorted.len() as f64 * Self::HOT) as usize;
        // A replica without a request is never hot.
        sorted.get(at).copied().unwrap_or(usize::MAX).max(1)
    }

    /// Among hot ones the one with the most in flight, otherwise the slowest.
    fn worst(&self) -> Option<usize> {
        let hot_from = self.hot_from();
        let hot = |at: &usize| self.pool[*at].in_flight >= hot_from;
        let indices = 0..self.pool.len();
        let hottest = indices.clone().filter(hot);
        let hottest = hottest.max_by_key(|&at| self.pool[at].in_flight);
        hottest.or_else(|| {
            indices.max_by(|&a, &b| self.pool[a].latency_s.total_cmp(&self.pool[b].latency_s))
        })
    }

    /// Hot-cold lexicographic: of the cold the fastest, or of the hot the one with the fewest.
    fn best(&self) -> Option<usize> {
        let hot_from = self.hot_from();
        let cold = |at: &usize| self.pool[*at].in_flight < hot_from;
        let indices = 0..self.pool.len();
        let coldest = indices.clone().filter(cold);
        let fastest =
            coldest.min_by(|&a, &b| self.pool[a].latency_s.total_cmp(&self.pool[b].latency_s));
        fastest.or_else(|| indices.min_by_key(|&at| self.pool[at].in_flight))
    }

    fn choose(&mut self, now: Timestamp, except: Option<usize>) -> Option<usize> {
        self.probe(now);
        self.tidy(now);
        if let Some(except) = except {
            self.pool.retain(|probe| probe.replica != except);
        }
        if let Some(best) = self.best() {
            let probe = &mut self.pool[best];
            probe.uses -= 1;
            probe.in_flight += 1;
            return Some(probe.replica);
        }
        // No probe: any that is alive.
        let alive = |&at: &usize| self.replicas[at].up && Some(at) != except;
        (0..self.replicas.len())
            .filter(alive)
            .min_by_key(|&at| self.replicas[at].in_flight)
    }

    fn place(&mut self, now: Timestamp, request: RequestId, replica: usize) -> ReplicaId {
        if self.placed.len() <= request.slot() {
            self.placed.resize(request.slot() + 1, (0, Timestamp::ZERO));
        }
        self.placed[request.slot()] = (replica, now);
        self.replicas[replica].in_flight += 1;
        ReplicaId(u16::try_from(replica).expect("a scenario has fewer than 2^16 replicas"))
    }
}

impl Replica {
    fn latency(&self) -> f64 {
        let mut sorted: Vec<f64> = self.lately.iter().copied().collect();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
    }

    fn answered(&mut self, response_s: f64) {
        self.lately.push_back(response_s);
        if self.lately.len() > Prequal::RESPONSES {
            self.lately.pop_front();
        }
    }
}

impl Protector for Prequal {
    fn on_arrival(&mut self, now: Timestamp, request: RequestId, arrival: &Arrival) -> Decision {
        match self.choose(now, None) {
            Some(replica) => Decision::Admit(self.place(now, request, replica)),
            None => Decision::Shed(Refusal {
                reason: ShedReason::NoReplica,
                class: arrival.class,
                retry_after: Duration::from_secs(1),
                measured: 0.0,
                limit: 1.0,
            }),
        }
    }

    fn reassign(&mut self, now: Timestamp, request: RequestId) -> Option<ReplicaId> {
        let (from, _) = self.placed[request.slot()];
        let to = self.choose(now, Some(from))?;
        self.replicas[from].in_flight -= 1;
        Some(self.place(now, request, to))
    }

    fn on_stream(&mut self, _: Timestamp, _: RequestId, _: &mut Wakes) {}

    fn on_end(&mut self, now: Timestamp, request: RequestId, ending: Ending, _: &mut Wakes) {
        let (replica, began) = self.placed[request.slot()];
        self.replicas[replica].in_flight -= 1;
        if ending == Ending::Served {
            self.replicas[replica].answered(now.since(began).as_secs_f64());
        }
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

    fn gauges(&self, _: Timestamp, gauge: &mut dyn FnMut(&'static str, f64)) {
        gauge("probes", self.pool.len() as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Streams;

    fn prequal(replicas: usize) -> Prequal {
        Prequal::new(replicas, Streams::new(1).stream("balancer"))
    }

    fn probe(replica: usize, in_flight: usize, latency_s: f64) -> Probe {
        Probe {
            replica,
            at: Timestamp::ZERO,
            in_flight,
            latency_s,
            uses: 5,
        }
    }

    #[test]
    fn of_cold_replicas_the_fastest_and_of_hot_ones_the_emptiest() {
        let mut prequal = prequal(4);
        prequal.in_flight_lately = (0..100).map(|index| usize::from(index >= 80) * 9).collect();
        prequal.pool = [probe(0, 9, 0.001), probe(1, 2, 0.050), probe(2, 3, 0.020)].into();
        let best = prequal.best().unwrap();
        assert_eq!(prequal.pool[best].replica, 2, "the fastest is hot");
        prequal.pool = [probe(0, 12, 0.001), probe(1, 10, 0.050)].into();
        let best = prequal.best().unwrap();
        assert_eq!(prequal.pool[best].replica, 1);
    }

    #[test]
    fn probe_is_used_more_often_the_fewer_replicas_there_are() {
        assert_eq!(prequal(8).uses(), u32::MAX);
        let (some, many) = (prequal(30).uses(), prequal(1000).uses());
        assert!(some > many && many == 1, "{some} {many}");
    }

    #[test]
    fn slow_replica_gets_less() {
        let scenario: crate::scenario::Scenario = tidegate_config::parse(
            "prequal.toml",
            "duration = '60s'\nwarm_up = '10s'\nservice = '20ms'\n[load]\nrate = '300/s'\n\
             [[replica]]\ncount = 9\ncores = 1\n[[replica]]\ncores = 1\n\
             speed = [{ at = '0s', value = 0.2 }]\n",
        )
        .unwrap();
        let mut prequal = prequal(10);
        let outcome = scenario.run_with(1, &mut prequal).unwrap();
        // An equal share would be three times what the slow one can do.
        assert_eq!(outcome.totals.counts.shed, 0);
        let p99 = outcome.totals.histogram.quantile(0.99);
        assert!(p99 < 0.5, "{p99}");
        let mut blind = crate::scenario::NoProtection::new(
            crate::scenario::Choice::Random,
            10,
            Streams::new(1).stream("balancer"),
        );
        let random = scenario.run_with(1, &mut blind).unwrap();
        assert!(random.totals.histogram.quantile(0.99) > 4.0 * p99);
    }
}

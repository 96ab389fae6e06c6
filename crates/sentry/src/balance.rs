//! Choosing a replica among those with a free slot, and taking the slot.
//!
//! The default is power of two choices (Mitzenmacher 2001) on peak-EWMA cost times requests in
//! flight, as Finagle and Linkerd do: two replicas at random, the one expected to be done sooner.
//! A choice is made without a lock and may lose the slot to another core; then whoever has room
//! is taken, so that a free slot is never overlooked.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tidegate_control::Timestamp;

use crate::api::ReplicaId;
use crate::brownout::EqualDimmers;
use crate::config::Balance;
use crate::random::Dice;
use crate::replica::Replica;

/// Whether a free slot is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Slots {
    /// Only replicas with room.
    Free,
    /// Any healthy replica: the window is not enforced (kill switch, dry run).
    Any,
}

/// Chooses replicas; the state is the turn of round robin and the dice.
#[derive(Debug)]
pub(crate) struct Balancer {
    turn: AtomicUsize,
    dice: Dice,
}

impl Balancer {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            turn: AtomicUsize::new(0),
            dice: Dice::new(seed),
        }
    }

    /// Takes a slot of some replica other than `except`.
    pub(crate) fn place(
        &self,
        policy: Balance,
        replicas: &[Arc<Replica>],
        now: Timestamp,
        slots: Slots,
        except: Option<ReplicaId>,
    ) -> Option<ReplicaId> {
        let eligible = |index: usize| {
            except.is_none_or(|id| usize::from(id.0) != index)
                && match slots {
                    Slots::Free => replicas[index].has_room(),
                    Slots::Any => replicas[index].is_up(),
                }
        };
        let take = |index: &usize| replicas[*index].take(now, slots);
        let first = self.choose(policy, replicas, now, &eligible)?;
        let taken = Some(first).filter(take).or_else(|| {
            let others = self.starting_anywhere(replicas.len());
            others.filter(|&index| eligible(index)).find(take)
        })?;
        u16::try_from(taken).ok().map(ReplicaId)
    }

    fn choose(
        &self,
        policy: Balance,
        replicas: &[Arc<Replica>],
        now: Timestamp,
        eligible: &impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let n = replicas.len();
        if n == 1 {
            return eligible(0).then_some(0);
        }
        let mut candidates = self.starting_anywhere(n).filter(|&index| eligible(index));
        match policy {
            Balance::RoundRobin => {
                let turn = self.turn.fetch_add(1, Ordering::Relaxed);
                rotated(turn, n).find(|&index| eligible(index))
            }
            Balance::Random => self.any(n, eligible),
            Balance::EqualDimmers => self.by_weight(replicas, eligible),
            Balance::PowerOfTwo => self
                .better_of_two(n, eligible, |a, b| {
                    replicas[a].in_flight() < replicas[b].in_flight()
                })
                .or_else(|| candidates.next()),
            Balance::MostFree => candidates.max_by_key(|&index| replicas[index].free()),
            Balance::LeastInFlight => candidates.min_by_key(|&index| replicas[index].in_flight()),
            Balance::PeakEwma => self
                .better_of_two(n, eligible, |a, b| cost(&replicas[a], &replicas[b], now))
                .or_else(|| candidates.next()),
        }
    }

    /// Uniform among the eligible.
    fn any(&self, n: usize, eligible: &impl Fn(usize) -> bool) -> Option<usize> {
        let count = (0..n).filter(|&index| eligible(index)).count();
        let rank = self.dice.below(count);
        (0..n).filter(|&index| eligible(index)).nth(rank)
    }

    /// In proportion to the weights of the eligible.
    fn by_weight(
        &self,
        replicas: &[Arc<Replica>],
        eligible: &impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let all = (0..replicas.len()).filter(|&index| eligible(index));
        let total: f64 = all.clone().map(|index| replicas[index].weight.load()).sum();
        let mut left = self.dice.unit() * total;
        let passed = |&index: &usize| {
            left -= replicas[index].weight.load();
            left < 0.0
        };
        all.clone().find(passed).or_else(|| all.last())
    }

    /// Two at random, if one of them is eligible; `better` compares two that are.
    fn better_of_two(
        &self,
        n: usize,
        eligible: &impl Fn(usize) -> bool,
        better: impl Fn(usize, usize) -> bool,
    ) -> Option<usize> {
        let one = self.dice.below(n);
        let other = (one + 1 + self.dice.below(n - 1)) % n;
        match (eligible(one), eligible(other)) {
            (true, true) if better(other, one) => Some(other),
            (true, _) => Some(one),
            (false, true) => Some(other),
            (false, false) => None,
        }
    }

    fn starting_anywhere(&self, n: usize) -> impl Iterator<Item = usize> + use<> {
        rotated(self.dice.below(n), n)
    }
}

/// EPBH: moves the replicas' weights until they answer the same share in full.
#[derive(Debug)]
pub(crate) struct Weighing {
    weights: EqualDimmers,
    count: usize,
    next: Timestamp,
}

/// Between two changes of the weights, as in 004.
const WEIGHING: Duration = Duration::from_millis(250);

impl Weighing {
    pub(crate) fn new(now: Timestamp) -> Self {
        Self {
            weights: EqualDimmers::default(),
            count: 0,
            next: now,
        }
    }

    /// Brings the weights up to date, where they are used and it is time.
    pub(crate) fn on_tick(&mut self, now: Timestamp, policy: Balance, replicas: &[Arc<Replica>]) {
        if policy != Balance::EqualDimmers || now < self.next {
            return;
        }
        self.next = now + WEIGHING;
        if self.count != replicas.len() {
            self.count = replicas.len();
            self.weights.reset(self.count);
        }
        let shares: Vec<f64> = replicas.iter().map(|r| r.answers.full_share()).collect();
        self.weights.tick(&shares);
        for (replica, &weight) in replicas.iter().zip(self.weights.weights()) {
            replica.weight.store(weight);
        }
    }
}

fn rotated(start: usize, n: usize) -> impl Iterator<Item = usize> {
    (0..n).map(move |offset| (start % n + offset) % n)
}

/// Whether `a` is expected to be done sooner than `b`: response time lately times the queue a
/// newcomer would be part of. While one of them has no history only the queue counts.
fn cost(a: &Replica, b: &Replica, now: Timestamp) -> bool {
    let (in_flight_a, in_flight_b) = (a.in_flight(), b.in_flight());
    match (a.recent_seconds(now), b.recent_seconds(now)) {
        (Some(seconds_a), Some(seconds_b)) => {
            seconds_a * f64::from(in_flight_a + 1) < seconds_b * f64::from(in_flight_b + 1)
        }
        _ => in_flight_a < in_flight_b,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Report;

    const NOW: Timestamp = Timestamp::ZERO;

    fn replicas(in_flight: &[u32]) -> Vec<Arc<Replica>> {
        let busy = |&count: &u32| {
            let replica = Replica::new(1000);
            (0..count).for_each(|_| assert!(replica.take(NOW, Slots::Free)));
            Arc::new(replica)
        };
        in_flight.iter().map(busy).collect()
    }

    /// How many of a thousand requests, one at a time, each replica gets.
    fn shares(policy: Balance, replicas: &[Arc<Replica>]) -> Vec<u32> {
        let balancer = Balancer::new(1);
        let mut shares = vec![0; replicas.len()];
        for _ in 0..1000 {
            let id = balancer
                .place(policy, replicas, NOW, Slots::Free, None)
                .expect("there is room");
            shares[usize::from(id.0)] += 1;
            let replica = &replicas[usize::from(id.0)];
            let generation = replica.enter();
            replica.release(NOW, generation);
        }
        shares
    }

    #[test]
    fn round_robin_and_random_look_at_no_queue() {
        let uneven = replicas(&[0, 50, 0, 9]);
        assert_eq!(shares(Balance::RoundRobin, &uneven), [250; 4]);
        let random = shares(Balance::Random, &uneven);
        assert!(random.iter().all(|n| (200..300).contains(n)), "{random:?}");
    }

    #[test]
    fn shortest_queue_first_takes_the_shortest() {
        let uneven = replicas(&[5, 3, 4]);
        assert_eq!(shares(Balance::LeastInFlight, &uneven), [0, 1000, 0]);
    }

    #[test]
    fn power_of_two_takes_the_shorter_of_two() {
        let uneven = replicas(&[5, 3, 4]);
        let [longest, shortest, middle] = shares(Balance::PowerOfTwo, &uneven)[..] else {
            panic!("there are three");
        };
        assert_eq!(longest, 0, "whoever it is compared with is shorter");
        assert!(shortest > middle && middle > 200, "{shortest} {middle}");
    }

    #[test]
    fn equal_dimmers_gives_less_to_who_leaves_out_more() {
        let replicas = replicas(&[0, 0]);
        for (replica, share) in replicas.iter().zip([0.9, 0.1]) {
            replica.on_report(&Report {
                dimmer: Some(share),
                ..Report::default()
            });
        }
        let mut weighing = Weighing::new(NOW);
        for step in 0..40 {
            weighing.on_tick(NOW + step * WEIGHING, Balance::EqualDimmers, &replicas);
        }
        let given = shares(Balance::EqualDimmers, &replicas);
        assert!(given[0] > 3 * given[1], "{given:?}");
        let others = shares(Balance::RoundRobin, &replicas);
        assert_eq!(others, [500; 2], "weights are for this policy alone");
    }
}

//! Which replica gets how much, by policy and by weight.

use std::num::NonZeroU32;

use super::*;
use crate::api::Report;
use crate::replica::UNLIMITED;

const NOW: Timestamp = Timestamp::ZERO;

const POLICIES: [Balance; 7] = [
    Balance::PeakEwma,
    Balance::LeastInFlight,
    Balance::MostFree,
    Balance::PowerOfTwo,
    Balance::EqualDimmers,
    Balance::RoundRobin,
    Balance::Random,
];

fn replicas(weights: &[u32]) -> Replicas {
    let mut replicas = Replicas::new(weights.len());
    for (index, &weight) in weights.iter().enumerate() {
        let replica = replicas.put(index, UNLIMITED);
        replica.set_weight(NonZeroU32::new(weight).expect("a weight is above 0"));
    }
    replicas
}

/// What each gets of a thousand requests that stay.
fn shares(policy: Balance, weights: &[u32]) -> Vec<u32> {
    let replicas = replicas(weights);
    let balancer = Balancer::new(3);
    balancer.follow(policy, &replicas);
    for _ in 0..1000 {
        let placed = balancer.place(policy, &replicas, NOW, Slots::Free, None);
        assert!(placed.is_some(), "there is room");
    }
    replicas.iter().map(|replica| replica.in_flight()).collect()
}

#[test]
fn every_policy_follows_the_weights() {
    for policy in POLICIES {
        let shares = shares(policy, &[1, 3, 6]);
        let near = |part: u32, wanted: u32| part.abs_diff(wanted) <= 45;
        assert!(
            near(shares[0], 100) && near(shares[1], 300) && near(shares[2], 600),
            "{policy:?}: {shares:?}"
        );
    }
}

#[test]
fn equal_weights_are_no_weights() {
    for policy in POLICIES {
        assert_eq!(shares(policy, &[1, 1, 1]), shares(policy, &[7, 7, 7]));
    }
}

#[test]
fn turns_are_exact_and_spread() {
    let replicas = replicas(&[1, 3]);
    let balancer = Balancer::new(1);
    balancer.follow(Balance::RoundRobin, &replicas);
    let turn = || {
        let policy = Balance::RoundRobin;
        balancer.place(policy, &replicas, NOW, Slots::Free, None)
    };
    let turns: Vec<_> = (0..400).map(|_| turn()).collect();
    let light = turns.iter().filter(|id| **id == Some(ReplicaId(0)));
    assert!((97..=103).contains(&light.count()));
    let longest = turns.chunk_by(|a, b| a == b).map(<[_]>::len).max();
    assert!(longest <= Some(5), "{longest:?}");
}

#[test]
fn who_is_down_gets_nothing_and_the_others_its_part() {
    let replicas = replicas(&[2, 1, 1]);
    replicas[0].set_health(crate::replica::Health::Down);
    let balancer = Balancer::new(1);
    balancer.follow(Balance::RoundRobin, &replicas);
    for _ in 0..100 {
        balancer.place(Balance::RoundRobin, &replicas, NOW, Slots::Free, None);
    }
    assert_eq!(replicas[0].in_flight(), 0);
    assert!(replicas[1].in_flight().abs_diff(50) <= 3);
}

fn busy_replicas(in_flight: &[u32]) -> Replicas {
    let mut replicas = Replicas::new(in_flight.len());
    for (index, &count) in in_flight.iter().enumerate() {
        let replica = replicas.put(index, 1000);
        (0..count).for_each(|_| assert!(replica.take(NOW, Slots::Free)));
    }
    replicas
}

/// How many of a thousand requests, one at a time, each replica gets.
fn shares_one_by_one(policy: Balance, replicas: &Replicas) -> Vec<u32> {
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
    let uneven = busy_replicas(&[0, 50, 0, 9]);
    assert_eq!(shares_one_by_one(Balance::RoundRobin, &uneven), [250; 4]);
    let random = shares_one_by_one(Balance::Random, &uneven);
    assert!(random.iter().all(|n| (200..300).contains(n)), "{random:?}");
}

#[test]
fn shortest_queue_first_takes_the_shortest() {
    let uneven = busy_replicas(&[5, 3, 4]);
    assert_eq!(
        shares_one_by_one(Balance::LeastInFlight, &uneven),
        [0, 1000, 0]
    );
}

#[test]
fn power_of_two_takes_the_shorter_of_two() {
    let uneven = busy_replicas(&[5, 3, 4]);
    let [longest, shortest, middle] = shares_one_by_one(Balance::PowerOfTwo, &uneven)[..] else {
        panic!("there are three");
    };
    assert_eq!(longest, 0, "whoever it is compared with is shorter");
    assert!(shortest > middle && middle > 200, "{shortest} {middle}");
}

#[test]
fn equal_dimmers_gives_less_to_who_leaves_out_more() {
    let replicas = busy_replicas(&[0, 0]);
    for (replica, share) in replicas.iter().zip([0.9, 0.1]) {
        replica.on_report(&Report {
            dimmer: Some(share),
            ..Report::default()
        });
    }
    let mut weighing = Weighing::new(NOW);
    for step in 0..40 {
        weighing.on_tick(
            NOW + step * WEIGHTS_INTERVAL,
            Balance::EqualDimmers,
            &replicas,
        );
    }
    let given = shares_one_by_one(Balance::EqualDimmers, &replicas);
    assert!(given[0] > 3 * given[1], "{given:?}");
    let others = shares_one_by_one(Balance::RoundRobin, &replicas);
    assert_eq!(others, [500; 2], "weights are for this policy alone");
}

/// A balancer in front of replicas that take this many milliseconds, one request after the other.
struct Bench {
    balancer: Balancer,
    replicas: Replicas,
    now: Timestamp,
}

impl Bench {
    fn new(count: usize) -> Self {
        let mut replicas = Replicas::new(count);
        (0..count).for_each(|index| drop(Arc::clone(replicas.put(index, 4))));
        Self {
            balancer: Balancer::new(1),
            replicas,
            now: NOW,
        }
    }

    fn place(&self) -> Option<usize> {
        let policy = Balance::PeakEwma;
        self.balancer
            .place(policy, &self.replicas, self.now, Slots::Free, None)
            .map(|id| usize::from(id.0))
    }

    fn end(&mut self, index: usize, millis: u64) {
        self.now += Duration::from_millis(1);
        let replica = &self.replicas[index];
        let inside = replica.release(self.now, replica.enter());
        let place = replica.admit(self.now, false);
        replica.on_served(self.now, Duration::from_millis(millis), place, inside);
        let policy = Balance::PeakEwma;
        self.balancer
            .on_tick(self.now, policy, &self.replicas, &mut |_| {});
    }

    /// Answers to this many requests that it was given while nobody knew.
    fn answer(&mut self, index: usize, times: u32, millis: u64) {
        for _ in 0..times {
            assert!(self.replicas[index].take(self.now, Slots::Any));
            self.end(index, millis);
        }
    }

    /// How many of the requests each gets.
    fn serve(&mut self, requests: u32, millis: &[u64]) -> Vec<u32> {
        let mut shares = vec![0; self.replicas.len()];
        for _ in 0..requests {
            let index = self.place().expect("there is room");
            shares[index] += 1;
            self.end(index, millis[index]);
        }
        shares
    }

    fn aside(&self) -> Vec<bool> {
        let aside = |replica: &Arc<Replica>| replica.pace.is_aside();
        self.replicas.iter().map(aside).collect()
    }
}

#[test]
fn who_takes_far_longer_is_asked_now_and_then() {
    let mut bench = Bench::new(3);
    bench.serve(300, &[5, 5, 5]);
    bench.answer(2, 8, 50);
    assert_eq!(bench.aside(), [false, false, true]);
    let shares = bench.serve(8000, &[5, 5, 50]);
    assert_eq!(shares[2], 20, "one in four hundred");
}

#[test]
fn who_is_aside_has_one_request_at_a_time() {
    let mut bench = Bench::new(2);
    bench.serve(300, &[5, 5]);
    bench.answer(1, 8, 50);
    for _ in 0..2000 {
        if bench.place() == Some(0) {
            bench.end(0, 5);
        }
    }
    assert_eq!(bench.replicas[1].in_flight(), 1);
}

#[test]
fn who_is_aside_is_used_when_the_others_are_full() {
    let mut bench = Bench::new(2);
    bench.serve(300, &[5, 5]);
    bench.answer(1, 8, 50);
    assert_eq!(bench.aside(), [false, true]);
    let placed: Vec<_> = (0..9).map(|_| bench.place()).collect();
    let at = |index| placed.iter().filter(|id| **id == Some(index)).count();
    assert_eq!((at(0), at(1), placed[8]), (4, 4, None));
}

#[test]
fn who_is_fast_again_is_one_of_the_others() {
    let mut bench = Bench::new(3);
    bench.serve(300, &[5, 5, 5]);
    bench.answer(2, 8, 50);
    bench.serve(820, &[5, 5, 5]);
    assert_eq!(bench.aside(), [false; 3]);
    let shares = bench.serve(600, &[5, 5, 5]);
    assert!(shares[2] > 100, "{shares:?}");
}

#[test]
fn when_all_get_slow_nobody_is_set_aside() {
    let mut bench = Bench::new(3);
    bench.serve(300, &[5, 5, 5]);
    bench.serve(300, &[100, 100, 100]);
    assert_eq!(bench.aside(), [false; 3]);
}

#[test]
fn when_the_others_get_as_slow_nobody_is_aside_any_more() {
    let mut bench = Bench::new(3);
    bench.serve(300, &[5, 5, 5]);
    bench.answer(2, 8, 50);
    bench.serve(100, &[50, 50, 50]);
    assert_eq!(bench.aside(), [false; 3]);
}

#[test]
fn half_of_the_replicas_at_most_are_aside() {
    let mut bench = Bench::new(4);
    bench.serve(400, &[5, 5, 5, 5]);
    (1..4).for_each(|index| bench.answer(index, 30, 50));
    assert_eq!(bench.aside(), [false; 4], "these are the majority");
    bench.answer(1, 100, 5);
    (2..4).for_each(|index| bench.answer(index, 30, 50));
    assert_eq!(bench.aside(), [false, false, true, true]);
}

#[test]
fn millisecond_more_is_nothing() {
    let mut bench = Bench::new(2);
    bench.serve(300, &[0, 0]);
    bench.answer(1, 30, 1);
    assert_eq!(bench.aside(), [false; 2]);
}

#[test]
fn other_policies_set_nobody_aside() {
    let mut bench = Bench::new(2);
    bench.serve(300, &[5, 5]);
    bench.answer(1, 8, 50);
    assert_eq!(bench.aside(), [false, true]);
    let policy = Balance::RoundRobin;
    bench
        .balancer
        .on_tick(bench.now, policy, &bench.replicas, &mut |_| {});
    assert_eq!(bench.aside(), [false; 2]);
}

//! Decisions against the plain rule that looks at every replica, and how much they look at.

use std::num::NonZeroU32;

use proptest::prelude::*;

use super::replica_set::VISITS;
use super::*;
use crate::replica::Health;

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

/// What is done to a replica between two decisions.
#[derive(Debug, Clone, Copy)]
enum Change {
    Place,
    Release(usize),
    Limit(usize, u32),
    Health(usize, bool),
    Weight(usize, u32),
}

fn change() -> impl Strategy<Value = Change> {
    let number = 0_usize..400;
    prop_oneof![
        6 => Just(Change::Place),
        2 => number.clone().prop_map(Change::Release),
        1 => (number.clone(), 0_u32..4).prop_map(|(index, limit)| Change::Limit(index, limit)),
        1 => (number.clone(), any::<bool>()).prop_map(|(index, up)| Change::Health(index, up)),
        1 => (number, 1_u32..4).prop_map(|(index, weight)| Change::Weight(index, weight)),
    ]
}

/// The plain rule for policies whose choice is determined by the dice.
fn plain_choice(
    policy: Balance,
    replicas: &Replicas,
    balancer: &Balancer,
    slots: Slots,
    except: Option<usize>,
) -> Option<usize> {
    let (n, dice) = (replicas.len(), &balancer.dice);
    let eligible = |index: usize| {
        except != Some(index)
            && match slots {
                Slots::Free => replicas[index].has_room(),
                Slots::Any => replicas[index].is_up(),
            }
    };
    if n == 1 {
        return eligible(0).then_some(0);
    }
    let around = |start: usize| (0..n).map(move |offset| (start % n + offset) % n);
    let start = dice.below(n);
    let mut candidates = around(start).filter(|&index| eligible(index));
    match policy {
        Balance::RoundRobin => {
            let turn = balancer.turn.fetch_add(1, Ordering::Relaxed);
            around(turn).find(|&index| eligible(index))
        }
        Balance::Random => {
            let count = (0..n).filter(|&index| eligible(index)).count();
            let rank = dice.below(count);
            (0..n).filter(|&index| eligible(index)).nth(rank)
        }
        Balance::LeastInFlight => candidates.min_by(|&a, &b| {
            let load = |index: usize| replicas[index].load();
            load(a).total_cmp(&load(b))
        }),
        _ => {
            let one = dice.below(n);
            let other = (one + 1 + dice.below(n - 1)) % n;
            match (eligible(one), eligible(other)) {
                (true, true) if replicas[other].load() < replicas[one].load() => Some(other),
                (true, _) => Some(one),
                (false, true) => Some(other),
                (false, false) => candidates.next(),
            }
        }
    }
}

fn pool(count: usize, limit: u32) -> Replicas {
    let mut replicas = Replicas::new(count);
    for index in 0..count {
        replicas.put(index, limit);
    }
    replicas
}

fn apply(change: Change, replicas: &Replicas) {
    let at = |index: usize| &replicas[index % replicas.len()];
    match change {
        Change::Release(index) if at(index).in_flight() > 0 => {
            let replica = at(index);
            replica.release(NOW, replica.enter());
        }
        Change::Limit(index, limit) => at(index).set_limit(limit),
        Change::Health(index, true) => at(index).set_health(Health::Up),
        Change::Health(index, false) => at(index).set_health(Health::Down),
        Change::Weight(index, weight) => {
            at(index).set_weight(NonZeroU32::new(weight).expect("a weight is above 0"));
        }
        Change::Place | Change::Release(_) => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Equal weights, so that choices are determined by the dice.
    #[test]
    fn choice_is_that_of_a_scan(
        count in prop_oneof![1_usize..6, 60_usize..70, 200_usize..400],
        limit in 0_u32..3,
        changes in prop::collection::vec(change(), 1..300),
        seed in any::<u64>(),
        any_slot in any::<bool>(),
        except in prop::option::of(0_usize..400),
        policy in prop_oneof![
            Just(Balance::RoundRobin),
            Just(Balance::Random),
            Just(Balance::LeastInFlight),
            Just(Balance::PowerOfTwo),
        ],
    ) {
        let (ours, model) = (pool(count, limit), pool(count, limit));
        let (balancer, dice) = (Balancer::new(seed), Balancer::new(seed));
        balancer.follow(policy, &ours);
        let slots = if any_slot { Slots::Any } else { Slots::Free };
        let except = except.map(|index| index % count);
        // Among many another replica is drawn, as uniformly.
        prop_assume!(policy != Balance::Random || count <= REPLICAS_WALKED_MAX);
        for change in changes {
            match change {
                Change::Place => {
                    let id = except.map(|index| ReplicaId(index as u16));
                    let placed = balancer.place(policy, &ours, NOW, slots, id);
                    let expected = plain_choice(policy, &model, &dice, slots, except);
                    prop_assert_eq!(placed.map(|id| usize::from(id.0)), expected);
                    if let Some(index) = expected {
                        prop_assert!(model[index].take(NOW, slots));
                    }
                }
                Change::Weight(..) => {}
                change => {
                    apply(change, &ours);
                    apply(change, &model);
                }
            }
        }
    }

    /// A free slot is found if there is one, and what is taken was free, whatever the weights; with
    /// the most free slots or the least in flight where that is the policy.
    #[test]
    fn free_slot_is_found_whatever_happens(
        count in prop_oneof![1_usize..6, 60_usize..70, 200_usize..400],
        changes in prop::collection::vec(change(), 1..300),
        seed in any::<u64>(),
        policy in prop::sample::select(POLICIES.to_vec()),
    ) {
        let replicas = pool(count, 2);
        let balancer = Balancer::new(seed);
        for change in changes {
            apply(change, &replicas);
            if let Change::Weight(..) = change {
                balancer.follow(policy, &replicas);
            }
            if let Change::Place = change {
                let before: Vec<_> = replicas
                    .iter()
                    .map(|each| (each.has_room(), each.load(), each.free()))
                    .collect();
                let placed = balancer.place(policy, &replicas, NOW, Slots::Free, None);
                let any_free = before.iter().any(|(room, ..)| *room);
                prop_assert_eq!(placed.is_some(), any_free);
                let Some(id) = placed else { continue };
                let (room, load, free) = before[usize::from(id.0)];
                prop_assert!(room);
                let others = || before.iter().filter(|(room, ..)| *room);
                match policy {
                    Balance::LeastInFlight => {
                        prop_assert!(others().all(|(_, other, _)| load <= *other));
                    }
                    Balance::MostFree => {
                        prop_assert!(others().all(|(.., other)| free >= *other));
                    }
                    _ => {}
                }
            }
        }
        for (index, replica) in replicas.iter().enumerate() {
            prop_assert_eq!(replicas.vacancies().free.contains(index), replica.has_room());
            prop_assert_eq!(replicas.vacancies().up.contains(index), replica.is_up());
        }
    }
}

/// Words and replicas that a decision looks at, at most, over many decisions with this many
/// replicas of two slots that have `free` slots in all.
fn visits(policy: Balance, count: usize, free: usize) -> u64 {
    let (replicas, balancer) = (pool(count, 2), Balancer::new(1));
    balancer.follow(policy, &replicas);
    for _ in 0..2 * count - free {
        let placed = balancer.place(policy, &replicas, NOW, Slots::Free, None);
        assert!(placed.is_some(), "there is room");
    }
    let decide = || {
        VISITS.with(|visits| visits.set(0));
        let placed = balancer.place(policy, &replicas, NOW, Slots::Free, None);
        let visits = VISITS.with(std::cell::Cell::get);
        if let Some(id) = placed {
            let replica = &replicas[usize::from(id.0)];
            replica.release(NOW, replica.enter());
        }
        assert_eq!(placed.is_some(), free > 0);
        visits
    };
    (0..200).map(|_| decide()).max().unwrap_or(0)
}

/// With ten thousand replicas, whether all have room, one has, or none.
#[test]
fn decision_looks_at_a_handful_of_many_replicas() {
    for free in [0, 1, 50, 20_000] {
        for policy in [Balance::PeakEwma, Balance::PowerOfTwo, Balance::RoundRobin] {
            let visits = visits(policy, 10_000, free);
            assert!(visits <= 16, "{policy:?} with {free} free: {visits}");
        }
        // A word for 64 replicas: to count those with room, or the least loaded of each block.
        let blocks = 10_000 / 64 + 1;
        for policy in [Balance::Random, Balance::LeastInFlight, Balance::MostFree] {
            let visits = visits(policy, 10_000, free);
            let most = 2 * blocks + 64 + 16;
            assert!(visits <= most, "{policy:?} with {free} free: {visits}");
        }
    }
}

/// Weights that differ: one draw in general, and those with room where few have.
#[test]
fn decision_by_weight_looks_at_a_handful_of_many_replicas() {
    for policy in [Balance::PeakEwma, Balance::RoundRobin, Balance::Random] {
        let (replicas, balancer) = (pool(5_000, 1000), Balancer::new(1));
        for (index, replica) in replicas.iter().enumerate() {
            replica.set_weight(NonZeroU32::new(1 + index as u32 % 3).expect("above 0"));
        }
        balancer.follow(policy, &replicas);
        VISITS.with(|visits| visits.set(0));
        for _ in 0..30_000 {
            balancer.place(policy, &replicas, NOW, Slots::Free, None);
        }
        let visits = VISITS.with(std::cell::Cell::get);
        assert!(visits < 10 * 30_000, "{policy:?}: {visits}");
        let third = |weight: u32| -> u32 {
            let all = replicas.iter().filter(|each| each.weight() == weight);
            all.map(|replica| replica.in_flight()).sum()
        };
        // The better of two is the heavier one more often while few are inside.
        let tolerance = if policy == Balance::PeakEwma {
            1_500
        } else {
            400
        };
        for (weight, expected) in [(1, 5_000), (2, 10_000), (3, 15_000)] {
            let placed = third(weight);
            assert!(
                placed.abs_diff(expected) < tolerance,
                "{policy:?}: {placed} of {expected}"
            );
        }
    }
}

/// Threads take and give back the slots of a few replicas that are always about to be full. What
/// one finds while the others hold nothing is there.
#[test]
fn sets_are_right_after_threads_have_raced() {
    for policy in POLICIES {
        let (replicas, balancer) = (pool(3, 1), Balancer::new(1));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..5_000 {
                        // Three threads, three slots: there is one for each.
                        let placed = balancer.place(policy, &replicas, NOW, Slots::Free, None);
                        let Some(id) = placed else {
                            continue;
                        };
                        let replica = &replicas[usize::from(id.0)];
                        replica.release(NOW, replica.enter());
                    }
                });
            }
        });
        for (index, replica) in replicas.iter().enumerate() {
            assert_eq!(replica.in_flight(), 0);
            assert!(replicas.vacancies().free.contains(index), "{policy:?}");
        }
    }
}

//! Choosing a replica among those with a free slot, and taking the slot.
//!
//! The default is power of two choices (Mitzenmacher 2001) on peak-EWMA cost times requests in
//! flight, as Finagle and Linkerd do: two replicas at random, the one expected to be done sooner.
//! A choice is made without a lock and may lose the slot to another core; then whoever has room
//! is taken, so that a free slot is never overlooked.
//!
//! Whoever takes far longer than the others is set aside ([`pace`]).
//!
//! Replicas have weights: one of weight 2 is meant to carry twice what one of weight 1 carries.
//! Chance and turns follow the weights, and in flight counts per weight.

mod pace;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tidegate_control::Timestamp;

use crate::api::ReplicaId;
use crate::brownout::EqualDimmers;
use crate::config::Balance;
use crate::event::Event;
use crate::random::Dice;
use crate::replica::Replica;

pub(crate) use pace::Pace;
use pace::Probes;

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
    /// Whether weights differ; as long as they do not, nothing is spent on them.
    weighted: AtomicBool,
    /// Whether a replica is aside; as long as none is, nothing is spent on that.
    aside: AtomicBool,
    probes: Probes,
}

impl Balancer {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            turn: AtomicUsize::new(0),
            dice: Dice::new(seed),
            weighted: AtomicBool::new(false),
            aside: AtomicBool::new(false),
            probes: Probes::default(),
        }
    }

    /// Looks at the weights, after they may have changed.
    pub(crate) fn weigh(&self, replicas: &[Arc<Replica>]) {
        let differ = replicas.windows(2).any(|w| w[0].weight() != w[1].weight());
        self.weighted.store(differ, Ordering::Relaxed);
    }

    /// Compares how long the replicas take, where that matters.
    pub(crate) fn on_tick(
        &self,
        now: Timestamp,
        policy: Balance,
        replicas: &[Arc<Replica>],
        observe: &mut dyn FnMut(Event),
    ) {
        let aside = match policy {
            Balance::PeakEwma => pace::compare(now, replicas, &self.probes, observe),
            _ => {
                replicas.iter().for_each(|replica| replica.pace.forget());
                false
            }
        };
        self.aside.store(aside, Ordering::Relaxed);
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
        let taken = match policy == Balance::PeakEwma && self.aside.load(Ordering::Relaxed) {
            true => self.place_aside(policy, replicas, now, slots, &eligible),
            false => self.take(policy, replicas, now, slots, &eligible),
        }?;
        u16::try_from(taken).ok().map(ReplicaId)
    }

    /// As long as another one has room, a replica that is aside is only asked how it does.
    fn place_aside(
        &self,
        policy: Balance,
        replicas: &[Arc<Replica>],
        now: Timestamp,
        slots: Slots,
        eligible: &impl Fn(usize) -> bool,
    ) -> Option<usize> {
        if let Some(probed) = self.probe(replicas, now, eligible) {
            return Some(probed);
        }
        let in_front = |index: usize| eligible(index) && !replicas[index].pace.is_aside();
        let taken = self.take(policy, replicas, now, slots, &in_front);
        if taken.is_some() {
            self.probes.on_elsewhere();
            return taken;
        }
        self.take(policy, replicas, now, slots, eligible)
    }

    /// One that is aside, if it is time to ask it and it has nothing to do, or if it has deserved
    /// more.
    fn probe(
        &self,
        replicas: &[Arc<Replica>],
        now: Timestamp,
        eligible: &impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let at_a_time = u32::from(self.probes.is_due());
        let take = |index: &usize| {
            let replica = &replicas[*index];
            let most = replica.pace.merit().max(at_a_time);
            replica.pace.is_aside() && eligible(*index) && replica.take_below(now, most)
        };
        let probed = self.starting_anywhere(replicas.len()).find(take)?;
        self.probes.on_probe();
        Some(probed)
    }

    /// Takes a slot of the one to be preferred among the eligible, or of any.
    fn take(
        &self,
        policy: Balance,
        replicas: &[Arc<Replica>],
        now: Timestamp,
        slots: Slots,
        eligible: &impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let take = |index: &usize| replicas[*index].take(now, slots);
        let first = self.choose(policy, replicas, now, eligible)?;
        Some(first).filter(take).or_else(|| {
            let others = self.starting_anywhere(replicas.len());
            others.filter(|&index| eligible(index)).find(take)
        })
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
        let weight = |index: usize| f64::from(replicas[index].weight());
        let weighted = self.weighted.load(Ordering::Relaxed);
        match policy {
            Balance::RoundRobin => {
                let turn = self.turn.fetch_add(1, Ordering::Relaxed);
                match weighted {
                    true => at(point_of_turn(turn), n, eligible, weight),
                    false => rotated(turn, n).find(|&index| eligible(index)),
                }
            }
            Balance::Random if weighted => at(self.dice.unit(), n, eligible, weight),
            Balance::Random => self.any(n, eligible),
            Balance::EqualDimmers => at(self.dice.unit(), n, eligible, |index| {
                weight(index) * replicas[index].tilt.load()
            }),
            Balance::MostFree => candidates.max_by(|&a, &b| {
                let free = |index: usize| replicas[index].free();
                free(a).total_cmp(&free(b))
            }),
            Balance::LeastInFlight => candidates.min_by(|&a, &b| {
                let load = |index: usize| replicas[index].load();
                load(a).total_cmp(&load(b))
            }),
            Balance::PowerOfTwo | Balance::PeakEwma => {
                let better = |a: usize, b: usize| match policy {
                    Balance::PowerOfTwo => replicas[a].load() < replicas[b].load(),
                    _ => is_done_sooner(&replicas[a], &replicas[b], now),
                };
                match weighted {
                    true => self.better_of_two_by_weight(n, eligible, weight, better),
                    false => self.better_of_two(n, eligible, better),
                }
                .or_else(|| candidates.next())
            }
        }
    }

    /// Uniform among the eligible.
    fn any(&self, n: usize, eligible: &impl Fn(usize) -> bool) -> Option<usize> {
        let count = (0..n).filter(|&index| eligible(index)).count();
        let rank = self.dice.below(count);
        (0..n).filter(|&index| eligible(index)).nth(rank)
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

    /// Two eligible ones, drawn by weight: a heavy one among many would otherwise be asked too
    /// seldom to get its part.
    fn better_of_two_by_weight(
        &self,
        n: usize,
        eligible: &impl Fn(usize) -> bool,
        weight: impl Fn(usize) -> f64,
        better: impl Fn(usize, usize) -> bool,
    ) -> Option<usize> {
        let one = at(self.dice.unit(), n, eligible, &weight)?;
        let others = |index: usize| index != one && eligible(index);
        let other = at(self.dice.unit(), n, &others, &weight);
        other.filter(|&other| better(other, one)).or(Some(one))
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
        let shares: Vec<f64> = replicas.iter().map(|r| r.reports.full_share()).collect();
        self.weights.tick(&shares);
        for (replica, &weight) in replicas.iter().zip(self.weights.weights()) {
            replica.tilt.store(weight);
        }
    }
}

/// The eligible one at `point` (0 to 1) of a line on which each is as long as its weight.
fn at(
    point: f64,
    n: usize,
    eligible: &impl Fn(usize) -> bool,
    weight: impl Fn(usize) -> f64,
) -> Option<usize> {
    let all = (0..n).filter(|&index| eligible(index));
    let total: f64 = all.clone().map(&weight).sum();
    let mut left = point * total;
    let passed = |&index: &usize| {
        left -= weight(index);
        left < 0.0
    };
    all.clone().find(passed).or_else(|| all.last())
}

/// Turns that visit the line evenly, multiples of the golden ratio (Weyl's sequence): a replica of
/// weight 3 beside one of weight 1 is not asked three times in a row and then left alone.
fn point_of_turn(turn: usize) -> f64 {
    const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
    let fraction = (turn as u64).wrapping_mul(GOLDEN);
    (fraction >> 11) as f64 / (1_u64 << 53) as f64
}

fn rotated(start: usize, n: usize) -> impl Iterator<Item = usize> {
    (0..n).map(move |offset| (start % n + offset) % n)
}

/// Whether `a` is expected to be done sooner than `b`: response time lately times the queue a
/// newcomer would be part of. While one of them has no history only the queue counts.
fn is_done_sooner(a: &Replica, b: &Replica, now: Timestamp) -> bool {
    let (load_a, load_b) = (a.load(), b.load());
    match (a.recent_seconds(now), b.recent_seconds(now)) {
        (Some(seconds_a), Some(seconds_b)) => seconds_a * load_a < seconds_b * load_b,
        _ => load_a < load_b,
    }
}

#[cfg(test)]
mod tests;

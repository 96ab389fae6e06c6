//! Choosing a replica among those with a free slot, and taking the slot.
//!
//! The default is power of two choices (Mitzenmacher 2001) on peak-EWMA cost times requests in
//! flight, as Finagle and Linkerd do: two replicas at random, the one expected to be done sooner.
//! A choice is made without a lock and may lose the slot to another core; then any replica with a
//! free slot is taken, so that a free slot is never overlooked.
//!
//! A decision looks at a bounded number of replicas, however many there are: which of them have
//! room is known by [`Vacancies`].
//!
//! A replica that takes far longer than the others is ejected ([`ejection`]).
//!
//! Replicas have weights: one of weight 2 is meant to carry twice what one of weight 1 carries.
//! Chance and turns follow the weights, and in flight counts per weight.

mod ejection;
mod line;
mod replica_set;
mod replicas;
mod vacancies;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use tidegate_control::Timestamp;

use crate::api::ReplicaId;
use crate::brownout::EqualDimmers;
use crate::config::Balance;
use crate::event::Event;
use crate::random::Dice;
use crate::replica::Replica;

pub(crate) use ejection::Pace;
use ejection::Probes;
use line::Line;
use replica_set::{ReplicaSet, count_visit};
pub(crate) use replicas::Replicas;
pub(crate) use vacancies::{FULL, Vacancies, ascending, descending};

/// Replicas that are aside of which one decision looks at no more than this. Chosen: all of them in
/// a pool of sixteen, and the next ones at the next decision in a larger one.
const PROBES_LOOKED_AT: usize = 8;

/// Up to this many replicas are gone through for a draw.
const REPLICAS_WALKED_MAX: usize = 64;

/// Draws that meet a full replica before those with room are gone through. Chosen: with a tenth of
/// all free one of six decisions gets there.
const DRAWS_MAX: usize = 16;

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
    /// What is drawn from where replicas do not all get the same.
    line: ArcSwap<Line>,
    /// Whether a replica is aside; as long as none is, nothing is spent on that.
    aside: AtomicBool,
    probes: Probes,
}

/// The replicas that a request may go to.
#[derive(Clone, Copy)]
struct Eligible<'a> {
    replicas: &'a Replicas,
    slots: Slots,
    except: Option<usize>,
    /// Those that are aside are not meant.
    in_front: bool,
}

impl<'a> Eligible<'a> {
    /// The set that they are in, and what of it is not meant.
    fn sets(&self) -> (&'a ReplicaSet, Option<&'a ReplicaSet>) {
        let vacancies = self.replicas.vacancies();
        let set = match self.slots {
            Slots::Free => &vacancies.free,
            Slots::Any => &vacancies.up,
        };
        (set, self.in_front.then_some(&vacancies.aside))
    }

    fn has(&self, index: usize) -> bool {
        count_visit();
        let replica = &self.replicas[index];
        let fits = match self.slots {
            Slots::Free => replica.has_room(),
            Slots::Any => replica.is_up(),
        };
        fits && self.except != Some(index) && !(self.in_front && replica.pace.is_aside())
    }

    /// All of them, from `start` on and then around.
    fn around(self, start: usize) -> impl Iterator<Item = usize> + use<'a> {
        let (set, without) = self.sets();
        let all = set.around(start, self.replicas.len(), without);
        all.filter(move |&index| self.has(index))
    }

    /// One uniformly at random; among many by drawing until one is eligible.
    fn any(self, dice: &Dice) -> Option<usize> {
        if self.in_front || self.except.is_some() {
            let rank = dice.below(self.around(0).count());
            return self.around(0).nth(rank);
        }
        let (set, end) = (self.sets().0, self.replicas.len());
        if end > REPLICAS_WALKED_MAX {
            let mut draws = (0..DRAWS_MAX).map(|_| dice.below(end));
            if let Some(drawn) = draws.find(|&index| self.has(index)) {
                return Some(drawn);
            }
        }
        set.nth_below(dice.below(set.count_below(end)), end)
    }
}

impl Balancer {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            turn: AtomicUsize::new(0),
            dice: Dice::new(seed),
            weighted: AtomicBool::new(false),
            line: ArcSwap::from_pointee(Line::default()),
            aside: AtomicBool::new(false),
            probes: Probes::default(),
        }
    }

    /// Looks at the policy and the weights, after they may have changed.
    pub(crate) fn follow(&self, policy: Balance, replicas: &Replicas) {
        let differ = replicas.windows(2).any(|w| w[0].weight() != w[1].weight());
        self.weighted.store(differ, Ordering::Relaxed);
        self.draw_line(policy, replicas);
        replicas.vacancies().loads.keep(policy, replicas.len());
        replicas.iter().for_each(|replica| replica.publish_load());
    }

    /// The line to draw from, where there are many and they do not all get the same.
    fn draw_line(&self, policy: Balance, replicas: &Replicas) {
        let tilted = policy == Balance::EqualDimmers;
        let drawn = tilted || self.weighted.load(Ordering::Relaxed);
        if drawn && replicas.len() > REPLICAS_WALKED_MAX {
            let line = Line::of(replicas.iter().map(|replica| part_of(policy, replica)));
            self.line.store(Arc::new(line));
        } else if !self.line.load().is_empty() {
            self.line.store(Arc::default());
        }
    }

    /// Compares how long the replicas take, where that matters.
    pub(crate) fn on_tick(
        &self,
        now: Timestamp,
        policy: Balance,
        replicas: &Replicas,
        observe: &mut dyn FnMut(Event),
    ) {
        let aside = match policy {
            Balance::PeakEwma => ejection::compare(now, replicas, &self.probes, observe),
            _ => {
                for replica in replicas.iter() {
                    replica.pace.forget();
                    replica.publish_aside();
                }
                false
            }
        };
        self.aside.store(aside, Ordering::Relaxed);
        if policy == Balance::EqualDimmers {
            self.draw_line(policy, replicas);
        }
    }

    /// Takes a slot of some replica other than `except`.
    pub(crate) fn place(
        &self,
        policy: Balance,
        replicas: &Replicas,
        now: Timestamp,
        slots: Slots,
        except: Option<ReplicaId>,
    ) -> Option<ReplicaId> {
        let eligible = Eligible {
            replicas,
            slots,
            except: except.map(|id| usize::from(id.0)),
            in_front: false,
        };
        let taken = if policy == Balance::PeakEwma && self.aside.load(Ordering::Relaxed) {
            self.place_aside(policy, now, eligible)
        } else {
            self.take(policy, now, eligible)
        }?;
        u16::try_from(taken).ok().map(ReplicaId)
    }

    /// As long as another one has room, a replica that is aside is only asked how it does.
    fn place_aside(
        &self,
        policy: Balance,
        now: Timestamp,
        eligible: Eligible<'_>,
    ) -> Option<usize> {
        if let Some(probed) = self.probe(now, eligible) {
            return Some(probed);
        }
        let in_front = Eligible {
            in_front: true,
            ..eligible
        };
        let taken = self.take(policy, now, in_front);
        if taken.is_some() {
            self.probes.on_elsewhere();
            return taken;
        }
        self.take(policy, now, eligible)
    }

    /// One that is aside, if it is time to ask it and it has nothing to do, or if it has deserved
    /// more.
    fn probe(&self, now: Timestamp, eligible: Eligible<'_>) -> Option<usize> {
        let replicas = eligible.replicas;
        let at_a_time = u32::from(self.probes.is_due());
        let take = |&index: &usize| {
            let replica = &replicas[index];
            let most = replica.pace.merit().max(at_a_time);
            replica.pace.is_aside() && eligible.has(index) && replica.take_below(now, most)
        };
        let (start, end) = (self.dice.below(replicas.len()), replicas.len());
        let aside = replicas.vacancies().aside.around(start, end, None);
        let probed = aside.take(PROBES_LOOKED_AT).find(take)?;
        self.probes.on_probe();
        Some(probed)
    }

    /// Takes a slot of the one to be preferred among the eligible, or of any.
    fn take(&self, policy: Balance, now: Timestamp, eligible: Eligible<'_>) -> Option<usize> {
        let replicas = eligible.replicas;
        let take = |index: &usize| replicas[*index].take(now, eligible.slots);
        let set = eligible.sets().0;
        let before = set.ended();
        let taken = match self.choose(policy, now, eligible) {
            Some(first) if take(&first) => Some(first),
            Some(_) => {
                let start = self.dice.below(replicas.len());
                eligible.around(start).find(take)
            }
            None => None,
        };
        // A removal that goes on may hide a replica that has room.
        if taken.is_none() && set.begun() != before {
            (0..replicas.len())
                .filter(|&index| eligible.has(index))
                .find(take)
        } else {
            taken
        }
    }

    fn choose(&self, policy: Balance, now: Timestamp, eligible: Eligible<'_>) -> Option<usize> {
        let replicas = eligible.replicas;
        let n = replicas.len();
        if n == 1 {
            return eligible.has(0).then_some(0);
        }
        let start = self.dice.below(n);
        let weighted = self.weighted.load(Ordering::Relaxed);
        let by_chance = || self.dice.unit();
        match policy {
            Balance::RoundRobin => {
                let turn = || self.turn.fetch_add(1, Ordering::Relaxed);
                if weighted {
                    self.draw(policy, eligible, || point_of_turn(turn()))
                } else {
                    eligible.around(turn()).next()
                }
            }
            Balance::Random if weighted => self.draw(policy, eligible, by_chance),
            Balance::Random => eligible.any(&self.dice),
            Balance::EqualDimmers => self.draw(policy, eligible, by_chance),
            Balance::MostFree | Balance::LeastInFlight => least_loaded(policy, eligible, start),
            Balance::PowerOfTwo | Balance::PeakEwma => {
                let better = |a: usize, b: usize| match policy {
                    Balance::PowerOfTwo => replicas[a].load() < replicas[b].load(),
                    _ => is_done_sooner(&replicas[a], &replicas[b], now),
                };
                if weighted {
                    self.better_of_two_by_weight(policy, eligible, better)
                } else {
                    self.better_of_two(eligible, better)
                }
                .or_else(|| eligible.around(start).next())
            }
        }
    }

    /// One by its part of the whole, at a point (0 to 1). Where there are many, points are drawn
    /// until one is at a replica that is eligible, so that those are met by their parts too.
    fn draw(
        &self,
        policy: Balance,
        eligible: Eligible<'_>,
        point: impl Fn() -> f64,
    ) -> Option<usize> {
        let line = self.line.load();
        if line.len() == eligible.replicas.len() {
            let mut draws = (0..DRAWS_MAX).filter_map(|_| line.at(point()));
            if let Some(drawn) = draws.find(|&index| eligible.has(index)) {
                return Some(drawn);
            }
        }
        at(point(), eligible, |index| {
            part_of(policy, &eligible.replicas[index])
        })
    }

    /// Two at random, if one of them is eligible; `better` compares two that are.
    fn better_of_two(
        &self,
        eligible: Eligible<'_>,
        better: impl Fn(usize, usize) -> bool,
    ) -> Option<usize> {
        let n = eligible.replicas.len();
        let one = self.dice.below(n);
        let other = (one + 1 + self.dice.below(n - 1)) % n;
        match (eligible.has(one), eligible.has(other)) {
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
        policy: Balance,
        eligible: Eligible<'_>,
        better: impl Fn(usize, usize) -> bool,
    ) -> Option<usize> {
        let by_chance = || self.dice.unit();
        let one = self.draw(policy, eligible, by_chance)?;
        let other = match eligible.except {
            None => {
                let others = Eligible {
                    except: Some(one),
                    ..eligible
                };
                self.draw(policy, others, by_chance)
            }
            // One comes back from a replica that failed: rare, and then two may be the same.
            Some(_) => self.draw(policy, eligible, by_chance),
        };
        other.filter(|&other| better(other, one)).or(Some(one))
    }
}

/// What a replica is meant to get beside the others.
fn part_of(policy: Balance, replica: &Replica) -> f64 {
    let weight = f64::from(replica.weight());
    match policy {
        Balance::EqualDimmers => weight * replica.tilt.load(),
        _ => weight,
    }
}

/// The one with the least in flight, or with the most free slots. Where there are many, what is
/// compared is kept ([`vacancies::Loads`]).
fn least_loaded(policy: Balance, eligible: Eligible<'_>, start: usize) -> Option<usize> {
    let replicas = eligible.replicas;
    let loads = &replicas.vacancies().loads;
    if eligible.slots == Slots::Free && eligible.except.is_none() && loads.serve(policy) {
        let least = loads.least(start, replicas.len());
        return least.or_else(|| eligible.around(start).next());
    }
    let all = eligible.around(start);
    match policy {
        Balance::MostFree => {
            let free = |index: usize| replicas[index].free();
            all.max_by(|&a, &b| free(a).total_cmp(&free(b)))
        }
        _ => {
            let load = |index: usize| replicas[index].load();
            all.min_by(|&a, &b| load(a).total_cmp(&load(b)))
        }
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
const WEIGHTS_INTERVAL: Duration = Duration::from_millis(250);

impl Weighing {
    pub(crate) fn new(now: Timestamp) -> Self {
        Self {
            weights: EqualDimmers::default(),
            count: 0,
            next: now,
        }
    }

    /// Brings the weights up to date, where they are used and it is time.
    pub(crate) fn on_tick(&mut self, now: Timestamp, policy: Balance, replicas: &Replicas) {
        if policy != Balance::EqualDimmers || now < self.next {
            return;
        }
        self.next = now + WEIGHTS_INTERVAL;
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

/// The eligible one at `point` (0 to 1) of a line on which each is as long as its part.
fn at(point: f64, eligible: Eligible<'_>, part: impl Fn(usize) -> f64) -> Option<usize> {
    let all = || eligible.around(0);
    let total: f64 = all().map(&part).sum();
    let mut left = point * total;
    let passed = |&index: &usize| {
        left -= part(index);
        left < 0.0
    };
    all().find(passed).or_else(|| all().last())
}

/// Turns that visit the line evenly, multiples of the golden ratio (Weyl's sequence): a replica of
/// weight 3 beside one of weight 1 is not asked three times in a row and then left alone.
fn point_of_turn(turn: usize) -> f64 {
    const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
    let fraction = (turn as u64).wrapping_mul(GOLDEN);
    (fraction >> 11) as f64 / (1_u64 << 53) as f64
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
mod model_tests;
#[cfg(test)]
mod tests;

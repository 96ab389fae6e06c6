//! The central queue: more important classes first; within a class in turn among tenants, first
//! come first served for each ([`lanes`]).
//!
//! Waiters live in a slab; a class threads its waiters through it as doubly linked lists, so that a
//! client that leaves is removed in constant time wherever it stands. Besides those who wait for a
//! slot there are those who are *held* until their class is examined (mode `sentry`), and those who
//! are *late* and let the others of their class pass (mode `auto`).
//!
//! Plain data without a lock of its own: the engine owns the lock.

mod lanes;
#[cfg(test)]
mod tests;

use tidegate_control::Timestamp;

use self::lanes::{LAST, Lanes, Place, hand};
use crate::api::{ClassId, Content, ReplicaId, Ticket};
use crate::gate::Passed;
use crate::policing::PathKey;
use crate::policing::cost_shares::CostBand;

const NONE: u32 = u32::MAX;

/// Bits of a ticket that name the slot; the others hold the sequence number, which tells a
/// ticket from an older one of the same slot (2^40 of them: years at a million a second).
const INDEX_BITS: u32 = 24;

/// More waiters than this cannot be told apart by their tickets.
pub(crate) const CAPACITY_MAX: u32 = 1 << INDEX_BITS;

/// A parked request.
#[derive(Debug)]
pub(crate) struct Waiter<T> {
    pub(crate) value: T,
    pub(crate) class: ClassId,
    pub(crate) bytes: u32,
    pub(crate) arrived: Timestamp,
    pub(crate) deadline: Option<Timestamp>,
    pub(crate) sticky: Option<ReplicaId>,
    pub(crate) path: Option<PathKey>,
    pub(crate) tenant: Option<u64>,
    /// What is reserved for it.
    pub(crate) cost: Option<CostBand>,
    /// The session it opens when it is admitted.
    pub(crate) opens: Option<u64>,
    /// Belongs to a session that was admitted.
    pub(crate) preferred: bool,
    /// Held in this bucket until its class is examined.
    pub(crate) bucket: Option<u8>,
    /// Cannot be answered in time any more, and lets the others pass.
    pub(crate) late: bool,
    pub(crate) passed: Passed,
    /// It was admitted before, and its replica turned out to be dead.
    pub(crate) returned: Option<Returned>,
}

impl<T> Waiter<T> {
    /// The replica it will not go to.
    pub(crate) fn avoids(&self) -> Option<ReplicaId> {
        self.returned.map(|returned| returned.from)
    }
}

/// What a request that comes back brings along.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Returned {
    /// The replica it will not go to again.
    pub(crate) from: ReplicaId,
    /// What was decided about its content: its head says so already.
    pub(crate) content: Option<Content>,
}

#[derive(Debug)]
struct Slot<T> {
    sequence: u64,
    rank: u64,
    place: Place,
    previous: u32,
    next: u32,
    waiter: Option<Waiter<T>>,
}

impl<T> Slot<T> {
    /// The waiter with the smaller one is served sooner.
    fn order(&self) -> (u64, u64) {
        (self.rank, self.sequence)
    }
}

fn ticket(sequence: u64, index: u32) -> Ticket {
    Ticket(sequence << INDEX_BITS | u64::from(index))
}

/// The central queue: more important classes first; within a class in turn among tenants, first
/// come first served for each ([`lanes`]).
#[derive(Debug)]
pub(crate) struct Queue<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    classes: Vec<Lanes>,
    shards: u16,
    len: u32,
    bytes: u64,
    sequence: u64,
}

impl<T> Queue<T> {
    pub(crate) fn new(classes: usize, shards: u16) -> Self {
        let mut queue = Self {
            slots: Vec::new(),
            free: Vec::new(),
            classes: Vec::new(),
            shards,
            len: 0,
            bytes: 0,
            sequence: 0,
        };
        queue.classes.resize_with(classes, Lanes::default);
        queue
    }

    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn len_of(&self, class: usize) -> u32 {
        self.classes.get(class).map_or(0, Lanes::len)
    }

    /// Waiters for one replica, of this importance or above.
    pub(crate) fn len_for(&self, class: ClassId, replica: ReplicaId) -> u32 {
        let classes = self.classes[..=self.index_of(class)].iter();
        classes.map(|lanes| lanes.len_for(replica)).sum()
    }

    /// Whether a newcomer would be the first in line for a slot.
    pub(crate) fn none_before(&self, class: ClassId, sticky: Option<ReplicaId>) -> bool {
        self.classes[..=self.index_of(class)].iter().all(|lanes| {
            lanes.len_any() == 0 && sticky.is_none_or(|replica| lanes.len_for(replica) == 0)
        })
    }

    fn index_of(&self, class: ClassId) -> usize {
        usize::from(class.0).min(self.classes.len() - 1)
    }

    /// Parks a waiter at the end of its lane.
    pub(crate) fn push(&mut self, waiter: Waiter<T>) -> Ticket {
        self.sequence += 1;
        self.len += 1;
        self.bytes += u64::from(waiter.bytes);
        let index = self.occupy(waiter);
        self.link_last(index);
        ticket(self.sequence, index)
    }

    fn occupy(&mut self, waiter: Waiter<T>) -> u32 {
        let slot = Slot {
            sequence: self.sequence,
            rank: 0,
            place: Place::Shard(0),
            previous: NONE,
            next: NONE,
            waiter: Some(waiter),
        };
        match self.free.pop() {
            Some(index) => {
                self.slots[index as usize] = slot;
                index
            }
            None => {
                self.slots.push(slot);
                self.slots.len() as u32 - 1
            }
        }
    }

    /// Gives a waiter its place, its rank and its neighbours.
    fn link_last(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        let Some(waiter) = &slot.waiter else {
            return;
        };
        let class = usize::from(waiter.class.0).min(self.classes.len() - 1);
        let lanes = &mut self.classes[class];
        let hand = hand(waiter.tenant, self.shards);
        slot.place = match (waiter.bucket, waiter.sticky) {
            _ if waiter.returned.is_some() => Place::Returned,
            _ if waiter.late => Place::Late,
            (Some(bucket), _) => Place::Held(bucket),
            (None, Some(replica)) => Place::Sticky {
                replica,
                preferred: waiter.preferred,
            },
            (None, None) if waiter.preferred => Place::Preferred,
            (None, None) => Place::Shard(lanes.shorter(hand)),
        };
        if slot.place == Place::Late {
            slot.rank = LAST;
        } else if slot.place != Place::Returned && waiter.bucket.is_none() {
            slot.rank = lanes.rank(hand, waiter.preferred, slot.sequence);
            lanes.ranked(hand, slot.rank);
        }
        let lane = lanes.at(slot.place);
        let tail = std::mem::replace(&mut lane.tail, index);
        lane.len += 1;
        if tail == NONE {
            lane.head = index;
        }
        lanes.changed(slot.place);
        if tail != NONE {
            self.slots[tail as usize].next = index;
        }
        let slot = &mut self.slots[index as usize];
        (slot.previous, slot.next) = (tail, NONE);
    }

    /// Removes the waiter with the ticket, if it still waits.
    pub(crate) fn remove(&mut self, ticket: Ticket) -> Option<Waiter<T>> {
        let index = (ticket.0 & u64::from(CAPACITY_MAX - 1)) as u32;
        let slot = self.slots.get(index as usize)?;
        let waits = slot.sequence == ticket.0 >> INDEX_BITS && slot.waiter.is_some();
        waits.then(|| self.take(index)).flatten()
    }

    fn take(&mut self, index: u32) -> Option<Waiter<T>> {
        self.unlink(index);
        let waiter = self.slots[index as usize].waiter.take()?;
        self.free.push(index);
        self.len -= 1;
        self.bytes -= u64::from(waiter.bytes);
        self.give_back_memory();
        Some(waiter)
    }

    fn unlink(&mut self, index: u32) {
        let slot = &self.slots[index as usize];
        let Some(waiter) = &slot.waiter else {
            return;
        };
        let (class, place) = (self.index_of(waiter.class), slot.place);
        let (previous, next) = (slot.previous, slot.next);
        if previous != NONE {
            self.slots[previous as usize].next = next;
        }
        if next != NONE {
            self.slots[next as usize].previous = previous;
        }
        let lane = self.classes[class].at(place);
        lane.len -= 1;
        if previous == NONE {
            lane.head = next;
        }
        if next == NONE {
            lane.tail = previous;
        }
        self.classes[class].changed(place);
    }

    /// A long queue of the past is no reason to hold its memory: an empty queue keeps little.
    fn give_back_memory(&mut self) {
        const KEPT: usize = 1024;
        if self.len == 0 && self.slots.len() > KEPT {
            self.slots.truncate(KEPT);
            self.slots.shrink_to_fit();
            self.free = (0..KEPT as u32).rev().collect();
        }
    }

    /// The next waiter that `place` finds a slot for, in order of importance, then of rank;
    /// `place` is asked once per lane at most.
    pub(crate) fn pop_placed<P>(
        &mut self,
        mut place: impl FnMut(&Waiter<T>) -> Option<P>,
    ) -> Option<(Waiter<T>, P)> {
        for class in 0..self.classes.len() {
            let mut asked = (0, 0);
            while let Some(index) = self.head_after(class, asked) {
                let slot = &self.slots[index as usize];
                asked = slot.order();
                if let Some(placed) = slot.waiter.as_ref().and_then(&mut place) {
                    self.classes[class].served(asked.0);
                    return self.take(index).map(|waiter| (waiter, placed));
                }
            }
        }
        None
    }

    /// Lets those at the heads of their lanes that are late stand aside, and says how many of the
    /// class they were.
    pub(crate) fn set_aside(&mut self, class: usize, is_late: impl Fn(&Waiter<T>) -> bool) -> u32 {
        let mut moved = 0;
        while let Some(index) = self.late_head(class, &is_late) {
            self.unlink(index);
            if let Some(waiter) = &mut self.slots[index as usize].waiter {
                waiter.late = true;
            }
            self.link_last(index);
            moved += 1;
        }
        moved
    }

    fn late_head(&self, class: usize, is_late: impl Fn(&Waiter<T>) -> bool) -> Option<u32> {
        let waiter = |head: u32| self.slots[head as usize].waiter.as_ref();
        self.classes[class]
            .any()
            .map(|lane| lane.head)
            .find(|&head| head != NONE && waiter(head).is_some_and(&is_late))
    }

    /// Waiters of a class that are late.
    pub(crate) fn late_of(&self, class: usize) -> u32 {
        self.classes.get(class).map_or(0, Lanes::len_late)
    }

    /// Among the heads of the class's lanes the next one after `asked`.
    fn head_after(&self, class: usize, asked: (u64, u64)) -> Option<u32> {
        let order = |head: u32| self.slots[head as usize].order();
        self.classes[class]
            .waiting()
            .map(|lane| lane.head)
            .filter(|&head| head != NONE && order(head) > asked)
            .min_by_key(|&head| order(head))
    }

    /// When the one that waits longest for a slot arrived, whatever its importance.
    pub(crate) fn oldest(&self) -> Option<Timestamp> {
        let lanes = self.classes.iter().flat_map(Lanes::waiting);
        let heads = lanes.map(|lane| lane.head).filter(|&head| head != NONE);
        let waiters = heads.filter_map(|head| self.slots[head as usize].waiter.as_ref());
        waiters.map(|waiter| waiter.arrived).min()
    }

    /// The last waiter in the least important class below `class`, to make room for a more
    /// important one.
    pub(crate) fn pop_less_important(&mut self, class: ClassId) -> Option<(Ticket, Waiter<T>)> {
        let above = usize::from(class.0) + 1;
        (above..self.classes.len())
            .rev()
            .find_map(|class| self.pop_last(class))
    }

    /// The waiter of the class that would be served last, held ones before all others.
    pub(crate) fn pop_last(&mut self, class: usize) -> Option<(Ticket, Waiter<T>)> {
        let held = self.classes.get(class)?.last_held();
        let index = held.or_else(|| self.last(class))?;
        let ticket = ticket(self.slots[index as usize].sequence, index);
        self.take(index).map(|waiter| (ticket, waiter))
    }

    /// Looks at the waiter for a slot that would be served last.
    pub(crate) fn peek_last(&self, class: usize) -> Option<&Waiter<T>> {
        self.slots[self.last(class)? as usize].waiter.as_ref()
    }

    fn last(&self, class: usize) -> Option<u32> {
        let lanes = self.classes.get(class)?.waiting();
        lanes
            .map(|lane| lane.tail)
            .filter(|&tail| tail != NONE)
            .max_by_key(|&tail| self.slots[tail as usize].order())
    }

    /// Whether a newcomer would be served before the last one of its class.
    pub(crate) fn jumps(&self, class: ClassId, tenant: Option<u64>, preferred: bool) -> bool {
        let class = self.index_of(class);
        let lanes = &self.classes[class];
        let rank = lanes.rank(hand(tenant, self.shards), preferred, self.sequence + 1);
        let behind = |last: u32| rank < self.slots[last as usize].rank;
        self.last(class).is_some_and(behind)
    }

    /// Held waiters of a class.
    pub(crate) fn held_of(&self, class: usize) -> u32 {
        self.classes.get(class).map_or(0, Lanes::len_held)
    }

    /// Buckets in which a waiter of the class is held, those of cheap requests first.
    pub(crate) fn buckets(&self, class: usize) -> impl Iterator<Item = u8> + use<T> {
        self.classes[class].buckets()
    }

    /// Held waiters of a class's bucket.
    pub(crate) fn held_in(&self, class: usize, bucket: u8) -> u32 {
        self.classes
            .get(class)
            .map_or(0, |lanes| lanes.held(bucket).len)
    }

    /// Lets the first `count` of a bucket wait for a slot, in turn among tenants.
    pub(crate) fn release(&mut self, class: usize, bucket: u8, count: u32) {
        for index in self.in_turn(class, bucket).into_iter().take(count as usize) {
            self.unlink(index);
            if let Some(waiter) = &mut self.slots[index as usize].waiter {
                waiter.bucket = None;
            }
            self.link_last(index);
        }
    }

    /// Takes the first of a bucket out.
    pub(crate) fn pop_held(&mut self, class: usize, bucket: u8) -> Option<(Ticket, Waiter<T>)> {
        let index =
            Some(self.classes.get(class)?.held(bucket).head).filter(|&head| head != NONE)?;
        let ticket = ticket(self.slots[index as usize].sequence, index);
        self.take(index).map(|waiter| (ticket, waiter))
    }

    /// The waiters of a bucket: the first of each tenant, then the second of each, and so on.
    fn in_turn(&self, class: usize, bucket: u8) -> Vec<u32> {
        let mut order: Vec<(Option<u64>, u32)> = Vec::new();
        let mut index = self.classes[class].held(bucket).head;
        while index != NONE {
            let slot = &self.slots[index as usize];
            order.push((slot.waiter.as_ref().and_then(|waiter| waiter.tenant), index));
            index = slot.next;
        }
        if order.iter().any(|(tenant, _)| tenant.is_some()) {
            take_turns(&mut order);
        }
        order.into_iter().map(|(_, index)| index).collect()
    }

    /// Sorts the waiters anew after the list of classes changed; tickets stay valid.
    pub(crate) fn reclassify(
        &mut self,
        classes: usize,
        shards: u16,
        class_of: impl Fn(ClassId) -> ClassId,
    ) {
        self.shards = shards;
        self.classes.clear();
        self.classes.resize_with(classes, Lanes::default);
        let waits = |&index: &u32| self.slots[index as usize].waiter.is_some();
        let mut order: Vec<u32> = (0..self.slots.len() as u32).filter(waits).collect();
        order.sort_unstable_by_key(|&index| self.slots[index as usize].order());
        for index in order {
            if let Some(waiter) = &mut self.slots[index as usize].waiter {
                waiter.class = class_of(waiter.class);
            }
            self.link_last(index);
        }
    }
}

/// Orders by how many of the same tenant stand before, then as it was.
fn take_turns(order: &mut Vec<(Option<u64>, u32)>) {
    let mut by_tenant: Vec<(Option<u64>, usize)> = order
        .iter()
        .enumerate()
        .map(|(at, (tenant, _))| (*tenant, at))
        .collect();
    by_tenant.sort_unstable();
    let mut turns = vec![0_usize; order.len()];
    for pair in 1..by_tenant.len() {
        let ((before, at_before), (tenant, at)) = (by_tenant[pair - 1], by_tenant[pair]);
        turns[at] = if before == tenant {
            turns[at_before] + 1
        } else {
            0
        };
    }
    let mut turned: Vec<_> = turns.into_iter().zip(order.drain(..)).collect();
    turned.sort_by_key(|(turn, _)| *turn);
    order.extend(turned.into_iter().map(|(_, waiter)| waiter));
}

//! The central queue: more important classes first, first come first served within a class.
//!
//! Waiters live in a slab; a class threads its waiters through it as doubly linked lists, so
//! that a client that leaves is removed in constant time wherever it stands. A class has one
//! lane for waiters that take any replica and one per replica for sticky sessions; a sequence
//! number keeps the order among lanes.
//!
//! Plain data without a lock of its own: the engine owns the lock.

use tidegate_control::Timestamp;

use crate::api::{ClassId, ReplicaId, Ticket};
use crate::gate::Passed;
use crate::policing::PathKey;

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
    pub(crate) passed: Passed,
}

#[derive(Debug)]
struct Slot<T> {
    sequence: u64,
    previous: u32,
    next: u32,
    waiter: Option<Waiter<T>>,
}

#[derive(Debug, Clone, Copy)]
struct Lane {
    head: u32,
    tail: u32,
    len: u32,
}

impl Lane {
    const EMPTY: Self = Self {
        head: NONE,
        tail: NONE,
        len: 0,
    };
}

/// One class's lanes: 0 takes any replica, `1 + r` waits for replica `r`.
#[derive(Debug, Default)]
struct Lanes(Vec<Lane>);

impl Lanes {
    fn at(&mut self, lane: usize) -> &mut Lane {
        if self.0.len() <= lane {
            self.0.resize(lane + 1, Lane::EMPTY);
        }
        &mut self.0[lane]
    }
}

fn ticket(sequence: u64, index: u32) -> Ticket {
    Ticket(sequence << INDEX_BITS | u64::from(index))
}

fn lane_of(sticky: Option<ReplicaId>) -> usize {
    sticky.map_or(0, |replica| 1 + usize::from(replica.0))
}

/// See the module's description.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    classes: Vec<Lanes>,
    len: u32,
    bytes: u64,
    sequence: u64,
}

impl<T> Queue<T> {
    pub(crate) fn new(classes: usize) -> Self {
        let mut queue = Self {
            slots: Vec::new(),
            free: Vec::new(),
            classes: Vec::new(),
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
        let lanes = self.classes.get(class).map_or(&[][..], |lanes| &lanes.0);
        lanes.iter().map(|lane| lane.len).sum()
    }

    /// Waiters for one replica, of this importance or above.
    pub(crate) fn len_for(&self, class: ClassId, replica: ReplicaId) -> u32 {
        self.len_to(class, lane_of(Some(replica)))
    }

    /// Whether a newcomer would be the first in line for a slot.
    pub(crate) fn none_before(&self, class: ClassId, sticky: Option<ReplicaId>) -> bool {
        self.len_to(class, 0) == 0 && self.len_to(class, lane_of(sticky)) == 0
    }

    fn len_to(&self, class: ClassId, lane: usize) -> u32 {
        let last = usize::from(class.0).min(self.classes.len() - 1);
        self.classes[..=last]
            .iter()
            .filter_map(|lanes| lanes.0.get(lane))
            .map(|lane| lane.len)
            .sum()
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

    fn link_last(&mut self, index: u32) {
        let Some(waiter) = &self.slots[index as usize].waiter else {
            return;
        };
        let (class, lane) = self.place_of(waiter);
        let lane = self.classes[class].at(lane);
        let tail = std::mem::replace(&mut lane.tail, index);
        lane.len += 1;
        if tail == NONE {
            lane.head = index;
        } else {
            self.slots[tail as usize].next = index;
        }
        self.slots[index as usize].previous = tail;
    }

    /// Removes whoever holds the ticket, if it still waits.
    pub(crate) fn remove(&mut self, ticket: Ticket) -> Option<Waiter<T>> {
        let index = (ticket.0 & u64::from(CAPACITY_MAX - 1)) as u32;
        let slot = self.slots.get(index as usize)?;
        let waits = slot.sequence == ticket.0 >> INDEX_BITS && slot.waiter.is_some();
        waits.then(|| self.take(index)).flatten()
    }

    fn take(&mut self, index: u32) -> Option<Waiter<T>> {
        let slot = &mut self.slots[index as usize];
        let waiter = slot.waiter.take()?;
        let (previous, next) = (slot.previous, slot.next);
        self.unlink(&waiter, previous, next);
        self.free.push(index);
        self.len -= 1;
        self.bytes -= u64::from(waiter.bytes);
        self.give_back_memory();
        Some(waiter)
    }

    fn unlink(&mut self, waiter: &Waiter<T>, previous: u32, next: u32) {
        let (class, lane) = self.place_of(waiter);
        if previous != NONE {
            self.slots[previous as usize].next = next;
        }
        if next != NONE {
            self.slots[next as usize].previous = previous;
        }
        let lane = self.classes[class].at(lane);
        lane.len -= 1;
        if previous == NONE {
            lane.head = next;
        }
        if next == NONE {
            lane.tail = previous;
        }
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

    fn place_of(&self, waiter: &Waiter<T>) -> (usize, usize) {
        let class = usize::from(waiter.class.0).min(self.classes.len() - 1);
        (class, lane_of(waiter.sticky))
    }

    /// The next waiter that `place` finds a slot for, in order of importance, then of arrival;
    /// `place` is asked once per lane at most.
    pub(crate) fn pop_placed<P>(
        &mut self,
        mut place: impl FnMut(&Waiter<T>) -> Option<P>,
    ) -> Option<(Waiter<T>, P)> {
        for class in 0..self.classes.len() {
            let mut asked = 0;
            while let Some(index) = self.head_after(class, asked) {
                let slot = &self.slots[index as usize];
                asked = slot.sequence;
                if let Some(placed) = slot.waiter.as_ref().and_then(&mut place) {
                    return self.take(index).map(|waiter| (waiter, placed));
                }
            }
        }
        None
    }

    /// Among the heads of the class's lanes the first that came after `sequence`.
    fn head_after(&self, class: usize, sequence: u64) -> Option<u32> {
        let lanes = &self.classes[class].0;
        lanes
            .iter()
            .map(|lane| lane.head)
            .filter(|&head| head != NONE && self.slots[head as usize].sequence > sequence)
            .min_by_key(|&head| self.slots[head as usize].sequence)
    }

    /// When the one who waits longest arrived, whatever its importance.
    pub(crate) fn oldest(&self) -> Option<Timestamp> {
        let lanes = self.classes.iter().flat_map(|lanes| &lanes.0);
        let heads = lanes.map(|lane| lane.head).filter(|&head| head != NONE);
        let waiters = heads.filter_map(|head| self.slots[head as usize].waiter.as_ref());
        waiters.map(|waiter| waiter.arrived).min()
    }

    /// The waiter that came last in the least important class below `class`, to make room for a
    /// more important one.
    pub(crate) fn pop_less_important(&mut self, class: ClassId) -> Option<(Ticket, Waiter<T>)> {
        let above = usize::from(class.0) + 1;
        (above..self.classes.len())
            .rev()
            .find_map(|class| self.pop_last(class))
    }

    /// The waiter of the class that came last.
    pub(crate) fn pop_last(&mut self, class: usize) -> Option<(Ticket, Waiter<T>)> {
        let index = self.last(class)?;
        let ticket = ticket(self.slots[index as usize].sequence, index);
        self.take(index).map(|waiter| (ticket, waiter))
    }

    /// Looks at the waiter of the class that came last.
    pub(crate) fn peek_last(&self, class: usize) -> Option<&Waiter<T>> {
        self.slots[self.last(class)? as usize].waiter.as_ref()
    }

    fn last(&self, class: usize) -> Option<u32> {
        let lanes = &self.classes.get(class)?.0;
        lanes
            .iter()
            .map(|lane| lane.tail)
            .filter(|&tail| tail != NONE)
            .max_by_key(|&tail| self.slots[tail as usize].sequence)
    }

    /// Sorts the waiters anew after the list of classes changed; tickets stay valid.
    pub(crate) fn reclassify(&mut self, classes: usize, class_of: impl Fn(ClassId) -> ClassId) {
        self.classes.clear();
        self.classes.resize_with(classes, Lanes::default);
        let waits = |&index: &u32| self.slots[index as usize].waiter.is_some();
        let mut order: Vec<u32> = (0..self.slots.len() as u32).filter(waits).collect();
        order.sort_unstable_by_key(|&index| self.slots[index as usize].sequence);
        for index in order {
            let slot = &mut self.slots[index as usize];
            (slot.previous, slot.next) = (NONE, NONE);
            if let Some(waiter) = &mut slot.waiter {
                waiter.class = class_of(waiter.class);
            }
            self.link_last(index);
        }
    }
}

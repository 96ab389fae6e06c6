//! Slots of requests whose client left.
//!
//! Most servers do not notice that the client has gone and finish the work. If the slot were given
//! away at once, clients that ask and leave would fill a replica far beyond its window, out of
//! sight. So the slot is kept for as long as a request takes at present: how long this one has been
//! inside already says little about the rest (nothing, for exponential times). It never counts as
//! throughput: a replica whose clients all leave would look like a fast one. Nor does the time
//! count in which no end could be seen: a replica whose clients all leave would look like one
//! that has stopped. A place of the window at the entrance is kept with the slot.
//!
//! What breaks it: a server that does notice; there the slots are idle for that time. That costs no
//! more than the clients that leave would have cost by staying.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate_control::Timestamp;

use super::Lock;
use crate::gate::{Gate, Passed};
use crate::replica::Replica;

/// Nothing lingers longer than this.
const LINGER_MAX: f64 = 10.0;

/// Slots of requests whose client left.
#[derive(Debug)]
pub(super) struct DepartedSlots {
    /// When the first one is due, for looking at without the lock.
    next_ns: AtomicU64,
    slots: Lock<VecDeque<Slot>>,
}

#[derive(Debug)]
struct Slot {
    until: Timestamp,
    replica: Arc<Replica>,
    generation: u32,
    passed: Passed,
}

const NONE: u64 = u64::MAX;

impl DepartedSlots {
    pub(super) fn new() -> Self {
        Self {
            next_ns: AtomicU64::new(NONE),
            slots: Lock::new(VecDeque::new()),
        }
    }

    /// Keeps a slot for so long.
    pub(super) fn keep(
        &self,
        now: Timestamp,
        seconds: f64,
        replica: &Arc<Replica>,
        generation: u32,
        passed: Passed,
    ) {
        replica.keep(now);
        let mut slots = self.slots.lock();
        slots.push_back(Slot {
            until: now + Duration::from_secs_f64(seconds.min(LINGER_MAX)),
            replica: Arc::clone(replica),
            generation,
            passed,
        });
        self.publish(&slots);
    }

    /// Gives back what is due, in the order in which clients left, as of when it was due; whether
    /// that gave back a place of the window at the entrance.
    pub(super) fn release(&self, now: Timestamp, gate: &Gate) -> bool {
        if now.as_nanos() < self.next_ns.load(Ordering::Relaxed) {
            return false;
        }
        let mut counted = false;
        let mut slots = self.slots.lock();
        while slots.front().is_some_and(|slot| slot.until <= now)
            && let Some(slot) = slots.pop_front()
        {
            slot.replica.release_kept(slot.until, slot.generation);
            gate.leave(slot.passed);
            counted |= slot.passed.counted;
        }
        self.publish(&slots);
        counted
    }

    fn publish(&self, slots: &VecDeque<Slot>) {
        let next = slots.front().map_or(NONE, |slot| slot.until.as_nanos());
        self.next_ns.store(next, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::balance::Slots;

    #[test]
    fn slot_is_kept_for_as_long_as_a_request_takes() {
        let at = Timestamp::from_secs_f64;
        let replica = Arc::new(Replica::new(2));
        assert!(replica.take(at(0.0), Slots::Free));
        let (departed_slots, gate) = (DepartedSlots::new(), Gate::new(at(0.0)));
        let passed = Passed { counted: false };
        departed_slots.keep(at(1.0), 0.5, &replica, replica.enter(), passed);
        departed_slots.release(at(1.4), &gate);
        assert_eq!(replica.in_flight(), 1);
        departed_slots.release(at(1.5), &gate);
        assert_eq!(replica.in_flight(), 0);
        departed_slots.release(at(9.0), &gate);
        assert_eq!(replica.in_flight(), 0, "given back once");
    }
}

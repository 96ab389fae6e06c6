//! Which replicas may get a request: what a decision looks at instead of all of them.
//!
//! Replicas say what changes about them: [`Replica`](crate::replica::Replica) knows where. So a
//! decision takes as long with thousands of replicas as with a few. A member may be one too many
//! for a moment, because a slot was taken meanwhile, so the chosen one's slot still has to be
//! taken; none is missing for longer than a removal lasts ([`ReplicaSet`]).

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use super::replica_set::{ReplicaSet, count_visit};
use crate::config::Balance;

/// Which replicas may get a request.
#[derive(Debug)]
pub(crate) struct Vacancies {
    /// Those that are healthy.
    pub(crate) up: ReplicaSet,
    /// Those of them that have a free slot.
    pub(crate) free: ReplicaSet,
    /// Those that are slow compared with the others ([`super::ejection`]).
    pub(crate) aside: ReplicaSet,
    pub(crate) loads: Loads,
}

impl Vacancies {
    /// For replicas below `capacity`.
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            up: ReplicaSet::new(capacity),
            free: ReplicaSet::new(capacity),
            aside: ReplicaSet::new(capacity),
            loads: Loads::new(capacity),
        }
    }
}

/// Replicas to a block.
const BLOCK: usize = 64;

/// What a replica without a free slot counts as.
pub(crate) const FULL: u64 = u64::MAX;

const NOTHING: u8 = 0;
const LEAST_IN_FLIGHT: u8 = 1;
const MOST_FREE: u8 = 2;

/// How loaded each replica is, for the policies that compare all of them: one number each, and the
/// least of every 64. Kept only where such a policy is in force and replicas are many.
#[derive(Debug)]
pub(crate) struct Loads {
    capacity: usize,
    kind: AtomicU8,
    keys: OnceLock<Keys>,
}

#[derive(Debug)]
struct Keys {
    each: Box<[AtomicU64]>,
    least: Box<[AtomicU64]>,
}

impl Loads {
    fn new(capacity: usize) -> Self {
        Self {
            capacity,
            kind: AtomicU8::new(NOTHING),
            keys: OnceLock::new(),
        }
    }

    /// What is kept from now on, for this many replicas; they have to publish it.
    pub(crate) fn keep(&self, policy: Balance, replicas: usize) {
        let kind = if replicas > BLOCK {
            kind_of(policy)
        } else {
            NOTHING
        };
        if kind != NOTHING {
            self.keys.get_or_init(|| Keys::new(self.capacity));
        }
        self.kind.store(kind, Ordering::SeqCst);
    }

    /// Whether what this policy compares is kept.
    pub(crate) fn serve(&self, policy: Balance) -> bool {
        let kind = kind_of(policy);
        kind != NOTHING && kind == self.kind.load(Ordering::SeqCst)
    }

    /// What is kept, if anything is.
    pub(crate) fn kept(&self) -> Option<Balance> {
        match self.kind.load(Ordering::SeqCst) {
            LEAST_IN_FLIGHT => Some(Balance::LeastInFlight),
            MOST_FREE => Some(Balance::MostFree),
            _ => None,
        }
    }

    /// The load of a replica from now on.
    pub(crate) fn set(&self, index: usize, key: u64) {
        if let Some(keys) = self.keys.get().filter(|_| index < self.capacity) {
            keys.set(index, key);
        }
    }

    /// The first of the least loaded below `end`, from `start` on and then around.
    pub(crate) fn least(&self, start: usize, end: usize) -> Option<usize> {
        self.keys.get()?.least(start, end)
    }
}

fn kind_of(policy: Balance) -> u8 {
    match policy {
        Balance::LeastInFlight => LEAST_IN_FLIGHT,
        Balance::MostFree => MOST_FREE,
        _ => NOTHING,
    }
}

/// A number that is not negative as one that compares in the same order.
pub(crate) fn ascending(load: f64) -> u64 {
    load.to_bits()
}

/// The same in the opposite order, below [`FULL`].
pub(crate) fn descending(free: f64) -> u64 {
    FULL - 1 - free.to_bits()
}

impl Keys {
    fn new(capacity: usize) -> Self {
        let full = |count: usize| (0..count).map(|_| AtomicU64::new(FULL)).collect();
        let blocks = capacity.div_ceil(BLOCK);
        Self {
            each: full(blocks * BLOCK),
            least: full(blocks),
        }
    }

    fn set(&self, index: usize, key: u64) {
        let before = self.each[index].swap(key, Ordering::SeqCst);
        let least = &self.least[index / BLOCK];
        if least.fetch_min(key, Ordering::SeqCst) == before && key > before {
            self.search_least(index / BLOCK);
        }
    }

    /// The least of a block may have risen. It is looked at again after it was stored: a key that
    /// fell meanwhile may have been the same as the old least, and went unnoticed.
    fn search_least(&self, block: usize) {
        let least = &self.least[block];
        loop {
            let known = least.load(Ordering::SeqCst);
            let found = self.least_of(block);
            if known == found {
                return;
            }
            let _ = least.compare_exchange(known, found, Ordering::SeqCst, Ordering::SeqCst);
        }
    }

    fn least_of(&self, block: usize) -> u64 {
        let keys = &self.each[block * BLOCK..(block + 1) * BLOCK];
        let read = |key: &AtomicU64| key.load(Ordering::SeqCst);
        keys.iter().map(read).min().unwrap_or(FULL)
    }

    fn least(&self, start: usize, end: usize) -> Option<usize> {
        let blocks = &self.least[..end.div_ceil(BLOCK).min(self.least.len())];
        let read = |least: &AtomicU64| {
            count_visit();
            least.load(Ordering::SeqCst)
        };
        let least = blocks.iter().map(read).min().filter(|&key| key != FULL)?;
        let start = start % end;
        self.first(least, start, end)
            .or_else(|| self.first(least, 0, start))
    }

    /// The first with this key from `start` on and below `end`.
    fn first(&self, key: u64, start: usize, end: usize) -> Option<usize> {
        let mut from = start;
        while from < end {
            let block = from / BLOCK;
            let to = ((block + 1) * BLOCK).min(end);
            if self.least[block].load(Ordering::SeqCst) <= key {
                let is_it = |index: &usize| {
                    count_visit();
                    self.each[*index].load(Ordering::SeqCst) == key
                };
                if let Some(found) = (from..to).find(is_it) {
                    return Some(found);
                }
            }
            from = to;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn least_is_the_first_of_the_least(
            sets in prop::collection::vec((0_usize..300, 0_u64..6), 1..400),
            start in 0_usize..300,
            end in 1_usize..300,
        ) {
            let (keys, mut model) = (Keys::new(300), vec![FULL; 300]);
            for (index, key) in sets {
                let key = if key == 5 { FULL } else { key };
                keys.set(index, key);
                model[index] = key;
            }
            for (block, keys_of) in model.chunks(BLOCK).enumerate() {
                let least = keys.least[block].load(Ordering::SeqCst);
                prop_assert_eq!(Some(&least), keys_of.iter().min());
            }
            let start = start % end;
            let around = (start..end).chain(0..start);
            let expected = around.min_by_key(|&index| model[index]);
            let expected = expected.filter(|&index| model[index] != FULL);
            // A block may have its least beyond the end; then another is taken.
            let in_whole_blocks = model[..(end.div_ceil(BLOCK) * BLOCK).min(300)].iter().min();
            if expected.map(|index| &model[index]) == in_whole_blocks {
                prop_assert_eq!(keys.least(start, end), expected);
            }
        }

        #[test]
        fn keys_compare_as_loads_do(a in 0.0_f64..1e9, b in 0.0_f64..1e9) {
            prop_assert_eq!(a < b, ascending(a) < ascending(b));
            prop_assert_eq!(a < b, descending(a) > descending(b));
            prop_assert!(descending(a) < FULL);
        }
    }

    /// Keys rise and fall in one block from several threads; at the end the least is right.
    #[test]
    fn least_survives_threads() {
        let keys = Keys::new(64);
        std::thread::scope(|scope| {
            for index in 0..4_usize {
                let keys = &keys;
                scope.spawn(move || {
                    for round in 0..20_000 {
                        keys.set(index, (round * 7 + index as u64) % 3);
                    }
                    keys.set(index, 5 + index as u64);
                });
            }
        });
        assert_eq!(keys.least(0, 64), Some(0));
    }
}

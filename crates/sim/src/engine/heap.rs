//! A priority queue over the entries of a slab, which may leave the slab at any time.
//!
//! Removing an entry from the slab leaves a dead key behind. Dead keys are dropped when they reach
//! the top, and all together when they outnumber the living, so that memory follows the number of
//! live entries and an operation costs O(log n) amortised.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::slab::{Key, Slab};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    rank: u64,
    /// Equal ranks leave in the order in which they came.
    order: u64,
    key: Key,
}

/// Smallest rank first, then first come first out.
#[derive(Debug, Clone)]
pub(crate) struct RankHeap {
    /// The first of all, kept apart: what comes next is often what was just scheduled.
    front: Option<Entry>,
    /// All others; empty when there is no front.
    rest: BinaryHeap<Reverse<Entry>>,
    order: u64,
}

impl RankHeap {
    pub(crate) fn new() -> Self {
        Self {
            front: None,
            rest: BinaryHeap::new(),
            order: 0,
        }
    }

    fn len(&self) -> usize {
        self.rest.len() + usize::from(self.front.is_some())
    }

    #[inline]
    pub(crate) fn push(&mut self, rank: u64, key: Key) {
        let order = self.order;
        self.order += 1;
        let entry = Entry { rank, order, key };
        match self.front {
            Some(front) if front < entry => self.rest.push(Reverse(entry)),
            before => {
                self.front = Some(entry);
                self.rest.extend(before.map(Reverse));
            }
        }
    }

    /// The first of all, with its rank.
    #[inline]
    pub(crate) fn first(&self) -> Option<(u64, Key)> {
        self.front.map(|entry| (entry.rank, entry.key))
    }

    /// Takes the first of all out of the heap, not out of the slab.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<(u64, Key)> {
        let first = self.first();
        self.front = self.rest.pop().map(|Reverse(entry)| entry);
        first
    }

    /// To be called after entries left the slab, with the number of those in the heap that did
    /// not: afterwards the first of all is a live one.
    #[inline]
    pub(crate) fn bury<T>(&mut self, slab: &Slab<T>, live: usize) {
        if self.len() == live {
            return;
        }
        if self.len() > 2 * live + 64 {
            self.rest.retain(|Reverse(entry)| slab.contains(entry.key));
        }
        while self.first().is_some_and(|(_, key)| !slab.contains(key)) {
            self.pop();
        }
    }

    pub(crate) fn clear(&mut self) {
        self.front = None;
        self.rest.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A heap with its slab.
    struct Pair(RankHeap, Slab<u64>);

    impl Pair {
        fn new() -> Self {
            Self(RankHeap::new(), Slab::new())
        }

        fn push(&mut self, rank: u64, item: u64) -> Key {
            let key = self.1.insert(item);
            self.0.push(rank, key);
            key
        }

        fn pop(&mut self) -> Option<(u64, u64)> {
            let (rank, key) = self.0.pop()?;
            let item = self.1.remove(key).expect("the first of all is live");
            self.0.bury(&self.1, self.1.len());
            Some((rank, item))
        }

        fn cancel(&mut self, key: Key) -> Option<u64> {
            let item = self.1.remove(key);
            self.0.bury(&self.1, self.1.len());
            item
        }
    }

    #[test]
    fn equal_ranks_leave_in_order_of_arrival() {
        let mut pair = Pair::new();
        for item in 0..100 {
            pair.push(7, item);
        }
        let out: Vec<_> = std::iter::from_fn(|| pair.pop()).map(|(_, i)| i).collect();
        assert_eq!(out, (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn dead_entries_do_not_accumulate() {
        let mut pair = Pair::new();
        pair.push(0, 0);
        for rank in 1..10_000 {
            let key = pair.push(rank, 1);
            pair.cancel(key);
        }
        assert_eq!(pair.1.len(), 1);
        assert!(pair.0.len() < 100);
    }

    proptest! {
        /// Any mix of operations agrees with a sorted list.
        #[test]
        fn agrees_with_a_sorted_list(ops in prop::collection::vec((0u8..8, 0u64..50), 0..800)) {
            let mut pair = Pair::new();
            let mut model: Vec<(u64, u64, Key)> = Vec::new();
            for (order, (op, rank)) in (0u64..).zip(ops) {
                match op {
                    0..=3 => {
                        let key = pair.push(rank, order);
                        model.push((rank, order, key));
                        model.sort_by_key(|&(rank, order, _)| (rank, order));
                    }
                    4 => {
                        let expected = (!model.is_empty()).then(|| model.remove(0));
                        prop_assert_eq!(pair.pop(), expected.map(|(rank, order, _)| (rank, order)));
                    }
                    _ if model.is_empty() => prop_assert!(pair.pop().is_none()),
                    _ => {
                        let (_, order, key) = model.remove(rank as usize % model.len());
                        prop_assert_eq!(pair.cancel(key), Some(order));
                        prop_assert_eq!(pair.cancel(key), None);
                    }
                }
                let first = model.first().map(|&(rank, _, key)| (rank, key));
                prop_assert_eq!(pair.0.first(), first);
            }
        }
    }
}

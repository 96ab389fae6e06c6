//! A priority queue whose entries can be cancelled.
//!
//! Cancelling frees the item at once and leaves a dead key behind. Dead keys are dropped when they
//! reach the top, and all together when they outnumber the living, so that memory follows the
//! number of live entries and an operation costs O(log n) amortised.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::slab::{Key, Slab};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Entry<K> {
    rank: K,
    /// Equal ranks leave in the order in which they came.
    order: u64,
    key: Key,
}

/// Smallest rank first, then first come first out.
#[derive(Debug, Clone)]
pub(crate) struct CancelHeap<K: Ord + Copy, T> {
    heap: BinaryHeap<Reverse<Entry<K>>>,
    items: Slab<T>,
    order: u64,
}

impl<K: Ord + Copy, T> CancelHeap<K, T> {
    pub(crate) fn new() -> Self {
        Self {
            heap: BinaryHeap::new(),
            items: Slab::new(),
            order: 0,
        }
    }

    /// Number of live entries.
    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    #[inline]
    pub(crate) fn push(&mut self, rank: K, item: T) -> Key {
        let key = self.items.insert(item);
        let order = self.order;
        self.order += 1;
        self.heap.push(Reverse(Entry { rank, order, key }));
        key
    }

    /// Rank of the entry that [`pop`](Self::pop) would return.
    #[inline]
    pub(crate) fn first(&self) -> Option<K> {
        self.heap.peek().map(|Reverse(entry)| entry.rank)
    }

    /// The item that [`pop`](Self::pop) would return.
    pub(crate) fn first_item(&self) -> Option<&T> {
        self.items.get(self.heap.peek()?.0.key)
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<(K, T)> {
        let Reverse(entry) = self.heap.pop()?;
        let item = self
            .items
            .remove(entry.key)
            .expect("the entry on top is always live");
        self.bury();
        Some((entry.rank, item))
    }

    /// Takes an entry out of the middle; nothing when it is already gone.
    pub(crate) fn cancel(&mut self, key: Key) -> Option<T> {
        let item = self.items.remove(key)?;
        self.bury();
        if self.heap.len() > 2 * self.items.len() + 64 {
            let items = &self.items;
            self.heap.retain(|Reverse(entry)| items.contains(entry.key));
        }
        Some(item)
    }

    pub(crate) fn clear(&mut self) {
        self.items.drain();
        self.heap.clear();
    }

    /// Restores the invariant that the entry on top is live.
    #[inline]
    fn bury(&mut self) {
        if self.heap.len() == self.items.len() {
            return;
        }
        while let Some(Reverse(entry)) = self.heap.peek() {
            if self.items.contains(entry.key) {
                return;
            }
            self.heap.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn equal_ranks_leave_in_order_of_arrival() {
        let mut heap = CancelHeap::new();
        for item in 0..100 {
            heap.push(7, item);
        }
        let out: Vec<_> = std::iter::from_fn(|| heap.pop()).map(|(_, i)| i).collect();
        assert_eq!(out, (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn dead_entries_do_not_accumulate() {
        let mut heap = CancelHeap::new();
        heap.push(0u64, 0u64);
        for i in 1..10_000 {
            let key = heap.push(i, i);
            heap.cancel(key);
        }
        assert_eq!(heap.len(), 1);
        assert!(heap.heap.len() < 100);
    }

    proptest! {
        /// Any mix of operations agrees with a sorted list.
        #[test]
        fn agrees_with_a_sorted_list(ops in prop::collection::vec((0u8..4, 0u32..50), 0..400)) {
            let mut heap = CancelHeap::new();
            let mut model: Vec<(u32, u64, Key)> = Vec::new();
            for (order, (op, rank)) in (0u64..).zip(ops) {
                match op {
                    0 | 1 => {
                        let key = heap.push(rank, order);
                        model.push((rank, order, key));
                        model.sort_by_key(|&(rank, order, _)| (rank, order));
                    }
                    2 => {
                        let expected = (!model.is_empty()).then(|| model.remove(0));
                        prop_assert_eq!(heap.pop(), expected.map(|(rank, order, _)| (rank, order)));
                    }
                    _ if model.is_empty() => prop_assert!(heap.pop().is_none()),
                    _ => {
                        let (_, order, key) = model.remove(rank as usize % model.len());
                        prop_assert_eq!(heap.cancel(key), Some(order));
                        prop_assert_eq!(heap.cancel(key), None);
                    }
                }
                prop_assert_eq!(heap.len(), model.len());
                prop_assert_eq!(heap.first(), model.first().map(|&(rank, _, _)| rank));
            }
        }
    }
}

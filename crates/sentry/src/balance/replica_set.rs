//! A set of replicas that many threads change and search.
//!
//! One bit for each replica, 64 of them in a word, and one bit for each word that is not empty. The
//! next member after any replica is found by looking at three words or so, however many replicas
//! there are.
//!
//! A removal that empties a word takes the word's own bit away and looks again: another thread may
//! have inserted a member meanwhile. Between the two a search may overlook that member. A
//! search that must not overlook one compares [`ReplicaSet::ended`] and [`ReplicaSet::begun`].

use std::sync::atomic::{AtomicU64, Ordering};

/// Replicas to a word.
const WORD: usize = 64;

/// A set of replicas that many threads change and search.
#[derive(Debug)]
pub(crate) struct ReplicaSet {
    words: Box<[AtomicU64]>,
    /// Which of the words have a member.
    filled: Box<[AtomicU64]>,
    begun: AtomicU64,
    ended: AtomicU64,
}

impl ReplicaSet {
    /// An empty set of replicas below `capacity`.
    pub(crate) fn new(capacity: usize) -> Self {
        let zeros = |count: usize| (0..count).map(|_| AtomicU64::new(0)).collect();
        let words = capacity.div_ceil(WORD).max(1);
        Self {
            words: zeros(words),
            filled: zeros(words.div_ceil(WORD)),
            begun: AtomicU64::new(0),
            ended: AtomicU64::new(0),
        }
    }

    pub(crate) fn contains(&self, index: usize) -> bool {
        let word = self.words.get(index / WORD);
        word.is_some_and(|word| word.load(Ordering::SeqCst) & bit(index) != 0)
    }

    pub(crate) fn insert(&self, index: usize) {
        let Some(word) = self.words.get(index / WORD) else {
            debug_assert!(false, "replica {index} is beyond the set");
            return;
        };
        if word.load(Ordering::SeqCst) & bit(index) == 0 {
            word.fetch_or(bit(index), Ordering::SeqCst);
        }
        self.fill(index / WORD);
    }

    fn fill(&self, word: usize) {
        let filled = &self.filled[word / WORD];
        if filled.load(Ordering::SeqCst) & bit(word) == 0 {
            filled.fetch_or(bit(word), Ordering::SeqCst);
        }
    }

    /// Removes a member, unless `stays` says after that that it should have stayed.
    pub(crate) fn remove_unless(&self, index: usize, stays: impl Fn() -> bool) {
        if !self.contains(index) {
            return;
        }
        self.begun.fetch_add(1, Ordering::SeqCst);
        let word = &self.words[index / WORD];
        let before = word.fetch_and(!bit(index), Ordering::SeqCst);
        if before & !bit(index) == 0 {
            let number = index / WORD;
            self.filled[number / WORD].fetch_and(!bit(number), Ordering::SeqCst);
            if word.load(Ordering::SeqCst) != 0 {
                self.fill(number);
            }
        }
        if stays() {
            self.insert(index);
        }
        self.ended.fetch_add(1, Ordering::SeqCst);
    }

    /// Removals that have ended. A search between this and [`ReplicaSet::begun`] has overlooked
    /// nothing if the two are equal.
    pub(crate) fn ended(&self) -> u64 {
        self.ended.load(Ordering::SeqCst)
    }

    /// Removals that have begun.
    pub(crate) fn begun(&self) -> u64 {
        self.begun.load(Ordering::SeqCst)
    }

    /// Members below `end` from `start` on and then around, without those of another set.
    pub(crate) fn around<'a>(
        &'a self,
        start: usize,
        end: usize,
        without: Option<&'a Self>,
    ) -> impl Iterator<Item = usize> + use<'a> {
        let start = if end == 0 { 0 } else { start % end };
        self.within(start, end, without)
            .chain(self.within(0, start, without))
    }

    /// Members from `start` on and below `end`, in order.
    fn within<'a>(
        &'a self,
        start: usize,
        end: usize,
        without: Option<&'a Self>,
    ) -> impl Iterator<Item = usize> + use<'a> {
        let mut next = start;
        std::iter::from_fn(move || {
            let found = self.next(next, end, without)?;
            next = found + 1;
            Some(found)
        })
    }

    /// The first member from `start` on and below `end`.
    fn next(&self, start: usize, end: usize, without: Option<&Self>) -> Option<usize> {
        let (mut number, mut mask) = (start / WORD, u64::MAX << (start % WORD));
        while number * WORD < end {
            let members = self.word(number, without) & mask;
            if members != 0 {
                let found = number * WORD + members.trailing_zeros() as usize;
                return (found < end).then_some(found);
            }
            number = self.next_filled(number + 1)?;
            mask = u64::MAX;
        }
        None
    }

    /// The members of a word.
    fn word(&self, number: usize, without: Option<&Self>) -> u64 {
        count_visit();
        let read = |set: &Self| {
            let word = set.words.get(number);
            word.map_or(0, |word| word.load(Ordering::SeqCst))
        };
        read(self) & !without.map_or(0, read)
    }

    /// The first word from `start` on that has a member.
    fn next_filled(&self, start: usize) -> Option<usize> {
        let mut mask = u64::MAX << (start % WORD);
        for (number, filled) in self.filled.iter().enumerate().skip(start / WORD) {
            count_visit();
            let filled = filled.load(Ordering::SeqCst) & mask;
            if filled != 0 {
                return Some(number * WORD + filled.trailing_zeros() as usize);
            }
            mask = u64::MAX;
        }
        None
    }

    /// Members below `end`.
    pub(crate) fn count_below(&self, end: usize) -> usize {
        let words = 0..end.div_ceil(WORD);
        words
            .map(|number| self.word_below(number, end).count_ones() as usize)
            .sum()
    }

    /// The member below `end` before which there are `rank`.
    pub(crate) fn nth_below(&self, mut rank: usize, end: usize) -> Option<usize> {
        for number in 0..end.div_ceil(WORD) {
            let mut members = self.word_below(number, end);
            let count = members.count_ones() as usize;
            if rank < count {
                // Takes the lowest member away, `rank` times.
                (0..rank).for_each(|_| members &= members - 1);
                return Some(number * WORD + members.trailing_zeros() as usize);
            }
            rank -= count;
        }
        None
    }

    fn word_below(&self, number: usize, end: usize) -> u64 {
        let members = self.word(number, None);
        match end - number * WORD {
            rest @ 0..WORD => members & !(u64::MAX << rest),
            _ => members,
        }
    }
}

fn bit(index: usize) -> u64 {
    1 << (index % WORD)
}

/// Counts what a decision looks at, so that a test can say how that grows.
#[inline]
pub(super) fn count_visit() {
    #[cfg(test)]
    VISITS.with(|visits| visits.set(visits.get() + 1));
}

#[cfg(test)]
thread_local! {
    /// Words and replicas that were looked at by this thread.
    pub(super) static VISITS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn set_is_what_a_set_is(
            steps in prop::collection::vec((0_usize..700, any::<bool>()), 1..300),
            start in 0_usize..700,
            end in 1_usize..700,
        ) {
            let (set, mut model) = (ReplicaSet::new(700), BTreeSet::new());
            for (index, insert) in steps {
                if insert {
                    set.insert(index);
                    model.insert(index);
                } else {
                    set.remove_unless(index, || false);
                    model.remove(&index);
                }
            }
            let start = start % end;
            let members: Vec<usize> = set.around(start, end, None).collect();
            let expected = model.range(start..end).chain(model.range(..start));
            prop_assert_eq!(members, expected.copied().collect::<Vec<_>>());
            let below: Vec<usize> = model.range(..end).copied().collect();
            prop_assert_eq!(set.count_below(end), below.len());
            for rank in 0..=below.len() {
                prop_assert_eq!(set.nth_below(rank, end), below.get(rank).copied());
            }
            prop_assert_eq!(set.begun(), set.ended());
        }
    }

    #[test]
    fn members_of_another_set_are_left_out() {
        let (set, other) = (ReplicaSet::new(300), ReplicaSet::new(300));
        (0..300).for_each(|index| set.insert(index));
        (0..299).for_each(|index| other.insert(index));
        let rest: Vec<usize> = set.around(70, 300, Some(&other)).collect();
        assert_eq!(rest, [299]);
    }

    #[test]
    fn member_that_should_have_stayed_is_a_member() {
        let set = ReplicaSet::new(100);
        set.insert(99);
        set.remove_unless(99, || true);
        assert!(set.contains(99));
        assert_eq!(set.around(3, 100, None).collect::<Vec<_>>(), [99]);
    }

    /// Every thread inserts and removes a replica of its own in the same word.
    #[test]
    fn set_survives_threads_that_empty_and_fill_a_word() {
        let set = ReplicaSet::new(64 * 64);
        std::thread::scope(|scope| {
            for index in 0..4 {
                let set = &set;
                scope.spawn(move || {
                    for _ in 0..20_000 {
                        set.insert(640 + index);
                        set.remove_unless(640 + index, || false);
                    }
                    set.insert(640 + index);
                });
            }
        });
        let members: Vec<usize> = set.around(0, 4096, None).collect();
        assert_eq!(members, [640, 641, 642, 643]);
    }
}

//! What waits in a client: everything (data-queue) or the newest of each key (data-overwrite),
//! 001 §3.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

/// What a newer item does to an older one that has not gone yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Variant {
    /// Nothing: all of them go, in their order.
    #[default]
    Queue,
    /// It takes the place of the older one of the same key.
    Overwrite,
}

/// Items in the order in which they go.
#[derive(Debug, Clone)]
pub struct Backlog<K, T> {
    variant: Variant,
    items: VecDeque<(K, T)>,
}

impl<K: PartialEq, T> Backlog<K, T> {
    /// Nothing yet.
    #[must_use]
    pub fn new(variant: Variant) -> Self {
        Self {
            variant,
            items: VecDeque::new(),
        }
    }

    /// Adds an item; gives back the one that it made obsolete. The newer one keeps the place in
    /// the line, so that a client that changes its mind does not go to its end.
    pub fn add(&mut self, key: K, item: T) -> Option<T> {
        if self.variant == Variant::Overwrite
            && let Some((_, older)) = self.items.iter_mut().find(|(k, _)| *k == key)
        {
            return Some(std::mem::replace(older, item));
        }
        self.items.push_back((key, item));
        None
    }

    /// Adds an item that has nothing in common with any other.
    pub fn push(&mut self, key: K, item: T) {
        self.items.push_back((key, item));
    }

    /// Puts such an item back in front.
    pub fn push_front(&mut self, key: K, item: T) {
        self.items.push_front((key, item));
    }

    /// The item that goes next.
    #[must_use]
    pub fn first(&self) -> Option<&T> {
        self.items.front().map(|(_, item)| item)
    }

    /// Takes the item that goes next.
    pub fn take_first(&mut self) -> Option<(K, T)> {
        self.items.pop_front()
    }

    /// Takes the first item that may go.
    pub fn take_first_where(&mut self, may_go: impl Fn(&T) -> bool) -> Option<(K, T)> {
        let position = self.items.iter().position(|(_, item)| may_go(item))?;
        self.items.remove(position)
    }

    /// Puts an item that could not be sent back in front, unless a newer one of its key makes it
    /// obsolete; then it is given back.
    pub fn put_back(&mut self, key: K, item: T) -> Option<T> {
        let obsolete =
            self.variant == Variant::Overwrite && self.items.iter().any(|(k, _)| *k == key);
        if obsolete {
            return Some(item);
        }
        self.items.push_front((key, item));
        None
    }

    /// Takes out the items that `keep` does not want any more.
    pub fn remove_unless(&mut self, mut keep: impl FnMut(&T) -> bool) -> Vec<T> {
        let (kept, gone) = std::mem::take(&mut self.items)
            .into_iter()
            .partition::<VecDeque<_>, _>(|(_, item)| keep(item));
        self.items = kept;
        gone.into_iter().map(|(_, item)| item).collect()
    }

    /// How many wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The waiting items in their order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.items.iter().map(|(_, item)| item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_keeps_everything_in_order() {
        let mut backlog = Backlog::new(Variant::Queue);
        for item in 1..=3 {
            assert_eq!(backlog.add("bid", item), None);
        }
        assert_eq!(backlog.iter().copied().collect::<Vec<_>>(), [1, 2, 3]);
        let (key, first) = backlog.take_first().unwrap();
        assert_eq!(backlog.put_back(key, first), None);
        assert_eq!(backlog.first(), Some(&1));
    }

    #[test]
    fn newer_item_takes_the_place_of_the_older_one_of_its_key() {
        let mut backlog = Backlog::new(Variant::Overwrite);
        backlog.add("a", 1);
        backlog.add("b", 2);
        assert_eq!(backlog.add("a", 3), Some(1));
        assert_eq!(backlog.iter().copied().collect::<Vec<_>>(), [3, 2]);
    }

    #[test]
    fn item_that_failed_gives_way_to_a_newer_one() {
        let mut backlog = Backlog::new(Variant::Overwrite);
        backlog.add("a", 1);
        let (key, old) = backlog.take_first().unwrap();
        backlog.add("a", 2);
        assert_eq!(backlog.put_back(key, old), Some(1));
        assert_eq!(backlog.len(), 1);
    }

    #[test]
    fn what_is_no_longer_wanted_can_be_taken_out() {
        let mut backlog = Backlog::new(Variant::Queue);
        for item in 1..=4 {
            backlog.add((), item);
        }
        assert_eq!(backlog.remove_unless(|item| item % 2 == 0), [1, 3]);
        assert_eq!(backlog.len(), 2);
    }
}

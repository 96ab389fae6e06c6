//! Storage with handles that go stale: a removed entry's handle never finds its successor.

/// Where an entry lives, and which of the entries that ever lived there it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    slot: u32,
    generation: u32,
}

impl Key {
    /// Dense index of the entry's place; two live entries never share it.
    pub(crate) fn slot(self) -> usize {
        self.slot as usize
    }
}

#[derive(Debug, Clone)]
struct Entry<T> {
    generation: u32,
    item: Option<T>,
}

/// Insertion, lookup and removal in constant time; freed places are reused.
#[derive(Debug, Clone)]
pub(crate) struct Slab<T> {
    entries: Vec<Entry<T>>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    pub(crate) fn new() -> Self {
        Self {
            entries: Vec::new(),
            free: Vec::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    pub(crate) fn insert(&mut self, item: T) -> Key {
        let slot = self.free.pop().unwrap_or_else(|| self.grow());
        let entry = &mut self.entries[slot as usize];
        entry.item = Some(item);
        Key {
            slot,
            generation: entry.generation,
        }
    }

    fn grow(&mut self) -> u32 {
        let slot = u32::try_from(self.entries.len()).expect("fewer than 2^32 entries at once");
        self.entries.push(Entry {
            generation: 0,
            item: None,
        });
        slot
    }

    #[inline]
    pub(crate) fn contains(&self, key: Key) -> bool {
        // The generation moves on at removal, so a match means the entry is still there.
        self.entries[key.slot()].generation == key.generation
    }

    pub(crate) fn get(&self, key: Key) -> Option<&T> {
        let entry = &self.entries[key.slot()];
        entry
            .item
            .as_ref()
            .filter(|_| entry.generation == key.generation)
    }

    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let entry = &mut self.entries[key.slot()];
        entry
            .item
            .as_mut()
            .filter(|_| entry.generation == key.generation)
    }

    #[inline]
    pub(crate) fn remove(&mut self, key: Key) -> Option<T> {
        let entry = &mut self.entries[key.slot()];
        if entry.generation != key.generation {
            return None;
        }
        let item = entry.item.take()?;
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(key.slot);
        Some(item)
    }

    /// Everything, in order of place.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Key, &T)> {
        (0u32..).zip(&self.entries).filter_map(|(slot, entry)| {
            let generation = entry.generation;
            Some((Key { slot, generation }, entry.item.as_ref()?))
        })
    }

    /// Removes everything, in order of place, and makes every handle stale.
    pub(crate) fn drain(&mut self) -> Vec<T> {
        let mut items = Vec::with_capacity(self.len());
        for (slot, entry) in (0u32..).zip(&mut self.entries) {
            if let Some(item) = entry.item.take() {
                entry.generation = entry.generation.wrapping_add(1);
                self.free.push(slot);
                items.push(item);
            }
        }
        items
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_handle_does_not_find_the_successor() {
        let mut slab = Slab::new();
        let first = slab.insert('a');
        assert_eq!(slab.remove(first), Some('a'));
        let second = slab.insert('b');
        assert_eq!(second.slot(), first.slot(), "the place is reused");
        assert!(!slab.contains(first) && slab.contains(second));
        assert_eq!(slab.get(first), None);
        assert_eq!(slab.remove(first), None);
        assert_eq!(slab.get(second), Some(&'b'));
    }

    #[test]
    fn drain_empties_and_keeps_the_places() {
        let mut slab = Slab::new();
        let keys: Vec<_> = (0..3).map(|item| slab.insert(item)).collect();
        slab.remove(keys[1]);
        let listed: Vec<_> = slab.iter().map(|(key, &item)| (key, item)).collect();
        assert_eq!(listed, [(keys[0], 0), (keys[2], 2)]);
        assert_eq!(slab.drain(), [0, 2]);
        assert_eq!(slab.len(), 0);
        assert!(keys.iter().all(|&key| !slab.contains(key)));
        slab.insert(9);
        assert_eq!(slab.entries.len(), 3);
    }
}

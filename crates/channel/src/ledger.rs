//! Items that were passed on, remembered for as long as their time can matter.
//!
//! An item is a client and a number. What a service has received under that name must not come
//! again with another content; the same content may, since answers get lost: the service knows it
//! by its name. A repetition is no offence, for an observer of the network can send it again in its
//! client's name. It has to wait, longer each time:
//!
//! ```text
//! repetition n  not before  the last one + REPEAT_AFTER 2^min(n, 7)
//! ```
//!
//! What breaks it: more items than `max` within the time in which they may come; then the oldest
//! are forgotten, and counted. A restart forgets all. Both let a client sign two contents for one
//! number, and the service sees one name.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use tidegate_control::Timestamp;

use crate::stamp::{Content, Stamp, client_id};
use crate::strategy::ClientId;

/// The first repetition of an item may come after this.
const REPEAT_AFTER: Duration = Duration::from_millis(500);

/// From the seventh repetition on they may come once a minute.
const DOUBLINGS_MAX: u32 = 7;

/// A client and the number of its item.
type Name = (ClientId, u64);

/// What is known of an item before it is passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known {
    /// Nothing.
    New,
    /// It was passed on, and may be again.
    Repeated,
    /// It was passed on just now: so much longer.
    TooSoon(Duration),
    /// Its number was used for another content.
    Conflict,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    content: Content,
    made: Timestamp,
    passed: Timestamp,
    times: u32,
}

impl Entry {
    /// When it may come again.
    fn next(&self) -> Timestamp {
        let doublings = self.times.saturating_sub(1).min(DOUBLINGS_MAX);
        self.passed + REPEAT_AFTER * 2_u32.pow(doublings)
    }
}

/// Remembers items.
#[derive(Debug)]
pub struct Ledger {
    items: HashMap<Name, Entry>,
    /// The same, the oldest first.
    by_age: BTreeSet<(Timestamp, Name)>,
    max: usize,
    forgotten: u64,
}

impl Ledger {
    /// Remembers at most `max` items.
    #[must_use]
    pub fn new(max: usize) -> Self {
        Self {
            items: HashMap::new(),
            by_age: BTreeSet::new(),
            max: max.max(1),
            forgotten: 0,
        }
    }

    /// Whether an item may be passed on.
    #[must_use]
    pub fn look(&self, now: Timestamp, stamp: &Stamp) -> Known {
        match self.items.get(&name(stamp)) {
            None => Known::New,
            Some(entry) if entry.content != stamp.content => Known::Conflict,
            Some(entry) if entry.next() > now => Known::TooSoon(entry.next().since(now)),
            Some(_) => Known::Repeated,
        }
    }

    /// It is passed on. What was made longer than `matters` ago is forgotten.
    pub fn enter(&mut self, now: Timestamp, stamp: &Stamp, matters: Duration) {
        self.forget(now, matters);
        let entry = self.items.entry(name(stamp)).or_insert(Entry {
            content: stamp.content,
            made: stamp.made,
            passed: now,
            times: 0,
        });
        (entry.passed, entry.times) = (now, entry.times.saturating_add(1));
        let made = entry.made;
        self.by_age.insert((made, name(stamp)));
        while self.items.len() > self.max {
            self.forgotten += 1;
            self.forget_oldest();
        }
    }

    /// How many are remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// How many were forgotten before their time.
    #[must_use]
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    fn forget(&mut self, now: Timestamp, matters: Duration) {
        while self
            .by_age
            .first()
            .is_some_and(|(made, _)| now.since(*made) > matters)
        {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        if let Some((_, name)) = self.by_age.pop_first() {
            self.items.remove(&name);
        }
    }
}

fn name(stamp: &Stamp) -> Name {
    (client_id(&stamp.client), stamp.item)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::SecretKey;

    const HOUR: Duration = Duration::from_secs(3600);

    fn at(seconds: f64) -> Timestamp {
        Timestamp::from_secs_f64(seconds)
    }

    fn stamp(client: u8, item: u64, body: &[u8], made: f64) -> Stamp {
        Stamp {
            client: SecretKey::from_seed(&[client; 32]).public(),
            item,
            made: at(made),
            error: Duration::ZERO,
            delay_max: HOUR,
            content: Content::of("POST", "/bids", body),
            clock: None,
        }
    }

    #[test]
    fn number_is_for_one_content() {
        let mut ledger = Ledger::new(100);
        let first = stamp(1, 7, b"1", 100.0);
        assert_eq!(ledger.look(at(100.0), &first), Known::New);
        ledger.enter(at(100.0), &first, HOUR);
        let other = stamp(1, 7, b"2", 100.0);
        assert_eq!(ledger.look(at(200.0), &other), Known::Conflict);
        // Another client's items have their own numbers.
        assert_eq!(
            ledger.look(at(200.0), &stamp(2, 7, b"2", 100.0)),
            Known::New
        );
        assert_eq!(ledger.look(at(200.0), &first), Known::Repeated);
    }

    #[test]
    fn repetitions_wait_longer_each_time() {
        let mut ledger = Ledger::new(100);
        let item = stamp(1, 7, b"1", 100.0);
        let mut now = at(100.0);
        let mut waits = Vec::new();
        ledger.enter(now, &item, HOUR);
        for _ in 0..10 {
            let Known::TooSoon(wait) = ledger.look(now, &item) else {
                panic!("at once")
            };
            waits.push(wait.as_secs_f64());
            now += wait;
            assert_eq!(ledger.look(now, &item), Known::Repeated);
            ledger.enter(now, &item, HOUR);
        }
        assert_eq!(waits[..3], [0.5, 1.0, 2.0]);
        assert_eq!(waits[9], 64.0);
    }

    #[test]
    fn items_are_remembered_as_long_as_they_matter_and_no_more_than_there_is_room_for() {
        let mut ledger = Ledger::new(3);
        for item in 0..3 {
            ledger.enter(at(100.0), &stamp(1, item, b"1", 100.0 + item as f64), HOUR);
        }
        // An hour after the first was made it is too late anyway.
        ledger.enter(at(3701.0), &stamp(1, 10, b"1", 3700.0), HOUR);
        assert_eq!((ledger.len(), ledger.forgotten()), (3, 0));
        assert_eq!(
            ledger.look(at(3701.0), &stamp(1, 0, b"1", 100.0)),
            Known::New
        );
        ledger.enter(at(3701.0), &stamp(1, 11, b"1", 3700.0), HOUR);
        assert_eq!((ledger.len(), ledger.forgotten()), (3, 1));
        assert_eq!(
            ledger.look(at(3701.0), &stamp(1, 1, b"1", 101.0)),
            Known::New
        );
    }
}

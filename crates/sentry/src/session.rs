//! Sessions that were admitted: their later requests are preferred, because half a checkout earns
//! nothing.
//!
//! A table of fixed size, read without a lock. An entry is one atomic word: 32 bits of the
//! session's hash and the second in which it ends. A session gets in only when one of its requests
//! was admitted, and takes the place of the one in its bucket that ends first, so that nobody who
//! is refused can push a session out.
//!
//! What breaks it: more open sessions than entries; then the oldest are forgotten and are strangers
//! again.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate_control::Timestamp;

/// Entries per bucket.
const WAYS: usize = 4;

/// Sessions that were admitted: their later requests are preferred, because half a checkout earns
/// nothing.
#[derive(Debug)]
pub(crate) struct Sessions {
    /// Made when the first session is opened: most applications have none.
    entries: OnceLock<Box<[AtomicU64]>>,
    size: usize,
    lifetime_s: u32,
}

impl Sessions {
    /// Room for about `max` sessions; with a lifetime of zero there are none.
    pub(crate) fn new(max: usize, lifetime: Duration) -> Self {
        let lifetime_s = u32::try_from(lifetime.as_secs_f64().ceil() as u64).unwrap_or(u32::MAX);
        let size = match lifetime_s {
            0 => 0,
            _ => max.next_power_of_two().max(WAYS),
        };
        Self {
            entries: OnceLock::new(),
            size,
            lifetime_s,
        }
    }

    /// Whether it is what a configuration asks for.
    pub(crate) fn suits(&self, max: usize, lifetime: Duration) -> bool {
        let wanted = Self::new(0, lifetime);
        self.lifetime_s == wanted.lifetime_s
            && (wanted.lifetime_s == 0 || self.size == max.next_power_of_two().max(WAYS))
    }

    /// Whether a request of the session was admitted within its lifetime.
    pub(crate) fn knows(&self, now: Timestamp, session: u64) -> bool {
        let alive = |entry: &AtomicU64| {
            let (found, ends) = unpack(entry.load(Ordering::Relaxed));
            found == fingerprint(session) && ends > seconds(now)
        };
        let entries = self.entries.get();
        entries.is_some_and(|entries| bucket(entries, session).iter().any(alive))
    }

    /// A request that may open the session was admitted. An open one is not prolonged.
    pub(crate) fn open(&self, now: Timestamp, session: u64) {
        if self.knows(now, session) {
            return;
        }
        let made = || (0..self.size).map(|_| AtomicU64::new(0)).collect();
        let ends_first = bucket(self.entries.get_or_init(made), session)
            .iter()
            .min_by_key(|entry| unpack(entry.load(Ordering::Relaxed)).1);
        if let Some(entry) = ends_first {
            let ends = seconds(now).saturating_add(self.lifetime_s);
            let packed = u64::from(fingerprint(session)) << 32 | u64::from(ends);
            entry.store(packed, Ordering::Relaxed);
        }
    }
}

/// The entries that a session may have.
fn bucket(entries: &[AtomicU64], session: u64) -> &[AtomicU64] {
    if entries.is_empty() {
        return &[];
    }
    let first = (session as usize & (entries.len() / WAYS - 1)) * WAYS;
    &entries[first..first + WAYS]
}

/// The upper half of the hash; the lower half chose the bucket.
fn fingerprint(session: u64) -> u32 {
    (session >> 32) as u32
}

fn unpack(entry: u64) -> (u32, u32) {
    ((entry >> 32) as u32, entry as u32)
}

/// Seconds since the driver's epoch, from 1 on: an empty entry has ended.
fn seconds(now: Timestamp) -> u32 {
    u32::try_from(now.as_nanos() / 1_000_000_000 + 1).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn at(second: u32) -> Timestamp {
        Timestamp::from_secs_f64(f64::from(second))
    }

    #[test]
    fn session_lasts_from_its_admission() {
        let sessions = Sessions::new(100, MINUTE);
        let cart = 7 << 32 | 9;
        assert!(!sessions.knows(at(0), cart));
        sessions.open(at(0), cart);
        assert!(sessions.knows(at(59), cart));
        sessions.open(at(59), cart);
        assert!(
            !sessions.knows(at(60), cart),
            "not prolonged by its requests"
        );
    }

    #[test]
    fn table_keeps_its_size_and_forgets_the_oldest() {
        let sessions = Sessions::new(4, MINUTE);
        for session in 0..5_u64 {
            sessions.open(at(session as u32), session << 32 | session);
        }
        assert!(!sessions.knows(at(5), 0));
        assert!((1..5_u64).all(|session| sessions.knows(at(5), session << 32 | session)));
        assert_eq!(sessions.size, 4);
    }

    #[test]
    fn without_a_lifetime_nothing_is_kept() {
        let sessions = Sessions::new(100, Duration::ZERO);
        sessions.open(at(0), 1);
        assert!(!sessions.knows(at(0), 1));
        assert!(sessions.suits(5, Duration::ZERO) && !sessions.suits(100, MINUTE));
    }
}

//! Quotas: what one key (a client, a tenant, a path) may have, whatever the load.
//!
//! The rate is the generic cell rate algorithm (ITU-T I.371): with `T = 1 / rate` and a burst of
//! `b` requests a key's theoretical arrival time `tat` says when its allowance is whole again. A
//! request at `now` conforms if `max(tat, now) - now <= (b - 1) T`, and moves `tat` on by `T`.
//! Concurrency is a count of the requests inside.
//!
//! Memory is bounded: a key has a place in one set of [`WAYS`] entries. In a full set the entry
//! with the most allowance left and nothing inside makes room: keys seen once go first, and a key
//! that has used much of its allowance stays. A key that is forgotten begins with a whole
//! allowance, so a flood of new keys never costs an honest one anything. Where every entry of a set
//! has requests inside, a new key is let in and not counted.
//!
//! Decision: docs/decisions/0131-quotas-in-bounded-memory.md.

use std::time::Duration;

use tidegate_control::Timestamp;

/// Entries of a set. Chosen: one or two cache lines are searched, and the loss to collisions is
/// small (Hill and Smith 1989 for caches: eight ways are within a few percent of full).
const WAYS: usize = 8;

/// What a key may have.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct QuotaLimits {
    /// Requests per second; `None` for any number.
    pub rate: Option<f64>,
    /// Requests that may come at once, at least one.
    pub burst: f64,
    /// Requests inside at a time; `None` for any number.
    pub concurrency: Option<u32>,
}

impl QuotaLimits {
    /// This share of them; at least one request at a time. Two may come at once, if they may at
    /// all: with one, random arrivals would get less than the rate.
    fn part(self, share: f64) -> Self {
        if share >= 1.0 {
            return self;
        }
        let most = |most: u32| ((share * f64::from(most)).round() as u32).max(1);
        Self {
            rate: self.rate.map(|rate| share * rate),
            burst: (share * self.burst).max(2.0).min(self.burst),
            concurrency: self.concurrency.map(most),
        }
    }
}

/// Why a request is beyond its key's quota.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum QuotaExceeded {
    /// Too many in too short a time: after this long one more is within the quota.
    Rate(Duration),
    /// Too many inside.
    Concurrency,
}

/// What a key may still have now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuotaLeft {
    /// Requests at once.
    pub requests: u64,
    /// After this long one may come, if none may now. Zero for a bound on requests inside, which
    /// nobody knows the end of.
    pub wait: Duration,
}

/// A table of keys.
#[derive(Debug, Clone)]
pub struct QuotaTable {
    limits: QuotaLimits,
    entries: Box<[Entry]>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Entry {
    key: u64,
    /// Theoretical arrival time, in nanoseconds.
    tat: u64,
    inside: u32,
    used: bool,
    /// What others that keep the same quota have of it: 0 where it is this table's alone.
    elsewhere: f32,
    /// Requests that came since they were last counted.
    arrived: u32,
}

impl QuotaTable {
    /// A table for at least `keys` keys. Their values have to be hashes: the low bits choose a set.
    #[must_use]
    pub fn new(limits: QuotaLimits, keys: usize) -> Self {
        let sets = keys.div_ceil(WAYS).next_power_of_two();
        Self {
            limits,
            entries: vec![Entry::default(); sets * WAYS].into(),
        }
    }

    /// Other limits from now on; keys keep what they have used.
    pub fn set_limits(&mut self, limits: QuotaLimits) {
        self.limits = limits;
    }

    /// A request of `key` arrives. If it is within the quota, [`QuotaTable::on_end`] follows with
    /// what this returns: whether its key is counted.
    ///
    /// # Errors
    /// The request is beyond the quota; nothing follows.
    pub fn on_arrival(&mut self, now: Timestamp, key: u64) -> Result<bool, QuotaExceeded> {
        let (now, limits) = (now.as_nanos(), self.limits);
        let Some(entry) = self.place(now, key) else {
            return Ok(false);
        };
        entry.arrived = entry.arrived.saturating_add(1);
        let limits = limits.part(1.0 - f64::from(entry.elsewhere));
        if limits.concurrency.is_some_and(|most| entry.inside >= most) {
            return Err(QuotaExceeded::Concurrency);
        }
        if let Some(rate) = limits.rate {
            let (tat, period) = (entry.tat.max(now), 1e9 / rate.max(f64::MIN_POSITIVE));
            let allowed = (limits.burst.max(1.0) - 1.0) * period;
            let early = (tat - now) as f64 - allowed;
            if early > 0.0 {
                return Err(QuotaExceeded::Rate(Duration::from_nanos(
                    early.ceil() as u64
                )));
            }
            entry.tat = tat.saturating_add(period as u64);
        }
        entry.inside += 1;
        Ok(true)
    }

    /// What is left to `key`, by its rate, or by its concurrency where it has no rate; `None` if
    /// nothing is known of it.
    #[must_use]
    pub fn left(&mut self, now: Timestamp, key: u64) -> Option<QuotaLeft> {
        let limits = self.limits;
        let entry = *self.set(key).iter().find(|it| it.used && it.key == key)?;
        let limits = limits.part(1.0 - f64::from(entry.elsewhere));
        let Some(rate) = limits.rate else {
            let most = limits.concurrency?;
            return Some(QuotaLeft {
                requests: u64::from(most.saturating_sub(entry.inside)),
                wait: Duration::ZERO,
            });
        };
        let period = 1e9 / rate.max(f64::MIN_POSITIVE);
        let ahead = entry.tat.saturating_sub(now.as_nanos()) as f64;
        let spare = (limits.burst.max(1.0) - 1.0) * period - ahead;
        Some(QuotaLeft {
            requests: if spare < 0.0 {
                0
            } else {
                (spare / period) as u64 + 1
            },
            wait: Duration::from_nanos((-spare).max(0.0).ceil() as u64),
        })
    }

    /// Others keep the same quota for `key`: from now on it has this share of it here.
    pub fn share_key(&mut self, key: u64, share: f64) {
        let share = if share.is_finite() {
            share.clamp(0.0, 1.0)
        } else {
            1.0
        };
        // A key of which nothing is known has all of it anyway.
        let known = self.set(key).iter().any(|it| it.used && it.key == key);
        if !known && share >= 1.0 {
            return;
        }
        if let Some(entry) = self.place(0, key) {
            entry.elsewhere = (1.0 - share) as f32;
        }
    }

    /// Keys of which at least this many requests came since the last call, with their number.
    pub fn take_busy_keys(&mut self, least: u32) -> Vec<(u64, u32)> {
        let arrived = |entry: &mut Entry| (entry.key, std::mem::take(&mut entry.arrived));
        let used = self.entries.iter_mut().filter(|entry| entry.used);
        let all = used.map(arrived);
        all.filter(|&(_, arrived)| arrived >= least.max(1))
            .collect()
    }

    /// A request of `key` that was counted has ended.
    pub fn on_end(&mut self, key: u64) {
        if let Some(entry) = self.set(key).iter_mut().find(|it| it.used && it.key == key) {
            entry.inside = entry.inside.saturating_sub(1);
        }
    }

    /// Keys that have used something of their allowance at `now`, or have requests inside.
    #[must_use]
    pub fn keys(&self, now: Timestamp) -> usize {
        let active = |it: &&Entry| it.used && (it.inside > 0 || it.tat > now.as_nanos());
        self.entries.iter().filter(active).count()
    }

    fn set(&mut self, key: u64) -> &mut [Entry] {
        let sets = self.entries.len() / WAYS;
        let first = (key as usize & (sets - 1)) * WAYS;
        &mut self.entries[first..first + WAYS]
    }

    /// The entry of a key, which is made if there is none; `None` if there is no room.
    fn place(&mut self, now: u64, key: u64) -> Option<&mut Entry> {
        let set = self.set(key);
        let known = set.iter().position(|it| it.used && it.key == key);
        let at = match known {
            Some(at) => at,
            None => {
                let idle = set.iter().enumerate().filter(|(_, it)| it.inside == 0);
                let (at, _) =
                    idle.min_by_key(|(_, it)| if it.used { it.tat.max(now) } else { 0 })?;
                let used = true;
                set[at] = Entry {
                    key,
                    used,
                    ..Entry::default()
                };
                at
            }
        };
        Some(&mut set[at])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: QuotaLimits = QuotaLimits {
        rate: Some(2.0),
        burst: 3.0,
        concurrency: None,
    };

    fn at(millis: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_millis(millis)
    }

    /// A key as a hash would be: splitmix64.
    fn hashed(number: u64) -> u64 {
        let mixed = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb)
    }

    #[test]
    fn burst_passes_then_the_rate_holds() {
        let mut table = QuotaTable::new(LIMITS, 8);
        for _ in 0..3 {
            assert_eq!(table.on_arrival(at(1), 7), Ok(true));
        }
        let half = Duration::from_millis(500);
        assert_eq!(table.on_arrival(at(1), 7), Err(QuotaExceeded::Rate(half)));
        assert_eq!(table.on_arrival(at(1), 8), Ok(true), "another key");
        assert_eq!(table.on_arrival(at(501), 7), Ok(true));
        assert!(table.on_arrival(at(502), 7).is_err());
    }

    #[test]
    fn what_is_left_is_what_the_next_arrivals_get() {
        let mut table = QuotaTable::new(LIMITS, 8);
        assert_eq!(table.left(at(1), 7), None, "it has not come yet");
        for left in [2, 1, 0] {
            assert_eq!(table.on_arrival(at(1), 7), Ok(true));
            let requests = table.left(at(1), 7).map(|it| it.requests);
            assert_eq!(requests, Some(left));
        }
        let wait = table.left(at(101), 7).map(|it| it.wait);
        assert_eq!(wait, Some(Duration::from_millis(400)));
        let exceeded = QuotaExceeded::Rate(Duration::from_millis(400));
        assert_eq!(table.on_arrival(at(101), 7), Err(exceeded));
        assert_eq!(table.left(at(501), 7).map(|it| it.requests), Some(1));
        let whole = table.left(at(60_000), 7).map(|it| it.requests);
        assert_eq!(whole, Some(3), "never more than the burst");
    }

    #[test]
    fn concurrency_leaves_what_is_not_inside() {
        let limits = QuotaLimits {
            rate: None,
            concurrency: Some(2),
            ..LIMITS
        };
        let mut table = QuotaTable::new(limits, 8);
        for left in [1, 0] {
            assert_eq!(table.on_arrival(at(1), 7), Ok(true));
            let requests = table.left(at(1), 7).map(|it| it.requests);
            assert_eq!(requests, Some(left));
        }
    }

    #[test]
    fn concurrency_counts_what_is_inside() {
        let limits = QuotaLimits {
            rate: None,
            concurrency: Some(2),
            ..LIMITS
        };
        let mut table = QuotaTable::new(limits, 8);
        assert_eq!(table.on_arrival(at(0), 7), Ok(true));
        assert_eq!(table.on_arrival(at(0), 7), Ok(true));
        assert_eq!(table.on_arrival(at(0), 7), Err(QuotaExceeded::Concurrency));
        table.on_end(7);
        assert_eq!(table.on_arrival(at(0), 7), Ok(true));
        assert_eq!(table.keys(at(0)), 1);
    }

    #[test]
    fn ten_million_keys_cost_no_honest_key_anything_and_no_memory() {
        let mut table = QuotaTable::new(LIMITS, 1 << 12);
        let size = table.entries.len();
        let (honest, greedy) = (hashed(1), hashed(2));
        let mut refused = 0;
        for number in 0..10_000_000_u64 {
            let now = at(number / 1000);
            table
                .on_arrival(now, hashed(number + 10))
                .expect("a new key is within its quota");
            if number % 1_000_000 == 0 {
                assert_eq!(table.on_arrival(now, honest), Ok(true), "one per second");
            }
            if number % 1000 == 0 {
                refused += u64::from(table.on_arrival(now, greedy).is_err());
            }
        }
        assert_eq!(table.entries.len(), size);
        // 10 000 requests in 10 s, of which the burst and two per second are within the quota.
        assert!(
            refused >= 9_900,
            "{refused}: the flood must not renew a used allowance"
        );
    }

    #[test]
    fn shared_key_has_its_part_and_others_have_all() {
        let mut table = QuotaTable::new(LIMITS, 8);
        table.share_key(7, 0.5);
        let admitted = |table: &mut QuotaTable, key| {
            let at = (0..100).map(|n| at(n * 100));
            at.filter(|&now| table.on_arrival(now, key).is_ok()).count()
        };
        // 10 s at 1/s and a burst of 2, and at 2/s and one of 3.
        assert_eq!(admitted(&mut table, 7), 11);
        assert_eq!(admitted(&mut table, 8), 22);
        assert_eq!(table.take_busy_keys(1), [(7, 100), (8, 100)]);
        assert_eq!(table.take_busy_keys(1), []);
        table.share_key(7, 1.0);
        table.share_key(9, 1.0);
        assert_eq!(table.entries.iter().filter(|it| it.used).count(), 2);
    }

    #[test]
    fn keys_with_requests_inside_are_never_forgotten() {
        let limits = QuotaLimits {
            rate: None,
            concurrency: Some(1),
            ..LIMITS
        };
        let mut table = QuotaTable::new(limits, WAYS);
        for key in 0..WAYS as u64 {
            assert_eq!(table.on_arrival(at(0), key), Ok(true));
        }
        assert_eq!(
            table.on_arrival(at(0), 99),
            Ok(false),
            "let in and not counted"
        );
        assert_eq!(table.on_arrival(at(0), 0), Err(QuotaExceeded::Concurrency));
    }
}

//! What a request will cost, by its path (003 §3.5).
//!
//! The table maps a hash of the path to an exponentially decayed mean of its service times. Its
//! size is fixed, it is read without a lock on every arrival, and an attacker who sends ten million
//! different URLs must not push out the thousand paths that matter. Three things see to that:
//!
//! - the hash is keyed ([`PathHasher`](super::PathHasher)), so that nobody can aim at a slot;
//! - a newcomer to a full bucket does not replace anything, it only cools the coldest entry, and
//!   that with a probability that falls exponentially with the entry's heat (the rule of
//!   HeavyKeeper): an entry that was hit a hundred times is as good as immovable for strangers;
//! - heat is halved now and then ([`ServiceTable::age`]), so that yesterday's hot path makes room.
//!
//! A slot is one atomic word, 32 bits of fingerprint and 32 bits of mean, so that a reader never
//! sees half an update. Two cores that update one slot at once may lose one of two samples, which
//! changes a decayed mean by nothing worth a lock. Two paths that share a bucket and a fingerprint
//! share their mean: with `n` paths the chance is `n^2 / 2^33`.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use super::PathKey;

/// Slots per bucket: a cache line of entries.
const WAYS: usize = 8;
/// A stranger cools an entry of heat `h` with probability `COOLING^h`.
const COOLING: f64 = 0.92;
/// Beyond this an entry is no safer: `0.92^100` is one in four thousand per stranger.
const HEAT_MAX: u8 = 200;
/// Weight of the newest service time in the mean of a path that is asked for often; before that all
/// samples weigh the same. Chosen: requests whose times differ by a quarter leave an error of 2.5 %
/// in the mean, half of what classes are held apart by (`experiments/papers/003-3-classes.toml`; at
/// a weight of 0.1 silver passed where gold was refused).
const SAMPLE_WEIGHT: f32 = 0.02;
/// Requests of late that make a mean. Chosen: the mean of eight exponential times is above three
/// times what it should be once in ten thousand times.
const WELL_KNOWN: u8 = 8;

/// A bounded map from path hash to mean service time.
#[derive(Debug)]
pub struct ServiceTable {
    entries: Box<[AtomicU64]>,
    heat: Box<[AtomicU8]>,
    /// A Weyl sequence; mixed, it decides which path is cooled.
    sequence: AtomicU64,
    /// `COOLING^h` in units of 2^-32.
    cooling: Box<[u32]>,
}

impl ServiceTable {
    /// A table of at least `slots` entries of nine bytes.
    #[must_use]
    pub fn new(slots: usize, seed: u64) -> Self {
        let slots = slots_for(slots);
        Self {
            entries: (0..slots).map(|_| AtomicU64::new(0)).collect(),
            heat: (0..slots).map(|_| AtomicU8::new(0)).collect(),
            sequence: AtomicU64::new(seed),
            cooling: (0..=i32::from(HEAT_MAX))
                .map(|heat| (COOLING.powi(heat) * f64::from(u32::MAX)) as u32)
                .collect(),
        }
    }

    /// Bytes of memory it holds, for ever.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.entries.len() * (size_of::<AtomicU64>() + size_of::<AtomicU8>())
    }

    /// Whether it has room for this many paths, and not for many more.
    pub(crate) fn holds(&self, slots: usize) -> bool {
        self.entries.len() == slots_for(slots)
    }

    /// The mean service time of a path in seconds, where it is known.
    #[must_use]
    pub fn get(&self, PathKey(hash): PathKey) -> Option<f64> {
        let slot = self.find(self.bucket(hash), fingerprint(hash))?;
        Some(self.mean_s(slot))
    }

    /// The same, of a path that was asked for often enough for the mean to be one.
    pub(crate) fn get_well_known(&self, PathKey(hash): PathKey) -> Option<f64> {
        let slot = self.find(self.bucket(hash), fingerprint(hash))?;
        let heat = self.heat[slot].load(Ordering::Relaxed);
        (heat >= WELL_KNOWN).then(|| self.mean_s(slot))
    }

    fn mean_s(&self, slot: usize) -> f64 {
        f64::from(unpack(self.entries[slot].load(Ordering::Relaxed)).1)
    }

    /// A request of the path took so long; what is negative or not finite is ignored.
    pub fn record(&self, PathKey(hash): PathKey, service_s: f64) {
        let service_s = service_s as f32;
        if !service_s.is_finite() || service_s < 0.0 {
            return;
        }
        let fingerprint = fingerprint(hash);
        let bucket = self.bucket(hash);
        match self.find(bucket, fingerprint) {
            Some(slot) => self.refresh(slot, fingerprint, service_s),
            None => self.contend(bucket, fingerprint, service_s),
        }
    }

    /// Halves all heat: to be called once in a while (a minute), not per request.
    pub fn age(&self) {
        for heat in &self.heat {
            heat.store(heat.load(Ordering::Relaxed) / 2, Ordering::Relaxed);
        }
    }

    fn bucket(&self, hash: u64) -> usize {
        (hash as usize & (self.entries.len() / WAYS - 1)) * WAYS
    }

    fn find(&self, bucket: usize, fingerprint: u32) -> Option<usize> {
        (bucket..bucket + WAYS)
            .find(|&slot| unpack(self.entries[slot].load(Ordering::Relaxed)).0 == fingerprint)
    }

    fn refresh(&self, slot: usize, fingerprint: u32, service_s: f32) {
        let heat = self.heat[slot].load(Ordering::Relaxed);
        let (_, mean_s) = unpack(self.entries[slot].load(Ordering::Relaxed));
        let weight = (1.0 / (f32::from(heat) + 1.0)).max(SAMPLE_WEIGHT);
        let mean_s = mean_s + weight * (service_s - mean_s);
        self.entries[slot].store(pack(fingerprint, mean_s), Ordering::Relaxed);
        if heat < HEAT_MAX {
            self.heat[slot].store(heat + 1, Ordering::Relaxed);
        }
    }

    /// A stranger takes the coldest slot of its bucket if that is empty or cools to nothing.
    fn contend(&self, bucket: usize, fingerprint: u32, service_s: f32) {
        let coldest = (bucket..bucket + WAYS)
            .min_by_key(|&slot| self.heat[slot].load(Ordering::Relaxed))
            .unwrap_or(bucket);
        let heat = self.heat[coldest].load(Ordering::Relaxed);
        if self.random() > self.cooling[usize::from(heat)] {
            return;
        }
        if heat > 1 {
            self.heat[coldest].store(heat - 1, Ordering::Relaxed);
            return;
        }
        self.entries[coldest].store(pack(fingerprint, service_s), Ordering::Relaxed);
        self.heat[coldest].store(1, Ordering::Relaxed);
    }

    /// 32 bits of SplitMix64 over the sequence.
    fn random(&self) -> u32 {
        let mut mixed = self
            .sequence
            .fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed >> 32) as u32
    }
}

fn slots_for(paths: usize) -> usize {
    paths.next_power_of_two().max(WAYS)
}

/// The upper half of the hash; the lower half chose the bucket. Never zero, which means empty.
fn fingerprint(hash: u64) -> u32 {
    ((hash >> 32) as u32).max(1)
}

fn pack(fingerprint: u32, mean_s: f32) -> u64 {
    u64::from(fingerprint) << 32 | u64::from(mean_s.to_bits())
}

fn unpack(entry: u64) -> (u32, f32) {
    ((entry >> 32) as u32, f32::from_bits(entry as u32))
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use super::*;
    use crate::policing::PathHasher;

    const PAGE: PathKey = PathKey(42 << 32);

    #[test]
    fn learns_the_mean_of_a_path() {
        let table = ServiceTable::new(64, 1);
        assert_eq!(table.get(PAGE), None);
        for _ in 0..200 {
            table.record(PAGE, 0.25);
        }
        assert!((table.get(PAGE).unwrap() - 0.25).abs() < 1e-6);
    }

    #[test]
    fn first_samples_weigh_the_same_and_a_change_is_followed() {
        let table = ServiceTable::new(64, 1);
        for service_s in [0.1, 0.2, 0.6] {
            table.record(PAGE, service_s);
        }
        assert!((table.get(PAGE).unwrap() - 0.3).abs() < 1e-6);
        (0..200).for_each(|_| table.record(PAGE, 0.1));
        (0..200).for_each(|_| table.record(PAGE, 0.5));
        assert!((table.get(PAGE).unwrap() - 0.5).abs() < 0.01);
    }

    #[test]
    fn nonsense_is_not_learnt() {
        let table = ServiceTable::new(64, 1);
        for bad in [f64::NAN, f64::INFINITY, -1.0, 1e300] {
            table.record(PAGE, bad);
        }
        assert_eq!(table.get(PAGE), None);
    }

    /// A thousand paths are in use when ten million strangers come, ten to each honest request,
    /// over ten minutes: the table keeps its size and the paths.
    #[test]
    fn flood_of_new_urls_evicts_less_than_one_in_a_hundred_hot_paths() {
        const HOT: u64 = 1000;
        const FLOOD: u64 = 10_000_000;
        let hasher = PathHasher::new((11, 12), &[]);
        let table = ServiceTable::new(4096, 3);
        let bytes = table.bytes();
        let hot: Vec<PathKey> = (0..HOT)
            .map(|id| hasher.hash(&format!("/honest/page-{id}x")))
            .collect();
        for &path in hot.iter().cycle().take(20 * hot.len()) {
            table.record(path, 0.02);
        }
        let mut url = String::new();
        for round in 0..FLOOD {
            url.clear();
            write!(url, "/attack/{round:x}z").unwrap();
            table.record(hasher.hash(&url), 3.0);
            if round % 10 == 0 {
                table.record(hot[(round / 10 % HOT) as usize], 0.02);
            }
            if round % (FLOOD / 10) == 0 {
                table.age();
            }
        }
        let found: Vec<f64> = hot.iter().filter_map(|&path| table.get(path)).collect();
        let lost = hot.len() - found.len();
        assert!(lost < 10, "{lost} of {HOT} hot paths lost");
        assert_eq!(table.bytes(), bytes);
        let wrong = found.iter().filter(|&&mean| mean > 0.1).count();
        assert_eq!(wrong, 0);
    }

    #[test]
    fn path_that_is_no_longer_asked_for_makes_room() {
        let table = ServiceTable::new(WAYS, 3); // one bucket
        for path in 1..=WAYS as u64 {
            (0..100).for_each(|_| table.record(PathKey(path << 32), 1.0));
        }
        for _ in 0..8 {
            table.age();
        }
        let newcomer = PathKey(99 << 32);
        (0..20).for_each(|_| table.record(newcomer, 2.0));
        assert!(table.get(newcomer).is_some());
    }
}

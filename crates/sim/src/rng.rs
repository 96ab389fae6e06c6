//! One stream of random numbers per source.
//!
//! A stream is a function of the master seed and of its own name. Sources therefore never share
//! numbers: adding a source or an observer, or changing what one of them draws, leaves every other
//! stream as it was, and two configurations compared under one seed see the same arrivals and the
//! same work (common random numbers).
//!
//! Generator: xoshiro256++ (Blackman, Vigna 2019), its state filled by SplitMix64 from a hash of
//! seed and name.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;

/// The generator behind every stream.
pub type SimRng = Xoshiro256PlusPlus;

/// The family of streams of one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Streams {
    seed: u64,
}

impl Streams {
    /// The family that belongs to a master seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { seed }
    }

    /// The stream of that name, from its beginning.
    #[must_use]
    pub fn stream(&self, name: &str) -> SimRng {
        SimRng::seed_from_u64(self.seed_of(name))
    }

    /// The `index`th stream of that name: one per load, per replica.
    #[must_use]
    pub fn indexed(&self, name: &str, index: usize) -> SimRng {
        SimRng::seed_from_u64(split_mix(self.seed_of(name) ^ split_mix(index as u64)))
    }

    /// A seed for a component that keeps its own generator.
    #[must_use]
    pub fn seed_of(&self, name: &str) -> u64 {
        split_mix(split_mix(self.seed) ^ fnv1a(name.as_bytes()))
    }

    /// The family of the `index`th repetition of the run; the 0th is the run itself.
    #[must_use]
    pub fn repetition(&self, index: u64) -> Self {
        match index {
            0 => *self,
            _ => Self::new(split_mix(self.seed ^ split_mix(index))),
        }
    }
}

/// Finalizer of SplitMix64 (Steele, Lea, Flood 2014): a bijection that spreads every bit.
const fn split_mix(z: u64) -> u64 {
    let z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// FNV-1a with its published 64-bit constants: stable across platforms and compiler versions.
const fn fnv1a(bytes: &[u8]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325;
    let mut at = 0;
    while at < bytes.len() {
        hash = (hash ^ bytes[at] as u64).wrapping_mul(0x0100_0000_01b3);
        at += 1;
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::Rng;

    #[test]
    fn a_stream_depends_on_seed_and_name_only() {
        let first = |seed, name| Streams::new(seed).stream(name).next_u64();
        assert_eq!(first(1, "arrivals"), first(1, "arrivals"));
        assert_ne!(first(1, "arrivals"), first(2, "arrivals"));
        assert_ne!(first(1, "arrivals"), first(1, "service"));
    }

    #[test]
    fn indices_and_repetitions_differ() {
        let streams = Streams::new(7);
        assert_ne!(
            streams.indexed("load", 0).next_u64(),
            streams.indexed("load", 1).next_u64()
        );
        assert_eq!(streams.repetition(0), streams);
        assert_ne!(streams.repetition(1), streams.repetition(2));
    }

    /// Numbers of every report depend on these: a change must be deliberate.
    #[test]
    fn streams_stay_what_they_are() {
        assert_eq!(fnv1a(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(split_mix(0), 0xe220_a839_7b1d_cdaf);
    }
}

//! Random numbers for many threads from one seed.
//!
//! SplitMix64 (Steele, Lea, Flood 2014): the state is a counter, so that drawing is one atomic
//! addition; the same calls in the same order give the same numbers.

use std::sync::atomic::{AtomicU64, Ordering};

/// The generator.
#[derive(Debug)]
pub(crate) struct Dice(AtomicU64);

impl Dice {
    const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

    pub(crate) fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }

    fn draw(&self) -> u64 {
        let state = self.0.fetch_add(Self::GAMMA, Ordering::Relaxed);
        let mut z = state.wrapping_add(Self::GAMMA);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform over `0..n`; 0 when `n` is 0.
    pub(crate) fn below(&self, n: usize) -> usize {
        // The high half of a 128-bit product: no division, and a bias below n / 2^64.
        ((u128::from(self.draw()) * n as u128) >> 64) as usize
    }

    /// Uniform over [0, 1).
    pub(crate) fn unit(&self) -> f64 {
        (self.draw() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_gives_the_same_numbers() {
        let (a, b) = (Dice::new(7), Dice::new(7));
        assert!((0..100).all(|_| a.draw() == b.draw()));
    }

    #[test]
    fn known_value_of_the_published_generator() {
        assert_eq!(Dice::new(0).draw(), 0xe220_a839_7b1d_cdaf);
    }

    #[test]
    fn numbers_are_spread_evenly() {
        let dice = Dice::new(1);
        let mut counts = [0_u32; 10];
        (0..10_000).for_each(|_| counts[dice.below(10)] += 1);
        // Binomial(10 000, 0.1): standard deviation 30.
        assert!(
            counts.iter().all(|&n| (850..1150).contains(&n)),
            "{counts:?}"
        );
        let mean = (0..10_000).map(|_| dice.unit()).sum::<f64>() / 10_000.0;
        assert!((mean - 0.5).abs() < 0.015, "{mean}");
        assert_eq!(dice.below(0), 0);
    }
}

//! Percent blocking: each request passes with the same probability (002 §2.1).
//!
//! Unlike a token bucket it bounds nothing: the admitted rate is a share of whatever arrives, so
//! that a sudden burst goes through to that share (000 §IV-A says so of Yaksha).

use crate::atomic::AtomicF64;
use crate::clamp::within;

/// Admits a share of the requests.
///
/// ```
/// use tidegate_sentry::gate::PercentBlocking;
///
/// let gate = PercentBlocking::new(0.25);
/// assert!(gate.passes(0.1)); // the caller brings the random number
/// assert!(!gate.passes(0.9));
/// ```
#[derive(Debug)]
pub struct PercentBlocking {
    share: AtomicF64,
}

impl PercentBlocking {
    /// Admits `share` of the requests, brought into 0 to 1.
    #[must_use]
    pub fn new(share: f64) -> Self {
        Self {
            share: AtomicF64::new(clean(share)),
        }
    }

    /// Changes the share; NaN admits nothing.
    pub fn set_share(&self, share: f64) {
        self.share.store(clean(share));
    }

    /// The share in force.
    #[must_use]
    pub fn share(&self) -> f64 {
        self.share.load()
    }

    /// Decides with a number drawn uniformly from [0, 1).
    #[must_use]
    pub fn passes(&self, uniform: f64) -> bool {
        uniform < self.share.load()
    }
}

fn clean(share: f64) -> f64 {
    within(share, 0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Dice;

    #[test]
    fn admits_the_share() {
        let gate = PercentBlocking::new(0.3);
        let dice = Dice::new(5);
        let passed = (0..10_000).filter(|_| gate.passes(dice.unit())).count();
        // Binomial(10 000, 0.3): standard deviation 46.
        assert!((2800..3200).contains(&passed), "{passed}");
    }

    #[test]
    fn ends_are_exact() {
        let gate = PercentBlocking::new(7.0);
        assert!(gate.passes(1.0 - f64::EPSILON));
        for nothing in [0.0, -1.0, f64::NAN] {
            gate.set_share(nothing);
            assert!(!gate.passes(0.0));
        }
    }
}

//! Is a rate above another, or is it chance?
//!
//! One test ([`Counts::z_above`]) with a parameter set for each question, in [`Tuning`]: what is
//! compared, how much has to be known of it, and how sure the answer has to be.
//!
//! Two questions are others and have their own arithmetic. A trial looks after every tick whether
//! it knows enough, so its test is sequential ([`sprt`](super::sprt)). The speed of a replica asks
//! for a number and not for a verdict: the rate that a count stands for at least
//! ([`Counts::rate_at_least`]).
//!
//! [`Tuning`]: super::tuning::Tuning

use crate::counts::Counts;

/// When a rate counts as above a reference.
#[derive(Debug, Clone, Copy)]
pub(super) struct Significance {
    /// It has to be above this share of the reference,
    pub(super) share: f64,
    /// which rests on this many requests,
    pub(super) reference: f64,
    /// by this many chance deviations.
    pub(super) z: f64,
}

impl Significance {
    /// Whether `seen` is above the share of `reference` by more than chance.
    pub(super) fn is_above(&self, seen: &Counts, reference: &Counts, dispersion: f64) -> bool {
        let share = Counts::of(self.share * reference.done, reference.seconds);
        reference.done >= self.reference && seen.z_above(&share, dispersion) > self.z
    }

    /// By how many chance deviations `seen` differs from the share of `reference`, up or down,
    /// where that is more than chance.
    pub(super) fn difference(
        &self,
        seen: &Counts,
        reference: &Counts,
        dispersion: f64,
    ) -> Option<f64> {
        let share = Counts::of(self.share * reference.done, reference.seconds);
        let z = seen.z_above(&share, dispersion).abs();
        (reference.done >= self.reference && z > self.z).then_some(z)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEST: Significance = Significance {
        share: 0.5,
        reference: 10.0,
        z: 3.0,
    };

    #[test]
    fn share_of_the_reference_is_exceeded_beyond_chance() {
        let reference = Counts::of(1000.0, 10.0);
        assert!(TEST.is_above(&Counts::of(80.0, 1.0), &reference, 1.0));
        assert!(!TEST.is_above(&Counts::of(80.0, 1.0), &reference, 4.0));
        assert!(!TEST.is_above(&Counts::of(60.0, 1.0), &reference, 1.0));
    }

    #[test]
    fn difference_is_found_in_both_directions_beyond_chance() {
        let reference = Counts::of(1000.0, 10.0);
        let difference = |done| TEST.difference(&Counts::of(done, 1.0), &reference, 1.0);
        assert!(difference(80.0).is_some_and(|z| z > 3.0));
        assert!(difference(20.0).is_some_and(|z| z > 3.0));
        assert_eq!(difference(60.0), None);
        assert_eq!(difference(40.0), None);
    }

    #[test]
    fn reference_that_rests_on_too_little_says_nothing() {
        let seen = Counts::of(800.0, 10.0);
        assert!(TEST.is_above(&seen, &Counts::of(10.0, 0.1), 0.01));
        assert!(!TEST.is_above(&seen, &Counts::of(9.0, 0.1), 0.01));
    }
}

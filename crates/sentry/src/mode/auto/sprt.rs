//! Did throughput follow? A sequential test on counts (Wald 1945).
//!
//! Two hypotheses about the rate of completions after a change of the window: it is what it was
//! (`r`), or it is `g r`. Each tick adds to the log likelihood ratio of Poisson counts,
//!
//! ```text
//! L += (c ln g - r t (g - 1)) / D
//! ```
//!
//! for `c` completions in time `t`, flattened by the index of dispersion `D`. The test decides as
//! soon as the evidence suffices: a doubling is settled after some 20 completions, a quarter more
//! or less after some 150.

use super::tuning::Tuning;
use crate::counts::Counts;

/// What the counts say so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Finding {
    /// The rate is what it was.
    Same,
    /// The rate changed by the factor.
    Changed,
    /// Too early to say.
    Open,
}

/// Did throughput follow? A sequential test on counts (Wald 1945).
#[derive(Debug, Clone)]
pub(crate) struct RateTest {
    rate: f64,
    factor: f64,
    dispersion: f64,
    evidence: f64,
    counts: Counts,
}

impl RateTest {
    /// Tests for a change of `rate` by `factor`, which is not 1.
    pub(crate) fn new(rate: f64, factor: f64, dispersion: f64) -> Self {
        Self {
            rate,
            factor,
            dispersion,
            evidence: 0.0,
            counts: Counts::default(),
        }
    }

    /// Takes what was done with the window full.
    pub(crate) fn on_tick(&mut self, full: &Counts) -> Finding {
        let expected = self.rate * full.seconds;
        let gain = full.done * self.factor.ln() - expected * (self.factor - 1.0);
        self.evidence += gain / self.dispersion;
        self.counts = self.counts.plus(full);
        if self.evidence >= Tuning::TRIAL_LOG_ODDS.get() {
            Finding::Changed
        } else if self.evidence <= -Tuning::TRIAL_LOG_ODDS.get() {
            Finding::Same
        } else {
            Finding::Open
        }
    }

    /// The rate before the change.
    pub(crate) fn rate(&self) -> f64 {
        self.rate
    }

    /// What was done since.
    pub(crate) fn counts(&self) -> &Counts {
        &self.counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Completions until the test decides on an exact rate, and what it decides.
    fn decide(true_rate: f64, factor: f64) -> (f64, Finding) {
        let mut test = RateTest::new(100.0, factor, 1.0);
        for tick in 1..=10_000 {
            let finding = test.on_tick(&Counts::of(true_rate * 0.01, 0.01));
            if finding != Finding::Open {
                return (f64::from(tick) * 0.01 * true_rate, finding);
            }
        }
        panic!("no decision");
    }

    #[test]
    fn doubling_is_settled_quickly() {
        let (needed, finding) = decide(200.0, 2.0);
        assert_eq!(finding, Finding::Changed);
        assert!(needed < 30.0, "{needed}");
        let (needed, finding) = decide(100.0, 2.0);
        assert_eq!(finding, Finding::Same);
        assert!(needed < 20.0, "{needed}");
    }

    #[test]
    fn quarter_less_takes_some_more() {
        assert_eq!(decide(75.0, 0.75).1, Finding::Changed);
        let (needed, finding) = decide(100.0, 0.75);
        assert_eq!(finding, Finding::Same);
        assert!((100.0..160.0).contains(&needed), "{needed}");
        // Better than before is no loss either.
        assert_eq!(decide(130.0, 0.75).1, Finding::Same);
    }
}

//! What a paper has, what we have, and whether the two agree.
//!
//! A check takes one [`Reading`] of a run (or the ratio of the same reading of two runs) in every
//! repetition; ours is the mean over the repetitions, with its 95 % confidence interval. The
//! verdict is one of four words:
//!
//! - **agrees**: ours, with all of its interval, is within the tolerance of the paper's number, or
//!   within the bounds that the paper's words allow;
//! - **differs**: the mean is not, or it could not be measured at all. The file says why in
//!   `because`. Where the interval reaches what is allowed, chance may have done it;
//! - **open**: the mean is allowed and part of its interval is not: more repetitions would tell;
//! - **ours**: the paper has nothing to compare with, and ours keeps the bounds we claim.
//!
//! One repetition has no interval; then the mean alone decides.

use serde::{Deserialize, Serialize};
use toml::Spanned;

use super::reading::Reading;
use super::record::Record;
use crate::stats::Estimate;

/// A comparison, as the file has it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// What is compared, in words, with its unit.
    pub metric: Spanned<String>,
    /// The run it is read from.
    pub run: Spanned<String>,
    /// What is read.
    pub of: Reading,
    /// Take the ratio to the same reading of this run.
    pub relative_to: Option<Spanned<String>>,
    /// What the paper has; without it the verdict is "ours".
    pub paper: Option<PaperValue>,
    /// How far ours may be from the paper's number.
    pub tolerance: Option<f64>,
    /// The least that is acceptable, where the paper's words (or our claim) set a bound.
    pub at_least: Option<f64>,
    /// The most that is acceptable.
    pub at_most: Option<f64>,
    /// Why ours is not the paper's number, for the report.
    pub because: Option<String>,
}

/// A number, or what the paper says in words ("never settles").
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(untagged)]
pub enum PaperValue {
    /// A number in the unit of the metric.
    Number(f64),
    /// Words.
    Words(String),
}

/// How a comparison came out; see the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Within the tolerance, or the bounds.
    Agrees,
    /// Outside, or not measurable.
    Differs,
    /// Allowed on average; the interval reaches beyond.
    Open,
    /// Our own claim, kept.
    Ours,
}

impl Verdict {
    /// The word in tables.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Agrees => "agrees",
            Self::Differs => "differs",
            Self::Open => "open",
            Self::Ours => "ours",
        }
    }
}

/// Half of the interval; none where there is only one repetition.
fn half_width(ours: &Estimate) -> f64 {
    match ours.samples {
        0 | 1 => 0.0,
        _ => ours.half_width,
    }
}

/// The mean over repetitions with its 95 % confidence interval.
pub(super) fn estimate(samples: &[f64]) -> Estimate {
    Estimate::from_samples(samples, 0.95)
}

/// One line of the table "paper / ours / verdict".
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// What was compared.
    pub metric: String,
    /// What the paper has.
    pub paper_value: Option<PaperValue>,
    /// Ours, with its confidence interval.
    pub ours: Estimate,
    /// How it came out.
    pub verdict: Verdict,
    /// None of the interval is allowed, so that it differs by more than chance.
    pub surely_differs: bool,
    /// What was allowed, in words.
    pub allowed: String,
    /// Why ours is not the paper's number.
    pub because: Option<String>,
}

impl Check {
    /// The runs it reads.
    pub(super) fn runs(&self) -> impl Iterator<Item = &str> {
        let all = std::iter::once(&self.run).chain(&self.relative_to);
        all.map(|name| name.get_ref().as_str())
    }

    /// Why this comparison can never say anything, if so.
    pub(super) fn flaw(&self) -> Option<&'static str> {
        let numeric = matches!(self.paper, Some(PaperValue::Number(_)));
        let bounded = self.at_least.is_some() || self.at_most.is_some();
        match self.tolerance {
            Some(_) if !numeric => Some("`tolerance` needs a number in `paper`"),
            Some(tolerance) if tolerance.is_nan() || tolerance < 0.0 => {
                Some("`tolerance` must not be negative")
            }
            None if !bounded => Some("give `tolerance`, `at_least` or `at_most`"),
            _ => None,
        }
    }

    /// Compares; `records` holds one entry per repetition.
    pub(super) fn finding(&self, run: &[Record], relative_to: Option<&[Record]>) -> Finding {
        let samples: Vec<f64> = (0..run.len())
            .map(|repetition| {
                let reading = self.of.of(&run[repetition]);
                match relative_to {
                    Some(base) => reading / self.of.of(&base[repetition]),
                    None => reading,
                }
            })
            .collect();
        let ours = estimate(&samples);
        Finding {
            metric: self.metric.get_ref().clone(),
            paper_value: self.paper.clone(),
            verdict: self.verdict(&ours),
            surely_differs: self.surely_differs(&ours),
            ours,
            allowed: self.allowed(),
            because: self.because.clone(),
        }
    }

    fn verdict(&self, ours: &Estimate) -> Verdict {
        let half = half_width(ours);
        let (least, most) = self.bounds();
        // Written so that NaN, "could not be measured", differs.
        let allowed = |value: f64| least <= value && value <= most;
        let whole = allowed(ours.mean - half) && allowed(ours.mean + half);
        match (allowed(ours.mean), whole, &self.paper) {
            (false, ..) => Verdict::Differs,
            (true, false, _) => Verdict::Open,
            (true, true, None) => Verdict::Ours,
            (true, true, Some(_)) => Verdict::Agrees,
        }
    }

    fn surely_differs(&self, ours: &Estimate) -> bool {
        let half = half_width(ours);
        let (least, most) = self.bounds();
        // NaN, in the mean or in the interval, differs for certain.
        !(ours.mean + half >= least && ours.mean - half <= most)
    }

    /// The least and the most that is allowed.
    fn bounds(&self) -> (f64, f64) {
        let least = self.at_least.unwrap_or(f64::NEG_INFINITY);
        let most = self.at_most.unwrap_or(f64::INFINITY);
        match (&self.paper, self.tolerance) {
            (Some(PaperValue::Number(paper)), Some(tolerance)) => {
                (least.max(paper - tolerance), most.min(paper + tolerance))
            }
            _ => (least, most),
        }
    }

    fn allowed(&self) -> String {
        let tolerance = self.tolerance.map(|tolerance| format!("± {tolerance}"));
        let at_least = self.at_least.map(|bound| format!("≥ {bound}"));
        let at_most = self.at_most.map(|bound| format!("≤ {bound}"));
        let parts: Vec<String> = [tolerance, at_least, at_most]
            .into_iter()
            .flatten()
            .collect();
        parts.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(rest: &str) -> Check {
        let text = format!("metric = 'm'\nrun = 'a'\nof = {{ value = 'v' }}\n{rest}");
        toml::from_str(&text).unwrap()
    }

    fn verdict(rest: &str, ours: f64) -> Verdict {
        check(rest).verdict(&estimate(&[ours]))
    }

    #[test]
    fn limit_that_is_never_reached_is_as_good_over_repetitions() {
        let never = [f64::INFINITY; 20];
        let found = check("at_least = 40").verdict(&estimate(&never));
        assert_eq!(found, verdict("at_least = 40", f64::INFINITY));
        let found = check("at_most = 40").verdict(&estimate(&never));
        assert_eq!(found, Verdict::Differs);
    }

    #[test]
    fn interval_that_reaches_beyond_what_is_allowed_is_open() {
        let check = check("paper = 1\ntolerance = 0.1");
        let of = |samples: &[f64]| {
            let ours = estimate(samples);
            (check.verdict(&ours), check.surely_differs(&ours))
        };
        assert_eq!(of(&[1.0, 1.01, 0.99]), (Verdict::Agrees, false));
        assert_eq!(of(&[1.0, 1.2, 0.9]), (Verdict::Open, false));
        assert_eq!(of(&[1.1, 1.4, 0.9]), (Verdict::Differs, false));
        assert_eq!(of(&[1.5, 1.51, 1.49]), (Verdict::Differs, true));
        assert_eq!(of(&[1.0, f64::NAN, 1.0]), (Verdict::Differs, true));
    }

    #[test]
    fn a_number_agrees_within_its_tolerance() {
        assert_eq!(
            verdict("paper = 0.8\ntolerance = 0.02", 0.815),
            Verdict::Agrees
        );
        assert_eq!(
            verdict("paper = 0.8\ntolerance = 0.02", 0.83),
            Verdict::Differs
        );
        assert_eq!(
            verdict("paper = 0.8\ntolerance = 0.02", f64::NAN),
            Verdict::Differs
        );
    }

    #[test]
    fn words_agree_within_their_bounds() {
        let words = "paper = 'never settles'\nat_least = 0.1";
        assert_eq!(verdict(words, 0.2), Verdict::Agrees);
        assert_eq!(verdict(words, 0.05), Verdict::Differs);
        assert_eq!(verdict(words, f64::NAN), Verdict::Differs);
    }

    #[test]
    fn a_claim_of_our_own_is_ours_only_while_it_holds() {
        assert_eq!(verdict("at_most = 0.5", 0.4), Verdict::Ours);
        assert_eq!(verdict("at_most = 0.5", 0.6), Verdict::Differs);
    }

    #[test]
    fn a_comparison_that_cannot_fail_is_refused() {
        assert!(check("paper = 0.8").flaw().is_some());
        assert!(check("paper = 'words'\ntolerance = 1").flaw().is_some());
        assert!(check("paper = 1\ntolerance = -1").flaw().is_some());
        assert!(check("paper = 1\ntolerance = 0").flaw().is_none());
        assert!(check("at_most = 1").flaw().is_none());
    }

    #[test]
    fn a_ratio_is_taken_within_each_repetition() {
        let records = |values: [f64; 2]| values.map(|v| Record::default().with_value("v", v));
        let finding =
            check("at_least = 1").finding(&records([4.0, 6.3]), Some(&records([2.0, 3.0])));
        assert!((finding.ours.mean - 2.05).abs() < 1e-9, "{finding:?}");
        assert_eq!(finding.verdict, Verdict::Ours);
        assert_eq!(finding.allowed, "≥ 1");
    }
}

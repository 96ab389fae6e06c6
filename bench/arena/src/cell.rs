//! One contender in one scenario: all repetitions, and what the simulator expected.

use crate::comparison::Comparison;
use crate::figure::Figure;
use crate::measure::Measures;
use crate::simulated::Simulated;
use crate::summary::Summary;

/// A 99th percentile beyond this many targets is late.
const LATE: f64 = 1.2;

/// What the report has to say about one bout.
#[derive(Debug)]
pub(crate) struct Cell {
    pub(crate) measures: Vec<Measures>,
    pub(crate) simulated: Option<Simulated>,
}

impl Cell {
    /// Half of the repetitions or more were not disturbed.
    pub(crate) fn is_trustworthy(&self) -> bool {
        let good = self.measures.iter().filter(|one| one.is_trustworthy());
        2 * good.count() >= self.measures.len()
    }

    /// A figure over the repetitions that were not disturbed; of a cell that cannot be trusted
    /// there is none, except for those that say so.
    pub(crate) fn summary(&self, figure: &Figure) -> Summary {
        let value = |measures: &Measures| (figure.value)(measures);
        if figure.even_if_noisy {
            return Summary::of(self.measures.iter().map(value));
        }
        self.undisturbed(value)
    }

    fn undisturbed(&self, value: impl Fn(&Measures) -> f64) -> Summary {
        let trusted = self.is_trustworthy();
        let good = self.measures.iter();
        let good = good.filter(|one| trusted && one.is_trustworthy());
        Summary::of(good.map(value))
    }

    /// What a table of `figure` shows; nothing where there is nothing to measure.
    pub(crate) fn figure(&self, figure: &Figure) -> String {
        if !figure.even_if_noisy && !self.is_trustworthy() {
            return "too noisy".to_owned();
        }
        let summary = self.summary(figure);
        if summary.median.is_finite() {
            self.with_spread(figure, &summary, "")
        } else {
            String::new()
        }
    }

    /// The median, `mark`, and half of the range where there is more than one repetition.
    fn with_spread(&self, figure: &Figure, summary: &Summary, mark: &str) -> String {
        let decimals = figure.decimals;
        let median = figure.scale * summary.median;
        let spread = figure.scale * 0.5 * summary.spread();
        match self.measures.len() {
            ..=1 => format!("{median:.decimals$}{mark}"),
            _ => format!("{median:.decimals$}{mark} ±{spread:.decimals$}"),
        }
    }

    /// The goodput, with a star for a late 99th percentile.
    pub(crate) fn goodput(&self, goodput: &Figure) -> String {
        if self.measures.is_empty() {
            return "left out".to_owned();
        }
        if !self.is_trustworthy() {
            return "too noisy".to_owned();
        }
        let late = self.undisturbed(|one| one.p99).median > LATE;
        let mark = if late { "*" } else { "" };
        self.with_spread(goodput, &self.summary(goodput), mark)
    }

    /// The simulator beside the live run, where both are there and the machine had time for it.
    pub(crate) fn comparison(&self) -> Option<Comparison> {
        let simulated = self.simulated.as_ref();
        let simulated = simulated.filter(|_| !self.measures.is_empty() && self.is_trustworthy());
        let live = |value: fn(&Measures) -> f64| self.undisturbed(value).median;
        Some(Comparison::of(simulated?, live))
    }

    /// How far the simulator was from the live run.
    pub(crate) fn apart(&self) -> String {
        self.comparison()
            .map_or_else(String::new, |comparison| comparison.shown())
    }

    /// What the simulator expects.
    pub(crate) fn expected(&self) -> String {
        let simulated = self.simulated.as_ref();
        simulated.map_or_else(String::new, Simulated::shown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::FIGURES;

    fn measures(goodput: f64, lag_ms: f64) -> Measures {
        Measures {
            goodput,
            lag_ms,
            ..Measures::NOTHING
        }
    }

    fn cell(measures: Vec<Measures>) -> Cell {
        Cell {
            measures,
            simulated: None,
        }
    }

    #[test]
    fn a_disturbed_repetition_is_left_out_and_half_of_them_are_enough() {
        let one_bad = cell(vec![
            measures(0.9, 1.0),
            measures(0.1, 900.0),
            measures(0.8, 1.0),
        ]);
        assert_eq!(one_bad.goodput(&FIGURES[0]), "85.0 ±5.0");
        let bad = cell(vec![measures(0.9, 900.0)]);
        assert_eq!(bad.goodput(&FIGURES[0]), "too noisy");
        assert_eq!(bad.figure(&FIGURES[1]), "too noisy");
        assert!(bad.summary(&FIGURES[0]).median.is_nan());
        let lag = FIGURES.iter().find(|figure| figure.even_if_noisy).unwrap();
        assert_eq!(bad.figure(lag), "900.0");
    }

    #[test]
    fn a_late_tail_is_marked_and_nothing_is_nothing() {
        let late = Measures {
            p99: 1.5,
            ..measures(0.95, 1.0)
        };
        assert_eq!(cell(vec![late]).goodput(&FIGURES[0]), "95.0*");
        assert_eq!(cell(vec![]).goodput(&FIGURES[0]), "left out");
        assert_eq!(cell(vec![measures(0.9, 1.0)]).figure(&FIGURES[1]), "");
    }
}

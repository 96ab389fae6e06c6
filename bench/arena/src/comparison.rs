//! The simulator beside a live run of the same scenario with the same configuration.
//!
//! Two runs of one scenario differ by chance, live as in the simulator, and in some scenarios by
//! much: a 95th percentile that lies between two ways of behaving jumps from one to the other. So a
//! figure is judged twice: is it within [`CLOSE`] of the live one, and if not, is the live one
//! among those that other seeds give in the simulator?

use crate::measure::Measures;
use crate::simulated::Simulated;
use crate::summary::Summary;

/// Apart by no more than this, two figures count as the same.
const CLOSE: f64 = 0.1;

pub(crate) const TITLE: &str = "Simulated against live: goodput, p95 and answers per second apart, percent; ~ beyond 10, \
     but the live figure lies within those of the simulator's ten seeds; ! beyond those too";

/// One figure, simulated and live.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Pair {
    name: &'static str,
    simulated: Summary,
    live: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Close,
    WithinChance,
    Beyond,
}

impl Pair {
    fn apart(&self) -> f64 {
        self.simulated.median / self.live - 1.0
    }

    fn verdict(&self) -> Verdict {
        // Nothing in both is the same; percent of nothing is no figure.
        if self.apart().abs() <= CLOSE || !self.apart().is_finite() {
            Verdict::Close
        } else if self.simulated.covers(self.live) {
            Verdict::WithinChance
        } else {
            Verdict::Beyond
        }
    }

    fn shown(&self) -> String {
        let mark = match self.verdict() {
            Verdict::Close => "",
            Verdict::WithinChance => "~",
            Verdict::Beyond => "!",
        };
        match self.apart() {
            apart if apart.is_finite() => format!("{:+.0}{mark}", 100.0 * apart),
            _ => "-".to_owned(),
        }
    }
}

/// One contender in one scenario.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Comparison([Pair; 3]);

impl Comparison {
    /// `live` gives a figure of the live run.
    pub(crate) fn of(simulated: &Simulated, live: impl Fn(fn(&Measures) -> f64) -> f64) -> Self {
        let pair = |name, simulated, live| Pair {
            name,
            simulated,
            live,
        };
        Self([
            pair("goodput", simulated.goodput, live(|m| m.goodput)),
            pair("p95", simulated.p95, live(|m| m.p95)),
            pair("answers", simulated.answered, live(|m| m.answered)),
        ])
    }

    pub(crate) fn shown(&self) -> String {
        self.0.map(|pair| pair.shown()).join(" / ")
    }
}

/// In a sentence, how often they agree, and where they do not.
pub(crate) fn agreement(cells: impl Iterator<Item = (String, Comparison)>) -> String {
    let pairs: Vec<(String, Pair)> = cells
        .flat_map(|(name, Comparison(pairs))| pairs.map(|pair| (name.clone(), pair)))
        .collect();
    if pairs.is_empty() {
        return "Simulated against live: nothing to compare.".to_owned();
    }
    let count = |verdict| {
        let judged = pairs.iter().filter(|(_, pair)| pair.verdict() == verdict);
        judged.count()
    };
    let beyond: Vec<String> = pairs
        .iter()
        .filter(|(_, pair)| pair.verdict() == Verdict::Beyond)
        .map(|(name, pair)| format!("{name} ({})", pair.name))
        .collect();
    let list = match beyond.as_slice() {
        [] => String::new(),
        beyond => format!(": {}", beyond.join(", ")),
    };
    format!(
        "Simulated against live: of {} figures {} are within 10 %, {} more within the spread of the \
         simulator's seeds, {} beyond{list}.",
        pairs.len(),
        count(Verdict::Close),
        count(Verdict::WithinChance),
        beyond.len(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(seeds: &[f64], live: f64) -> Pair {
        Pair {
            name: "p95",
            simulated: Summary::of(seeds.iter().copied()),
            live,
        }
    }

    #[test]
    fn chance_is_told_from_a_difference() {
        let seeds = [0.5, 0.6, 0.9];
        assert_eq!(pair(&seeds, 0.65).verdict(), Verdict::Close);
        assert_eq!(pair(&seeds, 0.85).verdict(), Verdict::WithinChance);
        assert_eq!(pair(&seeds, 1.0).verdict(), Verdict::Beyond);
        assert_eq!(pair(&[0.0], 0.0).verdict(), Verdict::Close);
    }

    #[test]
    fn the_sentence_names_what_is_beyond() {
        let one = Comparison([pair(&[1.0], 1.0), pair(&[1.0], 2.0), pair(&[1.0, 3.0], 1.5)]);
        let text = agreement([("flood auto".to_owned(), one)].into_iter());
        assert!(
            text.contains("of 3 figures 1 are within 10 %, 1 more"),
            "{text}"
        );
        assert!(text.ends_with("1 beyond: flood auto (p95)."), "{text}");
    }
}

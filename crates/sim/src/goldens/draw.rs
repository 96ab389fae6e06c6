//! What changed in a text, and a picture of it before and after.

use std::collections::{BTreeMap, BTreeSet};

use crate::chart::{Chart, ChartError, Point, svg_grid};
use crate::report::Section;

/// Two texts of one run that differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference<'a> {
    /// The line of the seed: `seed 1`.
    pub seed: &'a str,
    /// Lines of the run that are the same.
    pub same: usize,
    /// The first line that is not; empty where the text has ended.
    pub before: &'a str,
    /// The same afterwards.
    pub after: &'a str,
    runs: [&'a str; 2],
}

/// The runs of two texts that differ, one for each seed.
#[must_use]
pub fn differences<'a>(before: &'a str, after: &'a str) -> Vec<Difference<'a>> {
    let (old, new) = (runs(before), runs(after));
    let seeds: BTreeSet<&str> = old.keys().chain(new.keys()).copied().collect();
    let run = |runs: &BTreeMap<&'a str, &'a str>, seed| runs.get(seed).copied().unwrap_or("");
    seeds
        .into_iter()
        .filter_map(|seed| Difference::of(seed, run(&old, seed), run(&new, seed)))
        .collect()
}

/// By the line of the seed: the lines after it.
fn runs(text: &str) -> BTreeMap<&str, &str> {
    let starts: Vec<usize> = text.match_indices("seed ").map(|(at, _)| at).collect();
    let ends = starts.iter().skip(1).copied().chain([text.len()]);
    let run = |(start, end): (&usize, usize)| text[*start..end].split_once('\n');
    starts.iter().zip(ends).filter_map(run).collect()
}

impl<'a> Difference<'a> {
    fn of(seed: &'a str, before: &'a str, after: &'a str) -> Option<Self> {
        if before == after {
            return None;
        }
        let pairs = before.lines().zip(after.lines());
        let same = pairs.take_while(|(old, new)| old == new).count();
        let line = |text: &'a str| text.lines().nth(same).unwrap_or("");
        Some(Self {
            seed,
            same,
            before: line(before),
            after: line(after),
            runs: [before, after],
        })
    }

    /// A section with both as figures.
    ///
    /// # Errors
    /// A figure that cannot be drawn.
    pub fn section(&self, case: &str) -> Result<Section, ChartError> {
        let figures = ["before", "after"]
            .iter()
            .zip(self.runs)
            .map(|(when, run)| chart(when, run))
            .collect::<Vec<Chart>>();
        Ok(Section {
            title: format!("{case}, {}", self.seed),
            facts: format!("{} lines are the same", self.same),
            code: Some(format!("- {}\n+ {}", self.before, self.after)),
            figures: vec![svg_grid(&figures, 2)?],
            ..Section::default()
        })
    }
}

/// Windows over time, overloads as guides.
fn chart(title: &str, run: &str) -> Chart {
    let mut windows: BTreeMap<&str, Vec<Point>> = BTreeMap::new();
    let mut chart = Chart::new(title).x("time (s)").y("window");
    for (at, words) in run.lines().filter_map(line) {
        match words.as_slice() {
            ["overload", ..] => chart = chart.rule_x("overload", at),
            ["calm"] => chart = chart.rule_x("calm", at),
            [replica, change, ..] if replica.starts_with('w') => {
                let points = windows.entry(replica).or_default();
                add(points, at, change);
            }
            _ => {}
        }
    }
    windows.into_iter().fold(chart, |chart, (replica, points)| {
        chart.steps(format!("replica {}", &replica[1..]), points)
    })
}

/// Time and words of a line that has a time.
fn line(line: &str) -> Option<(f64, Vec<&str>)> {
    let (at, words) = line.split_once(' ')?;
    Some((at.parse().ok()?, words.split(' ').collect()))
}

/// Adds a change of a window, `16>32`; before the first it was as large from the beginning.
fn add(points: &mut Vec<Point>, at: f64, change: &str) {
    let Some((from, to)) = change.split_once('>') else {
        return;
    };
    if let (true, Ok(from)) = (points.is_empty(), from.parse()) {
        points.push((0.0, from));
    }
    points.extend(to.parse().map(|to| (at, to)));
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "seed 1\n0.4 w0 16>19 grow\nend 1 in target, 0 shed\nseed 2\n\
                          0.5 w0 16>20 grow\n0.9 w0 20>16 back\n";

    #[test]
    fn first_different_line_of_each_seed_is_found() {
        assert_eq!(differences(BEFORE, BEFORE), []);
        let after = BEFORE.replace("20>16", "20>17");
        let found = differences(BEFORE, &after);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].seed, found[0].same), ("seed 2", 1));
        assert_eq!(found[0].before, "0.9 w0 20>16 back");
        assert_eq!(found[0].after, "0.9 w0 20>17 back");
    }

    #[test]
    fn missing_text_differs_for_every_seed() {
        assert_eq!(differences("", BEFORE).len(), 2);
    }

    #[test]
    fn section_shows_both_windows() {
        let after = BEFORE.replace("16>19", "16>24");
        let found = differences(BEFORE, &after);
        let section = found[0].section("half").expect("it can be drawn");
        let code = section.code.expect("the lines are shown");
        assert_eq!(code, "- 0.4 w0 16>19 grow\n+ 0.4 w0 16>24 grow");
        let figure = &section.figures[0];
        assert!(
            figure.contains("before") && figure.contains("after"),
            "{figure}"
        );
    }
}

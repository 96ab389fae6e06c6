//! The table of what each change is worth.

use std::fmt::Write as _;

use serde_json::json;

use super::rules::Change;
use super::{Case, Run};

/// Chance deviations of an interval that 95 of 100 are within.
const Z: f64 = 1.96;

/// A mean difference, and how far chance reaches.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// Mean of the differences.
    pub mean: f64,
    /// Half of its interval.
    pub half_width: f64,
}

impl Estimate {
    /// Whether it is beyond chance.
    #[must_use]
    pub fn is_significant(&self) -> bool {
        self.mean.abs() > self.half_width
    }

    /// The mean over all cases of differences that are given case by case, with the chance that
    /// seeds have; cases without a number are left out.
    fn of(cases: &[Vec<f64>]) -> Self {
        let known: Vec<&Vec<f64>> = cases
            .iter()
            .filter(|seeds| seeds.iter().all(|d| d.is_finite()) && !seeds.is_empty())
            .collect();
        let count = known.len() as f64;
        if known.is_empty() {
            return Self {
                mean: 0.0,
                half_width: 0.0,
            };
        }
        let sum: f64 = known.iter().map(|seeds| mean(seeds)).sum();
        let of_means: f64 = known
            .iter()
            .map(|seeds| variance(seeds) / seeds.len() as f64)
            .sum();
        Self {
            mean: sum / count,
            half_width: Z * of_means.sqrt() / count,
        }
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn variance(values: &[f64]) -> f64 {
    let mean = mean(values);
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    squares / (values.len() as f64 - 1.0).max(1.0)
}

/// What one change does.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// The rule that is off, or the number with its factor.
    pub name: String,
    /// The decision behind a rule.
    pub decision: &'static str,
    /// Change of the goodput, in points of the ideal.
    pub goodput: Estimate,
    /// Change of the worst run's goodput, in points.
    pub worst_run: f64,
    /// The case that loses most, and how many points it loses; less than nothing is a loss.
    pub worst_case: (String, f64),
    /// Change of the 99th percentile, in targets.
    pub p99: Estimate,
    /// Change of what is refused while there is room, in points.
    pub shed_with_room: Estimate,
}

impl Row {
    /// What it says: `needed` where the change does harm beyond chance, `harmful` where it does
    /// good and no harm, `noise` where neither is beyond chance, `nothing` where no run differs.
    #[must_use]
    pub fn verdict(&self) -> &'static str {
        let parts = [
            (self.goodput, -1.0),
            (self.p99, 1.0),
            (self.shed_with_room, 1.0),
        ];
        let beyond = |sign: f64| {
            let mut parts = parts.iter();
            parts.any(|(estimate, harm)| {
                estimate.is_significant() && sign * harm * estimate.mean > 0.0
            })
        };
        let untouched = parts
            .iter()
            .all(|(estimate, _)| estimate.mean == 0.0 && estimate.half_width == 0.0);
        match (untouched, beyond(1.0), beyond(-1.0)) {
            (true, ..) => "nothing",
            (_, true, true) => "both",
            (_, true, false) => "needed",
            (_, false, true) => "harmful",
            _ => "noise",
        }
    }

    /// One line of JSON.
    #[must_use]
    pub fn json(&self) -> String {
        let estimate = |e: &Estimate| json!({ "mean": e.mean, "half_width": e.half_width });
        let line = json!({
            "change": self.name,
            "decision": self.decision,
            "goodput_points": estimate(&self.goodput),
            "worst_run_points": self.worst_run,
            "worst_case": self.worst_case.0,
            "worst_case_points": self.worst_case.1,
            "p99_targets": estimate(&self.p99),
            "shed_with_room_points": estimate(&self.shed_with_room),
            "verdict": self.verdict(),
        });
        format!("{line}\n")
    }

    fn cells(&self) -> [String; 8] {
        let shown = |e: &Estimate, digits: usize| {
            format!("{:+.digits$} ± {:.digits$}", e.mean, e.half_width)
        };
        [
            self.name.clone(),
            self.decision.to_owned(),
            shown(&self.goodput, 2),
            format!("{:+.1}", self.worst_run),
            format!("{:+.1} {}", self.worst_case.1, self.worst_case.0),
            shown(&self.p99, 3),
            shown(&self.shed_with_room, 2),
            self.verdict().to_owned(),
        ]
    }
}

const HEAD: [&str; 8] = [
    "change",
    "decision",
    "goodput, points",
    "worst run",
    "worst case",
    "p99, targets",
    "shed with room",
    "verdict",
];

/// What all changes do.
#[derive(Debug, Clone)]
pub struct AblationReport {
    cases: Vec<String>,
    seeds: Vec<u64>,
    base: Run,
    worst_base: f64,
    rows: Vec<Row>,
    /// Changes for which there was no time.
    pub left_out: Vec<String>,
}

impl AblationReport {
    pub(super) fn new(cases: &[Case], seeds: &[u64], base: &[Run]) -> Self {
        let of = |part: fn(&Run) -> f64| {
            let known: Vec<f64> = base.iter().map(part).filter(|v| v.is_finite()).collect();
            mean(&known)
        };
        Self {
            cases: cases.iter().map(|case| case.name.clone()).collect(),
            seeds: seeds.to_vec(),
            base: Run {
                goodput: of(|run| run.goodput),
                p99: of(|run| run.p99),
                shed_with_room: of(|run| run.shed_with_room),
            },
            worst_base: worst(base),
            rows: Vec::new(),
            left_out: Vec::new(),
        }
    }

    /// The rows so far.
    #[must_use]
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    pub(super) fn add(&mut self, change: &Change, base: &[Run], runs: &[Run]) -> &Row {
        let seeds = self.seeds.len();
        let differences = |part: fn(&Run) -> f64, unit: f64| -> Vec<Vec<f64>> {
            let each: Vec<f64> = runs
                .iter()
                .zip(base)
                .map(|(run, base)| unit * (part(run) - part(base)))
                .collect();
            each.chunks(seeds).map(<[f64]>::to_vec).collect()
        };
        let goodput = differences(|run| run.goodput, 100.0);
        let worst_case = self
            .cases
            .iter()
            .zip(&goodput)
            .map(|(name, seeds)| (name.clone(), mean(seeds)))
            .min_by(|(_, a), (_, b)| a.total_cmp(b))
            .unwrap_or_default();
        self.rows.push(Row {
            name: change.name(),
            decision: change.decision,
            goodput: Estimate::of(&goodput),
            worst_run: 100.0 * (worst(runs) - self.worst_base),
            worst_case,
            p99: Estimate::of(&differences(|run| run.p99, 1.0)),
            shed_with_room: Estimate::of(&differences(|run| run.shed_with_room, 100.0)),
        });
        &self.rows[self.rows.len() - 1]
    }

    /// What is compared with, in two lines.
    #[must_use]
    pub fn base(&self) -> String {
        format!(
            "{} cases, seeds {:?}: goodput {:.2} % of the ideal, worst run {:.1} %, p99 {:.3} \
             targets, {:.3} % shed while there was room.\n± is what chance reaches in 95 of 100, \
             over the seeds of each case.\n",
            self.cases.len(),
            self.seeds,
            100.0 * self.base.goodput,
            100.0 * self.worst_base,
            self.base.p99,
            100.0 * self.base.shed_with_room,
        )
    }

    /// For a terminal: what does most harm when it is changed comes first.
    #[must_use]
    pub fn table(&self) -> String {
        let rows: Vec<[String; 8]> = self.sorted().iter().map(|row| row.cells()).collect();
        let width = |column: usize| {
            let cells = rows.iter().map(|row| row[column].chars().count());
            cells.max().unwrap_or(0).max(HEAD[column].len())
        };
        let widths: [usize; 8] = std::array::from_fn(width);
        let mut text = self.base();
        let head = HEAD.map(str::to_owned);
        for row in std::iter::once(&head).chain(&rows) {
            let cells = row.iter().zip(widths);
            let line: String = cells
                .map(|(cell, width)| format!("{cell:width$}  "))
                .collect();
            text += line.trim_end();
            text.push('\n');
        }
        text + &self.unfinished()
    }

    /// As a table of Markdown.
    #[must_use]
    pub fn markdown(&self) -> String {
        let mut text = format!("{}\n| {} |\n", self.base(), HEAD.join(" | "));
        text += &format!("|{}\n", " --- |".repeat(HEAD.len()));
        for row in self.sorted() {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "| {} |", row.cells().join(" | "));
        }
        text + "\n" + &self.unfinished()
    }

    /// As comma-separated values.
    #[must_use]
    pub fn csv(&self) -> String {
        let mut text = "change,decision,goodput_points,goodput_half_width,worst_run_points,\
                        worst_case,worst_case_points,p99_targets,p99_half_width,\
                        shed_with_room_points,shed_with_room_half_width,verdict\n"
            .to_owned();
        for row in &self.rows {
            let Row {
                name,
                decision,
                goodput,
                worst_run,
                worst_case: (case, loss),
                p99,
                shed_with_room: shed,
            } = row;
            let _ = writeln!(
                text,
                "{name},{decision},{:.4},{:.4},{worst_run:.4},{case},{loss:.4},{:.5},{:.5},{:.5},\
                 {:.5},{}",
                goodput.mean,
                goodput.half_width,
                p99.mean,
                p99.half_width,
                shed.mean,
                shed.half_width,
                row.verdict()
            );
        }
        text
    }

    /// One JSON object per change.
    #[must_use]
    pub fn json(&self) -> String {
        self.rows.iter().map(Row::json).collect()
    }

    fn sorted(&self) -> Vec<&Row> {
        let mut rows: Vec<&Row> = self.rows.iter().collect();
        rows.sort_by(|a, b| a.goodput.mean.total_cmp(&b.goodput.mean));
        rows
    }

    fn unfinished(&self) -> String {
        match self.left_out.len() {
            0 => String::new(),
            count => format!("No time was left for {count} changes.\n"),
        }
    }
}

fn worst(runs: &[Run]) -> f64 {
    runs.iter()
        .map(|run| run.goodput)
        .fold(f64::INFINITY, f64::min)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interval_is_that_of_the_seeds_and_not_of_the_cases() {
        // Two cases that differ much, each of them always by as much.
        let same = Estimate::of(&[vec![-8.0, -8.0], vec![2.0, 2.0]]);
        assert_eq!((same.mean, same.half_width), (-3.0, 0.0));
        assert!(same.is_significant());
        let chance = Estimate::of(&[vec![-3.0, 3.0], vec![2.0, -2.0]]);
        assert!(!chance.is_significant(), "{chance:?}");
        let unknown = Estimate::of(&[vec![f64::NAN, 1.0], vec![2.0, 2.0]]);
        assert_eq!(unknown.mean, 2.0);
    }

    #[test]
    fn verdict_goes_by_what_is_beyond_chance() {
        let estimate = |mean, half_width| Estimate { mean, half_width };
        let row = |goodput, p99| Row {
            name: "x".into(),
            decision: "",
            goodput,
            worst_run: 0.0,
            worst_case: (String::new(), 0.0),
            p99,
            shed_with_room: estimate(0.0, 0.0),
        };
        let zero = estimate(0.0, 0.0);
        assert_eq!(row(estimate(-0.5, 0.2), zero).verdict(), "needed");
        assert_eq!(row(estimate(0.5, 0.2), zero).verdict(), "harmful");
        assert_eq!(
            row(estimate(0.5, 0.2), estimate(0.1, 0.01)).verdict(),
            "both"
        );
        assert_eq!(row(estimate(-0.1, 0.2), zero).verdict(), "noise");
        assert_eq!(row(zero, zero).verdict(), "nothing");
    }
}

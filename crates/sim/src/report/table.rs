//! The table for a terminal.

use super::number::{number, with_interval};
use crate::experiment::{Finding, Outcome, PaperValue};

const HEAD: [&str; 5] = ["figure", "metric", "paper", "ours", "verdict"];

pub(super) fn table(outcomes: &[Outcome]) -> String {
    let mut rows = vec![HEAD.map(str::to_owned)];
    for outcome in outcomes {
        rows.extend(outcome.findings.iter().map(|finding| row(outcome, finding)));
    }
    let widths: Vec<usize> = (0..HEAD.len()).map(|column| width(&rows, column)).collect();
    rows.iter().map(|row| line(row, &widths)).collect()
}

fn row(outcome: &Outcome, finding: &Finding) -> [String; 5] {
    [
        outcome.experiment.id(),
        finding.metric.clone(),
        paper(finding.paper_value.as_ref()),
        with_interval(&finding.ours),
        finding.verdict.as_str().to_owned(),
    ]
}

/// What the paper has, for people.
pub(super) fn paper(value: Option<&PaperValue>) -> String {
    match value {
        Some(PaperValue::Number(value)) => number(*value),
        Some(PaperValue::Words(words)) => words.clone(),
        None => "-".to_owned(),
    }
}

fn width(rows: &[[String; 5]], column: usize) -> usize {
    rows.iter()
        .map(|row| row[column].chars().count())
        .max()
        .unwrap_or(0)
}

fn line(row: &[String; 5], widths: &[usize]) -> String {
    let cells = row.iter().zip(widths).map(|(cell, &width)| {
        let missing = width - cell.chars().count();
        format!("{cell}{}", " ".repeat(missing))
    });
    let line = cells.collect::<Vec<_>>().join("  ");
    format!("{}\n", line.trim_end())
}

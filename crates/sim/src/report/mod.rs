//! Reports: the table "paper / ours / verdict", figures, data, and one HTML page that holds it all.
//!
//! A [`Report`] is what was found and where it came from (seed, version, commit). [`Report::table`]
//! is for a terminal, [`Report::json`] for programs, [`Report::write`] for a folder:
//! `report.html` (self-contained), `figures/*.svg` and `data/*.csv`.

mod csv;
mod html;
mod number;
mod table;

pub use html::{Page, Section};
pub use number::{number, with_interval};

use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::Value;

use crate::chart::{self, ChartError};
use crate::experiment::{Finding, Outcome, PaperValue, Verdict};

/// Where a result came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// Version of the program.
    pub version: String,
    /// Commit it was built from, where known.
    pub commit: String,
}

/// What a set of experiments found.
#[derive(Debug)]
pub struct Report {
    /// Title of the page.
    pub title: String,
    /// Where it came from.
    pub origin: Origin,
    /// What was found.
    pub outcomes: Vec<Outcome>,
}

/// A report could not be written.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// A figure could not be drawn.
    #[error(transparent)]
    Chart(#[from] ChartError),
    /// A file could not be written.
    #[error("{}: {source}", path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

impl Report {
    /// Whether no comparison differs.
    #[must_use]
    pub fn agrees(&self) -> bool {
        self.outcomes.iter().all(Outcome::agrees)
    }

    /// How many comparisons came out as `verdict`.
    #[must_use]
    pub fn count(&self, verdict: Verdict) -> usize {
        let findings = self.outcomes.iter().flat_map(|outcome| &outcome.findings);
        findings
            .filter(|finding| finding.verdict == verdict)
            .count()
    }

    /// The table for a terminal.
    #[must_use]
    pub fn table(&self) -> String {
        table::table(&self.outcomes)
    }

    /// One JSON object per comparison, one on each line.
    #[must_use]
    pub fn json(&self) -> String {
        let lines = self.outcomes.iter().flat_map(|outcome| {
            let findings = outcome.findings.iter();
            findings.map(move |finding| Line::new(outcome, finding).json())
        });
        lines.collect()
    }

    /// Writes `report.html`, `figures/` and `data/` into `folder`, which is created if missing.
    /// Everything is drawn before anything is written. Returns the path of the page.
    ///
    /// # Errors
    /// A figure that cannot be drawn, a file that cannot be written.
    pub fn write(&self, folder: &Path) -> Result<PathBuf, ReportError> {
        let mut files: Vec<(PathBuf, String)> = Vec::new();
        let mut sections = Vec::new();
        for outcome in &self.outcomes {
            let stem = stem(outcome);
            let mut figures = Vec::new();
            for (index, panel) in outcome.panels.iter().enumerate() {
                let svg = chart::svg(&panel.chart)?;
                let name = format!("{stem}-{}", index + 1);
                files.push((
                    Path::new("figures").join(format!("{name}.svg")),
                    svg.clone(),
                ));
                files.push((
                    Path::new("data").join(format!("{name}.csv")),
                    csv::csv(panel),
                ));
                figures.push(svg);
            }
            sections.push(html::section(outcome, figures));
        }
        let page = Page {
            title: self.title.clone(),
            origin: self.origin.clone(),
            lead: self.lead(),
            sections,
        };
        let path = folder.join("report.html");
        files.push((PathBuf::from("report.html"), page.html()));
        write_all(folder, &files)?;
        Ok(path)
    }

    fn lead(&self) -> String {
        format!(
            "{} agree with the paper, {} differ, {} are open, {} are claims of our own.",
            self.count(Verdict::Agrees),
            self.count(Verdict::Differs),
            self.count(Verdict::Open),
            self.count(Verdict::Ours),
        )
    }
}

/// Writes `files` (paths relative to `folder`), creating folders as needed.
///
/// # Errors
/// The first file or folder that cannot be written.
pub fn write_all(folder: &Path, files: &[(PathBuf, String)]) -> Result<(), ReportError> {
    for (path, content) in files {
        let path = folder.join(path);
        let parent = path.parent().unwrap_or(folder);
        let written = fs::create_dir_all(parent).and_then(|()| fs::write(&path, content));
        written.map_err(|source| ReportError::File { path, source })?;
    }
    Ok(())
}

/// `002-figure-7`: the beginning of the names of an experiment's files.
fn stem(outcome: &Outcome) -> String {
    let experiment = &outcome.experiment;
    let raw = format!("{} {}", experiment.paper, experiment.subject());
    let words = raw.split(|c: char| !c.is_ascii_alphanumeric());
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    words.join("-")
}

/// A comparison as programs read it.
#[derive(Serialize)]
struct Line<'a> {
    paper: &'a str,
    figure: &'a str,
    metric: &'a str,
    paper_value: Option<&'a PaperValue>,
    ours: Value,
    ci: Value,
    verdict: Verdict,
}

impl<'a> Line<'a> {
    fn new(outcome: &'a Outcome, finding: &'a Finding) -> Self {
        Self {
            paper: &outcome.experiment.paper,
            figure: &outcome.experiment.figure,
            metric: &finding.metric,
            paper_value: finding.paper_value.as_ref(),
            ours: number::json(finding.ours.mean),
            ci: number::json_interval(&finding.ours),
            verdict: finding.verdict,
        }
    }

    fn json(&self) -> String {
        let text = serde_json::to_string(self);
        text.expect("strings and finite numbers are JSON") + "\n"
    }
}

//! The arena's table, for a terminal, for programs and for a browser.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::heat::{self, HeatRow};
use super::{Contender, Entry, Score};
use crate::report::{Origin, Page, ReportError, Section};

/// Scores of all contenders under all scenarios.
#[derive(Debug, Clone)]
pub struct ArenaReport {
    pub(super) contenders: Vec<Contender>,
    seeds: Vec<u64>,
    pub(super) rows: Vec<Row>,
}

#[derive(Debug, Clone)]
pub(super) struct Row {
    pub(super) name: String,
    title: String,
    /// Mean work of a request in seconds, and how many of them the target is.
    pub(super) work_s: f64,
    pub(super) target_times: f64,
    pub(super) scores: Vec<Score>,
}

impl Row {
    fn of(entry: &Entry, scores: &[Score]) -> Self {
        let target = entry
            .scenario
            .target
            .map_or(f64::NAN, |it| it.as_secs_f64());
        let work_s = entry.scenario.service.mean();
        Self {
            name: entry.name.clone(),
            title: entry.title().to_owned(),
            work_s,
            target_times: target / work_s,
            scores: scores.to_vec(),
        }
    }
}

/// One score with whose it is.
#[derive(Debug, Clone, Copy)]
pub struct Cell<'a> {
    /// The scenario's name.
    pub scenario: &'a str,
    /// The contender's name.
    pub contender: &'a str,
    /// What it made of it.
    pub score: Score,
}

impl ArenaReport {
    /// `scores` are in the order of `entries`, and for each in the order of `contenders`.
    pub(super) fn new(
        entries: &[Entry],
        contenders: &[Contender],
        seeds: &[u64],
        scores: &[Score],
    ) -> Self {
        let rows = entries.iter().zip(scores.chunks(contenders.len().max(1)));
        Self {
            contenders: contenders.to_vec(),
            seeds: seeds.to_vec(),
            rows: rows.map(|(entry, scores)| Row::of(entry, scores)).collect(),
        }
    }

    /// All scores.
    pub fn cells(&self) -> impl Iterator<Item = Cell<'_>> {
        self.rows.iter().flat_map(|row| {
            self.contenders
                .iter()
                .zip(&row.scores)
                .map(|(contender, &score)| Cell {
                    scenario: &row.name,
                    contender: contender.name,
                    score,
                })
        })
    }

    /// A line per scenario, a column per contender: percent of the ideal goodput within target; a
    /// star marks a 99th percentile above 1.2 times the target. Below it a few lines of summary.
    #[must_use]
    pub fn table(&self) -> String {
        let width = self
            .rows
            .iter()
            .map(|row| row.name.len())
            .max()
            .unwrap_or(0)
            .max(8);
        let mut text = format!("{:width$}", "scenario");
        for contender in &self.contenders {
            text += &format!("  {:>11}", contender.name);
        }
        for row in self.rows.iter().chain([&self.mean_row()]) {
            text += &format!("\n{:width$}", row.name);
            for score in &row.scores {
                text += &format!("  {:>11}", shown(score));
            }
        }
        text + "\n" + &self.summary()
    }

    /// One JSON object per score, one on each line.
    #[must_use]
    pub fn json(&self) -> String {
        self.cells()
            .map(
                |Cell {
                     scenario,
                     contender,
                     score,
                 }| {
                    let line = json!({
                        "scenario": scenario,
                        "contender": contender,
                        "goodput_of_ideal": score.goodput,
                        "p99_of_target": finite(score.p99),
                        "shed_share": score.shed,
                        "top_class_in_target": finite(score.top_class),
                        "refused": score.refused,
                    });
                    format!("{line}\n")
                },
            )
            .collect()
    }

    /// Writes `arena.html`, `arena.svg` and `arena.csv` into `folder`; returns the page's path.
    ///
    /// # Errors
    /// A figure that cannot be drawn, a file that cannot be written.
    pub fn write(&self, folder: &Path, origin: Origin) -> Result<PathBuf, ReportError> {
        let figure = self.heat_map();
        let page = self.page(origin, figure.clone()).html();
        let file = |path: &Path| {
            let path = path.to_owned();
            move |source| ReportError::File { path, source }
        };
        fs::create_dir_all(folder).map_err(file(folder))?;
        for (name, text) in [
            ("arena.svg", figure),
            ("arena.csv", self.csv()),
            ("arena.html", page),
        ] {
            let path = folder.join(name);
            fs::write(&path, text).map_err(file(&path))?;
        }
        Ok(folder.join("arena.html"))
    }

    fn mean_row(&self) -> Row {
        let scores = (0..self.contenders.len())
            .map(|column| {
                let column: Vec<Score> = self.rows.iter().map(|row| row.scores[column]).collect();
                Score::mean(&column)
            })
            .collect();
        Row {
            name: "mean".into(),
            title: "mean of all".into(),
            work_s: f64::NAN,
            target_times: f64::NAN,
            scores,
        }
    }

    fn csv(&self) -> String {
        let mut text =
            "scenario,contender,goodput_of_ideal,p99_of_target,shed_share,top_class_in_target\n"
                .to_owned();
        for Cell {
            scenario,
            contender,
            score,
        } in self.cells()
        {
            let Score {
                goodput,
                p99,
                shed,
                top_class,
                ..
            } = score;
            let top_class = finite(top_class).map_or(String::new(), |share| format!("{share:.5}"));
            text +=
                &format!("{scenario},{contender},{goodput:.4},{p99:.4},{shed:.4},{top_class}\n");
        }
        text
    }

    /// A cell per scenario and contender, both by name.
    fn heat_map(&self) -> String {
        let columns: Vec<&str> = self.contenders.iter().map(|c| c.name).collect();
        let mean = self.mean_row();
        let row = |row: &Row| -> HeatRow {
            let cells = row.scores.iter().map(|score| (score.goodput, shown(score)));
            (row.name.clone(), cells.collect())
        };
        let rows: Vec<HeatRow> = self.rows.iter().chain([&mean]).map(row).collect();
        heat::svg(&columns, &rows)
    }

    fn page(&self, origin: Origin, figure: String) -> Page {
        let head = ["", "scenario"]
            .into_iter()
            .chain(self.contenders.iter().map(|c| c.name));
        let mut table = vec![head.map(str::to_owned).collect::<Vec<String>>()];
        for (index, row) in self.rows.iter().chain([&self.mean_row()]).enumerate() {
            let number = if index < self.rows.len() {
                (index + 1).to_string()
            } else {
                String::new()
            };
            let mut cells = vec![number, row.title.clone()];
            cells.extend(row.scores.iter().map(shown));
            table.push(cells);
        }
        let tuning = self
            .contenders
            .iter()
            .map(|c| format!("{}: {}.", c.name, c.tuning));
        let summary = self.summary();
        let paragraphs = summary.lines().map(str::to_owned).chain(tuning);
        Page {
            title: "Arena: who protects the service best".into(),
            origin,
            lead: "Percent of the goodput within target that a clairvoyant would have had; a star \
                   marks a 99th percentile above 1.2 times the target."
                .into(),
            sections: vec![Section {
                title: "Every contender under every scenario".into(),
                facts: format!("simulated; mean over seeds {:?}", self.seeds),
                paragraphs: paragraphs.collect(),
                table,
                figures: vec![figure],
                code: None,
            }],
        }
    }
}

fn shown(score: &Score) -> String {
    let late = if score.p99 > 1.2 { "*" } else { "" };
    format!("{:.1}{late}", 100.0 * score.goodput)
}

fn finite(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}

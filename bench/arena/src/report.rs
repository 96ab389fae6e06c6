//! The table, for a terminal, for programs and for a browser.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;
use tidegate_sim::report::{Origin, Page, Section};

use crate::cell::Cell;
use crate::comparison;
use crate::contender::Tool;
use crate::failure::Failure;
use crate::figure::{FIGURES, P99};
use crate::picture::{self, Field};
use crate::program::{Fought, Program};
use crate::simulated::simulate;

const GOODPUT: &str =
    "Goodput within the target, percent of the ideal; * 99th percentile above 1.2 times the target";
const SIMULATED: &str = "Simulated, ten seeds: goodput in percent of the ideal and 95th percentile over the target, \
                         the median and what it lies between";

/// All results.
#[derive(Debug)]
pub(crate) struct Report {
    origin: Origin,
    versions: Vec<String>,
    machine: String,
    seeds: Vec<u64>,
    contenders: Vec<(&'static str, String)>,
    rows: Vec<Row>,
}

#[derive(Debug)]
struct Row {
    name: String,
    title: String,
    cells: Vec<Cell>,
}

impl Report {
    pub(crate) fn new(program: &Program, fought: &[Fought]) -> Result<Self, Failure> {
        let mut tools: Vec<Tool> = program
            .contenders
            .iter()
            .map(|contender| contender.tool)
            .collect();
        tools.sort();
        tools.dedup();
        let mut rows = Vec::new();
        for (scenario, entry) in program.entries.iter().enumerate() {
            let mut cells = Vec::new();
            for (index, contender) in program.contenders.iter().enumerate() {
                let own = fought
                    .iter()
                    .filter(|bout| (bout.scenario, bout.contender) == (scenario, index));
                cells.push(Cell {
                    measures: own.map(|bout| bout.measures).collect(),
                    simulated: simulate(entry, contender, program.seeds[0])?,
                });
            }
            rows.push(Row {
                name: entry.name.clone(),
                title: entry.scenario.title.clone(),
                cells,
            });
        }
        Ok(Self {
            origin: Origin {
                version: env!("CARGO_PKG_VERSION").to_owned(),
                commit: commit(),
            },
            versions: program.tools.versions(&tools),
            machine: machine(),
            seeds: program.seeds.clone(),
            contenders: program
                .contenders
                .iter()
                .map(|c| (c.name, c.tuning()))
                .collect(),
            rows,
        })
    }

    /// For standard output: one object on each line, or tables for people.
    pub(crate) fn text(&self, json: bool) -> String {
        if json {
            return self.json();
        }
        let tables = self.tables().into_iter();
        let tables: Vec<String> = tables
            .map(|(title, table)| format!("{title}\n{}", aligned(&table)))
            .collect();
        let agreement = self.agreement();
        format!("{}\n\n{}\n{agreement}\n", self.facts(), tables.join("\n"))
    }

    /// The same for a page of documentation.
    fn markdown(&self) -> String {
        let mut text = format!("{}\n\n{}\n", self.facts(), self.agreement());
        for (title, table) in self.tables() {
            text += &format!("\n## {title}\n\n");
            for (index, row) in table.iter().enumerate() {
                text += &format!("| {} |\n", row.join(" | "));
                if index == 0 {
                    text += &format!("|{}\n", " --- |".repeat(row.len()));
                }
            }
        }
        text
    }

    fn facts(&self) -> String {
        let Origin { version, commit } = &self.origin;
        format!(
            "tidegate {version} ({commit}); {}; {}; seeds {:?}",
            self.versions.join(", "),
            self.machine,
            self.seeds
        )
    }

    /// Those that have anything to say.
    fn tables(&self) -> Vec<(&'static str, Vec<Vec<String>>)> {
        let goodput = (GOODPUT, self.table(|cell| cell.goodput(&FIGURES[0])));
        let others = FIGURES[1..].iter();
        let others = others.map(|figure| (figure.title, self.table(|cell| cell.figure(figure))));
        let apart = (comparison::TITLE, self.table(Cell::apart));
        std::iter::once(goodput)
            .chain(others)
            .chain([apart, self.simulated()])
            .filter(|(_, table)| table.len() > 1)
            .collect()
    }

    fn simulated(&self) -> (&'static str, Vec<Vec<String>>) {
        (SIMULATED, self.table(Cell::expected))
    }

    /// What the simulator expects, without anything live.
    pub(crate) fn simulated_text(&self) -> String {
        let (title, table) = self.simulated();
        format!("{}\n\n{title}\n{}", self.facts(), aligned(&table))
    }

    /// How often the simulator was right.
    fn agreement(&self) -> String {
        let cells = self.rows.iter().flat_map(|row| {
            let names = self.contenders.iter().map(|(name, _)| *name);
            names.zip(&row.cells).filter_map(|(name, cell)| {
                Some((format!("{} {name}", row.name), cell.comparison()?))
            })
        });
        comparison::agreement(cells)
    }

    /// Head and rows, with a cell of every contender; without rows that say nothing.
    fn table(&self, shown: impl Fn(&Cell) -> String) -> Vec<Vec<String>> {
        let head = std::iter::once("scenario").chain(self.contenders.iter().map(|(name, _)| *name));
        let mut table = vec![head.map(str::to_owned).collect::<Vec<_>>()];
        for row in &self.rows {
            let cells: Vec<String> = row.cells.iter().map(&shown).collect();
            if cells.iter().any(|cell| !cell.is_empty()) {
                table.push(std::iter::once(row.name.clone()).chain(cells).collect());
            }
        }
        table
    }

    /// One object per scenario and contender, one on each line.
    fn json(&self) -> String {
        let mut text = String::new();
        for row in &self.rows {
            for (cell, (contender, _)) in row.cells.iter().zip(&self.contenders) {
                let mut object = json!({
                    "scenario": row.name,
                    "contender": contender,
                    "repetitions": cell.measures.len(),
                    "trustworthy": cell.is_trustworthy(),
                });
                for figure in &FIGURES {
                    let summary = cell.summary(figure);
                    object[figure.key] = json!(finite(summary.median));
                    object[format!("{}_spread", figure.key)] = json!(finite(summary.spread()));
                }
                if let Some(simulated) = &cell.simulated {
                    object["simulated"] = simulated.json();
                }
                text += &format!("{object}\n");
            }
        }
        text
    }

    fn csv(&self) -> String {
        let names: Vec<&str> = FIGURES.iter().map(|figure| figure.key).collect();
        let mut text = format!(
            "scenario,contender,repetition,trustworthy,{}\n",
            names.join(",")
        );
        for row in &self.rows {
            for (cell, (contender, _)) in row.cells.iter().zip(&self.contenders) {
                for (repetition, measures) in cell.measures.iter().enumerate() {
                    let figures = FIGURES.map(|figure| match finite((figure.value)(measures)) {
                        Some(value) => format!("{value:.4}"),
                        None => String::new(),
                    });
                    text += &format!(
                        "{},{contender},{repetition},{},{}\n",
                        row.name,
                        measures.is_trustworthy(),
                        figures.join(",")
                    );
                }
            }
        }
        text
    }

    /// Writes `arena.html`, `arena.svg`, `arena-p99.svg`, `arena.md` and `arena.csv`; returns the
    /// page's path.
    pub(crate) fn write(&self, folder: &Path) -> Result<PathBuf, Failure> {
        let pictures = [self.goodput_picture(), self.p99_picture()];
        let page = self.page(pictures.to_vec()).html();
        let [goodput, p99] = pictures;
        fs::create_dir_all(folder).map_err(Failure::system(folder.display().to_string()))?;
        for (name, text) in [
            ("arena.svg", goodput),
            ("arena-p99.svg", p99),
            ("arena.csv", self.csv()),
            ("arena.md", self.markdown()),
            ("arena.html", page),
        ] {
            let path = folder.join(name);
            fs::write(&path, text).map_err(Failure::system(path.display().to_string()))?;
        }
        Ok(folder.join("arena.html"))
    }

    fn goodput_picture(&self) -> String {
        self.picture(GOODPUT, |cell| Field {
            share: cell.summary(&FIGURES[0]).median,
            text: cell.goodput(&FIGURES[0]),
        })
    }

    /// As good as the goodput of one where the target is kept, as bad as half of it at twice the
    /// target.
    fn p99_picture(&self) -> String {
        self.picture(P99.title, |cell| Field {
            share: 1.5 - 0.5 * cell.summary(&P99).median,
            text: cell.figure(&P99),
        })
    }

    fn picture(&self, title: &str, field: impl Fn(&Cell) -> Field) -> String {
        let contenders: Vec<&str> = self.contenders.iter().map(|(name, _)| *name).collect();
        let rows = self.rows.iter();
        let rows: Vec<(&str, Vec<Field>)> = rows
            .map(|row| (row.name.as_str(), row.cells.iter().map(&field).collect()))
            .collect();
        picture::svg(title, &contenders, &rows)
    }

    fn page(&self, pictures: Vec<String>) -> Page {
        let tuning = self.contenders.iter();
        let tuning = tuning.map(|(name, tuning)| format!("{name}: {tuning}"));
        let titles = self.rows.iter();
        let titles = titles.map(|row| format!("{}: {}.", row.name, row.title));
        let mut sections = vec![Section {
            title: "Who protects the service best".to_owned(),
            facts: format!("live; {}", self.facts()),
            paragraphs: tuning.chain(titles).chain([self.agreement()]).collect(),
            figures: pictures,
            ..Section::default()
        }];
        sections.extend(self.tables().into_iter().map(|(title, table)| Section {
            title: title.to_owned(),
            table,
            ..Section::default()
        }));
        Page {
            title: "Arena: real proxies, who protects the service best".into(),
            origin: self.origin.clone(),
            lead: "Percent of the goodput within target that a clairvoyant would have had; a star marks a \
                   99th percentile above 1.2 times the target; medians, half the range of the repetitions \
                   behind ±."
                .into(),
            sections,
        }
    }
}

pub(crate) fn finite(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}

/// Columns as wide as what is in them.
fn aligned(table: &[Vec<String>]) -> String {
    let width = |column: usize| {
        table
            .iter()
            .map(|row| row[column].chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..table.first().map_or(0, Vec::len)).map(width).collect();
    let line = |row: &Vec<String>| {
        let mut text = format!("{:1$}", row[0], widths[0]);
        for (cell, width) in row.iter().zip(&widths).skip(1) {
            text += &format!("  {cell:>width$}");
        }
        text + "\n"
    };
    table.iter().map(line).collect()
}

/// What it ran on.
fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZeroUsize::get);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("{cores} cores, Linux {}", kernel.trim())
}

/// The commit of the work tree, where git knows it.
fn commit() -> String {
    let output = std::process::Command::new("git")
        .args(["rev-parse", "--short", "HEAD"])
        .output();
    let text = output.ok().filter(|output| output.status.success());
    text.and_then(|output| String::from_utf8(output.stdout).ok())
        .map_or_else(|| "unknown".to_owned(), |text| text.trim().to_owned())
}

//! The table, for a terminal, for programs and for a browser.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;
use tidegate_sim::chart::{self, Chart};
use tidegate_sim::report::{Origin, Page, ReportError, Section, number};

use crate::contender::Tool;
use crate::failure::Failure;
use crate::measure::Measures;
use crate::program::{Fought, Program};
use crate::simulated::{Simulated, simulate};
use crate::summary::Summary;

/// A column of the table.
type Figure = (&'static str, fn(&Measures) -> f64);

/// Everything measured, with its unit.
const FIGURES: [Figure; 13] = [
    ("goodput_of_ideal", |m| m.goodput),
    ("p95_of_target", |m| m.p95),
    ("p99_of_target", |m| m.p99),
    ("max_of_target", |m| m.max),
    ("power", |m| m.power),
    ("revenue_of_optimum", |m| m.revenue),
    ("refused_share", |m| m.refused),
    ("answered_per_s", |m| m.answered),
    ("settle_s", |m| m.settle_s),
    ("recover_s", |m| m.recover_s),
    ("cpu_us_per_request", |m| m.cpu_us),
    ("refusal_ms", |m| m.refusal_ms),
    ("send_lag_ms", |m| m.lag_ms),
];

/// All results.
#[derive(Debug)]
pub(crate) struct Report {
    origin: Origin,
    versions: Vec<String>,
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

/// One contender in one scenario.
#[derive(Debug)]
struct Cell {
    measures: Vec<Measures>,
    simulated: Option<Simulated>,
}

impl Cell {
    fn summary(&self, figure: fn(&Measures) -> f64) -> Summary {
        Summary::of(self.measures.iter().map(figure))
    }

    fn median(&self, figure: fn(&Measures) -> f64) -> f64 {
        self.summary(figure).median
    }

    /// Half of the repetitions or more were not disturbed.
    fn is_trustworthy(&self) -> bool {
        let good = self
            .measures
            .iter()
            .filter(|measures| measures.is_trustworthy())
            .count();
        2 * good >= self.measures.len()
    }

    /// Percent of the ideal, a star for a late 99th percentile, and the spread where there is one.
    fn shown(&self) -> String {
        if !self.is_trustworthy() {
            return "too noisy".to_owned();
        }
        let goodput = self.summary(|m| m.goodput);
        let late = if self.median(|m| m.p99) > 1.2 {
            "*"
        } else {
            ""
        };
        let spread = if self.measures.len() > 1 {
            format!(" ±{:.1}", 50.0 * goodput.spread)
        } else {
            String::new()
        };
        format!("{:.1}{late}{spread}", 100.0 * goodput.median)
    }
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
                    simulated: simulate(entry, contender, &program.seeds)?,
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
            seeds: program.seeds.clone(),
            contenders: program
                .contenders
                .iter()
                .map(|c| (c.name, c.tuning()))
                .collect(),
            rows,
        })
    }

    #[allow(clippy::print_stdout, reason = "the result of the command")]
    pub(crate) fn print(&self, json: bool) {
        print!("{}", if json { self.json() } else { self.text() });
    }

    fn text(&self) -> String {
        let facts = format!("{}\nseeds {:?}\n\n", self.versions.join("; "), self.seeds);
        let goodput = self.table(Cell::shown);
        let sections = [
            (
                "Goodput within the target, percent of the ideal; * 99th percentile above 1.2 times the target",
                goodput,
            ),
            (
                "99th percentile of what was answered, over the target",
                self.table(|cell| number(cell.median(|m| m.p99))),
            ),
            (
                "Seconds until the goodput is there after overload began",
                self.table(|cell| number(cell.median(|m| m.settle_s))),
            ),
            (
                "Refused, percent",
                self.table(|cell| number(100.0 * cell.median(|m| m.refused))),
            ),
            (
                "Processor time per request, microseconds",
                self.table(|cell| number(cell.median(|m| m.cpu_us))),
            ),
            (
                "Simulated against live: goodput, p95 and answers per second apart, percent",
                self.table(Cell::apart),
            ),
        ];
        let sections = sections.map(|(title, table)| format!("{title}\n{}", aligned(&table)));
        facts + &sections.join("\n")
    }

    /// Head and rows, with a cell of every contender.
    fn table(&self, shown: impl Fn(&Cell) -> String) -> Vec<Vec<String>> {
        let head = std::iter::once("scenario").chain(self.contenders.iter().map(|(name, _)| *name));
        let mut table = vec![head.map(str::to_owned).collect::<Vec<_>>()];
        for row in &self.rows {
            let cells = row.cells.iter().map(&shown);
            table.push(std::iter::once(row.name.clone()).chain(cells).collect());
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
                for (name, figure) in FIGURES {
                    let summary = cell.summary(figure);
                    object[name] = json!(finite(summary.median));
                    object[format!("{name}_spread")] = json!(finite(summary.spread));
                }
                if let Some(simulated) = cell.simulated {
                    object["simulated"] = json!({
                        "goodput_of_ideal": finite(simulated.goodput),
                        "p95_of_target": finite(simulated.p95),
                        "answered_per_s": finite(simulated.answered),
                    });
                }
                text += &format!("{object}\n");
            }
        }
        text
    }

    fn csv(&self) -> String {
        let names: Vec<&str> = FIGURES.iter().map(|(name, _)| *name).collect();
        let mut text = format!("scenario,contender,repetition,{}\n", names.join(","));
        for row in &self.rows {
            for (cell, (contender, _)) in row.cells.iter().zip(&self.contenders) {
                for (repetition, measures) in cell.measures.iter().enumerate() {
                    let figures = FIGURES.map(|(_, figure)| match finite(figure(measures)) {
                        Some(value) => format!("{value:.4}"),
                        None => String::new(),
                    });
                    text += &format!(
                        "{},{contender},{repetition},{}\n",
                        row.name,
                        figures.join(",")
                    );
                }
            }
        }
        text
    }

    /// Writes `arena.html`, `arena.svg` and `arena.csv`; returns the page's path.
    pub(crate) fn write(&self, folder: &Path) -> Result<PathBuf, Failure> {
        let figure = chart::svg(&self.chart()).map_err(ReportError::from)?;
        let page = self.page(figure.clone()).html();
        fs::create_dir_all(folder).map_err(Failure::system(folder.display().to_string()))?;
        for (name, text) in [
            ("arena.svg", figure),
            ("arena.csv", self.csv()),
            ("arena.html", page),
        ] {
            let path = folder.join(name);
            fs::write(&path, text).map_err(Failure::system(path.display().to_string()))?;
        }
        Ok(folder.join("arena.html"))
    }

    fn chart(&self) -> Chart {
        let mut chart = Chart::new("Goodput within the target, of the ideal (live)")
            .x("scenario (number of its row)")
            .y("share of the ideal")
            .y_range(0.0, 1.1)
            .rule_y("ideal", 1.0);
        for (column, (name, _)) in self.contenders.iter().enumerate() {
            let rows = self.rows.iter().enumerate();
            let points = rows
                .map(|(index, row)| (index as f64 + 1.0, row.cells[column].median(|m| m.goodput)));
            chart = chart.points(*name, points.collect());
        }
        chart
    }

    fn page(&self, figure: String) -> Page {
        let section = |title: &str, table, figures| Section {
            title: title.to_owned(),
            facts: format!("live; {}; seeds {:?}", self.versions.join("; "), self.seeds),
            table,
            figures,
            ..Section::default()
        };
        let mut first = section(
            "Goodput within the target, percent of the ideal",
            self.table(Cell::shown),
            vec![figure],
        );
        first.paragraphs = self
            .contenders
            .iter()
            .map(|(name, tuning)| format!("{name}: {tuning}"))
            .collect();
        let titles = self.rows.iter().enumerate();
        first.paragraphs.extend(
            titles.map(|(index, row)| format!("{}: {} ({}).", index + 1, row.title, row.name)),
        );
        let others = FIGURES[1..].iter().map(|(name, figure)| {
            section(
                name,
                self.table(|cell| number(cell.median(*figure))),
                Vec::new(),
            )
        });
        let apart = section(
            "Simulated against live: goodput, p95 and answers per second apart, percent",
            self.table(Cell::apart),
            Vec::new(),
        );
        Page {
            title: "Arena: real proxies, who protects the service best".into(),
            origin: self.origin.clone(),
            lead: "Percent of the goodput within target that a clairvoyant would have had; a star marks a \
                   99th percentile above 1.2 times the target; medians, half the range of the repetitions \
                   behind ±."
                .into(),
            sections: std::iter::once(first).chain(others).chain([apart]).collect(),
        }
    }
}

impl Cell {
    /// How far the simulator was from the live run.
    fn apart(&self) -> String {
        let Some(simulated) = self.simulated else {
            return String::new();
        };
        let apart = |simulated: f64, live: f64| number(100.0 * (simulated / live - 1.0));
        [
            apart(simulated.goodput, self.median(|m| m.goodput)),
            apart(simulated.p95, self.median(|m| m.p95)),
            apart(simulated.answered, self.median(|m| m.answered)),
        ]
        .join(" / ")
    }
}

fn finite(value: f64) -> Option<f64> {
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

/// The commit of the work tree, where git knows it.
fn commit() -> String {
    let output = std::process::Command::new("git")
        .args(["rev-parse", "--short", "HEAD"])
        .output();
    let text = output.ok().filter(|output| output.status.success());
    text.and_then(|output| String::from_utf8(output.stdout).ok())
        .map_or_else(|| "unknown".to_owned(), |text| text.trim().to_owned())
}

//! The table of scalers, for a terminal, for programs and for a browser.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::{Contender, Score, Tally, Trace};
use crate::chart::{self, Chart};
use crate::report::{Origin, Page, ReportError, Section};
use crate::stats::Estimate;

/// Server-hours on regular traces, over the oracle's, that the goal allows.
const HOURS_OF_ORACLE_MAX: f64 = 1.23;
/// Share of changes that may order what was given back less than five minutes before.
const REVERSALS_OF_ACTIONS_MAX: f64 = 0.1;

/// Scores of all contenders on all traces.
#[derive(Debug)]
pub struct PlaneReport {
    traces: Vec<Trace>,
    seeds: Vec<u64>,
    /// In the order of the traces, and for each of [`Contender::ALL`].
    scores: Vec<Score>,
}

impl PlaneReport {
    pub(super) fn new(traces: &[Trace], seeds: &[u64], scores: Vec<Score>) -> Self {
        Self {
            traces: traces.to_vec(),
            seeds: seeds.to_vec(),
            scores,
        }
    }

    fn rows(&self) -> impl Iterator<Item = (&Trace, &[Score])> {
        self.traces
            .iter()
            .zip(self.scores.chunks(Contender::ALL.len()))
    }

    fn cells(&self) -> impl Iterator<Item = Cell<'_>> {
        self.rows().flat_map(|(trace, scores)| {
            let oracle = of(scores, Contender::Oracle).tally.server_hours;
            Contender::ALL
                .iter()
                .zip(scores)
                .map(move |(&contender, score)| Cell {
                    trace,
                    contender,
                    hours: score.tally.server_hours / oracle,
                    lost: score.tally.lost / score.tally.arrived,
                    lost_half_width: lost_half_width(score),
                    actions: score.tally.actions,
                    reversals: score.tally.reversals,
                    revenue: score.tally.earned / score.tally.earnable,
                })
        })
    }

    /// A line per trace and contender, and what became of the goal.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = format!(
            "{:<17} {:<15} {:>12} {:>12} {:>9} {:>9} {:>8} {:>9}\n",
            "trace",
            "scaler",
            "server-hours",
            "late or shed",
            "±",
            "revenue",
            "actions",
            "reversals"
        );
        for cell in self.cells() {
            let Cell {
                trace,
                contender,
                hours,
                lost,
                lost_half_width,
                actions,
                reversals,
                revenue,
            } = cell;
            text += &format!(
                "{:<17} {:<15} {hours:>11.3}x {:>11.4}% {:>8.4}% {:>8.3}% {actions:>8.0} \
                 {reversals:>9.1}\n",
                trace.name,
                contender.name(),
                100.0 * lost,
                100.0 * lost_half_width,
                100.0 * revenue,
            );
        }
        text + "\n" + &self.goals().join("\n") + "\n"
    }

    /// Per trace: whether fewest requests are lost (most is earned, where applications share a
    /// pool), at no more server-hours than KPA, hardly ever ordering what it has just given
    /// back, and on regular traces at no more than 1.23 times the oracle's server-hours.
    #[must_use]
    pub fn goals(&self) -> Vec<String> {
        self.rows()
            .map(|(trace, scores)| goal(trace, scores))
            .collect()
    }

    /// One JSON object per line.
    #[must_use]
    pub fn json(&self) -> String {
        let line = |cell: Cell<'_>| {
            let line = json!({
                "trace": cell.trace.name,
                "scaler": cell.contender.name(),
                "server_hours_of_oracle": cell.hours,
                "late_or_shed_share": cell.lost,
                "late_or_shed_half_width": cell.lost_half_width,
                "revenue_share": cell.revenue,
                "actions": cell.actions,
                "reversals": cell.reversals,
            });
            format!("{line}\n")
        };
        self.cells().map(line).collect()
    }

    /// Writes `plane.html`, `plane.svg` and `plane.csv` into `folder`; returns the page's path.
    ///
    /// # Errors
    /// A figure that cannot be drawn, a file that cannot be written.
    pub fn write(&self, folder: &Path, origin: Origin) -> Result<PathBuf, ReportError> {
        let figures = self
            .rows()
            .map(|(trace, scores)| chart::svg(&chart_of(trace, scores)));
        let figures = figures.collect::<Result<Vec<String>, _>>()?;
        let first = figures.first().cloned().unwrap_or_default();
        let page = self.page(origin, figures).html();
        let file = |path: &Path| {
            let path = path.to_owned();
            move |source| ReportError::File { path, source }
        };
        fs::create_dir_all(folder).map_err(file(folder))?;
        for (name, text) in [
            ("plane.svg", first),
            ("plane.csv", self.csv()),
            ("plane.html", page),
        ] {
            let path = folder.join(name);
            fs::write(&path, text).map_err(file(&path))?;
        }
        Ok(folder.join("plane.html"))
    }

    fn csv(&self) -> String {
        let head = "trace,scaler,server_hours_of_oracle,late_or_shed_share,half_width,revenue_share,actions,reversals\n"
            .to_owned();
        self.cells().fold(head, |text, cell| {
            let Cell {
                trace,
                contender,
                hours,
                lost,
                lost_half_width,
                actions,
                reversals,
                revenue,
            } = cell;
            let (trace, name) = (trace.name, contender.name());
            text + &format!(
                "{trace},{name},{hours:.4},{lost:.6},{lost_half_width:.6},{revenue:.6},{actions:.1},\
                 {reversals:.1}\n"
            )
        })
    }

    fn page(&self, origin: Origin, figures: Vec<String>) -> Page {
        let head = [
            "trace",
            "scaler",
            "server-hours of the oracle's",
            "late or shed",
            "revenue",
            "actions",
            "reversals",
        ];
        let mut table = vec![head.map(str::to_owned).to_vec()];
        table.extend(self.cells().map(|cell| {
            vec![
                cell.trace.title.to_owned(),
                cell.contender.name().to_owned(),
                format!("{:.3}", cell.hours),
                format!("{:.4} %", 100.0 * cell.lost),
                format!("{:.3} %", 100.0 * cell.revenue),
                format!("{:.0}", cell.actions),
                format!("{:.1}", cell.reversals),
            ]
        }));
        Page {
            title: "Scalers on the same traces".into(),
            origin,
            lead: "Server-hours over those of an oracle, and requests that were shed or late. All \
                   have the same admission control in front of their servers."
                .into(),
            sections: vec![Section {
                title: "Every scaler on every trace".into(),
                facts: format!("simulated; mean over seeds {:?}", self.seeds),
                paragraphs: self.goals(),
                table,
                figures,
                code: None,
            }],
        }
    }
}

struct Cell<'a> {
    trace: &'a Trace,
    contender: Contender,
    hours: f64,
    lost: f64,
    /// Of its 95 % confidence interval over the seeds; infinite with one seed.
    lost_half_width: f64,
    actions: f64,
    /// Orders of servers given back less than five minutes before.
    reversals: f64,
    /// Earned of what could have been.
    revenue: f64,
}

fn lost_half_width(score: &Score) -> f64 {
    let shares = score.by_seed.iter();
    let shares: Vec<f64> = shares.map(|tally| tally.lost / tally.arrived).collect();
    Estimate::from_samples(&shares, 0.95).half_width
}

fn of(scores: &[Score], contender: Contender) -> &Score {
    let index = Contender::ALL.iter().position(|&other| other == contender);
    &scores[index.unwrap_or(0)]
}

fn goal(trace: &Trace, scores: &[Score]) -> String {
    let seeds = scores[0].by_seed.len();
    let kept = (0..seeds).filter(|&seed| {
        let tallies: Vec<Tally> = scores.iter().map(|score| score.by_seed[seed]).collect();
        missed(trace, &tallies).is_empty()
    });
    let kept = format!("{} of {seeds} seeds", kept.count());
    let means: Vec<Tally> = scores.iter().map(|score| score.tally).collect();
    match missed(trace, &means).as_slice() {
        [] => format!("{}: goal kept on the mean, and on {kept}", trace.name),
        missed => format!(
            "{}: goal missed on the mean, kept on {kept}: {}",
            trace.name,
            missed.join("; ")
        ),
    }
}

/// Parts of the goal that tallies in the order of [`Contender::ALL`] miss.
fn missed(trace: &Trace, tallies: &[Tally]) -> Vec<String> {
    let tally = |contender: Contender| {
        let index = Contender::ALL.iter().position(|&other| other == contender);
        tallies[index.unwrap_or(0)]
    };
    let ours = tally(Contender::Ours);
    let rivals = Contender::ALL.iter().zip(tallies);
    // Where a pool is too small for all, what counts is what is earned.
    let short = trace.applications().len() > 1;
    let is_better = |tally: &Tally| {
        if short {
            tally.earned > ours.earned
        } else {
            tally.lost < ours.lost
        }
    };
    let better: Vec<&str> = rivals
        .filter(|(contender, tally)| contender.finds_out() && is_better(tally))
        .map(|(contender, _)| contender.name())
        .collect();
    let mut missed = Vec::new();
    if !better.is_empty() {
        let what = if short { "more earned" } else { "fewer lost" };
        missed.push(format!("{what} by {}", better.join(", ")));
    }
    if ours.reversals > REVERSALS_OF_ACTIONS_MAX * ours.actions {
        let (reversals, actions) = (ours.reversals, ours.actions);
        missed.push(format!(
            "{reversals:.1} of {actions:.0} changes order what was given back just before"
        ));
    }
    if ours.server_hours > tally(Contender::Kpa).server_hours {
        missed.push("more server-hours than kpa".to_owned());
    }
    let of_oracle = ours.server_hours / tally(Contender::Oracle).server_hours;
    if trace.regular && of_oracle > HOURS_OF_ORACLE_MAX {
        missed.push(format!("{of_oracle:.2} times the oracle's server-hours"));
    }
    missed
}

fn chart_of(trace: &Trace, scores: &[Score]) -> Chart {
    let mut chart = Chart::new(trace.title).x("hours").y("servers");
    for contender in [
        Contender::Ours,
        Contender::Kpa,
        Contender::Keda,
        Contender::Oracle,
    ] {
        chart = chart.steps(contender.name(), of(scores, contender).servers.clone());
    }
    chart
}

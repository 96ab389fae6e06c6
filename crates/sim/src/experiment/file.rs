//! The file format of an experiment, before its variants are resolved.
//!
//! ```toml
//! paper = "002"
//! figure = "7"
//! title = "Distribution of the utilization"
//! seed = 7
//! repetitions = 20
//!
//! [model.queue.scenario]            # a model named `queue`, of the kind `scenario`
//! duration = "1000s"
//!
//! [[run]]                           # the model as it stands
//! name = "good"
//! model = "queue"
//!
//! [[run]]                           # the same with one key replaced
//! name = "bad"
//! model = "queue"
//! set = { "protect.pi.integral_time" = "100ms" }
//!
//! [[run]]                           # the same over a range of loads: gives one curve
//! name = "open"
//! model = "queue"
//! sweep = { parameter = "load.rate", values = [5, 10, 20], unit = "/s" }
//! curves.utilization = { series = "utilization", stat = "mean", from = 50 }
//!
//! [[check]]
//! metric = "mean utilization"
//! run = "good"
//! of = { series = "utilization", stat = "mean", from = 50 }
//! paper = 0.8
//! tolerance = 0.02
//!
//! [[plot]]
//! title = "Distribution"
//! x = "utilization"
//! y = "share of intervals"
//! layers = [{ run = "good", series = "utilization", draw = "cdf" }]
//! ```

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::{Spanned, Value};

use super::check::Check;
use super::model::Model;
use super::plot::Plot;
use super::reading::Reading;

/// An experiment as written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    /// Short number of the paper, `ours` for an experiment of our own.
    pub(super) paper: String,
    /// Its figure or table.
    pub(super) figure: String,
    /// What it shows, in a line.
    pub(super) title: String,
    /// Shown in the report: what was chosen where the paper is silent, why we differ.
    pub(super) note: Option<String>,
    /// Repetition `r` draws from a generator derived from this and `r`, in every run alike.
    #[serde(default = "default_seed")]
    pub(super) seed: u64,
    /// How often each run is repeated with fresh randomness.
    #[serde(default = "one")]
    pub(super) repetitions: Spanned<usize>,
    /// The models, by name.
    pub(super) model: BTreeMap<String, Spanned<Model>>,
    /// The runs, in the order of their appearance in the report.
    #[serde(default)]
    pub(super) run: Vec<RunSpec>,
    /// The comparisons.
    #[serde(default)]
    pub(super) check: Vec<Check>,
    /// The panels of the figure.
    #[serde(default)]
    pub(super) plot: Vec<Plot>,
    /// Faults that the comparisons have to notice.
    #[serde(default)]
    pub(super) mutation: Vec<MutationSpec>,
}

/// A mechanism that is off, or a gain that is wrong.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MutationSpec {
    /// What is wrong, in words.
    pub(super) name: Spanned<String>,
    /// The runs it is in; all of them when missing.
    #[serde(default)]
    pub(super) runs: Vec<Spanned<String>>,
    /// Keys of their model to replace, by dotted path, after those of the run itself.
    pub(super) set: BTreeMap<Spanned<String>, Value>,
}

fn default_seed() -> u64 {
    1
}

fn one() -> Spanned<usize> {
    Spanned::new(0..0, 1)
}

/// A run: a model, with keys replaced, once or over a range.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RunSpec {
    /// What checks and plots call it.
    pub(super) name: Spanned<String>,
    /// What legends call it; the name when missing.
    pub(super) label: Option<String>,
    /// Name of the model.
    pub(super) model: Spanned<String>,
    /// Keys of the model to replace, by dotted path.
    #[serde(default)]
    pub(super) set: BTreeMap<Spanned<String>, Value>,
    /// A key to vary.
    pub(super) sweep: Option<SweepSpec>,
    /// With `sweep`: what to read at each value. The curves are the series of this run.
    #[serde(default)]
    pub(super) curves: BTreeMap<String, Reading>,
}

/// A key of the model, and the values it takes.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SweepSpec {
    /// Dotted path of the key.
    pub(super) parameter: Spanned<String>,
    /// The values.
    pub(super) values: Spanned<Vec<f64>>,
    /// Appended to each value where the key wants a unit (`/s`, `ms`, `%`).
    pub(super) unit: Option<String>,
    /// The x of each value in plots; the value itself when missing.
    pub(super) x: Option<Vec<f64>>,
}

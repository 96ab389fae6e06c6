//! Experiments: files that name a model, what varies, what is measured and what a paper has.
//!
//! The pieces know nothing of each other. A [`Model`] turns a seed into a [`Record`] of named
//! series and values; a [`Reading`] turns a record into a number; a [`Check`] compares numbers
//! with the paper's; a [`Plot`] draws series. A file combines them (the format is shown in
//! `experiments/README.md`), so a new experiment needs code only when it needs a new kind of
//! model.
//!
//! [`Experiment::parse`] refuses whatever could fail later: unknown keys, a replaced key that the
//! model does not know, a check that names a run or a series that does not exist. [`run_all`] then
//! cannot fail on account of the file.
//!
//! Repetition `r` of every run and of every value of a sweep uses the same seed: runs are compared
//! on the same arrivals (common random numbers), and the result does not depend on how many cores
//! there are.

mod check;
mod file;
pub mod model;
mod mutate;
mod plot;
mod reading;
mod record;
mod resolve;
mod run;
mod variant;

pub use check::{Check, Finding, PaperValue, Verdict};
pub use mutate::{Noticed, mutate, unmoved};
pub use plot::{Draw, Drawn, Plot, Spot};
pub use reading::{Reading, Statistic};
pub use record::{Record, smoothed};
pub use run::{Outcome, Panel, Progress, RunError, run_all};

use std::collections::BTreeMap;

use tidegate_config::ConfigError;

use model::Model;
use mutate::Mutation;

/// An experiment that is ready to run.
#[derive(Debug, Clone)]
pub struct Experiment {
    /// Short number of the paper, or `ours`.
    pub paper: String,
    /// Its figure or table.
    pub figure: String,
    /// What it shows, in a line.
    pub title: String,
    /// What was chosen where the paper is silent, and why we differ.
    pub note: Option<String>,
    /// The root of all randomness of this experiment.
    pub seed: u64,
    /// How often each run is repeated.
    pub repetitions: usize,
    runs: Vec<Run>,
    checks: Vec<Check>,
    plots: Vec<Plot>,
    mutations: Vec<Mutation>,
}

/// One or more variants of a model under one name.
#[derive(Debug, Clone)]
struct Run {
    name: String,
    label: String,
    shape: Shape,
}

#[derive(Debug, Clone)]
enum Shape {
    Single(Model),
    /// A variant at each x, reduced to one point of each curve.
    Sweep {
        points: Vec<(f64, Model)>,
        curves: BTreeMap<String, Reading>,
    },
}

impl Experiment {
    /// Reads an experiment; `file` says where errors are.
    ///
    /// # Errors
    /// With place and remedy, for everything in the file that would keep it from running.
    pub fn parse(file: &str, text: &str) -> Result<Self, ConfigError> {
        resolve::resolve(file, text)
    }

    /// `002/7`: what `--only` selects by.
    #[must_use]
    pub fn id(&self) -> String {
        format!("{}/{}", self.paper, self.figure)
    }

    /// `figure 7`, `eq. 10`: what of the paper it is, in words.
    #[must_use]
    pub fn subject(&self) -> String {
        if self
            .figure
            .starts_with(|first: char| first.is_ascii_digit())
        {
            format!("figure {}", self.figure)
        } else {
            self.figure.clone()
        }
    }

    fn run_index(&self, name: &str) -> Option<usize> {
        self.runs.iter().position(|run| run.name == name)
    }
}

//! The papers' experiments.
//!
//! The files of `experiments/papers` are built into the library: one binary gives the same
//! figures in any folder, and cannot pick up a stale copy. To try a change without building,
//! run the edited file itself (`tidegate sim FILE`).

use tidegate_config::ConfigError;

use crate::experiment::Experiment;

mod embedded {
    include!(concat!(env!("OUT_DIR"), "/papers.rs"));
}

/// Names and texts of the files, in the order of their names.
#[must_use]
pub fn files() -> &'static [(&'static str, &'static str)] {
    embedded::FILES
}

/// All experiments.
///
/// # Errors
/// What is wrong with a file; a test keeps this from happening.
pub fn experiments() -> Result<Vec<Experiment>, ConfigError> {
    let parse = |&(name, text): &(&str, &str)| Experiment::parse(name, text);
    files().iter().map(parse).collect()
}

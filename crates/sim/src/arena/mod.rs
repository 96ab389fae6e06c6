//! The arena: every contender under every scenario, one table.
//!
//! A score is the goodput within the target as a share of the ideal: in each interval the honest
//! requests that arrived or what the capacity allows, whichever is less, and of them those whose
//! work fits into the target on an idle replica ([`ideal`]). Beside it stand the 99th percentile of
//! what was answered, over the target, and the share refused.
//!
//! Contenders that need tuning get it for the nominal capacity, as a careful operator would do it
//! ([`contenders`]); Tidegate's `auto` gets the target or nothing at all.

mod contender;
mod heat;
mod ideal;
mod random;
mod report;
mod summary;

pub use contender::{Contender, contenders};
pub use ideal::{Clairvoyant, ideal};
pub use random::{RandomOptions, RandomService, random_entries};
pub use report::{ArenaReport, Cell};

use rayon::prelude::*;
use tidegate_config::ConfigError;

use crate::experiment::Progress;
use crate::scenario::{Outcome, Scenario, ScenarioError};

mod embedded {
    include!(concat!(env!("OUT_DIR"), "/arena.rs"));
}

/// A scenario of the arena.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The file's name without its number and ending.
    pub name: String,
    /// What happens in it.
    pub scenario: Scenario,
}

/// The scenarios of `experiments/arena`, which are built in.
///
/// # Errors
/// What is wrong with a file; a test keeps this from happening.
pub fn entries() -> Result<Vec<Entry>, ConfigError> {
    embedded::FILES
        .iter()
        .map(|(name, text)| Entry::parse(name, text))
        .collect()
}

impl Entry {
    /// Reads a scenario file; its replicas report with their answers.
    ///
    /// # Errors
    /// What is wrong with it, and where.
    pub fn parse(file: &str, text: &str) -> Result<Self, ConfigError> {
        let mut scenario: Scenario = tidegate_config::parse(file, text)?;
        // As those of the live arena do.
        scenario.report_with_answers = true;
        scenario
            .check()
            .map_err(|error| ConfigError::new(file, error.to_string()))?;
        let stem = file
            .rsplit('/')
            .next()
            .unwrap_or(file)
            .trim_end_matches(".toml");
        let name = stem.trim_start_matches(|c: char| c.is_ascii_digit() || c == '-');
        Ok(Self {
            name: name.to_owned(),
            scenario,
        })
    }

    /// What it is called in a report: its title, or the file's name where it has none.
    fn title(&self) -> &str {
        match self.scenario.title.as_str() {
            "" => &self.name,
            title => title,
        }
    }
}

/// What one contender made of one scenario, the mean over all seeds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Score {
    /// Goodput within the target over the ideal.
    pub goodput: f64,
    /// 99th percentile of the response times of what was answered, over the target.
    pub p99: f64,
    /// Share of attempts refused.
    pub shed: f64,
    /// Share of the first attempts of the most important class that were answered within the
    /// target; not a number where there is one class.
    pub top_class: f64,
    /// Attempts refused in the whole run, the warm-up included.
    pub refused: f64,
}

impl Score {
    fn of(scenario: &Scenario, outcome: &Outcome) -> Self {
        let totals = &outcome.totals;
        let target_s = scenario
            .target
            .map_or(f64::NAN, |target| target.as_secs_f64());
        Self {
            goodput: totals.counts.in_target as f64 / ideal(scenario, outcome),
            p99: totals.histogram.quantile(0.99) / target_s,
            shed: totals.shed_share(),
            top_class: top_class(outcome),
            refused: outcome.ledger.shed as f64,
        }
    }

    fn mean(scores: &[Self]) -> Self {
        let mean =
            |part: fn(&Self) -> f64| scores.iter().map(part).sum::<f64>() / scores.len() as f64;
        Self {
            goodput: mean(|score| score.goodput),
            p99: mean(|score| score.p99),
            shed: mean(|score| score.shed),
            top_class: mean(|score| score.top_class),
            refused: mean(|score| score.refused),
        }
    }
}

fn top_class(outcome: &Outcome) -> f64 {
    match outcome.class_totals.as_slice() {
        [top, _, ..] => top.counts.in_target as f64 / top.counts.fresh as f64,
        _ => f64::NAN,
    }
}

/// Runs everything on all cores; the result does not depend on their number.
///
/// # Errors
/// A scenario or a contender's configuration that the engine refuses.
pub fn run(
    entries: &[Entry],
    contenders: &[Contender],
    seeds: &[u64],
    progress: &dyn Progress,
) -> Result<ArenaReport, ScenarioError> {
    let pairs: Vec<(&Entry, &Contender)> = entries
        .iter()
        .flat_map(|entry| contenders.iter().map(move |contender| (entry, contender)))
        .collect();
    progress.start(pairs.len());
    let scores = pairs
        .par_iter()
        .map(|(entry, contender)| {
            let score = fight(entry, contender, seeds);
            progress.done(&format!("{} against {}", contender.name, entry.name));
            score
        })
        .collect::<Result<Vec<Score>, _>>()?;
    Ok(ArenaReport::new(entries, contenders, seeds, &scores))
}

fn fight(entry: &Entry, contender: &Contender, seeds: &[u64]) -> Result<Score, ScenarioError> {
    let scores = seeds
        .iter()
        .map(|&seed| {
            let mut protector = contender.protector(&entry.scenario, seed)?;
            let outcome = entry.scenario.run_with(seed, protector.as_mut())?;
            Ok(Score::of(&entry.scenario, &outcome))
        })
        .collect::<Result<Vec<Score>, ScenarioError>>()?;
    Ok(Score::mean(&scores))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_thirty_scenarios_or_more_and_all_are_valid() {
        let entries = entries().unwrap();
        assert!(entries.len() >= 30, "{}", entries.len());
        let mut names: Vec<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
        names.dedup();
        assert_eq!(names.len(), entries.len(), "names are distinct");
        for entry in &entries {
            assert!(
                entry.scenario.target.is_some(),
                "{} has no target",
                entry.name
            );
        }
    }
}

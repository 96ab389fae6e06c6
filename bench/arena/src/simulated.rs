//! The same scenario with the same configuration in the simulator, to be put beside the live
//! result.

use rayon::prelude::*;
use tidegate_sentry::SentryConfig;
use tidegate_sim::arena::{Entry, ideal};
use tidegate_sim::rng::Streams;
use tidegate_sim::scenario::SentryProtector;

use crate::contender::{Contender, Tool};
use crate::failure::Failure;
use crate::report::finite;
use crate::summary::Summary;
use crate::template::Values;

/// Runs of the simulator, which show what chance does to a figure.
const SEEDS: u64 = 10;

/// What is compared, over all seeds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Simulated {
    /// Of the ideal, as [`Measures`](crate::measure::Measures) has it.
    pub(crate) goodput: Summary,
    /// Over the target.
    pub(crate) p95: Summary,
    /// Per second.
    pub(crate) answered: Summary,
}

#[derive(Debug, Clone, Copy)]
struct Run {
    goodput: f64,
    p95: f64,
    answered: f64,
}

/// Nothing for contenders that are not ours.
pub(crate) fn simulate(
    entry: &Entry,
    contender: &Contender,
    first_seed: u64,
) -> Result<Option<Simulated>, Failure> {
    if contender.tool != Tool::Tidegate {
        return Ok(None);
    }
    let config = protection(entry, contender)?;
    let runs = (0..SEEDS)
        .into_par_iter()
        .map(|n| run(entry, &config, first_seed.wrapping_add(n)));
    let runs = runs.collect::<Result<Vec<Run>, Failure>>()?;
    let summary = |part: fn(&Run) -> f64| Summary::of(runs.iter().map(part));
    Ok(Some(Simulated {
        goodput: summary(|run| run.goodput),
        p95: summary(|run| run.p95),
        answered: summary(|run| run.answered),
    }))
}

fn run(entry: &Entry, config: &SentryConfig, seed: u64) -> Result<Run, Failure> {
    let scenario = &entry.scenario;
    let target_s = scenario
        .target
        .map_or(f64::NAN, |target| target.as_secs_f64());
    let engine_seed = Streams::new(seed).seed_of("sentry");
    let mut protector = SentryProtector::new(config, scenario.replica_count(), engine_seed)?;
    let outcome = scenario.run_with(seed, &mut protector)?;
    let totals = &outcome.totals;
    Ok(Run {
        goodput: totals.counts.in_target as f64 / ideal(scenario, &outcome),
        p95: totals.histogram.quantile(0.95) / target_s,
        answered: totals.goodput(),
    })
}

impl Simulated {
    /// Goodput in percent and 95th percentile, with what they lie between.
    pub(crate) fn shown(&self) -> String {
        let Self { goodput, p95, .. } = self;
        format!(
            "{:.1} ({:.0}–{:.0}), {:.2} ({:.2}–{:.2})",
            100.0 * goodput.median,
            100.0 * goodput.low,
            100.0 * goodput.high,
            p95.median,
            p95.low,
            p95.high
        )
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        let figure = |summary: &Summary| {
            serde_json::json!({
                "median": finite(summary.median),
                "low": finite(summary.low),
                "high": finite(summary.high),
            })
        };
        serde_json::json!({
            "goodput_of_ideal": figure(&self.goodput),
            "p95_of_target": figure(&self.p95),
            "answered_per_s": figure(&self.answered),
        })
    }
}

/// The `protect` table of a contender's file.
pub(crate) fn protection(entry: &Entry, contender: &Contender) -> Result<SentryConfig, Failure> {
    let values = Values::default()
        .word("port", "0")
        .word("dir", "")
        .word("servers", "");
    let text = contender.config(entry, values)?;
    let said = |error: toml::de::Error| Failure::said(format!("{}: {error}", contender.name));
    let table: toml::Table = text.parse().map_err(said)?;
    let protect = table.get("protect").cloned();
    protect.map_or_else(
        || Ok(SentryConfig::default()),
        |protect| protect.try_into().map_err(said),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contender::CONTENDERS;

    #[test]
    fn the_engine_takes_every_file_of_ours_in_every_scenario() {
        for name in crate::program::SCENARIOS {
            let entry = crate::plant::entry(name).unwrap();
            for contender in CONTENDERS
                .iter()
                .filter(|contender| contender.tool == Tool::Tidegate)
            {
                protection(&entry, contender).unwrap().validate().unwrap();
            }
        }
    }
}

//! The same scenario with the same configuration in the simulator, to be put beside the live result.

use tidegate_sentry::SentryConfig;
use tidegate_sim::arena::{Entry, ideal};
use tidegate_sim::rng::Streams;
use tidegate_sim::scenario::SentryProtector;

use crate::contender::{Contender, Tool};
use crate::failure::Failure;
use crate::summary::Summary;
use crate::template::Values;

/// What is compared.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Simulated {
    /// Of the ideal, as [`Measures`](crate::measure::Measures) has it.
    pub(crate) goodput: f64,
    /// Over the target.
    pub(crate) p95: f64,
    /// Per second.
    pub(crate) answered: f64,
}

/// The medians over the seeds; nothing for contenders that are not ours.
pub(crate) fn simulate(
    entry: &Entry,
    contender: &Contender,
    seeds: &[u64],
) -> Result<Option<Simulated>, Failure> {
    if contender.tool != Tool::Tidegate {
        return Ok(None);
    }
    let config = protection(entry, contender)?;
    let target_s = entry
        .scenario
        .target
        .map_or(f64::NAN, |target| target.as_secs_f64());
    let runs = seeds.iter().map(|&seed| {
        let engine_seed = Streams::new(seed).seed_of("sentry");
        let mut protector =
            SentryProtector::new(&config, entry.scenario.replica_count(), engine_seed)?;
        let outcome = entry.scenario.run_with(seed, &mut protector)?;
        let totals = &outcome.totals;
        Ok(Simulated {
            goodput: totals.counts.in_target as f64 / ideal(&entry.scenario, &outcome),
            p95: totals.histogram.quantile(0.95) / target_s,
            answered: totals.goodput(),
        })
    });
    let runs = runs.collect::<Result<Vec<Simulated>, Failure>>()?;
    let median = |part: fn(&Simulated) -> f64| Summary::of(runs.iter().map(part)).median;
    Ok(Some(Simulated {
        goodput: median(|run| run.goodput),
        p95: median(|run| run.p95),
        answered: median(|run| run.answered),
    }))
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

//! What a clairvoyant could have served.

use crate::client::ClientSpec;
use crate::scenario::{Outcome, Scenario};

/// Requests that could have been answered within the target after the warm-up: in each interval the
/// honest ones that arrived (retries are the same requests again), or what the capacity of that
/// interval allows, whichever is less.
///
/// Streams are no goodput, and of an attack a clairvoyant serves nothing. Work that arrived in one
/// interval and is served in the next is credited to the first, which matters only where load
/// crosses the capacity within an interval.
#[must_use]
pub fn ideal(scenario: &Scenario, outcome: &Outcome) -> f64 {
    let honest = Honest::of(scenario);
    let warm_up_s = scenario.warm_up.as_secs_f64();
    outcome
        .rows
        .iter()
        .filter(|row| row.at - outcome.interval >= warm_up_s - 1e-9)
        .map(|row| {
            let arrived = row.counts.fresh as f64 * honest.share;
            arrived.min(row.capacity * outcome.interval / honest.work_s)
        })
        .sum()
}

/// Mean work of an honest request, in seconds on a core.
pub(super) fn mean_work_s(scenario: &Scenario) -> f64 {
    Honest::of(scenario).work_s
}

/// The ordinary clients of a scenario.
struct Honest {
    /// Their share of all requests.
    share: f64,
    /// Mean work of one of their requests, in seconds on a core.
    work_s: f64,
}

impl Honest {
    fn of(scenario: &Scenario) -> Self {
        let target_s = scenario.target.map_or(0.0, |target| target.as_secs_f64());
        let clients: Vec<&ClientSpec> = scenario
            .load
            .iter()
            .flat_map(|load| load.client.iter())
            .collect();
        let all: f64 = clients.iter().map(|client| client.share).sum();
        let (mut share, mut work) = (0.0, 0.0);
        for client in clients
            .into_iter()
            .filter(|client| is_honest(client, target_s))
        {
            share += client.share;
            work += client.share * client.law(&scenario.service).mean();
        }
        Self {
            share: share / all,
            work_s: work / share,
        }
    }
}

fn is_honest(client: &ClientSpec, target_s: f64) -> bool {
    let patient = client
        .timeout
        .as_ref()
        .is_none_or(|timeout| timeout.mean() >= target_s);
    patient && client.work == 1.0 && client.stream.is_none() && client.read.is_none()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Scenario;

    fn scenario(rate: &str) -> Scenario {
        let text = format!(
            "duration = '40s'\nwarm_up = '10s'\ntarget = '1s'\nservice = '10ms'\n\
             [load]\nrate = '{rate}'\nspacing = 'deterministic'\n"
        );
        tidegate_config::parse("ideal.toml", &text).unwrap()
    }

    #[test]
    fn is_the_load_or_the_capacity_whichever_is_less() {
        for (rate, expected) in [("50/s", 50.0), ("400/s", 100.0)] {
            let scenario = scenario(rate);
            let outcome = scenario.run(1).unwrap();
            let per_second = ideal(&scenario, &outcome) / outcome.totals.seconds;
            assert!((per_second - expected).abs() < 1.0, "{rate}: {per_second}");
        }
    }
}

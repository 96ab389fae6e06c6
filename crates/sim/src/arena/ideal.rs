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
    let clairvoyant = Clairvoyant::of(scenario);
    let warm_up_s = scenario.warm_up.as_secs_f64();
    outcome
        .rows
        .iter()
        .filter(|row| row.at - outcome.interval >= warm_up_s - 1e-9)
        .map(|row| {
            let arrived = row.counts.fresh as f64 * clairvoyant.share;
            arrived.min(row.capacity * outcome.interval / clairvoyant.work_s)
        })
        .sum()
}

/// Whom a clairvoyant serves: the ordinary clients of a scenario.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Clairvoyant {
    /// Their share of all requests.
    pub share: f64,
    /// Mean work of one of their requests, in seconds on a core.
    pub work_s: f64,
    target_s: f64,
}

impl Clairvoyant {
    /// The one of a scenario.
    #[must_use]
    pub fn of(scenario: &Scenario) -> Self {
        let mut clairvoyant = Self {
            share: 0.0,
            work_s: 0.0,
            target_s: scenario.target.map_or(0.0, |target| target.as_secs_f64()),
        };
        let clients = || scenario.load.iter().flat_map(|load| load.client.iter());
        let all: f64 = clients().map(|client| client.share).sum();
        let (mut share, mut work) = (0.0, 0.0);
        for client in clients().filter(|client| clairvoyant.serves(client)) {
            share += client.share;
            work += client.share * client.law(&scenario.service).mean();
        }
        clairvoyant.share = share / all;
        clairvoyant.work_s = work / share;
        clairvoyant
    }

    /// Whether a client is patient enough to be served and asks for what everybody asks for.
    #[must_use]
    pub fn serves(&self, client: &ClientSpec) -> bool {
        let patient = client
            .timeout
            .as_ref()
            .is_none_or(|timeout| timeout.mean() >= self.target_s);
        patient && client.work == 1.0 && client.stream.is_none() && client.read.is_none()
    }
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

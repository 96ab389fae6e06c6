//! What a clairvoyant could have served.

use crate::client::ClientSpec;
use crate::scenario::{ClassSpec, Outcome, Scenario};
use crate::service::Law;

/// Requests that could have been answered within the target after the warm-up: in each interval the
/// honest ones that arrived (retries are the same requests again), or what the capacity of that
/// interval allows, whichever is less; of them those whose bare work fits into the target on an
/// idle replica at its speed of that moment.
///
/// What is beyond the capacity of an interval waits for the next, as much as can be served within
/// the target. No protection knows what a request will take before it is done, so that those which
/// do not fit take their part of the capacity. Fast replicas are filled before slow ones. Streams
/// are no goodput, and of an attack a clairvoyant serves nothing.
#[must_use]
pub fn ideal(scenario: &Scenario, outcome: &Outcome) -> f64 {
    let clairvoyant = Clairvoyant::of(scenario);
    let warm_up_s = scenario.warm_up.as_secs_f64();
    let (mut sum, mut waiting) = (0.0, 0.0);
    for row in &outcome.rows {
        let middle = row.at - outcome.interval / 2.0;
        let offered = waiting + row.counts.fresh as f64 * clairvoyant.share;
        let capacity = row.capacity / clairvoyant.work_s;
        let served = offered.min(capacity * outcome.interval);
        waiting = (offered - served).min(capacity * clairvoyant.target_s);
        if row.at - outcome.interval >= warm_up_s - 1e-9 {
            let most = capacity * outcome.interval;
            sum += clairvoyant.in_time(scenario, middle, served, most);
        }
    }
    sum
}

/// Whom a clairvoyant serves: the ordinary clients of a scenario.
#[derive(Debug, Clone)]
pub struct Clairvoyant {
    /// Their share of all requests.
    pub share: f64,
    /// Mean work of one of their requests, in seconds on a core.
    pub work_s: f64,
    target_s: f64,
    /// The clients: share of all of theirs, work, target in seconds.
    clients: Vec<(f64, Law, f64)>,
}

impl Clairvoyant {
    /// The one of a scenario.
    #[must_use]
    pub fn of(scenario: &Scenario) -> Self {
        let mut clairvoyant = Self {
            share: 0.0,
            work_s: 0.0,
            target_s: scenario.target.map_or(0.0, |target| target.as_secs_f64()),
            clients: Vec::new(),
        };
        let classes = scenario.classes();
        let clients = || scenario.load.iter().flat_map(|load| load.client.iter());
        let all: f64 = clients().map(|client| client.share).sum();
        let served: Vec<&ClientSpec> = clients()
            .filter(|client| clairvoyant.serves(client))
            .collect();
        let share: f64 = served.iter().map(|client| client.share).sum();
        for client in served {
            let its_share = client.share / share;
            let law = client.law(&scenario.service);
            let named = |class: &&ClassSpec| Some(&class.name) == client.class.as_ref();
            let class = classes.iter().find(named).unwrap_or(&classes[0]);
            let target_s = class.target.map_or(f64::INFINITY, |it| it.as_secs_f64());
            clairvoyant.work_s += its_share * law.mean();
            clairvoyant.clients.push((its_share, law, target_s));
        }
        clairvoyant.share = share / all;
        clairvoyant
    }

    /// Of requests that are served, those that are in time, by replicas that can serve `most`
    /// together, the fastest first.
    fn in_time(&self, scenario: &Scenario, at_s: f64, served: f64, most: f64) -> f64 {
        let mut replicas = scenario.capacities_at(at_s);
        replicas.retain(|(cores, _)| *cores > 0.0);
        replicas.sort_by(|(_, one), (_, other)| other.total_cmp(one));
        let all: f64 = replicas.iter().map(|(cores, _)| cores).sum();
        let mut left = served;
        replicas
            .iter()
            .map(|(cores, speed)| {
                let done = left.min(most * cores / all);
                left -= done;
                done * self.fitting(*speed)
            })
            .sum()
    }

    /// Share of the requests whose work fits into its target on an idle replica of this speed.
    fn fitting(&self, speed: f64) -> f64 {
        let share = |(share, law, target_s): &(f64, Law, f64)| {
            share * law.share_within(target_s * speed * (1.0 + 1e-9))
        };
        self.clients.iter().map(share).sum()
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

    /// Exponential work of 100 ms with a target of 200 ms: 86 % fit, 63 % at half the speed.
    #[test]
    fn counts_only_work_that_fits_the_target_at_the_speed_of_the_moment() {
        let text = "duration = '40s'\ntarget = '200ms'\n\
                    service = { law = 'exponential', mean = '100ms' }\n\
                    [load]\nrate = '100/s'\nspacing = 'deterministic'\n[replica]\ncores = 5\n\
                    speed = [{ at = '0s', value = 1 }, { at = '20s', value = 0.5 }]\n";
        let scenario: Scenario = tidegate_config::parse("ideal.toml", text).unwrap();
        let outcome = scenario.run(1).unwrap();
        let expected =
            20.0 * 50.0 * (1.0 - (-2.0_f64).exp()) + 20.0 * 25.0 * (1.0 - (-1.0_f64).exp());
        let found = ideal(&scenario, &outcome);
        assert!((found - expected).abs() < 1.0, "{found}, not {expected}");
    }

    /// A load that the fast replica can take alone: the slow one, on which less fits, gets nothing.
    #[test]
    fn fast_replicas_are_filled_before_slow_ones() {
        let text = "duration = '20s'\ntarget = '200ms'\n\
                    service = { law = 'exponential', mean = '100ms' }\n\
                    [load]\nrate = '30/s'\nspacing = 'deterministic'\n\
                    [[replica]]\ncores = 4\nspeed = [{ at = '0s', value = 0.25 }]\n\
                    [[replica]]\ncores = 5\n";
        let scenario: Scenario = tidegate_config::parse("ideal.toml", text).unwrap();
        let found = ideal(&scenario, &scenario.run(1).unwrap());
        let expected = 20.0 * 30.0 * (1.0 - (-2.0_f64).exp());
        assert!((found - expected).abs() < 1.0, "{found}, not {expected}");
    }

    /// Two seconds of twice the capacity, and two of nothing: with a target of two seconds all can
    /// be served, with a short one half.
    #[test]
    fn what_is_beyond_the_capacity_of_a_second_waits_for_the_next() {
        let share = |target: &str| {
            let text = format!(
                "duration = '40s'\ntarget = '{target}'\nservice = '10ms'\n\
                 [load]\nrate = '100/s'\nspacing = 'deterministic'\n\
                 phases = [{{ times = 1, lasts = '2s' }}, {{ times = 0, lasts = '2s' }}]\n"
            );
            let scenario: Scenario = tidegate_config::parse("ideal.toml", &text).unwrap();
            ideal(&scenario, &scenario.run(1).unwrap()) / 4000.0
        };
        let (wide, short) = (share("2s"), share("20ms"));
        assert!((wide - 1.0).abs() < 0.03, "{wide}");
        assert!((short - 0.5).abs() < 0.05, "{short}");
    }
}

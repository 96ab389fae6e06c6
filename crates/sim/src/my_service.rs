//! A service and its load in a dozen flat keys, for people who ask about their own service.
//!
//! A [`Scenario`] can say much more, and needs to be learnt. Here a service is what its operator
//! knows of it: requests per second, service time and its variation, workers per replica, replicas,
//! the target. What changes meanwhile is a list of [`Change`]s.
//!
//! ```
//! use tidegate_sim::my_service::MyService;
//!
//! let service: MyService = tidegate_config::parse(
//!     "shop.toml",
//!     "rate = '300/s'\nservice = '40ms'\nworkers = 8\nreplicas = 3\nduration = '40s'",
//! )
//! .unwrap();
//! let rows = service.run(1).unwrap();
//! assert_eq!(rows[0].mode, "auto");
//! ```
//!
//! What breaks it: the law of service times is one of three by its variation alone (`service_cv`);
//! where the true law is known, write a scenario or use a recording (`tidegate whatif`).

use std::fmt::Write;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tidegate_config::{Dur, Rate, Share};

use crate::scenario::{Outcome, Scenario, ScenarioError};

/// A service, its load, and what happens to it.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MyService {
    /// Its name, for the table.
    pub title: String,
    /// How long the simulated run lasts.
    pub duration: Dur,
    /// At the beginning, left out of the table.
    pub warm_up: Dur,
    /// Requests per second, at random times (Poisson).
    pub rate: Rate,
    /// Mean time a worker needs for a request.
    pub service: Dur,
    /// How much that time varies: standard deviation over mean. 0 is always the same, 1 the
    /// exponential law, above 1 a log-normal law.
    pub service_cv: f64,
    /// Requests that a replica works on at full speed at once: its workers, threads or cores.
    #[schemars(range(min = 1))]
    pub workers: u32,
    /// Replicas.
    #[schemars(range(min = 1))]
    pub replicas: u32,
    /// Response time within which an answer is worth something.
    pub target: Dur,
    /// After this time without an answer a client leaves; the replica finishes its work all the
    /// same.
    #[schemars(example = &"5s")]
    pub timeout: Option<Dur>,
    /// How often a client repeats a request that failed or was refused, with growing pauses.
    pub retries: u32,
    /// What protects it; each gets a row of the table. `none` balances and protects nothing; the
    /// others are the modes of `protect.mode`: auto, static, step, pi, pid, lqr, sentry, off.
    pub modes: Vec<String>,
    /// Classes of requests, the most important first; without any all are alike.
    pub class: Vec<ClassOfService>,
    /// What changes in the course of the run, by time.
    pub change: Vec<Change>,
}

/// A class of requests.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClassOfService {
    /// Its name.
    #[schemars(example = &"gold")]
    pub name: String,
    /// Its part of all requests.
    #[schemars(example = &"20%")]
    pub share: Share,
    /// What an answer within the target is worth.
    #[serde(default = "one")]
    pub revenue: f64,
}

fn one() -> f64 {
    1.0
}

/// Something that changes.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// When.
    #[schemars(example = &"2m")]
    pub at: Dur,
    /// Requests per second from then on.
    #[serde(default)]
    #[schemars(example = &"600/s")]
    pub rate: Option<Rate>,
    /// How fast all workers are from then on; 100 % is the beginning.
    #[serde(default)]
    #[schemars(example = &"50%")]
    pub speed: Option<Share>,
    /// How many replicas are dead from then on.
    #[serde(default)]
    #[schemars(example = 1)]
    pub dead: Option<u32>,
}

impl Default for MyService {
    fn default() -> Self {
        Self {
            title: "My service".to_owned(),
            duration: std::time::Duration::from_secs(180).into(),
            warm_up: std::time::Duration::from_secs(20).into(),
            rate: Rate(200.0),
            service: std::time::Duration::from_millis(25).into(),
            service_cv: 1.0,
            workers: 4,
            replicas: 2,
            target: std::time::Duration::from_millis(500).into(),
            timeout: None,
            retries: 0,
            modes: vec!["auto".to_owned(), "none".to_owned()],
            class: Vec::new(),
            change: Vec::new(),
        }
    }
}

/// The law of service times with this mean and variation, as a scenario writes it.
pub(crate) fn law(mean_s: f64, cv: f64) -> String {
    let mean = format!("mean = '{:.6}ms'", mean_s * 1e3);
    match cv {
        cv if cv < 0.05 => format!("{{ law = 'deterministic', {mean} }}"),
        cv if cv < 0.95 => {
            let stages = (1.0 / (cv * cv)).round();
            format!("{{ law = 'erlang', {mean}, stages = {stages} }}")
        }
        cv if cv <= 1.05 => format!("{{ law = 'exponential', {mean} }}"),
        cv => format!("{{ law = 'log-normal', {mean}, cv2 = {} }}", cv * cv),
    }
}

impl MyService {
    /// Requests per second that its replicas can do at the beginning.
    #[must_use]
    pub fn capacity(&self) -> f64 {
        f64::from(self.replicas) * f64::from(self.workers) / self.service.as_secs_f64()
    }

    /// The same as a scenario, protected by `mode`.
    ///
    /// # Errors
    /// What does not fit together, by its key.
    pub fn scenario(&self, mode: &str) -> Result<Scenario, ScenarioError> {
        let refuse = |message: String| Err(ScenarioError::Inconsistent(message));
        if self.rate.0 <= 0.0 || self.service.is_zero() || self.target.is_zero() {
            return refuse("`rate`, `service` and `target` are more than 0".to_owned());
        }
        if !(self.service_cv >= 0.0 && self.service_cv <= 20.0) {
            return refuse(format!(
                "`service_cv` is from 0 to 20, not {}",
                self.service_cv
            ));
        }
        if self.workers == 0 || self.replicas == 0 {
            return refuse("`workers` and `replicas` are at least 1".to_owned());
        }
        let dead = self.change.iter().filter_map(|change| change.dead).max();
        if dead > Some(self.replicas) {
            return refuse("a change has more `dead` replicas than there are".to_owned());
        }
        let text = self.scenario_text(mode);
        let parsed: Result<Scenario, _> = tidegate_config::parse("scenario", &text);
        match parsed {
            Ok(scenario) => scenario.check().map(|()| scenario),
            Err(error) => refuse(error.message().to_owned()),
        }
    }

    fn scenario_text(&self, mode: &str) -> String {
        let mut out = String::new();
        let law = law(self.service.as_secs_f64(), self.service_cv);
        let (duration, warm_up, target) = (self.duration, self.warm_up, self.target);
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "duration = '{duration}'\nwarm_up = '{warm_up}'\ntarget = '{target}'\n\
             service = {law}\nreport_with_answers = true"
        );
        match mode {
            "none" => out += "protect = 'least-in-flight'\n",
            mode => {
                let _ = writeln!(out, "protect.mode = '{mode}'\nprotect.target = '{target}'");
                for class in &self.class {
                    let (name, revenue) = (&class.name, class.revenue);
                    let _ = writeln!(
                        out,
                        "[[protect.classes]]\nname = '{name}'\nrevenue = {revenue:?}"
                    );
                }
            }
        }
        if mode == "none" {
            for class in &self.class {
                let (name, revenue) = (&class.name, class.revenue);
                let _ = writeln!(out, "[[class]]\nname = '{name}'\nrevenue = {revenue:?}");
            }
        }
        self.put_load(&mut out);
        self.put_replicas(&mut out);
        out
    }

    fn put_load(&self, out: &mut String) {
        let first = format!("{{ at = '0s', value = '{}/s' }}", self.rate.0);
        let changes = self.change.iter().filter_map(|change| {
            let rate = change.rate?;
            Some(format!(
                "{{ at = '{}', value = '{}/s' }}",
                change.at, rate.0
            ))
        });
        let points: Vec<String> = std::iter::once(first).chain(changes).collect();
        let mut client = String::new();
        if let Some(timeout) = self.timeout {
            let _ = writeln!(client, "timeout = '{timeout}'");
        }
        if self.retries > 0 {
            let _ = writeln!(client, "retry = {{ attempts = {} }}", self.retries);
        }
        let _ = writeln!(out, "[[load]]\nrate = [{}]", points.join(", "));
        match self.class.is_empty() {
            true => {
                let _ = writeln!(out, "[[load.client]]\n{client}");
            }
            false => {
                for class in &self.class {
                    let (name, share) = (&class.name, class.share.0);
                    let _ = writeln!(
                        out,
                        "[[load.client]]\nclass = '{name}'\nshare = {share:?}\n{client}"
                    );
                }
            }
        }
    }

    fn put_replicas(&self, out: &mut String) {
        let mut speeds = vec!["{ at = '0s', value = 1.0 }".to_owned()];
        speeds.extend(self.change.iter().filter_map(|change| {
            let speed = change.speed?;
            Some(format!("{{ at = '{}', value = {:?} }}", change.at, speed.0))
        }));
        let speed = speeds.join(", ");
        for index in 0..self.replicas {
            let down = self.outages(index).join(", ");
            let _ = writeln!(
                out,
                "[[replica]]\ncores = {}\nspeed = [{speed}]\ndown = [{down}]",
                self.workers
            );
        }
    }

    /// When the replica is dead: the last ones die first.
    fn outages(&self, index: u32) -> Vec<String> {
        let mut outages = Vec::new();
        let mut since: Option<Dur> = None;
        for change in &self.change {
            let Some(dead) = change.dead else { continue };
            let is_dead = index >= self.replicas.saturating_sub(dead);
            match (is_dead, since) {
                (true, None) => since = Some(change.at),
                (false, Some(from)) => {
                    outages.push(format!("{{ from = '{from}', until = '{}' }}", change.at));
                    since = None;
                }
                _ => {}
            }
        }
        outages.extend(since.map(|from| format!("{{ from = '{from}' }}")));
        outages
    }

    /// Runs it once per mode; the same seed gives the same rows.
    ///
    /// # Errors
    /// What does not fit together, by its key.
    pub fn run(&self, seed: u64) -> Result<Vec<ServiceRow>, ScenarioError> {
        let run = |mode: &String| {
            let outcome = self.scenario(mode)?.run(seed)?;
            Ok(ServiceRow::of(mode, &outcome))
        };
        self.modes.iter().map(run).collect()
    }
}

/// What came of one mode.
#[derive(Debug, Clone, Serialize)]
pub struct ServiceRow {
    /// What protected the service.
    pub mode: String,
    /// Answers within the target, per second.
    pub goodput_per_second: f64,
    /// Of all attempts, the share answered within the target.
    pub in_target: f64,
    /// Of all attempts, the share refused.
    pub shed: f64,
    /// Of all attempts, the share whose client left or whose replica failed.
    pub lost: f64,
    /// Median response time of what was answered, in seconds.
    pub p50_seconds: f64,
    /// Its 95th percentile.
    pub p95_seconds: f64,
    /// Its 99th percentile.
    pub p99_seconds: f64,
    /// Mean utilization of the replicas.
    pub utilization: f64,
    /// What was earned, per second.
    pub revenue_per_second: f64,
    /// By class: name, share answered within the target.
    pub classes: Vec<(String, f64)>,
    /// Goodput over time: end of the second, answers within the target per second.
    #[serde(skip)]
    pub over_time: Vec<(f64, f64)>,
}

impl ServiceRow {
    fn of(mode: &str, outcome: &Outcome) -> Self {
        let totals = &outcome.totals;
        let counts = &totals.counts;
        let offered = counts.offered.max(1) as f64;
        let quantile = |share| totals.histogram.quantile(share);
        let classes = outcome.classes.iter().zip(&outcome.class_totals);
        Self {
            mode: mode.to_owned(),
            goodput_per_second: totals.goodput_in_target(),
            in_target: counts.in_target as f64 / offered,
            shed: counts.shed as f64 / offered,
            lost: (counts.abandoned + counts.dropped) as f64 / offered,
            p50_seconds: quantile(0.5),
            p95_seconds: quantile(0.95),
            p99_seconds: quantile(0.99),
            utilization: outcome.utilization,
            revenue_per_second: outcome.revenue() / totals.seconds,
            classes: classes
                .map(|(name, totals)| (name.clone(), totals.in_target_share()))
                .collect(),
            over_time: outcome.series("goodput_in_target").unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(text: &str) -> MyService {
        tidegate_config::parse("t.toml", text).unwrap()
    }

    #[test]
    fn overload_is_kept_in_time_by_auto_alone() {
        let rows = service("rate = '640/s'\nduration = '60s'\nwarm_up = '20s'")
            .run(1)
            .unwrap();
        let [auto, none] = &rows[..] else {
            panic!("two modes")
        };
        // The capacity is 320/s: half of what comes.
        assert!(auto.goodput_per_second > 280.0, "{auto:?}");
        assert!(none.goodput_per_second < 60.0, "{none:?}");
        assert!((auto.shed - 0.5).abs() < 0.06, "{auto:?}");
    }

    #[test]
    fn changes_take_effect() {
        let rows = service(
            "duration = '120s'\nmodes = ['auto']\n\
             [[change]]\nat = '40s'\ndead = 1\n[[change]]\nat = '80s'\ndead = 0",
        )
        .run(2)
        .unwrap();
        let mean = |from: f64, to: f64| {
            let part: Vec<f64> = rows[0]
                .over_time
                .iter()
                .filter(|(at, _)| (from..to).contains(at))
                .map(|(_, value)| *value)
                .collect();
            part.iter().sum::<f64>() / part.len() as f64
        };
        assert!(mean(20.0, 40.0) > 190.0);
        let one = mean(50.0, 80.0);
        assert!(
            (120.0..170.0).contains(&one),
            "160/s is what one replica can do: {one}"
        );
        assert!(mean(95.0, 120.0) > 185.0);
    }

    #[test]
    fn classes_are_served_by_importance() {
        let rows = service(
            "rate = '640/s'\nduration = '60s'\nmodes = ['auto']\n\
             class = [{ name = 'gold', share = '20%' }, { name = 'rest', share = '80%' }]",
        )
        .run(3)
        .unwrap();
        let classes = &rows[0].classes;
        assert!(classes[0].1 > 0.95 && classes[1].1 < 0.5, "{classes:?}");
    }

    #[test]
    fn nonsense_is_refused_by_its_key() {
        for (text, key) in [
            ("service_cv = -1", "service_cv"),
            ("workers = 0", "workers"),
            ("[[change]]\nat = '1s'\ndead = 3", "dead"),
            ("modes = ['fast']", "fast"),
            ("warm_up = '1h'", "warm_up"),
        ] {
            let error = service(text).run(1).unwrap_err().to_string();
            assert!(error.contains(key), "{error}");
        }
    }
}

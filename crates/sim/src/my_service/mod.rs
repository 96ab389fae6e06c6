//! A service and its load in a dozen flat keys, for people who ask about their own service.
//!
//! A [`Scenario`] can say much more, and needs to be learnt. Here a service is what its operator
//! knows of it: requests per second, service time and its variation, workers per replica, replicas,
//! the target. What changes meanwhile is a list of [`Change`]s: load, speed, and the pool. Several
//! applications, and several proxies in front of them, are tables of the same file.
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
//! Applications share nothing here: the proxy's own work costs no time, so that one cannot slow
//! another. `bench/faults/run --only overloaded_neighbour` measures that live.
//!
//! Decision: docs/decisions/0285-services-as-times-of-replicas.md.

mod pool;
mod row;

use std::fmt::Write;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tidegate_config::{Dur, Rate, Share};

use crate::rng::Streams;
use crate::scenario::{FleetSpec, Scenario, ScenarioError};
use pool::{Lifetime, lifetimes};

pub use row::{ALL, ServiceRow};

/// The mode that protects nothing.
const UNPROTECTED: &str = "none";

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
    /// Requests per second, at random times (Poisson) unless `arrivals` says otherwise.
    pub rate: Rate,
    /// How requests arrive: `poisson` (each by itself), `regular` (a beat), `batches` (`batch`
    /// requests at once), `pages` (each followed by `batch` parts), `on-off` (`busy` times without
    /// and with requests), `bursts` (by chance calm and busy times, with three times as many).
    pub arrivals: ArrivalsOfService,
    /// Requests that come at once, or parts of a page.
    #[schemars(range(min = 1))]
    pub batch: u32,
    /// Mean length of a busy time of `on-off` and `bursts`.
    pub busy: Dur,
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
    /// How long a replica that is added during the run starts before it serves.
    pub start_delay: Dur,
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
    /// Several proxies in front of the replicas; one when not given. Without protection (`none`)
    /// there are none.
    pub fleet: Option<FleetSpec>,
    /// Applications of one proxy, or of the fleet: each has an engine, load, classes and replicas
    /// of its own. What one leaves out is as at the top of the file. Without any the file is one.
    pub application: Vec<ApplicationOfService>,
}

/// How requests arrive.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ArrivalsOfService {
    /// Each by itself, at random times.
    #[default]
    Poisson,
    /// On a beat.
    Regular,
    /// Several at the same instant, at random times.
    Batches,
    /// Pages at random times, each followed by its parts after a service time.
    Pages,
    /// Times with and without requests, of the same length.
    OnOff,
    /// Busy times with three times the requests of calm ones, which last four times as long, of
    /// lengths that chance decides.
    Bursts,
}

/// One of several applications.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ApplicationOfService {
    /// Its name.
    #[schemars(example = &"api")]
    pub name: String,
    /// A mode of its own, in place of each of `modes` but `none`.
    #[serde(default)]
    #[schemars(example = &"auto")]
    pub mode: Option<String>,
    /// Requests per second.
    #[serde(default)]
    #[schemars(example = &"100/s")]
    pub rate: Option<Rate>,
    /// How its requests arrive.
    #[serde(default)]
    #[schemars(example = &"batches")]
    pub arrivals: Option<ArrivalsOfService>,
    /// Requests that come at once.
    #[serde(default)]
    #[schemars(range(min = 1), example = 8)]
    pub batch: Option<u32>,
    /// Mean length of a busy time.
    #[serde(default)]
    #[schemars(example = &"500ms")]
    pub busy: Option<Dur>,
    /// Mean time a worker needs for a request.
    #[serde(default)]
    #[schemars(example = &"40ms")]
    pub service: Option<Dur>,
    /// How much that time varies.
    #[serde(default)]
    pub service_cv: Option<f64>,
    /// Workers of a replica.
    #[serde(default)]
    #[schemars(range(min = 1), example = 8)]
    pub workers: Option<u32>,
    /// Replicas.
    #[serde(default)]
    #[schemars(range(min = 1), example = 3)]
    pub replicas: Option<u32>,
    /// How long a replica that is added starts.
    #[serde(default)]
    #[schemars(example = &"20s")]
    pub start_delay: Option<Dur>,
    /// Response time within which an answer is worth something.
    #[serde(default)]
    #[schemars(example = &"500ms")]
    pub target: Option<Dur>,
    /// When clients leave.
    #[serde(default)]
    #[schemars(example = &"5s")]
    pub timeout: Option<Dur>,
    /// How often clients repeat a request.
    #[serde(default)]
    pub retries: Option<u32>,
    /// Classes of its own.
    #[serde(default)]
    pub class: Vec<ClassOfService>,
    /// Changes of its own.
    #[serde(default)]
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
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
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
    /// How many replicas are dead from then on: the last ones of those that the run begins with.
    /// What is inside them is lost.
    #[serde(default)]
    #[schemars(example = 1)]
    pub dead: Option<u32>,
    /// This many replicas are added; they serve after `start_delay`.
    #[serde(default)]
    #[schemars(example = 1)]
    pub add: Option<u32>,
    /// This many of those that serve, the last ones, get no new requests and finish those inside.
    #[serde(default)]
    #[schemars(example = 1)]
    pub drain: Option<u32>,
    /// This many of those that are drained, the last drained first, are back.
    #[serde(default)]
    #[schemars(example = 1)]
    pub undrain: Option<u32>,
    /// This many leave the pool: drained ones first, then those that start, then the last ones.
    /// What is inside finishes.
    #[serde(default)]
    #[schemars(example = 1)]
    pub remove: Option<u32>,
    /// The pool has this many that are not drained from then on: the missing ones are added, others
    /// removed. A list of changes with this key is a schedule.
    #[serde(default)]
    #[schemars(example = 3)]
    pub replicas: Option<u32>,
}

impl Change {
    /// Whether replicas are added, drained or removed.
    #[must_use]
    pub fn is_of_pool(&self) -> bool {
        let of_pool = [
            self.add,
            self.drain,
            self.undrain,
            self.remove,
            self.replicas,
        ];
        of_pool.iter().any(Option::is_some)
    }
}

impl Default for MyService {
    fn default() -> Self {
        Self {
            title: "My service".to_owned(),
            duration: std::time::Duration::from_secs(180).into(),
            warm_up: std::time::Duration::from_secs(20).into(),
            rate: Rate(200.0),
            arrivals: ArrivalsOfService::Poisson,
            batch: 8,
            busy: std::time::Duration::from_millis(500).into(),
            service: std::time::Duration::from_millis(25).into(),
            service_cv: 1.0,
            workers: 4,
            replicas: 2,
            start_delay: Dur::default(),
            target: std::time::Duration::from_millis(500).into(),
            timeout: None,
            retries: 0,
            modes: vec!["auto".to_owned(), "none".to_owned()],
            class: Vec::new(),
            change: Vec::new(),
            fleet: None,
            application: Vec::new(),
        }
    }
}

impl ApplicationOfService {
    /// The service that it is: what it leaves out is as `file` has it.
    fn service(&self, file: &MyService) -> MyService {
        let mut it = MyService {
            title: self.name.clone(),
            rate: self.rate.unwrap_or(file.rate),
            arrivals: self.arrivals.unwrap_or(file.arrivals),
            batch: self.batch.unwrap_or(file.batch),
            busy: self.busy.unwrap_or(file.busy),
            service: self.service.unwrap_or(file.service),
            service_cv: self.service_cv.unwrap_or(file.service_cv),
            workers: self.workers.unwrap_or(file.workers),
            replicas: self.replicas.unwrap_or(file.replicas),
            start_delay: self.start_delay.unwrap_or(file.start_delay),
            target: self.target.unwrap_or(file.target),
            timeout: self.timeout.or(file.timeout),
            retries: self.retries.unwrap_or(file.retries),
            application: Vec::new(),
            ..file.clone()
        };
        if !self.class.is_empty() {
            it.class.clone_from(&self.class);
        }
        if !self.change.is_empty() {
            it.change.clone_from(&self.change);
        }
        it
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
        if !self.application.is_empty() {
            return refuse("this is of one service: leave `[[application]]` out".to_owned());
        }
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
        if self.batch == 0 || self.busy.is_zero() {
            return refuse("`batch` is at least 1, and `busy` longer than 0".to_owned());
        }
        let dead = self.change.iter().filter_map(|change| change.dead).max();
        if dead > Some(self.replicas) {
            return refuse("a change has more `dead` replicas than there are".to_owned());
        }
        let pool = lifetimes(self).map_err(ScenarioError::Inconsistent)?;
        let text = self.scenario_text(mode, &pool);
        let parsed: Result<Scenario, _> = tidegate_config::parse("scenario", &text);
        let mut scenario = match parsed {
            Ok(scenario) => scenario,
            Err(error) => return refuse(error.message().to_owned()),
        };
        if mode != UNPROTECTED {
            scenario.fleet.clone_from(&self.fleet);
        }
        scenario.check().map(|()| scenario)
    }

    /// Its applications by name, as services of their own; one without a name where there is one.
    ///
    /// # Errors
    /// A name that is missing, or there twice.
    pub fn applications(&self) -> Result<Vec<(Option<&str>, Self)>, ScenarioError> {
        let refuse = |message: String| Err(ScenarioError::Inconsistent(message));
        if self.application.is_empty() {
            return Ok(vec![(None, self.clone())]);
        }
        for (index, application) in self.application.iter().enumerate() {
            let name = application.name.as_str();
            if name.is_empty() || name == ALL {
                return refuse(format!(
                    "`name` of application {} is `{name}`: give it one, and not `{ALL}`, which is \
                     the name of their sum",
                    index + 1
                ));
            }
            if self.application[..index].iter().any(|it| it.name == name) {
                return refuse(format!(
                    "two applications have the `name` `{name}`: a name is for one"
                ));
            }
        }
        let named = |it: &'_ ApplicationOfService| it.service(self);
        let names = self.application.iter().map(|it| Some(it.name.as_str()));
        Ok(names.zip(self.application.iter().map(named)).collect())
    }

    fn scenario_text(&self, mode: &str, pool: &[Lifetime]) -> String {
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
            UNPROTECTED => out += "protect = 'least-in-flight'\n",
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
        if mode == UNPROTECTED {
            for class in &self.class {
                let (name, revenue) = (&class.name, class.revenue);
                let _ = writeln!(out, "[[class]]\nname = '{name}'\nrevenue = {revenue:?}");
            }
        }
        self.put_load(&mut out);
        self.put_replicas(pool, &mut out);
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
        let arrivals = self.arrival_keys();
        let _ = writeln!(out, "[[load]]\nrate = [{}]\n{arrivals}", points.join(", "));
        if self.class.is_empty() {
            let _ = writeln!(out, "[[load.client]]\n{client}");
        } else {
            for class in &self.class {
                let (name, share) = (&class.name, class.share.0);
                let _ = writeln!(
                    out,
                    "[[load.client]]\nclass = '{name}'\nshare = {share:?}\n{client}"
                );
            }
        }
    }

    /// The keys of a scenario's load that say how requests arrive.
    fn arrival_keys(&self) -> String {
        let (batch, busy, service) = (self.batch, self.busy, self.service);
        match self.arrivals {
            ArrivalsOfService::Poisson => String::new(),
            ArrivalsOfService::Regular => "spacing = 'deterministic'".to_owned(),
            ArrivalsOfService::Batches => format!("batch = {batch}"),
            ArrivalsOfService::Pages => {
                format!("fan_out = {{ requests = {batch}, after = '{service}' }}")
            }
            ArrivalsOfService::OnOff => format!(
                "phases = [{{ times = 1, lasts = '{busy}' }}, {{ times = 0, lasts = '{busy}' }}]"
            ),
            ArrivalsOfService::Bursts => {
                let phase = |times: u32, lasts: Dur| {
                    format!(
                        "{{ times = {times}, lasts = {{ law = 'exponential', mean = '{lasts}' }} }}"
                    )
                };
                let calm = (busy.0 * 4).into();
                format!("phases = [{}, {}]", phase(1, calm), phase(3, busy))
            }
        }
    }

    fn put_replicas(&self, pool: &[Lifetime], out: &mut String) {
        let mut speeds = vec!["{ at = '0s', value = 1.0 }".to_owned()];
        speeds.extend(self.change.iter().filter_map(|change| {
            let speed = change.speed?;
            Some(format!("{{ at = '{}', value = {:?} }}", change.at, speed.0))
        }));
        let speed = speeds.join(", ");
        for (index, replica) in (0..).zip(pool) {
            let down = self.outages(index).join(", ");
            let _ = writeln!(
                out,
                "[[replica]]\ncores = {}\nspeed = [{speed}]\ndown = [{down}]\n{}",
                self.workers,
                replica.keys(self.start_delay)
            );
        }
    }

    /// When the replica is dead: the last ones of the beginning die first.
    fn outages(&self, index: u32) -> Vec<String> {
        let mut outages = Vec::new();
        let mut since: Option<Dur> = None;
        for change in &self.change {
            let Some(dead) = change.dead else { continue };
            let last = self.replicas.saturating_sub(dead)..self.replicas;
            let is_dead = last.contains(&index);
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

    /// Runs it once per mode; the same seed gives the same rows. Of several applications each has a
    /// row per mode, and so has their sum.
    ///
    /// # Errors
    /// What does not fit together, by its key and application.
    pub fn run(&self, seed: u64) -> Result<Vec<ServiceRow>, ScenarioError> {
        let applications = self.applications()?;
        // All of them are checked before the first one runs.
        let mut runs = Vec::new();
        for mode in &self.modes {
            for (name, service) in &applications {
                let mode = self.mode_of(*name, mode);
                let scenario = service.scenario(mode);
                runs.push((*name, mode, scenario.map_err(|error| within(*name, error))?));
            }
        }
        let mut rows = Vec::new();
        for (mode, runs) in self.modes.iter().zip(runs.chunks(applications.len())) {
            let mut outcomes = Vec::new();
            for (name, mode, scenario) in runs {
                let seed = name.map_or(seed, |name| Streams::new(seed).seed_of(name));
                let outcome = scenario.run(seed)?;
                rows.push(ServiceRow::of(*name, mode, &outcome));
                outcomes.push(outcome);
            }
            if outcomes.len() > 1 {
                rows.extend(ServiceRow::of_all(mode, &outcomes));
            }
        }
        Ok(rows)
    }

    fn mode_of<'a>(&'a self, application: Option<&str>, mode: &'a str) -> &'a str {
        let mut all = self.application.iter();
        let named = all.find(|it| Some(it.name.as_str()) == application);
        let own = named.and_then(|it| it.mode.as_deref());
        own.filter(|_| mode != UNPROTECTED).unwrap_or(mode)
    }
}

/// The error with the application that has it.
fn within(application: Option<&str>, error: ScenarioError) -> ScenarioError {
    match application {
        Some(name) => ScenarioError::Inconsistent(format!("application `{name}`: {error}")),
        None => error,
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

    /// Of ten requests in front of two workers of 25 ms the last waits for four others, and longer
    /// where a batch follows another.
    #[test]
    fn arrivals_are_those_that_the_file_names() {
        let p95 = |arrivals: &str| {
            let text = format!(
                "rate = '20/s'\nservice_cv = 0\nworkers = 2\nreplicas = 1\nduration = '40s'\n\
                 warm_up = '5s'\nmodes = ['none']\nbatch = 10\narrivals = '{arrivals}'"
            );
            service(&text).run(1).unwrap()[0].p95_seconds
        };
        assert!(p95("regular") < 0.03, "{}", p95("regular"));
        assert!((0.1..0.4).contains(&p95("batches")), "{}", p95("batches"));
        for arrivals in ["pages", "on-off", "bursts", "poisson"] {
            let found = p95(arrivals);
            assert!(found > p95("regular"), "{arrivals}: {found}");
        }
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
            ("batch = 0", "batch"),
            ("[[change]]\nat = '1s'\ndead = 3", "dead"),
            ("modes = ['fast']", "fast"),
            ("warm_up = '1h'", "warm_up"),
        ] {
            let error = service(text).run(1).unwrap_err().to_string();
            assert!(error.contains(key), "{error}");
        }
    }
}

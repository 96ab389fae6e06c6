//! What would a recorded time have been with another configuration?
//!
//! Arrivals, classes, paths and patience are those of the recording; each request that was served
//! keeps its own work, which [`service`] finds. A request that was refused has none: it is drawn
//! from those of its class and path that were served near it in time. The same engine as in the
//! proxy then decides about them, in the simulator.
//!
//! The first row is always the self-check: the recorded configuration, replayed, with its distance
//! from what really happened. That distance goes into the interval of every forecast.
//!
//! What changed in the meantime changes in a forecast at the same times: configurations, the pool,
//! replicas that were found down (`history`) or became slow (`speed`). Clients that come back
//! after a refusal are not replayed: their behaviour is fitted, and they come back when the
//! variant refuses them (`clients`).
//!
//! What breaks it: a replica that was never full has shown no bound; the proxy's own state at the
//! beginning of the recording is not known; clients that cannot be told apart are replayed as they
//! came (`cautions` says so).
//!
//! Decision: docs/decisions/0106-forecasts-from-recorded-stays.md.

mod clients;
mod figures;
mod history;
pub mod self_test;
pub mod service;
mod speed;
mod variant;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use rand::RngExt;
use rayon::prelude::*;
use serde::Serialize;
use tidegate_control::Timestamp;
use tidegate_record::{Recording, Request};
use tidegate_sentry::{ModeName, SentryConfig};

use crate::rng::{SimRng, Streams};
use crate::scenario::{
    Choice, LoadSpec, OneOrMany, Outage, Outcome, Protect, ReplicaSpec, Scenario, ScenarioError,
    SentryProtector, Trace, TraceKind, TraceRequest,
};
use crate::server::Bound;
use crate::service::Law;
use crate::workload::{Schedule, schedule};
use clients::Clients;
use figures::figures;
use history::{History, Presence};
use service::{Order, ReplicaModel, Stay};
use speed::Slowness;

pub use figures::{ClassFigures, Figures, ReasonShare};
pub use variant::{Variant, VariantError};

/// Served requests with a service time of which a model is made, at least.
const SERVED_MIN: usize = 100;
/// Served requests near a refused one from which its work is drawn.
const STAYS_NEAR_MAX: usize = 200;
/// A load by the workers seen from which on a replica may be filled. Chosen: below it a queue
/// inside is short whatever the bound.
const FILLING_LOAD_MIN: f64 = 0.7;
/// Of the beginning, left out of all rows, at most.
const WARM_UP_MAX_S: f64 = 10.0;

/// Why a recording cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum WhatIfError {
    /// There is too little in it.
    #[error(
        "{0} requests were served in this recording; a model of the service needs at least \
         {SERVED_MIN}"
    )]
    TooFew(usize),
    /// Several applications, each with an engine and replicas of its own.
    #[error(
        "{} applications are in this recording, each with an engine and replicas of its own: {}; \
         choose one with `--application NAME`",
        .0.len(),
        .0.join(", ")
    )]
    Several(Vec<String>),
    /// Requests were served, but it is not known how long they took.
    #[error(
        "only {0} of the {1} requests that were served have a service time; a model of the service \
         needs at least {SERVED_MIN}: log response times, and import the log again \
         (docs/recording.md)"
    )]
    NoTimes(usize, usize),
    /// The recorded configuration cannot be read.
    #[error("the recorded configuration cannot be read: {0}")]
    Config(String),
    /// A variant cannot be run.
    #[error("{0}: {1}")]
    Variant(String, ScenarioError),
    /// A variant cannot be understood.
    #[error(transparent)]
    Unknown(#[from] VariantError),
}

/// A recording, understood.
#[derive(Debug)]
pub struct Model {
    /// What protected the service at last; none for an access log.
    pub config: Option<SentryConfig>,
    /// Its replicas.
    pub replicas: Vec<ReplicaModel>,
    /// What should be known before a forecast is believed.
    pub cautions: Vec<String>,
    requests: Vec<Request>,
    /// Work of each request at usual speed, where it is known.
    works: Vec<Option<f64>>,
    first_us: u64,
    seconds: f64,
    /// Names of the classes that requests refer to.
    classes: Vec<String>,
    reasons: Vec<String>,
    target_s: Option<f64>,
    /// Earlier configurations too, by the seconds from which they held.
    configs: Vec<(f64, SentryConfig)>,
    presence: Vec<Presence>,
    slowness: Vec<Slowness>,
    clients: Clients,
}

/// One row: a variant, with what it would have been.
#[derive(Debug, Clone, Serialize)]
pub struct Forecast {
    /// The variant in words.
    pub name: String,
    /// Means over the repetitions.
    pub figures: Figures,
    /// Half of each interval: chance, the self-check's distance, and for variants what forecasts
    /// for live runs were wrong by.
    pub plus_minus: Figures,
    /// The same by class.
    pub by_class: Vec<ClassFigures>,
    /// Refusals by reason.
    pub by_reason: Vec<ReasonShare>,
    /// What should be known about this row.
    pub cautions: Vec<String>,
    /// Whether it asks for nothing that no replica has shown.
    pub trustworthy: bool,
    /// Goodput over time: seconds, answers within the target per second.
    #[serde(skip)]
    pub over_time: Vec<(f64, f64)>,
}

/// What really happened, the self-check, and the variants.
#[derive(Debug, Clone, Serialize)]
pub struct Answer {
    /// What really happened.
    pub recorded: Figures,
    /// The same by class.
    pub recorded_by_class: Vec<ClassFigures>,
    /// Refusals that really happened, by reason.
    pub recorded_by_reason: Vec<ReasonShare>,
    /// The recorded configuration, replayed, then the variants.
    pub rows: Vec<Forecast>,
    /// The self-check's distance, relative; of shares in points.
    pub distance: Figures,
    /// Whether the self-check is near enough for the rest to be believed.
    pub trustworthy: bool,
    /// What should be known before it is believed.
    pub cautions: Vec<String>,
    /// Goodput over time as it was.
    #[serde(skip)]
    pub recorded_over_time: Vec<(f64, f64)>,
}

impl Model {
    /// Understands a recording.
    ///
    /// # Errors
    /// When too little was served, or its configuration cannot be read.
    pub fn learn(recording: &Recording) -> Result<Self, WhatIfError> {
        let decided = |request: &&Request| request.decision != tidegate_record::Decision::Rejected;
        let requests: Vec<Request> = recording.requests.iter().filter(decided).copied().collect();
        let served = requests
            .iter()
            .filter(|request| request.is_served())
            .count();
        if served < SERVED_MIN {
            return Err(WhatIfError::TooFew(served));
        }
        let timed = |request: &&Request| request.is_served() && request.service_us > 0;
        let timed = requests.iter().filter(timed).count();
        if timed < SERVED_MIN {
            return Err(WhatIfError::NoTimes(timed, served));
        }
        let application = only_application(recording, &requests)?;
        let history = History::learn(recording, &requests, application)?;
        let (replicas, numbers, works) = learn_replicas(&requests);
        let first_us = requests.first().map_or(0, |request| request.at_us);
        let last_us = requests.last().map_or(0, |request| request.at_us);
        let presence = numbers.iter().map(|&number| {
            let known = history.presence.get(number);
            known.cloned().flatten().unwrap_or_default()
        });
        let mut presence: Vec<Presence> = presence.collect();
        if !presence.iter().any(Presence::is_first) {
            presence.fill(Presence::default());
        }
        let config = history.configs.last().map(|(_, config)| config.clone());
        let mut model = Self {
            target_s: config
                .as_ref()
                .and_then(|c| c.target)
                .map(|target| target.as_secs_f64()),
            classes: recording.meta.tables.classes.clone(),
            reasons: recording.meta.tables.reasons.clone(),
            config,
            replicas,
            cautions: Vec::new(),
            works,
            first_us,
            seconds: ((last_us - first_us) as f64 / 1e6).max(1e-3),
            clients: Clients::learn(&requests),
            requests,
            configs: history.configs,
            presence,
            slowness: Vec::new(),
        };
        model.learn_speed(&numbers);
        model.cautions = model.find_cautions(recording);
        model.cautions.extend(history.cautions);
        Ok(model)
    }

    /// Work becomes that of a replica of usual speed.
    fn learn_speed(&mut self, numbers: &[usize]) {
        let place = |request: &Request| {
            let number = request.replica_index().unwrap_or(0);
            let place = numbers.iter().position(|known| *known == number);
            place.unwrap_or(numbers.len())
        };
        let first_us = self.first_us;
        let seconds =
            |request: &Request| (request.admitted_us().saturating_sub(first_us)) as f64 / 1e6;
        let (requests, works) = (&self.requests, &mut self.works);
        self.slowness = speed::learn(requests, works, numbers.len(), place, seconds);
        for (request, work) in requests.iter().zip(works) {
            if let (Some(work), Some(own)) = (work.as_mut(), self.slowness.get(place(request))) {
                *work /= speed::at(own, seconds(request));
            }
        }
    }

    /// The most replicas that were in the pool at once.
    #[must_use]
    pub fn pool_size(&self) -> usize {
        self.lanes().len()
    }

    /// Replicas of which one follows another in the pool, by their positions.
    fn lanes(&self) -> Vec<Vec<usize>> {
        let mut order: Vec<usize> = (0..self.presence.len()).collect();
        order.sort_by(|&a, &b| self.presence[a].from.total_cmp(&self.presence[b].from));
        let mut lanes: Vec<Vec<usize>> = Vec::new();
        for index in order {
            let from = self.presence[index].from;
            let is_free = |lane: &&mut Vec<usize>| {
                let last = lane.last().and_then(|&last| self.presence[last].until);
                last.is_some_and(|until| until <= from)
            };
            match lanes.iter_mut().find(is_free) {
                Some(lane) => lane.push(index),
                None => lanes.push(vec![index]),
            }
        }
        lanes
    }

    fn find_cautions(&self, recording: &Recording) -> Vec<String> {
        let mut cautions = Vec::new();
        let count = self.requests.len().max(1) as f64;
        let shed = self
            .requests
            .iter()
            .filter(|request| request.is_shed())
            .count() as f64;
        if self.replicas.iter().any(|replica| !replica.capacity_seen) {
            cautions.push(
                "a replica was never full: its bound is not in the recording, and a variant that \
                 sends it more is too good"
                    .to_owned(),
            );
        }
        let is_known = |request: &Request| request.client != 0 || request.tenant != 0;
        let clients_known = self.requests.iter().any(is_known);
        if shed / count > 0.05 {
            cautions.push(format!(
                "{:.0} % were refused: their work is drawn from like requests{}",
                100.0 * shed / count,
                if clients_known {
                    ""
                } else {
                    ", and as the recording does not tell clients apart, those that came back \
                         are replayed as they came"
                }
            ));
        }
        cautions.extend(self.clients.in_words());
        let config = recording.meta.config.as_ref();
        if config.is_some_and(|config| config.get("channel").is_some_and(|it| !it.is_null())) {
            cautions.push(
                "clients that the channel tells to hold back are replayed as they came".to_owned(),
            );
        }
        let slow = self.slowness.iter().filter(|parts| parts.len() > 1).count();
        if slow > 0 {
            cautions.push(format!(
                "{slow} replica(s) changed their speed: the forecast has the same speeds at the \
                 same times"
            ));
        }
        if self
            .replicas
            .iter()
            .any(|replica| replica.penalty.is_some())
        {
            cautions.push(
                "throughput falls when more requests are inside a replica: the forecast has this \
                 curve"
                    .to_owned(),
            );
        }
        if self.seconds < 60.0 {
            cautions.push(format!("the recording is only {:.0} s long", self.seconds));
        }
        if recording.lost() > 0 || !recording.problems.is_empty() {
            cautions.push("the recording is not whole".to_owned());
        }
        if self.target_s.is_none() {
            cautions.push(
                "the recorded configuration has no target: every answer counts as goodput; name \
                 one with --target"
                    .to_owned(),
            );
        }
        cautions
    }

    /// What counts as in time, where the recorded configuration does not say.
    pub fn set_target(&mut self, target: Duration) {
        self.target_s = Some(target.as_secs_f64());
        self.cautions
            .retain(|caution| !caution.contains("--target"));
    }

    /// The target of all requests; none where classes have targets of their own.
    #[must_use]
    pub fn one_target(&self) -> Option<Duration> {
        let classes = self.config.iter().flat_map(|config| &config.classes);
        let own = classes.filter(|class| class.target.is_some()).count();
        self.target_s
            .filter(|_| own == 0)
            .map(Duration::from_secs_f64)
    }

    fn warm_up_s(&self) -> f64 {
        (self.seconds / 10.0).min(WARM_UP_MAX_S)
    }

    /// What really happened.
    #[must_use]
    pub fn recorded(&self) -> Figures {
        self.recorded_of(|_| true)
    }

    fn recorded_of(&self, is_counted: impl Fn(&Request) -> bool) -> Figures {
        let begin = self.first_us + (self.warm_up_s() * 1e6) as u64;
        let measured: Vec<&Request> = self
            .requests
            .iter()
            .filter(|request| request.at_us >= begin && is_counted(request))
            .collect();
        let seconds = self.seconds - self.warm_up_s();
        let mut times: Vec<f64> = measured
            .iter()
            .filter(|r| r.is_served())
            .map(|r| response_s(r))
            .collect();
        times.sort_by(f64::total_cmp);
        let quantile = |share: f64| {
            let at = (share * times.len().saturating_sub(1) as f64).round() as usize;
            times.get(at).copied().unwrap_or(f64::NAN)
        };
        let good = measured.iter().filter(|request| self.is_good(request));
        let worth: f64 = good
            .clone()
            .map(|request| self.revenue(request.class))
            .sum();
        let good = good.count() as f64;
        let count = measured.len().max(1) as f64;
        let shed = measured.iter().filter(|request| request.is_shed()).count() as f64;
        let admitted = measured
            .iter()
            .filter(|request| request.is_admitted())
            .count() as f64;
        Figures {
            offered_per_second: measured.len() as f64 / seconds,
            admitted_per_second: admitted / seconds,
            goodput_per_second: good / seconds,
            in_target: good / count,
            shed: shed / count,
            p50_seconds: quantile(0.5),
            p95_seconds: quantile(0.95),
            p99_seconds: quantile(0.99),
            revenue_per_second: worth / seconds,
        }
    }

    fn recorded_by_class(&self) -> Vec<ClassFigures> {
        let names = self.class_names(self.config.as_ref());
        let classes = names.iter().enumerate();
        classes
            .map(|(index, class)| ClassFigures {
                class: class.clone(),
                figures: self.recorded_of(|it| self.class_in(&names, it.class) == index),
                plus_minus: Figures::default(),
            })
            .collect()
    }

    fn recorded_by_reason(&self) -> Vec<ReasonShare> {
        let begin = self.first_us + (self.warm_up_s() * 1e6) as u64;
        let measured = self.requests.iter().filter(|it| it.at_us >= begin);
        let count = measured.clone().count().max(1) as f64;
        let mut shares: HashMap<&str, f64> = HashMap::new();
        for request in measured.filter(|request| request.is_shed()) {
            let reason = usize::from(request.reason).checked_sub(1);
            let reason = reason.and_then(|at| self.reasons.get(at));
            *shares
                .entry(reason.map_or("unknown", String::as_str))
                .or_default() += 1.0 / count;
        }
        let mut shares: Vec<ReasonShare> = shares
            .into_iter()
            .map(|(reason, share)| ReasonShare {
                reason: reason.to_owned(),
                share,
                plus_minus: 0.0,
            })
            .collect();
        shares.sort_by(|a, b| b.share.total_cmp(&a.share));
        shares
    }

    /// Names of the classes of a configuration; never none.
    fn class_names(&self, config: Option<&SentryConfig>) -> Vec<String> {
        let classes = config.map(|config| config.classes.iter().map(|it| it.name.clone()));
        let classes: Vec<String> = classes.into_iter().flatten().collect();
        if classes.is_empty() {
            vec![tidegate_sentry::DEFAULT_CLASS.to_owned()]
        } else {
            classes
        }
    }

    /// The recorded class among those of a configuration; the least important where it is not one.
    fn class_in(&self, names: &[String], class: u16) -> usize {
        let name = self.classes.get(usize::from(class));
        let place = name.and_then(|name| names.iter().position(|known| known == name));
        place.unwrap_or(names.len() - 1)
    }

    fn own_class(&self, class: u16) -> Option<&tidegate_sentry::ClassConfig> {
        let classes = &self.config.as_ref()?.classes;
        let name = self.classes.get(usize::from(class));
        let named = classes.iter().find(|known| Some(&known.name) == name);
        named.or(classes.last())
    }

    fn class_target_s(&self, class: u16) -> Option<f64> {
        let own = self.own_class(class).and_then(|class| class.target);
        own.map(|target| target.as_secs_f64()).or(self.target_s)
    }

    fn is_good(&self, request: &Request) -> bool {
        let in_time = |target| response_s(request) <= target;
        request.is_served() && self.class_target_s(request.class).is_none_or(in_time)
    }

    fn revenue(&self, class: u16) -> f64 {
        self.own_class(class).map_or(1.0, |class| class.revenue)
    }

    fn recorded_over_time(&self) -> Vec<(f64, f64)> {
        // Whole seconds only: the last one would look like a collapse.
        let mut counts = vec![0.0; self.seconds as usize];
        for request in self.requests.iter().filter(|request| self.is_good(request)) {
            let left = request.at_us + request.waiting_us + request.service_us - self.first_us;
            if let Some(count) = counts.get_mut((left / 1_000_000) as usize) {
                *count += 1.0;
            }
        }
        (1..).map(f64::from).zip(counts).collect()
    }

    /// The requests as a source, with the work of refused ones drawn anew and without those that
    /// repeated others.
    fn trace(&self, variant: &Variant, classes: &[String], rng: &mut SimRng) -> Trace {
        let rate = variant.rate;
        let optional = variant.optional.unwrap_or(0.0);
        let pools = Pools::new(self);
        let mut kinds: HashMap<TraceKind, u32> = HashMap::new();
        let mut trace = Trace {
            retry: self.clients.retry.clone(),
            ..Trace::default()
        };
        let fresh = self
            .requests
            .iter()
            .zip(&self.clients.is_repetition)
            .enumerate();
        for (index, (request, _)) in fresh.filter(|(_, (_, is_repetition))| !**is_repetition) {
            let kind = TraceKind {
                class: self.class_in(classes, request.class) as u16,
                path: (request.path != 0).then_some(request.path),
                tenant: (request.tenant != 0).then_some(request.tenant),
            };
            let place = *kinds.entry(kind).or_insert_with(|| {
                trace.kinds.push(kind);
                trace.kinds.len() as u32 - 1
            });
            let deadline = Duration::from_micros(request.deadline_us);
            let at_s = (request.at_us - self.first_us) as f64 / 1e6;
            // A rate above 1 repeats some requests nearby, one below leaves some out.
            let copies = rate.floor() as u32 + u32::from(rng.random::<f64>() < rate.fract());
            for copy in 0..copies {
                let moved = if copy == 0 { 0.0 } else { rng.random::<f64>() };
                let own = self.works[index].filter(|_| copy == 0);
                let work = own.unwrap_or_else(|| pools.draw(request, rng));
                trace.requests.push(TraceRequest {
                    at: Duration::from_secs_f64(at_s + moved),
                    kind: place,
                    work: work * (1.0 - optional),
                    optional: work * optional,
                    patience: self.clients.patience(request, rng),
                    deadline: (request.deadline_us > 0).then_some(deadline),
                    bytes: 4096,
                });
            }
        }
        trace.requests.sort_by_key(|request| request.at);
        trace
    }

    fn scenario(&self, variant: &Variant, seed: u64) -> Result<Scenario, WhatIfError> {
        let mut rng = Streams::new(seed).stream("whatif");
        let config = variant.config(self.config.as_ref())?;
        let classes = self.class_names(config.as_ref());
        let warm_up = Duration::from_secs_f64(self.warm_up_s());
        let load = LoadSpec {
            trace: Some(Arc::new(self.trace(variant, &classes, &mut rng))),
            ..LoadSpec::default()
        };
        let target = config
            .as_ref()
            .and_then(|config| config.target)
            .or_else(|| {
                self.target_s
                    .map(|seconds| Duration::from_secs_f64(seconds).into())
            });
        let reports = config
            .as_ref()
            .is_some_and(|c| matches!(c.mode, ModeName::Step | ModeName::Pi | ModeName::Pid));
        Ok(Scenario {
            title: variant.name.clone(),
            duration: Duration::from_secs_f64(self.seconds).into(),
            warm_up: warm_up.into(),
            interval: Duration::from_secs(1).into(),
            report_interval: Duration::from_secs(1).into(),
            report_with_answers: reports,
            health_delay: Duration::from_secs(1).into(),
            target,
            class: Vec::new(),
            service: Law::constant(0.0),
            // What it adds is each request's own.
            optional: variant.optional.map(|_| Law::constant(0.0)),
            load: OneOrMany(vec![load]),
            replica: OneOrMany(self.replica_specs(variant)),
            proxy_cpu: None,
            fleet: None,
            protect: match config {
                Some(config) => Protect::Sentry(Box::new(config)),
                None => Protect::Unprotected(Choice::LeastInFlight),
            },
        })
    }

    /// The recorded replicas with their times in the pool and their speeds, and more like the
    /// middle one, or fewer.
    fn replica_specs(&self, variant: &Variant) -> Vec<ReplicaSpec> {
        let lanes = self.lanes();
        let count = variant.replicas(lanes.len());
        let recorded = lanes.iter().take(count).flatten().map(|&index| {
            let slowness = self.slowness.get(index).map_or(&[][..], Vec::as_slice);
            let mut spec = spec_of(&self.replicas[index], variant, slowness);
            self.presence[index].apply(&mut spec);
            spec
        });
        let more = count.saturating_sub(lanes.len());
        let more = std::iter::repeat_n(spec_of(self.middle(), variant, &[]), more);
        let mut specs: Vec<ReplicaSpec> = recorded.chain(more).collect();
        // Those that are left may all have come later.
        if !specs.iter().any(ReplicaSpec::is_first)
            && let Some(first) = specs.first_mut()
        {
            Presence::default().apply(first);
        }
        let dies = Duration::from_secs_f64(self.warm_up_s()).into();
        let left = specs.len().saturating_sub(variant.kill as usize);
        for spec in &mut specs[left..] {
            spec.down = vec![Outage {
                from: dies,
                until: None,
            }];
        }
        specs
    }

    /// A run of a variant. Of several configurations in the recording the variant changes each.
    fn run(&self, variant: &Variant, seed: u64) -> Result<Outcome, WhatIfError> {
        let scenario = self.scenario(variant, seed)?;
        let failed = |error| WhatIfError::Variant(variant.name.clone(), error);
        let configs = match self.configs.len() {
            0 | 1 => return scenario.run(seed).map_err(failed),
            _ => &self.configs,
        };
        let mut changed = Vec::new();
        for (at, config) in configs {
            if let Some(config) = variant.config(Some(config))? {
                let at = Timestamp::ZERO + Duration::from_secs_f64(*at);
                changed.push((at, config));
            }
        }
        let seed_of = Streams::new(seed).seed_of("sentry");
        let weights = scenario.first_weights();
        let (_, first) = changed.remove(0);
        let engine = SentryProtector::weighted(&first, &weights, seed_of);
        let engine = engine.map_err(|error| failed(error.into()))?;
        let mut engine = engine.with_reloads(changed);
        scenario.run_with(seed, &mut engine).map_err(failed)
    }

    /// One run of a variant, without the self-check and without intervals.
    ///
    /// # Errors
    /// A variant that the engine refuses.
    pub fn forecast_once(&self, variant: &Variant, seed: u64) -> Result<Forecast, WhatIfError> {
        variant.check_replicas(self.pool_size())?;
        variant.check_protected(self.config.is_some())?;
        Ok(forecast(&variant.name, &[self.run(variant, seed)?]))
    }

    /// What arrived over what this many replicas like the middle one could do.
    #[must_use]
    pub fn load(&self, replicas: u32) -> f64 {
        let works = self.works.iter().flatten();
        let count = works.clone().count().max(1) as f64;
        let mean = works.sum::<f64>() / count;
        let workers = f64::from(self.middle().workers) * f64::from(replicas);
        self.requests.len() as f64 / self.seconds * mean / workers.max(1.0)
    }

    /// The replica that new ones are like.
    fn middle(&self) -> &ReplicaModel {
        let mut sorted: Vec<&ReplicaModel> = self.replicas.iter().collect();
        sorted.sort_by_key(|replica| replica.workers);
        sorted[sorted.len() / 2]
    }

    /// Answers for the recorded configuration and each variant, `repetitions` times each.
    ///
    /// # Errors
    /// A variant that the engine refuses.
    pub fn ask(
        &self,
        variants: &[Variant],
        repetitions: u32,
        seed: u64,
    ) -> Result<Answer, WhatIfError> {
        for variant in variants {
            variant.check_replicas(self.pool_size())?;
            variant.check_protected(self.config.is_some())?;
        }
        let recorded = self.recorded();
        let own = Variant::recorded(self.config.is_some());
        let all: Vec<&Variant> = std::iter::once(&own).chain(variants).collect();
        let jobs: Vec<(usize, u64)> = (0..all.len())
            .flat_map(|index| (0..u64::from(repetitions)).map(move |n| (index, seed + n)))
            .collect();
        let outcomes = jobs
            .par_iter()
            .map(|&(index, seed)| self.run(all[index], seed))
            .collect::<Result<Vec<Outcome>, WhatIfError>>()?;
        let mut rows: Vec<Forecast> = outcomes
            .chunks(repetitions as usize)
            .zip(&all)
            .map(|(outcomes, variant)| Forecast {
                cautions: self.cautions_of(variant),
                trustworthy: !self.fills_what_was_never_full(variant),
                ..forecast(&variant.name, outcomes)
            })
            .collect();
        let checked = rows[0].figures;
        let error = checked.combine(recorded, |ours, truth| (ours - truth).abs());
        for row in &mut rows {
            row.plus_minus = row
                .plus_minus
                .combine(error, |chance, error| chance + error);
        }
        for row in rows.iter_mut().skip(1) {
            let model = model_error(&row.figures);
            row.plus_minus = row.plus_minus.combine(model, |known, model| known + model);
        }
        let distance = distance(&checked, &recorded);
        Ok(Answer {
            recorded,
            recorded_by_class: self.recorded_by_class(),
            recorded_by_reason: self.recorded_by_reason(),
            rows,
            trustworthy: is_near(&distance),
            distance,
            cautions: self.cautions.clone(),
            recorded_over_time: self.recorded_over_time(),
        })
    }
    /// Whether a variant comes near a bound that the recording does not have.
    fn fills_what_was_never_full(&self, variant: &Variant) -> bool {
        let is_seen = self.replicas.iter().all(|replica| replica.capacity_seen);
        // What was recorded filled nothing, and workers that are given are a bound.
        if is_seen || variant.is_recorded() || variant.workers.is_some() {
            return false;
        }
        let left = variant
            .replicas(self.pool_size())
            .saturating_sub(variant.kill as usize);
        let replicas = u32::try_from(left).unwrap_or(u32::MAX).max(1);
        self.load(replicas) * variant.rate / variant.speed > FILLING_LOAD_MIN
    }

    /// What a variant asks that the recording cannot answer.
    fn cautions_of(&self, variant: &Variant) -> Vec<String> {
        let mode = |config: Option<&SentryConfig>| config.map(|config| config.mode);
        let theirs = mode(variant.config(self.config.as_ref()).ok().flatten().as_ref());
        let mut cautions = Vec::new();
        if self.fills_what_was_never_full(variant) {
            cautions.push(
                "NOT TO BE TRUSTED: it may fill a replica that was never full in the recording"
                    .to_owned(),
            );
        }
        if theirs == Some(ModeName::Ilac) && variant.optional.is_none() {
            cautions.push(
                "mode ilac leaves optional content out before it refuses, and the recording does \
                 not show what that costs: the forecast has none; say its share of the work with \
                 `--set optional=30%`"
                    .to_owned(),
            );
        }
        if mode(self.config.as_ref()) == Some(ModeName::Ilac) {
            cautions.push(
                "the recording was made in mode ilac: some of its requests were served without \
                 optional content, and the forecast takes their work for all there is"
                    .to_owned(),
            );
        }
        cautions
    }
}

/// A replica of a scenario.
fn spec_of(model: &ReplicaModel, variant: &Variant, slowness: &[(f64, f64)]) -> ReplicaSpec {
    let workers = variant.workers.unwrap_or(model.workers).max(1);
    let cores = std::num::NonZeroU32::new(workers).unwrap_or(std::num::NonZeroU32::MIN);
    let points: Vec<schedule::Point<f64>> = slowness
        .iter()
        .map(|&(from, factor)| schedule::Point {
            at: Duration::from_secs_f64(from).into(),
            value: variant.speed / factor,
            ramp: false,
        })
        .collect();
    let constant = || Schedule::constant(variant.speed);
    let speed = Schedule::new(&points).unwrap_or_else(|_| constant());
    ReplicaSpec {
        cores,
        slots: (model.order == Order::Sharing).then_some(Bound::Unlimited),
        penalty: model.penalty,
        speed: speed.into(),
        nucleus: variant.optional.is_some(),
        ..ReplicaSpec::default()
    }
}

/// The one application of the requests; none where the recording has no names of applications.
fn only_application(
    recording: &Recording,
    requests: &[Request],
) -> Result<Option<usize>, WhatIfError> {
    let names = &recording.meta.tables.applications;
    let mut counts = vec![0_u64; names.len()];
    for request in requests {
        if let Some(count) = counts.get_mut(usize::from(request.application)) {
            *count += 1;
        }
    }
    let present = counts.iter().enumerate().filter(|(_, count)| **count > 0);
    let present: Vec<usize> = present.map(|(index, _)| index).collect();
    match present[..] {
        [] => Ok(None),
        [one] => Ok(Some(one)),
        _ => {
            let shown = |&at: &usize| format!("{} ({} requests)", names[at], counts[at]);
            Err(WhatIfError::Several(present.iter().map(shown).collect()))
        }
    }
}

/// Refused share from which on a forecast is one of an overload.
const OVERLOAD_SHED_MIN: f64 = 0.01;

/// By how much forecasts for live runs were wrong, beyond what the self-check shows: twice the
/// median error of `bench/whatif/run` (docs/whatif.md), without and in an overload.
fn model_error(figures: &Figures) -> Figures {
    let [rate, shed, p95, p99] = if figures.shed < OVERLOAD_SHED_MIN {
        [0.005, 0.0, 0.22, 0.16]
    } else {
        [0.07, 0.04, 0.22, 0.40]
    };
    Figures {
        offered_per_second: 0.0,
        admitted_per_second: rate * figures.admitted_per_second,
        goodput_per_second: rate * figures.goodput_per_second,
        in_target: rate * figures.in_target,
        shed,
        p50_seconds: p95 * figures.p50_seconds,
        p95_seconds: p95 * figures.p95_seconds,
        p99_seconds: p99 * figures.p99_seconds,
        revenue_per_second: rate * figures.revenue_per_second,
    }
}

/// How far the self-check is from what happened: shares in points, the rest relative.
fn distance(checked: &Figures, recorded: &Figures) -> Figures {
    let relative = checked.combine(*recorded, |ours, truth| {
        if truth.abs() > 1e-9 {
            (ours - truth) / truth
        } else {
            ours - truth
        }
    });
    Figures {
        in_target: checked.in_target - recorded.in_target,
        shed: checked.shed - recorded.shed,
        ..relative
    }
}

/// Twice what forecasts should keep: goodput within 10 %, shed within 6 points, p95 within 20 %.
fn is_near(distance: &Figures) -> bool {
    distance.goodput_per_second.abs() <= 0.10
        && distance.shed.abs() <= 0.06
        && distance.p95_seconds.abs() <= 0.20
}

fn response_s(request: &Request) -> f64 {
    (request.waiting_us + request.service_us) as f64 / 1e6
}

fn forecast(name: &str, outcomes: &[Outcome]) -> Forecast {
    let all: Vec<Figures> = outcomes.iter().map(figures).collect();
    let (mean, chance) = figures::mean(&all);
    let first = outcomes.first();
    let over_time = first.and_then(|first| first.series("goodput_in_target"));
    Forecast {
        name: name.to_owned(),
        figures: mean,
        plus_minus: chance,
        by_class: figures::by_class(outcomes),
        by_reason: figures::by_reason(outcomes),
        cautions: Vec::new(),
        trustworthy: true,
        over_time: over_time.unwrap_or_default(),
    }
}

/// Replicas, their numbers in the recording, and the work of each request that was served.
fn learn_replicas(requests: &[Request]) -> (Vec<ReplicaModel>, Vec<usize>, Vec<Option<f64>>) {
    let mut stays: Vec<Vec<(Stay, usize)>> = Vec::new();
    for (index, request) in requests.iter().enumerate() {
        // An access log may not name replicas: then there is one.
        let replica = request.replica_index().unwrap_or(0);
        if !request.is_admitted() || request.service_us == 0 {
            continue;
        }
        if stays.len() <= replica {
            stays.resize_with(replica + 1, Vec::new);
        }
        let stay = Stay {
            from: request.admitted_us() as f64 / 1e6,
            to: request.left_us() as f64 / 1e6,
        };
        stays[replica].push((stay, index));
    }
    let numbered = stays.into_iter().enumerate();
    let (numbers, stays): (Vec<usize>, Vec<_>) =
        numbered.filter(|(_, stays)| !stays.is_empty()).unzip();
    let mut works = vec![None; requests.len()];
    let mut models = Vec::new();
    for mut stays in stays {
        stays.sort_by(|a, b| a.0.from.total_cmp(&b.0.from));
        let (times, places): (Vec<Stay>, Vec<usize>) = stays.into_iter().unzip();
        let model = service::learn(&times);
        for (&place, &work) in places.iter().zip(&model.works) {
            // Of those that were not served the work is not known to its end.
            works[place] = requests[place].is_served().then_some(work);
        }
        models.push(model);
    }
    (models, numbers, works)
}

/// Works of served requests, by class and path, in order of time.
struct Pools {
    by_path: HashMap<(u16, u64), Vec<(u64, f64)>>,
    by_class: HashMap<u16, Vec<(u64, f64)>>,
    all: Vec<(u64, f64)>,
}

impl Pools {
    fn new(model: &Model) -> Self {
        let mut pools = Self {
            by_path: HashMap::new(),
            by_class: HashMap::new(),
            all: Vec::new(),
        };
        for (request, work) in model.requests.iter().zip(&model.works) {
            if let Some(work) = *work {
                let sample = (request.at_us, work);
                let path = (request.class, request.path);
                pools.by_path.entry(path).or_default().push(sample);
                pools
                    .by_class
                    .entry(request.class)
                    .or_default()
                    .push(sample);
                pools.all.push(sample);
            }
        }
        pools
    }

    /// The work of one like it, near it in time.
    fn draw(&self, request: &Request, rng: &mut SimRng) -> f64 {
        const ENOUGH: usize = 20;
        let path = self.by_path.get(&(request.class, request.path));
        let pool = path
            .filter(|pool| pool.len() >= ENOUGH)
            .or_else(|| {
                self.by_class
                    .get(&request.class)
                    .filter(|pool| pool.len() >= ENOUGH)
            })
            .unwrap_or(&self.all);
        let at = pool.partition_point(|sample| sample.0 < request.at_us);
        let from = at
            .saturating_sub(STAYS_NEAR_MAX / 2)
            .min(pool.len().saturating_sub(STAYS_NEAR_MAX));
        let near = &pool[from..pool.len().min(from + STAYS_NEAR_MAX)];
        near[rng.random_range(0..near.len())].1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forecast_of_an_overload_is_less_certain() {
        let figures = |shed: f64| Figures {
            goodput_per_second: 100.0,
            p95_seconds: 0.5,
            shed,
            ..Figures::default()
        };
        let (calm, busy) = (model_error(&figures(0.0)), model_error(&figures(0.3)));
        assert!(
            calm.goodput_per_second < 1.0 && calm.shed == 0.0,
            "{calm:?}"
        );
        assert!(
            busy.goodput_per_second > 5.0 && busy.shed > 0.03,
            "{busy:?}"
        );
        assert!((busy.p95_seconds - 0.11).abs() < 1e-9, "{busy:?}");
    }
}

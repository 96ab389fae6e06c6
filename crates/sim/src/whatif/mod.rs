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
//! What breaks it: clients that come back after a refusal are replayed as they came, so that a
//! variant that refuses less still gets their repetitions (`cautions` says so when many
//! were refused); a replica that was never full has shown no bound; the proxy's own state at the
//! beginning of the recording is not known.
//!
//! Decision: docs/decisions/0106-forecasts-from-recorded-stays.md.

pub mod self_test;
pub mod service;
mod variant;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use rand::RngExt;
use rayon::prelude::*;
use serde::Serialize;
use tidegate_record::{Ending, Recording, Request};
use tidegate_sentry::{ModeName, SentryConfig};

use crate::rng::{SimRng, Streams};
use crate::scenario::{
    Choice, LoadSpec, OneOrMany, Outcome, Protect, ReplicaSpec, Scenario, ScenarioError, Trace,
    TraceKind, TraceRequest,
};
use crate::server::Bound;
use crate::service::Law;
use service::{Order, ReplicaModel, Stay};

pub use variant::{Variant, VariantError};

/// Served requests with a service time of which a model is made, at least.
const SERVED_MIN: usize = 100;
/// Served requests near a refused one from which its work is drawn.
const STAYS_NEAR_MAX: usize = 200;
/// Of the beginning, left out of all rows, at most.
const WARM_UP_MAX_S: f64 = 10.0;

/// Why a recording cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum WhatIfError {
    /// There is too little in it.
    #[error(
        "{0} requests were served in this recording; a model of the service needs at least 100"
    )]
    TooFew(usize),
    /// Requests were served, but it is not known how long they took.
    #[error(
        "only {0} of the {1} requests that were served have a service time; a model of the service \
         needs at least 100: log response times, and import the log again (docs/recording.md)"
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
    /// What protected the service; none for an access log.
    pub config: Option<SentryConfig>,
    /// Its replicas.
    pub replicas: Vec<ReplicaModel>,
    /// What should be known before a forecast is believed.
    pub cautions: Vec<String>,
    requests: Vec<Request>,
    /// Work of each request, where it is known.
    works: Vec<Option<f64>>,
    first_us: u64,
    seconds: f64,
    class_count: usize,
    target_s: Option<f64>,
}

/// Figures of a run or of what really happened.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Default)]
pub struct Figures {
    /// Requests per second.
    pub offered_per_second: f64,
    /// Requests sent to a replica, per second.
    pub admitted_per_second: f64,
    /// Answers within the target, per second.
    pub goodput_per_second: f64,
    /// Share of requests answered within the target.
    pub in_target: f64,
    /// Share refused.
    pub shed: f64,
    /// Median response time of what was answered, in seconds.
    pub p50_seconds: f64,
    /// Its 95th percentile.
    pub p95_seconds: f64,
    /// Its 99th percentile.
    pub p99_seconds: f64,
    /// Worth of the answers within the target, per second.
    pub revenue_per_second: f64,
}

impl Figures {
    const PARTS: [fn(&mut Self) -> &mut f64; 9] = [
        |f| &mut f.offered_per_second,
        |f| &mut f.admitted_per_second,
        |f| &mut f.goodput_per_second,
        |f| &mut f.in_target,
        |f| &mut f.shed,
        |f| &mut f.p50_seconds,
        |f| &mut f.p95_seconds,
        |f| &mut f.p99_seconds,
        |f| &mut f.revenue_per_second,
    ];

    /// Part by part.
    fn combine(mut self, mut other: Self, with: impl Fn(f64, f64) -> f64) -> Self {
        let mut result = Self::default();
        for part in Self::PARTS {
            *part(&mut result) = with(*part(&mut self), *part(&mut other));
        }
        result
    }
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
    /// Refusals by class: name, share of the class.
    pub shed_by_class: Vec<(String, f64)>,
    /// Refusals by reason: name, share of all.
    pub shed_by_reason: Vec<(String, f64)>,
    /// Goodput over time: seconds, answers within the target per second.
    #[serde(skip)]
    pub over_time: Vec<(f64, f64)>,
}

/// What really happened, the self-check, and the variants.
#[derive(Debug, Clone, Serialize)]
pub struct Answer {
    /// What really happened.
    pub recorded: Figures,
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
        let config = recorded_config(recording)?;
        let (replicas, works) = learn_replicas(&requests);
        let first_us = requests.first().map_or(0, |request| request.at_us);
        let last_us = requests.last().map_or(0, |request| request.at_us);
        let mut model = Self {
            target_s: config
                .as_ref()
                .and_then(|c| c.target)
                .map(|target| target.as_secs_f64()),
            class_count: recording.meta.tables.classes.len().max(1),
            config,
            replicas,
            cautions: Vec::new(),
            works,
            first_us,
            seconds: ((last_us - first_us) as f64 / 1e6).max(1e-3),
            requests,
        };
        model.cautions = model.find_cautions(recording);
        Ok(model)
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
        if shed / count > 0.05 {
            cautions.push(format!(
                "{:.0} % were refused: their work is drawn from like requests, and clients that \
                 came back are replayed as they came",
                100.0 * shed / count
            ));
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

    fn warm_up_s(&self) -> f64 {
        (self.seconds / 10.0).min(WARM_UP_MAX_S)
    }

    /// What really happened.
    #[must_use]
    pub fn recorded(&self) -> Figures {
        let begin = self.first_us + (self.warm_up_s() * 1e6) as u64;
        let measured: Vec<&Request> = self
            .requests
            .iter()
            .filter(|request| request.at_us >= begin)
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
            offered_per_second: count / seconds,
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

    fn class_target_s(&self, class: u16) -> Option<f64> {
        let config = self.config.as_ref();
        let own = config.and_then(|config| config.classes.get(usize::from(class))?.target);
        own.map(|target| target.as_secs_f64()).or(self.target_s)
    }

    fn is_good(&self, request: &Request) -> bool {
        let in_time = |target| response_s(request) <= target;
        request.is_served() && self.class_target_s(request.class).is_none_or(in_time)
    }

    fn revenue(&self, class: u16) -> f64 {
        let config = self.config.as_ref();
        let class = config.and_then(|config| config.classes.get(usize::from(class)));
        class.map_or(1.0, |class| class.revenue)
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

    /// The requests as a source, with the work of refused ones drawn anew.
    fn trace(&self, rate: f64, rng: &mut SimRng) -> Trace {
        let pools = Pools::new(self);
        let mut kinds: HashMap<TraceKind, u32> = HashMap::new();
        let mut trace = Trace::default();
        for (index, request) in self.requests.iter().enumerate() {
            let kind = TraceKind {
                class: request.class.min(self.class_count as u16 - 1),
                path: (request.path != 0).then_some(request.path),
                tenant: (request.tenant != 0).then_some(request.tenant),
            };
            let place = *kinds.entry(kind).or_insert_with(|| {
                trace.kinds.push(kind);
                trace.kinds.len() as u32 - 1
            });
            let left = request.ending == Ending::Abandoned;
            let deadline = Duration::from_micros(request.deadline_us);
            let at_s = (request.at_us - self.first_us) as f64 / 1e6;
            // A rate above 1 repeats some requests nearby, one below leaves some out.
            let copies = rate.floor() as u32 + u32::from(rng.random::<f64>() < rate.fract());
            for copy in 0..copies {
                let moved = if copy == 0 { 0.0 } else { rng.random::<f64>() };
                let own = self.works[index].filter(|_| copy == 0);
                trace.requests.push(TraceRequest {
                    at: Duration::from_secs_f64(at_s + moved),
                    kind: place,
                    work: own.unwrap_or_else(|| pools.draw(request, rng)),
                    patience: left.then(|| Duration::from_micros(request.response_us.max(1))),
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
        let warm_up = Duration::from_secs_f64(self.warm_up_s());
        let load = LoadSpec {
            trace: Some(Arc::new(self.trace(variant.rate, &mut rng))),
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
            .is_some_and(|c| matches!(c.mode, ModeName::Step | ModeName::Pi));
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
            optional: None,
            load: OneOrMany(vec![load]),
            replica: OneOrMany(self.replica_specs(variant)),
            fleet: None,
            protect: match config {
                Some(config) => Protect::Sentry(Box::new(config)),
                None => Protect::Unprotected(Choice::LeastInFlight),
            },
        })
    }

    /// The recorded replicas, and more like the middle one, or fewer.
    fn replica_specs(&self, variant: &Variant) -> Vec<ReplicaSpec> {
        let count = variant.replicas(self.replicas.len());
        let mut sorted: Vec<&ReplicaModel> = self.replicas.iter().collect();
        sorted.sort_by_key(|replica| replica.workers);
        let middle = sorted[sorted.len() / 2];
        let model = |index: usize| self.replicas.get(index).unwrap_or(middle);
        (0..count)
            .map(|index| {
                let model = model(index);
                let workers = variant.workers.unwrap_or(model.workers).max(1);
                let cores = std::num::NonZeroU32::new(workers).unwrap_or(std::num::NonZeroU32::MIN);
                ReplicaSpec {
                    cores,
                    slots: (model.order == Order::Sharing).then_some(Bound::Unlimited),
                    speed: crate::workload::Schedule::constant(variant.speed).into(),
                    ..ReplicaSpec::default()
                }
            })
            .collect()
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
            variant.check_replicas(self.replicas.len())?;
        }
        let recorded = self.recorded();
        let own = Variant::recorded(self.config.is_some());
        let all: Vec<&Variant> = std::iter::once(&own).chain(variants).collect();
        let jobs: Vec<(usize, u64)> = (0..all.len())
            .flat_map(|index| (0..u64::from(repetitions)).map(move |n| (index, seed + n)))
            .collect();
        let outcomes = jobs
            .par_iter()
            .map(|&(index, seed)| {
                let variant = all[index];
                let run = self.scenario(variant, seed)?.run(seed);
                run.map_err(|error| WhatIfError::Variant(variant.name.clone(), error))
            })
            .collect::<Result<Vec<Outcome>, WhatIfError>>()?;
        let mut rows: Vec<Forecast> = outcomes
            .chunks(repetitions as usize)
            .zip(&all)
            .map(|(outcomes, variant)| forecast(&variant.name, outcomes))
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
            rows,
            trustworthy: is_near(&distance),
            distance,
            cautions: self.cautions.clone(),
            recorded_over_time: self.recorded_over_time(),
        })
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

fn figures(outcome: &Outcome) -> Figures {
    let totals = &outcome.totals;
    let counts = &totals.counts;
    let offered = counts.offered.max(1) as f64;
    Figures {
        offered_per_second: totals.offered(),
        admitted_per_second: counts.admitted as f64 / totals.seconds,
        goodput_per_second: totals.goodput_in_target(),
        in_target: counts.in_target as f64 / offered,
        shed: counts.shed as f64 / offered,
        p50_seconds: totals.histogram.quantile(0.5),
        p95_seconds: totals.histogram.quantile(0.95),
        p99_seconds: totals.histogram.quantile(0.99),
        revenue_per_second: outcome.revenue() / totals.seconds,
    }
}

fn forecast(name: &str, outcomes: &[Outcome]) -> Forecast {
    let count = outcomes.len() as f64;
    let all: Vec<Figures> = outcomes.iter().map(figures).collect();
    let sum = |total: Figures, one: &Figures| total.combine(*one, |a, b| a + b);
    let mean = all.iter().fold(Figures::default(), sum);
    let mean = mean.combine(mean, |total, _| total / count);
    let squares = all.iter().fold(Figures::default(), |total, one| {
        let distance = one.combine(mean, |a, b| (a - b).powi(2));
        total.combine(distance, |a, b| a + b)
    });
    // Two standard errors of the mean.
    let chance = squares.combine(mean, |square, _| {
        2.0 * (square / (count - 1.0).max(1.0)).sqrt() / count.sqrt()
    });
    let first = &outcomes[0];
    let offered = first.totals.counts.offered.max(1) as f64;
    let classes = first.classes.iter().zip(&first.class_totals);
    let reasons = tidegate_sentry::ShedReason::ALL
        .iter()
        .zip(first.totals.counts.shed_by);
    Forecast {
        name: name.to_owned(),
        figures: mean,
        plus_minus: chance,
        shed_by_class: classes
            .map(|(name, totals)| {
                let offered = totals.counts.offered.max(1) as f64;
                (name.clone(), totals.counts.shed as f64 / offered)
            })
            .collect(),
        shed_by_reason: reasons
            .filter(|(_, count)| *count > 0)
            .map(|(reason, count)| (reason.as_str().to_owned(), count as f64 / offered))
            .collect(),
        over_time: first.series("goodput_in_target").unwrap_or_default(),
    }
}

fn recorded_config(recording: &Recording) -> Result<Option<SentryConfig>, WhatIfError> {
    let Some(protect) = recording
        .meta
        .config
        .as_ref()
        .and_then(|config| config.get("protect"))
    else {
        return Ok(None);
    };
    variant::config_of(protect.clone())
        .map(Some)
        .map_err(WhatIfError::Config)
}

/// Replicas by their index, and the work of each request that was served.
fn learn_replicas(requests: &[Request]) -> (Vec<ReplicaModel>, Vec<Option<f64>>) {
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
    stays.retain(|stays| !stays.is_empty());
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
    (models, works)
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

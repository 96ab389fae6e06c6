//! Forecasts against the truth: random services, each recorded in the simulator with one
//! configuration and then run with another.
//!
//! The forecast sees what a proxy would have recorded and nothing else: times in microseconds,
//! decisions, replicas. The truth is the same traffic, with each request's real work, in the real
//! replicas under the other configuration.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use rand::RngExt;
use rayon::prelude::*;
use serde::Serialize;
use serde_json::json;
use tidegate_control::Timestamp;
use tidegate_record::{Decision as Decided, Ending as Ended, Meta, Recording, Request, Tables};
use tidegate_sentry::{Arrival, Ending, Observer, ReplicaId, Report};

use super::{Figures, Model, Variant, WhatIfError, distance, figures};
use crate::rng::{SimRng, Streams};
use crate::scenario::{
    Decision, LoadSpec, OneOrMany, Orders, PoolChange, Protect, Protector, ReplicaSpec, RequestId,
    Scenario, Trace, TraceKind, TraceRequest, Wakes,
};
use crate::server::Bound;
use crate::service::{Law, unit_exponential};

/// Requests of a run.
const REQUESTS: f64 = 6000.0;
/// A run lasts at least this long, so that controllers get somewhere.
const SECONDS_MIN: f64 = 40.0;
/// Bounds of the load levels that are told apart, offered over capacity.
pub const LEVELS: [f64; 4] = [0.7, 0.95, 1.3, f64::INFINITY];

/// One service: how a forecast for it compares with the truth.
#[derive(Debug, Clone, Serialize)]
pub struct Case {
    /// Its number, which is also its seed's.
    pub number: u64,
    /// In words.
    pub service: String,
    /// What is different.
    pub variant: String,
    /// Offered over capacity, with the recorded configuration.
    pub load: f64,
    /// The forecast's distance from the truth: relative, of shares in points.
    pub error: Figures,
    /// The self-check's distance from the recording.
    pub self_check: Figures,
    /// Whether the forecast called itself trustworthy.
    pub trusted: bool,
    /// Whether the true goodput lies in the forecast's interval.
    pub covered: bool,
}

/// Runs `count` random services.
///
/// # Errors
/// A service that the simulator or the engine refuses.
pub fn run(count: u64, repetitions: u32, seed: u64) -> Result<Vec<Case>, WhatIfError> {
    (0..count)
        .into_par_iter()
        .map(|number| case(number, repetitions, seed.wrapping_add(number)))
        .collect()
}

/// A service with its traffic and configuration, drawn at random.
struct Service {
    trace: Arc<Trace>,
    cores: NonZeroU32,
    shared: bool,
    replicas: u32,
    seconds: f64,
    load: f64,
    protect: serde_json::Value,
    variant: Vec<String>,
    words: String,
}

fn case(number: u64, repetitions: u32, seed: u64) -> Result<Case, WhatIfError> {
    let service = Service::draw(&mut Streams::new(seed).stream("self-test"));
    let recorded = Variant::recorded(true);
    let variant = Variant::parse(service.variant.iter().map(String::as_str))?;
    let model = Model::learn(&service.record(&recorded, seed)?)?;
    let answer = model.ask(std::slice::from_ref(&variant), repetitions, seed)?;
    let truth = service.truth(&variant, seed)?;
    let row = &answer.rows[1];
    let missed = (row.figures.goodput_per_second - truth.goodput_per_second).abs();
    Ok(Case {
        number,
        load: service.load,
        error: distance(&row.figures, &truth),
        self_check: answer.distance,
        trusted: answer.trustworthy,
        covered: missed <= row.plus_minus.goodput_per_second.max(1e-9),
        variant: variant.name,
        service: service.words,
    })
}

fn log_uniform(rng: &mut SimRng, from: f64, to: f64) -> f64 {
    from * (to / from).powf(rng.random::<f64>())
}

impl Service {
    fn draw(rng: &mut SimRng) -> Self {
        let cores = log_uniform(rng, 1.0, 24.9) as u32;
        let replicas = rng.random_range(1..=4_u32);
        let mean = log_uniform(rng, 0.004, 0.15);
        let shared = rng.random::<f64>() < 0.3;
        let load = log_uniform(rng, 0.4, 2.5);
        let capacity = f64::from(cores * replicas) / mean;
        let rate = load * capacity;
        let seconds = (REQUESTS / rate).max(SECONDS_MIN);
        let cv = log_uniform(rng, 0.2, 1.5);
        let target = mean * log_uniform(rng, 4.0, 20.0) * (1.0 + cv);
        let mode = ["auto", "auto", "auto", "static", "sentry", "off"][rng.random_range(0..6)];
        let mut protect = json!({ "mode": mode, "target": format!("{:.1}ms", target * 1e3) });
        protect["static"] = json!({ "rate": format!("{:.1}/s", 0.9 * capacity) });
        let variant = draw_variant(rng, mode, target);
        Self {
            trace: Arc::new(draw_trace(rng, rate, seconds, mean, cv)),
            cores: NonZeroU32::new(cores).unwrap_or(NonZeroU32::MIN),
            words: format!(
                "{replicas} x {cores} {} of {:.0} ms, cv {cv:.1}, load {load:.2}, {mode}, target \
                 {:.0} ms",
                if shared { "shared" } else { "workers" },
                mean * 1e3,
                target * 1e3
            ),
            shared,
            replicas,
            seconds,
            load,
            protect,
            variant,
        }
    }

    fn scenario(&self, variant: &Variant) -> Result<Scenario, WhatIfError> {
        let config =
            super::variant::config_of(self.protect.clone()).map_err(WhatIfError::Config)?;
        let config = variant.config(Some(&config))?.unwrap_or_default();
        let replica = ReplicaSpec {
            cores: self.cores,
            slots: self.shared.then_some(Bound::Unlimited),
            speed: crate::workload::Schedule::constant(variant.speed).into(),
            ..ReplicaSpec::default()
        };
        let count = variant.replicas(self.replicas as usize);
        let load = LoadSpec {
            trace: Some(Arc::clone(&self.trace)),
            ..LoadSpec::default()
        };
        let warm_up = (self.seconds / 10.0).min(super::WARM_UP_MAX_S);
        Ok(Scenario {
            title: String::new(),
            duration: Duration::from_secs_f64(self.seconds).into(),
            warm_up: Duration::from_secs_f64(warm_up).into(),
            interval: Duration::from_secs(1).into(),
            report_interval: Duration::from_secs(1).into(),
            report_with_answers: false,
            health_delay: Duration::from_secs(1).into(),
            target: config.target,
            class: Vec::new(),
            service: Law::constant(0.0),
            optional: None,
            load: OneOrMany(vec![load]),
            replica: OneOrMany(vec![replica; count]),
            fleet: None,
            protect: Protect::Sentry(Box::new(config)),
        })
    }

    fn truth(&self, variant: &Variant, seed: u64) -> Result<Figures, WhatIfError> {
        let run = self.scenario(variant)?.run(seed ^ 0x7275_7468);
        run.map(|outcome| figures(&outcome))
            .map_err(|error| WhatIfError::Variant(variant.name.clone(), error))
    }

    /// What a proxy would have recorded.
    fn record(&self, variant: &Variant, seed: u64) -> Result<Recording, WhatIfError> {
        let failed = |error| WhatIfError::Variant(variant.name.clone(), error);
        let scenario = self.scenario(variant)?;
        let mut scribe = Scribe::new(scenario.protector(seed).map_err(failed)?);
        scenario.run_with(seed, &mut scribe).map_err(failed)?;
        let mut requests = scribe.rows;
        // What is under way at the end is not recorded.
        requests.retain(|row| row.is_shed() || row.ending != Ended::Unsent);
        requests.sort_by_key(|row| row.at_us);
        let replicas = (0..self.replicas).map(|index| format!("replica-{index}"));
        Ok(Recording {
            meta: Meta {
                tables: Tables {
                    applications: vec!["default".to_owned()],
                    classes: vec!["default".to_owned()],
                    replicas: replicas.collect(),
                    reasons: Vec::new(),
                },
                config: Some(json!({ "protect": self.protect })),
                ..Meta::default()
            },
            requests,
            ..Recording::default()
        })
    }
}

fn draw_variant(rng: &mut SimRng, mode: &str, target: f64) -> Vec<String> {
    let one = match rng.random_range(0..4) {
        0 => format!("target={:.1}ms", target * 1e3 * log_uniform(rng, 0.5, 2.0)),
        1 => "replicas=+1".to_owned(),
        2 => format!("speed={:.2}", log_uniform(rng, 0.6, 1.6)),
        _ => format!("mode={}", if mode == "auto" { "off" } else { "auto" }),
    };
    vec![one]
}

/// Poisson arrivals on four paths of different cost; work is gamma distributed about its path's.
fn draw_trace(rng: &mut SimRng, rate: f64, seconds: f64, mean: f64, cv: f64) -> Trace {
    const COSTS: [f64; 4] = [0.4, 0.8, 1.2, 1.6];
    let shape = 1.0 / (cv * cv);
    let law = rand_distr::Gamma::new(shape, 1.0 / shape);
    let mut trace = Trace::default();
    for path in 1..=COSTS.len() as u64 {
        trace.kinds.push(TraceKind {
            path: Some(path),
            ..TraceKind::default()
        });
    }
    let mut at = unit_exponential(rng) / rate;
    while at < seconds {
        let kind = rng.random_range(0..COSTS.len());
        let unit = law.map_or(1.0, |law| rng.sample(law));
        trace.requests.push(TraceRequest {
            at: Duration::from_secs_f64(at),
            kind: kind as u32,
            work: (mean * COSTS[kind] * unit).max(1e-5),
            patience: None,
            deadline: None,
            bytes: 4096,
        });
        at += unit_exponential(rng) / rate;
    }
    trace
}

/// Writes down what a protector decides, as the proxy's recorder does.
#[derive(Debug)]
struct Scribe {
    inner: Box<dyn Protector>,
    rows: Vec<Request>,
    /// The row of a request that is under way, by its slot.
    open: HashMap<usize, usize>,
}

fn micros(now: Timestamp) -> u64 {
    now.as_nanos() / 1000
}

impl Scribe {
    fn new(inner: Box<dyn Protector>) -> Self {
        Self {
            inner,
            rows: Vec::new(),
            open: HashMap::new(),
        }
    }

    fn row(&mut self, request: RequestId) -> &mut Request {
        let index = self.open[&request.slot()];
        &mut self.rows[index]
    }

    fn decide(&mut self, now: Timestamp, request: RequestId, decision: &Decision) {
        let row = self.row(request);
        row.waiting_us = micros(now) - row.at_us;
        let waited = row.decision == Decided::Waited;
        match decision {
            Decision::Admit(replica) => {
                row.replica = replica.0 + 1;
                if !waited {
                    row.decision = Decided::Admitted;
                }
            }
            Decision::Wait => row.decision = Decided::Waited,
            Decision::Shed(_) => {
                row.decision = if waited {
                    Decided::ShedWaiting
                } else {
                    Decided::Shed
                };
            }
        }
    }

    fn woken(&mut self, now: Timestamp, before: usize, wakes: &Wakes) {
        for (request, decision) in wakes.iter().skip(before) {
            self.decide(now, *request, decision);
        }
    }
}

impl Protector for Scribe {
    fn on_arrival(&mut self, now: Timestamp, request: RequestId, arrival: &Arrival) -> Decision {
        self.open.insert(request.slot(), self.rows.len());
        self.rows.push(Request {
            at_us: micros(now),
            class: arrival.class.0,
            path: arrival.path.map_or(0, |path| path.0),
            ..Request::default()
        });
        let decision = self.inner.on_arrival(now, request, arrival);
        self.decide(now, request, &decision);
        decision
    }

    fn orders(&self, request: RequestId) -> Orders {
        self.inner.orders(request)
    }

    fn on_answer(&mut self, now: Timestamp, replica: ReplicaId, report: &Report) {
        self.inner.on_answer(now, replica, report);
    }

    fn reassign(&mut self, now: Timestamp, request: RequestId) -> Option<ReplicaId> {
        self.inner.reassign(now, request)
    }

    fn on_stream(&mut self, now: Timestamp, request: RequestId, wakes: &mut Wakes) {
        let before = wakes.len();
        self.inner.on_stream(now, request, wakes);
        self.woken(now, before, wakes);
    }

    fn on_end(&mut self, now: Timestamp, request: RequestId, ending: Ending, wakes: &mut Wakes) {
        let row = self.row(request);
        row.service_us = micros(now) - row.admitted_us();
        row.response_us = micros(now) - row.at_us;
        row.ending = match ending {
            Ending::Served => Ended::Served,
            Ending::Dropped => Ended::Failed,
            Ending::Abandoned => Ended::Abandoned,
            Ending::Ignored | Ending::Unreported => Ended::Streamed,
        };
        let before = wakes.len();
        self.inner.on_end(now, request, ending, wakes);
        self.woken(now, before, wakes);
    }

    fn on_abandon(&mut self, now: Timestamp, request: RequestId) {
        self.row(request).ending = Ended::Abandoned;
        self.inner.on_abandon(now, request);
    }

    fn on_report(&mut self, now: Timestamp, replica: ReplicaId, utilization: f64) {
        self.inner.on_report(now, replica, utilization);
    }

    fn set_health(&mut self, now: Timestamp, replica: ReplicaId, up: bool, wakes: &mut Wakes) {
        let before = wakes.len();
        self.inner.set_health(now, replica, up, wakes);
        self.woken(now, before, wakes);
    }

    fn change_pool(&mut self, now: Timestamp, change: PoolChange, wakes: &mut Wakes) {
        let before = wakes.len();
        self.inner.change_pool(now, change, wakes);
        self.woken(now, before, wakes);
    }

    fn poll_timeout(&self) -> Timestamp {
        self.inner.poll_timeout()
    }

    fn handle_timeout(&mut self, now: Timestamp, observer: &mut dyn Observer, wakes: &mut Wakes) {
        let before = wakes.len();
        self.inner.handle_timeout(now, observer, wakes);
        self.woken(now, before, wakes);
    }

    fn gauges(&self, now: Timestamp, gauge: &mut dyn FnMut(&'static str, f64)) {
        self.inner.gauges(now, gauge);
    }
}

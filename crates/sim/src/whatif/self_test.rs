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
use tidegate_config::Share;
use tidegate_control::Timestamp;
use tidegate_record::{Decision as Decided, Ending as Ended, Meta, Recording, Request, Tables};
use tidegate_sentry::{Arrival, Ending, Observer, ReplicaId, Report};

use super::{Figures, Model, Variant, WhatIfError, distance, figures};
use crate::client::{Failure, Retry};
use crate::rng::{SimRng, Streams};
use crate::scenario::{
    Decision, LoadSpec, OneOrMany, Orders, PoolChange, Protect, Protector, ReplicaSpec, RequestId,
    Scenario, Trace, TraceKind, TraceRequest, Wakes,
};
use crate::server::{Bound, Penalty};
use crate::service::{Law, unit_exponential};
use crate::workload::Schedule;
use crate::workload::schedule::Point;

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
    /// What was recorded.
    pub recorded: Figures,
    /// What was forecast.
    pub forecast: Figures,
    /// Half of the forecast's intervals.
    pub plus_minus: Figures,
    /// What was true.
    pub truth: Figures,
}

impl Case {
    /// Whether the true figure lies in its interval.
    #[must_use]
    pub fn covers(&self, part: fn(&Figures) -> f64) -> bool {
        let missed = (part(&self.forecast) - part(&self.truth)).abs();
        // Nothing answered has no response times, forecast or true.
        missed.is_nan() || missed <= part(&self.plus_minus).max(1e-9)
    }
}

/// Runs `count` random services. One that breaks down, so that too little is served for a model,
/// is left out.
///
/// # Errors
/// A service that the simulator or the engine refuses.
pub fn run(count: u64, repetitions: u32, seed: u64) -> Result<Vec<Case>, WhatIfError> {
    (0..count)
        .into_par_iter()
        .filter_map(
            |number| match case(number, repetitions, seed.wrapping_add(number)) {
                Err(WhatIfError::TooFew(_) | WhatIfError::NoTimes(..)) => None,
                other => Some(other),
            },
        )
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
    traits: Traits,
}

/// What some of the services have.
#[derive(Debug, Default)]
struct Traits {
    /// Clients that try again, each with a number of its own.
    retry: Option<Retry>,
    /// A replica of shared cores that thrashes.
    penalty: Option<Penalty>,
    /// From when on the first replica is so fast.
    slow: Option<(f64, f64)>,
}

impl Traits {
    fn draw(rng: &mut SimRng, cores: u32, shared: bool, seconds: f64) -> Self {
        let mut traits = Self::default();
        if rng.random::<f64>() < 0.3 {
            traits.retry = Some(Retry {
                attempts: NonZeroU32::MIN.saturating_add(rng.random_range(0..3)),
                backoff: Duration::from_secs_f64(log_uniform(rng, 0.2, 3.0)).into(),
                jitter: Share(rng.random()),
                chance: Share(log_uniform(rng, 0.3, 1.0)),
                on: vec![Failure::Shed],
                obey: rng.random::<f64>() < 0.3,
                ..Retry::default()
            });
        }
        if shared && rng.random::<f64>() < 0.4 {
            traits.penalty = Some(Penalty {
                knee: cores + rng.random_range(0..=cores),
                slope: log_uniform(rng, 0.01, 0.2) / f64::from(cores),
            });
        }
        if rng.random::<f64>() < 0.2 {
            let at = seconds * (0.2 + 0.6 * rng.random::<f64>());
            traits.slow = Some((at, log_uniform(rng, 0.4, 0.9)));
        }
        traits
    }

    fn words(&self) -> String {
        let mut words = String::new();
        if let Some(retry) = &self.retry {
            let chance = retry.chance.0 * 100.0;
            words += &format!(", {} retries of {chance:.0} %", retry.attempts);
        }
        if self.penalty.is_some() {
            words += ", thrashing";
        }
        if let Some((_, speed)) = self.slow {
            words += &format!(", one replica slows to {:.0} %", speed * 100.0);
        }
        words
    }
}

fn case(number: u64, repetitions: u32, seed: u64) -> Result<Case, WhatIfError> {
    let service = Service::draw(&mut Streams::new(seed).stream("self-test"));
    let recorded = Variant::recorded(true);
    let variant = Variant::parse(service.variant.iter().map(String::as_str))?;
    let model = Model::learn(&service.record(&recorded, seed)?)?;
    let answer = model.ask(std::slice::from_ref(&variant), repetitions, seed)?;
    let truth = service.truth(&variant, seed)?;
    let row = &answer.rows[1];
    let mut case = Case {
        number,
        load: service.load,
        error: distance(&row.figures, &truth),
        self_check: answer.distance,
        trusted: answer.trustworthy && row.trustworthy,
        covered: false,
        variant: variant.name,
        service: service.words,
        recorded: answer.recorded,
        forecast: row.figures,
        plus_minus: row.plus_minus,
        truth,
    };
    case.covered = case.covers(|figures| figures.goodput_per_second);
    Ok(case)
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
        let mut trace = draw_trace(rng, rate, seconds, mean, cv);
        let traits = Traits::draw(rng, cores, shared, seconds);
        if let Some(retry) = &traits.retry {
            tell_clients_apart(&mut trace);
            trace.retry = Some(retry.clone());
        }
        Self {
            trace: Arc::new(trace),
            cores: NonZeroU32::new(cores).unwrap_or(NonZeroU32::MIN),
            words: format!(
                "{replicas} x {cores} {} of {:.0} ms, cv {cv:.1}, load {load:.2}, {mode}, target \
                 {:.0} ms{}",
                if shared { "shared" } else { "workers" },
                mean * 1e3,
                target * 1e3,
                traits.words()
            ),
            traits,
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
            speed: Schedule::constant(variant.speed).into(),
            penalty: self.traits.penalty,
            ..ReplicaSpec::default()
        };
        let count = variant.replicas(self.replicas as usize);
        let mut replicas = vec![replica; count];
        if let Some((at, speed)) = self.traits.slow {
            let point = |at: f64, value| Point {
                at: Duration::from_secs_f64(at).into(),
                value,
                ramp: false,
            };
            let points = [point(0.0, variant.speed), point(at, variant.speed * speed)];
            if let Ok(schedule) = Schedule::new(&points) {
                replicas[0].speed = schedule.into();
            }
        }
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
            replica: OneOrMany(replicas),
            proxy_cpu: None,
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
        let meta = Meta {
            tables: Tables {
                applications: vec!["default".to_owned()],
                classes: vec!["default".to_owned()],
                replicas: replicas.collect(),
                ..Tables::default()
            },
            config: Some(json!({ "protect": self.protect })),
            ..Meta::default()
        };
        Ok(Recording::of(meta, requests))
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

/// A tenant of its own for each request, by which a recording tells clients apart.
fn tell_clients_apart(trace: &mut Trace) {
    let paths = std::mem::take(&mut trace.kinds);
    for (number, request) in (1..).zip(&mut trace.requests) {
        trace.kinds.push(TraceKind {
            tenant: Some(number),
            ..paths[request.kind as usize]
        });
        request.kind = trace.kinds.len() as u32 - 1;
    }
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
            optional: 0.0,
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
            Decision::Shed(refusal) => {
                row.retry_after_ms = refusal.retry_after.as_millis() as u64;
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
            client: arrival.tenant.map_or(0, |tenant| tenant as u32),
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

#[cfg(test)]
mod tests {
    use tidegate_record::Event;

    use super::*;
    use crate::whatif::Answer;

    /// 60/s for a minute, 20 ms each, in front of replicas of two workers.
    fn service(replicas: u32, protect: serde_json::Value, variant: &str) -> Service {
        let mut rng = Streams::new(9).stream("test");
        let mut trace = draw_trace(&mut rng, 60.0, 60.0, 0.02, 1.0);
        tell_clients_apart(&mut trace);
        Service {
            trace: Arc::new(trace),
            cores: NonZeroU32::new(2).unwrap(),
            shared: false,
            replicas,
            seconds: 60.0,
            load: 0.6 / f64::from(replicas),
            protect,
            variant: vec![variant.to_owned()],
            words: String::new(),
            traits: Traits::default(),
        }
    }

    fn forecast(service: &Service) -> (Answer, Figures) {
        let variant = Variant::parse(service.variant.iter().map(String::as_str)).unwrap();
        let recording = service.record(&Variant::recorded(true), 1).unwrap();
        let model = Model::learn(&recording).unwrap();
        let answer = model.ask(std::slice::from_ref(&variant), 2, 1).unwrap();
        (answer, service.truth(&variant, 1).unwrap())
    }

    fn says(answer: &Answer, part: &str) -> bool {
        answer.cautions.iter().any(|caution| caution.contains(part))
    }

    #[test]
    fn forecast_that_refuses_less_has_fewer_repetitions() {
        let protect = json!({ "mode": "static", "static": { "rate": "30/s" }, "target": "1s" });
        let mut service = service(1, protect, "static.rate=200/s");
        service.variant = vec!["protect.static.rate=200/s".to_owned()];
        let mut trace = Trace::clone(&service.trace);
        trace.retry = Some(Retry {
            attempts: NonZeroU32::new(3).unwrap(),
            backoff: Duration::from_secs(1).into(),
            chance: Share(0.9),
            on: vec![Failure::Shed],
            ..Retry::default()
        });
        service.trace = Arc::new(trace);
        let (answer, truth) = forecast(&service);
        // Two and more attempts of each request were recorded; one is left.
        assert!(
            answer.recorded.offered_per_second > 90.0,
            "{:?}",
            answer.recorded
        );
        let row = answer.rows[1].figures;
        let off = row.offered_per_second / truth.offered_per_second - 1.0;
        assert!(off.abs() < 0.03, "{off} {row:?} {truth:?}");
        assert!(says(&answer, "clients try again"), "{:?}", answer.cautions);
        // And the self-check sends as many as there were.
        let off = answer.distance.offered_per_second;
        assert!(off.abs() < 0.05, "{off}");
    }

    #[test]
    fn forecast_has_the_replica_that_became_slow() {
        let protect = json!({ "mode": "off", "target": "1s" });
        let mut service = service(2, protect, "replicas=+1");
        service.traits.slow = Some((30.0, 0.25));
        let (answer, truth) = forecast(&service);
        assert!(
            says(&answer, "changed their speed"),
            "{:?}",
            answer.cautions
        );
        let p95 = answer.rows[1].figures.p95_seconds / truth.p95_seconds - 1.0;
        assert!(
            p95.abs() < 0.15,
            "{p95}: {:?} {truth:?}",
            answer.rows[1].figures
        );
    }

    /// A recording of an unprotected service in which these events happened at 30 s.
    fn with_events(events: &[serde_json::Value]) -> Answer {
        let service = service(2, json!({ "mode": "off", "target": "1s" }), "rate=1");
        let mut recording = service.record(&Variant::recorded(true), 1).unwrap();
        recording.events = events
            .iter()
            .map(|event| Event {
                at_us: 30_000_000,
                json: event.to_string(),
            })
            .collect();
        Model::learn(&recording).unwrap().ask(&[], 1, 1).unwrap()
    }

    #[test]
    fn forecast_follows_a_reload() {
        let before = with_events(&[]);
        assert!(before.rows[0].figures.shed < 0.001, "{before:?}");
        let protect = json!({ "mode": "static", "static": { "rate": "30/s" }, "target": "1s" });
        let event = json!({ "event": "config", "config": { "protect": protect } });
        let after = with_events(&[event]);
        // Half of what comes in the second half, which is more than half of what is measured.
        let shed = after.rows[0].figures.shed;
        assert!((0.2..0.4).contains(&shed), "{shed}");
        assert!(says(&after, "changed after 30 s"), "{:?}", after.cautions);
    }

    #[test]
    fn forecast_follows_the_pool() {
        let p95 = |answer: &Answer| answer.rows[0].figures.p95_seconds;
        let before = with_events(&[]);
        let event = json!({
            "event": "replicas", "application": "default", "replicas": ["replica-0"],
        });
        let one_left = with_events(&[event]);
        assert!(
            p95(&one_left) > 1.1 * p95(&before),
            "{} {}",
            p95(&one_left),
            p95(&before)
        );
        assert!(
            says(&one_left, "1 replica(s) came, went"),
            "{:?}",
            one_left.cautions
        );
        let down = json!({
            "event": "health", "application": "default", "replica": "replica-1", "up": false,
        });
        let down = with_events(&[down]);
        assert!(
            (p95(&down) / p95(&one_left) - 1.0).abs() < 0.05,
            "{} {}",
            p95(&down),
            p95(&one_left)
        );
        let other = json!({
            "event": "health", "application": "shop", "replica": "replica-1", "up": false,
        });
        assert_eq!(p95(&with_events(&[other])), p95(&before));
    }

    #[test]
    fn mode_that_leaves_content_out_says_what_it_needs_to_know() {
        let service = service(1, json!({ "mode": "off", "target": "300ms" }), "mode=ilac");
        let recording = service.record(&Variant::recorded(true), 1).unwrap();
        let model = Model::learn(&recording).unwrap();
        let ask = |settings: &[&str]| {
            let variant = Variant::parse(settings.iter().copied()).unwrap();
            let answer = model.ask(&[variant], 1, 1).unwrap();
            answer.rows[1].clone()
        };
        let (without, with) = (
            ask(&["mode=ilac", "rate=3"]),
            ask(&["mode=ilac", "rate=3", "optional=60%"]),
        );
        assert!(
            without.cautions[0].contains("optional=30%"),
            "{:?}",
            without.cautions
        );
        assert!(with.cautions.is_empty(), "{:?}", with.cautions);
        // Twice the capacity and more, of which more than half can be left out.
        let (without, with) = (
            without.figures.goodput_per_second,
            with.figures.goodput_per_second,
        );
        assert!(with > 1.2 * without, "{with} {without}");
    }
}

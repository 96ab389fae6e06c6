//! The model behind the events: clients, balancer, replicas.

use std::collections::VecDeque;
use std::time::Duration;

use hdrhistogram::Histogram;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Exp1, StandardNormal};
use rand_xoshiro::Xoshiro256PlusPlus;
use tidegate_control::Timestamp;
use tidegate_sentry::SentryError;
use tidegate_sentry::brownout::{Cascade, CascadeSample, EqualDimmers, TickSamples};

use super::engine::{Engine, Sent};
use super::replica::{Job, Replica};
use super::strategy::{Control, Route, Strategy};
use super::{CAP_DELAY_S, CAP_INITIAL, JOIN_DELAY_S, Setup, Speed};
use crate::engine::{self, Calendar, EventId, Model};
use crate::time::after;

/// Weight of the newest full response in the balancer's idea of a replica's service time; from 0.1
/// to 0.2 the error of the 100 scenarios hardly changes, at 0.03 it is 4 % larger.
const EXPECTED_WEIGHT: f64 = 0.2;

/// Longer response times, an hour in microseconds, are counted as this.
const RESPONSE_US_MAX: u64 = 3_600_000_000;

/// What one run measured.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Integrated absolute error of the 95th percentile (eq. 14), in seconds squared.
    pub iae: f64,
    /// Standard deviation of full response times.
    pub sd_s: f64,
    /// Longest full response time.
    pub max_s: f64,
    /// Requests answered.
    pub served: u64,
    /// Requests answered in full.
    pub full: u64,
    /// Requests that the engine shed; the strategies of the paper shed none.
    pub shed: u64,
    /// Full response times, in microseconds.
    pub full_us: Histogram<u64>,
    /// All response times, in microseconds.
    pub all_us: Histogram<u64>,
    /// One row per sampling period.
    pub rows: Vec<TickRow>,
}

/// The state at the end of a sampling period.
#[derive(Debug, Clone, Copy, Default)]
pub struct TickRow {
    /// When.
    pub at_s: f64,
    /// 95th percentile of the full responses completed in the period; 0 without any.
    pub p95_s: f64,
    /// Mean waiting time of the requests dispatched in the period (ILAC).
    pub waited_s: f64,
    /// `psi` (ILAC).
    pub threshold_s: f64,
    /// Mean service time of the full responses of the first replica.
    pub service_s: f64,
    /// `u` of the first replica (ILAC).
    pub concurrency: f64,
    /// `K` as the first replica estimates it (ILAC).
    pub gain_s: f64,
    /// Share of the period's responses that were full.
    pub full_share: f64,
}

/// Runs one strategy on one setup.
///
/// # Errors
/// What the engine refuses about its configuration, where it decides.
pub fn run(setup: &Setup, strategy: &Strategy, seed: u64) -> Result<Outcome, SentryError> {
    let mut plant = Plant::new(setup, strategy, seed)?;
    let mut calendar = Calendar::new();
    // Changes come before all else that happens at their time.
    for (at_s, change) in schedule(setup) {
        calendar.at(Timestamp::from_secs_f64(at_s), Event::Change(change));
    }
    calendar.at(Timestamp::ZERO, Event::Tick);
    let end_s: f64 = setup.phases.iter().map(|phase| phase.duration_s).sum();
    engine::run(&mut plant, &mut calendar, Timestamp::from_secs_f64(end_s));
    Ok(plant.outcome())
}

/// A generator per source, so that strategies meet the same arrivals. In the reference mode all
/// replicas share one seed, as in the paper's simulator.
fn stream(setup: &Setup, seed: u64, source: u64) -> Xoshiro256PlusPlus {
    let source = if setup.reference { 0 } else { source };
    Xoshiro256PlusPlus::seed_from_u64(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ source)
}

#[derive(Debug, Clone, Copy)]
enum Change {
    Phase(usize),
    Join { phase: usize, index: usize },
    Cap(usize),
}

#[derive(Debug, Clone, Copy)]
enum Event {
    Change(Change),
    /// The end of a sampling period of the balancer.
    Tick,
    /// The end of a sampling period of a replica.
    ReplicaTick(usize),
    Completion(usize),
    Arrival,
    /// The engine wants to be called.
    Timer,
}

/// What is to happen at a replica.
#[derive(Debug, Clone, Copy)]
struct Expected {
    tick: EventId,
    /// When, in seconds, and which event that is.
    completion: Option<(f64, EventId)>,
}

struct Plant<'a> {
    setup: &'a Setup,
    strategy: &'a Strategy,
    seed: u64,
    now: Timestamp,
    now_s: f64,
    arrival: Option<EventId>,
    rate: f64,
    arrivals: Xoshiro256PlusPlus,
    balancing: Xoshiro256PlusPlus,
    replicas: Vec<Replica>,
    /// One per replica.
    expected: Vec<Expected>,
    services: Vec<Xoshiro256PlusPlus>,
    speeds: Vec<Speed>,
    cap: usize,
    // balancer
    queue: VecDeque<f64>,
    demand: Vec<i64>,
    expected_s: Vec<f64>,
    cascade: Option<Cascade>,
    engine: Option<Engine>,
    timer: Option<(Timestamp, EventId)>,
    weights: EqualDimmers,
    turn: usize,
    // measurement
    waited: TickSamples,
    tick_full: TickSamples,
    tick_served: u64,
    first_service: TickSamples,
    iae: f64,
    full_count: u64,
    full_mean: f64,
    full_m2: f64,
    full_max: f64,
    served: u64,
    full_us: Histogram<u64>,
    all_us: Histogram<u64>,
    rows: Vec<TickRow>,
}

impl<'a> Plant<'a> {
    fn new(setup: &'a Setup, strategy: &'a Strategy, seed: u64) -> Result<Self, SentryError> {
        let cascade = match strategy {
            Strategy::Ilac(config) => Some(Cascade::new(config.cascade)),
            Strategy::Routed { .. } | Strategy::Engine(_) => None,
        };
        let first = setup.phases.first().map_or(0, |phase| phase.speeds.len());
        let engine = match strategy {
            Strategy::Engine(config) => Some(Engine::new(config, first, seed)?),
            _ => None,
        };
        let histogram = || {
            Histogram::new_with_max(RESPONSE_US_MAX, 3)
                .expect("an hour to three digits is in range")
        };
        Ok(Self {
            setup,
            strategy,
            seed,
            now: Timestamp::ZERO,
            now_s: 0.0,
            arrival: None,
            rate: 0.0,
            arrivals: stream(setup, seed, 1),
            balancing: stream(setup, seed, 2),
            replicas: Vec::new(),
            expected: Vec::new(),
            services: Vec::new(),
            speeds: Vec::new(),
            cap: CAP_INITIAL,
            queue: VecDeque::new(),
            demand: Vec::new(),
            expected_s: Vec::new(),
            cascade,
            engine,
            timer: None,
            weights: EqualDimmers::default(),
            turn: 0,
            waited: TickSamples::default(),
            tick_full: TickSamples::default(),
            tick_served: 0,
            first_service: TickSamples::default(),
            iae: 0.0,
            full_count: 0,
            full_mean: 0.0,
            full_m2: 0.0,
            full_max: 0.0,
            served: 0,
            full_us: histogram(),
            all_us: histogram(),
            rows: Vec::new(),
        })
    }

    // ---- changes of load and capacity

    fn change(&mut self, change: Change, calendar: &mut Calendar<Event>) {
        match change {
            Change::Phase(index) => self.enter_phase(index, calendar),
            Change::Join { phase, index } => self.join(phase, index, calendar),
            Change::Cap(cap) => {
                self.cap = cap;
                self.replicas
                    .iter_mut()
                    .for_each(|replica| replica.cap = cap);
                if !self.setup.reference {
                    (0..self.replicas.len()).for_each(|index| self.fill(index, usize::MAX));
                }
            }
        }
    }

    fn enter_phase(&mut self, index: usize, calendar: &mut Calendar<Event>) {
        let setup = self.setup;
        let phase = &setup.phases[index];
        self.rate = phase.rate;
        if let Some(arrival) = self.arrival.take() {
            calendar.cancel(arrival);
        }
        self.expect_arrival(calendar);
        self.speeds.clone_from(&phase.speeds);
        if self.replicas.len() > phase.speeds.len() {
            // They drain; what they still answer is in no statistics.
            let gone = self.replicas.split_off(phase.speeds.len());
            self.leave_engine(&gone);
            for gone in self.expected.drain(phase.speeds.len()..) {
                let completion = gone.completion.map(|(_, id)| id);
                [Some(gone.tick), completion]
                    .into_iter()
                    .flatten()
                    .for_each(|id| {
                        calendar.cancel(id);
                    });
            }
            self.demand.truncate(phase.speeds.len());
            self.expected_s.truncate(phase.speeds.len());
            self.weights.reset(self.replicas.len());
        }
        if index == 0 {
            // The first phase finds its replicas in place.
            (0..phase.speeds.len()).for_each(|replica| self.join(0, replica, calendar));
        }
    }

    fn join(&mut self, phase: usize, index: usize, calendar: &mut Calendar<Event>) {
        debug_assert!(index < self.setup.phases[phase].speeds.len());
        let control = self
            .strategy
            .control(self.setup.setpoint_s, self.setup.replica_period_s);
        let cap = if phase == 0 {
            self.setup.phases[0].cap
        } else {
            CAP_INITIAL
        };
        let tick = calendar.at(calendar.now(), Event::ReplicaTick(self.replicas.len()));
        self.expected.push(Expected {
            tick,
            completion: None,
        });
        self.replicas.push(Replica::new(control, cap, self.now_s));
        if self.services.len() < self.replicas.len() {
            self.services
                .push(stream(self.setup, self.seed, 100 + index as u64));
        }
        self.demand.push(1);
        self.expected_s.push(0.0);
        self.weights.reset(self.replicas.len());
        self.dispatch();
        if phase > 0 {
            self.in_engine(Engine::join);
        }
    }

    /// Tells the engine something, where there is one, and sends whom that lets go.
    fn in_engine(&mut self, tell: impl FnOnce(&mut Engine, Timestamp) -> Vec<Sent>) {
        let now = self.now;
        let sent = self.engine.as_mut().map(|engine| tell(engine, now));
        for sent in sent.into_iter().flatten() {
            self.waited.push(self.now_s - sent.job.created_s);
            self.receive(sent.replica, sent.job);
        }
    }

    /// First the pool, then what the replicas that are gone held: nothing is sent to them.
    fn leave_engine(&mut self, gone: &[Replica]) {
        let left = self.replicas.len();
        self.in_engine(|engine, now| engine.shrink(now, left));
        for job in gone.iter().flat_map(Replica::jobs) {
            self.in_engine(|engine, now| engine.forget(now, job));
        }
    }

    fn expect_timer(&mut self, calendar: &mut Calendar<Event>) {
        let Some(engine) = &self.engine else {
            return;
        };
        let wanted = engine.next_timer();
        if self.timer.is_some_and(|(time, _)| time == wanted) {
            return;
        }
        if let Some((_, event)) = self.timer.take() {
            calendar.cancel(event);
        }
        if wanted < Timestamp::MAX {
            let at = wanted.max(calendar.now());
            self.timer = Some((wanted, calendar.at(at, Event::Timer)));
        }
    }

    // ---- the life of a request

    fn gap_s(&mut self) -> f64 {
        let gap: f64 = Exp1.sample(&mut self.arrivals);
        gap / self.rate
    }

    fn expect_arrival(&mut self, calendar: &mut Calendar<Event>) {
        let at = after(calendar.now(), self.gap_s());
        self.arrival = Some(calendar.at(at, Event::Arrival));
    }

    /// Schedules what comes next at replicas where that has changed.
    fn expect_completions(&mut self, calendar: &mut Calendar<Event>) {
        for (index, (replica, expected)) in self.replicas.iter().zip(&mut self.expected).enumerate()
        {
            let at_s = replica.next_completion_s();
            if expected.completion.map(|(at_s, _)| at_s) == at_s {
                continue;
            }
            if let Some((_, id)) = expected.completion.take() {
                calendar.cancel(id);
            }
            expected.completion = at_s.map(|at_s| {
                let at = after(calendar.now(), at_s - self.now_s);
                (at_s, calendar.at(at, Event::Completion(index)))
            });
        }
    }

    fn arrive(&mut self, calendar: &mut Calendar<Event>) {
        self.expect_arrival(calendar);
        match self.strategy {
            Strategy::Ilac(_) => {
                self.queue.push_back(self.now_s);
                self.dispatch();
            }
            Strategy::Routed { route, .. } => {
                let index = self.route(*route);
                let job = Job {
                    created_s: self.now_s,
                    dispatched_s: self.now_s,
                    full: None,
                    number: 0,
                };
                self.receive(index, job);
            }
            Strategy::Engine(_) => {
                self.in_engine(|engine, now| engine.arrive(now).into_iter().collect());
            }
        }
    }

    fn route(&mut self, route: Route) -> usize {
        let count = self.replicas.len();
        let shortest = |replicas: &[Replica], a: usize, b: usize| {
            if replicas[b].present() < replicas[a].present() {
                b
            } else {
                a
            }
        };
        match route {
            Route::RoundRobin => {
                self.turn = (self.turn + 1) % count;
                self.turn
            }
            Route::Random => self.balancing.random_range(0..count),
            Route::ShortestQueue => {
                (1..count).fold(0, |best, index| shortest(&self.replicas, best, index))
            }
            Route::PowerOfTwo => {
                let first = self.balancing.random_range(0..count);
                let second = self.balancing.random_range(0..count);
                shortest(&self.replicas, first, second)
            }
            Route::EqualDimmers => self.weights.choose(self.balancing.random()),
        }
    }

    /// ILAC: the head of the queue goes to the replica that asks for most, while any asks.
    fn dispatch(&mut self) {
        let Some(cascade) = self.cascade.take() else {
            return;
        };
        while let Some(index) = self.hungriest() {
            let Some(created_s) = self.queue.pop_front() else {
                break;
            };
            self.demand[index] -= 1;
            let waited_s = self.now_s - created_s;
            self.waited.push(waited_s);
            let full = Some(cascade.decide(waited_s, self.expected_s[index]));
            if let Control::Service(service) = &mut self.replicas[index].control {
                service.set_setpoint(cascade.service_setpoint_s());
            }
            self.receive(
                index,
                Job {
                    created_s,
                    dispatched_s: self.now_s,
                    full,
                    number: 0,
                },
            );
        }
        self.cascade = Some(cascade);
    }

    fn hungriest(&self) -> Option<usize> {
        let mut best = None;
        let mut most = 0;
        for (index, &demand) in self.demand.iter().enumerate() {
            if demand > most {
                (best, most) = (Some(index), demand);
            }
        }
        best
    }

    fn receive(&mut self, index: usize, job: Job) {
        let overtaking = self.setup.reference;
        let replica = &mut self.replicas[index];
        replica.control.on_arrival();
        if replica.has_place() && (overtaking || replica.line_is_empty()) {
            self.begin(index, job);
        } else {
            replica.stand_in_line(job);
        }
    }

    fn begin(&mut self, index: usize, mut job: Job) {
        let replica = &mut self.replicas[index];
        let random = &mut self.services[index];
        let present = replica.present() + 1;
        let full = job
            .full
            .unwrap_or_else(|| replica.control.decide(present, || random.random()));
        job.full = Some(full);
        let speed = self.speeds[index];
        let (mean_s, sd_s) = if full {
            (speed.full_s, self.setup.full_sd_s)
        } else {
            (speed.mandatory_s, self.setup.mandatory_sd_s)
        };
        let normal: f64 = StandardNormal.sample(random);
        let work_s = (mean_s + sd_s * normal).max(self.setup.service_min_s);
        replica.begin(self.now_s, job, work_s);
    }

    fn complete(&mut self, index: usize) {
        let replica = &mut self.replicas[index];
        let Some(job) = replica.complete(self.now_s) else {
            return;
        };
        let full = job.full.unwrap_or(true);
        let demand = replica
            .control
            .on_completion(self.now_s - job.dispatched_s, full);
        replica.theta_reported = replica.control.theta();
        self.demand[index] += demand;
        if full {
            let service_s = self.now_s - job.dispatched_s;
            self.expected_s[index] += EXPECTED_WEIGHT * (service_s - self.expected_s[index]);
        }
        if index == 0 && full {
            self.first_service.push(self.now_s - job.dispatched_s);
        }
        self.measure(self.now_s - job.created_s, full);
        // The reference lets in one waiter per completion, even when the cap was raised by more.
        let places = if self.setup.reference { 1 } else { usize::MAX };
        self.fill(index, places);
        self.dispatch();
        self.in_engine(|engine, now| engine.complete(now, job));
    }

    /// Lets at most `most` waiters of a replica's line begin.
    fn fill(&mut self, index: usize, most: usize) {
        for _ in 0..most {
            if !self.replicas[index].has_place() {
                return;
            }
            let Some(job) = self.replicas[index].next_in_line() else {
                return;
            };
            self.begin(index, job);
        }
    }

    // ---- measurement and control

    fn measure(&mut self, response_s: f64, full: bool) {
        self.tick_served += 1;
        if full {
            self.tick_full.push(response_s);
        }
        if self.now_s < self.setup.warm_up_s {
            return;
        }
        self.served += 1;
        let micros = (response_s * 1e6) as u64;
        self.all_us.saturating_record(micros);
        if full {
            self.full_us.saturating_record(micros);
            self.count_full(response_s);
        }
    }

    fn count_full(&mut self, response_s: f64) {
        self.full_count += 1;
        let off_mean = response_s - self.full_mean;
        self.full_mean += off_mean / self.full_count as f64;
        self.full_m2 += off_mean * (response_s - self.full_mean);
        self.full_max = self.full_max.max(response_s);
    }

    fn tick(&mut self, calendar: &mut Calendar<Event>) {
        let period_s = self.setup.period_s;
        let p95_s = self.tick_full.quantile(0.95).unwrap_or(0.0);
        if self.now_s >= self.setup.warm_up_s {
            self.iae += period_s * (self.setup.setpoint_s - p95_s).abs();
        }
        let sample = self.sample();
        self.record(p95_s);
        if let Some(cascade) = &mut self.cascade {
            cascade.tick(sample);
        }
        if matches!(
            self.strategy,
            Strategy::Routed {
                route: Route::EqualDimmers,
                ..
            }
        ) && !self.replicas.is_empty()
        {
            let thetas: Vec<f64> = self
                .replicas
                .iter()
                .map(|replica| replica.theta_reported)
                .collect();
            self.weights.tick(&thetas);
        }
        calendar.after(Duration::from_secs_f64(period_s), Event::Tick);
    }

    fn sample(&mut self) -> CascadeSample {
        let quantile = self
            .cascade
            .as_ref()
            .map_or(0.95, |cascade| cascade.config().quantile);
        CascadeSample {
            waited_s: self.waited.mean(),
            response_s: self.tick_full.quantile(quantile),
        }
    }

    fn record(&mut self, p95_s: f64) {
        let (concurrency, gain_s) = match self.replicas.first().map(|replica| &replica.control) {
            Some(Control::Service(service)) => (service.output(), service.gain_s()),
            _ => (0.0, 0.0),
        };
        self.rows.push(TickRow {
            at_s: self.now_s,
            p95_s,
            waited_s: self.waited.mean().unwrap_or(0.0),
            threshold_s: self.cascade.as_ref().map_or(0.0, Cascade::threshold_s),
            service_s: self.first_service.mean().unwrap_or(0.0),
            concurrency,
            gain_s,
            full_share: self.tick_full.len() as f64 / self.tick_served.max(1) as f64,
        });
        self.waited.clear();
        self.tick_full.clear();
        self.first_service.clear();
        self.tick_served = 0;
    }

    fn replica_tick(&mut self, index: usize, calendar: &mut Calendar<Event>) {
        let period = Duration::from_secs_f64(self.setup.replica_period_s);
        let replica = &mut self.replicas[index];
        let present = replica.present();
        replica.control.tick(present);
        self.expected[index].tick = calendar.after(period, Event::ReplicaTick(index));
    }

    fn outcome(self) -> Outcome {
        Outcome {
            iae: self.iae,
            sd_s: (self.full_m2 / self.full_count.saturating_sub(1).max(1) as f64).sqrt(),
            max_s: self.full_max,
            served: self.served,
            full: self.full_count,
            shed: self.engine.map_or(0, |engine| engine.shed),
            full_us: self.full_us,
            all_us: self.all_us,
            rows: self.rows,
        }
    }
}

impl Model for Plant<'_> {
    type Event = Event;

    fn handle(&mut self, event: Event, calendar: &mut Calendar<Event>) {
        self.now = calendar.now();
        self.now_s = self.now.as_secs_f64();
        match event {
            Event::Change(change) => self.change(change, calendar),
            Event::Tick => self.tick(calendar),
            Event::ReplicaTick(index) => self.replica_tick(index, calendar),
            Event::Completion(index) => {
                self.expected[index].completion = None;
                self.complete(index);
            }
            Event::Arrival => self.arrive(calendar),
            Event::Timer => {
                self.timer = None;
                self.in_engine(Engine::tick);
            }
        }
        self.expect_completions(calendar);
        self.expect_timer(calendar);
    }
}

/// All changes in order of time: a phase's load and speeds at once, its new replicas a little
/// later one after the other, its cap after a second.
fn schedule(setup: &Setup) -> Vec<(f64, Change)> {
    let mut changes = Vec::new();
    let mut begins_s = 0.0;
    let mut replicas = 0;
    for (phase, at) in setup.phases.iter().enumerate() {
        changes.push((begins_s, Change::Phase(phase)));
        if phase > 0 {
            for index in replicas..at.speeds.len() {
                let join_s = begins_s + JOIN_DELAY_S * index as f64;
                changes.push((join_s, Change::Join { phase, index }));
            }
            changes.push((begins_s + CAP_DELAY_S, Change::Cap(at.cap)));
        }
        replicas = at.speeds.len();
        begins_s += at.duration_s;
    }
    changes.sort_by(|a, b| a.0.total_cmp(&b.0));
    changes
}

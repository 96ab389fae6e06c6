//! The hosting platform of 003 §6.5: applications that share a pool of servers.
//!
//! Each application has a queue in front of `n` servers, first come first served, and admits a
//! request while its expected response time keeps the target in force (003 eq. 3 with one class and
//! one bucket):
//!
//! ```text
//! S + S · (w + 1) / n + z · S · c · √w / n ≤ R        w requests wait, c = σ/S
//! ```
//!
//! The control plane is [`tidegate_plane::Plane`], told once a second what arrived and was shed;
//! servers that it orders come from the free pool after `start_time`, those it takes away finish
//! their request.
//!
//! What breaks it: the policer knows the mean service time exactly. Paper figure 3 has the engine
//! that measures it.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use rand::RngExt as _;
use rand_distr::{Distribution, Gamma, Poisson};
use serde::Deserialize;
use tidegate_config::{Dur, Rate};
use tidegate_control::Timestamp;
use tidegate_plane::{
    ApplicationConfig, Decision, Moments, Observation, Plane, PlaneConfig, PlaneError, PlaneEvent,
};

use crate::chart::Point;
use crate::rng::{SimRng, Streams};
use crate::workload::RateFunction;

/// Stages of the service times: an Erlang distribution, as in 003-3-classes.
const SERVICE_STAGES: f64 = 16.0;
/// Deviations of the waiting time that the policer keeps free. Chosen: with 2, 7 % of the samples
/// of ten seconds exceed the target by up to 1.6 %, because neighbours in a queue share their
/// delay.
const POLICING_DEVIATIONS: f64 = 3.0;
/// Seconds of a sample of the 95th percentile.
const SAMPLE_SECONDS: u64 = 10;

/// What to simulate.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostingSpec {
    /// How long.
    pub duration: Dur,
    /// Whether decisions are carried out.
    #[serde(default = "yes")]
    pub provisioning: bool,
    /// How long a server of the free pool takes until it serves.
    pub start_time: Dur,
    /// What one server does.
    pub capacity: Rate,
    /// Arrivals of each application, in the order of `plane.application`.
    pub load: Vec<RateFunction>,
    /// The control plane, as in the file of `tidegate plane`.
    pub plane: PlaneConfig,
}

const fn yes() -> bool {
    true
}

/// What became of one application.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HostedRun {
    /// Arrivals per second.
    pub offered: Vec<Point>,
    /// Admitted requests per second.
    pub admitted: Vec<Point>,
    /// Servers that are set.
    pub servers: Vec<Point>,
    /// Target in force, in seconds.
    pub target: Vec<Point>,
    /// 95th percentile of response times, by ten seconds.
    pub response_p95: Vec<Point>,
    /// Samples of the percentile that kept the target of their time.
    pub samples_kept: u32,
    /// Samples with an answer.
    pub samples: u32,
}

impl HostingSpec {
    /// What keeps it from running.
    ///
    /// # Errors
    /// With the remedy.
    pub fn check(&self) -> Result<(), String> {
        self.plane.check().map_err(|error| error.to_string())?;
        if self.load.len() != self.plane.applications.len() {
            return Err(format!(
                "{} applications and {} loads: give every application its `load`",
                self.plane.applications.len(),
                self.load.len()
            ));
        }
        if self.capacity.0 <= 0.0 {
            return Err("`capacity` is zero: write a rate, like \"60/s\"".into());
        }
        Ok(())
    }

    /// Runs it; an outcome per application.
    ///
    /// # Errors
    /// What the plane refuses.
    pub fn run(&self, seed: u64) -> Result<Vec<HostedRun>, PlaneError> {
        let streams = Streams::new(seed);
        let mut platform = Platform::new(self, &streams)?;
        for second in 1..=self.duration.as_secs() {
            platform.step(second);
        }
        Ok(platform.hosted.into_iter().map(|it| it.run).collect())
    }
}

/// All of it.
struct Platform<'a> {
    spec: &'a HostingSpec,
    plane: Plane,
    hosted: Vec<Hosted>,
}

impl<'a> Platform<'a> {
    fn new(spec: &'a HostingSpec, streams: &Streams) -> Result<Self, PlaneError> {
        let mean = 1.0 / spec.capacity.0;
        let hosted = spec.plane.applications.iter().zip(&spec.load);
        Ok(Self {
            plane: Plane::new(spec.plane.clone(), Timestamp::ZERO)?,
            hosted: hosted
                .map(|(config, load)| Hosted::new(config, load, mean, streams))
                .collect(),
            spec,
        })
    }

    fn step(&mut self, second: u64) {
        let now = Timestamp::from_nanos(second * 1_000_000_000);
        for index in 0..self.hosted.len() {
            let seen = self.hosted[index].step(second);
            let (name, desired, ready) = self.hosted[index].counted(second);
            self.plane.on_servers(now, &name, desired, ready);
            let events = self.plane.on_observation(now, &name, &seen);
            self.carry_out(second, events);
        }
        let events = self.plane.handle_timeout(now);
        self.carry_out(second, events);
    }

    fn carry_out(&mut self, second: u64, events: Vec<PlaneEvent>) {
        let now = Timestamp::from_nanos(second * 1_000_000_000);
        for event in events {
            if let PlaneEvent::Decision(decision) = event
                && self.spec.provisioning
            {
                let ready = second + self.spec.start_time.as_secs();
                let mut hosted = self.hosted.iter_mut();
                if let Some(hosted) = hosted.find(|it| it.config.name == decision.application) {
                    hosted.set(&decision, ready);
                }
                self.plane.on_applied(now, &decision);
            }
        }
    }
}

/// A request that was admitted.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    arrived: f64,
    work: f64,
}

/// Nanoseconds at which a server is free again, the earliest first.
type Busy = BinaryHeap<Reverse<u64>>;

fn nanoseconds(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}

/// One application.
struct Hosted {
    config: ApplicationConfig,
    load: RateFunction,
    service: Gamma<f64>,
    mean: f64,
    arrivals: SimRng,
    work: SimRng,
    /// When each server serves, the oldest first.
    servers: Vec<u64>,
    target: f64,
    queue: VecDeque<Waiting>,
    busy: Busy,
    responses: Vec<f64>,
    run: HostedRun,
}

impl Hosted {
    fn new(config: &ApplicationConfig, load: &RateFunction, mean: f64, streams: &Streams) -> Self {
        let stream = |what: &str| streams.stream(&format!("{what}.{}", config.name));
        #[allow(clippy::expect_used)] // both numbers are above zero: `check` has seen to it
        let service = Gamma::new(SERVICE_STAGES, mean / SERVICE_STAGES).expect("a valid shape");
        Self {
            arrivals: stream("arrivals"),
            work: stream("work"),
            servers: vec![0; config.min as usize],
            target: config.target.as_secs_f64(),
            config: config.clone(),
            load: load.clone(),
            service,
            mean,
            queue: VecDeque::new(),
            busy: Busy::new(),
            responses: Vec::new(),
            run: HostedRun::default(),
        }
    }

    fn ready(&self, second: u64) -> usize {
        self.servers.iter().filter(|&&from| from <= second).count()
    }

    fn counted(&self, second: u64) -> (String, u32, u32) {
        let name = self.config.name.clone();
        (name, self.servers.len() as u32, self.ready(second) as u32)
    }

    fn set(&mut self, decision: &Decision, ready: u64) {
        self.servers.resize(decision.to as usize, ready);
        self.target = decision.target.as_secs_f64();
    }

    /// The second that ends at `second`.
    fn step(&mut self, second: u64) -> Observation {
        let ready = self.ready(second);
        let begin = (second - 1) as f64;
        self.follow_servers(begin, ready);
        let times = self.arrival_times(begin);
        let served_before = self.responses.len();
        let mut admitted = 0;
        for &at in &times {
            self.serve_until(at, ready);
            if self.admits(ready) {
                admitted += 1;
                let work = self.service.sample(&mut self.work);
                self.queue.push_back(Waiting { arrived: at, work });
                self.serve_until(at, ready);
            }
        }
        self.serve_until(second as f64, ready);
        let served = self.responses.len() - served_before;
        self.note(second, times.len(), admitted);
        Observation {
            seconds: 1.0,
            arrived: times.len() as f64,
            shed: (times.len() - admitted) as f64,
            served: served as f64,
            service: Some(Moments {
                count: served.max(1) as f64,
                mean: self.mean,
                square: self.mean * self.mean * (1.0 + 1.0 / SERVICE_STAGES),
            }),
            ..Observation::default()
        }
    }

    fn arrival_times(&mut self, begin: f64) -> Vec<f64> {
        let rate = self.load.at(begin + 0.5).max(1e-9);
        let count = Poisson::new(rate).map_or(0.0, |law| law.sample(&mut self.arrivals)) as usize;
        let mut times: Vec<f64> = (0..count)
            .map(|_| begin + self.arrivals.random::<f64>())
            .collect();
        times.sort_by(f64::total_cmp);
        times
    }

    fn admits(&self, ready: usize) -> bool {
        let (waiting, servers) = (self.queue.len() as f64, ready.max(1) as f64);
        let deviation = self.mean * (waiting / SERVICE_STAGES).sqrt() / servers;
        let expected = self.mean + self.mean * (waiting + 1.0) / servers;
        ready > 0 && expected + POLICING_DEVIATIONS * deviation <= self.target
    }

    /// As many entries as servers serve: a new one is free, one that was taken away ends first.
    fn follow_servers(&mut self, now: f64, ready: usize) {
        while self.busy.len() < ready {
            self.busy.push(Reverse(nanoseconds(now)));
        }
    }

    /// Begins requests that a server is free for until `now`.
    fn serve_until(&mut self, now: f64, ready: usize) {
        while let (Some(next), Some(&Reverse(free))) = (self.queue.front(), self.busy.peek()) {
            if free > nanoseconds(now) {
                return;
            }
            self.busy.pop();
            if self.busy.len() >= ready {
                continue; // of a server that was taken away
            }
            let end = (free as f64 / 1e9).max(next.arrived) + next.work;
            self.responses.push(end - next.arrived);
            self.busy.push(Reverse(nanoseconds(end)));
            self.queue.pop_front();
        }
    }

    fn note(&mut self, second: u64, offered: usize, admitted: usize) {
        let at = second as f64;
        self.run.offered.push((at, offered as f64));
        self.run.admitted.push((at, admitted as f64));
        self.run.servers.push((at, self.servers.len() as f64));
        self.run.target.push((at, self.target));
        if !second.is_multiple_of(SAMPLE_SECONDS) || self.responses.is_empty() {
            return;
        }
        let mut times = std::mem::take(&mut self.responses);
        times.sort_by(f64::total_cmp);
        let p95 = times[(times.len() - 1) * 95 / 100];
        self.run.response_p95.push((at, p95));
        self.run.samples += 1;
        self.run.samples_kept += u32::from(p95 <= self.target);
    }
}

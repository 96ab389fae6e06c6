//! Servers that a scaler orders and gives back, with admission control in front of them.
//!
//! One second at a time: a Poisson number of requests brings work, the ready servers do what they
//! can, the queue holds what can still be answered within the target, the rest is shed. Every
//! scaler has the same admission control, the same arrivals and the same start times.
//!
//! What breaks it: bursts shorter than a second, which the queue of a second absorbs here.

use rand_distr::{Distribution, Normal, Poisson};

use super::trace::Trace;
use crate::rng::{SimRng, Streams};

/// Response-time target, in seconds.
pub(super) const TARGET_S: f64 = 1.0;
/// Requests that a server works on at once.
pub(super) const WORKERS: f64 = 4.0;
/// Most servers there are.
pub(super) const SERVERS_MAX: u32 = 40;

/// What a scaler can see of a second.
#[derive(Debug, Clone, Copy, Default)]
pub struct Second {
    /// Seconds since the beginning, at its end.
    pub at: u64,
    /// Requests that arrived.
    pub arrived: f64,
    /// Requests answered.
    pub served: f64,
    /// Requests shed.
    pub shed: f64,
    /// Utilization of the ready servers, 0 to 1.
    pub cpu: f64,
    /// Requests in servers and in the queue.
    pub concurrency: f64,
    /// Requests per second of a server, as measured.
    pub capacity: f64,
    /// Servers ordered.
    pub desired: u32,
    /// Servers that serve.
    pub ready: u32,
}

/// What a scaler made of a trace.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Tally {
    /// Hours of servers, ordered or ready.
    pub server_hours: f64,
    /// Requests that arrived.
    pub arrived: f64,
    /// Requests shed, or answered after the target.
    pub lost: f64,
    /// Changes of the number of servers.
    pub actions: f64,
    /// Orders of servers that were given back less than five minutes before.
    pub reversals: f64,
    /// What requests answered in time have earned.
    pub earned: f64,
    /// What all requests would have earned.
    pub earnable: f64,
}

/// Servers that are ordered again within this time were given back for nothing. Chosen: what HPA
/// looks back to before it scales in.
const REVERSAL_SECONDS: u64 = 300;

impl Tally {
    /// Of several applications together.
    pub(super) fn plus(&self, other: &Self) -> Self {
        Self {
            server_hours: self.server_hours + other.server_hours,
            arrived: self.arrived + other.arrived,
            lost: self.lost + other.lost,
            actions: self.actions + other.actions,
            reversals: self.reversals + other.reversals,
            earned: self.earned + other.earned,
            earnable: self.earnable + other.earnable,
        }
    }
}

/// The servers.
#[derive(Debug)]
pub struct Cloud<'a> {
    trace: &'a Trace,
    arrivals: SimRng,
    work: SimRng,
    starts: SimRng,
    /// When each server is ready, the oldest first.
    servers: Vec<u64>,
    ordered: u64,
    /// Work that waits, in seconds of one server.
    backlog: f64,
    tally: Tally,
    /// When the number of servers changed last, and whether it rose.
    changed: Option<(u64, bool)>,
    /// Servers at the end of each minute that counts.
    pub servers_by_minute: Vec<(f64, f64)>,
}

impl<'a> Cloud<'a> {
    /// With this many servers ready.
    #[must_use]
    pub fn new(trace: &'a Trace, seed: u64, servers: u32) -> Self {
        let streams = Streams::new(seed);
        Self {
            trace,
            arrivals: streams.stream("arrivals"),
            work: streams.stream("work"),
            starts: streams.stream("starts"),
            servers: vec![0; servers as usize],
            ordered: 0,
            backlog: 0.0,
            tally: Tally::default(),
            changed: None,
            servers_by_minute: Vec::new(),
        }
    }

    /// The result so far.
    #[must_use]
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// One second, the one that ends at `at`.
    pub fn step(&mut self, at: u64) -> Second {
        let rate = self.trace.rate(at);
        let service = 1.0 / self.trace.capacity(at);
        let arrived =
            Poisson::new(rate.max(1e-9)).map_or(0.0, |law| law.sample(&mut self.arrivals));
        let noise = Normal::new(0.0, 1.0).map_or(0.0, |law| law.sample(&mut self.work));
        let work = (service * (arrived + noise * arrived.sqrt())).max(0.0);
        let ready = self.servers.iter().filter(|&&from| from <= at).count() as u32;
        let done = (self.backlog + work).min(f64::from(ready));
        self.backlog += work - done;
        let over = (self.backlog - TARGET_S * f64::from(ready)).max(0.0);
        self.backlog -= over;
        let lost = over / service;
        if at > self.trace.measured_from_s {
            self.count(at, arrived, lost);
        }
        let served = done / service;
        let seen = Normal::new(1.0, 0.03).map_or(1.0, |law| law.sample(&mut self.work));
        Second {
            at,
            arrived,
            served,
            shed: lost.min(arrived),
            cpu: done / f64::from(ready.max(1)),
            concurrency: served * WORKERS * service + self.backlog / service,
            capacity: seen / service,
            desired: self.servers.len() as u32,
            ready,
        }
    }

    fn count(&mut self, at: u64, arrived: f64, lost: f64) {
        self.tally.server_hours += self.servers.len() as f64 / 3600.0;
        self.tally.arrived += arrived;
        self.tally.lost += lost;
        self.tally.earnable += arrived * self.trace.revenue;
        self.tally.earned += (arrived - lost) * self.trace.revenue;
        if at.is_multiple_of(60) {
            let minute = (at as f64 / 3600.0, self.servers.len() as f64);
            self.servers_by_minute.push(minute);
        }
    }

    /// Servers that are set.
    #[must_use]
    pub fn desired(&self) -> u32 {
        self.servers.len() as u32
    }

    /// Orders servers, or gives some back: first those that are not ready.
    pub fn set(&mut self, at: u64, desired: u32) {
        let desired = desired.clamp(1, self.trace.pool) as usize;
        if desired == self.servers.len() {
            return;
        }
        let rises = desired > self.servers.len();
        let reversed = |(then, rose): (u64, bool)| rises && !rose && at - then < REVERSAL_SECONDS;
        if at > self.trace.measured_from_s {
            self.tally.actions += 1.0;
            self.tally.reversals += f64::from(u8::from(self.changed.is_some_and(reversed)));
        }
        self.changed = Some((at, rises));
        while self.servers.len() < desired {
            self.ordered += 1;
            let ready = self.start(at);
            self.servers.push(ready);
        }
        while self.servers.len() > desired {
            let last = (0..self.servers.len()).max_by_key(|&index| self.servers[index]);
            self.servers.remove(last.unwrap_or(0));
        }
    }

    fn start(&mut self, at: u64) -> u64 {
        let law = Normal::new(1.0, 0.1);
        let spread: f64 = law.map_or(1.0, |law| law.sample(&mut self.starts));
        let broken = self.trace.broken_every;
        if broken > 0 && self.ordered.is_multiple_of(broken) {
            return u64::MAX;
        }
        at + (self.trace.start_s as f64 * spread.clamp(0.7, 1.5)).round() as u64
    }
}

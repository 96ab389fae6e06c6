//! One source in front of one server, as textbooks have it.
//!
//! `A/S/c/K` with any arrivals, any service law, first come first served or sharing: the model
//! behind the verification against [`theory`](crate::theory), the speed benchmark, and response
//! curves.

use serde::Deserialize;
use tidegate_control::Timestamp;

use crate::engine::{Calendar, EventId, Model, run};
use crate::rng::{SimRng, Streams};
use crate::server::{Station, StationSpec};
use crate::service::Law;
use crate::stats::{BatchMeans, Histogram, Moments};
use crate::time::seconds_between;
use crate::workload::{Arrivals, RateFunction, Spacing};

/// What to simulate.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueueSpec {
    /// Arrival rate.
    pub rate: RateFunction,
    /// Regularity of arrivals.
    #[serde(default)]
    pub spacing: Spacing,
    /// Work of each.
    pub service: Law,
    /// The server.
    #[serde(default)]
    pub station: StationSpec,
}

impl QueueSpec {
    /// Poisson arrivals at a constant rate.
    #[must_use]
    pub fn poisson(per_second: f64, service: Law, station: StationSpec) -> Self {
        Self {
            rate: RateFunction::constant(per_second),
            spacing: Spacing::poisson(),
            service,
            station,
        }
    }

    /// Simulates `seconds`, of which the first `warm_up` are not measured.
    #[must_use]
    pub fn run(&self, streams: Streams, warm_up: f64, seconds: f64) -> QueueRun {
        let mut queue = Queue::new(self, streams, Timestamp::from_secs_f64(warm_up));
        let mut calendar = Calendar::new();
        queue.expect_arrival(&mut calendar);
        let end = Timestamp::from_secs_f64(seconds);
        let events = run(&mut queue, &mut calendar, end);
        queue.measured.finish(events, &queue.station, end)
    }
}

/// What was measured after the warm-up.
#[derive(Debug, Clone)]
pub struct QueueRun {
    /// Events simulated, the warm-up included.
    pub events: u64,
    /// Customers that arrived.
    pub arrived: u64,
    /// Customers that had to wait.
    pub delayed: u64,
    /// Customers refused.
    pub blocked: u64,
    /// Time in the system of those who left.
    pub response: Moments,
    /// The same, for a confidence interval from one run.
    pub batches: BatchMeans,
    /// The same, for quantiles.
    pub histogram: Histogram,
    /// Sum of their work.
    pub work: f64,
    /// Sum of their time in the system over work.
    pub stretch: f64,
    /// Share of the cores' time in use, the warm-up included.
    pub utilization: f64,
}

impl QueueRun {
    fn finish(mut self, events: u64, station: &Station<Customer>, end: Timestamp) -> Self {
        self.events = events;
        self.utilization = station.busy(end) / (end.as_secs_f64() * station.cores());
        self
    }

    /// Share of arrivals refused.
    #[must_use]
    pub fn blocking(&self) -> f64 {
        self.blocked as f64 / self.arrived as f64
    }

    /// Share of arrivals that had to wait.
    #[must_use]
    pub fn delaying(&self) -> f64 {
        self.delayed as f64 / self.arrived as f64
    }

    /// Mean time before service, where jobs do not share (response less work).
    #[must_use]
    pub fn waiting(&self) -> f64 {
        self.response.mean() - self.work / self.response.count() as f64
    }

    /// Mean time in the system over work: `1 / (1 - rho)` for a job of any size under sharing.
    #[must_use]
    pub fn stretching(&self) -> f64 {
        self.stretch / self.response.count() as f64
    }
}

#[derive(Debug, Clone, Copy)]
struct Customer {
    arrived: Timestamp,
    work: f64,
}

#[derive(Debug, Clone, Copy)]
enum Event {
    Arrival,
    Completion,
}

struct Queue {
    arrivals: Arrivals,
    service: Law,
    service_rng: SimRng,
    station: Station<Customer>,
    completion: Option<(Timestamp, EventId)>,
    warm_up: Timestamp,
    measured: QueueRun,
}

impl Queue {
    fn new(spec: &QueueSpec, streams: Streams, warm_up: Timestamp) -> Self {
        let rng = streams.stream("arrivals");
        Self {
            arrivals: Arrivals::new(spec.rate.clone(), spec.spacing.clone(), rng),
            service: spec.service.clone(),
            service_rng: streams.stream("service"),
            station: Station::new(&spec.station),
            completion: None,
            warm_up,
            measured: QueueRun {
                events: 0,
                arrived: 0,
                delayed: 0,
                blocked: 0,
                response: Moments::default(),
                batches: BatchMeans::default(),
                histogram: Histogram::default(),
                work: 0.0,
                stretch: 0.0,
                utilization: 0.0,
            },
        }
    }

    fn expect_arrival(&mut self, calendar: &mut Calendar<Event>) {
        if let Some(time) = self.arrivals.next() {
            calendar.at(time, Event::Arrival);
        }
    }

    fn arrive(&mut self, now: Timestamp) {
        let work = self.service.sample(&mut self.service_rng);
        let delayed = self.station.is_full();
        let customer = Customer { arrived: now, work };
        let blocked = self.station.arrive(now, customer, work).is_err();
        if now >= self.warm_up {
            self.measured.arrived += 1;
            self.measured.delayed += u64::from(delayed && !blocked);
            self.measured.blocked += u64::from(blocked);
        }
    }

    fn leave(&mut self, now: Timestamp) {
        self.completion = None;
        let Some(customer) = self.station.finish(now) else {
            return;
        };
        if customer.arrived < self.warm_up {
            return;
        }
        let response = seconds_between(customer.arrived, now);
        self.measured.response.add(response);
        self.measured.batches.add(response);
        self.measured.histogram.record(response);
        self.measured.work += customer.work;
        self.measured.stretch += response / customer.work;
    }

    /// Keeps the one completion event where the station wants it.
    #[inline]
    fn expect_completion(&mut self, calendar: &mut Calendar<Event>) {
        let wanted = self.station.next_completion();
        if self.completion.map(|(time, _)| time) == wanted {
            return;
        }
        if let Some((_, event)) = self.completion.take() {
            calendar.cancel(event);
        }
        self.completion = wanted.map(|time| (time, calendar.at(time, Event::Completion)));
    }
}

impl Model for Queue {
    type Event = Event;

    fn handle(&mut self, event: Event, calendar: &mut Calendar<Event>) {
        let now = calendar.now();
        match event {
            Event::Arrival => {
                self.arrive(now);
                self.expect_arrival(calendar);
            }
            Event::Completion => self.leave(now),
        }
        self.expect_completion(calendar);
    }
}

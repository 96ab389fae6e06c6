//! Clients, server, controller and channel in a closed loop (001 §5).
//!
//! Each client has one request under way at a time and keeps the others (data-queue). The server
//! shares one core among all requests inside. Every period the controller takes the mean delay of
//! what was completed and says what clients may do; how that reaches them is what the figures
//! compare: over a tree (each level later than the one before), with the responses, or not at all
//! because the server refuses instead.

use std::time::Duration;

use rand_distr::{Distribution, Normal};
use tidegate_channel::{ClientId, Pacer, Permit, Regulator, Strategy};
use tidegate_control::Timestamp;
use tidegate_control::design::{RelayFailure, Ultimate};

use crate::engine::{self, Calendar, Model};
use crate::rng::{SimRng, Streams};
use crate::server::{Bound, Station, StationSpec};

/// No request takes less than this part of the mean work.
const WORK_MIN: f64 = 0.1;

/// When clients have something to send.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Demand {
    /// Always.
    Always,
    /// This many items each, at normally distributed times.
    Peak {
        /// Items per client.
        items: usize,
        /// Their mean.
        mean_s: f64,
        /// Their standard deviation.
        spread_s: f64,
    },
}

/// How clients learn what they may do.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Delivery {
    /// Not at all.
    None,
    /// Over a tree: level `l` (from 1) has it `l` times `dead_time` after the server.
    Tree {
        /// Children of each client.
        arity: usize,
        /// From one level to the next.
        dead_time: Duration,
    },
    /// With each response.
    Piggyback,
    /// They do not: the server refuses, which costs it this much work, and they back off.
    Reject {
        /// Seconds of work.
        work_s: f64,
    },
}

/// What is simulated.
#[derive(Debug)]
pub struct Setup {
    /// Clients at the beginning.
    pub clients: usize,
    /// Clients that join later, and when.
    pub join: Option<(f64, usize)>,
    /// When they have something to send.
    pub demand: Demand,
    /// Mean work of a request in seconds.
    pub work_s: f64,
    /// Its standard deviation. Without any, requests that share the server stay in step with each
    /// other for ever.
    pub work_sd_s: f64,
    /// How long.
    pub duration_s: f64,
    /// Time between two steps of the controller.
    pub period: Duration,
    /// How its commands travel.
    pub delivery: Delivery,
    /// First wait of a refused client, doubled each time without a bound: RFC 2988, which 001
    /// refers to, allows one but asks for none.
    pub backoff_first: Duration,
    /// The controller sees the number of requests inside, of which this many count as a second,
    /// instead of the delay (001 §5.1).
    pub queue_per_s: Option<f64>,
}

/// One period.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// Its end.
    pub at_s: f64,
    /// Mean delay of what was completed; NaN when nothing was.
    pub delay_s: f64,
    /// The command: share of clients or seconds; NaN without a controller.
    pub command: f64,
    /// Requests completed.
    pub completed: u32,
    /// Requests inside the server.
    pub inside: usize,
}

/// What came of it.
#[derive(Debug)]
pub struct Outcome {
    /// Period by period.
    pub rows: Vec<Row>,
    /// Requests served.
    pub served: u64,
    /// Requests refused.
    pub refused: u64,
    /// When the last request was served.
    pub last_s: f64,
    /// What a relay experiment found, if there was one.
    pub tuned: Option<Result<Ultimate, RelayFailure>>,
}

/// Time from the server to the average client, for the predictor: what a real server measures.
#[must_use]
pub fn mean_lag(clients: usize, arity: usize, dead_time: Duration) -> Duration {
    let levels: usize = (0..clients).map(|place| level(place, arity)).sum();
    dead_time.mul_f64(levels as f64 / clients.max(1) as f64)
}

/// Level of a place in the tree, from 1.
fn level(mut place: usize, arity: usize) -> usize {
    let mut level = 1;
    let mut width = arity.max(1);
    while place >= width {
        place -= width;
        width *= arity.max(1);
        level += 1;
    }
    level
}

/// Runs it.
#[must_use]
pub fn run(setup: &Setup, regulator: Option<Regulator>, seed: u64) -> Outcome {
    let mut calendar = Calendar::new();
    let streams = Streams::new(seed);
    let mut auction = Auction::new(setup, regulator, streams.stream("work"));
    auction.begin(&mut calendar, &streams);
    let end = Timestamp::from_secs_f64(setup.duration_s);
    engine::run(&mut auction, &mut calendar, end);
    auction.outcome()
}

#[derive(Debug, Clone, Copy)]
enum Event {
    /// A client has one more item.
    Item(usize),
    /// A client may send now, unless it was told otherwise meanwhile.
    Wake(usize),
    /// The server may have finished something.
    Completion,
    /// The controller's period is over.
    Tick,
    /// What was said in that tick reaches a level of the tree.
    Arrival { level: usize, tick: usize },
    /// More clients.
    Join,
}

#[derive(Debug)]
struct Client {
    pacer: Pacer,
    waiting: u64,
    busy: bool,
    wake: Option<Timestamp>,
    /// Not before that, because the server refused.
    not_before: Timestamp,
    backoff: Duration,
    level: usize,
}

#[derive(Debug, Clone, Copy)]
struct Job {
    client: usize,
    sent: Timestamp,
    refused: bool,
}

struct Auction<'a> {
    setup: &'a Setup,
    regulator: Option<Regulator>,
    clients: Vec<Client>,
    server: Station<Job>,
    work: Normal<f64>,
    work_rng: SimRng,
    /// What was said, tick by tick.
    said: Vec<Strategy>,
    delay_sum_s: f64,
    completed: u32,
    rows: Vec<Row>,
    served: u64,
    refused: u64,
    last_s: f64,
}

impl<'a> Auction<'a> {
    fn new(setup: &'a Setup, regulator: Option<Regulator>, work_rng: SimRng) -> Self {
        let work = Normal::new(setup.work_s, setup.work_sd_s);
        Self {
            work: work.expect("the standard deviation was checked"),
            work_rng,
            setup,
            regulator,
            clients: Vec::new(),
            server: Station::new(&StationSpec::sharing(Bound::Unlimited)),
            said: vec![Strategy::Open],
            delay_sum_s: 0.0,
            completed: 0,
            rows: Vec::new(),
            served: 0,
            refused: 0,
            last_s: 0.0,
        }
    }

    fn begin(&mut self, calendar: &mut Calendar<Event>, streams: &Streams) {
        self.add_clients(self.setup.clients);
        match self.setup.demand {
            Demand::Always => (0..self.setup.clients).for_each(|client| {
                calendar.at(Timestamp::ZERO, Event::Item(client));
            }),
            Demand::Peak {
                items,
                mean_s,
                spread_s,
            } => {
                let law = Normal::new(mean_s, spread_s).expect("the spread was checked");
                let mut rng = streams.stream("items");
                for client in 0..self.setup.clients {
                    for at_s in law.sample_iter(&mut rng).take(items) {
                        calendar.at(Timestamp::from_secs_f64(at_s), Event::Item(client));
                    }
                }
            }
        }
        if let Some((at_s, _)) = self.setup.join {
            calendar.at(Timestamp::from_secs_f64(at_s), Event::Join);
        }
        calendar.after(self.setup.period, Event::Tick);
    }

    fn add_clients(&mut self, count: usize) {
        let arity = match self.setup.delivery {
            Delivery::Tree { arity, .. } => arity,
            _ => 1,
        };
        for index in self.clients.len()..self.clients.len() + count {
            self.clients.push(Client {
                pacer: Pacer::new(ClientId(index as u64)),
                waiting: 0,
                busy: false,
                wake: None,
                not_before: Timestamp::ZERO,
                backoff: self.setup.backoff_first,
                level: level(index, arity),
            });
        }
    }

    /// Lets a client send if it wants to and may.
    fn try_send(&mut self, index: usize, calendar: &mut Calendar<Event>) {
        let now = calendar.now();
        let client = &mut self.clients[index];
        if client.busy || client.waiting == 0 {
            return;
        }
        let permit = if client.not_before > now {
            Permit::NotBefore(client.not_before)
        } else {
            client.pacer.permit(now)
        };
        match permit {
            Permit::Now => {
                client.wake = None;
                client.busy = true;
                client.pacer.on_sent(now);
                self.arrive(index, calendar);
            }
            Permit::NotBefore(time) if client.wake != Some(time) => {
                client.wake = Some(time);
                calendar.at(time, Event::Wake(index));
            }
            Permit::NotBefore(_) => {}
        }
    }

    /// A request reaches the server.
    fn arrive(&mut self, index: usize, calendar: &mut Calendar<Event>) {
        let now = calendar.now();
        let refusal_work_s = match self.setup.delivery {
            Delivery::Reject { work_s } => self.is_refused(index, now).then_some(work_s),
            _ => None,
        };
        let job = Job {
            client: index,
            sent: now,
            refused: refusal_work_s.is_some(),
        };
        let work_s = refusal_work_s.unwrap_or_else(|| {
            let work_s = self.work.sample(&mut self.work_rng);
            work_s.max(WORK_MIN * self.setup.work_s)
        });
        let arrived = self.server.arrive(now, job, work_s);
        debug_assert!(arrived.is_ok(), "the server's queue is unlimited");
        self.schedule_completion(calendar);
    }

    /// Whether the server refuses this client's request: it is not in the group that is active.
    fn is_refused(&self, index: usize, now: Timestamp) -> bool {
        let mut would = Pacer::new(self.clients[index].pacer.id());
        would.apply(now, self.said[self.said.len() - 1].clone());
        would.permit(now) != Permit::Now
    }

    fn schedule_completion(&self, calendar: &mut Calendar<Event>) {
        if let Some(at) = self.server.next_completion() {
            calendar.at(at, Event::Completion);
        }
    }

    fn complete(&mut self, calendar: &mut Calendar<Event>) {
        let now = calendar.now();
        let mut any = false;
        while let Some(job) = self.server.finish(now) {
            any = true;
            self.clients[job.client].busy = false;
            if job.refused {
                self.back_off(job.client, now);
            } else {
                self.serve(job, now);
            }
            self.try_send(job.client, calendar);
        }
        if any {
            self.schedule_completion(calendar);
        }
    }

    fn serve(&mut self, job: Job, now: Timestamp) {
        self.delay_sum_s += now.since(job.sent).as_secs_f64();
        self.completed += 1;
        self.served += 1;
        self.last_s = now.as_secs_f64();
        let client = &mut self.clients[job.client];
        client.backoff = self.setup.backoff_first;
        if self.setup.demand != Demand::Always {
            client.waiting -= 1;
        }
        if self.setup.delivery == Delivery::Piggyback {
            client
                .pacer
                .apply(now, self.said[self.said.len() - 1].clone());
        }
    }

    fn back_off(&mut self, index: usize, now: Timestamp) {
        self.refused += 1;
        let client = &mut self.clients[index];
        client.not_before = now + client.backoff;
        client.backoff = 2 * client.backoff;
    }

    /// A period is over: measure, decide, say.
    fn tick(&mut self, calendar: &mut Calendar<Event>) {
        let delay_s = match (self.completed, self.server.is_empty()) {
            (0, true) => 0.0,
            (0, false) => f64::NAN,
            (completed, _) => self.delay_sum_s / f64::from(completed),
        };
        let mut command = f64::NAN;
        if let Some(regulator) = &mut self.regulator {
            let measured_s = match self.setup.queue_per_s {
                Some(per_s) => self.server.len() as f64 / per_s,
                None => delay_s,
            };
            let strategy = regulator.step(measured_s);
            command = regulator.command();
            self.said.push(strategy);
            self.announce(calendar);
        }
        self.rows.push(Row {
            at_s: calendar.now().as_secs_f64(),
            delay_s: if self.completed == 0 {
                f64::NAN
            } else {
                delay_s
            },
            command,
            completed: self.completed,
            inside: self.server.len(),
        });
        (self.delay_sum_s, self.completed) = (0.0, 0);
        calendar.after(self.setup.period, Event::Tick);
    }

    fn announce(&self, calendar: &mut Calendar<Event>) {
        if let Delivery::Tree { dead_time, .. } = self.setup.delivery {
            let tick = self.said.len() - 1;
            let deepest = self.clients.iter().map(|client| client.level).max();
            for level in 1..=deepest.unwrap_or(0) {
                let delay = dead_time * level as u32;
                calendar.after(delay, Event::Arrival { level, tick });
            }
        }
    }

    fn told(&mut self, level: usize, tick: usize, calendar: &mut Calendar<Event>) {
        for index in 0..self.clients.len() {
            if self.clients[index].level == level {
                let strategy = self.said[tick].clone();
                self.clients[index].pacer.apply(calendar.now(), strategy);
                self.try_send(index, calendar);
            }
        }
    }

    fn outcome(self) -> Outcome {
        Outcome {
            rows: self.rows,
            served: self.served,
            refused: self.refused,
            last_s: self.last_s,
            tuned: self.regulator.as_ref().and_then(Regulator::tuned),
        }
    }
}

impl Model for Auction<'_> {
    type Event = Event;

    fn handle(&mut self, event: Event, calendar: &mut Calendar<Event>) {
        match event {
            Event::Item(client) => {
                self.clients[client].waiting += 1;
                self.try_send(client, calendar);
            }
            Event::Wake(client) => {
                if self.clients[client].wake == Some(calendar.now()) {
                    self.clients[client].wake = None;
                    self.try_send(client, calendar);
                }
            }
            Event::Completion => self.complete(calendar),
            Event::Tick => self.tick(calendar),
            Event::Arrival { level, tick } => self.told(level, tick, calendar),
            Event::Join => {
                let first = self.clients.len();
                self.add_clients(self.setup.join.map_or(0, |(_, count)| count));
                for client in first..self.clients.len() {
                    let latest = self.said[self.said.len() - 1].clone();
                    self.clients[client].pacer.apply(calendar.now(), latest);
                    calendar.after(Duration::ZERO, Event::Item(client));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uncontrolled(clients: usize, demand: Demand) -> Outcome {
        let setup = Setup {
            clients,
            join: None,
            demand,
            work_s: 0.1,
            work_sd_s: 0.0,
            duration_s: 500.0,
            period: Duration::from_secs(1),
            delivery: Delivery::None,
            backoff_first: Duration::from_secs(3),
            queue_per_s: None,
        };
        run(&setup, None, 1)
    }

    #[test]
    fn clients_that_always_send_wait_for_each_other() {
        let outcome = uncontrolled(20, Demand::Always);
        // Equal requests that share the server end together, every two seconds.
        let two_seconds = &outcome.rows[400..402];
        let completed: u32 = two_seconds.iter().map(|row| row.completed).sum();
        assert_eq!(completed, 20);
        let busy = two_seconds.iter().filter(|row| row.completed > 0);
        for row in busy {
            assert!((row.delay_s - 2.0).abs() < 1e-6, "{row:?}");
        }
    }

    #[test]
    fn every_item_is_served_once() {
        let demand = Demand::Peak {
            items: 30,
            mean_s: 130.0,
            spread_s: 50.0,
        };
        let outcome = uncontrolled(100, demand);
        assert_eq!(outcome.served, 3000);
        let worst = outcome
            .rows
            .iter()
            .map(|row| row.delay_s)
            .fold(0.0, f64::max);
        assert!(
            (worst - 10.0).abs() < 0.1,
            "100 clients, 100 ms each: {worst}"
        );
    }

    #[test]
    fn levels_of_a_tree() {
        let levels: Vec<_> = [0, 4, 5, 29, 30, 99].map(|place| level(place, 5)).into();
        assert_eq!(levels, [1, 1, 2, 2, 3, 3]);
        let lag = mean_lag(100, 5, Duration::from_secs(2));
        assert_eq!(lag, Duration::from_millis(5300));
    }
}

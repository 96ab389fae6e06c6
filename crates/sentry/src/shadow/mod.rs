//! A second engine on the same arrivals, in front of models of the replicas.
//!
//! It serves two purposes. In a dry run nothing is queued and no window is full, so mode `auto` has
//! nothing to measure: a replica in meltdown looks like a slow one. The shadow is an engine that
//! does enforce; what it sheds is what the dry run would have shed. And a [`Comparison`] runs
//! another configuration beside the one in force.
//!
//! The shadow gets the arrivals of the real engine. Its replicas are models: [`CapacityModel`]
//! learns from the real completions how much each replica can do, [`Station`] serves the shadow's
//! requests at that rate.
//!
//! Requests only leave a record ([`Inbox`]); the shadow runs on the tick, in simulated time.
//!
//! What breaks it: clients that behave differently when they are refused (retries), a capacity that
//! was never reached, and paths whose costs differ: a station serves all requests alike.
//!
//! Decision: docs/decisions/0140-shadow-of-a-dry-run.md.

mod capacity;
mod comparison;
mod recent;
mod station;
mod status;

use std::num::NonZeroU32;
use std::sync::Arc;

use tidegate_control::Timestamp;

use self::capacity::CapacityModel;
pub use self::comparison::Comparison;
use self::station::Station;
pub use self::status::{ShadowClass, ShadowEngine, ShadowStatus};
use crate::api::Verdict;
use crate::api::{Arrival, ClassId, Ending, Permit, ReplicaId, Report, Resolution, ShedReason};
use crate::config::SentryConfig;
use crate::engine::Sentry;
use crate::error::SentryError;
use crate::event::{Event, Observer};
use crate::plan::Plan;
use crate::random::Dice;

/// Arrivals kept between two ticks: a tenth of a second at 600 000 requests per second. More are
/// left out.
const ARRIVALS_MAX: usize = 1 << 16;

/// Seed of the models' service times: the shadow decides about no request, so it need not be
/// secret.
const SEED: u64 = 0x7368_6164_6f77;

/// What requests leave for the shadow until the next tick.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    arrivals: Vec<(Timestamp, Arrival)>,
    /// Per replica: requests served, and the seconds they took inside.
    served: Vec<Served>,
    /// Arrivals for which there was no room.
    left_out: u64,
}

/// Completions of a replica.
#[derive(Debug, Clone, Copy, Default)]
struct Served {
    count: u32,
    seconds: f64,
}

impl Inbox {
    pub(crate) fn on_arrival(&mut self, now: Timestamp, arrival: &Arrival) {
        self.on_arrival_within(ARRIVALS_MAX, now, arrival);
    }

    /// Keeps an arrival unless there are `most` already.
    fn on_arrival_within(&mut self, most: usize, now: Timestamp, arrival: &Arrival) {
        if self.arrivals.len() < most {
            self.arrivals.push((now, *arrival));
        } else {
            self.left_out += 1;
        }
    }

    pub(crate) fn on_served(&mut self, replica: ReplicaId, seconds: f64) {
        let index = usize::from(replica.0);
        if self.served.len() <= index {
            self.served.resize(index + 1, Served::default());
        }
        let served = &mut self.served[index];
        served.count += 1;
        served.seconds += seconds;
    }

    /// Moves everything to `other`, and keeps the memory.
    fn drain_into(&mut self, other: &mut Self) {
        other.arrivals.append(&mut self.arrivals);
        if other.served.len() < self.served.len() {
            other.served.resize(self.served.len(), Served::default());
        }
        for (sum, served) in other.served.iter_mut().zip(self.served.drain(..)) {
            sum.count += served.count;
            sum.seconds += served.seconds;
        }
        other.left_out += std::mem::take(&mut self.left_out);
    }

    /// Empty again, with its memory.
    fn clear(&mut self) {
        self.arrivals.clear();
        self.served.clear();
        self.left_out = 0;
    }
}

/// A request of the shadow: nothing has to be known about it.
#[derive(Debug, Clone, Copy)]
struct Waiter;

/// Time between two reports of a station's utilization, for modes that regulate it.
const REPORT_INTERVAL: std::time::Duration = std::time::Duration::from_secs(1);

/// The enforcing engine, and the models of the replicas it has.
#[derive(Debug)]
pub(crate) struct Shadow {
    sentry: Sentry<Waiter>,
    /// The plan's configuration for which it was made.
    source: Arc<SentryConfig>,
    /// By the plan's classes: the class of the same name, or else the last.
    classes: Vec<ClassId>,
    models: Vec<CapacityModel>,
    stations: Vec<Station>,
    dice: Dice,
    now: Timestamp,
    reported_at: Timestamp,
    /// Whether each replica was full at the last tick.
    full: Vec<bool>,
    /// Refusals that were passed on already, by class and reason.
    reported: Vec<[u64; ShedReason::ALL.len()]>,
}

impl Shadow {
    /// A shadow of the plan that enforces it; `None` where the mode needs none.
    pub(crate) fn new(plan: &Plan, now: Timestamp) -> Option<Box<Self>> {
        Self::with(&plan.config, plan, now).ok()
    }

    /// A shadow with this configuration before the replicas of the plan. It enforces.
    fn with(config: &SentryConfig, plan: &Plan, now: Timestamp) -> Result<Box<Self>, SentryError> {
        let config = SentryConfig {
            dry_run: false,
            ..config.clone()
        };
        let weight = |weight: u32| NonZeroU32::new(weight).unwrap_or(NonZeroU32::MIN);
        let weights = plan.replicas.iter().map(|replica| weight(replica.weight()));
        let weights: Vec<_> = weights.collect();
        let sentry = Sentry::weighted(&config, &weights, now, SEED)?;
        let own = sentry.plan_now();
        let last = own.classes.len() - 1;
        let class_of = |name: &str| own.classes.iter().position(|class| class.name == name);
        let names = plan.classes.iter().map(|class| class.name.as_str());
        Ok(Box::new(Self {
            classes: names
                .map(|name| ClassId(class_of(name).unwrap_or(last) as u16))
                .collect(),
            sentry,
            source: Arc::clone(&plan.config),
            models: vec![CapacityModel::default(); weights.len()],
            stations: weights.iter().map(|_| Station::default()).collect(),
            dice: Dice::new(SEED),
            now,
            reported_at: now,
            full: vec![false; weights.len()],
            reported: Vec::new(),
        }))
    }

    /// Whether it was made for this plan.
    fn suits(&self, plan: &Plan) -> bool {
        Arc::ptr_eq(&self.source, &plan.config) && self.models.len() == plan.replicas.len()
    }

    /// Takes over what another one has learned about the replicas.
    fn learn_from(&mut self, now: Timestamp, before: Self) {
        for (model, known) in self.models.iter_mut().zip(before.models) {
            *model = known;
        }
        self.sentry.resume(now, &before.sentry.windows());
    }

    /// The shadow after a change of the plan: a new engine, and what was learnt about replicas.
    pub(crate) fn following(self: Box<Self>, plan: &Plan, now: Timestamp) -> Option<Box<Self>> {
        if self.suits(plan) {
            return Some(self);
        }
        let mut next = Self::new(plan, now)?;
        next.learn_from(now, *self);
        Some(next)
    }

    /// Lives through the time until now with what arrived in it, and counts in the plan's classes
    /// what enforcing would have shed. Of the shadow's events the observer gets the overloads.
    pub(crate) fn on_tick(
        &mut self,
        now: Timestamp,
        plan: &Plan,
        mut inbox: Inbox,
        observer: &mut dyn Observer,
    ) {
        inbox.arrivals.sort_by_key(|(at, _)| *at);
        let observer = &mut |event: &Event| {
            if matches!(event, Event::Overload { .. }) {
                observer.on_event(event);
            }
        };
        self.live(now, plan, &inbox, observer);
        self.report(plan);
    }

    /// Lives through the time until now. The arrivals are in the order of time.
    fn live(&mut self, now: Timestamp, plan: &Plan, inbox: &Inbox, observer: &mut dyn Observer) {
        self.learn(now, plan, &inbox.served);
        for (at, arrival) in &inbox.arrivals {
            let at = (*at).max(self.now).min(now);
            self.advance(at, observer);
            self.arrive(at, arrival);
        }
        self.advance(now, observer);
        self.report_utilization(now);
    }

    pub(crate) fn overloaded(&self) -> Option<bool> {
        self.sentry.adaptation().overloaded()
    }

    pub(crate) fn drain_rate(&self) -> Option<f64> {
        self.sentry.adaptation().drain_rate()
    }

    /// Takes over which replicas are up, and what they did.
    fn learn(&mut self, now: Timestamp, plan: &Plan, served: &[Served]) {
        let seconds = (now - self.now).as_secs_f64();
        let mut started = Vec::new();
        for (index, replica) in plan.replicas.iter().enumerate() {
            let id = ReplicaId(index as u16);
            let resolutions = self.sentry.set_health(self.now, id, replica.is_up());
            started.extend(resolutions.filter_map(admitted));
            let done = served.get(index).copied().unwrap_or_default();
            let full = plan.queued() > 0 && replica.in_flight() >= replica.limit();
            let was_full = std::mem::replace(&mut self.full[index], full);
            let model = &mut self.models[index];
            model.on_tick(done.count, done.seconds, seconds, replica.in_flight());
            if full && was_full {
                model.on_full(done.count, seconds, replica.limit());
            }
            self.stations[index].set(model.servers());
        }
        self.start(self.now, started);
    }

    /// Ticks and completions until then, in order of time.
    fn advance(&mut self, until: Timestamp, observer: &mut dyn Observer) {
        loop {
            let tick = self.sentry.poll_timeout();
            let ends = self.stations.iter().enumerate();
            let ends = ends.filter_map(|(index, station)| Some((station.next_end()?, index)));
            match ends.min() {
                Some((at, index)) if at <= until && at < tick => self.complete(at, index),
                _ if tick <= until => self.tick(tick, observer),
                _ => break,
            }
        }
        self.now = until;
    }

    fn tick(&mut self, at: Timestamp, observer: &mut dyn Observer) {
        let resolutions = self.sentry.handle_timeout(at, observer);
        let started = resolutions.filter_map(admitted).collect();
        self.start(at, started);
    }

    fn complete(&mut self, at: Timestamp, station: usize) {
        let Some(permit) = self.stations[station].end(at, &self.dice) else {
            return;
        };
        let resolutions = self.sentry.on_end(at, permit, Ending::Served);
        let started = resolutions.filter_map(admitted).collect();
        self.start(at, started);
    }

    fn arrive(&mut self, at: Timestamp, arrival: &Arrival) {
        let class = self.classes.get(usize::from(arrival.class.0));
        let arrival = &Arrival {
            class: class.copied().unwrap_or(arrival.class),
            ..*arrival
        };
        if let Verdict::Admit(permit) = self.sentry.on_arrival(at, arrival, || Waiter) {
            self.start(at, vec![permit]);
        }
    }

    fn start(&mut self, at: Timestamp, permits: Vec<Permit>) {
        for permit in permits {
            let index = usize::from(permit.replica().0);
            self.stations[index].begin(at, permit, &self.dice);
        }
    }

    /// Says how busy the models were, where their servers are known.
    fn report_utilization(&mut self, now: Timestamp) {
        let elapsed = now - self.reported_at;
        if elapsed < REPORT_INTERVAL {
            return;
        }
        self.reported_at = now;
        for (index, station) in self.stations.iter_mut().enumerate() {
            let utilization = station.utilization(now, elapsed);
            let report = Report {
                utilization,
                ..Report::default()
            };
            if utilization.is_some() {
                self.sentry.on_report(now, ReplicaId(index as u16), &report);
            }
        }
    }

    fn report(&mut self, plan: &Plan) {
        let mine = self.sentry.plan_now();
        self.reported.resize(mine.classes.len(), Default::default());
        let classes = mine.classes.iter().zip(&plan.classes);
        for ((shadow, real), reported) in classes.zip(&mut self.reported) {
            for (reason, before) in ShedReason::ALL.into_iter().zip(reported) {
                let total = shadow.counters.shed_for(reason);
                real.counters.would_shed_more(reason, total - *before);
                *before = total;
            }
        }
    }
}

fn admitted((_, resolution): (Waiter, Resolution)) -> Option<Permit> {
    match resolution {
        Resolution::Admit(permit) => Some(permit),
        Resolution::Shed(_) => None,
    }
}

//! What enforcing would do, while a dry run admits everything.
//!
//! In a dry run nothing is queued and no window is full, so mode `auto` has nothing to measure: a
//! replica in meltdown looks like a slow one. The shadow is a second engine that does enforce. It
//! gets the same arrivals, in front of replicas that are models: [`CapacityModel`] learns from the
//! real completions how much each replica can do, [`Station`] serves the shadow's requests at that
//! rate. What the shadow sheds is what the dry run would have shed.
//!
//! Requests only leave a record ([`Inbox`]); the shadow runs on the tick, in simulated time.
//!
//! What breaks it: clients that behave differently when they are refused (retries), a capacity that
//! was never reached, and paths whose costs differ: a station serves all requests alike.

mod capacity;
mod station;

use std::num::NonZeroU32;
use std::sync::Arc;

use tidegate_control::Timestamp;

use self::capacity::CapacityModel;
use self::station::Station;
use crate::api::{Arrival, Ending, Permit, ReplicaId, Resolution, ShedReason, Verdict};
use crate::config::SentryConfig;
use crate::engine::Sentry;
use crate::event::{Event, Observer};
use crate::plan::Plan;
use crate::random::Dice;

/// Arrivals kept between two ticks: a tenth of a second at 600 000 requests per second. More are
/// left out.
const ARRIVALS_MAX: usize = 1 << 16;

/// Seed of the models' service times: the shadow decides about nobody, so it need not be secret.
const SEED: u64 = 0x7368_6164_6f77;

/// What requests leave for the shadow until the next tick.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    arrivals: Vec<(Timestamp, Arrival)>,
    /// Per replica: requests served, and the seconds they took inside.
    served: Vec<Served>,
}

/// Completions of a replica.
#[derive(Debug, Clone, Copy, Default)]
struct Served {
    count: u32,
    seconds: f64,
}

impl Inbox {
    pub(crate) fn on_arrival(&mut self, now: Timestamp, arrival: &Arrival) {
        if self.arrivals.len() < ARRIVALS_MAX {
            self.arrivals.push((now, *arrival));
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
}

/// A request of the shadow: nothing has to be known about it.
#[derive(Debug, Clone, Copy)]
struct Waiter;

/// The enforcing engine, and the models of the replicas it has.
#[derive(Debug)]
pub(crate) struct Shadow {
    sentry: Sentry<Waiter>,
    config: Arc<SentryConfig>,
    models: Vec<CapacityModel>,
    stations: Vec<Station>,
    dice: Dice,
    now: Timestamp,
    /// Refusals that were passed on already, by class and reason.
    reported: Vec<[u64; ShedReason::ALL.len()]>,
}

impl Shadow {
    /// A shadow of the plan; `None` where the mode needs none.
    pub(crate) fn new(plan: &Plan, now: Timestamp) -> Option<Box<Self>> {
        let config = SentryConfig {
            dry_run: false,
            ..(*plan.config).clone()
        };
        let weight = |weight: u32| NonZeroU32::new(weight).unwrap_or(NonZeroU32::MIN);
        let weights = plan.replicas.iter().map(|replica| weight(replica.weight()));
        let weights: Vec<_> = weights.collect();
        Some(Box::new(Self {
            sentry: Sentry::weighted(&config, &weights, now, SEED).ok()?,
            config: Arc::clone(&plan.config),
            models: vec![CapacityModel::default(); weights.len()],
            stations: weights.iter().map(|_| Station::default()).collect(),
            dice: Dice::new(SEED),
            now,
            reported: Vec::new(),
        }))
    }

    /// The shadow after a change of the plan: a new engine, and what was learnt about replicas.
    pub(crate) fn following(self: Box<Self>, plan: &Plan, now: Timestamp) -> Option<Box<Self>> {
        if Arc::ptr_eq(&self.config, &plan.config) && self.models.len() == plan.replicas.len() {
            return Some(self);
        }
        let mut next = Self::new(plan, now)?;
        for (model, known) in next.models.iter_mut().zip(self.models) {
            *model = known;
        }
        next.sentry.resume(now, &self.sentry.windows());
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
        self.learn(now, plan, &inbox.served);
        inbox.arrivals.sort_by_key(|(at, _)| *at);
        for (at, arrival) in inbox.arrivals {
            let at = at.max(self.now).min(now);
            self.advance(at, observer);
            self.arrive(at, &arrival);
        }
        self.advance(now, observer);
        self.report(plan);
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
            let mut wake = |_: Waiter, resolution| started.extend(admitted(resolution));
            self.sentry
                .set_health(self.now, id, replica.is_up(), &mut wake);
            let done = served.get(index).copied().unwrap_or_default();
            self.models[index].on_tick(done.count, done.seconds, seconds, replica.in_flight());
            self.stations[index].set(self.models[index].servers());
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
        let mut started = Vec::new();
        let mut observe = |event: &Event| {
            if matches!(event, Event::Overload { .. }) {
                observer.on_event(event);
            }
        };
        let mut wake = |_: Waiter, resolution| started.extend(admitted(resolution));
        self.sentry.handle_timeout(at, &mut observe, &mut wake);
        self.start(at, started);
    }

    fn complete(&mut self, at: Timestamp, station: usize) {
        let Some(permit) = self.stations[station].end(at, &self.dice) else {
            return;
        };
        let mut started = Vec::new();
        let mut wake = |_: Waiter, resolution| started.extend(admitted(resolution));
        self.sentry.on_end(at, permit, Ending::Served, &mut wake);
        self.start(at, started);
    }

    fn arrive(&mut self, at: Timestamp, arrival: &Arrival) {
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

fn admitted(resolution: Resolution) -> Option<Permit> {
    match resolution {
        Resolution::Admit(permit) => Some(permit),
        Resolution::Shed(_) => None,
    }
}

//! Mode `sentry`: policing at extreme overload (003 §3).
//!
//! Requests are judged one by one or in batches, by what is published here:
//!
//! - how: against their target, or by a threshold while the proxy is short of CPU ([`Switch`]);
//! - for the threshold, the share of each class that fits ([`Threshold`]);
//! - how long less important classes are held before they are examined ([`delays`]);
//! - how much of the servers is kept free, so that hardly anybody is late ([`Rooms`]).
//!
//! What breaks it: a service whose replicas slow down for reasons that are not requests in
//! service. The test sees it as longer service times, after some tens of requests.

mod endings;
mod meter;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tidegate_control::Timestamp;

use self::endings::Endings;
use self::meter::Meter;
use super::{Handover, Step, Strategy, without_forecast};
use crate::clamp::within;
use crate::class::Class;
use crate::config::SentryConfig;
use crate::event::Event;
use crate::fleet::FleetShare;
use crate::gate::Gate;
use crate::plan::Plan;
use crate::policing::delays::{self, ClassArrivals, DelayBounds};
use crate::policing::room::{Outcome, Rooms};
use crate::policing::switch::Switch;
use crate::policing::{ClassLoad, Kind, Threshold};
use crate::status::PolicingStatus;

/// How often paths that are not asked for any more make room.
const AGING: Duration = Duration::from_secs(60);

/// Share of the servers' time that the threshold gives away. Chosen: at 0.95 a server with random
/// arrivals takes twenty service times for a request, at 1 any number of them.
const LOAD_MAX: f64 = 0.95;

/// No class is examined more often than this.
const DELAY_MIN: Duration = Duration::from_millis(1);

/// Weight of the newest interval in the rates and in the share refused that the delays rest on.
/// Chosen: with the default interval they follow within two seconds.
const NEWEST: f64 = 0.25;

/// Weight of the newest period in the rates that the threshold rests on (003 §3.3 smooths
/// exponentially and does not say how much). Chosen: a step is followed to three quarters at once.
const NEWEST_PERIOD: f64 = 0.75;

/// The first threshold is computed after so long, the next ones after twice as long each, up to
/// `threshold_interval`. Until the first there is none and everything is admitted; the paper's 15 s
/// of that leave a backlog which costs the most important class a third of its requests.
const FIRST_PERIOD: Duration = Duration::from_millis(500);

/// Share of the servers that a backlog may take from newcomers.
const BACKLOG_MAX: f64 = 0.5;

/// Mode `sentry`: policing at extreme overload (003 §3).
#[derive(Debug)]
pub(crate) struct SentryMode {
    interval: Duration,
    switch: Switch,
    /// Rates over intervals, for the delays.
    arrivals: Meter,
    refused_share: f64,
    rooms: Rooms,
    /// Rates over the threshold's periods.
    loads: Meter,
    endings: Endings,
    next_threshold: Timestamp,
    /// Time from one threshold to the next: short after the start and after a switch, then longer.
    threshold_period: Duration,
    /// Equation 8 at the delays in force.
    denied_share: f64,
    next_aging: Timestamp,
    /// This engine's part of the servers, where several share them.
    share: f64,
}

impl SentryMode {
    pub(crate) fn new(config: &SentryConfig, now: Timestamp) -> Self {
        Self {
            interval: config.sentry.interval.0,
            switch: Switch::new(&config.sentry),
            arrivals: Meter::new(NEWEST),
            refused_share: 0.0,
            rooms: Rooms::default(),
            loads: Meter::new(NEWEST_PERIOD),
            endings: Endings::default(),
            next_threshold: now + FIRST_PERIOD,
            threshold_period: FIRST_PERIOD,
            denied_share: 0.0,
            next_aging: now + AGING,
            share: 1.0,
        }
    }

    fn choose_kind(&mut self, step: &mut Step<'_>) {
        let policer = &step.plan.policer;
        let cpu_share = policer.cpu_share();
        if self
            .switch
            .on_step(step.now, cpu_share, &step.plan.config.sentry)
        {
            policer.set_kind(self.switch.kind());
            if self.switch.kind() == Kind::Threshold {
                self.threshold_period = FIRST_PERIOD;
                self.set_threshold(step.now, step.plan);
            }
            step.observe(&Event::Policing {
                at: step.now,
                kind: self.switch.kind().as_str(),
                reason: self.switch.reason(),
            });
        }
    }

    /// Equations 5 and 6, from what arrived since they were solved last.
    fn set_threshold(&mut self, now: Timestamp, plan: &Plan) {
        let longest = plan.config.sentry.threshold_interval.0;
        self.next_threshold = now + self.threshold_period.min(longest);
        self.threshold_period = (2 * self.threshold_period).min(longest);
        let rates = self.loads.rates(now, plan);
        let loads: Vec<ClassLoad> = rates
            .iter()
            .zip(&plan.classes)
            .map(|(rate, class)| ClassLoad {
                rate: rate.beyond_guarantee,
                guaranteed_rate: rate.guaranteed,
                service_s: class.cost.service_s().unwrap_or(0.0),
            })
            .collect();
        let useful = self.endings.useful_share(plan);
        let room = useful * self.share * servers_left(plan, &loads);
        plan.policer
            .threshold
            .set(&Threshold::compute(&loads, room));
    }

    /// As configured, or by equations 8 to 13 from what arrived and was refused of late.
    fn set_delays(&mut self, now: Timestamp, plan: &Plan) {
        if !plan.config.sentry.delays.is_empty() {
            return set_given_delays(plan);
        }
        let newest = plan.policer.take_refused_share().unwrap_or(0.0);
        self.refused_share += NEWEST * (newest - self.refused_share);
        let classes: Vec<ClassArrivals> = self
            .arrivals
            .rates(now, plan)
            .iter()
            .zip(&plan.classes)
            .map(|(rate, class)| ClassArrivals {
                rate: rate.beyond_guarantee,
                service_s: class.cost.service_s().unwrap_or(0.0),
            })
            .collect();
        let in_service = plan.servers().in_service_each();
        let computed = delays::delays(&classes, in_service, self.refused_share, &bounds(plan));
        self.denied_share = computed.chance;
        for (class, delay_s) in plan.classes.iter().zip(computed.seconds) {
            let delay = Duration::from_secs_f64(within(delay_s, 0.0, 3600.0));
            class.set_delay(worth_a_timer(delay));
        }
    }

    /// How full servers may be, from what was late and refused of late.
    fn set_rooms(&mut self, now: Timestamp, plan: &Plan) {
        let late_max = plan.config.sentry.late_max.0;
        let shares = self.rooms.step(now, outcomes(plan), late_max);
        let classes = plan.classes.iter().zip(shares);
        classes.for_each(|(class, share)| class.set_room(share));
    }
}

/// What became of the classes' requests since the start.
fn outcomes(plan: &Plan) -> Vec<Outcome> {
    let outcome = |class: &Arc<Class>| Outcome {
        served: class.counters.served.load(Ordering::Relaxed),
        late: class.counters.late(),
        refused: class.counters.policed(),
        target: class.forecast.target().unwrap_or_default(),
    };
    plan.classes.iter().map(outcome).collect()
}

/// Holds the classes for as long as the operator says; the last delay is for all that follow.
fn set_given_delays(plan: &Plan) {
    let given = plan.config.sentry.delays.iter();
    let last = plan.config.sentry.delays.last();
    for (class, delay) in plan
        .classes
        .iter()
        .zip(given.chain(last.into_iter().cycle()))
    {
        class.set_delay(worth_a_timer(delay.0));
    }
}

/// A delay is none, or long enough that examinations are rare against requests.
fn worth_a_timer(delay: Duration) -> Duration {
    if delay.is_zero() {
        delay
    } else {
        delay.max(DELAY_MIN)
    }
}

/// Servers that the next period has for newcomers: nearly all of them, less what it takes to finish
/// what is in service within the period. Without this a backlog from before the threshold was right
/// would stay for ever. Each counts by itself, so that one that
/// says more than it has is believed for itself only.
fn servers_left(plan: &Plan, loads: &[ClassLoad]) -> f64 {
    let servers = plan.servers();
    let rate: f64 = loads.iter().map(|load| load.rate).sum();
    let work: f64 = loads.iter().map(|load| load.rate * load.service_s).sum();
    let service_s = if rate > 0.0 { work / rate } else { 0.0 };
    let interval_s = plan.config.sentry.threshold_interval.as_secs_f64();
    servers
        .iter()
        .map(|server| f64::from(server.in_service) * service_s / interval_s)
        .map(|backlog| LOAD_MAX - backlog.min(BACKLOG_MAX))
        .sum()
}

fn bounds(plan: &Plan) -> DelayBounds {
    let config = &plan.config.sentry;
    let targets = plan.classes.iter().map(|class| class.forecast.target());
    let target = targets.flatten().min().unwrap_or(Duration::ZERO);
    DelayBounds {
        epsilon: config.denied_max.0,
        delay_max_s: config.delay_max.0 * target.as_secs_f64(),
        ratio: config.delay_ratio,
    }
}

impl Strategy for SentryMode {
    fn interval(&self) -> Duration {
        self.interval
    }

    fn share(&mut self, _: Timestamp, _: &Plan, _: &Gate, share: &FleetShare) {
        self.share = if share.is_shared() { share.share } else { 1.0 };
    }

    fn start(&mut self, now: Timestamp, plan: &Plan, gate: &Gate, _: Option<&Handover>) {
        without_forecast(plan);
        gate.open();
        plan.policer.set_kind(self.switch.kind());
        self.arrivals.start(now, plan);
        self.loads.start(now, plan);
        self.endings = Endings::of(plan);
        self.rooms.start(now, outcomes(plan));
        self.set_delays(now, plan);
        self.set_rooms(now, plan);
    }

    fn step(&mut self, step: &mut Step<'_>) {
        self.choose_kind(step);
        let (now, plan) = (step.now, step.plan);
        if self.switch.kind() == Kind::Batch {
            self.set_delays(now, plan);
            self.set_rooms(now, plan);
        }
        plan.replicas
            .iter()
            .for_each(|replica| replica.doubt_company());
        if now >= self.next_threshold {
            self.set_threshold(now, plan);
        }
        if now >= self.next_aging {
            self.next_aging = now + AGING;
            plan.policer.age_paths();
        }
    }

    fn policing(&self, plan: &Plan) -> Option<PolicingStatus> {
        let config = &plan.config.sentry;
        Some(PolicingStatus {
            kind: self.switch.kind().as_str(),
            reason: self.switch.reason(),
            cpu_share: self.switch.cpu_share(),
            io_weight: config
                .io_weight
                .unwrap_or_else(|| plan.policer.io_weight.value()),
            denied_share: self.denied_share,
            denied_max: config.denied_max.0,
        })
    }
}

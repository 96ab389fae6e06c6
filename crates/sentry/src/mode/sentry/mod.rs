//! Mode `sentry`: policing at extreme overload (003 §3).
//!
//! Requests are judged one by one as they arrive, by what is published here: how (in batches
//! against their target, or by a threshold when the proxy is short of CPU, see
//! [`Switch`]), and for the threshold the share of each class that fits
//! ([`Threshold`]).
//!
//! What breaks it: a service whose replicas slow down for reasons that are not requests in
//! service. The batch test sees it as longer service times, after some tens of requests.

mod meter;

use std::time::Duration;

use tidegate_control::Timestamp;

use self::meter::Meter;
use super::{Handover, Step, Strategy, without_forecast};
use crate::config::SentryConfig;
use crate::event::Event;
use crate::gate::Gate;
use crate::plan::Plan;
use crate::policing::switch::Switch;
use crate::policing::{ClassLoad, Threshold};
use crate::status::PolicingStatus;

/// How often paths that nobody asks for any more make room.
const AGING: Duration = Duration::from_secs(60);

/// See the module's description.
#[derive(Debug)]
pub(crate) struct SentryMode {
    interval: Duration,
    switch: Switch,
    /// Rates over periods of the threshold.
    loads: Meter,
    next_threshold: Timestamp,
    next_aging: Timestamp,
}

impl SentryMode {
    pub(crate) fn new(config: &SentryConfig, now: Timestamp) -> Self {
        Self {
            interval: config.sentry.interval.0,
            switch: Switch::new(&config.sentry),
            loads: Meter::default(),
            next_threshold: now + config.sentry.threshold_interval.0,
            next_aging: now + AGING,
        }
    }

    /// Equations 5 and 6, from what arrived since they were solved last.
    fn set_threshold(&mut self, now: Timestamp, plan: &Plan) {
        self.next_threshold = now + plan.config.sentry.threshold_interval.0;
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
        let servers = f64::from(plan.servers().count());
        plan.policer
            .threshold
            .set(&Threshold::compute(&loads, servers));
    }
}

impl Strategy for SentryMode {
    fn interval(&self) -> Duration {
        self.interval
    }

    fn start(&mut self, now: Timestamp, plan: &Plan, gate: &Gate, _: Option<&Handover>) {
        without_forecast(plan);
        gate.open();
        plan.policer.set_kind(self.switch.kind());
        self.loads.start(now, plan);
    }

    fn step(&mut self, step: &mut Step<'_>) {
        let (now, plan) = (step.now, step.plan);
        let policer = &plan.policer;
        if self
            .switch
            .on_step(now, policer.cpu_share(), &plan.config.sentry)
        {
            policer.set_kind(self.switch.kind());
            step.observe(&Event::Policing {
                at: now,
                kind: self.switch.kind().as_str(),
                reason: self.switch.reason(),
            });
        }
        if now >= self.next_threshold {
            self.set_threshold(now, plan);
        }
        if now >= self.next_aging {
            self.next_aging = now + AGING;
            policer.age_paths();
        }
    }

    fn policing(&self) -> Option<PolicingStatus> {
        Some(PolicingStatus {
            kind: self.switch.kind().as_str(),
            reason: self.switch.reason(),
            cpu_share: self.switch.cpu_share(),
        })
    }
}

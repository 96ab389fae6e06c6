//! Refusing at the queue, once leaving content out is not enough.
//!
//! As in mode `auto`, a request waits behind `n` of its importance or above and is started after
//! `n / r` (003 eq. 3 with measured quantities), where the drain rate `r` is what the replicas do
//! while every request is served reduced ([`Dimming`](crate::mode::dimming::Dimming) measures it).
//! It is shed when that is beyond most of its target: an admitted request is answered in time, and
//! the least important requests are the first for which that is not so.
//!
//! While dimming is enough no request is shed on a forecast. One that has waited for two targets is
//! shed all the same, because replicas that hang drain nothing.

use crate::class::Class;
use crate::mode::Step;
use crate::plan::Plan;

/// Share of the target that waiting and service may take on average. Chosen: the distance from
/// where content is left out keeps the noise of 75 requests/s at nine tenths of the capacity from
/// ever shedding (experiments/brownout/handover-grid.toml).
const WAIT_SHARE: f64 = 0.65;

/// Requests that keep the replicas busy through the chance of arrivals; as in mode `auto`.
const BUSY_REQUESTS: f64 = 10.0;

/// Service times that must be left of the target when a request is started. Chosen: of exponential
/// ones, a seventh takes longer than two.
const RESIDENCES_LEFT: f64 = 2.0;

/// Targets after which no request waits any more.
const PATIENCE_TARGETS: f64 = 2.0;

/// Refusing at the queue, once leaving content out is not enough.
#[derive(Debug)]
pub(super) struct Admission {
    target_s: f64,
    drain: Option<f64>,
}

impl Admission {
    /// For classes without a target of their own, `target_s` is it.
    pub(super) fn new(target_s: f64) -> Self {
        Self {
            target_s,
            drain: None,
        }
    }

    pub(super) fn set_target(&mut self, target_s: f64) {
        self.target_s = target_s;
    }

    /// What can be served per second without optional content, while it matters.
    pub(super) fn drain_rate(&self) -> Option<f64> {
        self.drain
    }

    /// Sheds no request on a forecast.
    pub(super) fn stand_by(&self, plan: &Plan) {
        for class in &plan.classes {
            class.forecast.withdraw();
            let patience_s = PATIENCE_TARGETS * self.target_of(class);
            class.forecast.set_wait_limit(patience_s);
        }
    }

    /// `drain` is what the replicas serve per second, where requests have to be shed.
    pub(super) fn step(&mut self, step: &Step<'_>, drain: Option<f64>) {
        self.drain = drain;
        match drain {
            Some(drain) => self.publish(step, drain),
            None => self.stand_by(step.plan),
        }
    }

    fn publish(&self, step: &Step<'_>, drain: f64) {
        let offered = step.interval.per_second(step.interval.counts.arrived);
        let residence_s = f64::from(step.plan.in_flight()) / drain;
        let busy_s = BUSY_REQUESTS / drain;
        for class in &step.plan.classes {
            let target_s = self.target_of(class);
            let wait_s = (WAIT_SHARE * target_s - residence_s).max(busy_s);
            let forecast = &class.forecast;
            forecast.set_ahead_limit(drain * wait_s);
            let latest_s = target_s - RESIDENCES_LEFT * residence_s;
            forecast.set_wait_limit(latest_s.max(2.0 * busy_s));
            forecast.drain.store(drain);
            forecast.residence.store(residence_s);
            forecast.pressure.store((offered / drain).max(1.0));
        }
    }

    fn target_of(&self, class: &Class) -> f64 {
        let own = class.forecast.target();
        own.map_or(self.target_s, |target| target.as_secs_f64())
    }
}

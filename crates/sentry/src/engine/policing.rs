//! Mode `sentry` on the request path: is there time left for this request?

use tidegate_control::Timestamp;

use super::Sentry;
use crate::api::{Arrival, Refusal, ShedReason};
use crate::plan::Plan;
use crate::policing::Kind;

impl<T> Sentry<T> {
    /// What share of its CPU the driver itself uses, from 0 to 1; about once a second. In mode
    /// `sentry` a driver that is short of CPU judges requests the cheap way.
    pub fn on_load(&self, _now: Timestamp, cpu_share: f64) {
        self.plan.load().policer.set_cpu_share(cpu_share);
    }

    /// Judges a request one by one, where the mode does.
    pub(super) fn police(&self, plan: &Plan, arrival: &Arrival) -> Result<(), Refusal> {
        match plan.policing() {
            None => Ok(()),
            Some(Kind::Threshold) => self.pass_threshold(plan, arrival),
            Some(Kind::Batch) => self.pass_test(plan, arrival),
        }
    }

    fn pass_threshold(&self, plan: &Plan, arrival: &Arrival) -> Result<(), Refusal> {
        let class = usize::from(arrival.class.0).min(plan.classes.len() - 1);
        match plan.policer.threshold.admit(class) {
            true => Ok(()),
            false => Err(Refusal {
                measured: 1.0,
                limit: plan.policer.threshold.share(class),
                ..self.refusal(plan, ShedReason::Threshold, arrival.class)
            }),
        }
    }

    /// Equation 4 for a request on its own.
    fn pass_test(&self, plan: &Plan, arrival: &Arrival) -> Result<(), Refusal> {
        let Some(target) = plan.class(arrival.class).forecast.target() else {
            return Ok(());
        };
        let service_s = plan.service_s(arrival.class, arrival.path);
        let response_s = plan.servers().response_s(1, service_s);
        match response_s <= target.as_secs_f64() {
            true => Ok(()),
            false => Err(Refusal {
                measured: response_s,
                limit: target.as_secs_f64(),
                ..self.refusal(plan, ShedReason::Policed, arrival.class)
            }),
        }
    }
}

//! An admitted request goes elsewhere, becomes a stream, or ends.

use tidegate_control::Timestamp;

use super::Sentry;
use crate::api::{Ending, Permit, ReplicaId, Report, Resolution};
use crate::atomic::add_one;
use crate::balance::Slots;
use crate::class::Class;
use crate::gate::Passed;
use crate::plan::Plan;
use crate::replica::Replica;

impl<T> Sentry<T> {
    /// Another replica with room, for a request that the first one never saw.
    ///
    /// # Errors
    /// Gives the permit back unchanged when no other replica has room.
    pub fn reassign(&self, now: Timestamp, permit: Permit) -> Result<Permit, Permit> {
        let plan = self.plan.load();
        let slots = if self.bypass() {
            Slots::Any
        } else {
            Slots::Free
        };
        let policy = plan.config.balance;
        let except = Some(permit.replica);
        let placed = self
            .balancer
            .place(policy, &plan.replicas, now, slots, except);
        let Some(replica) = placed.filter(|_| !permit.streaming) else {
            return Err(permit);
        };
        let before = &plan.replicas[usize::from(permit.replica.0)];
        before.on_failure(now);
        before.release(now, permit.generation);
        Ok(Permit {
            replica,
            generation: plan.replicas[usize::from(replica.0)].enter(),
            ..permit
        })
    }

    /// The response turned out to be a long stream: the request gives its slot back and is no
    /// sample. It still ends in [`Sentry::on_end`]. Calling it twice is a no-op.
    pub fn on_stream(
        &self,
        now: Timestamp,
        permit: &mut Permit,
        wake: &mut dyn FnMut(T, Resolution),
    ) {
        if permit.streaming {
            return;
        }
        permit.streaming = true;
        let plan = self.plan.load();
        plan.replicas[usize::from(permit.replica.0)].start_stream(now, permit.generation);
        self.leave_gate(permit);
        drop(plan);
        self.dispatch(now, wake);
    }

    /// The request ended, whichever way.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "whoever has ended has no permit any more"
    )]
    pub fn on_end(
        &self,
        now: Timestamp,
        permit: Permit,
        ending: Ending,
        wake: &mut dyn FnMut(T, Resolution),
    ) {
        let plan = self.plan.load();
        let class = plan.class(permit.class);
        let replica = &plan.replicas[usize::from(permit.replica.0)];
        class.counters.ended(ending);
        if permit.streaming {
            replica.end_stream();
            return;
        }
        let rest = class.forecast.linger.load();
        if ending == Ending::Abandoned && rest > 0.0 && !self.bypass() {
            self.lingering.keep(now, rest, replica, permit.generation);
        } else {
            let inside = replica.release(now, permit.generation);
            match ending {
                Ending::Served => {
                    self.sample(now, &permit, class, replica, inside);
                    learn_cost(&plan, now, &permit, inside);
                }
                Ending::Dropped => replica.on_failure(now),
                Ending::Abandoned | Ending::Ignored => {}
            }
        }
        self.leave_gate(&permit);
        drop(plan);
        self.dispatch(now, wake);
    }

    fn leave_gate(&self, permit: &Permit) {
        self.gate.leave(Passed {
            counted: permit.counted,
        });
    }

    fn sample(
        &self,
        now: Timestamp,
        permit: &Permit,
        class: &Class,
        replica: &Replica,
        inside: u32,
    ) {
        let response = now - permit.arrived;
        let residence = now - permit.admitted;
        self.tally.response.record(response);
        self.tally.residence.record(residence);
        replica.on_served(now, residence, inside);
        if class
            .forecast
            .target()
            .is_none_or(|target| response <= target)
        {
            add_one(&class.counters.in_target);
        }
    }

    /// A replica says something about itself. A report for the interval that ends now has to
    /// come before [`Sentry::handle_timeout`] of the same instant.
    pub fn on_report(&self, _now: Timestamp, replica: ReplicaId, report: &Report) {
        self.tally.reports.on_report(report);
        let plan = self.plan.load();
        if let Some(replica) = plan.replica(replica) {
            replica.on_report(report);
        }
        let cost = report.service_cost(plan.config.sentry.io_weight);
        if let (Some(_), Some(service_s)) = (plan.policing(), cost) {
            plan.class(report.class).cost.learn(service_s);
            plan.policer.learn(report.path, service_s);
        }
    }
}

/// What a request would cost on its own, from what it took in company: while `k` share a server
/// each takes `k` times as long, or waits for the others in turn. Replicas that say what requests
/// cost know better.
fn learn_cost(plan: &Plan, now: Timestamp, permit: &Permit, inside: u32) {
    let replica = &plan.replicas[usize::from(permit.replica.0)];
    if plan.policing().is_none() || replica.reports_cost() {
        return;
    }
    let inside = f64::midpoint(f64::from(permit.inside), f64::from(inside)).max(1.0);
    let service_s = (now - permit.admitted).as_secs_f64() / inside;
    plan.class(permit.class).cost.learn(service_s);
    plan.policer.learn(permit.path, service_s);
}

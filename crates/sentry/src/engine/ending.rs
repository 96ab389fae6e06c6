//! An admitted request goes elsewhere, becomes a stream, or ends.
//!
//! Decision: docs/decisions/0271-endings-are-calls.md.

use std::num::NonZeroU64;
use tidegate_control::Timestamp;

use super::{Resolutions, Sentry};
use crate::api::{Ending, Permit, ReplicaId, Report, is_cost};
use crate::atomic::add_one;
use crate::balance::Slots;
use crate::config::{CostBy, ModeName};
use crate::gate::Passed;
use crate::plan::Plan;

impl<T> Sentry<T> {
    /// Another replica with room, for a request that the first one never saw.
    ///
    /// # Errors
    /// Gives the permit back unchanged when no other replica has room.
    pub fn reassign(&self, now: Timestamp, mut permit: Permit) -> Result<Permit, Permit> {
        let plan = self.plan.load();
        let slots = if self.bypass() {
            Slots::Any
        } else {
            Slots::Free
        };
        let policy = plan.balance();
        let except = Some(permit.replica);
        let placed = self
            .balancer
            .place(policy, &plan.replicas, now, slots, except);
        let Some(replica) = placed.filter(|_| !permit.streaming) else {
            return Err(permit);
        };
        let before = &plan.replicas[usize::from(permit.replica.0)];
        before.on_failure(now);
        before.depart(now, permit.place, false);
        before.release(now, permit.generation);
        let state = &plan.replicas[usize::from(replica.0)];
        permit.replica = replica;
        permit.place = state.admit(now, permit.place.bound);
        permit.generation = state.enter();
        Ok(permit)
    }

    /// The response turned out to be a long stream: the request gives its slot back and is no
    /// sample. It still ends in [`Sentry::on_end`]. Calling it twice is a no-op.
    pub fn on_stream(&self, now: Timestamp, permit: &mut Permit) -> Resolutions<'_, T> {
        permit.paused = None;
        if permit.streaming {
            return self.no_resolutions(now);
        }
        permit.streaming = true;
        self.content.leave(permit.content);
        let plan = self.plan.load();
        let replica = &plan.replicas[usize::from(permit.replica.0)];
        replica.depart(now, permit.place, false);
        replica.start_stream(now, permit.generation);
        self.gate.leave(passed(permit));
        drop(plan);
        self.resolutions(now)
    }

    /// The request ended, whichever way.
    pub fn on_end(&self, now: Timestamp, permit: Permit, ending: Ending) -> Resolutions<'_, T> {
        if self.end(now, permit, ending) {
            self.resolutions(now)
        } else {
            self.no_resolutions(now)
        }
    }

    /// Counts the ending, samples what was served, and gives back the slot. False for a stream,
    /// which held none.
    pub(super) fn end(&self, now: Timestamp, mut permit: Permit, ending: Ending) -> bool {
        permit.disarm();
        let plan = self.plan.load();
        let class = plan.class(permit.class);
        let replica = &plan.replicas[usize::from(permit.replica.0)];
        class.counters.ended(ending);
        if permit.streaming {
            replica.end_stream();
            return false;
        }
        self.content.leave(permit.content);
        replica.depart(now, permit.place, ending == Ending::Served);
        let rest = match ending {
            Ending::Abandoned if !self.bypass() => departed_seconds(&plan, now, &permit),
            _ => 0.0,
        };
        if rest > 0.0 {
            let passed = passed(&permit);
            self.departed_slots
                .keep(now, rest, replica, permit.generation, passed);
        } else {
            let inside = replica.release(now, permit.generation);
            match ending {
                Ending::Served => {
                    if self.shadowed(&plan) {
                        let seconds = (now - permit.admitted).as_secs_f64();
                        self.inbox.lock().on_served(permit.replica, seconds);
                    }
                    self.sample(&plan, now, &permit, inside);
                    if let Some(reserved) = permit.cost {
                        class.cost_shares.on_served(reserved);
                    }
                    learn_cost(&plan, now, &permit, inside);
                }
                Ending::Dropped => replica.on_failure(now),
                Ending::Abandoned | Ending::Ignored | Ending::Unreported => {}
            }
            self.gate.leave(passed(&permit));
        }
        true
    }

    fn sample(&self, plan: &Plan, now: Timestamp, permit: &Permit, inside: u32) {
        let class = plan.class(permit.class);
        let replica = &plan.replicas[usize::from(permit.replica.0)];
        let response = now - permit.arrived;
        let residence = now - permit.admitted;
        self.tally.response.record(response);
        // By what the few take that pay for it, no other request is judged.
        if plan.toll(permit.class, permit.path) <= 1.0 {
            self.tally.residence.record(residence);
        }
        replica.on_served(now, residence, permit.place, inside);
        match permit.optional() {
            Some(true) => {
                self.content.on_full_response(response);
                replica.reports.on_full(residence);
            }
            Some(false) => {
                add_one(&class.counters.degraded);
                replica.reports.on_reduced(residence);
            }
            None => {}
        }
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
        let report = &report.bounded();
        let plan = self.plan.load();
        let mut company = 1;
        if let Some(replica) = plan.replica(replica) {
            replica.on_report(report);
            company = replica.in_service();
            if plan.config.mode == ModeName::Ilac
                && let Some(asked) = replica.reports.asked()
            {
                replica.grant(asked, plan.config.limits.window_max);
            }
        }
        if plan.shares_by_cost() && plan.config.auto.cost_by == CostBy::Report {
            learn_declared_cost(&plan, report);
        }
        if plan.policing().is_some() {
            learn_reported_cost(&plan, report, f64::from(company));
        }
    }
}

fn passed(permit: &Permit) -> Passed {
    Passed {
        counted: permit.counted,
    }
}

/// How long the slot of a client that left is kept: what the adaptation says, else what requests
/// take lately where slots are a quota, by `limits.slots` or by `static.window`. Without that
/// clients that ask and leave exceed the quota, as most servers finish what they began. If nothing
/// was served yet, as long again as this one was inside.
fn departed_seconds(plan: &Plan, now: Timestamp, permit: &Permit) -> f64 {
    let told = plan.class(permit.class).forecast.linger.load();
    let is_quota = plan.config.limits.slots.is_some()
        || plan.config.mode == ModeName::Static && permit.counted;
    if told > 0.0 || !is_quota {
        return told;
    }
    let replica = &plan.replicas[usize::from(permit.replica.0)];
    let inside = || (now - permit.admitted).as_secs_f64();
    replica.recent_seconds(now).unwrap_or_else(inside)
}

/// What a request cost by the replica's own account, with `company` in service.
fn learn_reported_cost(plan: &Plan, report: &Report, company: f64) {
    let weight = plan.config.sentry.io_weight.unwrap_or_else(|| {
        let learnt = &plan.policer.io_weight;
        if let Some(run) = report.run(company) {
            learnt.learn(run);
        }
        learnt.value()
    });
    if let Some(service_s) = report.service_cost(weight) {
        plan.class(report.class).cost.learn(service_s);
        plan.policer.learn(report.path, service_s);
    }
}

/// What a request would cost on its own, from what it took in company: while `k` share a server
/// each takes `k` times as long, or waits for the others in turn. If `k` grows or falls evenly
/// from `a` to `b` meanwhile, what the request got is the time over `(b - a) / ln(b / a)`. Replicas
/// that say what requests cost know better.
///
/// In mode `auto` there is no such company: windows keep crowds out, and what is compared are
/// paths.
fn learn_cost(plan: &Plan, now: Timestamp, permit: &Permit, inside: u32) {
    let residence_s = (now - permit.admitted).as_secs_f64();
    let replica = &plan.replicas[usize::from(permit.replica.0)];
    let service_s = match plan.policing() {
        None if plan.learns_cost_by_time() => residence_s,
        None => return,
        Some(_) if replica.reports_cost() => return,
        Some(_) => {
            residence_s / logarithmic_mean(f64::from(permit.place.inside), f64::from(inside))
        }
    };
    plan.class(permit.class).cost.learn(service_s);
    plan.policer.learn(permit.path, service_s);
    if plan.shares_by_cost() {
        plan.policer
            .learn_of_tenant(permit.path, permit.tenant.map(NonZeroU64::get), service_s);
    }
}

/// What a request cost in the replica's own unit.
fn learn_declared_cost(plan: &Plan, report: &Report) {
    if let Some(cost) = report.cost.filter(|&cost| is_cost(cost)) {
        plan.class(report.class).cost.learn(cost);
        plan.policer.learn(report.path, cost);
        plan.policer
            .learn_of_tenant(report.path, report.tenant, cost);
    }
}

/// `(b - a) / ln(b / a)` of two numbers from 1 on, and their mean where they are about the same.
fn logarithmic_mean(a: f64, b: f64) -> f64 {
    let (a, b) = (a.max(1.0), b.max(1.0));
    let ratio = b / a;
    if (ratio - 1.0).abs() < 1e-3 {
        return f64::midpoint(a, b);
    }
    (b - a) / ratio.ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Four slots of a service of 100 ms whose clients leave after 20 ms: what is inside, at most,
    /// if the service finishes what it began.
    #[test]
    fn slots_are_not_exceeded_when_clients_leave() {
        for quota in [
            "static.window = 1000\nlimits.slots = 4",
            "static.window = 4",
        ] {
            quota_is_kept(quota);
        }
    }

    fn quota_is_kept(quota: &str) {
        let at = |millis: u64| Timestamp::from_nanos(millis * 1_000_000);
        let text = &format!("mode = 'static'\n{quota}");
        let config = tidegate_config::parse("test.toml", text).unwrap();
        let sentry = Sentry::<()>::new(&config, 1, at(0), 1).unwrap();
        let admit = |now| match sentry.on_arrival(now, &Default::default(), || ()) {
            crate::Verdict::Admit(permit) => Some(permit),
            crate::Verdict::Wait(ticket) => {
                sentry.on_abandon(now, ticket);
                None
            }
            crate::Verdict::Shed(_) => None,
        };
        let end = |now, permit, ending| sentry.on_end(now, permit, ending).for_each(drop);
        end(at(100), admit(at(0)).unwrap(), Ending::Served);
        let (mut begun, mut most, mut admitted) = (Vec::new(), 0, 0);
        for millis in (200..2000).step_by(20) {
            for permit in std::iter::from_fn(|| admit(at(millis))) {
                admitted += 1;
                begun.push(millis);
                end(at(millis + 19), permit, Ending::Abandoned);
            }
            begun.retain(|begun| begun + 100 > millis);
            most = most.max(begun.len());
            let ticked = sentry.handle_timeout(at(millis + 19), &mut |_: &crate::Event| {});
            ticked.for_each(drop);
        }
        assert!(most <= 4, "{quota}: {most} inside with 4 slots");
        assert!(admitted > 20, "{quota}: {admitted} admitted in all");
    }

    #[test]
    fn admission_is_not_before_the_arrival_when_clocks_were_read_out_of_order() {
        let at = |millis: u64| Timestamp::from_nanos(millis * 1_000_000);
        let text = "mode = 'static'\nstatic.window = 1000\nlimits.slots = 1";
        let config = tidegate_config::parse("test.toml", text).unwrap();
        let sentry = Sentry::<()>::new(&config, 1, at(0), 1).unwrap();
        let first = sentry.on_arrival(at(1), &Default::default(), || ());
        let crate::Verdict::Admit(first) = first else {
            panic!("the only slot is free: {first:?}");
        };
        let second = sentry.on_arrival(at(10), &Default::default(), || ());
        assert!(matches!(second, crate::Verdict::Wait(_)), "{second:?}");
        // This thread read its clock before the second request arrived, and was held up.
        let resolved = sentry.on_end(at(9), first, Ending::Served).next();
        let Some(((), crate::Resolution::Admit(second))) = resolved else {
            panic!("the slot is for the one that waits: {resolved:?}");
        };
        assert_eq!((second.arrived(), second.admitted()), (at(10), at(10)));
        assert!(
            sentry
                .on_end(at(30), second, Ending::Served)
                .next()
                .is_none()
        );
    }

    #[test]
    fn logarithmic_mean_lies_between() {
        assert!((logarithmic_mean(4.0, 4.0) - 4.0).abs() < 1e-12);
        assert!((logarithmic_mean(1.0, 100.0) - 99.0 / 100f64.ln()).abs() < 1e-9);
        assert_eq!(logarithmic_mean(3.0, 9.0), logarithmic_mean(9.0, 3.0));
        assert!((logarithmic_mean(1000.0, 1000.5) - 1000.25).abs() < 1e-3);
        assert_eq!(logarithmic_mean(0.0, 0.0), 1.0);
    }
}

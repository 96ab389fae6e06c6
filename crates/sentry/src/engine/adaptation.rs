//! Adaptation: once per tick, by one caller.
//!
//! A tick takes the difference of all counters since the last one. Ticks add up to the control
//! interval of the strategy, which is called when it is due and publishes its command.
//!
//! Decision: docs/decisions/0287-engines-at-rest.md.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tidegate_control::Timestamp;

use super::{Resolutions, Sentry};
use crate::api::ReplicaId;
use crate::balance::Weighing;
use crate::error::SentryError;
use crate::event::{Event, Measurement, Observer};
use crate::fleet::{FleetShare, LeadWindow};
use crate::gate::{ContentGate, Gate};
use crate::mode::{self, Handover, PhaseName, Step, Strategy};
use crate::monitor::{Interval, MomentsMeter, Totals};
use crate::plan::Plan;
use crate::shadow::{Inbox, Shadow};
use crate::sla::Sla;
use crate::status::{BrownoutStatus, ControllerStatus, MomentsStatus, PolicingStatus};

/// Between the steps of slow strategies waiters still have to expire. Chosen: small against any
/// target a person would notice.
const HOUSEKEEPING: Duration = Duration::from_millis(100);

/// How often an [`Event::Measured`] is due.
const MEASURED_INTERVAL_SECONDS: f64 = 1.0;

/// The slow path's state.
#[derive(Debug)]
pub(crate) struct Adaptation {
    strategy: Box<dyn Strategy>,
    last_tick: Timestamp,
    next_step: Timestamp,
    totals: Totals,
    /// Scratch for the tick's own samples.
    tick: Interval,
    since_step: Interval,
    since_measured: Interval,
    moments: MomentsMeter,
    sla: Sla,
    /// Requests admitted per second in the last measured second.
    admitted_per_second: f64,
    weighing: Weighing,
    events: Vec<Event>,
    /// In a dry run: what enforcing would do.
    shadow: Option<Box<Shadow>>,
}

impl Adaptation {
    pub(super) fn new(plan: &Plan, gate: &Gate, now: Timestamp) -> Result<Self, SentryError> {
        let mut strategy = mode::strategy(&plan.config, now)?;
        strategy.start(now, plan, gate, None);
        Ok(Self {
            last_tick: now,
            next_step: now + strategy.interval(),
            strategy,
            totals: Totals::default(),
            tick: Interval::default(),
            since_step: Interval::default(),
            since_measured: Interval::default(),
            moments: MomentsMeter::default(),
            sla: Sla::default(),
            admitted_per_second: 0.0,
            weighing: Weighing::new(now),
            events: Vec::new(),
            shadow: None,
        })
    }

    pub(super) fn next_tick(&self) -> Timestamp {
        self.next_step.min(self.last_tick + HOUSEKEEPING)
    }

    /// Puts in force what the strategy says about content before its first step.
    pub(super) fn publish_content(&self, content: &ContentGate) {
        match self.strategy.content_rule() {
            Some(rule) => content.set(&rule),
            None => content.turn_off(),
        }
    }

    pub(super) fn note(&mut self, event: Event) {
        self.events.push(event);
    }

    pub(super) fn controller(&self) -> Option<ControllerStatus> {
        self.strategy.status()
    }

    pub(super) fn is_blind(&self) -> bool {
        self.strategy.is_blind()
    }

    pub(super) fn brownout(&self) -> Option<BrownoutStatus> {
        self.strategy.brownout()
    }

    pub(super) fn windows(&self) -> Vec<(ReplicaId, u32)> {
        self.strategy.windows()
    }

    pub(super) fn resume(&mut self, now: Timestamp, windows: &[(ReplicaId, u32)]) {
        self.strategy.resume(now, windows);
    }

    /// The knees that the searches for windows have found, by replica.
    pub(crate) fn knees(&self) -> Vec<Option<f64>> {
        self.strategy.knees()
    }

    /// The phases of the searches for windows, by replica.
    pub(crate) fn phases(&self) -> Vec<PhaseName> {
        self.strategy.phases()
    }

    /// Requests that can be served per second; in a dry run as the shadow sees it.
    pub(crate) fn drain_rate(&self) -> Option<f64> {
        match &self.shadow {
            Some(shadow) => shadow.drain_rate(),
            None => self.strategy.drain_rate(),
        }
    }

    pub(super) fn share(&mut self, now: Timestamp, plan: &Plan, gate: &Gate, share: &FleetShare) {
        self.strategy.share(now, plan, gate, share);
    }

    pub(super) fn found(&self) -> Vec<(Option<LeadWindow>, Option<f64>)> {
        self.strategy.found()
    }

    pub(super) fn policing(&self, plan: &Plan) -> Option<PolicingStatus> {
        self.strategy.policing(plan)
    }

    pub(super) fn moments(&self) -> MomentsStatus {
        self.moments.status()
    }

    /// Whether more arrives than can be served; in a dry run as the shadow sees it.
    pub(crate) fn overloaded(&self) -> Option<bool> {
        match &self.shadow {
            Some(shadow) => shadow.overloaded(),
            None => self.strategy.overloaded(),
        }
    }

    /// Lets the shadow follow, where there is one to be.
    fn follow_shadow(
        &mut self,
        wanted: bool,
        now: Timestamp,
        plan: &Plan,
        inbox: Inbox,
        observer: &mut dyn Observer,
    ) {
        let before = self.shadow.take().filter(|_| wanted);
        self.shadow = match before {
            Some(shadow) => shadow.following(plan, now),
            None if wanted => Shadow::new(plan, now),
            None => None,
        };
        if let Some(shadow) = &mut self.shadow {
            shadow.on_tick(now, plan, inbox, observer);
        }
    }

    /// Starts the strategy of a new plan from where the present one stands; on an error nothing
    /// has changed.
    pub(super) fn reconfigure(
        &mut self,
        old: &Plan,
        new: &Plan,
        gate: &Gate,
        content: &ContentGate,
        now: Timestamp,
    ) -> Result<(), SentryError> {
        let mut strategy = mode::strategy(&new.config, now)?;
        let handover = Handover {
            admitted_per_second: self.admitted_per_second,
            in_system: old.in_system(),
            gate: self.strategy.command(),
        };
        let same_mode = old.config.mode == new.config.mode;
        if !(same_mode && self.strategy.reconfigure(now, new)) {
            strategy.start(now, new, gate, Some(&handover));
            self.next_step = now + strategy.interval();
            self.strategy = strategy;
            self.publish_content(content);
            self.since_step.clear();
        }
        if !same_mode {
            self.events.push(Event::Mode {
                at: now,
                from: old.config.mode,
                to: new.config.mode,
            });
        }
        Ok(())
    }

    /// Nothing arrived and nothing was inside from the last tick until then: a time without
    /// requests, of which no controller has to know.
    fn rest(&mut self, until: Timestamp) {
        if until <= self.last_tick {
            return;
        }
        self.tick.clear();
        self.tick
            .add_tick(until - self.last_tick, self.totals, self.totals);
        self.moments.on_tick(&self.tick);
        self.since_measured.merge(&self.tick);
        self.last_tick = until;
    }

    fn measured(&mut self, now: Timestamp, plan: &Plan) -> Event {
        let interval = &self.since_measured;
        let counts = interval.counts;
        self.admitted_per_second = interval.per_second(counts.admitted);
        let event = Event::Measured(Measurement {
            at: now,
            seconds: interval.seconds,
            offered: counts.arrived,
            admitted: counts.admitted,
            served: counts.served,
            in_target: counts.in_target,
            shed: counts.shed,
            response_seconds: interval.response.mean_seconds(),
            response_p50_seconds: interval.response.quantile_seconds(0.5),
            response_p95_seconds: interval.response.quantile_seconds(0.95),
            response_p99_seconds: interval.response.quantile_seconds(0.99),
            utilization: interval.utilization(),
            in_flight: plan.in_flight(),
            queued: plan.queued(),
        });
        self.since_measured.clear();
        event
    }
}

impl<T> Sentry<T> {
    /// When [`Sentry::handle_timeout`] wants to be called next.
    pub fn poll_timeout(&self) -> Timestamp {
        Timestamp::from_nanos(self.next_tick_ns.load(Ordering::Relaxed))
    }

    /// Nothing has arrived and nothing was inside from the last tick `until` then. A driver of many
    /// engines need not call [`Sentry::handle_timeout`] meanwhile; without this the next interval
    /// would be all of that time, and its rates next to nothing.
    pub fn on_rest(&self, until: Timestamp) {
        self.adaptation.lock().rest(until);
    }

    /// Runs the adaptation if it is due. One caller at a time does it; another returns at once.
    pub fn handle_timeout(
        &self,
        now: Timestamp,
        observer: &mut dyn Observer,
    ) -> Resolutions<'_, T> {
        if now < self.poll_timeout() {
            return self.no_resolutions(now);
        }
        self.end_unreported(now);
        self.run_due(now, observer)
    }

    /// As [`Sentry::handle_timeout`], for a time that has come. Permits that were dropped are left
    /// to the caller.
    pub(crate) fn run_due(
        &self,
        now: Timestamp,
        observer: &mut dyn Observer,
    ) -> Resolutions<'_, T> {
        let Some(mut adaptation) = self.adaptation.try_lock() else {
            return self.no_resolutions(now);
        };
        let plan = self.plan.load_full();
        if now >= adaptation.next_tick() {
            self.tick(&plan, &mut adaptation, now, observer);
            self.trim(&plan, now);
        }
        let next_tick = adaptation.next_tick();
        let next = self
            .examine(&plan, now)
            .map_or(next_tick, |next| next.min(next_tick));
        self.next_tick_ns.store(next.as_nanos(), Ordering::Relaxed);
        drop(adaptation);
        self.resolutions(now)
    }

    fn tick(
        &self,
        plan: &Plan,
        adaptation: &mut Adaptation,
        now: Timestamp,
        observer: &mut dyn Observer,
    ) {
        self.noted.store(false, Ordering::Relaxed);
        adaptation
            .events
            .drain(..)
            .for_each(|event| observer.on_event(&event));
        self.take_measurements(plan, adaptation, now);
        adaptation
            .weighing
            .on_tick(now, plan.balance(), &plan.replicas);
        let (arrived, seconds) = (adaptation.tick.counts.arrived, adaptation.tick.seconds);
        let mut note = |event: Event| observer.on_event(&event);
        self.balancer
            .on_tick(now, plan.balance(), &plan.replicas, &mut note);
        adaptation
            .sla
            .on_tick(now, plan, arrived, seconds, &mut note);
        if adaptation.since_measured.seconds >= MEASURED_INTERVAL_SECONDS {
            let event = adaptation.measured(now, plan);
            observer.on_event(&event);
        }
        if now >= adaptation.next_step {
            self.step(plan, adaptation, now, observer);
        }
        if plan.shares_by_cost() {
            share_by_cost(plan, adaptation);
        }
        let inbox = std::mem::take(&mut *self.inbox.lock());
        adaptation.follow_shadow(self.shadowed(plan), now, plan, inbox, observer);
    }

    fn take_measurements(&self, plan: &Plan, adaptation: &mut Adaptation, now: Timestamp) {
        let totals = Totals::of(plan.classes.iter().map(|class| &**class));
        let tick = &mut adaptation.tick;
        tick.clear();
        tick.add_tick(now - adaptation.last_tick, totals, adaptation.totals);
        self.tally.drain_into(tick);
        adaptation.moments.on_tick(tick);
        adaptation.since_step.merge(tick);
        adaptation.since_measured.merge(tick);
        adaptation.totals = totals;
        adaptation.last_tick = now;
    }

    fn step(
        &self,
        plan: &Plan,
        adaptation: &mut Adaptation,
        now: Timestamp,
        observer: &mut dyn Observer,
    ) {
        let killed = self.kill_switch.load(Ordering::Relaxed);
        let shadowed = self.shadowed(plan);
        let observer: &mut dyn Observer = &mut |event: &Event| {
            // Of an overload in a dry run the shadow knows better.
            if !(shadowed && matches!(event, Event::Overload { .. })) {
                observer.on_event(event);
            }
        };
        if !killed {
            adaptation.strategy.step(&mut Step {
                now,
                interval: &adaptation.since_step,
                plan,
                gate: &self.gate,
                content: &self.content,
                dry_run: self.dry_run.load(Ordering::Relaxed),
                observer,
            });
        }
        adaptation.since_step.clear();
        // The next multiple of the interval, not "now plus an interval": steps do not drift.
        let interval = adaptation.strategy.interval();
        while adaptation.next_step <= now {
            adaptation.next_step += interval;
        }
    }
}

/// In overload, the work that the replicas do is shared out by cost: to each class what the more
/// important ones leave over.
fn share_by_cost(plan: &Plan, adaptation: &Adaptation) {
    let elapsed = Duration::from_secs_f64(adaptation.tick.seconds);
    let served: Vec<f64> = (plan.classes.iter())
        .map(|class| class.cost_shares.on_tick(elapsed))
        .collect();
    let overloaded = adaptation.strategy.overloaded() == Some(true);
    let mut left: f64 = served.iter().sum();
    for (class, served) in plan.classes.iter().zip(served) {
        if overloaded && left > 0.0 {
            let fairness = plan.config.auto.cost_fairness;
            class.cost_shares.share_out(left, fairness);
        } else {
            class.cost_shares.open();
        }
        left -= served;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Arrival;
    use crate::config::SentryConfig;

    fn seconds(seconds: f64) -> Timestamp {
        Timestamp::from_secs_f64(seconds)
    }

    /// An engine that was not driven for ten seconds, then gets 500 requests a second for 0.3 s:
    /// seconds of the first interval after that, and arrivals per second that it remembers.
    fn after_rest(rest: bool) -> (f64, Option<f64>) {
        let config = SentryConfig::default();
        let sentry = Sentry::<u32>::new(&config, 1, Timestamp::ZERO, 1).unwrap();
        let tick = |at: f64| {
            let resolved = sentry.handle_timeout(seconds(at), &mut |_: &Event| {});
            resolved.for_each(drop);
            sentry.adaptation.lock().tick.seconds
        };
        tick(0.1);
        if rest {
            sentry.on_rest(seconds(10.0));
        }
        let intervals = [10.0, 10.1, 10.2].map(|begin| {
            for number in 0..50 {
                let now = seconds(begin + f64::from(number) * 0.002);
                let _ = sentry.on_arrival(now, &Arrival::default(), || number);
            }
            tick(begin + 0.1)
        });
        let gaps = sentry.adaptation.lock().moments().gaps;
        (intervals[0], gaps.map(|gaps| 1.0 / gaps.mean))
    }

    #[test]
    fn rest_is_no_part_of_the_next_interval_and_part_of_the_demand() {
        let (interval, rate) = after_rest(true);
        assert!((interval - 0.1).abs() < 1e-9, "{interval}");
        // Zero before, and 500/s for 0.3 s of a memory of ten seconds.
        let rate = rate.unwrap();
        assert!((10.0..20.0).contains(&rate), "{rate}");
        let (interval, _) = after_rest(false);
        assert!((interval - 10.0).abs() < 1e-9, "{interval}");
    }
}

//! Mode `auto`: useful with no tuning.
//!
//! Three things are measured, and from them everything follows:
//!
//! 1. the **drain rate** `r`: throughput while requests wait ([`drain`]);
//! 2. per replica the **window**: the smallest concurrency at which the drain rate is what it can
//!    be ([`window`]);
//! 3. whether more arrives than that ([`overload`]).
//!
//! A request waits behind `n` of its importance or above, so it is started after `n / r` and
//! answered a service time later (003 eq. 3 with measured quantities; by Little's law
//! that is what is in flight over `r`). It is admitted if that is in time. In overload the
//! queue is kept shorter than the target allows: enough to keep every replica busy, and
//! everything beyond would only make all requests wait.
//!
//! Where replicas can leave optional content out, that is done before anybody is refused
//! ([`OfferedDimming`]).
//!
//! While the capacity is unknown, because the windows have not been found too small or large
//! enough yet, nothing is refused on a forecast.
//!
//! What breaks it: a target below what the service needs for one request. Then everything is
//! late, and the queue is kept at the little that keeps the service busy.

#[cfg(feature = "ablation")]
pub mod ablation;
mod burst;
mod cause;
mod clumps;
mod cohort;
pub(super) mod drain;
mod fleet;
mod forecast;
mod idle;
mod overload;
mod phase;
mod profile;
mod replica_window;
mod residence;
mod searching;
mod settled;
mod shared;
mod significance;
mod slow_start;
mod speed;
mod sprt;
mod target;
mod tick_counts;
mod trial;
mod tuning;
mod typical;
mod window;

pub use cause::Cause;
pub use phase::PhaseName;
pub use tuning::markdown as tuning_page;

use std::sync::atomic::Ordering;
use std::time::Duration;

use tidegate_control::Timestamp;
use tidegate_control::controller::Terms;

use self::clumps::Clumps;
use self::drain::DrainMeter;
use self::fleet::{Fleet, FleetTick};
use self::forecast::{Part, Situation, late_at_first, nanos};
use self::overload::{Overload, Pressure};
use self::residence::Residence;
use self::target::DerivedTarget;
use self::tick_counts::TickCounts;
use self::tuning::Tuning;
use super::dimming::OfferedDimming;
use super::{Handover, Step, Strategy};
use crate::api::{ClassId, ReplicaId};
use crate::clamp::within;
use crate::class::{Class, NEVER, saturating_nanos};
use crate::config::SentryConfig;
use crate::counts::Counts;
use crate::event::{Event, Outlook};
use crate::fleet::{FleetShare, LeadWindow};
use crate::gate::Gate;
use crate::plan::Plan;
use crate::status::{BrownoutStatus, ControllerStatus};

/// One class in the last second.
#[derive(Debug, Default)]
struct Lately {
    arrived: Counted,
    admitted: Counted,
}

/// The rate at which a counter rises.
#[derive(Debug)]
struct Counted {
    before: u64,
    recent: TickCounts,
}

impl Default for Counted {
    fn default() -> Self {
        Self {
            before: 0,
            recent: TickCounts::new(Tuning::RATE_PERIOD.ticks()),
        }
    }
}

impl Counted {
    fn count(&mut self, total: u64, seconds: f64) {
        let more = total.saturating_sub(std::mem::replace(&mut self.before, total));
        self.recent.push(Counts::of(more as f64, seconds));
    }

    fn rate(&self) -> f64 {
        self.recent.rate_over(Tuning::RATE_PERIOD.ticks())
    }
}

/// Mode `auto`: useful with no tuning.
#[derive(Debug)]
pub(crate) struct Auto {
    warm_until: Timestamp,
    fleet: Fleet,
    total: DrainMeter,
    /// The drain rate has rested on enough once.
    drain_known: bool,
    clumps: Clumps,
    overload: Overload,
    served: TickCounts,
    left: TickCounts,
    /// By how many requests arrivals counted for more than they are.
    tolls: TickCounts,
    /// What came of each class lately.
    classes: Vec<Lately>,
    residence: Residence,
    target: DerivedTarget,
    /// Share of the target after which a waiting request is not worth a slot, where clients
    /// abandon.
    patience: f64,
    outlook: Option<Outlook>,
    /// When paths that are not asked for any more make room.
    next_aging: Timestamp,
    /// Where a replica has said that it can leave something out.
    dimming: OfferedDimming,
}

impl Auto {
    pub(crate) fn new(config: &SentryConfig, now: Timestamp) -> Self {
        Self {
            warm_until: now + config.warm_up.0.0,
            fleet: Fleet::new(config),
            total: DrainMeter::default(),
            drain_known: false,
            clumps: Clumps::default(),
            overload: Overload::new(),
            served: TickCounts::new(Tuning::RATE_PERIOD.ticks()),
            left: TickCounts::new(Tuning::RATE_PERIOD.ticks()),
            tolls: TickCounts::new(Tuning::RATE_PERIOD.ticks()),
            classes: Vec::new(),
            residence: Residence::default(),
            target: DerivedTarget::new(&config.auto),
            patience: 1.0,
            outlook: None,
            next_aging: now + Tuning::PATHS_AGE.get(),
            dimming: OfferedDimming::default(),
        }
    }

    /// The response time to be kept, of the most demanding class.
    fn target_seconds(&self, plan: &Plan) -> f64 {
        let targets = plan
            .classes
            .iter()
            .filter_map(|class| class.forecast.target());
        let least = targets.map(|target| target.as_secs_f64()).reduce(f64::min);
        least.unwrap_or(self.target.seconds())
    }

    /// Counts what happened in the tick.
    fn count(&mut self, step: &Step<'_>) {
        let (counts, seconds) = (step.interval.counts, step.interval.seconds);
        self.clumps.on_tick(step.interval);
        self.overload.set_clump_dispersion(self.clumps.dispersion());
        self.served.push(Counts::of(counts.served as f64, seconds));
        self.left.push(Counts::of(counts.abandoned as f64, seconds));
        let tolls = step.plan.policer.tolls.take_extra();
        self.tolls.push(Counts::of(tolls, seconds));
        self.classes
            .resize_with(step.plan.classes.len(), Lately::default);
        for (class, lately) in step.plan.classes.iter().zip(&mut self.classes) {
            lately.arrived.count(class.counters.arrived(), seconds);
            let admitted = class.counters.admitted.load(Ordering::Relaxed);
            lately.admitted.count(admitted, seconds);
        }
    }

    /// Whether most clients give up, and more of them than are served.
    fn most_clients_abandon(&self) -> bool {
        let left = self.left.rate_over(Tuning::RATE_PERIOD.ticks());
        left > Tuning::LEAVING_MOST_OF_OFFERED.get() * self.offered()
            && left > self.served.rate_over(Tuning::RATE_PERIOD.ticks())
    }

    /// Whether requests are abandoned inside: fewer at once would be answered sooner.
    fn admitted_clients_abandon(&self) -> bool {
        let admitted: f64 = self.classes.iter().map(|class| class.admitted.rate()).sum();
        self.most_clients_abandon()
            && self.served.rate_over(Tuning::RATE_PERIOD.ticks())
                < Tuning::ANSWERED_OF_ADMITTED.get() * admitted
    }

    /// Follows how long clients are worth waiting for: by trying, since they do not say how long
    /// they will.
    fn follow_patience(&mut self) {
        let step = if self.most_clients_abandon() {
            Tuning::PATIENCE_DOWN.per_tick()
        } else {
            Tuning::PATIENCE_UP.per_tick()
        };
        self.patience = within(
            self.patience * step,
            Tuning::PATIENCE_OF_TARGET_MIN.get(),
            1.0,
        );
    }

    /// Brings windows and drain rate up to date.
    fn measure(&mut self, step: &mut Step<'_>, target: f64) {
        if let Some(factor) = self.fleet.follow(step.now, step.plan) {
            self.total.scale(factor);
        }
        let fleet_tick = self.fleet_tick(step, target);
        self.total.set_variation(self.residence.variation());
        let full = self.fleet.on_tick(step, &fleet_tick);
        if full.seconds > 0.0 {
            self.total.on_tick(&full);
            self.drain_known |= self.total.seconds() >= Tuning::CAPACITY_FIRST_SECONDS.get();
        }
        self.fleet.publish_shares();
        self.residence.on_tick(step.interval);
    }

    /// What all replicas have in common in a tick.
    fn fleet_tick(&self, step: &Step<'_>, target: f64) -> FleetTick {
        let waiting = if step.dry_run {
            step.plan.in_flight_beyond_windows() > 0
        } else {
            step.plan.queued() > 0
        };
        let overloaded = self.overload.is_overloaded();
        let queued = if overloaded {
            f64::INFINITY
        } else {
            f64::from(step.plan.queued())
        };
        let spread = self.residence.spread(Tuning::ANSWERED_NEARLY_ALL.get());
        let tail = Tuning::SERVICE_TIME_TAIL_OF_TARGET.get() / spread;
        // A derived target follows the slowest anyway.
        let target_configured = has_target(step.plan);
        let doubtful = if target_configured {
            Tuning::SERVICE_TIME_DOUBTFUL_OF_TARGET
                .get()
                .min(Tuning::SERVICE_TIME_DOUBTFUL_TAIL_OF_TARGET.get() / spread)
        } else {
            Tuning::SERVICE_TIME_DOUBTFUL_OF_TARGET.get()
        };
        FleetTick {
            clumped: self.clumps.is_clumped(),
            waiting,
            queued,
            overloaded,
            target,
            target_configured,
            most_clients_abandon: self.most_clients_abandon(),
            admitted_clients_abandon: self.admitted_clients_abandon(),
            residence_max: target
                * within(
                    tail,
                    Tuning::SERVICE_TIME_OF_TARGET_MIN.get(),
                    Tuning::SERVICE_TIME_OF_TARGET.get(),
                ),
            residence_doubtful: target * doubtful,
            residence_long: self.residence.quantile(Tuning::ANSWERED_MOST.get()),
            overdue_after: self.overdue_after(),
        }
    }

    /// Requests that have been inside for three to four times this many seconds are overdue.
    fn overdue_after(&self) -> f64 {
        let times = Tuning::OVERDUE_SERVICE_TIMES.get();
        let mean = || self.residence.mean().unwrap_or(0.0);
        let seconds = match self.residence.typical() {
            Some(typical) => times * typical,
            None => (times * mean()).max(Tuning::OVERDUE_SECONDS_UNKNOWN.get()),
        };
        within(
            seconds,
            Tuning::OVERDUE_SECONDS_MIN.get(),
            Tuning::OVERDUE_SECONDS_MAX.get(),
        )
    }

    /// What can be served per second: what was done with all windows full, and no less than what
    /// is being done anyway.
    fn drain(&self) -> Option<f64> {
        let done = self.served.rate_over(Tuning::RATE_PERIOD.ticks());
        let rate = self.total.rate().filter(|_| self.drain_known);
        rate.map(|rate| rate.max(done))
    }

    /// Requests arrived per second lately.
    fn offered(&self) -> f64 {
        self.classes.iter().map(|class| class.arrived.rate()).sum()
    }

    /// Whether clients give up rather than wait.
    fn clients_leave(&self) -> bool {
        let left = self.left.rate_over(Tuning::RATE_PERIOD.ticks());
        left > Tuning::LEAVING_OF_OFFERED.get() * self.offered() && left > 0.0
    }

    fn judge_load(&mut self, step: &mut Step<'_>, target: f64) {
        let known = self.drain().filter(|_| self.fleet.capacity_is_known());
        let Some(drain) = known else {
            let counts = step.interval.counts;
            let arrived = Counts::of(counts.arrived as f64, step.interval.seconds);
            self.overload.on_arrivals(arrived);
            return;
        };
        let before = self.overload.is_overloaded();
        self.overload.on_tick(&Pressure {
            arrived: Counts::of(
                step.interval.counts.arrived as f64 + self.tolls.newest(),
                step.interval.seconds,
            ),
            drain,
            drain_seconds: self.total.seconds(),
            dispersion: self.total.dispersion(),
            target,
            queued: f64::from(step.plan.queued()),
            queue_self_inflicted: self.fleet.tries_less(),
        });
        if self.overload.is_overloaded() != before {
            step.observe(&Event::Overload {
                at: step.now,
                on: !before,
                offered_per_second: self.offered(),
                drain_per_second: drain,
            });
        }
    }

    /// Where no target is configured, follows what the service needs.
    fn derive_target(&mut self, plan: &Plan) {
        if let Some(base) = self.fleet.base_residence() {
            let p99 = base
                * self
                    .residence
                    .spread(Tuning::ANSWERED_NEARLY_ALL.get())
                    .min(Tuning::TARGET_SPREAD_MAX.get());
            self.target.follow(base, p99, self.drain());
        }
        let derived = Duration::from_secs_f64(self.target.seconds());
        for (index, class) in plan.classes.iter().enumerate() {
            if plan.config.target_of(ClassId(index as u16)).is_none() {
                class.forecast.set_target(Some(derived));
            }
        }
    }

    /// Publishes what newcomers are judged by.
    fn publish(&self, step: &Step<'_>) {
        self.publish_judgement(step);
        self.publish_tolls(step.plan);
        // Not by Little's law: slots that are kept would keep others for longer.
        let answered = self.residence.mean().unwrap_or(0.0);
        for class in &step.plan.classes {
            class.forecast.linger.store(answered);
        }
    }

    fn publish_judgement(&self, step: &Step<'_>) {
        let known = self.fleet.capacity_is_known() && step.now >= self.warm_until;
        match self.drain().filter(|_| known && !self.dimming.suffices()) {
            Some(drain) => self.publish_limits(step.plan, drain),
            None => self.publish_patience(step.plan),
        }
    }

    /// While capacity is unknown no request is refused before it has waited for several times a
    /// target that is configured: it would hang for as long as the search lasts. And where clients
    /// give up rather than wait, those that have waited for a whole target are not worth a slot;
    /// nor are those that have waited for less, where more give up than are served.
    fn publish_patience(&self, plan: &Plan) {
        let leaving = self.clients_leave();
        for (index, class) in plan.classes.iter().enumerate() {
            class.forecast.withdraw();
            let patience = class
                .forecast
                .target()
                .map(|target| target.mul_f64(self.patience));
            let configured = plan.config.target_of(ClassId(index as u16));
            let most = configured.map_or(NEVER, |target| {
                nanos(Tuning::WAIT_FIRST_TARGETS.get() * target.as_secs_f64())
            });
            let patience = patience.filter(|_| leaving).map(saturating_nanos);
            let limit = patience.unwrap_or(most);
            class.forecast.wait_limit_ns.store(limit, Ordering::Relaxed);
            let late = class.forecast.target().map_or(NEVER, |target| {
                let most = self.residence.quantile(Tuning::ANSWERED_MOST.get());
                nanos(late_at_first(target.as_secs_f64(), most))
            });
            class.forecast.late_ns.store(late, Ordering::Relaxed);
        }
    }

    /// In overload those pay whose path costs far more than others.
    fn publish_tolls(&self, plan: &Plan) {
        let charged = self.overload.is_overloaded() && plan.charges_tolls();
        for class in &plan.classes {
            let mean_s = class.cost.service_s().filter(|_| charged);
            class.forecast.toll_mean_s.store(mean_s.unwrap_or(0.0));
        }
    }

    fn publish_limits(&self, plan: &Plan, drain: f64) {
        let situation = self.situation(plan, drain);
        let all = self.offered();
        let (mut above, mut left) = (0.0, drain);
        for (class, lately) in plan.classes.iter().zip(&self.classes) {
            above += lately.arrived.rate();
            let share = if all > 0.0 { above / all } else { 1.0 };
            let part = Part {
                drain: left.max(Tuning::CAPACITY_LEFT_MIN.get() * drain),
                pressure: share * situation.pressure,
                pressure_with_tolls: share * situation.pressure_with_tolls,
            };
            publish_class(class, &situation, part);
            left -= lately.admitted.rate();
        }
    }

    fn situation(&self, plan: &Plan, drain: f64) -> Situation {
        // By Little's law, if the replicas are full; otherwise they may be faster than that.
        let full = f64::from(plan.in_flight()) / drain;
        let tolls = self.tolls.rate_over(Tuning::RATE_PERIOD.ticks());
        // Where some take far longer than the others they are most of those inside.
        let residence = if plan.queued() > 0 && tolls <= 0.0 {
            full
        } else {
            self.residence.mean().unwrap_or(full).min(full)
        };
        Situation {
            drain,
            pressure: (self.offered() / drain).max(1.0),
            pressure_with_tolls: ((self.offered() + tolls) / drain).max(1.0),
            overloaded: self.overload.is_overloaded(),
            queue_self_inflicted: self.overload.queue_is_self_inflicted(),
            burstiness: self.overload.burstiness(),
            dispersion: self.total.dispersion(),
            residence,
            residence_most: residence * self.residence.spread(Tuning::ANSWERED_MOST.get()),
            residence_nearly_all: residence
                * self.residence.spread(Tuning::ANSWERED_NEARLY_ALL.get()),
        }
    }

    fn age_paths(&mut self, step: &Step<'_>) {
        if step.now >= self.next_aging {
            self.next_aging = step.now + Tuning::PATHS_AGE.get();
            step.plan.policer.age_paths();
        }
    }

    fn look_out(&self, step: &Step<'_>, target: f64) -> Outlook {
        let forecast = &step.plan.classes[step.plan.classes.len() - 1].forecast;
        let limit = forecast.ahead_limit.load(Ordering::Relaxed);
        Outlook {
            at: step.now,
            offered_per_second: self.offered(),
            drain_per_second: self.drain(),
            residence_seconds: self.residence.mean().unwrap_or(0.0),
            target_seconds: target,
            queue_limit: Some(limit).filter(|&limit| limit != u32::MAX),
            queued: step.plan.queued(),
            overloaded: self.overload.is_overloaded(),
        }
    }
}

/// Whether a target is configured.
fn has_target(plan: &Plan) -> bool {
    let mut classes = 0..plan.classes.len();
    classes.any(|index| plan.config.target_of(ClassId(index as u16)).is_some())
}

fn publish_class(class: &Class, situation: &Situation, part: Part) {
    let forecast = &class.forecast;
    let Some(target) = forecast.target() else {
        return;
    };
    let limits = situation.limits(target.as_secs_f64(), part);
    forecast.ahead_limit.store(limits.ahead, Ordering::Relaxed);
    forecast
        .toll_limit
        .store(limits.ahead_with_tolls, Ordering::Relaxed);
    forecast
        .wait_limit_ns
        .store(limits.wait_ns, Ordering::Relaxed);
    forecast.late_ns.store(limits.late_ns, Ordering::Relaxed);
    forecast.drain.store(part.drain);
    forecast.residence.store(situation.residence);
    forecast.pressure.store(situation.pressure);
}

impl Strategy for Auto {
    fn interval(&self) -> Duration {
        Tuning::INTERVAL.get()
    }

    fn start(&mut self, now: Timestamp, plan: &Plan, gate: &Gate, handover: Option<&Handover>) {
        gate.open();
        self.fleet.start(now, plan, handover.is_some());
        self.derive_target(plan);
        self.publish_patience(plan);
    }

    fn step(&mut self, step: &mut Step<'_>) {
        let target = self.target_seconds(step.plan);
        self.count(step);
        self.follow_patience();
        self.dimming.step(step, target);
        self.measure(step, target);
        self.judge_load(step, target);
        self.derive_target(step.plan);
        self.publish(step);
        self.age_paths(step);
        let outlook = self.look_out(step, target);
        self.outlook = Some(outlook);
        step.observe(&Event::Forecast(outlook));
    }

    fn reconfigure(&mut self, _now: Timestamp, plan: &Plan) -> bool {
        self.fleet.reconfigure(&plan.config);
        self.target.reconfigure(&plan.config.auto);
        self.derive_target(plan);
        true
    }

    fn windows(&self) -> Vec<(ReplicaId, u32)> {
        self.fleet.windows()
    }

    fn phases(&self) -> Vec<PhaseName> {
        self.fleet.phases()
    }

    fn knees(&self) -> Vec<Option<f64>> {
        self.fleet.knees()
    }

    fn resume(&mut self, now: Timestamp, windows: &[(ReplicaId, u32)]) {
        self.fleet.resume(now, windows);
    }

    fn share(&mut self, _now: Timestamp, _plan: &Plan, _gate: &Gate, share: &FleetShare) {
        // With another part of the windows another part of the capacity is this engine's.
        if let Some(factor) = self.fleet.share(share) {
            self.total.scale(factor);
        }
    }

    fn found(&self) -> Vec<(Option<LeadWindow>, Option<f64>)> {
        self.fleet.found()
    }

    fn drain_rate(&self) -> Option<f64> {
        self.drain()
    }

    fn overloaded(&self) -> Option<bool> {
        Some(self.overload.is_overloaded())
    }

    fn brownout(&self) -> Option<BrownoutStatus> {
        self.dimming.status()
    }

    fn status(&self) -> Option<ControllerStatus> {
        let outlook = self.outlook?;
        let drain = outlook.drain_per_second?;
        let waiting = f64::from(outlook.queued) / drain;
        Some(ControllerStatus {
            name: "auto",
            setpoint: outlook.target_seconds,
            measured: waiting + outlook.residence_seconds,
            output: drain,
            terms: Terms::default(),
            bad_samples: 0,
        })
    }
}

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
//! answered a residence time later (003 eq. 3 with measured quantities; by Little's law
//! residence is what is in flight over `r`). It is admitted if that is in time. In overload the
//! queue is kept shorter than the target allows: enough to keep every replica busy, and
//! everything beyond would only make everybody wait.
//!
//! Where replicas can leave optional content out, that is done before anybody is refused
//! ([`OfferedDimming`]).
//!
//! While the capacity is unknown, because the windows have not been found too small or large
//! enough yet, nothing is refused on a forecast.
//!
//! What breaks it: a target below what the service needs for one request. Then everything is
//! late, and the queue is kept at the little that keeps the service busy.

pub(super) mod drain;
mod overload;
mod profile;
mod recent;
mod residence;
mod sprt;
mod window;

use std::sync::atomic::Ordering;
use std::time::Duration;

use tidegate_control::Timestamp;

use self::drain::DrainMeter;
use self::overload::{Overload, Pressure};
use self::recent::Recent;
use self::residence::Residence;
use self::window::{Bounds, ReplicaTick, WindowSearch};
use super::dimming::OfferedDimming;
use super::{Handover, Step, Strategy};
use crate::api::{ClassId, ReplicaId};
use crate::class::{Class, NEVER, saturating_nanos};
use crate::config::SentryConfig;
use crate::event::{Event, Outlook};
use crate::gate::Gate;
use crate::number::within;
use crate::occupancy::Full;
use crate::plan::Plan;
use crate::replica::Replica;
use crate::status::BrownoutStatus;

/// Share of the target that residence in a replica may take before its window is made smaller.
const RESIDENCE_SHARE: f64 = 0.4;

/// The same for the slowest of a hundred.
const RESIDENCE_TAIL_SHARE: f64 = 0.5;

/// Share of the target below which residence is short enough.
const RESIDENCE_SMALL: f64 = 0.05;

/// Share of the target that waiting may take in overload.
const WAIT_SHARE: f64 = 0.5;

/// Requests that are enough in the queue to keep the replicas busy through the chance of arrivals
/// in overload (M/M/1/K at twice the capacity is idle for 2^-(K+1) of the time).
const BUSY_REQUESTS: f64 = 10.0;

/// Backlog that chance alone brings about at four fifths of capacity less than once in a million
/// requests (0.8^60), for regular service.
const BURST_REQUESTS: f64 = 50.0;

/// A burst is waited for up to this many targets.
const BURST_TARGETS: f64 = 4.0;

/// Nineteen of twenty are to be answered within the target, and ninety-nine of a hundred not much
/// later.
const MOST: f64 = 0.95;
const NEARLY_ALL: f64 = 0.99;
const NOT_MUCH: f64 = 1.15;

/// Ticks over which what is being done is looked at.
const SERVED_TICKS: usize = 10;

/// A target that nobody gave is so many times what a request takes without a crowd, within bounds.
/// Chosen: at the knee a request waits about as long as it is served, and a service that needs ten
/// times as long is no longer the one its users know.
const TARGET_BASES: f64 = 10.0;
const TARGET_MIN_SECONDS: f64 = 0.1;
const TARGET_MAX_SECONDS: f64 = 10.0;

/// Age groups of requests; after the fourth a request holds no slot of the window any more. Far
/// longer than requests take that are answered in time.
const GENERATION: Duration = Duration::from_secs(5);

/// See the module's description.
#[derive(Debug)]
pub(crate) struct Auto {
    interval: Duration,
    warm_until: Timestamp,
    windows: Vec<ReplicaState>,
    total: DrainMeter,
    overload: Overload,
    served: Recent,
    residence: Residence,
    next_generation: Timestamp,
    /// Where a replica has said that it can leave something out.
    dimming: OfferedDimming,
}

/// What is known of one replica.
#[derive(Debug)]
struct ReplicaState {
    search: WindowSearch,
}

impl Auto {
    pub(crate) fn new(config: &SentryConfig, now: Timestamp) -> Self {
        Self {
            interval: config.auto.interval.0,
            warm_until: now + config.warm_up.0.0,
            windows: Vec::new(),
            total: DrainMeter::default(),
            overload: Overload::new(),
            served: Recent::new(SERVED_TICKS),
            residence: Residence::default(),
            next_generation: now + GENERATION,
            dimming: OfferedDimming::default(),
        }
    }

    /// A class without a target gets one from what the service does without a crowd.
    fn derive_targets(&self, plan: &Plan) {
        let bases = self.windows.iter().filter_map(|state| state.search.base());
        let Some(base) = bases.min_by(f64::total_cmp) else {
            return;
        };
        let derived = within(TARGET_BASES * base, TARGET_MIN_SECONDS, TARGET_MAX_SECONDS);
        for (index, class) in plan.classes.iter().enumerate() {
            if plan.config.target_of(ClassId(index as u16)).is_none() {
                let derived = Duration::from_secs_f64(derived);
                class.forecast.set_target(Some(derived));
            }
        }
    }

    /// Requests that are inside for several generations no longer count for the window.
    fn age_requests(&mut self, now: Timestamp, plan: &Plan) {
        if now >= self.next_generation {
            self.next_generation = now + GENERATION;
            plan.replicas
                .iter()
                .for_each(|replica| replica.next_generation());
        }
    }

    fn follow_replicas(&mut self, now: Timestamp, plan: &Plan) {
        let bounds = bounds(&plan.config);
        for (index, replica) in plan.replicas.iter().enumerate() {
            if self.windows.len() <= index {
                self.windows.push(ReplicaState {
                    search: WindowSearch::new(replica.limit(), bounds, now),
                });
            }
        }
    }

    fn adapt_windows(&mut self, step: &mut Step<'_>, waiting: bool, target: f64) -> Full {
        let mut fulls = Vec::new();
        let residence_max =
            target * (RESIDENCE_TAIL_SHARE / self.residence.spread(0.99)).min(RESIDENCE_SHARE);
        for (index, state) in self.windows.iter_mut().enumerate() {
            let replica = &step.plan.replicas[index];
            let full = replica.occupancy(step.now).take_full();
            if replica.is_up() {
                fulls.push(full);
            }
            let from = state.search.window();
            let tick = ReplicaTick {
                now: step.now,
                full,
                binding: waiting && replica.is_up() && !step.dry_run,
                residence_max,
                residence_long: self.residence.quantile(MOST),
                residence_min: target * RESIDENCE_SMALL,
            };
            let cause = state.search.on_tick(&tick, replica.occupancy(step.now));
            publish_window(replica, state.search.window());
            if let Some(cause) = cause {
                step.observer.on_event(&Event::Window {
                    at: step.now,
                    replica: ReplicaId(index as u16),
                    from,
                    to: state.search.window(),
                    cause,
                });
            }
        }
        full_together(&fulls, step.interval.seconds)
    }

    /// Whether throughput of late was capacity, and not what too small windows let through.
    fn capacity_is_known(&self, plan: &Plan) -> bool {
        let up = |index: usize| plan.replicas[index].is_up();
        let states = self
            .windows
            .iter()
            .enumerate()
            .filter(|(index, _)| up(*index));
        let (known, all) = states.fold((0, 0), |(known, all), (_, state)| {
            (known + i32::from(state.search.confirmed()), all + 1)
        });
        all > 0 && known * 2 >= all
    }

    /// What can be served per second: what was done with all windows full, and no less than what
    /// is being done anyway.
    fn drain(&self) -> Option<f64> {
        let done = self.served.rate_over(SERVED_TICKS);
        self.total.rate_at_most().map(|rate| rate.max(done))
    }

    /// Publishes what newcomers are judged by.
    fn publish(&mut self, step: &Step<'_>) {
        let drain = self
            .total
            .rate()
            .filter(|_| self.capacity_is_known(step.plan) && !self.dimming.suffices());
        let Some(drain) = drain.filter(|_| step.now >= self.warm_until) else {
            for class in &step.plan.classes {
                class.forecast.withdraw();
            }
            return;
        };
        let pressure = (self.overload.arrival_rate() / drain).max(1.0);
        for class in &step.plan.classes {
            self.publish_class(step, class, drain, pressure);
        }
    }

    fn outlook(&self, step: &Step<'_>, target: f64) -> Outlook {
        let forecast = &step.plan.classes[step.plan.classes.len() - 1].forecast;
        let limit = forecast.ahead_limit.load(Ordering::Relaxed);
        Outlook {
            at: step.now,
            offered_per_second: self.overload.arrival_rate(),
            drain_per_second: self.drain(),
            residence_seconds: forecast.residence.load(),
            target_seconds: target,
            queue_limit: Some(limit).filter(|&limit| limit != u32::MAX),
            queued: step.plan.queued(),
            overloaded: self.overload.is_overloaded(),
        }
    }

    fn publish_class(&self, step: &Step<'_>, class: &Class, drain: f64, pressure: f64) {
        let forecast = &class.forecast;
        let residence = f64::from(step.plan.in_flight()) / drain;
        let residence = match step.plan.queued() > 0 {
            true => residence,
            false => self.residence.mean().unwrap_or(residence).min(residence),
        };
        let target = forecast.target().map_or(1.0, |target| target.as_secs_f64());
        let quantile = |q: f64| residence * self.residence.spread(q);
        let busy = BUSY_REQUESTS / drain;
        let in_time = (target - quantile(MOST)).min(NOT_MUCH * target - quantile(NEARLY_ALL));
        let (wait, expiry) = if self.overload.is_overloaded() {
            let wait = in_time.min((WAIT_SHARE * target).max(busy));
            (wait.max(busy), (target - residence).max(2.0 * busy))
        } else {
            let burst = BURST_REQUESTS * self.total.dispersion().max(1.0) / drain;
            let wait = in_time.max(burst).min(BURST_TARGETS * target);
            (wait.max(busy), f64::INFINITY)
        };
        // `as` saturates.
        let ahead = (drain * wait).ceil() as u32;
        forecast.ahead_limit.store(ahead.max(1), Ordering::Relaxed);
        forecast
            .wait_limit_ns
            .store(nanos(expiry), Ordering::Relaxed);
        forecast.drain.store(drain);
        forecast.residence.store(residence);
        forecast.pressure.store(pressure);
    }
}

fn nanos(seconds: f64) -> u64 {
    if seconds.is_finite() {
        saturating_nanos(Duration::from_secs_f64(within(seconds, 0.0, 1e9)))
    } else {
        NEVER
    }
}

fn bounds(config: &SentryConfig) -> Bounds {
    Bounds {
        min: config.limits.window_min,
        max: config.limits.window_max,
    }
}

/// What all replicas did while all of them were full: their rates together, over the mean time they
/// were full; nothing if one of them was not for half of the tick.
fn full_together(fulls: &[Full], tick_seconds: f64) -> Full {
    let all_full = fulls.iter().all(|full| full.seconds > tick_seconds / 2.0);
    if fulls.is_empty() || !all_full {
        return Full::default();
    }
    let seconds = fulls.iter().map(|full| full.seconds).sum::<f64>() / fulls.len() as f64;
    let rate: f64 = fulls.iter().map(|full| full.done / full.seconds).sum();
    Full {
        seconds,
        done: rate * seconds,
    }
}

fn publish_window(replica: &Replica, window: u32) {
    let overdue = replica.overdue().min(window);
    replica.set_limit(window.saturating_add(overdue));
}

impl Strategy for Auto {
    fn interval(&self) -> Duration {
        self.interval
    }

    fn start(&mut self, now: Timestamp, plan: &Plan, gate: &Gate, handover: Option<&Handover>) {
        for class in &plan.classes {
            class.forecast.withdraw();
        }
        gate.open();
        let initial = crate::plan::initial_window(&plan.config);
        let bounds = bounds(&plan.config);
        self.windows.clear();
        for replica in &plan.replicas {
            let window = match handover {
                Some(_) => replica.in_flight().max(initial),
                None => initial,
            };
            let search = WindowSearch::new(window, bounds, now);
            replica.set_limit(search.window());
            self.windows.push(ReplicaState { search });
        }
    }

    fn step(&mut self, step: &mut Step<'_>) {
        self.follow_replicas(step.now, step.plan);
        let target = step.plan.classes[0]
            .forecast
            .target()
            .map_or(1.0, |target| target.as_secs_f64());
        self.dimming.step(step, target);
        let waiting = match step.dry_run {
            true => step.plan.in_flight_beyond_windows() > 0,
            false => step.plan.queued() > 0,
        };
        let full = self.adapt_windows(step, waiting, target);
        if full.seconds > 0.0 {
            self.total.on_tick(full.done, full.seconds);
        }
        self.residence.on_tick(step.interval);
        self.derive_targets(step.plan);
        self.age_requests(step.now, step.plan);
        self.served
            .push(step.interval.counts.served as f64, step.interval.seconds);
        if let Some(drain) = self.drain() {
            let before = self.overload.is_overloaded();
            self.overload.on_tick(&Pressure {
                seconds: step.interval.seconds,
                arrived: step.interval.counts.arrived as f64,
                drain,
                dispersion: self.total.dispersion(),
                backlog: f64::from(step.plan.queued()) / drain / target,
            });
            if self.overload.is_overloaded() != before {
                step.observe(&Event::Overload {
                    at: step.now,
                    on: !before,
                    offered_per_second: self.overload.arrival_rate(),
                    drain_per_second: drain,
                });
            }
        }
        self.publish(step);
        let outlook = self.outlook(step, target);
        step.observe(&Event::Forecast(outlook));
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
}

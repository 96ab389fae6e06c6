//! Another configuration beside the one in force, on the same arrivals.
//!
//! Two shadows run before the same models of the replicas: one with the configuration in force, one
//! with the other. The first shows how far the models are from the truth, so that a difference of
//! the second is not believed when it is no larger.
//!
//! Threads: a request takes the lock of one of several inboxes for the time of a copy. The driver
//! calls [`Comparison::on_tick`] on a thread of its own, which holds an inbox only to exchange it.
//! Nothing flows back to the engine in force.
//!
//! What breaks it: what breaks a shadow (see [the module](super)); and a window in force that keeps
//! replicas below what they can do, since nothing is seen of what they would do beyond it.
//!
//! Decision: docs/decisions/0245-shadow-configuration-before-models.md.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tidegate_control::Timestamp;

use super::recent::Recent;
use super::status::{ShadowEngine, ShadowStatus};
use super::{ARRIVALS_MAX, Inbox, Shadow};
use crate::api::{Arrival, ReplicaId};
use crate::config::SentryConfig;
use crate::engine::Sentry;
use crate::error::SentryError;
use crate::event::Event;
use crate::plan::Plan;
use crate::replica::UNLIMITED;

#[expect(
    clippy::disallowed_types,
    reason = "requests leave a record and one thread collects it; it is locked for the time of a copy"
)]
type Lock<T> = parking_lot::Mutex<T>;

/// Inboxes, so that threads seldom meet.
const INBOXES: usize = 8;
/// Bits of the time that choose an inbox: below 64 ns clocks may be too coarse.
const INBOX_SHIFT: u32 = 6;
/// Measurements of one second each from which a response time is taken.
const MEASUREMENTS: usize = 10;
/// Time between two pictures of the counters.
const SECOND: std::time::Duration = std::time::Duration::from_secs(1);

/// Another configuration beside the one in force, on the same arrivals.
#[derive(Debug)]
pub struct Comparison {
    on: AtomicBool,
    inboxes: [Lock<Inbox>; INBOXES],
    state: Lock<State>,
}

#[derive(Debug, Default)]
struct State {
    wanted: Option<Arc<SentryConfig>>,
    running: Option<Running>,
    /// Memory of an inbox that was emptied.
    spare: Inbox,
    collected: Inbox,
}

#[derive(Debug)]
struct Running {
    /// What it compares with.
    wanted: Arc<SentryConfig>,
    began: Timestamp,
    second_due: Timestamp,
    left_out: u64,
    plan: Arc<Plan>,
    in_force: Recent,
    modelled: Side,
    shadow: Side,
}

/// A shadow and its figures.
#[derive(Debug)]
struct Side {
    shadow: Box<Shadow>,
    recent: Recent,
    /// Of the last seconds: requests served, and the 95th percentile of their response times.
    responses: VecDeque<(f64, f64)>,
}

impl Side {
    fn new(config: &SentryConfig, plan: &Plan, now: Timestamp) -> Result<Self, SentryError> {
        let shadow = Shadow::with(config, plan, now)?;
        Ok(Self {
            recent: Recent::new(now, &shadow.sentry.plan_now()),
            shadow,
            responses: VecDeque::new(),
        })
    }

    fn live(&mut self, now: Timestamp, plan: &Plan, inbox: &Inbox) {
        let responses = &mut self.responses;
        let mut observer = |event: &Event| {
            if let Event::Measured(measured) = event {
                if responses.len() >= MEASUREMENTS {
                    responses.pop_front();
                }
                let p95 = measured.response_p95_seconds.unwrap_or(0.0);
                responses.push_back((measured.served as f64, p95));
            }
        };
        self.shadow.live(now, plan, inbox, &mut observer);
    }

    fn status(&self) -> ShadowEngine {
        let served: f64 = self.responses.iter().map(|(served, _)| served).sum();
        let weighted: f64 = self
            .responses
            .iter()
            .map(|(served, p95)| served * p95)
            .sum();
        let engine = engine_status(&self.shadow.sentry, &self.recent);
        ShadowEngine {
            response_p95_seconds: (served > 0.0).then(|| weighted / served),
            ..engine
        }
    }
}

fn engine_status<T>(sentry: &Sentry<T>, recent: &Recent) -> ShadowEngine {
    let plan = sentry.plan_now();
    let (total, classes) = recent.classes(&plan);
    let adaptation = sentry.adaptation();
    let window = |limit: u32| (limit != UNLIMITED).then_some(limit);
    ShadowEngine {
        mode: plan.config.mode,
        overloaded: adaptation.overloaded(),
        capacity_per_second: adaptation.drain_rate(),
        queued: plan.queued(),
        in_flight: plan.in_flight(),
        windows: plan.replicas.iter().map(|it| window(it.limit())).collect(),
        response_p95_seconds: None,
        total,
        classes,
    }
}

impl Running {
    fn begin(
        wanted: &Arc<SentryConfig>,
        plan: Arc<Plan>,
        windows: &[(ReplicaId, u32)],
        now: Timestamp,
    ) -> Result<Self, SentryError> {
        let running = Self {
            wanted: Arc::clone(wanted),
            began: now,
            second_due: now + SECOND,
            left_out: 0,
            in_force: Recent::new(now, &plan),
            modelled: Side::new(&plan.config, &plan, now)?,
            shadow: Side::new(wanted, &plan, now)?,
            plan,
        };
        for side in [&running.modelled, &running.shadow] {
            side.shadow.sentry.resume(now, windows);
        }
        Ok(running)
    }

    /// Takes over what another one has learned about the replicas.
    fn learn_from(&mut self, now: Timestamp, before: Self) {
        self.modelled
            .shadow
            .learn_from(now, *before.modelled.shadow);
        self.shadow.shadow.learn_from(now, *before.shadow.shadow);
    }

    fn live(&mut self, now: Timestamp, inbox: &Inbox) {
        self.left_out += inbox.left_out;
        self.modelled.live(now, &self.plan, inbox);
        self.shadow.live(now, &self.plan, inbox);
        if now >= self.second_due {
            self.second_due = now + SECOND;
            self.in_force.on_second(now, &self.plan);
            for side in [&mut self.modelled, &mut self.shadow] {
                let plan = side.shadow.sentry.plan_now();
                side.recent.on_second(now, &plan);
            }
        }
    }
}

impl Default for Comparison {
    fn default() -> Self {
        Self {
            on: AtomicBool::new(false),
            inboxes: std::array::from_fn(|_| Lock::new(Inbox::default())),
            state: Lock::new(State::default()),
        }
    }
}

impl Comparison {
    /// Compares with this configuration from the next tick on, or with none.
    ///
    /// # Errors
    /// When the configuration contradicts itself; then nothing has changed.
    pub fn set(&self, config: Option<Arc<SentryConfig>>) -> Result<(), SentryError> {
        if let Some(config) = &config {
            config.validate()?;
        }
        let mut state = self.state.lock();
        self.on.store(config.is_some(), Ordering::Relaxed);
        if state.wanted.as_deref() != config.as_deref() {
            state.wanted = config;
        }
        Ok(())
    }

    /// Whether there is a configuration to compare with.
    pub fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    fn inbox(&self, now: Timestamp) -> &Lock<Inbox> {
        &self.inboxes[(now.as_nanos() >> INBOX_SHIFT) as usize % INBOXES]
    }

    /// A request arrived at the engine in force.
    pub fn on_arrival(&self, now: Timestamp, arrival: &Arrival) {
        if self.is_on() {
            let mut inbox = self.inbox(now).lock();
            inbox.on_arrival_within(ARRIVALS_MAX / INBOXES, now, arrival);
        }
    }

    /// A replica served a request, which spent these seconds in it.
    pub fn on_served(&self, now: Timestamp, replica: ReplicaId, seconds: f64) {
        if self.is_on() {
            self.inbox(now).lock().on_served(replica, seconds);
        }
    }

    /// Lives through the time until now beside the engine in force, which is only looked at.
    pub fn on_tick<T>(&self, now: Timestamp, sentry: &Sentry<T>) {
        let mut state = self.state.lock();
        let Some(wanted) = state.wanted.clone() else {
            state.running = None;
            return;
        };
        state.collect(&self.inboxes);
        if !state.follow(&wanted, now, sentry) {
            return;
        }
        let State {
            running, collected, ..
        } = &mut *state;
        if let Some(running) = running {
            running.live(now, collected);
        }
        collected.clear();
    }

    /// How the configurations compare; none while there is nothing to compare.
    pub fn status<T>(&self, now: Timestamp, sentry: &Sentry<T>) -> Option<ShadowStatus> {
        let state = self.state.lock();
        let running = state.running.as_ref()?;
        let up = running.plan.up();
        let known = up.filter(|(id, _)| {
            let model = running.shadow.shadow.models.get(usize::from(id.0));
            model.is_some_and(super::CapacityModel::is_known)
        });
        Some(ShadowStatus {
            running_seconds: (now - running.began).as_secs_f64(),
            seconds: running.in_force.covered(),
            left_out: running.left_out,
            limits_known: known.count(),
            replicas_up: running.plan.up().count(),
            in_force: engine_status(sentry, &running.in_force),
            modelled: running.modelled.status(),
            shadow: running.shadow.status(),
        })
    }
}

impl State {
    /// Takes what requests left, in the order of time.
    fn collect(&mut self, inboxes: &[Lock<Inbox>]) {
        for inbox in inboxes {
            std::mem::swap(&mut *inbox.lock(), &mut self.spare);
            self.spare.drain_into(&mut self.collected);
        }
        self.collected.arrivals.sort_by_key(|(at, _)| *at);
    }

    /// Begins, or begins anew after a change of either configuration or of the replicas. Whether
    /// it goes on with what was collected.
    fn follow<T>(
        &mut self,
        wanted: &Arc<SentryConfig>,
        now: Timestamp,
        sentry: &Sentry<T>,
    ) -> bool {
        let plan = sentry.plan_now();
        let suits = |running: &Running| {
            Arc::ptr_eq(&running.wanted, wanted) && running.modelled.shadow.suits(&plan)
        };
        if self.running.as_ref().is_some_and(suits) {
            if let Some(running) = &mut self.running {
                running.plan = plan;
            }
            return true;
        }
        let next = Running::begin(wanted, plan, &sentry.windows(), now);
        let before = self.running.take();
        self.collected.clear();
        self.running = next.ok();
        if let (Some(next), Some(before)) = (&mut self.running, before) {
            next.learn_from(now, before);
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::api::{ClassId, Ending, Permit, Resolution, Verdict};
    use crate::random::Dice;
    use crate::shadow::capacity::Servers;
    use crate::shadow::station::Station;

    /// A service of four servers of 50 ms behind an engine, driven at `rate` for some seconds, with
    /// a shadow beside it.
    fn run(own: &str, other: &str, rate: f64, seconds: f64) -> ShadowStatus {
        let config: SentryConfig = tidegate_config::parse("own", own).unwrap();
        let sentry = Sentry::new(&config, 1, Timestamp::ZERO, 1).unwrap();
        let comparison = Comparison::default();
        let other: SentryConfig = tidegate_config::parse("other", other).unwrap();
        comparison.set(Some(Arc::new(other))).unwrap();
        let (mut station, dice, arrivals) = (Station::default(), Dice::new(7), Dice::new(8));
        station.set(Servers {
            count: Some(4),
            seconds: 0.05,
        });
        let mut next = 0.0;
        let mut tick = Timestamp::ZERO;
        let end = Timestamp::ZERO + Duration::from_secs_f64(seconds);
        let mut started: Vec<Permit> = Vec::new();
        while tick < end {
            tick += Duration::from_millis(10);
            loop {
                let arrives = Timestamp::ZERO + Duration::from_secs_f64(next);
                let leaves = station.next_end().unwrap_or(tick).min(tick);
                let at = arrives.min(leaves);
                if at >= tick {
                    break;
                }
                if arrives <= leaves {
                    next -= (1.0 - arrivals.unit()).ln() / rate;
                    let class = ClassId(u16::from(arrivals.unit() < 0.5));
                    let arrival = Arrival {
                        class,
                        ..Arrival::default()
                    };
                    comparison.on_arrival(at, &arrival);
                    if let Verdict::Admit(permit) = sentry.on_arrival(at, &arrival, || ()) {
                        started.push(permit);
                    }
                } else if let Some(permit) = station.end(at, &dice) {
                    let inside = (at - permit.admitted()).as_secs_f64();
                    comparison.on_served(at, permit.replica(), inside);
                    let resolutions = sentry.on_end(at, permit, Ending::Served);
                    started.extend(resolutions.filter_map(admitted));
                }
                for permit in started.drain(..) {
                    station.begin(at, permit, &dice);
                }
            }
            let resolutions = sentry.handle_timeout(tick, &mut |_: &Event| {});
            started.extend(resolutions.filter_map(admitted));
            for permit in started.drain(..) {
                station.begin(tick, permit, &dice);
            }
            if tick.as_nanos().is_multiple_of(100_000_000) {
                comparison.on_tick(tick, &sentry);
            }
        }
        comparison.status(end, &sentry).unwrap()
    }

    fn admitted(((), resolution): ((), Resolution)) -> Option<Permit> {
        match resolution {
            Resolution::Admit(permit) => Some(permit),
            Resolution::Shed(_) => None,
        }
    }

    const CLASSES: &str = "target = '500ms'\nclasses = [{ name = 'gold' }, { name = 'free' }]\n";

    #[test]
    fn shadow_of_the_same_configuration_decides_alike() {
        let status = run(CLASSES, CLASSES, 120.0, 120.0);
        let shed = |engine: &ShadowEngine| engine.total.shed.values().sum::<u64>() as f64;
        let (real, shadow) = (shed(&status.in_force), shed(&status.shadow));
        assert!(real > 3000.0, "{status:#?}");
        assert!((0.85..=1.15).contains(&(shadow / real)), "{real} {shadow}");
        assert_eq!(status.limits_known, 1);
        assert_eq!(status.left_out, 0);
        assert_eq!(status.modelled.total, status.shadow.total, "the same seeds");
        let good = |engine: &ShadowEngine| engine.total.in_target as f64;
        let ratio = good(&status.shadow) / good(&status.in_force);
        assert!((0.9..=1.1).contains(&ratio), "{ratio}");
    }

    #[test]
    fn shadow_with_a_rate_sheds_what_is_beyond_it() {
        let other = "mode = 'static'\nstatic = { rate = '30/s' }\ntarget = '500ms'\n\
                     classes = [{ name = 'gold' }]";
        let status = run(CLASSES, other, 60.0, 60.0);
        assert_eq!(status.in_force.total.shed_per_second, 0.0);
        let shadow = &status.shadow.total;
        assert!(
            (27.0..=33.0).contains(&shadow.admitted_per_second),
            "{shadow:?}"
        );
        assert!(shadow.shed_per_second_by_reason["rate"] > 20.0);
        let names: Vec<_> = status.shadow.classes.iter().map(|it| &it.name).collect();
        assert_eq!(names, ["gold"], "a class that it does not have is its last");
    }

    #[test]
    fn comparison_that_is_off_keeps_nothing() {
        let comparison = Comparison::default();
        let config = SentryConfig::default();
        let sentry: Sentry<()> = Sentry::new(&config, 1, Timestamp::ZERO, 1).unwrap();
        comparison.on_arrival(Timestamp::ZERO, &Arrival::default());
        comparison.on_served(Timestamp::ZERO, ReplicaId(0), 1.0);
        let kept = |inbox: &Lock<Inbox>| {
            let inbox = inbox.lock();
            inbox.arrivals.len() + inbox.served.len()
        };
        assert_eq!(comparison.inboxes.iter().map(kept).sum::<usize>(), 0);
        comparison.on_tick(Timestamp::from_nanos(1), &sentry);
        assert_eq!(comparison.status(Timestamp::from_nanos(1), &sentry), None);
    }

    #[test]
    fn arrivals_beyond_the_bound_are_counted() {
        let comparison = Comparison::default();
        comparison
            .set(Some(Arc::new(SentryConfig::default())))
            .unwrap();
        let sentry: Sentry<()> =
            Sentry::new(&SentryConfig::default(), 1, Timestamp::ZERO, 1).unwrap();
        comparison.on_tick(Timestamp::ZERO, &sentry);
        let more = ARRIVALS_MAX / INBOXES + 5;
        (0..more).for_each(|_| comparison.on_arrival(Timestamp::ZERO, &Arrival::default()));
        let later = Timestamp::ZERO + Duration::from_millis(100);
        comparison.on_tick(later, &sentry);
        assert_eq!(comparison.status(later, &sentry).unwrap().left_out, 5);
    }
}

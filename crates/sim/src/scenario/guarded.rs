//! The engine of [`tidegate_sentry`] as a protector: the same code as in the live proxy.

use std::collections::VecDeque;
use std::num::NonZeroU32;

use tidegate_control::Timestamp;
use tidegate_sentry::{
    Arrival, Ending, Event, FleetShare, Observer, Permit, ReplicaChange, ReplicaId, Report,
    Resolution, Resolutions, Sentry, SentryConfig, SentryError, Ticket, Verdict,
};

use super::protector::{Decision, Orders, PoolChange, Protector, RequestId, Wakes};

/// Drives a [`Sentry`], keeping permits and tickets for the scenario.
#[derive(Debug)]
pub struct SentryProtector {
    sentry: Sentry<RequestId>,
    /// What each request holds, by its slot.
    held: Vec<Held>,
    numbers: Numbers,
    step: Step,
    /// Configurations to come, the next one first.
    reloads: VecDeque<(Timestamp, SentryConfig)>,
}

/// Replicas by their numbers in the scenario and in the engine, which gives a number again when
/// nothing refers to it any more.
#[derive(Debug)]
struct Numbers {
    /// By the number in the scenario; none for a replica that is not in the pool.
    inside: Vec<Option<ReplicaId>>,
    /// By the number in the engine.
    outside: Vec<ReplicaId>,
}

impl Numbers {
    fn of(pool: impl Iterator<Item = ReplicaId>) -> Self {
        let mut numbers = Self {
            inside: Vec::new(),
            outside: Vec::new(),
        };
        for (index, replica) in pool.enumerate() {
            numbers.put(replica, ReplicaId(index as u16));
        }
        numbers
    }

    fn put(&mut self, replica: ReplicaId, inside: ReplicaId) {
        let (at, inside_at) = (usize::from(replica.0), usize::from(inside.0));
        if self.inside.len() <= at {
            self.inside.resize(at + 1, None);
        }
        self.inside[at] = Some(inside);
        if self.outside.len() <= inside_at {
            self.outside.resize(inside_at + 1, replica);
        }
        self.outside[inside_at] = replica;
    }

    fn inside(&self, replica: ReplicaId) -> Option<ReplicaId> {
        self.inside.get(usize::from(replica.0)).copied().flatten()
    }

    fn remove(&mut self, replica: ReplicaId) {
        self.inside[usize::from(replica.0)] = None;
    }

    fn outside(&self, inside: ReplicaId) -> ReplicaId {
        self.outside[usize::from(inside.0)]
    }
}

#[derive(Debug)]
enum Held {
    Nothing,
    Ticket(Ticket, RequestId),
    Permit(Permit),
}

/// The last controller step, for the gauges.
#[derive(Debug, Clone, Copy)]
struct Step {
    setpoint: f64,
    measured: f64,
    output: f64,
}

impl SentryProtector {
    /// An engine in front of this many replicas.
    ///
    /// # Errors
    /// What the engine refuses about the configuration.
    pub fn new(config: &SentryConfig, replicas: usize, seed: u64) -> Result<Self, SentryError> {
        Self::weighted(config, &vec![NonZeroU32::MIN; replicas], seed)
    }

    /// An engine in front of replicas of these weights.
    ///
    /// # Errors
    /// What the engine refuses about the configuration.
    pub fn weighted(
        config: &SentryConfig,
        weights: &[NonZeroU32],
        seed: u64,
    ) -> Result<Self, SentryError> {
        let pool: Vec<_> = (0..).map(ReplicaId).zip(weights.iter().copied()).collect();
        Self::started(config, &pool, Timestamp::ZERO, seed)
    }

    /// The same with the pool of the moment, started later.
    pub(super) fn started(
        config: &SentryConfig,
        pool: &[(ReplicaId, NonZeroU32)],
        now: Timestamp,
        seed: u64,
    ) -> Result<Self, SentryError> {
        let weights: Vec<NonZeroU32> = pool.iter().map(|(_, weight)| *weight).collect();
        Ok(Self {
            sentry: Sentry::weighted(config, &weights, now, seed)?,
            held: Vec::new(),
            numbers: Numbers::of(pool.iter().map(|(replica, _)| *replica)),
            reloads: VecDeque::new(),
            step: Step {
                setpoint: f64::NAN,
                measured: f64::NAN,
                output: f64::NAN,
            },
        })
    }

    /// Puts other configurations in force at these times, which are in order.
    #[must_use]
    pub fn with_reloads(
        self,
        reloads: impl IntoIterator<Item = (Timestamp, SentryConfig)>,
    ) -> Self {
        let reloads = reloads.into_iter().collect();
        Self { reloads, ..self }
    }

    fn reload_if_due(&mut self, now: Timestamp, wakes: &mut Wakes) {
        while self.reloads.front().is_some_and(|(at, _)| *at <= now) {
            let Some((_, config)) = self.reloads.pop_front() else {
                return;
            };
            // One that the engine refuses was never in force.
            if let Ok((_, resolutions)) = self.sentry.reconfigure(now, &config, &[]) {
                keep(&mut self.held, &self.numbers, resolutions, wakes);
            }
        }
    }

    /// The engine itself.
    #[must_use]
    pub fn sentry(&self) -> &Sentry<RequestId> {
        &self.sentry
    }

    /// Uses no more than this of what is shared with other engines.
    pub(super) fn share(&mut self, now: Timestamp, share: &FleetShare, wakes: &mut Wakes) {
        let resolutions = self.sentry.share(now, share);
        keep(&mut self.held, &self.numbers, resolutions, wakes);
    }

    /// The engine's number of a replica in its pool.
    pub(super) fn number(&self, replica: ReplicaId) -> Option<ReplicaId> {
        self.numbers.inside(replica)
    }

    /// Requests that wait in it.
    pub(super) fn waiting(&self) -> Vec<RequestId> {
        let waiting = |held: &Held| match held {
            Held::Ticket(_, request) => Some(*request),
            _ => None,
        };
        self.held.iter().filter_map(waiting).collect()
    }

    fn hold(&mut self, request: RequestId, held: Held) {
        if self.held.len() <= request.slot() {
            self.held.resize_with(request.slot() + 1, || Held::Nothing);
        }
        self.held[request.slot()] = held;
    }

    fn take(&mut self, request: RequestId) -> Held {
        std::mem::replace(&mut self.held[request.slot()], Held::Nothing)
    }

    fn take_permit(&mut self, request: RequestId) -> Permit {
        match self.take(request) {
            Held::Permit(permit) => permit,
            other => unreachable!("an admitted request holds a permit, not {other:?}"),
        }
    }
}

/// Passes resolutions on, keeping the permits.
fn keep(
    held: &mut [Held],
    numbers: &Numbers,
    resolutions: Resolutions<'_, RequestId>,
    wakes: &mut Wakes,
) {
    for (request, resolution) in resolutions {
        let (now_held, decision) = match resolution {
            Resolution::Admit(permit) => {
                let replica = numbers.outside(permit.replica());
                (Held::Permit(permit), Decision::Admit(replica))
            }
            Resolution::Shed(refusal) => (Held::Nothing, Decision::Shed(refusal)),
        };
        held[request.slot()] = now_held;
        wakes.push_back((request, decision));
    }
}

impl Protector for SentryProtector {
    fn on_arrival(&mut self, now: Timestamp, request: RequestId, arrival: &Arrival) -> Decision {
        let (held, decision) = match self.sentry.on_arrival(now, arrival, || request) {
            Verdict::Admit(permit) => {
                let replica = self.numbers.outside(permit.replica());
                (Held::Permit(permit), Decision::Admit(replica))
            }
            Verdict::Wait(ticket) => (Held::Ticket(ticket, request), Decision::Wait),
            Verdict::Shed(refusal) => (Held::Nothing, Decision::Shed(refusal)),
        };
        self.hold(request, held);
        decision
    }

    fn orders(&self, request: RequestId) -> Orders {
        match &self.held[request.slot()] {
            Held::Permit(permit) => Orders {
                full: permit.optional().unwrap_or(true),
                service_target: permit.service_target(),
            },
            other => unreachable!("an admitted request holds a permit, not {other:?}"),
        }
    }

    fn on_answer(&mut self, now: Timestamp, replica: ReplicaId, report: &Report) {
        if let Some(replica) = self.numbers.inside(replica) {
            self.sentry.on_report(now, replica, report);
        }
    }

    fn on_load(&mut self, now: Timestamp, cpu_share: f64) {
        self.sentry.on_load(now, cpu_share);
    }

    fn reassign(&mut self, now: Timestamp, request: RequestId) -> Option<ReplicaId> {
        let permit = self.take_permit(request);
        let (permit, moved) = match self.sentry.reassign(now, permit) {
            Ok(permit) => (permit, true),
            Err(permit) => (permit, false),
        };
        let replica = self.numbers.outside(permit.replica());
        self.hold(request, Held::Permit(permit));
        moved.then_some(replica)
    }

    fn requeue(
        &mut self,
        now: Timestamp,
        request: RequestId,
        arrival: &Arrival,
        wakes: &mut Wakes,
    ) -> bool {
        let permit = self.take_permit(request);
        let (bytes, deadline) = (arrival.bytes, arrival.deadline);
        let queued = self
            .sentry
            .requeue(now, permit, bytes, deadline, || request);
        let is_queued = queued.is_ok();
        match queued {
            Ok((ticket, resolutions)) => {
                self.held[request.slot()] = Held::Ticket(ticket, request);
                keep(&mut self.held, &self.numbers, resolutions, wakes);
            }
            Err(permit) => self.held[request.slot()] = Held::Permit(permit),
        }
        is_queued
    }

    fn on_stream(&mut self, now: Timestamp, request: RequestId, wakes: &mut Wakes) {
        let mut permit = self.take_permit(request);
        let resolutions = self.sentry.on_stream(now, &mut permit);
        keep(&mut self.held, &self.numbers, resolutions, wakes);
        self.hold(request, Held::Permit(permit));
    }

    fn on_end(&mut self, now: Timestamp, request: RequestId, ending: Ending, wakes: &mut Wakes) {
        let permit = self.take_permit(request);
        let resolutions = self.sentry.on_end(now, permit, ending);
        keep(&mut self.held, &self.numbers, resolutions, wakes);
    }

    fn on_abandon(&mut self, now: Timestamp, request: RequestId) {
        match self.take(request) {
            Held::Ticket(ticket, _) => {
                let was_waiting = self.sentry.on_abandon(now, ticket);
                assert!(was_waiting, "the engine had forgotten a waiting request");
            }
            other => unreachable!("a waiting request holds a ticket, not {other:?}"),
        }
    }

    fn on_report(&mut self, now: Timestamp, replica: ReplicaId, utilization: f64) {
        let report = Report {
            utilization: Some(utilization),
            ..Report::default()
        };
        self.on_answer(now, replica, &report);
    }

    fn set_health(&mut self, now: Timestamp, replica: ReplicaId, up: bool, wakes: &mut Wakes) {
        if let Some(replica) = self.numbers.inside(replica) {
            let resolutions = self.sentry.set_health(now, replica, up);
            keep(&mut self.held, &self.numbers, resolutions, wakes);
        }
    }

    fn change_pool(&mut self, now: Timestamp, change: PoolChange, wakes: &mut Wakes) {
        let Self {
            sentry,
            held,
            numbers,
            ..
        } = self;
        let inside = |replica| numbers.inside(replica).expect("it is in the pool");
        let its = match change {
            PoolChange::Add(_, weight) => ReplicaChange::Add(weight),
            PoolChange::Weigh(replica, weight) => ReplicaChange::Weigh(inside(replica), weight),
            PoolChange::Remove(replica) => ReplicaChange::Remove(inside(replica)),
        };
        let (added, resolutions) = sentry
            .reconfigure(now, &sentry.config(), &[its])
            .expect("a checked scenario changes its pool within the engine's bounds");
        // What waits may go to the new replica, so its number is known first.
        match change {
            PoolChange::Add(replica, _) => numbers.put(replica, added[0]),
            PoolChange::Remove(replica) => numbers.remove(replica),
            PoolChange::Weigh(..) => {}
        }
        keep(held, numbers, resolutions, wakes);
    }

    fn poll_timeout(&self) -> Timestamp {
        let reload = self.reloads.front().map_or(Timestamp::MAX, |(at, _)| *at);
        self.sentry.poll_timeout().min(reload)
    }

    fn handle_timeout(&mut self, now: Timestamp, observer: &mut dyn Observer, wakes: &mut Wakes) {
        self.reload_if_due(now, wakes);
        let Self {
            sentry,
            held,
            numbers,
            step,
            ..
        } = self;
        let mut observe = |event: &Event| {
            step.observe(event);
            observer.on_event(event);
        };
        keep(
            held,
            numbers,
            sentry.handle_timeout(now, &mut observe),
            wakes,
        );
    }

    fn gauges(&self, now: Timestamp, gauge: &mut dyn FnMut(&'static str, f64)) {
        gauge("setpoint", self.step.setpoint);
        gauge("measured", self.step.measured);
        gauge("output", self.step.output);
        let status = self.sentry.status(now);
        let windows = status.replicas.iter().filter(|replica| replica.up);
        let window: Option<u32> = windows.map(|replica| replica.window).sum();
        gauge("window", window.map_or(f64::NAN, f64::from));
        if let Some(brownout) = status.brownout {
            gauge("threshold", brownout.threshold_seconds);
            gauge("refusing", f64::from(u8::from(brownout.refusing)));
        }
    }
}

impl Step {
    fn observe(&mut self, event: &Event) {
        if let Event::Step {
            setpoint,
            measured,
            output,
            ..
        } = *event
        {
            *self = Self {
                setpoint,
                measured,
                output,
            };
        }
    }
}

//! The engine: admission per request, with what the adaptation has published.
//!
//! Locking: a request that finds a free slot, or is refused, touches atomics only. One lock
//! guards the queue; it is taken to park, to remove and to resolve a waiter. Whoever frees a slot
//! looks at the number of waiters *after* it gave the slot back, and whoever parks looks for a
//! slot again *after* it was counted as a waiter (both sequentially consistent), so that a free
//! slot and a waiter never miss each other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tidegate_control::Timestamp;

use crate::api::{
    Arrival, ClassId, Ending, Permit, Refusal, ReplicaChange, ReplicaId, Report, Resolution,
    ShedReason, Ticket, Verdict,
};
use crate::balance::{Balancer, Slots};
use crate::class::{Class, add_one};
use crate::config::{ModeName, SentryConfig};
use crate::error::SentryError;
use crate::event::{Event, Observer};
use crate::queue::{Queue, Waiter};
use crate::replica::{Health, Replica, UNLIMITED};
use crate::status::{QueueStatus, ReplicaStatus, Status};

/// Replicas have small ids.
const REPLICAS_MAX: usize = 10_000;

/// What requests read: replaced as a whole when the configuration changes.
#[derive(Debug)]
struct Plan {
    config: Arc<SentryConfig>,
    classes: Vec<Arc<Class>>,
    replicas: Vec<Arc<Replica>>,
}

impl Plan {
    fn class(&self, class: ClassId) -> &Class {
        &self.classes[usize::from(class.0).min(self.classes.len() - 1)]
    }

    fn any_up(&self) -> bool {
        self.replicas.iter().any(|replica| replica.is_up())
    }
}

/// The admission engine of one application. See the [crate's description](crate) for how a
/// driver uses it.
///
/// `T` is what the driver needs to go on with a request that waited: a oneshot sender in a
/// proxy, an index in a simulator.
#[derive(Debug)]
pub struct Sentry<T> {
    plan: ArcSwap<Plan>,
    balancer: Balancer,
    queue: Mutex<Queue<T>>,
    /// Waiters in the queue, for looking at without the lock.
    parked: AtomicU32,
    parked_bytes: AtomicU64,
    kill_switch: AtomicBool,
    dry_run: AtomicBool,
    draining: AtomicBool,
    next_tick_ns: AtomicU64,
    bad_reports: AtomicU64,
    adaptation: Mutex<Adaptation>,
}

#[derive(Debug)]
struct Adaptation {
    pending: Vec<Event>,
}

impl<T> Sentry<T> {
    /// An engine for `replicas` replicas with ids from 0, all of them healthy.
    ///
    /// # Errors
    /// When the configuration contradicts itself.
    pub fn new(
        config: &SentryConfig,
        replicas: usize,
        now: Timestamp,
        seed: u64,
    ) -> Result<Self, SentryError> {
        config.validate()?;
        if replicas > REPLICAS_MAX {
            return Err(too_many_replicas());
        }
        let limit = initial_limit(config);
        let plan = Plan {
            classes: classes_of(config, &[]),
            replicas: (0..replicas)
                .map(|_| Arc::new(Replica::new(limit)))
                .collect(),
            config: Arc::new(config.clone()),
        };
        Ok(Self {
            queue: Mutex::new(Queue::new(plan.classes.len())),
            plan: ArcSwap::from_pointee(plan),
            balancer: Balancer::new(seed),
            parked: AtomicU32::new(0),
            parked_bytes: AtomicU64::new(0),
            kill_switch: AtomicBool::new(false),
            dry_run: AtomicBool::new(config.dry_run),
            draining: AtomicBool::new(false),
            next_tick_ns: AtomicU64::new((now + TICK).as_nanos()),
            bad_reports: AtomicU64::new(0),
            adaptation: Mutex::new(Adaptation {
                pending: Vec::new(),
            }),
        })
    }

    /// Decides about a request that arrives. `waiter` is called only when it has to wait; it must
    /// not call back into the engine.
    pub fn on_arrival(
        &self,
        now: Timestamp,
        arrival: &Arrival,
        waiter: impl FnOnce() -> T,
    ) -> Verdict {
        let plan = self.plan.load();
        let class = plan.class(arrival.class);
        add_one(&class.counters.arrived);
        match self.decide(&plan, now, arrival, waiter) {
            Ok(verdict) => verdict,
            Err(refusal) => {
                class.counters.shed(refusal.reason);
                Verdict::Shed(refusal)
            }
        }
    }

    fn decide(
        &self,
        plan: &Plan,
        now: Timestamp,
        arrival: &Arrival,
        waiter: impl FnOnce() -> T,
    ) -> Result<Verdict, Refusal> {
        if self.draining.load(Ordering::Relaxed) {
            return Err(self.refusal(ShedReason::Draining, arrival.class));
        }
        if self.bypass() {
            let placed = self.place(plan, now, arrival.sticky, Slots::Any);
            let replica =
                placed.ok_or_else(|| self.refusal(ShedReason::NoReplica, arrival.class))?;
            return Ok(Verdict::Admit(self.admit(plan, now, arrival, replica)));
        }
        if self.parked.load(Ordering::SeqCst) == 0
            && let Some(replica) = self.place(plan, now, arrival.sticky, Slots::Free)
        {
            return Ok(Verdict::Admit(self.admit(plan, now, arrival, replica)));
        }
        if !plan.any_up() {
            return Err(self.refusal(ShedReason::NoReplica, arrival.class));
        }
        self.park(plan, now, arrival, waiter)
    }

    fn bypass(&self) -> bool {
        self.kill_switch.load(Ordering::Relaxed) || self.dry_run.load(Ordering::Relaxed)
    }

    /// Takes a slot: of the sticky replica while it is healthy, else of any.
    fn place(
        &self,
        plan: &Plan,
        now: Timestamp,
        sticky: Option<ReplicaId>,
        slots: Slots,
    ) -> Option<ReplicaId> {
        let wanted = sticky.and_then(|id| plan.replicas.get(usize::from(id.0)));
        match wanted {
            Some(replica) if replica.is_up() => match slots {
                Slots::Free => replica.try_acquire().then_some(sticky).flatten(),
                Slots::Any => {
                    replica.acquire();
                    sticky
                }
            },
            _ => {
                let policy = plan.config.balance;
                self.balancer
                    .place(policy, &plan.replicas, now, slots, None)
            }
        }
    }

    fn admit(&self, plan: &Plan, now: Timestamp, arrival: &Arrival, replica: ReplicaId) -> Permit {
        add_one(&plan.class(arrival.class).counters.admitted);
        Permit {
            replica,
            class: arrival.class,
            arrived: now,
            admitted: now,
            generation: 0,
            streaming: false,
        }
    }

    fn park(
        &self,
        plan: &Plan,
        now: Timestamp,
        arrival: &Arrival,
        waiter: impl FnOnce() -> T,
    ) -> Result<Verdict, Refusal> {
        let mut queue = self.queue.lock();
        // Counted before looking again: see the module's description.
        let others = self.parked.fetch_add(1, Ordering::SeqCst);
        if others == 0
            && let Some(replica) = self.place(plan, now, arrival.sticky, Slots::Free)
        {
            self.parked.fetch_sub(1, Ordering::SeqCst);
            return Ok(Verdict::Admit(self.admit(plan, now, arrival, replica)));
        }
        if let Err(refusal) = self.fits(plan, &queue, arrival) {
            self.parked.fetch_sub(1, Ordering::SeqCst);
            return Err(refusal);
        }
        let class = plan.class(arrival.class);
        class.queued.fetch_add(1, Ordering::Relaxed);
        add_one(&class.counters.waited);
        let ticket = queue.push(Waiter {
            value: waiter(),
            class: arrival.class,
            bytes: arrival.bytes,
            arrived: now,
            deadline: arrival.deadline,
            sticky: arrival.sticky,
        });
        self.parked_bytes.store(queue.bytes(), Ordering::Relaxed);
        Ok(Verdict::Wait(ticket))
    }

    fn fits(&self, plan: &Plan, queue: &Queue<T>, arrival: &Arrival) -> Result<(), Refusal> {
        let bounds = &plan.config.queue;
        if queue.len() >= bounds.max_requests {
            return Err(Refusal {
                measured: f64::from(queue.len()),
                limit: f64::from(bounds.max_requests),
                ..self.refusal(ShedReason::QueueFull, arrival.class)
            });
        }
        let bytes = queue.bytes() + u64::from(arrival.bytes);
        if bytes > bounds.max_bytes.0 {
            return Err(Refusal {
                measured: bytes as f64,
                limit: bounds.max_bytes.0 as f64,
                ..self.refusal(ShedReason::QueueBytes, arrival.class)
            });
        }
        Ok(())
    }

    fn refusal(&self, reason: ShedReason, class: ClassId) -> Refusal {
        Refusal {
            reason,
            class,
            retry_after: Duration::from_secs(1),
            measured: 0.0,
            limit: 0.0,
        }
    }

    /// The client left while its request was queued: it leaves the queue at once. False when the
    /// request was resolved already (or is about to be, through `wake`).
    pub fn on_abandon(&self, now: Timestamp, ticket: Ticket) -> bool {
        let _ = now;
        let mut queue = self.queue.lock();
        let Some(waiter) = queue.remove(ticket) else {
            return false;
        };
        self.unpark(&queue, &waiter);
        add_one(&self.plan.load().class(waiter.class).counters.abandoned);
        true
    }

    fn unpark(&self, queue: &Queue<T>, waiter: &Waiter<T>) {
        let plan = self.plan.load();
        plan.class(waiter.class)
            .queued
            .fetch_sub(1, Ordering::Relaxed);
        self.parked.fetch_sub(1, Ordering::SeqCst);
        self.parked_bytes.store(queue.bytes(), Ordering::Relaxed);
    }

    /// Another replica with room, for a request that the first one never saw; gives the permit
    /// back unchanged when there is none.
    pub fn reassign(&self, now: Timestamp, permit: Permit) -> Result<Permit, Permit> {
        let plan = self.plan.load();
        let slots = if self.bypass() {
            Slots::Any
        } else {
            Slots::Free
        };
        let placed = self.balancer.place(
            plan.config.balance,
            &plan.replicas,
            now,
            slots,
            Some(permit.replica),
        );
        match placed {
            Some(replica) => {
                plan.replicas[usize::from(permit.replica.0)].release();
                Ok(Permit { replica, ..permit })
            }
            None => Err(permit),
        }
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
        self.plan.load().replicas[usize::from(permit.replica.0)].start_stream();
        self.dispatch(now, wake);
    }

    /// The request ended, whichever way.
    pub fn on_end(
        &self,
        now: Timestamp,
        permit: Permit,
        ending: Ending,
        wake: &mut dyn FnMut(T, Resolution),
    ) {
        let plan = self.plan.load();
        plan.class(permit.class).counters.ended(ending);
        let replica = &plan.replicas[usize::from(permit.replica.0)];
        if permit.streaming {
            replica.end_stream();
            return;
        }
        if ending == Ending::Served {
            replica.on_residence(now, now - permit.admitted);
        }
        replica.release();
        drop(plan);
        self.dispatch(now, wake);
    }

    /// Resolves waiters as long as one can go.
    fn dispatch(&self, now: Timestamp, wake: &mut dyn FnMut(T, Resolution)) {
        while self.parked.load(Ordering::SeqCst) > 0 {
            let Some((waiter, resolution)) = self.resolve_one(now) else {
                return;
            };
            wake(waiter, resolution);
        }
    }

    fn resolve_one(&self, now: Timestamp) -> Option<(T, Resolution)> {
        let plan = self.plan.load();
        let mut queue = self.queue.lock();
        if !plan.any_up() {
            let (waiter, ()) = queue.pop_placed(|_| Some(()))?;
            self.unpark(&queue, &waiter);
            let refusal = self.refusal(ShedReason::NoReplica, waiter.class);
            plan.class(waiter.class).counters.shed(refusal.reason);
            return Some((waiter.value, Resolution::Shed(refusal)));
        }
        let slots = if self.bypass() {
            Slots::Any
        } else {
            Slots::Free
        };
        let (waiter, replica) =
            queue.pop_placed(|waiter| self.place(&plan, now, waiter.sticky, slots))?;
        self.unpark(&queue, &waiter);
        add_one(&plan.class(waiter.class).counters.admitted);
        let permit = Permit {
            replica,
            class: waiter.class,
            arrived: waiter.arrived,
            admitted: now,
            generation: 0,
            streaming: false,
        };
        Some((waiter.value, Resolution::Admit(permit)))
    }

    /// A replica says something about itself. A report for the interval that ends now has to
    /// come before [`Sentry::handle_timeout`] of the same instant.
    pub fn on_report(&self, now: Timestamp, replica: ReplicaId, report: &Report) {
        let _ = (now, replica);
        if report.utilization.is_some_and(|u| !u.is_finite()) {
            add_one(&self.bad_reports);
        }
    }

    /// A health check decided. Waiters for a replica that went down go elsewhere.
    pub fn set_health(
        &self,
        now: Timestamp,
        replica: ReplicaId,
        up: bool,
        wake: &mut dyn FnMut(T, Resolution),
    ) {
        let plan = self.plan.load_full();
        let Some(state) = plan.replicas.get(usize::from(replica.0)) else {
            return;
        };
        if state.health() == Health::Retired || state.is_up() == up {
            return;
        }
        state.set_health(if up { Health::Up } else { Health::Down });
        let event = Event::Health {
            at: now,
            replica,
            up,
        };
        self.adaptation.lock().pending.push(event);
        self.dispatch(now, wake);
    }

    /// When [`Sentry::handle_timeout`] wants to be called next.
    pub fn poll_timeout(&self) -> Timestamp {
        Timestamp::from_nanos(self.next_tick_ns.load(Ordering::Relaxed))
    }

    /// Runs the adaptation if it is due. One caller at a time does it; another returns at once.
    pub fn handle_timeout(
        &self,
        now: Timestamp,
        observer: &mut dyn Observer,
        wake: &mut dyn FnMut(T, Resolution),
    ) {
        if now < self.poll_timeout() {
            return;
        }
        let Some(mut adaptation) = self.adaptation.try_lock() else {
            return;
        };
        self.next_tick_ns
            .store((now + TICK).as_nanos(), Ordering::Relaxed);
        for event in adaptation.pending.drain(..) {
            observer.on_event(&event);
        }
        drop(adaptation);
        self.dispatch(now, wake);
    }

    /// Takes over a new configuration and a changed list of replicas, whole or not at all,
    /// without a bump: windows, estimates and the queue stay. Returns the ids of the replicas
    /// added, in the order of `changes`.
    ///
    /// # Errors
    /// When the configuration contradicts itself or a change names an unknown replica; then
    /// nothing has changed.
    pub fn reconfigure(
        &self,
        now: Timestamp,
        config: &SentryConfig,
        changes: &[ReplicaChange],
        wake: &mut dyn FnMut(T, Resolution),
    ) -> Result<Vec<ReplicaId>, SentryError> {
        config.validate()?;
        let mut adaptation = self.adaptation.lock();
        let old = self.plan.load_full();
        let limit = initial_limit(config);
        let (replicas, added) = change_replicas(&old.replicas, changes, limit)?;
        if old.config.mode != config.mode {
            adaptation.pending.push(Event::Mode {
                at: now,
                from: old.config.mode,
                to: config.mode,
            });
        }
        self.plan.store(Arc::new(Plan {
            classes: classes_of(config, &old.classes),
            replicas,
            config: Arc::new(config.clone()),
        }));
        self.dry_run.store(config.dry_run, Ordering::Relaxed);
        drop(adaptation);
        self.dispatch(now, wake);
        Ok(added)
    }

    /// Decide and report, but admit everything; what waits is admitted at once.
    pub fn set_dry_run(&self, now: Timestamp, on: bool, wake: &mut dyn FnMut(T, Resolution)) {
        self.switch(now, "dry_run", &self.dry_run, on);
        self.dispatch(now, wake);
    }

    /// Fails open: everything is admitted from now on, and what waits at once.
    pub fn set_kill_switch(&self, now: Timestamp, on: bool, wake: &mut dyn FnMut(T, Resolution)) {
        self.switch(now, "kill_switch", &self.kill_switch, on);
        self.dispatch(now, wake);
    }

    /// Refuses what arrives from now on; what waits or is in flight is finished.
    pub fn set_draining(&self, now: Timestamp, on: bool) {
        self.switch(now, "draining", &self.draining, on);
    }

    fn switch(&self, now: Timestamp, name: &'static str, switch: &AtomicBool, on: bool) {
        if switch.swap(on, Ordering::SeqCst) != on {
            let event = Event::Switch { at: now, name, on };
            self.adaptation.lock().pending.push(event);
        }
    }

    /// The configuration in force.
    pub fn config(&self) -> Arc<SentryConfig> {
        Arc::clone(&self.plan.load().config)
    }

    /// A picture of the engine.
    pub fn status(&self, now: Timestamp) -> Status {
        let _ = now;
        let plan = self.plan.load();
        Status {
            mode: plan.config.mode,
            dry_run: self.dry_run.load(Ordering::Relaxed),
            kill_switch: self.kill_switch.load(Ordering::Relaxed),
            draining: self.draining.load(Ordering::Relaxed),
            replicas: replica_statuses(&plan.replicas),
            queue: QueueStatus {
                requests: self.parked.load(Ordering::Relaxed),
                bytes: self.parked_bytes.load(Ordering::Relaxed),
            },
            classes: plan.classes.iter().map(|class| class.status()).collect(),
        }
    }
}

const TICK: Duration = Duration::from_millis(100);

fn too_many_replicas() -> SentryError {
    SentryError::TooMany {
        what: "replicas",
        limit: REPLICAS_MAX,
    }
}

fn initial_limit(config: &SentryConfig) -> u32 {
    match config.mode {
        ModeName::Off => UNLIMITED,
        ModeName::Auto => {
            let limits = &config.limits;
            limits
                .window_initial
                .clamp(limits.window_min, limits.window_max)
        }
        _ => config.limits.slots.unwrap_or(UNLIMITED),
    }
}

/// The classes of a configuration; one that existed before keeps its counters.
fn classes_of(config: &SentryConfig, old: &[Arc<Class>]) -> Vec<Arc<Class>> {
    (0..config.class_count() as u16)
        .map(|index| {
            let name = config.class_name(ClassId(index));
            let known = old.iter().find(|class| class.name == name);
            known.cloned().unwrap_or_else(|| {
                let target = config.target_of(ClassId(index));
                Arc::new(Class::new(name.to_owned(), target))
            })
        })
        .collect()
}

type Replicas = Vec<Arc<Replica>>;

fn change_replicas(
    old: &[Arc<Replica>],
    changes: &[ReplicaChange],
    limit: u32,
) -> Result<(Replicas, Vec<ReplicaId>), SentryError> {
    let mut replicas = old.to_vec();
    let mut added = Vec::new();
    for change in changes {
        match *change {
            ReplicaChange::Remove(id) => {
                let replica = replicas.get(usize::from(id.0));
                let known = replica.filter(|replica| replica.health() != Health::Retired);
                known.ok_or(SentryError::NoSuchReplica(id.0))?;
            }
            ReplicaChange::Add => added.push(add_replica(&mut replicas, limit)?),
        }
    }
    for change in changes {
        if let ReplicaChange::Remove(id) = *change {
            replicas[usize::from(id.0)].set_health(Health::Retired);
        }
    }
    Ok((replicas, added))
}

fn add_replica(replicas: &mut Replicas, limit: u32) -> Result<ReplicaId, SentryError> {
    let reusable =
        |replica: &Arc<Replica>| replica.health() == Health::Retired && replica.is_idle();
    let replica = Arc::new(Replica::new(limit));
    let index = match replicas.iter().position(reusable) {
        Some(index) => {
            replicas[index] = replica;
            index
        }
        None if replicas.len() < REPLICAS_MAX => {
            replicas.push(replica);
            replicas.len() - 1
        }
        None => return Err(too_many_replicas()),
    };
    Ok(ReplicaId(index as u16))
}

fn replica_statuses(replicas: &[Arc<Replica>]) -> Vec<ReplicaStatus> {
    replicas
        .iter()
        .enumerate()
        .filter(|(_, replica)| replica.health() != Health::Retired || !replica.is_idle())
        .map(|(index, replica)| ReplicaStatus {
            id: ReplicaId(index as u16),
            up: replica.is_up(),
            window: Some(replica.limit()).filter(|&limit| limit != UNLIMITED),
            in_flight: replica.in_flight(),
            streams: replica.streams(),
        })
        .collect()
}

//! The engine: admission per request, with what the adaptation has published.
//!
//! Locking: a request that finds a free slot, or is refused, touches atomics only. One lock
//! guards the queue; it is taken to park, to remove and to resolve a waiter. A caller that frees a
//! slot looks at the number of waiters *after* it gave the slot back, which is when it takes the
//! [`Resolutions`] of its call; a request that parks looks for a slot again *after* it was counted
//! as a waiter (both sequentially consistent). So a free slot and a waiter never miss each other. A
//! second lock makes the adaptation the business of one caller at a time; no request ever waits
//! for it. A third guards the slots of clients that left before their answer came, a fourth the
//! permits that were dropped.

mod adaptation;
mod arrival;
mod departed_slots;
mod ending;
mod fleet;
mod operator;
mod pausing;
mod policing;
mod resolutions;
mod returning;
mod unreported;
mod waiting;

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use arc_swap::ArcSwap;
use tidegate_control::Timestamp;

use crate::balance::Balancer;
use crate::config::{ModeName, SentryConfig};
use crate::error::SentryError;
use crate::gate::{ContentGate, Gate};
use crate::monitor::Tally;
use crate::plan::Plan;
use crate::random::Dice;
use crate::shadow::Inbox;

pub(crate) use adaptation::Adaptation;
use departed_slots::DepartedSlots;
pub use resolutions::Resolutions;
pub(crate) use unreported::Unreported;
use waiting::Waiting;

#[expect(
    clippy::disallowed_types,
    reason = "the queue has to be one for all threads, and adaptation one at a time; neither is \
              locked while there is room"
)]
type Lock<T> = parking_lot::Mutex<T>;

/// The admission engine of one application. See the [crate's description](crate) for how a
/// driver uses it.
///
/// `T` is what the driver needs to go on with a request that waited: a oneshot sender in a
/// proxy, an index in a simulator.
#[derive(Debug)]
pub struct Sentry<T> {
    plan: ArcSwap<Plan>,
    balancer: Balancer,
    gate: Gate,
    content: ContentGate,
    gate_dice: Dice,
    tally: Tally,
    waiting: Lock<Waiting<T>>,
    departed_slots: DepartedSlots,
    /// Permits that were dropped instead of ended; each permit knows the way here.
    unreported: Arc<Unreported>,
    /// Waiters that have to be resolved, for looking at without the lock.
    parked: AtomicU32,
    /// Waiters that are held until their class is examined.
    held: AtomicU32,
    parked_bytes: AtomicU64,
    kill_switch: AtomicBool,
    dry_run: AtomicBool,
    draining: AtomicBool,
    /// Events are kept for the next tick.
    noted: AtomicBool,
    next_tick_ns: AtomicU64,
    adaptation: Lock<Adaptation>,
    /// What the shadow of a dry run gets with the next tick.
    inbox: Lock<Inbox>,
}

impl<T> Sentry<T> {
    /// An engine for `replicas` equal replicas with ids from 0, all of them healthy.
    ///
    /// # Errors
    /// When the configuration contradicts itself.
    pub fn new(
        config: &SentryConfig,
        replicas: usize,
        now: Timestamp,
        seed: u64,
    ) -> Result<Self, SentryError> {
        Self::weighted(config, &vec![NonZeroU32::MIN; replicas], now, seed)
    }

    /// As [`Sentry::new`], for replicas of these weights: one of weight 2 is meant to carry twice
    /// what one of weight 1 carries.
    ///
    /// # Errors
    /// When the configuration contradicts itself.
    pub fn weighted(
        config: &SentryConfig,
        weights: &[NonZeroU32],
        now: Timestamp,
        seed: u64,
    ) -> Result<Self, SentryError> {
        let plan = Plan::new(config, weights, now)?;
        let balancer = Balancer::new(seed);
        balancer.follow(plan.balance(), &plan.replicas);
        let gate = Gate::new(now);
        let adaptation = Adaptation::new(&plan, &gate, now)?;
        let content = ContentGate::new();
        adaptation.publish_content(&content);
        Ok(Self {
            waiting: Lock::new(Waiting::new(&plan)),
            plan: ArcSwap::from_pointee(plan),
            balancer,
            gate,
            content,
            gate_dice: Dice::new(seed ^ GATE_STREAM),
            departed_slots: DepartedSlots::new(),
            unreported: Arc::default(),
            tally: Tally::new(),
            parked: AtomicU32::new(0),
            held: AtomicU32::new(0),
            parked_bytes: AtomicU64::new(0),
            kill_switch: AtomicBool::new(false),
            dry_run: AtomicBool::new(config.dry_run),
            draining: AtomicBool::new(false),
            noted: AtomicBool::new(false),
            next_tick_ns: AtomicU64::new(adaptation.next_tick().as_nanos()),
            adaptation: Lock::new(adaptation),
            inbox: Lock::new(Inbox::default()),
        })
    }

    /// Requests that have arrived so far, of all classes.
    pub fn arrivals(&self) -> u64 {
        let plan = self.plan.load();
        plan.classes
            .iter()
            .map(|class| class.counters.arrived())
            .sum()
    }

    /// Requests that wait or are in flight.
    #[must_use]
    pub fn requests(&self) -> u32 {
        self.plan.load().in_system()
    }

    /// Whether no request waits or is in flight.
    pub fn is_empty(&self) -> bool {
        let waiting = self.parked.load(Ordering::Relaxed) + self.held.load(Ordering::Relaxed);
        waiting == 0 && self.plan.load().in_flight() == 0
    }

    /// The configuration in force.
    pub fn config(&self) -> Arc<SentryConfig> {
        Arc::clone(&self.plan.load().config)
    }

    /// Whether a shadow says what enforcing would do: in a dry run of mode `auto`, which finds its
    /// limits by what waits, and in a dry run nothing does.
    fn shadowed(&self, plan: &Plan) -> bool {
        plan.config.mode == ModeName::Auto
            && self.dry_run.load(Ordering::Relaxed)
            && !self.kill_switch.load(Ordering::Relaxed)
    }

    /// The state of the slow path, for the shadow's owner.
    pub(crate) fn adaptation(&self) -> parking_lot::MutexGuard<'_, Adaptation> {
        self.adaptation.lock()
    }

    /// What requests read now.
    pub(crate) fn plan_now(&self) -> Arc<Plan> {
        self.plan.load_full()
    }

    /// Whether windows and gate are only looked at, not enforced.
    fn bypass(&self) -> bool {
        self.kill_switch.load(Ordering::Relaxed) || self.dry_run.load(Ordering::Relaxed)
    }
}

/// Keeps the gate's dice apart from the balancer's: changing one policy does not change what
/// the other draws.
const GATE_STREAM: u64 = 0x6761_7465;

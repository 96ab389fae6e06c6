//! What the workers, the admin API, the health checks and the reload share.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use arc_swap::{ArcSwap, Guard};
use parking_lot::Mutex;
use tidegate_control::Timestamp;
use tidegate_sentry::{Ending, Permit, ReplicaId, Resolution, Sentry};
use tokio::sync::Notify;

use crate::channel::Channel;
use crate::clock::Clock;
use crate::config::Config;
use crate::gate::Waiter;
use crate::health::Board;
use crate::http1::HeadLimits;
use crate::metrics::Metrics;
use crate::settings::{Settings, SettingsError};

/// The proxy's shared state.
#[derive(Debug)]
pub struct State {
    clock: Clock,
    sentry: Sentry<Waiter>,
    metrics: Metrics,
    board: Board,
    channel: Option<Channel>,
    settings: ArcSwap<Settings>,
    /// Moves with every change of the settings.
    edition: AtomicU64,
    /// Of the settings in force what is asked for before every request.
    head_bytes: AtomicUsize,
    head_fields: AtomicUsize,
    /// One change of the settings at a time.
    applying: Mutex<()>,
    draining: AtomicBool,
    /// Whether another process has the listening sockets too.
    relieved: AtomicBool,
    drain: Notify,
    threads: usize,
    /// Client connections over all workers, for their limit.
    pub(crate) connections: AtomicUsize,
}

impl State {
    /// Makes everything a configuration asks for, short of opening sockets.
    ///
    /// # Errors
    /// A file that cannot be read, a certificate that is none, parameters that contradict.
    pub fn new(config: Config) -> Result<Arc<Self>, SettingsError> {
        let clock = Clock::start();
        let threads = config.threads.unwrap_or_else(cores).max(1);
        let seed = RandomState::new().build_hasher().finish();
        let replicas = &config.upstream.replicas;
        let weights: Vec<_> = replicas.iter().map(|replica| replica.weight).collect();
        let sentry = Sentry::weighted(&config.protect, &weights, clock.now(), seed)?;
        let replicas = weights.len();
        let board = Board::new(config.health.passive.clone(), replicas);
        let ids: Vec<_> = (0..replicas as u16).map(ReplicaId).collect();
        let channel = config.channel.as_ref().map(Channel::new).transpose()?;
        let settings = Settings::first(config)?.finish(&ids);
        Ok(Arc::new(Self {
            clock,
            sentry,
            metrics: Metrics::new(threads),
            board,
            channel,
            head_bytes: AtomicUsize::new(settings.head_limits().bytes),
            head_fields: AtomicUsize::new(settings.head_limits().fields),
            settings: ArcSwap::from_pointee(settings),
            edition: AtomicU64::new(0),
            applying: Mutex::new(()),
            draining: AtomicBool::new(false),
            relieved: AtomicBool::new(false),
            drain: Notify::new(),
            threads,
            connections: AtomicUsize::new(0),
        }))
    }

    /// Puts another configuration in force, whole or not at all. Listeners and threads stay as they
    /// are: they need a restart.
    ///
    /// # Errors
    /// As [`State::new`]; then the old configuration stays in force.
    pub fn apply(&self, config: Config) -> Result<(), SettingsError> {
        let _one_at_a_time = self.applying.lock();
        let next = self.settings().next(config)?;
        let now = self.now();
        let (protect, changes) = (next.protect(), next.changes());
        let added =
            self.resolving(|sentry, wake| sentry.reconfigure(now, protect, &changes, wake))?;
        let settings = next.finish(&added);
        self.board
            .reconfigure(&settings.config.health.passive, settings.replica_ids_end());
        added.iter().for_each(|&id| self.board.reset(id));
        let HeadLimits { bytes, fields } = settings.head_limits();
        self.head_bytes.store(bytes, Ordering::Relaxed);
        self.head_fields.store(fields, Ordering::Relaxed);
        self.settings.store(Arc::new(settings));
        self.edition.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// The time now, by the clock that every timestamp of this proxy comes from.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The clock itself.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// The admission engine. Calls that may resolve waiters go through [`State::resolving`].
    #[must_use]
    pub fn sentry(&self) -> &Sentry<Waiter> {
        &self.sentry
    }

    /// Calls the engine with a `wake` that passes its answers on to the waiting requests.
    pub fn resolving<R>(
        &self,
        call: impl FnOnce(&Sentry<Waiter>, &mut dyn FnMut(Waiter, Resolution)) -> R,
    ) -> R {
        let mut unclaimed = Vec::new();
        let result = call(&self.sentry, &mut |waiter, resolution| {
            unclaimed.extend(waiter.resolve(resolution));
        });
        // Slots whose requests have gone go back through the engine, so not before its call is over.
        for permit in unclaimed {
            self.give_back(self.now(), permit, Ending::Abandoned);
        }
        result
    }

    /// Gives a slot back, which others may wait for.
    pub(crate) fn give_back(&self, now: Timestamp, permit: Permit, ending: Ending) {
        self.resolving(|sentry, wake| sentry.on_end(now, permit, ending, wake));
    }

    /// What the data plane counts.
    #[must_use]
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// How replicas answer, for the health checks.
    #[must_use]
    pub fn board(&self) -> &Board {
        &self.board
    }

    /// The channel to clients, if there is one.
    #[must_use]
    pub fn channel(&self) -> Option<&Channel> {
        self.channel.as_ref()
    }

    /// The settings in force. Not to be held across an await: load them again.
    #[must_use]
    pub fn settings(&self) -> Guard<Arc<Settings>> {
        self.settings.load()
    }

    /// Moves with every change of the settings: a look at it is cheaper than at them.
    pub(crate) fn edition(&self) -> u64 {
        self.edition.load(Ordering::Acquire)
    }

    /// Bounds on the head of a request.
    pub(crate) fn head_limits(&self) -> HeadLimits {
        HeadLimits {
            bytes: self.head_bytes.load(Ordering::Relaxed),
            fields: self.head_fields.load(Ordering::Relaxed),
        }
    }

    /// The configuration in force.
    #[must_use]
    pub fn config(&self) -> Arc<Config> {
        Arc::clone(&self.settings.load().config)
    }

    /// Number of worker threads.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Client connections that are open.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// Begins to shut down: no new connections, `connection: close` on what is in flight.
    pub fn shut_down(&self) {
        self.draining.store(true, Ordering::SeqCst);
        self.drain.notify_waiters();
    }

    /// Begins to shut down, since another process accepts from the same sockets.
    pub fn hand_over(&self) {
        self.relieved.store(true, Ordering::SeqCst);
        self.shut_down();
    }

    /// Whether another process accepts from the same sockets.
    pub(crate) fn is_relieved(&self) -> bool {
        self.relieved.load(Ordering::SeqCst)
    }

    /// Whether the proxy is shutting down.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Waits for the shutdown to begin.
    pub async fn draining(&self) {
        let notified = self.drain.notified();
        // Registered before looking, so that a shutdown in between is not missed.
        if !self.draining.load(Ordering::SeqCst) {
            notified.await;
        }
    }
}

/// Cores this process may use.
fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

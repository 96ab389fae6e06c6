//! One application: its engine, its settings, its counters.
//!
//! Applications share threads and client connections and nothing else. What a request needs from
//! here on comes from the application that `router` found for it, and a request
//! keeps its application to its end, also when a reload removes that application meanwhile.
//!
//! Decision: docs/decisions/0090-applications-in-one-proxy.md.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};
use parking_lot::Mutex;
use tidegate_control::Timestamp;
use tidegate_sentry::transcript::{Transcribed, TranscribedResolutions};
use tidegate_sentry::{Arrival, Comparison, Ending, ModeName, Permit, ReplicaId, ShadowStatus};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::channel::Channel;
use crate::clock::Clock;
use crate::config::Config;
use crate::edge::EdgeCounters;
use crate::edge::companions::{CompanionCounters, Handed};
use crate::gate::Waiter;
use crate::health::Board;
use crate::metrics::Metrics;
use crate::pool::Pool;
use crate::record::{Places, Recordings};
use crate::request::upload_places::UploadPlaces;
use crate::settings::{Next, Scope, Settings, SettingsError};

/// An application of a running proxy.
#[derive(Debug)]
pub struct Application {
    name: Arc<str>,
    clock: Clock,
    sentry: Transcribed<Waiter>,
    metrics: Arc<Metrics>,
    board: Board,
    channel: Option<Channel>,
    settings: ArcSwap<Settings>,
    /// Moves with every change of the settings: a look at it is cheaper than at them.
    edition: AtomicU64,
    changed: Notify,
    /// When its engine was last driven, in nanoseconds, and the requests that had arrived by then.
    ticked_ns: AtomicU64,
    arrivals_ticked: AtomicU64,
    empty_ticked: AtomicBool,
    /// Until when nothing had happened since; 0 if its engine has been driven meanwhile.
    rested_ns: AtomicU64,
    /// Whether a controller goes on by the clock while nothing happens, or messages go out: of the
    /// settings in force, for a look ten times a second at very many applications.
    by_the_clock: AtomicBool,
    /// Held while engine and settings differ.
    committing: Mutex<()>,
    pub(crate) uploads: UploadPlaces,
    edge: EdgeCounters,
    companion: CompanionCounters,
    recordings: Arc<Recordings>,
    /// Its numbers in recordings.
    places: ArcSwap<Places>,
    /// Another configuration beside the one in force.
    comparison: Comparison,
}

impl Application {
    /// Makes everything that the configuration of one application asks for, short of opening
    /// sockets.
    pub(crate) fn new(
        name: &str,
        config: Config,
        pool: Pool,
        clock: Clock,
        metrics: Arc<Metrics>,
        scope: Scope,
        recordings: &Arc<Recordings>,
    ) -> Result<Self, SettingsError> {
        let seed = RandomState::new().build_hasher().finish();
        let weights: Vec<_> = pool.members.iter().map(|member| member.weight).collect();
        let sink = Recordings::transcript_sink(recordings).map(|sink| (sink, name));
        let sentry = Transcribed::new(&config.protect, &weights, clock.now(), seed, sink)?;
        let board = Board::new(config.health.passive.clone(), weights.len());
        let ids: Vec<_> = (0..weights.len() as u16).map(ReplicaId).collect();
        let channel = config.channel.as_ref().map(Channel::new).transpose()?;
        let settings = Settings::first(config, pool, scope)?.finish(&ids);
        let comparison = Comparison::default();
        comparison.set(settings.shadow.clone())?;
        let goes_on = channel.is_some() || by_the_clock(&settings);
        let application = Self {
            places: ArcSwap::from_pointee(recordings.places(name, &settings)),
            recordings: Arc::clone(recordings),
            name: name.into(),
            clock,
            sentry,
            metrics,
            board,
            channel,
            settings: ArcSwap::from_pointee(settings),
            edition: AtomicU64::new(0),
            changed: Notify::new(),
            ticked_ns: AtomicU64::new(0),
            arrivals_ticked: AtomicU64::new(0),
            empty_ticked: AtomicBool::new(false),
            rested_ns: AtomicU64::new(0),
            by_the_clock: AtomicBool::new(goes_on),
            committing: Mutex::default(),
            uploads: UploadPlaces::default(),
            edge: EdgeCounters::default(),
            companion: CompanionCounters::default(),
            comparison,
        };
        application.hold_draining();
        Ok(application)
    }

    /// Settings that follow those in force; nothing has changed yet.
    pub(crate) fn prepare(
        &self,
        config: Config,
        pool: Pool,
        scope: Scope,
    ) -> Result<Next, SettingsError> {
        let next = self.settings().next(config, pool, scope)?;
        // What the engine would refuse is refused here, so that of several applications none is
        // changed when one cannot be.
        let now = self.now();
        self.sentry.check(now, next.protect(), &next.changes())?;
        Ok(next)
    }

    /// Puts prepared settings in force. What can be refused was refused by
    /// [`Application::prepare`]; the engine comes first, so that an error here changes nothing.
    pub(crate) fn commit(&self, next: Next) -> Result<(), SettingsError> {
        let _committing = self.committing.lock();
        let now = self.now();
        let (protect, changes) = (next.protect(), next.changes());
        let (added, resolutions) = self.sentry.reconfigure(now, protect, &changes)?;
        self.pass_on(resolutions);
        let settings = next.finish(&added);
        self.board
            .reconfigure(&settings.config.health.passive, settings.replica_ids_end());
        added.iter().for_each(|&id| self.board.reset(id));
        let released = self.settings().draining_only_here(&settings);
        self.record_settings(now, &settings);
        self.comparison.set(settings.shadow.clone())?;
        let goes_on = self.channel.is_some() || by_the_clock(&settings);
        self.by_the_clock.store(goes_on, Ordering::Relaxed);
        self.settings.store(Arc::new(settings));
        self.edition.fetch_add(1, Ordering::Release);
        self.hold_draining();
        for id in released {
            self.pass_on(self.sentry.set_health(now, id, true));
        }
        self.changed.notify_waiters();
        Ok(())
    }

    /// Waits until engine and settings are of one edition. For a request that was admitted to a
    /// replica which the settings do not have yet; a commit takes microseconds.
    pub(crate) fn await_commit(&self) {
        drop(self.committing.lock());
    }

    /// Numbers for classes and replicas that are new, before a request can have them.
    fn record_settings(&self, now: Timestamp, settings: &Settings) {
        let places = self.recordings.places(&self.name, settings);
        self.places.store(Arc::new(places));
        if settings.pool() != self.settings().pool() {
            self.recordings.replicas_changed(&self.name, settings, now);
        }
    }

    /// The recording of what passes.
    pub(crate) fn recordings(&self) -> &Recordings {
        &self.recordings
    }

    /// Its numbers in recordings.
    pub(crate) fn places(&self) -> Guard<Arc<Places>> {
        self.places.load()
    }

    /// Keeps new requests from the replicas that are drained.
    fn hold_draining(&self) {
        let now = self.now();
        let settings = self.settings();
        for id in settings.draining() {
            self.pass_on(self.sentry.set_health(now, id, false));
        }
    }

    /// Its engine is driven now.
    pub(crate) fn ticked(&self, now: Timestamp) {
        let arrivals = self.sentry.arrivals();
        // What arrives from here on changes the number; what was inside before may have ended.
        let empty = self.sentry.is_empty();
        self.arrivals_ticked.store(arrivals, Ordering::Relaxed);
        self.empty_ticked.store(empty, Ordering::Relaxed);
        self.ticked_ns.store(now.as_nanos(), Ordering::Relaxed);
        let until = Timestamp::from_nanos(self.rested_ns.swap(0, Ordering::Relaxed));
        if until > Timestamp::ZERO {
            self.sentry.on_rest(now, until);
        }
    }

    /// Its engine need not be driven now.
    pub(crate) fn rested(&self, now: Timestamp) {
        self.rested_ns.store(now.as_nanos(), Ordering::Relaxed);
    }

    /// Whether nothing was inside when its engine was last driven, nothing has come since, and that
    /// was less than `period` before now.
    pub(crate) fn rests(&self, now: Timestamp, period: Duration) -> bool {
        self.empty_ticked.load(Ordering::Relaxed)
            && self.was_ticked_within(now, period)
            && self.arrivals_ticked.load(Ordering::Relaxed) == self.sentry.arrivals()
            && !self.sentry.has_news()
    }

    /// Whether its engine was last driven less than `period` before now.
    pub(crate) fn was_ticked_within(&self, now: Timestamp, period: Duration) -> bool {
        let ticked = Timestamp::from_nanos(self.ticked_ns.load(Ordering::Relaxed));
        now < ticked + period
    }

    /// Whether its engine is not driven now because nothing happens in it.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.rested_ns.load(Ordering::Relaxed) > 0
    }

    /// Whether a controller goes on by the clock while nothing happens, or messages go out.
    pub(crate) fn goes_by_the_clock(&self) -> bool {
        self.by_the_clock.load(Ordering::Relaxed)
    }

    /// A health check decided. A replica that is drained stays without requests.
    pub(crate) fn set_health(&self, now: Timestamp, replica: ReplicaId, up: bool) {
        let up = up && !self.settings().is_draining(replica);
        self.pass_on(self.sentry.set_health(now, replica, up));
    }

    /// What tells it from the other applications of the process while it is in force.
    #[must_use]
    pub fn key(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
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

    /// The admission engine. What its calls resolve goes to [`Application::pass_on`].
    #[must_use]
    pub fn sentry(&self) -> &Transcribed<Waiter> {
        &self.sentry
    }

    /// Tells waiting requests what became of them. The slot of one that has gone goes back.
    pub fn pass_on<'a>(&'a self, mut resolutions: TranscribedResolutions<'a, Waiter>) {
        // In a loop: of a crowd that leaves together each one's slot may go to the next who has
        // gone.
        let mut unclaimed = Vec::new();
        loop {
            unclaimed
                .extend(resolutions.filter_map(|(waiter, resolution)| waiter.resolve(resolution)));
            let Some(permit) = unclaimed.pop() else {
                return;
            };
            resolutions = self.sentry.on_end(self.now(), permit, Ending::Abandoned);
        }
    }

    /// Gives a slot back, which others may wait for.
    pub(crate) fn give_back(&self, now: Timestamp, permit: Permit, ending: Ending) {
        if ending == Ending::Served {
            let seconds = (now - permit.admitted()).as_secs_f64();
            self.comparison.on_served(now, permit.replica(), seconds);
        }
        self.pass_on(self.sentry.on_end(now, permit, ending));
    }

    /// A request is about to be decided about: another configuration gets it too.
    pub(crate) fn on_arrival(&self, now: Timestamp, arrival: &Arrival) {
        self.comparison.on_arrival(now, arrival);
    }

    /// Another configuration beside the one in force.
    pub(crate) fn comparison(&self) -> &Comparison {
        &self.comparison
    }

    /// How that configuration compares with the one in force, where there is one.
    #[must_use]
    pub fn shadow(&self) -> Option<ShadowStatus> {
        self.sentry.compared(self.now(), &self.comparison)
    }

    /// What the data plane counts of its requests.
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

    /// What the edge did not let pass.
    pub(crate) fn edge_counters(&self) -> &EdgeCounters {
        &self.edge
    }

    /// What became of requests that another application gave to this one.
    pub(crate) fn companion_counters(&self) -> &CompanionCounters {
        &self.companion
    }

    /// A request that this canary was to serve goes to its main application.
    pub(crate) fn companion_returned(&self, why: Handed) {
        self.companion.count(why);
        if why == Handed::Unreachable {
            self.companion.set_away(self.now());
        }
    }

    /// The settings in force. Not to be held across an await: load them again.
    #[must_use]
    pub fn settings(&self) -> Guard<Arc<Settings>> {
        self.settings.load()
    }

    /// Moves with every change of the settings.
    pub(crate) fn edition(&self) -> u64 {
        self.edition.load(Ordering::Acquire)
    }

    /// The next change of the settings, also one before it is awaited.
    pub(crate) fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    /// Its configuration in force, as if it were alone in the file.
    #[must_use]
    pub fn config(&self) -> Arc<Config> {
        Arc::clone(&self.settings.load().config)
    }
}

/// Whether the mode has a controller that goes on while nothing happens.
fn by_the_clock(settings: &Settings) -> bool {
    let mode = settings.config.protect.mode;
    !matches!(mode, ModeName::Auto | ModeName::Off | ModeName::Static)
}

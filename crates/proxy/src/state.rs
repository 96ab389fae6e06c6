//! What the workers, the admin API, the health checks and the reload share: the applications, and
//! what concerns the process as a whole.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::Weak;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::{Mutex, RwLock};
use tidegate_control::Timestamp;
use tidegate_sentry::Event;
use tokio::sync::Notify;

use crate::application::Application;
use crate::clock::Clock;
use crate::config::{Config, Discover, Origin};
use crate::http1::HeadLimits;
use crate::listen::descriptors::Descriptors;
use crate::listen::per_address::ConnectionsByAddress;
use crate::metrics::Metrics;
use crate::pool::{Discovered, Member, Pool, PoolCommand, PoolError, PoolOverride};
use crate::progress::Progress;
use crate::record::{RecordCommand, RecordingError, RecordingStatus, Recordings};
use crate::request::upload_places::UploadPlaces;
use crate::router::Router;
use crate::settings::{Next, Scope, Settings, SettingsError};
use crate::trace::Traces;

/// Called for every event of an engine, with its application.
pub type Observer = dyn Fn(&Application, &Event) + Send + Sync;

/// The proxy's shared state.
pub struct State {
    clock: Clock,
    /// Of client connections, and of requests that belong to no application.
    metrics: Arc<Metrics>,
    applications: ArcSwap<Applications>,
    /// The file in force, live changes included.
    config: ArcSwap<Config>,
    /// The file, where live changes were resumed before anything asked for it.
    in_file: Mutex<Option<Arc<Config>>>,
    /// Moves with every change of the list of applications.
    edition: AtomicU64,
    /// Of the settings in force what is asked for before every request.
    head_bytes: AtomicUsize,
    head_fields: AtomicUsize,
    /// One change at a time; holds the pools that were set while the proxy runs, by application.
    pools: Mutex<BTreeMap<String, PoolOverride>>,
    /// What `upstream.discover` found last, by application. Locked after `pools`.
    discovered: Mutex<BTreeMap<String, Discovered>>,
    /// Applications that were removed and may have requests inside.
    removed: Mutex<Vec<Weak<Application>>>,
    observers: RwLock<Vec<Arc<Observer>>>,
    draining: AtomicBool,
    /// Whether another process has the listening sockets too.
    relieved: AtomicBool,
    drain: Notify,
    changed: Notify,
    threads: usize,
    /// That the data plane's threads run.
    pub(crate) progress: Progress,
    pub(crate) uploads: UploadPlaces,
    /// Client connections over all workers, for their limit.
    pub(crate) connections: AtomicUsize,
    pub(crate) connections_by_address: ConnectionsByAddress,
    pub(crate) descriptors: Descriptors,
    recordings: Arc<Recordings>,
    traces: Arc<Traces>,
    /// CPU time of the shadows so far.
    shadow_cpu_ns: AtomicU64,
    /// Bits of the share; NaN before it was measured.
    cpu_share: AtomicU64,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State")
            .field("applications", &self.applications)
            .finish_non_exhaustive()
    }
}

/// The applications in force. Replaced as a whole.
#[derive(Debug)]
pub struct Applications {
    /// In the order of the file.
    list: Vec<Arc<Application>>,
    /// Stands in for the application of requests that have none: malformed ones, and those that fit
    /// no host or path. With a single application it is that one.
    outside: Arc<Application>,
    pub(crate) router: Router,
}

impl Applications {
    /// All of them, in the order of the file.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Application>> {
        self.list.iter()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether there are none, which no configuration makes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The one of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<Application>> {
        self.list.iter().find(|it| it.name() == name)
    }

    /// The only one; `None` if there are several.
    #[must_use]
    pub fn single(&self) -> Option<&Arc<Application>> {
        let [single] = self.list.as_slice() else {
            return None;
        };
        Some(single)
    }

    /// Stands in for the application of requests that have none.
    #[must_use]
    pub fn outside(&self) -> &Arc<Application> {
        &self.outside
    }
}

/// Applications in force, and those that were removed and have requests inside.
pub(crate) struct Driven {
    in_force: Arc<Applications>,
    removed: Vec<Arc<Application>>,
}

impl Driven {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Application>> {
        self.in_force.iter().chain(&self.removed)
    }
}

/// The name of the stand-in for the application of requests that have none.
const OUTSIDE: &str = "";

/// What becomes of an application in a change that is being prepared.
enum Change {
    New(Arc<Application>),
    Next(Arc<Application>, Box<Next>),
}

impl Change {
    fn application(&self) -> &Arc<Application> {
        match self {
            Self::New(application) | Self::Next(application, _) => application,
        }
    }
}

/// The replicas that a recording begins with.
fn record_pools(recordings: &Recordings, applications: &Applications, now: Timestamp) {
    for application in applications.iter() {
        recordings.replicas_changed(application.name(), &application.settings(), now);
    }
}

impl State {
    /// Makes everything a configuration asks for, short of opening sockets.
    ///
    /// # Errors
    /// A file that cannot be read, a certificate that is none, parameters that contradict.
    pub fn new(config: Config) -> Result<Arc<Self>, SettingsError> {
        let clock = Clock::start();
        let threads = config.threads.unwrap_or_else(cores).max(1);
        let metrics = Arc::new(Metrics::new(threads));
        let recordings = Arc::<Recordings>::default();
        if config.record.dir.is_some() {
            recordings.start(None, &config, clock.now())?;
        }
        let workshop = Workshop {
            clock,
            threads,
            metrics: &metrics,
            pools: &BTreeMap::new(),
            discovered: &BTreeMap::new(),
            old: None,
            manner: Manner::Change,
            recordings: &recordings,
        };
        let (changes, outside) = workshop.changes(&config)?;
        recordings.reconfigured(&config, clock.now());
        let applications = table(&config, &changes, outside.as_ref());
        record_pools(&recordings, &applications, clock.now());
        let limits = applications.outside.settings().head_limits();
        let traces = Traces::new(threads);
        traces.configure(&config.tracing);
        Ok(Arc::new(Self {
            clock,
            metrics,
            applications: ArcSwap::from_pointee(applications),
            config: ArcSwap::from_pointee(config),
            in_file: Mutex::default(),
            edition: AtomicU64::new(0),
            head_bytes: AtomicUsize::new(limits.bytes),
            head_fields: AtomicUsize::new(limits.fields),
            pools: Mutex::default(),
            discovered: Mutex::default(),
            removed: Mutex::default(),
            observers: RwLock::default(),
            draining: AtomicBool::new(false),
            relieved: AtomicBool::new(false),
            drain: Notify::new(),
            changed: Notify::new(),
            threads,
            progress: Progress::new(threads),
            uploads: UploadPlaces::default(),
            connections: AtomicUsize::new(0),
            connections_by_address: ConnectionsByAddress::default(),
            descriptors: Descriptors::of_process(),
            recordings,
            traces: Arc::new(traces),
            shadow_cpu_ns: AtomicU64::new(0),
            cpu_share: AtomicU64::new(f64::NAN.to_bits()),
        }))
    }

    /// Puts another configuration in force, whole or not at all: all applications or none.
    /// Listeners and threads stay as they are: they need a restart. A pool that was set while the
    /// proxy runs stays unless the file names other replicas or sources now.
    ///
    /// # Errors
    /// As [`State::new`]; then the old configuration stays in force.
    pub fn apply(&self, config: Config) -> Result<(), SettingsError> {
        self.apply_by(config, Manner::Change)
    }

    fn apply_by(&self, config: Config, manner: Manner) -> Result<(), SettingsError> {
        let mut pools = self.pools.lock();
        let mut kept = pools.clone();
        kept.retain(|name, pool| {
            let config = config.of_application(name);
            config.is_some_and(|config| pool.holds(&config))
        });
        self.apply_with(config, &kept, manner)?;
        *pools = kept;
        let config = self.config();
        let discovers = |name: &String| {
            let of = config.of_application(name);
            of.is_some_and(|it| !it.upstream.discover.is_empty())
        };
        self.discovered.lock().retain(|name, _| discovers(name));
        Ok(())
    }

    fn apply_with(
        &self,
        config: Config,
        pools: &BTreeMap<String, PoolOverride>,
        manner: Manner,
    ) -> Result<(), SettingsError> {
        let old = self.applications();
        let discovered = self.discovered.lock().clone();
        let workshop = Workshop {
            clock: self.clock,
            threads: self.threads,
            metrics: &self.metrics,
            pools,
            discovered: &discovered,
            old: Some(&old),
            manner,
            recordings: &self.recordings,
        };
        let (changes, outside) = workshop.changes(&config)?;
        let applications = table(&config, &changes, outside.as_ref());
        for change in changes.into_iter().chain(outside) {
            if let Change::Next(application, next) = change {
                application.commit(*next)?;
            }
        }
        self.recordings.reconfigured(&config, self.now());
        self.put_in_force(config, applications, &old);
        Ok(())
    }

    fn put_in_force(&self, config: Config, next: Applications, old: &Applications) {
        let HeadLimits { bytes, fields } = next.outside.settings().head_limits();
        self.head_bytes.store(bytes, Ordering::Relaxed);
        self.head_fields.store(fields, Ordering::Relaxed);
        let stays = |it: &&Arc<Application>| next.iter().any(|next| Arc::ptr_eq(next, it));
        let gone = old.iter().filter(|it| !stays(it));
        self.traces.configure(&config.tracing);
        let mut removed = self.removed.lock();
        removed.extend(gone.map(Arc::downgrade));
        drop(removed);
        self.config.store(Arc::new(config));
        self.applications.store(Arc::new(next));
        self.edition.fetch_add(1, Ordering::Release);
        self.changed.notify_waiters();
    }

    /// What became of requests that another application gave to this one, by the word in metrics.
    /// Empty if it gets none.
    #[must_use]
    pub fn companion_totals(&self, name: &str) -> Vec<(&'static str, u64)> {
        let applications = self.applications();
        let counts = |it: &Arc<Application>| {
            let companion = it.config().companion.clone()?;
            Some(it.companion_counters().totals(&companion))
        };
        applications.get(name).and_then(counts).unwrap_or_default()
    }

    /// Waits for the next change of the list of applications.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Changes the replicas of an application, whole or not at all, until the file names other
    /// replicas or sources itself. `None` if there is no application of this name.
    ///
    /// # Errors
    /// What is wrong with the command, or why the pool cannot be used; then the old one stays.
    pub fn change_pool(
        &self,
        name: &str,
        command: &PoolCommand,
    ) -> Result<Option<Arc<Application>>, PoolError> {
        let mut pools = self.pools.lock();
        let discovered = self.discovered.lock();
        let config = self.config();
        let applications = self.applications();
        let (Some(application), Some(own)) = (applications.get(name), config.of_application(name))
        else {
            return Ok(None);
        };
        let discovered = discovered.get(name);
        let set = command.apply(&own, discovered, pools.get(name))?;
        let pool = Pool::in_force(&own, discovered, set.as_ref());
        application.commit(application.prepare(own, pool, self.scope_of(application))?)?;
        match set {
            Some(set) => pools.insert(name.to_owned(), set),
            None => pools.remove(name),
        };
        self.recordings.reconfigured(&config, self.now());
        Ok(Some(Arc::clone(application)))
    }

    /// Puts the replicas in force that `upstream.discover` found for an application, with the
    /// changes of the admin API. Nothing happens if the file has other sources by now.
    ///
    /// # Errors
    /// Why they cannot be used; then the old ones stay.
    pub(crate) fn set_discovered(&self, name: &str, now: Discovered) -> Result<(), SettingsError> {
        let mut pools = self.pools.lock();
        let mut discovered = self.discovered.lock();
        let applications = self.applications();
        let (Some(application), Some(own)) =
            (applications.get(name), self.config().of_application(name))
        else {
            return Ok(());
        };
        if own.upstream.discover != now.sources {
            return Ok(());
        }
        let set = pools.get(name).cloned();
        let set = set.and_then(|it| it.without_gone(discovered.get(name), &now));
        let pool = Pool::in_force(&own, Some(&now), set.as_ref());
        if *application.settings().pool() != pool {
            application.commit(application.prepare(own, pool, self.scope_of(application))?)?;
        }
        match set {
            Some(set) => pools.insert(name.to_owned(), set),
            None => pools.remove(name),
        };
        discovered.insert(name.to_owned(), now);
        Ok(())
    }

    /// What discovery found last, by application.
    pub(crate) fn discovered(&self) -> BTreeMap<String, Discovered> {
        self.discovered.lock().clone()
    }

    /// Whether the admin API has set or changed the pool of an application.
    pub(crate) fn is_pool_changed(&self, name: &str) -> bool {
        self.pools.lock().contains_key(name)
    }

    /// What these sources of an application named last.
    pub(crate) fn known_replicas(&self, name: &str, sources: &[Discover]) -> Vec<Member> {
        let discovered = self.discovered.lock();
        let known = discovered.get(name).filter(|it| it.sources == sources);
        known.map_or_else(Vec::new, |it| it.members.clone())
    }

    /// Whether a source of the file names this replica of an application.
    pub(crate) fn is_discovered(&self, name: &str, url: &Origin) -> bool {
        let discovered = self.discovered.lock();
        let members = discovered.get(name).map(|it| &it.members);
        members.is_some_and(|members| members.iter().any(|it| it.url == *url))
    }

    fn scope_of(&self, application: &Arc<Application>) -> Scope {
        if Arc::ptr_eq(self.applications().outside(), application) {
            Scope::Connections
        } else {
            Scope::Application
        }
    }

    /// The pools that were set while the proxy runs, by application.
    pub(crate) fn pools(&self) -> BTreeMap<String, PoolOverride> {
        self.pools.lock().clone()
    }

    /// Takes over the pools that another process had, where the file names the replicas and
    /// sources that it named then.
    ///
    /// # Errors
    /// Why one of them cannot be used; then none is in force.
    pub(crate) fn resume_pools(
        &self,
        saved: &BTreeMap<String, PoolOverride>,
        discovered: &BTreeMap<String, Discovered>,
    ) -> Result<(), SettingsError> {
        if saved.is_empty() && discovered.is_empty() {
            return Ok(());
        }
        let config = Config::clone(&self.config());
        let mut known = discovered.clone();
        known.retain(|name, it| {
            let own = config.of_application(name);
            own.is_some_and(|own| own.upstream.discover == it.sources)
        });
        *self.discovered.lock() = known;
        *self.pools.lock() = saved.clone();
        let resumed = self.apply_by(config, Manner::Begin);
        if resumed.is_err() {
            self.pools.lock().clear();
            self.discovered.lock().clear();
        }
        resumed
    }

    /// Switches maintenance on where another process had it on, or off. Not in the file: the next
    /// reload of it says what holds.
    ///
    /// # Errors
    /// What cannot be made of the configuration; the one in force stays.
    pub(crate) fn resume_maintenance(
        &self,
        switches: &BTreeMap<&str, bool>,
    ) -> Result<(), SettingsError> {
        let in_file = self.config();
        let mut config = Config::clone(&in_file);
        for (name, &on) in switches {
            let own = config.of_application(name);
            if own.is_some_and(|own| own.edge.maintenance.enabled != on)
                && let Some(edge) = config.edge_mut(name)
            {
                edge.maintenance.enabled = on;
            }
        }
        if config != *in_file {
            self.apply(config)?;
            *self.in_file.lock() = Some(in_file);
        }
        Ok(())
    }

    /// The file as it was read, live changes that were resumed not included.
    pub(crate) fn take_in_file(&self) -> Arc<Config> {
        self.in_file.lock().take().unwrap_or_else(|| self.config())
    }

    /// The applications in force.
    #[must_use]
    pub fn applications(&self) -> Arc<Applications> {
        self.applications.load_full()
    }

    /// The application of this name.
    #[must_use]
    pub fn application(&self, name: &str) -> Option<Arc<Application>> {
        self.applications.load().get(name).cloned()
    }

    /// The application that a file without `[[application]]` has, else the first.
    #[must_use]
    pub fn first(&self) -> Arc<Application> {
        let applications = self.applications.load();
        Arc::clone(applications.iter().next().unwrap_or(applications.outside()))
    }

    /// Applications in force, and those that were removed and have requests inside.
    pub(crate) fn driven(&self) -> Driven {
        let in_force = self.applications();
        let mut still_inside = Vec::new();
        self.removed.lock().retain(|gone| {
            let application = gone.upgrade();
            let lives = application.is_some();
            still_inside.extend(application);
            lives
        });
        Driven {
            in_force,
            removed: still_inside,
        }
    }

    /// Has `observer` called for every event of every engine, on the thread that drives them.
    pub fn observe(&self, observer: Arc<Observer>) {
        self.observers.write().push(observer);
    }

    /// Starts or stops a recording. Waits for the disk.
    ///
    /// # Errors
    /// The directory cannot be written, none is known, or a recording is running.
    pub fn record(&self, command: &RecordCommand) -> Result<RecordingStatus, RecordingError> {
        if command.enabled {
            let (dir, now) = (command.dir.as_deref(), self.now());
            self.recordings.start(dir, &self.config(), now)?;
            record_pools(&self.recordings, &self.applications(), now);
        } else {
            let applications = self.driven();
            applications.iter().for_each(|it| it.sentry().flush());
            self.recordings.stop();
        }
        Ok(self.recordings.status())
    }

    /// What is recorded of requests for distributed traces.
    #[must_use]
    pub fn traces(&self) -> &Arc<Traces> {
        &self.traces
    }

    /// How the recording goes.
    #[must_use]
    pub fn recording(&self) -> RecordingStatus {
        self.recordings.status()
    }

    /// CPU time that the shadows took so far.
    #[must_use]
    pub fn shadow_cpu(&self) -> Duration {
        Duration::from_nanos(self.shadow_cpu_ns.load(Ordering::Relaxed))
    }

    /// CPU use of this process over the last second, of the cores that it may use.
    #[must_use]
    pub fn cpu_share(&self) -> Option<f64> {
        let share = f64::from_bits(self.cpu_share.load(Ordering::Relaxed));
        share.is_finite().then_some(share)
    }

    pub(crate) fn set_cpu_share(&self, share: f64) {
        self.cpu_share.store(share.to_bits(), Ordering::Relaxed);
    }

    pub(crate) fn set_shadow_cpu(&self, spent: Duration) {
        let nanos = u64::try_from(spent.as_nanos()).unwrap_or(u64::MAX);
        self.shadow_cpu_ns.store(nanos, Ordering::Relaxed);
    }

    pub(crate) fn tell_observers(&self, application: &Application, event: &Event) {
        self.recordings.event(application, event);
        for observer in self.observers.read().iter() {
            observer(application, event);
        }
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

    /// What the data plane counts of client connections and of requests without an application.
    #[must_use]
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// The settings of client connections. Not to be held across an await: load them again.
    #[must_use]
    pub fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.applications.load().outside.settings())
    }

    /// Moves with every change of the list of applications: a look at it is cheaper.
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

    /// The file in force, live changes included.
    #[must_use]
    pub fn config(&self) -> Arc<Config> {
        self.config.load_full()
    }

    /// Number of worker threads.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// A thread of the data plane that has done nothing for longer than `silence`, if there is one:
    /// a running one looks after its timers several times a second.
    #[must_use]
    pub fn stalled(&self, silence: Duration) -> Option<String> {
        self.progress.stalled(self.now(), silence)
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

/// What becomes of applications that are there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// They go on, with what they have learnt.
    Change,
    /// Nothing has happened yet. One with another pool is made anew: its replicas are the first
    /// ones of its engine, and saved windows find them there.
    Begin,
}

/// What applications are made from.
struct Workshop<'a> {
    clock: Clock,
    threads: usize,
    metrics: &'a Arc<Metrics>,
    pools: &'a BTreeMap<String, PoolOverride>,
    discovered: &'a BTreeMap<String, Discovered>,
    old: Option<&'a Applications>,
    manner: Manner,
    recordings: &'a Arc<Recordings>,
}

impl Workshop<'_> {
    /// Everything that a configuration changes, made ready; and the stand-in for requests without
    /// an application, where it is none of the others.
    fn changes(&self, config: &Config) -> Result<(Vec<Change>, Option<Change>), SettingsError> {
        let single = config.application.is_empty();
        let scope = if single {
            Scope::Connections
        } else {
            Scope::Application
        };
        let changes: Result<Vec<_>, _> = config
            .application_names()
            .map(|name| self.change(name, config, scope))
            .collect();
        let outside = || {
            let old = self.old.map(|old| &old.outside);
            let old = old.filter(|old| old.name() == OUTSIDE);
            let pool = Pool::default();
            self.make(OUTSIDE, top_alone(config), pool, Scope::Connections, old)
        };
        let changes = changes?;
        let outside = (!single).then(outside).transpose()?;
        Ok((changes, outside))
    }

    fn change(&self, name: &str, config: &Config, scope: Scope) -> Result<Change, SettingsError> {
        let own = config.of_application(name).unwrap_or_default();
        let pool = Pool::in_force(&own, self.discovered.get(name), self.pools.get(name));
        let old = self.old.and_then(|old| old.get(name));
        let begins = |old: &&Arc<Application>| {
            self.manner == Manner::Begin && *old.settings().pool() != pool
        };
        let old = old.filter(|old| !begins(old));
        // The one that stood for all requests had the connections as well, and their counters.
        let old = old.filter(|_| {
            let single = |old: &&Applications| old.outside.name() != OUTSIDE;
            self.old.filter(single).is_some() == (scope == Scope::Connections)
        });
        self.make(name, own, pool, scope, old)
    }

    fn make(
        &self,
        name: &str,
        config: Config,
        pool: Pool,
        scope: Scope,
        old: Option<&Arc<Application>>,
    ) -> Result<Change, SettingsError> {
        if let Some(old) = old {
            let next = old
                .prepare(config, pool, scope)
                .map_err(|cause| cause.of(name))?;
            return Ok(Change::Next(Arc::clone(old), Box::new(next)));
        }
        let metrics = match scope {
            Scope::Connections => Arc::clone(self.metrics),
            Scope::Application => Arc::new(Metrics::new(self.threads)),
        };
        let made = Application::new(
            name,
            config,
            pool,
            self.clock,
            metrics,
            scope,
            self.recordings,
        );
        let made = made.map_err(|cause| cause.of(name))?;
        Ok(Change::New(Arc::new(made)))
    }
}

/// The top of a file that has several applications.
fn top_alone(config: &Config) -> Config {
    Config {
        application: Vec::new(),
        default_application: None,
        ..config.clone()
    }
}

fn table(config: &Config, changes: &[Change], outside: Option<&Change>) -> Applications {
    let list: Vec<_> = changes
        .iter()
        .map(|it| Arc::clone(it.application()))
        .collect();
    let outside = outside.map_or(&list[0], Change::application);
    Applications {
        outside: Arc::clone(outside),
        router: if config.application.is_empty() {
            Router::single()
        } else {
            Router::new(&config.application, config.default_application.as_deref())
        },
        list,
    }
}

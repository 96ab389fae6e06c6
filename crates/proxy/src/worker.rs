//! One worker per core: its own runtime, connections, upstream pool and counters.
//!
//! All of it belongs to the worker's thread, so there are no locks and no atomic operations. What
//! threads share is the [`State`]; what one has to tell another goes through the engine
//! ([`crate::gate`]).
//!
//! Decision: docs/decisions/0311-nothing-shared-within-a-worker.md.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use http::HeaderValue;
use http::header::HOST;
use httpdate::HttpDate;
use slab::Slab;
use tidegate_control::Timestamp;
use tidegate_sentry::ReplicaId;

use crate::alarm::{Alarms, SWEEP};
use crate::application::Application;
use crate::client::lobby::Lobby;
use crate::client::timeouts::ConnectionTimeouts;
use crate::client::{Client, ConnectionCommand, Protocol};
use crate::edge::companions::Companions;
use crate::listen::per_address::Address;
use crate::message::Request;
use crate::metrics::{Core, RequestIds, Sampler, TurnedAway};
use crate::request::classify::Readings;
use crate::response::slow_reader::SlowReaders;
use crate::settings::Settings;
use crate::state::{Applications, State};
use crate::trace::Tracer;
use crate::upstream::budget::Budget;
use crate::upstream::pool::Pool;

/// How long an idle connection is kept at shutdown, for a request that may be on its way: after
/// that its client has had time to see nothing come and is told by the close.
const IDLE_GRACE: Duration = Duration::from_secs(1);

/// How long a connection is idle before it waits without a task. Chosen: most pages have asked for
/// all they need by then.
const REST_AFTER: Duration = Duration::from_secs(1);

/// A connection that does nothing for this long may be closed for another. Chosen: an honest
/// client sends its head within a round trip or a few.
const RECLAIM_AFTER: Duration = Duration::from_secs(1);

/// An address with too many connections loses those whose requests have waited for the client for
/// this long. Chosen: the time over which an upload's rate is measured.
const WAITING_MAX: Duration = Duration::from_secs(10);

/// At `limits.connections` an address counts as one with too many above this share of them.
const CROWDING_SHARE: f64 = 1.0 / 16.0;

/// Connections closed together when there are too many: to find them takes a walk over all.
const RECLAIMED_AT_ONCE: usize = 64;

/// Settings as one worker holds them.
pub(crate) type InForce = Rc<Arc<Settings>>;

/// What one core works with.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) index: usize,
    pub(crate) state: Arc<State>,
    pub(crate) alarms: Alarms,
    pub(crate) slow_readers: SlowReaders,
    pub(crate) pool: Pool,
    pub(crate) lobby: Lobby,
    pub(crate) ids: RequestIds,
    pub(crate) tracer: Tracer,
    /// The applications that were in force when they were last asked for, and their edition.
    applications: RefCell<Rc<LocalApplications>>,
    edition: Cell<u64>,
    clients: RefCell<Slab<Registered>>,
    /// The time of day for responses that say none; renewed by the sweep.
    date: RefCell<Date>,
    /// When the last sweep was: a clock that costs nothing, for what may be off by that much.
    swept: Cell<Timestamp>,
    /// Connections past the accept that have not been registered or closed yet count too.
    open: Cell<usize>,
    /// Connections on which a request is under way.
    pub(crate) busy: Cell<usize>,
    /// Whose connections were looked through in vain, and at which sweep: see [`Worker::reclaim`].
    vain_walk: Cell<Option<(Option<Address>, Timestamp)>>,
}

#[derive(Debug)]
struct Registered {
    client: Rc<Client>,
    timeouts: ConnectionTimeouts,
}

/// Why a connection may be closed for another, the best reason last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Reclaim {
    /// A request of it waits for the client, whose address has too many connections.
    Waiting,
    Idle,
    Unfinished,
}

impl Registered {
    /// How readily it is closed for others, if at all.
    fn rank(&self, now: Timestamp) -> Option<(Reclaim, Duration)> {
        let unfinished = self.timeouts.unfinished_for(now);
        let idle = self.timeouts.idle_for(now);
        let rank = match (unfinished, idle) {
            (Some(age), _) => (Reclaim::Unfinished, age),
            (None, Some(age)) => (Reclaim::Idle, age),
            (None, None) => (Reclaim::Waiting, self.timeouts.waiting_for(now)?),
        };
        let (reason, age) = rank;
        let least = if reason == Reclaim::Waiting {
            WAITING_MAX
        } else {
            RECLAIM_AFTER
        };
        (age >= least).then_some(rank)
    }
}

impl Worker {
    /// # Errors
    /// When the system has no descriptor left.
    pub(crate) fn new(index: usize, state: Arc<State>) -> io::Result<Self> {
        Ok(Self {
            index,
            edition: Cell::new(state.edition()),
            applications: RefCell::new(Rc::new(LocalApplications::new(&state, index, None))),
            tracer: Tracer::new(Arc::clone(state.traces())),
            state,
            alarms: Alarms::default(),
            slow_readers: SlowReaders::default(),
            pool: Pool::default(),
            lobby: Lobby::new()?,
            ids: RequestIds::default(),
            clients: RefCell::default(),
            date: RefCell::new(Date::now()),
            swept: Cell::new(Timestamp::ZERO),
            open: Cell::new(0),
            busy: Cell::new(0),
            vain_walk: Cell::new(None),
        })
    }

    /// One that has nothing to do.
    #[cfg(test)]
    pub(crate) fn idle() -> Rc<Self> {
        let config =
            crate::config::Config::from_text("idle.toml", "upstream = 'http://127.0.0.1:1'");
        let state = State::new(config.expect("it is valid")).expect("nothing is read");
        Rc::new(Self::new(0, state).expect("there is a descriptor"))
    }

    /// The settings of client connections. Not to be held across an await: ask for them again.
    pub(crate) fn settings(&self) -> InForce {
        self.applications().outside.settings()
    }

    /// The applications in force. Not to be held across an await: ask for them again.
    fn applications(&self) -> Rc<LocalApplications> {
        let edition = self.state.edition();
        if self.edition.replace(edition) != edition {
            let old = self.applications.borrow().clone();
            let new = LocalApplications::new(&self.state, self.index, Some(&old));
            self.applications.replace(Rc::new(new));
        }
        Rc::clone(&self.applications.borrow())
    }

    /// The application of a request; without one, what stands in for it.
    pub(crate) fn route<B>(
        &self,
        request: &Request<B>,
    ) -> Result<Rc<LocalApplication>, Rc<LocalApplication>> {
        let applications = self.applications();
        let router = &applications.shared.router;
        if router.is_single() {
            return Ok(Rc::clone(&applications.outside));
        }
        let host = match request.uri.authority() {
            Some(authority) => authority.as_str().as_bytes(),
            None => request
                .headers
                .get(HOST)
                .map_or(&b""[..], HeaderValue::as_bytes),
        };
        let path = request.uri.path();
        let routed = router.route(host, path.as_bytes());
        // What a replica may read as a path of another application belongs to none: the rules of
        // that one would not have been asked.
        let readings = Readings::of(path);
        let in_doubt = readings
            .normal()
            .is_some_and(|normal| router.route(host, normal.as_bytes()) != routed);
        match routed.filter(|_| !in_doubt) {
            Some(number) => Ok(Rc::clone(&applications.list[number])),
            None => Err(Rc::clone(&applications.outside)),
        }
    }

    /// Whether requests of an application hold more than its share of the client connections of
    /// this worker, of which more than half are busy. As with the memory for uploads: half is for
    /// the first that come, the other half is divided equally.
    pub(crate) fn is_crowded_by(&self, application: &LocalApplication) -> bool {
        let applications = self.applications().list.len();
        if applications <= 1 {
            return false;
        }
        let limit = self.settings().config.limits.connections / self.state.threads();
        let common = limit / 2;
        self.busy.get() > common && application.busy.get() > (common / applications).max(1)
    }

    /// What stands in for the application of what is no request.
    pub(crate) fn outside(&self) -> Rc<LocalApplication> {
        Rc::clone(&self.applications().outside)
    }

    /// About now.
    pub(crate) fn about_now(&self) -> Timestamp {
        self.swept.get()
    }

    /// The time of day as a `Date` header has it.
    pub(crate) fn date(&self) -> HeaderValue {
        self.date.borrow().text.clone()
    }

    /// Writes with the time of day, which is not copied for it.
    pub(crate) fn with_date<R>(&self, write: impl FnOnce(&HeaderValue) -> R) -> R {
        write(&self.date.borrow().text)
    }

    pub(crate) fn metrics(&self) -> &Core {
        self.state.metrics().core(self.index)
    }

    /// Connections that are open on this worker.
    pub(crate) fn open(&self) -> usize {
        self.open.get()
    }

    /// Counts a connection until the guard is dropped.
    pub(crate) fn count_open(self: &Rc<Self>) -> OpenGuard {
        self.open.update(|open| open + 1);
        self.state.connections.fetch_add(1, Ordering::Relaxed);
        self.metrics().record_opened();
        OpenGuard {
            worker: Rc::clone(self),
            address: None,
        }
    }

    /// Puts a connection under the sweep's eye until the guard is dropped.
    pub(crate) fn register(self: &Rc<Self>, client: Rc<Client>) -> Registration {
        let timeouts = ConnectionTimeouts::new(self.state.now());
        let key = self
            .clients
            .borrow_mut()
            .insert(Registered { client, timeouts });
        Registration {
            worker: Rc::clone(self),
            key,
        }
    }

    /// Looks after connections, requests and the pool, every [`SWEEP`], for ever.
    pub(crate) async fn sweep(self: Rc<Self>) {
        loop {
            let end = self.state.now() + SWEEP;
            self.alarms.ring_until(end, || self.state.now()).await;
            let now = self.state.now();
            self.state.progress.sign(self.index, now);
            self.swept.set(now);
            self.date.borrow_mut().renew();
            self.sweep_clients(now);
            self.slow_readers.sweep(now);
            let applications = self.applications();
            let used = applications.list.iter().filter(|it| it.budget.is_used());
            used.for_each(|it| it.settle_budget(now, self.state.threads()));
            self.pool.sweep(now);
        }
    }

    /// Closes connections that do nothing, for another one of `newcomer`: those that have not sent
    /// a whole head for the longest time, then those that are idle, then those of crowding
    /// addresses whose requests wait for their clients. With `TurnedAway::Address` these are the
    /// newcomer's own. False if there are none.
    pub(crate) fn reclaim(self: &Rc<Self>, newcomer: Option<Address>, why: TurnedAway) -> bool {
        // Ages change with the sweep only: what found nothing finds nothing until the next.
        let walk = (
            newcomer.filter(|_| why == TurnedAway::Address),
            self.swept.get(),
        );
        if self.vain_walk.get() == Some(walk) {
            return false;
        }
        let mut idlest = self.reclaimable(newcomer, why);
        idlest.sort_unstable_by_key(|(rank, _)| Reverse(*rank));
        idlest.truncate(RECLAIMED_AT_ONCE);
        for (_, client) in &idlest {
            client.give(ConnectionCommand::Abort);
            self.metrics().record_turned_away(why);
            if let Some(seat) = client.seat() {
                self.lobby.call(self, seat);
            }
        }
        self.vain_walk.set(idlest.is_empty().then_some(walk));
        !idlest.is_empty()
    }

    /// Connections that may be closed for one of `newcomer`.
    fn reclaimable(
        &self,
        newcomer: Option<Address>,
        why: TurnedAway,
    ) -> Vec<((Reclaim, Duration), Rc<Client>)> {
        let now = self.state.now();
        let table = &self.state.connections_by_address;
        let limit = self.settings().config.limits.connections as f64 * CROWDING_SHARE;
        let fewer = newcomer
            .map_or(0, |address| table.of(address))
            .max(limit as usize);
        let crowds = |address: Option<Address>| match why {
            TurnedAway::Address => true,
            _ => address.is_some_and(|address| table.of(address) > fewer),
        };
        let clients = self.clients.borrow();
        let ready = clients.iter().map(|(_, entry)| entry).filter(|entry| {
            let own = why != TurnedAway::Address || entry.client.address() == newcomer;
            own && entry.client.command() == ConnectionCommand::None
        });
        let ranked = ready.filter_map(|entry| Some((entry.rank(now)?, &entry.client)));
        ranked
            .filter(|((reason, _), client)| *reason > Reclaim::Waiting || crowds(client.address()))
            .map(|(rank, client)| (rank, Rc::clone(client)))
            .collect()
    }

    fn sweep_clients(self: &Rc<Self>, now: Timestamp) {
        let settings = self.settings();
        let timeouts = &settings.config.timeouts;
        let draining = self.state.is_draining();
        let mut called = Vec::new();
        for (_, entry) in self.clients.borrow_mut().iter_mut() {
            entry.client.forget_idle_frames();
            let mut command = entry.timeouts.judge(&entry.client, now, timeouts);
            if draining && command == ConnectionCommand::None {
                command = goodbye(entry, now);
            }
            if command != ConnectionCommand::None {
                entry.client.give(command);
                called.extend(entry.client.seat());
            } else if entry.timeouts.idle_for(now) >= Some(REST_AFTER) {
                entry.client.let_rest();
            }
        }
        // They need a task again, to do as they were told.
        called
            .into_iter()
            .for_each(|seat| self.lobby.call(self, seat));
    }
}

/// The applications as one worker holds them.
#[derive(Debug)]
struct LocalApplications {
    shared: Arc<Applications>,
    list: Vec<Rc<LocalApplication>>,
    outside: Rc<LocalApplication>,
}

impl LocalApplications {
    /// Those in force; what is kept for those that were there before stays.
    fn new(state: &State, core: usize, old: Option<&Self>) -> Self {
        let shared = state.applications();
        let mut known: HashMap<*const Application, &Rc<LocalApplication>> = HashMap::new();
        for local in old
            .into_iter()
            .flat_map(|old| old.list.iter().chain([&old.outside]))
        {
            known.insert(Arc::as_ptr(&local.shared), local);
        }
        let mut local = |application: &Arc<Application>| match known.get(&Arc::as_ptr(application))
        {
            Some(&local) => Rc::clone(local),
            None => Rc::new(LocalApplication::new(Arc::clone(application), core)),
        };
        let list: Vec<_> = shared.iter().map(&mut local).collect();
        let mut companions = Companions::by_name(&list);
        for local in &list {
            let its = companions.remove(local.shared.name()).map(Rc::new);
            local.companions.replace(its);
        }
        let outside = shared
            .iter()
            .position(|it| Arc::ptr_eq(it, shared.outside()));
        Self {
            outside: match outside {
                Some(at) => Rc::clone(&list[at]),
                None => local(shared.outside()),
            },
            list,
            shared,
        }
    }
}

/// An application as one worker holds it. Workers that count references to the same settings would
/// wait for each other's cores, so each counts its own.
#[derive(Debug)]
pub(crate) struct LocalApplication {
    pub(crate) shared: Arc<Application>,
    pub(crate) budget: Budget,
    pub(crate) sampler: Sampler,
    /// Connections of this worker on which a request of it is under way.
    pub(crate) busy: Cell<usize>,
    core: usize,
    /// The settings that were in force when they were last asked for, and their edition.
    settings: RefCell<InForce>,
    edition: Cell<u64>,
    /// The applications that get requests of it.
    companions: RefCell<Option<Rc<Companions>>>,
}

impl LocalApplication {
    fn new(shared: Arc<Application>, core: usize) -> Self {
        Self {
            edition: Cell::new(shared.edition()),
            settings: RefCell::new(Rc::new(Arc::clone(&shared.settings()))),
            budget: Budget::default(),
            busy: Cell::new(0),
            sampler: Sampler::new(RandomState::new().hash_one(core)),
            companions: RefCell::default(),
            core,
            shared,
        }
    }

    /// The applications that get requests of it.
    pub(crate) fn companions(&self) -> Option<Rc<Companions>> {
        self.companions.borrow().clone()
    }

    /// The settings in force. Not to be held across an await: ask for them again.
    pub(crate) fn settings(&self) -> InForce {
        let edition = self.shared.edition();
        if self.edition.replace(edition) != edition {
            let settings = Arc::clone(&self.shared.settings());
            self.settings.replace(Rc::new(settings));
        }
        Rc::clone(&self.settings.borrow())
    }

    /// The settings in force, which have this replica if the engine has it.
    pub(crate) fn settings_with(&self, id: ReplicaId) -> InForce {
        let settings = self.settings();
        if settings.replica(id).is_some() {
            return settings;
        }
        self.shared.await_commit();
        self.settings()
    }

    /// The worker's counters of the application's requests.
    pub(crate) fn metrics(&self) -> &Core {
        self.shared.metrics().core(self.core)
    }

    fn settle_budget(&self, now: Timestamp, threads: usize) {
        let settings = self.settings();
        drop(self.budget.settle(now, &settings.config.retry, threads));
    }
}

/// The time of day, written out.
#[derive(Debug)]
struct Date {
    written: HttpDate,
    text: HeaderValue,
}

impl Date {
    fn now() -> Self {
        let mut date = Self {
            written: SystemTime::UNIX_EPOCH.into(),
            text: HeaderValue::from_static("Thu, 01 Jan 1970 00:00:00 GMT"),
        };
        date.renew();
        date
    }

    /// Writes it anew if another second has begun.
    fn renew(&mut self) {
        let now = HttpDate::from(SystemTime::now());
        if now != self.written
            && let Ok(text) = HeaderValue::try_from(now.to_string())
        {
            *self = Self { written: now, text };
        }
    }
}

/// At shutdown HTTP/2 clients are told at once, which loses nothing; HTTP/1.1 clients are told with
/// their next response, and those that want nothing are let go after a while.
fn goodbye(entry: &Registered, now: Timestamp) -> ConnectionCommand {
    let idle = entry.timeouts.idle_for(now);
    match entry.client.protocol() {
        Protocol::Http2 => ConnectionCommand::Close,
        Protocol::Http1 if idle.is_some_and(|idle| idle >= IDLE_GRACE) => ConnectionCommand::Close,
        Protocol::Http1 => ConnectionCommand::None,
    }
}

/// Counts a connection as long as it lives.
#[derive(Debug)]
pub(crate) struct OpenGuard {
    worker: Rc<Worker>,
    /// The address it counts for, if it does.
    address: Option<Address>,
}

impl OpenGuard {
    pub(crate) fn worker(&self) -> &Rc<Worker> {
        &self.worker
    }

    pub(crate) fn address(&self) -> Option<Address> {
        self.address
    }

    /// Counts it for an address as well; gives the number of connections that this one has.
    pub(crate) fn count_for(&mut self, address: Address) -> usize {
        self.address = Some(address);
        self.worker.state.connections_by_address.add(address)
    }
}

impl Drop for OpenGuard {
    fn drop(&mut self) {
        let state = &self.worker.state;
        self.worker.open.update(|open| open - 1);
        state.connections.fetch_sub(1, Ordering::Relaxed);
        if let Some(address) = self.address {
            state.connections_by_address.remove(address);
        }
        self.worker.metrics().record_closed();
    }
}

/// Keeps a connection under the sweep's eye as long as it lives.
#[derive(Debug)]
pub(crate) struct Registration {
    worker: Rc<Worker>,
    key: usize,
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.worker.clients.borrow_mut().remove(self.key);
    }
}

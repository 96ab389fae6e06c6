//! Operating a running proxy: the admin listener, and the tasks that keep the proxy going.
//!
//! [`Operations`] is what the binary starts beside the data plane, on a thread of its own:
//!
//! - the ticker takes the pictures that the figures of the last seconds come from,
//! - the health driver asks replicas and tells the engine,
//! - the reload watches the files and SIGHUP,
//! - the admin listener answers operators.
//!
//! The data plane works without any of them. Whatever blocks (files) runs beside that thread, so
//! that a slow disk delays nobody.

mod advice;
mod applications;
mod calls;
mod endings;
mod error;
pub mod event_types;
mod event_words;
mod events;
mod exposition;
mod fleet;
mod forecast;
mod guard;
mod headline;
mod history;
mod journal;
mod limiter;
mod marks;
mod openapi;
mod plane;
mod process;
pub mod reasons;
mod recent;
pub mod reference;
mod routes;
mod server;
mod shadow;
pub mod signals;
mod status;
mod ticker;
mod top;
mod warnings;
mod watch;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use serde_json::Value;
use tidegate_sentry::Event;
use tokio::signal::unix::Signal;
use tokio::sync::Notify;
use tokio::task::{JoinHandle, JoinSet};

pub use events::{Events, Filter, Subscription};

use crate::application::Application;
use crate::channel::{self, Channel};
use crate::config::{DEFAULT, Secret};
use crate::discover;
use crate::health::{self, Trip};
use crate::listen::inherited::Inherited;
use crate::metrics::Family;
use crate::operator_log::{self, Level};
use crate::reload::{ReloadError, Reloader, Source, Trigger, WATCH_PERIOD};
use crate::saved_state;
use crate::state::State;
use crate::ticker::SPARED_FROM;
use crate::trace::Traces;
use forecast::Forecasts;
use journal::{Journal, Line};
use marks::MarkKind;
use recent::Picture;
use watch::Watch;

pub use forecast::{Change, Forecaster, Measured, Outlook};

/// Names of the sockets, where they are passed on.
const ADMIN: &str = "admin";
const CHANNEL: &str = "channel";

/// Events of the engines that wait for the ticker; more than a tenth of a second brings.
const SEEN_MAX: usize = 4096;

/// Of many applications one in which nothing happens is looked at every this many seconds, in turn.
const PICTURES_OF_QUIET_EVERY: u32 = 10;

/// Why operations cannot start.
#[derive(Debug, thiserror::Error)]
pub enum OperationsError {
    /// The admin listener's address cannot be used.
    #[error(
        "cannot listen on {addr} for the admin API: {cause}; choose another address with `--admin` or `admin.addr`"
    )]
    Bind {
        /// The address.
        addr: SocketAddr,
        /// What the system said.
        cause: io::Error,
    },
    /// The channel's address cannot be used.
    #[error("cannot listen on {addr} for the channel: {cause}; choose another `channel.listen`")]
    Channel {
        /// The address.
        addr: SocketAddr,
        /// What the system said.
        cause: io::Error,
    },
    /// The token cannot be read.
    #[error("{0}")]
    Token(String),
}

/// Everything that runs beside the data plane.
#[derive(Debug)]
pub struct Operations {
    operator: Arc<Operator>,
    listener: Option<TcpListener>,
    channels: Vec<(Arc<Application>, TcpListener)>,
}

impl Operations {
    /// Opens the admin listener, if there is to be one. Nothing is answered before
    /// [`Operations::run`].
    ///
    /// # Errors
    /// The address is in use or not ours, or the token's file cannot be read.
    pub fn bind(state: Arc<State>, source: Source) -> Result<Self, OperationsError> {
        Self::take_over(state, source, &mut Inherited::default())
    }

    /// As [`Operations::bind`], with the sockets that another process opened where they fit.
    ///
    /// # Errors
    /// The address is in use or not ours, or the token's file cannot be read.
    pub fn take_over(
        state: Arc<State>,
        source: Source,
        inherited: &mut Inherited,
    ) -> Result<Self, OperationsError> {
        let admin = state.config().admin.clone();
        let token = admin.read_token().map_err(OperationsError::Token)?;
        let listener = match (admin.enabled, inherited.take_one(ADMIN, *admin.addr)) {
            (true, None) => Some(listen(*admin.addr)?),
            (true, passed) => passed,
            (false, _) => None,
        };
        let mut channels = Vec::new();
        for application in state.applications().iter() {
            if let Some(channel) = application.channel() {
                let listener = listen_for(channel, application.name(), inherited)?;
                channels.push((Arc::clone(application), listener));
            }
        }
        let fleet = fleet::FleetNode::new(&state.config(), &state);
        let fleet = fleet.map_err(OperationsError::Token)?;
        operator_log::set_format(state.config().log.format);
        let started_at = SystemTime::now();
        let operator = Arc::new(Operator {
            reloader: Reloader::new(Arc::clone(&state), source),
            state,
            token: ArcSwap::from_pointee(token),
            events: Events::default(),
            watches: Mutex::default(),
            seen: Mutex::default(),
            process_journal: Mutex::new(Journal::new(started_at)),
            pictures_taken: AtomicU32::new(0),
            started: Instant::now(),
            started_at,
            relieved: Notify::new(),
            forecasts: Forecasts::default(),
            fleet,
            plane: Mutex::default(),
            history_read: AtomicBool::new(false),
        });
        let told = Arc::downgrade(&operator);
        operator.state.observe(Arc::new(move |application, event| {
            if let Some(operator) = told.upgrade() {
                // The engine is locked while it tells: what is made of it waits for the ticker.
                let mut seen = operator.seen.lock();
                if seen.len() < SEEN_MAX {
                    seen.push((
                        application.name().to_owned(),
                        SystemTime::now(),
                        event.clone(),
                    ));
                }
            }
        }));
        Ok(Self {
            operator,
            listener,
            channels,
        })
    }

    /// What would help is forecast by this from now on.
    pub fn forecast_by(&self, forecaster: Arc<dyn Forecaster>) {
        self.operator.forecasts.set_forecaster(forecaster);
    }

    /// Where the admin listener is bound; `None` without one.
    #[must_use]
    pub fn admin_addr(&self) -> Option<SocketAddr> {
        self.listener.as_ref()?.local_addr().ok()
    }

    /// Where clients of the first channel listen for messages; `None` without a channel.
    #[must_use]
    pub fn channel_addr(&self) -> Option<SocketAddr> {
        let (_, listener) = self.channels.first()?;
        listener.local_addr().ok()
    }

    /// What an exporter of metrics and traces reads.
    #[must_use]
    pub fn telemetry(&self) -> Telemetry {
        Telemetry(Arc::clone(&self.operator))
    }

    /// Its listening sockets with their names, as [`Bound::sockets`](crate::Bound::sockets).
    ///
    /// # Errors
    /// When the system refuses more descriptors.
    pub fn sockets(&self) -> io::Result<Vec<(String, TcpListener)>> {
        let admin = self
            .listener
            .iter()
            .map(|socket| (ADMIN.to_owned(), socket));
        let channels = self.channels.iter();
        let channels = channels.map(|(of, socket)| (channel_socket(of.name()), socket));
        let named = admin.chain(channels);
        named
            .map(|(name, socket)| socket.try_clone().map(|socket| (name, socket)))
            .collect()
    }

    /// What to call when another process has taken the sockets over: operators are left to it.
    pub fn relieve(&self) -> impl Fn() + use<> {
        let operator = Arc::clone(&self.operator);
        move || operator.relieved.notify_one()
    }

    /// Looks once for the replicas of applications that discover theirs and know none, so that a
    /// proxy that begins to serve has some. Waits for some seconds at most.
    pub async fn find_replicas(&self) {
        discover::first(&self.operator.state).await;
    }

    /// Runs all tasks until `until` is ready. Call it inside a runtime with time and I/O.
    pub async fn run(self, until: impl Future<Output = ()>) {
        let Self {
            operator,
            listener,
            channels,
        } = self;
        let notice = |line: &str| operator.notice(line);
        let seed = RandomState::new().hash_one("health");
        tokio::select! {
            () = until => {}
            () = ticker::run(Arc::clone(&operator)) => {}
            () = look_after_replicas(&operator, seed) => {}
            () = watch_files(Arc::clone(&operator)) => {}
            () = saved_state::keep(Arc::clone(&operator.state), notice) => {}
            () = history::keep(Arc::clone(&operator)) => {}
            () = fleet::run(Arc::clone(&operator)) => {}
            () = forecast::keep(Arc::clone(&operator)) => {}
            () = plane::run(Arc::clone(&operator)) => {}
            () = serve(listener, Arc::clone(&operator)) => {}
            () = run_channels(channels) => {}
        }
        history::write(&operator).await;
    }

    /// Reloads on every one of these signals, as long as the future is polled. The owner of the
    /// process brings the signal, caught before anybody can send it.
    pub fn reload_on(&self, mut hangups: Signal) -> impl Future<Output = ()> + use<> {
        let operator = Arc::clone(&self.operator);
        async move {
            while hangups.recv().await.is_some() {
                reload_beside(&operator, Trigger::Asked).await;
            }
        }
    }
}

/// What an exporter of metrics and traces reads of a proxy.
#[derive(Debug)]
pub struct Telemetry(Arc<Operator>);

impl Telemetry {
    /// All metrics, as they are now.
    #[must_use]
    pub fn metrics(&self) -> Vec<Family> {
        exposition::families(&self.0)
    }

    /// What is recorded of requests.
    #[must_use]
    pub fn traces(&self) -> &Arc<Traces> {
        self.0.state.traces()
    }

    /// When counting began.
    #[must_use]
    pub fn started_at(&self) -> SystemTime {
        self.0.started_at
    }
}

fn listen(addr: SocketAddr) -> Result<TcpListener, OperationsError> {
    let bind = || {
        let listener = TcpListener::bind(addr)?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    };
    bind().map_err(|cause| OperationsError::Bind { addr, cause })
}

/// The name of the socket of an application's channel.
fn channel_socket(application: &str) -> String {
    match application {
        DEFAULT => CHANNEL.to_owned(),
        name => format!("{CHANNEL}-{name}"),
    }
}

fn listen_for(
    channel: &Channel,
    application: &str,
    inherited: &mut Inherited,
) -> Result<TcpListener, OperationsError> {
    let addr = channel.addr();
    let passed = inherited
        .take_one(&channel_socket(application), addr)
        .map(Ok);
    let listener = passed.unwrap_or_else(|| channel.listen());
    listener.map_err(|cause| OperationsError::Channel { addr, cause })
}

async fn serve(listener: Option<TcpListener>, operator: Arc<Operator>) {
    if let Some(listener) = listener {
        tokio::select! {
            served = server::serve(listener, Arc::clone(&operator)) => if let Err(error) = served {
                operator.notice(&format!("the admin listener failed: {error}"));
            },
            () = operator.relieved.notified() => {}
        }
    }
    std::future::pending::<()>().await;
}

async fn run_channels(channels: Vec<(Arc<Application>, TcpListener)>) {
    let mut running = JoinSet::new();
    for (application, listener) in channels {
        running.spawn(channel::run(application, Some(listener)));
    }
    while running.join_next().await.is_some() {}
    std::future::pending::<()>().await;
}

/// Runs the health checks of every application, of those that a reload adds as well, for ever.
async fn look_after_replicas(operator: &Arc<Operator>, seed: u64) {
    let mut drivers: HashMap<usize, [AbortOnDrop; 2]> = HashMap::new();
    loop {
        let applications = operator.state.applications();
        // By address: one that was removed and came back is another one.
        let key = |it: &Arc<Application>| Arc::as_ptr(it).addr();
        let in_force: HashSet<_> = applications.iter().map(key).collect();
        drivers.retain(|application, _| in_force.contains(application));
        for application in applications.iter() {
            drivers.entry(key(application)).or_insert_with(|| {
                let notice = || {
                    let operator = Arc::clone(operator);
                    let of = prefix(&operator, application.name());
                    move |line: &str| operator.notice(&format!("{of}{line}"))
                };
                let its = || Arc::clone(application);
                let state = Arc::clone(&operator.state);
                [
                    AbortOnDrop(tokio::spawn(health::run(its(), seed, notice()))),
                    AbortOnDrop(tokio::spawn(discover::run(state, its(), notice()))),
                ]
            });
        }
        drop(applications);
        operator.state.changed().await;
    }
}

/// Says in a line of the log which application it is about, where there are several.
fn prefix(operator: &Operator, application: &str) -> String {
    match operator.state.applications().single() {
        Some(_) => String::new(),
        None => format!("application {application}: "),
    }
}

/// A task that ends with its owner.
struct AbortOnDrop(JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn watch_files(operator: Arc<Operator>) {
    loop {
        tokio::time::sleep(WATCH_PERIOD).await;
        let its = Arc::clone(&operator);
        let changed = tokio::task::spawn_blocking(move || its.reloader.has_changed()).await;
        if changed.unwrap_or(false) {
            reload_beside(&operator, Trigger::Changed).await;
        }
    }
}

/// Reloads without holding up the thread; the outcome is in log and status.
async fn reload_beside(operator: &Arc<Operator>, trigger: Trigger) {
    let its = Arc::clone(operator);
    let reload = tokio::task::spawn_blocking(move || its.reload(&trigger));
    if tokio::time::timeout(RELOAD_MAX, reload).await.is_err() {
        let error = operator.reloader.note_hanging();
        operator.notice(&format!(
            "the configuration was not put in force within {} s: {error}",
            RELOAD_MAX.as_secs()
        ));
    }
}

/// How long a reload is waited for before the next one is looked for. It may end later.
const RELOAD_MAX: Duration = Duration::from_secs(10);

/// What calls and tasks share.
#[derive(Debug)]
struct Operator {
    state: Arc<State>,
    reloader: Reloader,
    token: ArcSwap<Option<Secret>>,
    events: Events,
    /// By application.
    watches: Mutex<BTreeMap<String, Watch>>,
    /// Events of the engines that were not read yet.
    seen: Mutex<Vec<(String, SystemTime, Event)>>,
    /// Of the process.
    process_journal: Mutex<Journal>,
    started: Instant,
    started_at: SystemTime,
    /// Seconds in which pictures of the counters were taken.
    pictures_taken: AtomicU32,
    /// Another process answers operators from now on.
    relieved: Notify,
    forecasts: Forecasts,
    /// This proxy among others, where there are any.
    fleet: Option<fleet::FleetNode>,
    /// The control plane as it was asked last, where there is one.
    plane: Mutex<Option<plane::PlaneView>>,
    /// What an earlier process kept of the history was taken over.
    history_read: AtomicBool,
}

impl Operator {
    /// The fleet as this proxy sees it.
    fn fleet_status(&self) -> Option<tidegate_fleet::FleetStatus> {
        self.fleet.as_ref().map(|node| node.status(&self.state))
    }

    fn token(&self) -> Option<Secret> {
        Option::clone(&self.token.load())
    }

    /// Puts the file in force, and says so.
    fn reload(&self, trigger: &Trigger) -> Result<(), ReloadError> {
        let outcome = self
            .reloader
            .reload(trigger)
            .and_then(|()| self.renew_token());
        match &outcome {
            Ok(()) => {
                operator_log::set_format(self.state.config().log.format);
                let line = "the configuration was put in force";
                self.notice(line);
                let of = match trigger {
                    Trigger::AskedOf(name) => Some(name.as_str()),
                    Trigger::Asked | Trigger::Changed => None,
                };
                self.mark(of, MarkKind::Reload, line);
            }
            Err(error) => {
                let line =
                    format!("the configuration was refused, the old one stays in force: {error}");
                self.log(Level::Error, &line, &Value::Null);
            }
        }
        outcome
    }

    fn renew_token(&self) -> Result<(), ReloadError> {
        let token = self.state.config().admin.read_token();
        let token = token.map_err(|message| {
            let file = self.reloader.status().file.unwrap_or_default();
            ReloadError::Refused(vec![tidegate_config::ConfigError::new(&file, message)])
        })?;
        self.token.store(Arc::new(token));
        Ok(())
    }

    /// Why requests cannot be served now, and what to do; `None` when those of one application can,
    /// as far as is known. A replica that can be reached and fails is no reason: only requests show
    /// when it is well again.
    fn not_ready(&self) -> Option<(String, &'static str)> {
        let state = &self.state;
        let remedy = "wait for it, or take requests again by /api/drain";
        if state.is_draining() {
            return Some(("the proxy is draining".into(), remedy));
        }
        let applications = state.applications();
        let mut first = None;
        for application in applications.iter() {
            first = first.or(Some(not_ready(application)?));
        }
        first
    }

    /// One line of level `info` for the operator: in the log and in the event stream.
    fn notice(&self, line: &str) {
        self.log(Level::Info, line, &Value::Null);
    }

    /// An operator changed something of an application, or of all: a line and a mark.
    fn changed(&self, application: Option<&str>, line: &str) {
        let of = application.map_or_else(String::new, |name| format!("application {name}: "));
        self.notice(&format!("{of}{line}"));
        self.mark(application, MarkKind::Operator, line);
    }

    /// A mark in the history of an application, or of all.
    fn mark(&self, application: Option<&str>, kind: MarkKind, words: &str) {
        let now = SystemTime::now();
        let applications = self.state.applications();
        let meant = |name: &&str| application.is_none_or(|only| only == *name);
        for name in applications.iter().map(|it| it.name()).filter(meant) {
            self.watch(name, |watch| watch.marks.add(now, kind, words));
        }
    }

    /// Lines about an application, which they name where there are several.
    fn write(&self, application: &str, lines: impl IntoIterator<Item = Line>) {
        for line in lines {
            let message = format!("{}{}", prefix(self, application), line.message);
            self.log(line.level, &message, &line.fields);
        }
    }

    fn log(&self, level: Level, message: &str, fields: &Value) {
        operator_log::log(level, message, fields);
        let mut event = fields.as_object().cloned().unwrap_or_default();
        event.insert("level".into(), level.as_str().into());
        event.insert("line".into(), message.into());
        self.publish("notice", SystemTime::now(), &event);
    }

    fn publish(&self, kind: &str, time: SystemTime, event: &impl serde::Serialize) {
        if let Some(kind) = event_types::find(kind) {
            self.events.publish(kind, time, event);
        }
    }

    /// What is remembered of an application.
    fn watch<R>(&self, application: &str, look: impl FnOnce(&mut Watch) -> R) -> R {
        let mut watches = self.watches.lock();
        let new = || Watch::new(self.started_at);
        look(watches.entry(application.to_owned()).or_insert_with(new))
    }

    /// Takes in what the engines did: journal, log and event stream.
    fn observe(&self) {
        let seen = std::mem::take(&mut *self.seen.lock());
        for (name, time, event) in seen {
            let applications = self.state.applications();
            let Some(application) = applications.get(&name) else {
                continue;
            };
            if !self.watch(&name, |watch| watch.is_news(&event)) {
                continue;
            }
            let status = application.sentry().status(application.now());
            let settings = application.settings();
            let url = |id| {
                let replica = settings.replica(id);
                replica.map_or_else(String::new, |it| it.origin().to_string())
            };
            let class = |id| settings.config.protect.class_name(id).to_owned();
            let words = event_words::words(&event, url, class);
            self.events.publish_engine(&name, time, &event, words);
            let line = self.watch(&name, |watch| watch.on_event(time, &event, &status, url));
            self.write(&name, line);
        }
    }

    fn take_pictures(&self) {
        let applications = self.state.applications();
        let mut watches = self.watches.lock();
        if watches.len() > applications.len() {
            let in_force: HashSet<_> = applications.iter().map(|it| it.name()).collect();
            watches.retain(|name, _| in_force.contains(name.as_str()));
        }
        drop(watches);
        self.look_at_process();
        let turn = self.pictures_taken.fetch_add(1, Ordering::Relaxed);
        let spared = applications.len() >= SPARED_FROM;
        for (number, application) in (0..).zip(applications.iter()) {
            let in_turn = (turn + number).is_multiple_of(PICTURES_OF_QUIET_EVERY);
            if in_turn || !(spared && self.is_quiet(application)) {
                self.take_picture(application);
            }
        }
    }

    /// Whether nothing has happened in an application for about ten seconds.
    fn is_quiet(&self, application: &Application) -> bool {
        let arrivals = application.sentry().arrivals();
        application.sentry().is_empty()
            && self.watch(application.name(), |watch| {
                watch.pictures.are_quiet_since(arrivals)
            })
    }

    fn take_picture(&self, application: &Application) {
        let name = application.name();
        let status = application.sentry().status(application.now());
        let totals = application.metrics().totals();
        let now = SystemTime::now();
        let (recent, line) = self.watch(name, |watch| {
            watch.pictures.add(Picture {
                at: Instant::now(),
                classes: status.classes.clone(),
                times: totals.classes,
                replicas: totals.replicas,
            });
            let second = watch.pictures.last_second();
            watch.history.add(now, &second, &status);
            let offered = second.total.offered_per_second;
            let line = watch.on_second(now, &status, offered);
            (watch.pictures.recent_of(name), line)
        });
        self.write(name, line);
        self.look_for_warnings(application, &status, &recent);
        self.publish("classes", now, &recent);
    }
}

/// Why the requests of an application cannot be served now.
fn not_ready(application: &Application) -> Option<(String, &'static str)> {
    let status = application.sentry().status(application.now());
    if status.draining {
        let remedy = "wait for it, or take requests again by /api/drain";
        return Some(("the proxy is draining".into(), remedy));
    }
    let mut causes = vec!["no replica works".to_owned()];
    for replica in &status.replicas {
        let unreachable = application.board().trip(replica.id) == Some(Trip::Unreachable);
        if replica.up && !unreachable {
            return None;
        }
        causes.extend(health::ailment(application, replica.id, replica.up));
    }
    let remedy = "start the replicas or mend their addresses, then this is 200 by itself";
    Some((causes.join("; "), remedy))
}

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

mod applications;
mod calls;
mod error;
mod events;
mod exposition;
mod guard;
mod openapi;
mod routes;
mod server;
mod status;
mod ticker;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Instant;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use serde_json::json;
use tokio::signal::unix::Signal;
use tokio::sync::Notify;
use tokio::task::{JoinHandle, JoinSet};

pub use events::{Events, Subscription};

use crate::application::Application;
use crate::channel::{self, Channel};
use crate::config::{DEFAULT, Secret};
use crate::health::{self, Trip};
use crate::listen::inherited::Inherited;
use crate::operator_log::notice;
use crate::reload::{ReloadError, Reloader, Source, Trigger, WATCH_PERIOD};
use crate::saved_state;
use crate::state::State;
use status::{Picture, Pictures};

/// Names of the sockets, where they are passed on.
const ADMIN: &str = "admin";
const CHANNEL: &str = "channel";

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
        let operator = Arc::new(Operator {
            reloader: Reloader::new(Arc::clone(&state), source),
            state,
            token: ArcSwap::from_pointee(token),
            events: Events::default(),
            pictures: Mutex::default(),
            blind: Mutex::default(),
            started: Instant::now(),
            relieved: Notify::new(),
        });
        let told = Arc::downgrade(&operator);
        operator.state.observe(Arc::new(move |application, event| {
            if let Some(operator) = told.upgrade() {
                operator.events.publish_engine(application.name(), event);
            }
        }));
        Ok(Self {
            operator,
            listener,
            channels,
        })
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
            () = serve(listener, Arc::clone(&operator)) => {}
            () = run_channels(channels) => {}
        }
    }

    /// Reloads on every one of these signals, as long as the future is polled. Whoever owns the
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
    let mut drivers: HashMap<usize, AbortOnDrop> = HashMap::new();
    loop {
        let applications = operator.state.applications();
        // By address: one that was removed and came back is another one.
        let key = |it: &Arc<Application>| Arc::as_ptr(it).addr();
        let in_force: HashSet<_> = applications.iter().map(key).collect();
        drivers.retain(|application, _| in_force.contains(application));
        for application in applications.iter() {
            drivers.entry(key(application)).or_insert_with(|| {
                let (operator, application) = (Arc::clone(operator), Arc::clone(application));
                let of = prefix(&operator, application.name());
                let notice = move |line: &str| operator.notice(&format!("{of}{line}"));
                AbortOnDrop(tokio::spawn(health::run(application, seed, notice)))
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

/// A task that ends with whoever started it.
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
    let operator = Arc::clone(operator);
    let _ = tokio::task::spawn_blocking(move || operator.reload(trigger)).await;
}

/// What calls and tasks share.
#[derive(Debug)]
struct Operator {
    state: Arc<State>,
    reloader: Reloader,
    token: ArcSwap<Option<Secret>>,
    events: Events,
    /// By application.
    pictures: Mutex<BTreeMap<String, Pictures>>,
    /// Applications of which it has been said that the controller sees nothing.
    blind: Mutex<BTreeSet<String>>,
    started: Instant,
    /// Another process answers operators from now on.
    relieved: Notify,
}

impl Operator {
    fn token(&self) -> Option<Secret> {
        Option::clone(&self.token.load())
    }

    /// Puts the file in force, and says so.
    fn reload(&self, trigger: Trigger) -> Result<(), ReloadError> {
        let outcome = self
            .reloader
            .reload(trigger)
            .and_then(|()| self.renew_token());
        match &outcome {
            Ok(()) => self.notice("the configuration was put in force"),
            Err(error) => self.notice(&format!(
                "the configuration was refused, the old one stays in force: {error}"
            )),
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

    /// One line for the operator: in the log and in the event stream.
    fn notice(&self, line: &str) {
        notice(line);
        self.events.publish("notice", &json!({ "line": line }));
    }

    fn take_pictures(&self) {
        let applications = self.state.applications();
        let mut pictures = self.pictures.lock();
        pictures.retain(|name, _| applications.get(name).is_some());
        for application in applications.iter() {
            let name = application.name();
            let status = application.sentry().status(application.now());
            self.tell_blind(name, status.blind);
            let its = pictures.entry(name.to_owned()).or_default();
            its.add(Picture {
                at: Instant::now(),
                classes: status.classes,
                times: application.metrics().totals().classes,
            });
            if self.events.is_watched() {
                self.events.publish("classes", &its.recent_of(name));
            }
        }
    }

    /// Says once that the controller of an application sees nothing.
    fn tell_blind(&self, name: &str, blind: bool) {
        let mut told = self.blind.lock();
        if blind && told.insert(name.to_owned()) {
            self.notice(&format!("{}{}", prefix(self, name), status::BLIND));
        } else if !blind {
            told.remove(name);
        }
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

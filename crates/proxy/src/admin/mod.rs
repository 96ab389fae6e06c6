//! Operating a running proxy: the admin listener, and the tasks that keep the proxy going.
//!
//! [`Operations`] is what the binary starts beside the data plane, on a thread of its own:
//!
//! - the ticker drives the engine's adaptation and passes its events on,
//! - the health driver asks replicas and tells the engine,
//! - the reload watches the files and SIGHUP,
//! - the admin listener answers operators.
//!
//! The data plane works without any of them except the ticker. Whatever blocks (files) runs beside
//! that thread, so that a slow disk does not delay a tick.

mod calls;
mod cpu;
mod error;
mod events;
mod exposition;
mod guard;
mod openapi;
mod routes;
mod server;
mod status;
mod ticker;

use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use serde_json::json;
use tokio::signal::unix::Signal;
use tokio::sync::Notify;

pub use events::{Events, Subscription};

use crate::channel::{self, Channel};
use crate::config::Secret;
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
    channel: Option<TcpListener>,
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
        let channel = match state.channel() {
            Some(channel) => Some(listen_for(channel, inherited)?),
            None => None,
        };
        let operator = Arc::new(Operator {
            reloader: Reloader::new(Arc::clone(&state), source),
            state,
            token: ArcSwap::from_pointee(token),
            events: Events::default(),
            pictures: Mutex::default(),
            blind: AtomicBool::new(false),
            started: Instant::now(),
            relieved: Notify::new(),
        });
        Ok(Self {
            operator,
            listener,
            channel,
        })
    }

    /// Where the admin listener is bound; `None` without one.
    #[must_use]
    pub fn admin_addr(&self) -> Option<SocketAddr> {
        self.listener.as_ref()?.local_addr().ok()
    }

    /// Where clients listen for messages; `None` without a channel.
    #[must_use]
    pub fn channel_addr(&self) -> Option<SocketAddr> {
        self.channel.as_ref()?.local_addr().ok()
    }

    /// Its listening sockets with their names, as [`Bound::sockets`](crate::Bound::sockets).
    ///
    /// # Errors
    /// When the system refuses more descriptors.
    pub fn sockets(&self) -> io::Result<Vec<(String, TcpListener)>> {
        let sockets = [(ADMIN, &self.listener), (CHANNEL, &self.channel)];
        let named = sockets.into_iter().filter_map(|(name, socket)| {
            let socket = socket.as_ref()?;
            Some(socket.try_clone().map(|socket| (name.to_owned(), socket)))
        });
        named.collect()
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
            channel,
        } = self;
        let notice = |line: &str| operator.notice(line);
        let seed = RandomState::new().hash_one("health");
        tokio::select! {
            () = until => {}
            () = ticker::run(Arc::clone(&operator)) => {}
            () = health::run(Arc::clone(&operator.state), seed, notice) => {}
            () = watch_files(Arc::clone(&operator)) => {}
            () = saved_state::keep(Arc::clone(&operator.state), notice) => {}
            () = serve(listener, Arc::clone(&operator)) => {}
            () = channel::run(Arc::clone(&operator.state), channel) => {}
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

fn listen_for(
    channel: &Channel,
    inherited: &mut Inherited,
) -> Result<TcpListener, OperationsError> {
    let addr = channel.addr();
    let passed = inherited.take_one(CHANNEL, addr).map(Ok);
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
    pictures: Mutex<Pictures>,
    /// It has been said that the controller sees nothing.
    blind: AtomicBool,
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

    /// Why requests cannot be served now, and what to do; `None` when they can, as far as is known. A
    /// replica that can be reached and fails is no reason: only requests show when it is well again.
    fn not_ready(&self) -> Option<(String, &'static str)> {
        let state = &self.state;
        let status = state.sentry().status(state.now());
        if status.draining || state.is_draining() {
            let remedy = "wait for it, or take requests again by /api/drain";
            return Some(("the proxy is draining".into(), remedy));
        }
        let mut causes = vec!["no replica works".to_owned()];
        for replica in &status.replicas {
            let unreachable = state.board().trip(replica.id) == Some(Trip::Unreachable);
            if replica.up && !unreachable {
                return None;
            }
            causes.extend(health::ailment(state, replica.id, replica.up));
        }
        let remedy = "start the replicas or mend their addresses, then this is 200 by itself";
        Some((causes.join("; "), remedy))
    }

    /// One line for the operator: in the log and in the event stream.
    fn notice(&self, line: &str) {
        notice(line);
        self.events.publish("notice", &json!({ "line": line }));
    }

    fn take_picture(&self) {
        let status = self.state.sentry().status(self.state.now());
        if status.blind && !self.blind.swap(true, Ordering::Relaxed) {
            self.notice(status::BLIND);
        }
        self.blind.fetch_and(status.blind, Ordering::Relaxed);
        let mut pictures = self.pictures.lock();
        pictures.add(Picture {
            at: Instant::now(),
            classes: status.classes,
            times: self.state.metrics().totals().classes,
        });
        if self.events.is_watched() {
            self.events.publish("classes", &pictures.recent());
        }
    }
}

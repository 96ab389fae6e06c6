//! The client: outbox, engine and channel, driven by one task.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use serde::Serialize;
use tidegate_channel::message::from_text;
#[cfg(feature = "gossip")]
use tidegate_channel::net::gossip::Gossip;
use tidegate_channel::net::relay::{Inlet, Parents};
use tidegate_channel::net::serve::{self, StatusPage};
use tidegate_channel::net::{Desk, Dialer, Hub, Relay};
use tidegate_channel::verify::Counts;
use tidegate_channel::{ClientId, ControlMessage, PublicKey, Strategy};
use tidegate_control::Timestamp;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};

use crate::config::{Config, Listener, OpenError, Relaying};
use crate::engine::Action;
use crate::items::{Hold, Shared, SubmitError, Ticket};
use crate::send::{Report, Sender, Sent, send};

/// How the client is doing.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Status {
    /// The client's public key, for `channel.members`.
    pub public_key: String,
    /// Items that wait or are under way.
    pub pending: usize,
    /// Of these, items whose time is over: they go only if the server prolongs.
    pub overdue: usize,
    /// Why the proxy does not pass items on, if it does not.
    pub held: Option<Hold>,
    /// Whether the channel is silent.
    pub partitioned: bool,
    /// What is in force.
    pub strategy: Strategy,
    /// How far the server's clock may be from what we think it is, in milliseconds.
    pub clock_error_ms: u64,
    /// Seconds that the server has added to the time of every item.
    pub prolonged_s: u64,
    /// Items made later do not count: seconds since the Unix epoch.
    pub deadline_s: Option<f64>,
    /// Messages accepted, dropped and missed.
    pub messages: Counts,
}

/// A client that holds back. Dropping it leaves unsent items in the outbox.
pub struct Client {
    shared: Arc<Shared>,
    changes: mpsc::UnboundedSender<Change>,
    hub: Hub,
    counts: Box<dyn Fn() -> Counts + Send + Sync>,
    relay_url: Option<String>,
    tasks: Vec<JoinHandle<()>>,
}

enum Change {
    Message(ControlMessage),
    Item,
    Sent(u64, Report),
}

impl Client {
    /// Opens the outbox and starts; needs a tokio runtime.
    ///
    /// # Errors
    /// When the outbox cannot be used.
    pub fn open(config: Config) -> Result<Self, OpenError> {
        let shared = Arc::new(Shared::open(&config)?);
        let listener = config.relay.as_ref().map(Relaying::bind).transpose()?;
        Self::start(shared, config, listener)
    }

    fn start(
        shared: Arc<Shared>,
        config: Config,
        listener: Option<Listener>,
    ) -> Result<Self, OpenError> {
        let (changes, arrivals) = mpsc::unbounded_channel();
        let own = listener.as_ref().map(|(_, own)| own.clone());
        let parents = match config.parents {
            Parents::Tracked { tracker, .. } => Parents::Tracked {
                tracker,
                own: own.clone(),
            },
            fixed @ Parents::Fixed(_) => fixed,
        };
        let relay = Relay::new(&config.keys, parents, shared.id.0)
            .with_dialer(config.dialer)
            .with_clock(Arc::clone(&shared.clock), &config.publisher)
            .with_member(Arc::clone(&shared.stamper));
        #[cfg(feature = "gossip")]
        let relay = match config.gossip {
            Some(config) => {
                let gossip = Gossip::new(shared.outbox.seed(), config)?;
                relay.with_overlay(Box::new(gossip))
            }
            None => relay,
        };
        let (hub, counts, inlet) = (relay.hub(), relay.counts(), relay.inlet());
        let relay_status = relay.status();
        let told = changes.clone();
        let listen = relay.run(move |message| {
            // The receiver is gone once the client is closed.
            let _ = told.send(Change::Message(message));
        });
        let drive = drive(Arc::clone(&shared), arrivals, changes.clone(), inlet);
        let mut tasks = vec![tokio::spawn(listen), tokio::spawn(drive)];
        if let Some((listener, _)) = listener {
            let page: StatusPage =
                Box::new(move || serde_json::to_string(&relay_status()).unwrap_or_default());
            let desk = Arc::new(Desk::relay(hub.clone()).with_status(page));
            let serving = serve::serve(listener, desk, std::future::pending());
            tasks.push(tokio::spawn(serving));
        }
        Ok(Self {
            shared,
            changes,
            hub,
            counts: Box::new(counts),
            relay_url: own,
            tasks,
        })
    }

    /// Accepts a request as an item: it is on disk when this returns. Items of the same `key`
    /// replace each other while they wait, if the client is so configured.
    ///
    /// # Errors
    /// When it could not be written or stamped; then nothing happened.
    pub fn submit(
        &self,
        request: Request<Bytes>,
        key: Option<&str>,
    ) -> Result<Ticket, SubmitError> {
        self.submit_within(request, key, self.shared.delay_max)
    }

    /// Accepts an item that is worth something for another time than the client's others.
    ///
    /// # Errors
    /// When it could not be written or stamped; then nothing happened.
    pub fn submit_within(
        &self,
        request: Request<Bytes>,
        key: Option<&str>,
        delay_max: Duration,
    ) -> Result<Ticket, SubmitError> {
        let ticket = self.shared.accept(request, key, delay_max)?;
        self.changes
            .send(Change::Item)
            .map_err(|_| SubmitError::Closed)?;
        Ok(ticket)
    }

    /// The key that the client stamps with.
    #[must_use]
    pub fn public_key(&self) -> PublicKey {
        self.shared.stamper.public_key()
    }

    /// Who the client is.
    #[must_use]
    pub fn id(&self) -> ClientId {
        self.shared.id
    }

    /// Where others can listen, if the client passes messages on.
    #[must_use]
    pub fn relay_url(&self) -> Option<&str> {
        self.relay_url.as_deref()
    }

    /// The messages that were accepted, for others to listen to.
    #[must_use]
    pub fn hub(&self) -> Hub {
        self.hub.clone()
    }

    /// Opens connections as the client itself does.
    pub(crate) fn dialer(&self) -> &Dialer {
        &self.shared.dialer
    }

    /// How it is doing.
    #[must_use]
    pub fn status(&self) -> Status {
        let now = self.shared.clock.read();
        let held = self.shared.hold.lock().clone();
        let engine = self.shared.engine.lock();
        let terms = engine.terms();
        Status {
            public_key: self.shared.stamper.public_key().to_string(),
            overdue: engine.overdue(now.at),
            held,
            prolonged_s: terms.prolonged.as_secs(),
            deadline_s: terms.deadline.map(Timestamp::as_secs_f64),
            pending: engine.pending(),
            partitioned: engine.is_partitioned(),
            strategy: engine.strategy().clone(),
            clock_error_ms: now.error.as_millis() as u64,
            messages: (self.counts)(),
        }
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("id", &self.shared.id)
            .finish_non_exhaustive()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// Carries the engine's decisions out.
async fn drive(
    shared: Arc<Shared>,
    mut arrivals: mpsc::UnboundedReceiver<Change>,
    changes: mpsc::UnboundedSender<Change>,
    inlet: Inlet,
) {
    // Given up with the client, so that its outbox can be opened again.
    let mut sending = JoinSet::new();
    loop {
        let now = shared.clock.now();
        shared.expire(now);
        let action = shared.engine.lock().next(now);
        let wait = match action {
            Action::Send(number) => {
                sending.spawn(send_item(Arc::clone(&shared), number, changes.clone()));
                continue;
            }
            Action::Wait(until) => until.since(now),
            Action::Idle => Duration::MAX,
        };
        // Also now and then for items that expire.
        let wait = wait.min(Duration::from_secs(1));
        let Ok(change) = tokio::time::timeout(wait, arrivals.recv()).await else {
            continue;
        };
        match change {
            Some(Change::Message(message)) => {
                let now = shared.clock.now();
                shared.engine.lock().on_message(now, &message);
            }
            Some(Change::Item) => {}
            Some(Change::Sent(number, report)) => {
                while sending.try_join_next().is_some() {}
                if let Some(bytes) = report.message.as_deref().and_then(from_text) {
                    // The relay is gone only when the client is.
                    let _ = inlet.offer(bytes).await;
                }
                shared.on_sent(number, report.sent);
            }
            None => return,
        }
    }
}

async fn send_item(shared: Arc<Shared>, number: u64, changes: mpsc::UnboundedSender<Change>) {
    let sender = Sender {
        id: shared.id,
        number,
        told: shared.engine.lock().told(),
    };
    let report = match shared.outbox.item(number) {
        Ok(Some(item)) => send(&shared.dialer, &item, sender).await,
        _ => Report {
            sent: Sent::Failed(None),
            message: None,
        },
    };
    // The driver is gone only when the client is.
    let _ = changes.send(Change::Sent(number, report));
}

//! The client: outbox, engine and channel, driven by one task.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use parking_lot::Mutex;
use serde::Serialize;
use tidegate_channel::message::from_text;
use tidegate_channel::net::relay::{Inlet, Parents};
use tidegate_channel::net::{Hub, Relay};
use tidegate_channel::stamp::{Stamp, Stamper, client_id};
use tidegate_channel::verify::Counts;
use tidegate_channel::{ClientId, ControlMessage, PublicKey, SecretKey, Strategy, Variant};
use tidegate_control::Timestamp;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::engine::{Action, Engine, EngineConfig, Item};
use crate::outbox::{Outbox, OutboxError, StoredItem};
use crate::send::{Report, Sender, Sent, send};
use crate::sync::Clock;

/// What a client needs to know.
#[derive(Clone)]
pub struct Config {
    /// The publisher: the address of the proxy's channel listener.
    pub publisher: String,
    /// The keys it signs with.
    pub keys: Vec<PublicKey>,
    /// Where to subscribe.
    pub parents: Parents,
    /// Where items are kept.
    pub outbox: PathBuf,
    /// Whether a newer item replaces an older one of its key.
    pub variant: Variant,
    /// How long an item is worth something.
    pub delay_max: Duration,
    /// One item per so long while the channel is silent.
    pub fallback: Duration,
    /// How long the channel must be silent for that.
    pub silence: Duration,
    /// What stamps items; a key in the outbox when missing.
    pub stamper: Option<Arc<dyn Stamper>>,
}

impl Config {
    /// The usual: parents from the publisher's tracker, overwriting, items worth an hour.
    pub fn new(publisher: &str, key: PublicKey, outbox: impl Into<PathBuf>) -> Self {
        Self {
            publisher: publisher.to_owned(),
            keys: vec![key],
            parents: Parents::Tracked {
                tracker: publisher.to_owned(),
                own: None,
            },
            outbox: outbox.into(),
            variant: Variant::Overwrite,
            delay_max: Duration::from_secs(3600),
            fallback: Duration::from_secs(60),
            silence: Duration::from_secs(10),
            stamper: None,
        }
    }
}

/// Why a client cannot start.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The outbox cannot be used.
    #[error(transparent)]
    Outbox(#[from] OutboxError),
}

/// Why an item was not accepted.
#[derive(Debug, thiserror::Error)]
pub enum SubmitError {
    /// It could not be written.
    #[error(transparent)]
    Outbox(#[from] OutboxError),
    /// The stamper did not sign.
    #[error("the device that stamps items does not answer or refuses")]
    Stamper,
    /// The client is shutting down.
    #[error("the client has been closed")]
    Closed,
}

/// What became of an item.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// The server answered.
    Answered(Response<Bytes>),
    /// A newer item of its key took its place.
    Replaced,
    /// Nobody would have wanted it any more.
    Expired,
    /// The client was closed; the item is in the outbox and goes next time.
    Kept,
}

/// An item that was accepted: it is on disk.
#[derive(Debug)]
pub struct Ticket {
    /// Its number.
    pub number: u64,
    outcome: oneshot::Receiver<Outcome>,
}

impl Ticket {
    /// Waits for what becomes of it. Not waiting loses nothing.
    pub async fn outcome(self) -> Outcome {
        self.outcome.await.unwrap_or(Outcome::Kept)
    }

    pub(crate) fn wait(self) -> Outcome {
        self.outcome.blocking_recv().unwrap_or(Outcome::Kept)
    }
}

/// How the client is doing.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Status {
    /// Items that wait or are under way.
    pub pending: usize,
    /// Whether the channel is silent.
    pub partitioned: bool,
    /// What is in force.
    pub strategy: Strategy,
    /// How far the server's clock may be from what we think it is, in milliseconds.
    pub clock_error_ms: u64,
    /// Messages accepted and dropped.
    pub messages: Counts,
}

/// A client that holds back. Dropping it leaves unsent items in the outbox.
pub struct Client {
    shared: Arc<Shared>,
    changes: mpsc::UnboundedSender<Change>,
    hub: Hub,
    counts: Box<dyn Fn() -> Counts + Send + Sync>,
    tasks: Vec<JoinHandle<()>>,
}

struct Shared {
    outbox: Outbox,
    clock: Clock,
    engine: Mutex<Engine>,
    waiting: Mutex<HashMap<u64, oneshot::Sender<Outcome>>>,
    stamper: Arc<dyn Stamper>,
    id: ClientId,
    delay_max: Duration,
    /// One number at a time.
    accepting: Mutex<()>,
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
        let outbox = Outbox::open(&config.outbox)?;
        let own = || Arc::new(SecretKey::from_seed(outbox.seed())) as Arc<dyn Stamper>;
        let stamper = config.stamper.clone().unwrap_or_else(own);
        let id = client_id(&stamper.public_key());
        let clock = Clock::default();
        let engine = EngineConfig {
            id,
            variant: config.variant,
            fallback: config.fallback,
            silence: config.silence,
        };
        let shared = Arc::new(Shared {
            engine: Mutex::new(Engine::new(engine, clock.now())),
            outbox,
            clock,
            waiting: Mutex::default(),
            stamper,
            id,
            delay_max: config.delay_max,
            accepting: Mutex::new(()),
        });
        shared.restore()?;
        Ok(Self::start(shared, config))
    }

    fn start(shared: Arc<Shared>, config: Config) -> Self {
        let (changes, arrivals) = mpsc::unbounded_channel();
        let relay = Relay::new(&config.keys, config.parents, shared.id.0);
        let (hub, counts, inlet) = (relay.hub(), relay.counts(), relay.inlet());
        let told = changes.clone();
        let listen = relay.run(move |message| {
            // Nobody is left to tell once the client is closed.
            let _ = told.send(Change::Message(message));
        });
        let keeper = Arc::clone(&shared);
        let keep = async move { keeper.clock.keep(config.publisher, config.keys).await };
        let drive = drive(Arc::clone(&shared), arrivals, changes.clone(), inlet);
        let tasks = vec![
            tokio::spawn(listen),
            tokio::spawn(keep),
            tokio::spawn(drive),
        ];
        Self {
            shared,
            changes,
            hub,
            counts: Box::new(counts),
            tasks,
        }
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
        let ticket = self.shared.accept(request, key)?;
        self.changes
            .send(Change::Item)
            .map_err(|_| SubmitError::Closed)?;
        Ok(ticket)
    }

    /// Who the client is.
    #[must_use]
    pub fn id(&self) -> ClientId {
        self.shared.id
    }

    /// The messages that were accepted, for others to listen to.
    #[must_use]
    pub fn hub(&self) -> Hub {
        self.hub.clone()
    }

    /// How it is doing.
    #[must_use]
    pub fn status(&self) -> Status {
        let engine = self.shared.engine.lock();
        Status {
            pending: engine.pending(),
            partitioned: engine.is_partitioned(),
            strategy: engine.strategy().clone(),
            clock_error_ms: self.shared.clock.read().error.as_millis() as u64,
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

impl Shared {
    /// Takes up what an earlier run has left.
    fn restore(&self) -> Result<(), OutboxError> {
        let mut replaced = Vec::new();
        for (number, item) in self.outbox.items()? {
            let expires = expiry(&item);
            let older = self
                .engine
                .lock()
                .on_item(item.key, Item { number, expires });
            replaced.extend(older);
        }
        self.outbox.delete(&replaced)
    }

    fn accept(&self, request: Request<Bytes>, key: Option<&str>) -> Result<Ticket, SubmitError> {
        let (tell, outcome) = oneshot::channel();
        let _one_at_a_time = self.accepting.lock();
        let number = self.outbox.next_number()?;
        let item = self.stored(number, request, key)?;
        self.outbox.accept(number, &item)?;
        self.waiting.lock().insert(number, tell);
        let expires = expiry(&item);
        let replaced = self
            .engine
            .lock()
            .on_item(item.key, Item { number, expires });
        if let Some(older) = replaced {
            self.finish(older, Outcome::Replaced)?;
        }
        Ok(Ticket { number, outcome })
    }

    fn stored(
        &self,
        number: u64,
        request: Request<Bytes>,
        key: Option<&str>,
    ) -> Result<StoredItem, SubmitError> {
        let now = self.clock.read();
        let stamp = Stamp {
            client: self.stamper.public_key(),
            item: number,
            made: now.at,
            error: now.error,
            delay_max: self.delay_max,
        };
        let (parts, body) = request.into_parts();
        let header = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
            let value = value.to_str().ok()?;
            Some((name.as_str().to_owned(), value.to_owned()))
        };
        Ok(StoredItem {
            key: key.map(str::to_owned),
            made_ms: now.at.as_nanos() / 1_000_000,
            delay_max_ms: self.delay_max.as_millis() as u64,
            stamp: stamp.sign(&*self.stamper).ok_or(SubmitError::Stamper)?,
            method: parts.method.to_string(),
            uri: parts.uri.to_string(),
            headers: parts.headers.iter().filter_map(header).collect(),
            body: body.to_vec(),
        })
    }

    /// An item has come to its end: off the disk, then told.
    fn finish(&self, number: u64, outcome: Outcome) -> Result<(), OutboxError> {
        self.outbox.delete(&[number])?;
        if let Some(tell) = self.waiting.lock().remove(&number) {
            // Whoever submitted it need not wait.
            let _ = tell.send(outcome);
        }
        Ok(())
    }

    fn expire(&self, now: Timestamp) {
        let expired = self.engine.lock().expire(now);
        for number in expired {
            // What stays on disk expires again after the next start.
            let _ = self.finish(number, Outcome::Expired);
        }
    }

    fn on_sent(&self, number: u64, sent: Sent) {
        match sent {
            Sent::Answered(response) => {
                // Deleted before the next one goes: if that fails, it goes again, by its number.
                let _ = self.finish(number, Outcome::Answered(response));
                self.engine.lock().on_answered();
            }
            Sent::Failed(after) => {
                let now = self.clock.now();
                let not_before = after.map(|after| now + after);
                let obsolete = self.engine.lock().on_failed(now, not_before);
                if let Some(number) = obsolete {
                    let _ = self.finish(number, Outcome::Replaced);
                }
            }
        }
    }
}

fn expiry(item: &StoredItem) -> Timestamp {
    let made = Duration::from_millis(item.made_ms);
    Timestamp::ZERO + made + Duration::from_millis(item.delay_max_ms)
}

/// Carries the engine's decisions out.
async fn drive(
    shared: Arc<Shared>,
    mut arrivals: mpsc::UnboundedReceiver<Change>,
    changes: mpsc::UnboundedSender<Change>,
    inlet: Inlet,
) {
    loop {
        let now = shared.clock.now();
        shared.expire(now);
        let action = shared.engine.lock().next(now);
        let wait = match action {
            Action::Send(number) => {
                tokio::spawn(send_item(Arc::clone(&shared), number, changes.clone()));
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
                if let Some(bytes) = report.message.as_deref().and_then(from_text) {
                    inlet.offer(bytes).await;
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
        Ok(Some(item)) => send(&item, sender).await,
        _ => Report {
            sent: Sent::Failed(None),
            message: None,
        },
    };
    // The driver is gone only when the client is.
    let _ = changes.send(Change::Sent(number, report));
}

//! The life of an item: accepted, stamped, written, sent, and told what became of it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use parking_lot::Mutex;
use serde::Serialize;
use tidegate_channel::net::{Clock, Dialer};
use tidegate_channel::stamp::{Content, Stamp, Stamper, client_id};
use tidegate_channel::{ClientId, SecretKey};
use tidegate_control::Timestamp;
use tokio::sync::oneshot;

use crate::config::Config;
use crate::engine::{Engine, EngineConfig, Item};
use crate::outbox::{Outbox, OutboxError, StoredItem};
use crate::send::Sent;

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

/// A held item goes again after this long, if the proxy does not say when.
const HELD_FOR: Duration = Duration::from_secs(60);

/// Why the proxy does not pass this client's items on. They stay in the outbox, and go again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Hold {
    /// The item that was held.
    pub item: u64,
    /// The proxy's word for it: `banned`, `told-to-wait`, `stranger`, `unproven`, `ahead`, `again`.
    pub reason: String,
    /// Seconds until the next attempt, when it was held.
    pub for_s: u64,
    /// What to do about it.
    pub remedy: &'static str,
}

impl Hold {
    fn new(item: u64, reason: String, wait: Duration) -> Self {
        let remedy = match reason.as_str() {
            "banned" => {
                "this client sent too often when it was told to wait; the operator can pardon it"
            }
            "stranger" => {
                "this client may not take part; give its public key to the operator, for `channel.members`"
            }
            "unproven" => {
                "the item arrived changed: nothing between client and proxy may rewrite its path or body"
            }
            "ahead" => "this machine's clock is fast, and the channel's could not be compared",
            _ => "it goes again by itself",
        };
        Self {
            item,
            reason,
            for_s: wait.as_secs_f64().ceil() as u64,
            remedy,
        }
    }
}

/// What became of an item.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// The server answered.
    Answered(Response<Bytes>),
    /// A newer item of its key took its place.
    Replaced,
    /// It was no longer of use.
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

/// What a client has and knows, shared by its tasks.
pub(crate) struct Shared {
    pub(crate) outbox: Outbox,
    pub(crate) clock: Arc<Clock>,
    pub(crate) engine: Mutex<Engine>,
    waiting: Mutex<HashMap<u64, oneshot::Sender<Outcome>>>,
    /// Why the last item did not go, until one does.
    pub(crate) hold: Mutex<Option<Hold>>,
    pub(crate) stamper: Arc<dyn Stamper>,
    pub(crate) id: ClientId,
    pub(crate) delay_max: Duration,
    pub(crate) dialer: Dialer,
    /// One number at a time.
    accepting: Mutex<()>,
}

impl Shared {
    /// Opens the outbox and takes up what an earlier run has left.
    pub(crate) fn open(config: &Config) -> Result<Self, OutboxError> {
        let outbox = Outbox::open(&config.outbox)?;
        let own = || Arc::new(SecretKey::from_seed(outbox.seed())) as Arc<dyn Stamper>;
        let stamper = config.stamper.clone().unwrap_or_else(own);
        let id = client_id(&stamper.public_key());
        let clock = Arc::<Clock>::default();
        let engine = EngineConfig {
            id,
            variant: config.variant,
            fallback: config.fallback,
            silence: config.silence,
            grace: config.grace,
        };
        let shared = Self {
            engine: Mutex::new(Engine::new(engine, clock.now())),
            outbox,
            clock,
            waiting: Mutex::default(),
            hold: Mutex::default(),
            stamper,
            id,
            delay_max: config.delay_max,
            dialer: config.dialer.clone(),
            accepting: Mutex::new(()),
        };
        shared.restore()?;
        Ok(shared)
    }

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

    pub(crate) fn accept(
        &self,
        request: Request<Bytes>,
        key: Option<&str>,
        delay_max: Duration,
    ) -> Result<Ticket, SubmitError> {
        let (tell, outcome) = oneshot::channel();
        let _one_at_a_time = self.accepting.lock();
        let number = self.outbox.next_number()?;
        let item = self.stored(number, request, key, delay_max)?;
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
        delay_max: Duration,
    ) -> Result<StoredItem, SubmitError> {
        let now = self.clock.read();
        let (parts, body) = request.into_parts();
        let target = parts.uri.path_and_query();
        let target = target.map_or("/", |target| target.as_str());
        let stamp = Stamp {
            client: self.stamper.public_key(),
            item: number,
            made: now.at,
            error: now.error,
            delay_max,
            content: Content::of(parts.method.as_str(), target, &body),
            clock: self.clock.proof(),
        };
        let header = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
            let value = value.to_str().ok()?;
            Some((name.as_str().to_owned(), value.to_owned()))
        };
        Ok(StoredItem {
            key: key.map(str::to_owned),
            made_ms: now.at.as_nanos() / 1_000_000,
            delay_max_ms: delay_max.as_millis() as u64,
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
            // The submitter need not wait.
            let _ = tell.send(outcome);
        }
        Ok(())
    }

    pub(crate) fn expire(&self, now: Timestamp) {
        let expired = self.engine.lock().expire(now);
        for number in expired {
            // What stays on disk expires again after the next start.
            let _ = self.finish(number, Outcome::Expired);
        }
    }

    pub(crate) fn on_sent(&self, number: u64, sent: Sent) {
        match sent {
            Sent::Answered(response) => {
                // Deleted before the next one goes: if that fails, it goes again, by its number.
                let _ = self.finish(number, Outcome::Answered(response));
                self.engine.lock().on_answered();
                *self.hold.lock() = None;
            }
            Sent::Failed(after) => self.again(after),
            Sent::Held(reason, after) => {
                let wait = after.unwrap_or(HELD_FOR);
                *self.hold.lock() = Some(Hold::new(number, reason, wait));
                self.again(Some(wait));
            }
        }
    }

    /// The item under way goes again.
    fn again(&self, after: Option<Duration>) {
        let now = self.clock.now();
        let not_before = after.map(|after| now + after);
        let obsolete = self.engine.lock().on_failed(now, not_before);
        if let Some(number) = obsolete {
            let _ = self.finish(number, Outcome::Replaced);
        }
    }
}

fn expiry(item: &StoredItem) -> Timestamp {
    let made = Duration::from_millis(item.made_ms);
    Timestamp::ZERO + made + Duration::from_millis(item.delay_max_ms)
}

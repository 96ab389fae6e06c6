//! A relay: receives messages by trees and other overlays, verifies, passes on. A client is a relay
//! without children.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use super::sync::Clock;
use super::tree::Tree;
use super::{Dialer, Hub};
use crate::key::PublicKey;
use crate::message::ControlMessage;
use crate::stamp::Stamper;
use crate::verify::{Counts, Rejection, Verifier};

/// A parent that says nothing for this long is as good as dead: five of the proxy's keep-alives.
const PARENT_SILENCE_MAX: Duration = Duration::from_secs(10);

/// Where messages come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Parents {
    /// These, always.
    Fixed(Vec<String>),
    /// The relay that the tracker there assigns.
    Tracked {
        /// The publisher's address.
        tracker: String,
        /// Our own address, for others to subscribe to; `None` for a leaf.
        own: Option<String>,
    },
}

/// What an overlay does, for ever.
pub type Running = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A way by which messages come, and perhaps go on: trees of relays, gossip among peers. Whatever
/// it is, it offers what it receives, and passes on only what was accepted.
pub trait Overlay: Send {
    /// Offers what it receives to `inlet`; what `hub` has was accepted, by whichever way it came.
    fn run(self: Box<Self>, inlet: Inlet, hub: Hub) -> Running;
}

/// How a relay is doing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RelayStatus {
    /// Number of the newest message.
    pub seq: Option<u64>,
    /// Parents whose messages are received.
    pub parents: Vec<String>,
    /// Messages accepted, dropped and missed.
    pub messages: Counts,
    /// How many listen here.
    pub listeners: usize,
    /// Copies of messages that were written.
    pub copies: u64,
    /// Whether the publisher's clock is known; else messages are judged by this machine's.
    pub clock_compared: bool,
    /// How far it may be off, in milliseconds.
    pub clock_error_ms: u64,
}

/// Passes on what it believes.
pub struct Relay {
    hub: Hub,
    verifier: Arc<Mutex<Verifier>>,
    clock: Arc<Clock>,
    /// Whose clock it is.
    publishers: Vec<String>,
    tree: Tree,
    others: Vec<Box<dyn Overlay>>,
    inlet: mpsc::Sender<Offer>,
    arrivals: mpsc::Receiver<Offer>,
}

impl std::fmt::Debug for Relay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Relay")
            .field("parents", &self.tree.parents)
            .finish_non_exhaustive()
    }
}

/// What was thought of a message.
type Judgement = Result<(), Rejection>;

struct Offer {
    bytes: Vec<u8>,
    judged: Option<oneshot::Sender<Judgement>>,
}

/// Takes messages, from wherever they come: a parent, a response, another overlay.
#[derive(Debug, Clone)]
pub struct Inlet(mpsc::Sender<Offer>);

impl Inlet {
    /// Offers a message; it is verified like any other. False when the relay is gone.
    pub async fn offer(&self, bytes: Vec<u8>) -> bool {
        let judged = None;
        self.0.send(Offer { bytes, judged }).await.is_ok()
    }

    /// Offers a message and waits for what is thought of it; `None` when the relay is gone.
    pub async fn judge(&self, bytes: Vec<u8>) -> Option<Judgement> {
        let (judged, judgement) = oneshot::channel();
        let judged = Some(judged);
        self.0.send(Offer { bytes, judged }).await.ok()?;
        judgement.await.ok()
    }
}

impl Relay {
    /// Believes messages of `keys`; `seed` differs between relays, for their waits to differ.
    #[must_use]
    pub fn new(keys: &[PublicKey], parents: Parents, seed: u64) -> Self {
        let (inlet, arrivals) = mpsc::channel(64);
        let clock = Arc::<Clock>::default();
        Self {
            inlet,
            arrivals,
            hub: Hub::default(),
            verifier: Arc::new(Mutex::new(Verifier::new(keys))),
            publishers: match &parents {
                // One of them may be the publisher.
                Parents::Fixed(parents) => parents.clone(),
                Parents::Tracked { tracker, .. } => vec![tracker.clone()],
            },
            clock: Arc::clone(&clock),
            tree: Tree {
                parents,
                clock,
                listened: Arc::default(),
                dialer: Dialer::default(),
                member: None,
                seed,
                silence: PARENT_SILENCE_MAX,
            },
            others: Vec::new(),
        }
    }

    /// Passes accepted messages on by this hub, which is served already.
    #[must_use]
    pub fn with_hub(mut self, hub: Hub) -> Self {
        self.hub = hub;
        self
    }

    /// Gives up on a parent that says nothing for this long, instead of ten seconds.
    #[must_use]
    pub fn with_silence(mut self, silence: Duration) -> Self {
        self.tree.silence = silence;
        self
    }

    /// Reaches parents and tracker by this.
    #[must_use]
    pub fn with_dialer(mut self, dialer: Dialer) -> Self {
        self.tree.dialer = dialer;
        self
    }

    /// Compares clocks with this publisher, and shares what it knows.
    #[must_use]
    pub fn with_clock(mut self, clock: Arc<Clock>, publisher: &str) -> Self {
        self.clock = Arc::clone(&clock);
        self.tree.clock = clock;
        self.publishers = vec![publisher.to_owned()];
        self
    }

    /// Registers as a member of a closed group.
    #[must_use]
    pub fn with_member(mut self, member: Arc<dyn Stamper>) -> Self {
        self.tree.member = Some(member);
        self
    }

    /// Takes part in another overlay as well.
    #[must_use]
    pub fn with_overlay(mut self, overlay: Box<dyn Overlay>) -> Self {
        self.others.push(overlay);
        self
    }

    /// Where accepted messages go.
    #[must_use]
    pub fn hub(&self) -> Hub {
        self.hub.clone()
    }

    /// Takes messages that came another way.
    #[must_use]
    pub fn inlet(&self) -> Inlet {
        Inlet(self.inlet.clone())
    }

    /// What was accepted and dropped, to be looked at while it runs.
    pub fn counts(&self) -> impl Fn() -> Counts + Send + Sync + use<> {
        let verifier = Arc::clone(&self.verifier);
        move || verifier.lock().counts()
    }

    /// How it is doing, to be looked at while it runs.
    pub fn status(&self) -> impl Fn() -> RelayStatus + Send + Sync + use<> {
        let (verifier, hub) = (Arc::clone(&self.verifier), self.hub.clone());
        let (clock, listened) = (Arc::clone(&self.clock), Arc::clone(&self.tree.listened));
        move || RelayStatus {
            seq: hub.newest().map(|packed| packed.seq),
            parents: listened.lock().clone(),
            messages: verifier.lock().counts(),
            listeners: hub.listeners(),
            copies: hub.copies(),
            clock_compared: clock.proof().is_some(),
            clock_error_ms: clock.read().error.as_millis() as u64,
        }
    }

    /// Runs for ever; accepted messages go to the hub and to `accepted`.
    pub async fn run(self, mut accepted: impl FnMut(ControlMessage) + Send) {
        let Self {
            hub,
            verifier,
            clock,
            publishers,
            tree,
            others,
            inlet,
            mut arrivals,
        } = self;
        // Ended when this future is dropped.
        let mut overlays = JoinSet::new();
        let believed = Arc::clone(&verifier);
        let (compared, dialer) = (Arc::clone(&clock), tree.dialer.clone());
        overlays.spawn(async move {
            let keys = |now| believed.lock().keys(now);
            compared.keep(&dialer, publishers, keys).await;
        });
        let tree: Box<dyn Overlay> = Box::new(tree);
        for overlay in others.into_iter().chain([tree]) {
            overlays.spawn(overlay.run(Inlet(inlet.clone()), hub.clone()));
        }
        while let Some(Offer { bytes, judged }) = arrivals.recv().await {
            let checked = verifier.lock().accept_at(clock.read(), &bytes);
            if let Err(Rejection::Expired | Rejection::Future) = checked {
                clock.doubt();
            }
            let judgement = checked.map(|message| {
                hub.publish(&bytes);
                accepted(message);
            });
            if let Some(judged) = judged {
                // The caller may have gone.
                let _ = judged.send(judgement);
            }
        }
    }
}

//! A relay: subscribes to parents, verifies, passes on. A client is a relay to which nobody
//! listens.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::subscribe::{Backoff, Subscription};
use super::tracker::{Assignment, REGISTER_EVERY};
use super::{Hub, JOIN_PATH, http, unix_now};
use crate::key::PublicKey;
use crate::message::ControlMessage;
use crate::verify::{Counts, Verifier};

/// After so many failures in a row a parent is reported as dead, and others are asked for.
const FAILURES_MAX: u32 = 3;

/// A parent that says nothing for this long is as good as dead: five of the proxy's keep-alives.
const SILENCE: Duration = Duration::from_secs(10);

/// Where messages come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Parents {
    /// These, always.
    Fixed(Vec<String>),
    /// Whoever the tracker there assigns, and that publisher itself when all are lost.
    Tracked {
        /// The publisher's address.
        tracker: String,
        /// Our own address, for others to subscribe to; `None` for a leaf.
        own: Option<String>,
    },
}

/// Passes on what it believes.
#[derive(Debug)]
pub struct Relay {
    hub: Hub,
    verifier: Arc<Mutex<Verifier>>,
    parents: Parents,
    seed: u64,
    silence: Duration,
    news: mpsc::Sender<News>,
    arrivals: mpsc::Receiver<News>,
}

/// Takes messages that came another way: with a response, say.
#[derive(Debug, Clone)]
pub struct Inlet(mpsc::Sender<News>);

impl Inlet {
    /// Offers a message; it is verified like any other.
    pub async fn offer(&self, bytes: Vec<u8>) {
        // The relay is gone only when nobody needs it.
        let _ = self.0.send(News::Message(bytes)).await;
    }
}

impl Relay {
    /// Believes messages of `keys`; `seed` differs between relays, for their waits to differ.
    #[must_use]
    pub fn new(keys: &[PublicKey], parents: Parents, seed: u64) -> Self {
        let (news, arrivals) = mpsc::channel(64);
        Self {
            news,
            arrivals,
            hub: Hub::default(),
            verifier: Arc::new(Mutex::new(Verifier::new(keys))),
            parents,
            seed,
            silence: SILENCE,
        }
    }

    /// Gives up on a parent that says nothing for this long, instead of ten seconds.
    #[must_use]
    pub fn with_silence(self, silence: Duration) -> Self {
        Self { silence, ..self }
    }

    /// Where accepted messages go.
    #[must_use]
    pub fn hub(&self) -> Hub {
        self.hub.clone()
    }

    /// Takes messages that came another way.
    #[must_use]
    pub fn inlet(&self) -> Inlet {
        Inlet(self.news.clone())
    }

    /// What was accepted and dropped, to be looked at while it runs.
    pub fn counts(&self) -> impl Fn() -> Counts + Send + Sync + use<> {
        let verifier = Arc::clone(&self.verifier);
        move || verifier.lock().counts()
    }

    /// Runs for ever; accepted messages go to the hub and to `accepted`.
    pub async fn run(self, mut accepted: impl FnMut(ControlMessage) + Send) {
        let Self {
            hub,
            verifier,
            parents,
            seed,
            silence,
            news,
            mut arrivals,
        } = self;
        let asking = Asking {
            hub: hub.clone(),
            parents,
            seed,
        };
        let mut family = Family {
            asking,
            silence,
            news,
            parents: HashMap::new(),
            generation: 0,
        };
        family.assign(None).await;
        let mut register = tokio::time::interval(REGISTER_EVERY);
        register.tick().await;
        loop {
            tokio::select! {
                news = arrivals.recv() => match news {
                    Some(News::Message(bytes)) => {
                        let checked = verifier.lock().accept(unix_now(), &bytes);
                        if let Ok(message) = checked {
                            hub.publish(&bytes);
                            accepted(message);
                        }
                    }
                    Some(News::Dead(parent)) => family.assign(Some(parent)).await,
                    None => return,
                },
                _ = register.tick() => family.register().await,
            }
        }
    }
}

/// What is needed to ask the tracker.
struct Asking {
    hub: Hub,
    parents: Parents,
    seed: u64,
}

impl Asking {
    /// Asks the tracker; again and again, if patient.
    async fn ask(&self, dead: Option<&str>, patient: bool) -> Option<Assignment> {
        let Parents::Tracked { tracker, own } = &self.parents else {
            return None;
        };
        let mut path = format!("{JOIN_PATH}?children={}", self.hub.listeners());
        for (name, value) in [("relay", own.as_deref()), ("dead", dead)] {
            if let Some(value) = value {
                path += &format!("&{name}={value}");
            }
        }
        let mut backoff = Backoff::new(self.seed ^ 0x5eed);
        loop {
            let answer = http::get(tracker, &path).await.ok();
            let assignment = answer.and_then(|json| serde_json::from_str(&json).ok());
            if assignment.is_some() || !patient {
                return assignment;
            }
            tokio::time::sleep(backoff.next_wait()).await;
        }
    }
}

#[derive(Debug)]
enum News {
    Message(Vec<u8>),
    Dead(String),
}

/// The parents that are listened to, each by a task.
struct Family {
    asking: Asking,
    silence: Duration,
    news: mpsc::Sender<News>,
    parents: HashMap<String, Listening>,
    generation: u64,
}

struct Listening(JoinHandle<()>);

impl Drop for Listening {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Family {
    /// Takes the parents that are given, or those that the tracker names.
    async fn assign(&mut self, dead: Option<String>) {
        if let Some(dead) = &dead {
            self.parents.remove(dead);
        }
        let (parents, wait) = match &self.asking.parents {
            Parents::Fixed(parents) => (parents.clone(), Duration::ZERO),
            // Whoever still has a parent does not wait for the tracker to come back.
            Parents::Tracked { .. } => {
                let patient = self.parents.is_empty();
                match self.asking.ask(dead.as_deref(), patient).await {
                    Some(assignment) => {
                        let wait = Duration::from_millis(assignment.wait_ms);
                        (assignment.parents, wait)
                    }
                    None => return,
                }
            }
        };
        for parent in parents {
            self.listen(parent, wait);
        }
    }

    async fn register(&mut self) {
        if let Parents::Tracked { own: Some(_), .. } = &self.asking.parents {
            let _ = self.asking.ask(None, false).await;
        }
    }

    fn listen(&mut self, parent: String, wait: Duration) {
        self.generation += 1;
        let news = self.news.clone();
        let backoff = Backoff::new(self.asking.seed ^ (self.generation << 32));
        let silence = self.silence;
        let tracked = matches!(self.asking.parents, Parents::Tracked { .. });
        self.parents.entry(parent.clone()).or_insert_with(|| {
            Listening(tokio::spawn(async move {
                tokio::time::sleep(wait).await;
                listen(parent, news, backoff, (tracked, silence)).await;
            }))
        });
    }
}

/// Listens to one parent, again and again; gives up on it when it is gone or silent and others can
/// be asked for.
async fn listen(
    parent: String,
    news: mpsc::Sender<News>,
    mut backoff: Backoff,
    (tracked, silence): (bool, Duration),
) {
    let mut failures = 0;
    loop {
        if let Ok(mut subscription) = Subscription::open(&parent).await {
            loop {
                match tokio::time::timeout(silence, subscription.next()).await {
                    Ok(Some(message)) => {
                        failures = 0;
                        backoff.reset();
                        if news.send(News::Message(message)).await.is_err() {
                            return;
                        }
                    }
                    Ok(None) => break,
                    Err(_) => {
                        failures = FAILURES_MAX;
                        break;
                    }
                }
            }
        }
        failures += 1;
        tokio::time::sleep(backoff.next_wait()).await;
        if tracked && failures >= FAILURES_MAX {
            let _ = news.send(News::Dead(parent)).await;
            return;
        }
    }
}

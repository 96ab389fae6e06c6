//! Trees of relays: a relay keeps as many parents as it should have, each by a task.
//!
//! ```text
//!  listening ── broken ──► again, soon ── fails ──► dead ◄── silent ── listening
//!      ▲                                                                      │ report
//!      └────────── wait as told ◄── assignment ◄── tracker ◄──────────────────┘
//! ```
//!
//! Asking the tracker never keeps a message waiting: while it does not answer, messages still come
//! from the parents that are left, or with responses.
//!
//! Decision: docs/decisions/0042-relays-find-new-parents.md.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

use super::http::HttpError;
use super::relay::{Inlet, Overlay, Parents, Running};
use super::subscribe::{Backoff, Subscription};
use super::{Clock, Dialer, Hub, JOIN_PATH, STAMP_HEADER};
use crate::stamp::{Stamper, join_stamp};
use crate::tracker::{Assignment, PARENTS, REGISTER_EVERY};

/// After this many failures in a row a parent is reported as dead, and another is asked for: one
/// that was restarted is found again, and one that is gone costs a tenth of a second. When half of
/// all relays die together, every second one that the tracker knows is dead, and must be found out.
const FAILURES_MAX: u32 = 2;

/// A tracker that has not answered after this long is asked again.
const TRACKER_TIMEOUT: Duration = Duration::from_secs(2);

/// A relay's place in the trees: who its parents are, and how they are found and reached.
#[derive(Clone)]
pub(super) struct Tree {
    pub(super) parents: Parents,
    pub(super) dialer: Dialer,
    /// The server's.
    pub(super) clock: Arc<Clock>,
    /// Parents whose messages are received, for those who look.
    pub(super) listened: Arc<Mutex<Vec<String>>>,
    /// Signs what is said to the tracker of a closed group.
    pub(super) member: Option<Arc<dyn Stamper>>,
    pub(super) seed: u64,
    /// A parent that says nothing for this long is given up.
    pub(super) silence: Duration,
}

impl Overlay for Tree {
    fn run(self: Box<Self>, inlet: Inlet, hub: Hub) -> Running {
        Box::pin(Family::new(*self, inlet, hub).keep())
    }
}

/// A question to the tracker.
struct Question {
    tracker: String,
    own: Option<String>,
    /// Everything after `?`.
    query: String,
    /// The same without registering, for those who may not relay.
    as_leaf: String,
}

impl Tree {
    /// Asks until there is an answer. One that may not relay receives all the same.
    async fn ask(self, question: Question) -> Assignment {
        let mut backoff = Backoff::new(self.seed ^ 0x5eed);
        let leaf = Question {
            tracker: question.tracker.clone(),
            own: None,
            query: question.as_leaf.clone(),
            as_leaf: String::new(),
        };
        let mut asked = &question;
        loop {
            match self.ask_once(asked).await {
                Ok(assignment) => return assignment,
                Err(HttpError::Status(_, StatusCode::FORBIDDEN)) => asked = &leaf,
                Err(_) => {}
            }
            tokio::time::sleep(backoff.next_wait()).await;
        }
    }

    async fn ask_once(&self, question: &Question) -> Result<Assignment, HttpError> {
        let Question {
            tracker,
            own,
            query,
            ..
        } = question;
        let own = own.as_deref().unwrap_or_default();
        let member = self.member.as_deref();
        let stamp = member.and_then(|member| join_stamp(member, own, self.clock.now()));
        let header = stamp.as_deref().map(|stamp| (STAMP_HEADER, stamp));
        let path = format!("{JOIN_PATH}?{query}");
        let asked = self.dialer.get(tracker, &path, header);
        let broken = |cause: String| HttpError::Broken(tracker.clone(), cause);
        let json = tokio::time::timeout(TRACKER_TIMEOUT, asked).await;
        let json = json.map_err(|elapsed| broken(elapsed.to_string()))??;
        serde_json::from_str(&json).map_err(|error| broken(error.to_string()))
    }
}

/// Ends its task when dropped.
struct Listening(JoinHandle<()>);

impl Drop for Listening {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The parents whose messages are received.
struct Family {
    tree: Tree,
    inlet: Inlet,
    hub: Hub,
    parents: HashMap<String, Listening>,
    /// Parents that were given up.
    dead: mpsc::UnboundedSender<String>,
    deaths: mpsc::UnboundedReceiver<String>,
    /// Questions that the tracker has not answered yet.
    asked: JoinSet<Assignment>,
    depth: Option<usize>,
    /// How often in a row the tracker had no parent for us.
    tries: u32,
    /// How many parents there were so far.
    generation: u64,
}

impl Family {
    fn new(tree: Tree, inlet: Inlet, hub: Hub) -> Self {
        let (dead, deaths) = mpsc::unbounded_channel();
        Self {
            tree,
            inlet,
            hub,
            parents: HashMap::new(),
            dead,
            deaths,
            asked: JoinSet::new(),
            depth: None,
            tries: 0,
            generation: 0,
        }
    }

    /// Listens for ever.
    async fn keep(mut self) {
        match self.tree.parents.clone() {
            Parents::Fixed(parents) => {
                for parent in parents {
                    self.listen(parent, Duration::ZERO, false);
                }
                self.show();
                std::future::pending::<()>().await;
            }
            Parents::Tracked { tracker, own } => self.track(&tracker, own.as_deref()).await,
        }
    }

    async fn track(&mut self, tracker: &str, own: Option<&str>) {
        self.ask(tracker, own, None);
        let mut again = Instant::now() + REGISTER_EVERY;
        loop {
            tokio::select! {
                Some(parent) = self.deaths.recv() => {
                    self.parents.remove(&parent);
                    self.show();
                    self.ask(tracker, own, Some(&parent));
                }
                Some(Ok(assignment)) = self.asked.join_next() => {
                    again = Instant::now() + Duration::from_millis(assignment.again_ms);
                    self.take(assignment);
                }
                () = tokio::time::sleep_until(again) => {
                    again = Instant::now() + REGISTER_EVERY;
                    // A leaf that has a parent has nothing to register.
                    let wants = own.is_some() || self.parents.is_empty();
                    if wants && self.asked.is_empty() {
                        self.ask(tracker, own, None);
                    }
                }
            }
        }
    }

    /// Says who we are and what we lack.
    fn ask(&mut self, tracker: &str, own: Option<&str>, dead: Option<&str>) {
        let mut query = format!("children={}", self.hub.listeners());
        // A leaf can be anywhere: it has no children.
        let depth = own.and(self.depth).map(|depth| depth.to_string());
        let tries = (self.tries > 0).then(|| self.tries.to_string());
        let said = [
            ("relay", own),
            ("dead", dead),
            ("depth", depth.as_deref()),
            ("tries", tries.as_deref()),
        ];
        let has = self
            .parents
            .keys()
            .map(|parent| ("parent", parent.as_str()));
        let said = said
            .into_iter()
            .filter_map(|(name, value)| Some((name, value?)));
        let mut as_leaf = query.clone();
        for (name, value) in said.chain(has) {
            let field = format!("&{name}={value}");
            query += &field;
            // In a closed group only members are believed about the dead.
            if !matches!(name, "relay" | "dead") {
                as_leaf += &field;
            }
        }
        let question = Question {
            tracker: tracker.to_owned(),
            own: own.map(str::to_owned),
            query,
            as_leaf,
        };
        self.asked.spawn(self.tree.clone().ask(question));
    }

    fn take(&mut self, assignment: Assignment) {
        self.depth = Some(assignment.depth);
        let wait = Duration::from_millis(assignment.wait_ms);
        for parent in assignment.parents {
            if self.parents.len() < PARENTS {
                self.listen(parent, wait, true);
            }
        }
        self.tries = if self.parents.is_empty() {
            self.tries.saturating_add(1)
        } else {
            0
        };
        self.show();
    }

    fn show(&self) {
        let mut parents: Vec<_> = self.parents.keys().cloned().collect();
        parents.sort();
        *self.tree.listened.lock() = parents;
    }

    fn listen(&mut self, parent: String, wait: Duration, replaceable: bool) {
        self.generation += 1;
        let mut listener = Listener {
            dialer: self.tree.dialer.clone(),
            backoff: Backoff::new(self.tree.seed ^ (self.generation << 32)),
            inlet: self.inlet.clone(),
            silence: self.tree.silence,
            failures_max: if replaceable { FAILURES_MAX } else { u32::MAX },
        };
        let dead = self.dead.clone();
        self.parents.entry(parent.clone()).or_insert_with(|| {
            Listening(tokio::spawn(async move {
                tokio::time::sleep(wait).await;
                listener.listen(&parent).await;
                // The receiver is gone only when the relay is.
                let _ = dead.send(parent);
            }))
        });
    }
}

/// Listens to one parent.
struct Listener {
    dialer: Dialer,
    backoff: Backoff,
    inlet: Inlet,
    silence: Duration,
    failures_max: u32,
}

impl Listener {
    /// Until the parent is given up: it broke off too often in a row, or was silent.
    async fn listen(&mut self, parent: &str) {
        let mut failures: u32 = 0;
        loop {
            if let Ok(mut subscription) = Subscription::open(&self.dialer, parent).await {
                match self.follow(&mut subscription).await {
                    Ending::Broken { heard: true } => failures = 0,
                    Ending::Broken { heard: false } => {}
                    Ending::Silent => failures = self.failures_max.saturating_sub(1),
                    Ending::Useless => return,
                }
            }
            failures = failures.saturating_add(1);
            if failures >= self.failures_max {
                return;
            }
            tokio::time::sleep(self.backoff.next_wait()).await;
        }
    }

    async fn follow(&mut self, subscription: &mut Subscription) -> Ending {
        let mut heard = false;
        loop {
            match tokio::time::timeout(self.silence, subscription.next()).await {
                Ok(Some(message)) => {
                    heard = true;
                    self.backoff.reset();
                    if !self.inlet.offer(message).await {
                        return Ending::Useless;
                    }
                }
                Ok(None) => return Ending::Broken { heard },
                Err(_) => return Ending::Silent,
            }
        }
    }
}

/// How a subscription ended.
enum Ending {
    Broken {
        heard: bool,
    },
    Silent,
    /// It is no longer needed.
    Useless,
}

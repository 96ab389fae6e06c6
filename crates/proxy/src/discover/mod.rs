//! Replicas that are found while the proxy runs: by name in the DNS, in a file, or as the endpoints
//! of a Service of Kubernetes.
//!
//! Every source is looked at again when its answer is no longer to be believed: after its time to
//! live in the DNS, within bounds. What it said last stays while it fails, or says that there is
//! nothing at all. A replica that is no longer named gets no new requests and finishes what is
//! inside; a new one warms up. Requests never wait for any of this.

mod dns;
mod file;
#[cfg(feature = "kubernetes")]
mod kubernetes;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::application::Application;
use crate::config::Discover;
use crate::pool::{Discovered, Member};
use crate::state::State;

/// How long an answer without a time to live is believed, within the bounds of its source.
const TTL_DEFAULT: Duration = Duration::from_secs(5);

/// How often settings without sources are looked at, should a change of them be missed.
const SETTINGS_INTERVAL: Duration = Duration::from_secs(60);

/// How long a proxy that starts waits for replicas to be found before it serves. Chosen: as long as
/// one question to the DNS that is not answered.
const FIRST_MAX: Duration = Duration::from_secs(5);

/// What a source says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) members: Vec<Member>,
    /// How long that may be believed; `None` where the source does not say.
    pub(crate) ttl: Option<Duration>,
}

/// One source, and what it said last.
struct Known {
    source: Discover,
    members: Vec<Member>,
    due: Instant,
    /// Whether it has ever answered.
    answered: bool,
    /// Why it could not be used when it was last looked at.
    failure: Option<String>,
    /// Begun at the first look.
    #[cfg(feature = "kubernetes")]
    watch: Option<kubernetes::Watch>,
}

impl Known {
    fn new(source: &Discover) -> Self {
        Self {
            source: source.clone(),
            members: Vec::new(),
            due: Instant::now(),
            answered: false,
            failure: None,
            #[cfg(feature = "kubernetes")]
            watch: None,
        }
    }

    async fn find(&mut self, _changed: &Arc<Notify>) -> Result<Found, String> {
        #[cfg(feature = "kubernetes")]
        if let Some(service) = &self.source.kubernetes {
            return kubernetes::find(&mut self.watch, service, _changed).await;
        }
        match &self.source.file {
            Some(path) => {
                let path = path.clone();
                blocking(move || file::read(&path)).await
            }
            None => dns::resolve(&self.source).await,
        }
    }

    /// Looks at the source. What it said before stays if it says nothing now. `changed` is notified
    /// by a source that knows when it is worth another look.
    async fn look(&mut self, changed: &Arc<Notify>, notice: &impl Fn(&str)) {
        let found = self.find(changed).await;
        let believed = match found {
            Ok(found) => {
                if self.failure.take().is_some() {
                    notice(&format!("{} is found again", self.source));
                }
                self.members = found.members;
                self.answered = true;
                found.ttl.unwrap_or(TTL_DEFAULT)
            }
            Err(failure) => {
                if self.failure.as_ref() != Some(&failure) {
                    notice(&format!(
                        "{}: {failure}; the replicas known so far stay",
                        self.source
                    ));
                    self.failure = Some(failure);
                }
                Duration::ZERO
            }
        };
        let (least, most) = (*self.source.ttl_min, *self.source.ttl_max);
        self.due = Instant::now() + believed.clamp(least, most.max(least));
    }
}

/// Keeps the pool of an application as its sources say, for ever.
pub(crate) async fn run(state: Arc<State>, application: Arc<Application>, notice: impl Fn(&str)) {
    let mut known: Vec<Known> = Vec::new();
    let changed = Arc::new(Notify::new());
    loop {
        // Before the settings are read, so that no change of them is missed.
        let settings_changed = application.changed();
        let sources = application.config().upstream.discover.clone();
        if !known.iter().map(|it| &it.source).eq(&sources) {
            known = sources.iter().map(Known::new).collect();
        }
        for it in &mut known {
            if it.due <= Instant::now() {
                it.look(&changed, &notice).await;
            }
        }
        let mut members = union(&known);
        if known.iter().any(|it| !it.answered) {
            // What was known before this process, or before the sources were made anew.
            add(
                &mut members,
                &state.known_replicas(application.name(), &sources),
            );
        }
        if !members.is_empty() {
            put_in_force(
                &state,
                &application,
                Discovered { sources, members },
                &notice,
            )
            .await;
        }
        let due = known.iter().map(|it| it.due).min();
        let due = due.unwrap_or_else(|| Instant::now() + SETTINGS_INTERVAL);
        // The settings have changed, a source has, or one is due.
        tokio::select! {
            () = settings_changed => {}
            () = changed.notified() => {
                let followed = known.iter_mut().filter(|it| it.source.kubernetes.is_some());
                followed.for_each(|it| it.due = Instant::now());
            }
            () = tokio::time::sleep_until(due) => {}
        }
    }
}

async fn put_in_force(
    state: &Arc<State>,
    application: &Application,
    found: Discovered,
    notice: &impl Fn(&str),
) {
    let (state, name) = (Arc::clone(state), application.name().to_owned());
    let set = move || {
        let set = state.set_discovered(&name, found);
        set.map_err(|error| error.to_string())
    };
    if let Err(error) = blocking(set).await {
        notice(&format!(
            "the replicas that were found cannot be used: {error}"
        ));
    }
}

/// Looks once at the sources of every application that has no replica yet, so that a proxy that
/// begins to serve has some. Returns when all have answered, or after `FIRST_MAX`: a source that is
/// away must not keep the proxy from the other applications. What fails is looked at again, and
/// told of, by [`run`].
pub(crate) async fn first(state: &Arc<State>) {
    let mut looks = JoinSet::new();
    let applications = state.applications();
    for application in applications.iter() {
        let sources = application.config().upstream.discover.clone();
        if sources.is_empty() || !application.settings().replica_ids().is_empty() {
            continue;
        }
        let (state, application) = (Arc::clone(state), Arc::clone(application));
        looks.spawn(async move {
            let mut known: Vec<_> = sources.iter().map(Known::new).collect();
            let changed = Arc::new(Notify::new());
            for it in &mut known {
                it.look(&changed, &|_: &str| {}).await;
            }
            let members = union(&known);
            if !members.is_empty() {
                let found = Discovered { sources, members };
                put_in_force(&state, &application, found, &|_: &str| {}).await;
            }
        });
    }
    let all = async { while looks.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(FIRST_MAX, all).await;
}

/// Does what reads files, away from the thread of the admin API.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(error.to_string()))
}

/// The replicas of all sources, each once.
fn union(known: &[Known]) -> Vec<Member> {
    let mut members = Vec::new();
    for it in known {
        add(&mut members, &it.members);
    }
    members
}

fn add(members: &mut Vec<Member>, more: &[Member]) {
    for member in more {
        if members.iter().all(|it| it.url != member.url) {
            members.push(member.clone());
        }
    }
}

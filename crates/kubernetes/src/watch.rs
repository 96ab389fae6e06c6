//! Follows the endpoints of a Service.
//!
//! What was seen last stays while the API server is away, and the watch goes on when it is back.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::connect::{describe, is_missing};
use crate::endpoints::{Endpoint, PortChoice, of_endpoints, of_slices};

/// After a failure it is tried again after one to two times this.
const RETRY: Duration = Duration::from_secs(1);
/// A failure that was not repeated for this long is over: a watch that goes on says nothing.
const FAILURE_OVER: Duration = Duration::from_secs(10);

/// What holds the endpoints of a Service.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Source {
    /// EndpointSlices where the cluster has them, Endpoints elsewhere.
    #[default]
    Auto,
    /// `discovery.k8s.io/v1`, or `v1beta1` before Kubernetes 1.21.
    EndpointSlices,
    /// The older `v1` Endpoints.
    Endpoints,
}

/// A Service, and which of its ports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceRef {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub service: String,
    /// The port.
    pub port: PortChoice,
    /// Where to look.
    pub source: Source,
}

/// What is known about a Service.
#[derive(Debug, Clone, Default)]
pub struct ServiceState {
    /// Nothing until they were read once.
    pub endpoints: Option<Vec<Endpoint>>,
    /// What went wrong last, and when.
    failed: Option<(Instant, String)>,
    /// What is wrong with what was read.
    unusable: Option<String>,
}

impl ServiceState {
    /// What is wrong now.
    #[must_use]
    pub fn failure(&self) -> Option<&str> {
        let recent = self.failed.as_ref();
        let recent = recent.filter(|(at, _)| at.elapsed() < FAILURE_OVER);
        self.unusable
            .as_deref()
            .or_else(|| recent.map(|(_, failure)| failure.as_str()))
    }
}

/// Follows a Service until it is dropped.
#[derive(Debug)]
pub struct ServiceWatch {
    seen: watch::Receiver<ServiceState>,
    task: JoinHandle<()>,
}

impl ServiceWatch {
    /// Begins to follow a Service; `changed` is called whenever something is new.
    #[must_use]
    pub fn new(
        client: Client,
        service: ServiceRef,
        changed: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        let (tell, seen) = watch::channel(ServiceState::default());
        let follower = Follower {
            client,
            service,
            tell,
            changed: Box::new(changed),
        };
        let task = tokio::spawn(follower.run());
        Self { seen, task }
    }

    /// What is known now.
    #[must_use]
    pub fn state(&self) -> ServiceState {
        self.seen.borrow().clone()
    }

    /// Waits until endpoints were read, or could not be, for this long at most.
    pub async fn settled(&self, limit: Duration) {
        let mut seen = self.seen.clone();
        let settled = |state: &ServiceState| state.endpoints.is_some() || state.failure().is_some();
        let _ = tokio::time::timeout(limit, seen.wait_for(settled)).await;
    }
}

impl Drop for ServiceWatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Follower {
    client: Client,
    service: ServiceRef,
    tell: watch::Sender<ServiceState>,
    changed: Box<dyn Fn() + Send + Sync>,
}

/// A kind of object that holds endpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Slice(&'static str),
    Endpoints,
}

impl Kind {
    fn resource(self) -> ApiResource {
        match self {
            Self::Slice(version) => ApiResource::from_gvk(&GroupVersionKind::gvk(
                "discovery.k8s.io",
                version,
                "EndpointSlice",
            )),
            Self::Endpoints => ApiResource::from_gvk_with_plural(
                &GroupVersionKind::gvk("", "v1", "Endpoints"),
                "endpoints",
            ),
        }
    }
}

impl Follower {
    async fn run(self) {
        let kind = loop {
            match self.kind().await {
                Ok(kind) => break kind,
                Err(error) => self.failed(describe(&error)).await,
            }
        };
        self.follow(kind).await;
    }

    /// The newest kind that the cluster serves.
    async fn kind(&self) -> Result<Kind, kube::Error> {
        if self.service.source == Source::Endpoints {
            return Ok(Kind::Endpoints);
        }
        for version in ["v1", "v1beta1"] {
            let group = format!("discovery.k8s.io/{version}");
            match self.client.list_api_group_resources(&group).await {
                Ok(_) => return Ok(Kind::Slice(version)),
                Err(error) if is_missing(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Kind::Endpoints)
    }

    async fn follow(&self, kind: Kind) {
        let resource = kind.resource();
        let name = &self.service.service;
        let config = match kind {
            Kind::Slice(_) => {
                watcher::Config::default().labels(&format!("kubernetes.io/service-name={name}"))
            }
            Kind::Endpoints => watcher::Config::default().fields(&format!("metadata.name={name}")),
        };
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), &self.service.namespace, &resource);
        follow(&api, config, |seen| match seen {
            Ok(objects) => self.publish(kind, objects),
            Err(failure) => self.note(failure),
        })
        .await;
    }

    fn publish(&self, kind: Kind, objects: &Objects) {
        let port = &self.service.port;
        let mut data = objects.values().map(|it| &it.data);
        let found = match kind {
            Kind::Slice(_) => of_slices(data, port),
            Kind::Endpoints => data
                .next()
                .map_or(Ok(Vec::new()), |object| of_endpoints(object, port)),
        };
        self.tell.send_modify(|state| {
            state.failed = None;
            match found {
                Ok(endpoints) => {
                    state.endpoints = Some(endpoints);
                    state.unusable = None;
                }
                // What was known stays.
                Err(error) => state.unusable = Some(error.to_string()),
            }
        });
        (self.changed)();
    }

    fn note(&self, failure: String) {
        self.tell
            .send_modify(|state| state.failed = Some((Instant::now(), failure)));
        (self.changed)();
    }

    async fn failed(&self, failure: String) {
        self.note(failure);
        rest().await;
    }
}

/// Waits before the next try: not as long as the others that fail too.
async fn rest() {
    let random = RandomState::new().build_hasher().finish() % 1000;
    tokio::time::sleep(RETRY + Duration::from_millis(random)).await;
}

/// Objects by their name.
pub type Objects = BTreeMap<String, DynamicObject>;

/// Follows objects for ever: `seen` gets all of them at every change, and every failure.
pub async fn follow(
    api: &Api<DynamicObject>,
    config: watcher::Config,
    mut seen: impl FnMut(Result<&Objects, String>),
) {
    let events = watcher(api.clone(), config);
    tokio::pin!(events);
    let mut objects = Objects::new();
    // A list that is read anew replaces the old one when it is complete.
    let mut anew = Objects::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => anew.clear(),
            Ok(Event::InitApply(object)) => {
                anew.insert(object.name_any(), object);
            }
            Ok(Event::InitDone) => {
                objects = std::mem::take(&mut anew);
                seen(Ok(&objects));
            }
            Ok(Event::Apply(object)) => {
                objects.insert(object.name_any(), object);
                seen(Ok(&objects));
            }
            Ok(Event::Delete(object)) => {
                objects.remove(&object.name_any());
                seen(Ok(&objects));
            }
            Err(error) => {
                seen(Err(in_words(&error)));
                rest().await;
            }
        }
    }
}

fn in_words(error: &watcher::Error) -> String {
    match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => describe(error),
        other => other.to_string(),
    }
}

//! The driver of an application: carries out what the scaler finds due.

use std::collections::BTreeSet;
use std::future::Future;
use std::time::{Duration, Instant};

use k8s_openapi::api::autoscaling::v1::Scale;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tidegate_kubernetes::{ServiceRef, ServiceWatch, Source, describe, is_missing};
use tidegate_plane::Decision;
use tidegate_planed::{Drain, Driver, KubernetesDriverConfig, Proxy, Saved, Seen, Task};

use crate::objects::now_text;
use crate::scaler::{Action, Change, Look, Scaler, address_of, url};

/// For one call of the API server.
const CALL_TIMEOUT: Duration = Duration::from_secs(3);
/// A pod of lower cost is deleted first.
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
/// Our mark beside it, by which a later daemon finds it.
const DRAINED: &str = "tidegate.dev/drained";
/// The readiness gate of pods that are drained by readiness.
const GATE: &str = "tidegate.dev/serving";
/// The first Kubernetes 1.x that knows the cost of deletion unless it is switched off.
const DELETION_COST_SINCE: u32 = 22;

/// Scales one Deployment or the like.
pub(crate) struct KubernetesDriver {
    application: String,
    config: KubernetesDriverConfig,
    client: Client,
    target: Api<DynamicObject>,
    pods: Api<Pod>,
    service: ServiceWatch,
    scaler: Scaler,
    selector: Option<String>,
    /// Whether marks of an earlier daemon were looked for.
    recovered: bool,
    /// The minor version of the server, once it is known.
    minor: Option<u32>,
}

impl KubernetesDriver {
    pub(crate) fn new(
        client: &Client,
        namespace: &str,
        application: &str,
        config: &KubernetesDriverConfig,
        saved: &[Saved],
    ) -> Self {
        let service = ServiceRef {
            namespace: namespace.to_owned(),
            service: config.service().to_owned(),
            port: config.port.parse().unwrap_or_default(),
            source: Source::Auto,
        };
        let ours: BTreeSet<_> = saved.iter().filter_map(|it| address_of(&it.url)).collect();
        Self {
            application: application.to_owned(),
            target: Api::namespaced_with(client.clone(), namespace, &resource(config)),
            pods: Api::namespaced(client.clone(), namespace),
            service: ServiceWatch::new(client.clone(), service, || {}),
            scaler: Scaler::new(config, ours),
            client: client.clone(),
            config: config.clone(),
            selector: None,
            recovered: false,
            minor: None,
        }
    }

    fn shown(&self) -> String {
        format!("{} {}", self.config.kind, self.config.name)
    }

    /// The number of servers that is set.
    async fn read_scale(&mut self) -> Result<u32, String> {
        let scale: Scale = within(self.target.get_scale(&self.config.name))
            .await
            .map_err(|error| format!("{}: {error}", self.shown()))?;
        self.selector = scale.status.and_then(|it| it.selector);
        let replicas = scale.spec.and_then(|it| it.replicas).unwrap_or(0);
        Ok(u32::try_from(replicas).unwrap_or(0))
    }

    async fn write_scale(&mut self, to: u32) -> Result<(), String> {
        let patch = json!({ "spec": { "replicas": to } });
        let (params, patch) = (PatchParams::default(), Patch::Merge(&patch));
        let written = self.target.patch_scale(&self.config.name, &params, &patch);
        within(written)
            .await
            .map_err(|error| format!("{}: {error}", self.shown()))?;
        self.scaler.on_scaled(to);
        Ok(())
    }

    /// Finds what an earlier daemon marked, and what the server can do.
    async fn recover(&mut self) -> Result<(), String> {
        if self.config.drain == Drain::None || self.recovered {
            return Ok(());
        }
        let marked = self.list_pods().await?;
        let marked = marked.iter().filter(|pod| self.is_marked(pod));
        let marked: Vec<String> = marked.map(ResourceExt::name_any).collect();
        self.scaler.on_found_marks(marked);
        let version = within(self.client.apiserver_version()).await?;
        let digits: String = version
            .minor
            .chars()
            .take_while(char::is_ascii_digit)
            .collect();
        self.minor = digits.parse().ok();
        self.recovered = true;
        Ok(())
    }

    fn is_marked(&self, pod: &Pod) -> bool {
        match self.config.drain {
            Drain::DeletionCost => pod.annotations().contains_key(DRAINED),
            Drain::Readiness => has_gate(pod) && gate(pod) == Some(false),
            Drain::None => false,
        }
    }

    async fn list_pods(&self) -> Result<Vec<Pod>, String> {
        let selector = self.selector.as_deref().unwrap_or_default();
        if selector.is_empty() {
            return Err(format!("{}: its scale has no selector", self.shown()));
        }
        let params = ListParams::default().labels(selector);
        let list = within(self.pods.list(&params)).await;
        Ok(list.map_err(|error| format!("pods: {error}"))?.items)
    }

    async fn mark(&mut self, pod: &str, marked: bool) -> Result<(), String> {
        let written = match self.config.drain {
            Drain::DeletionCost => self.annotate(pod, marked).await,
            Drain::Readiness => self.open_gate(pod, !marked).await,
            Drain::None => Ok(()),
        };
        written.map_err(|error| format!("pod {pod}: {error}"))?;
        if marked {
            self.scaler.on_marked(pod);
        } else {
            self.scaler.on_unmarked(pod);
        }
        Ok(())
    }

    async fn annotate(&self, pod: &str, marked: bool) -> Result<(), String> {
        let value = |text: &str| if marked { json!(text) } else { Value::Null };
        let annotations = json!({ DELETION_COST: value("-1000"), DRAINED: value("true") });
        let patch = json!({ "metadata": { "annotations": annotations } });
        let (params, patch) = (PatchParams::default(), Patch::Merge(&patch));
        let patched = self.pods.patch(pod, &params, &patch);
        tolerate_missing(within_raw(patched).await)
    }

    async fn open_gate(&self, pod: &str, open: bool) -> Result<(), String> {
        let (status, reason) = if open {
            ("True", "Serving")
        } else {
            ("False", "Drained")
        };
        let condition = json!({
            "type": GATE,
            "status": status,
            "reason": reason,
            "message": "set by the control plane of Tidegate",
            "lastTransitionTime": now_text(),
        });
        let patch = json!({ "status": { "conditions": [condition] } });
        let (params, patch) = (PatchParams::default(), Patch::Strategic(&patch));
        let patched = self.pods.patch_status(pod, &params, &patch);
        tolerate_missing(within_raw(patched).await)
    }

    /// Pods whose gate is not as it is to be: new ones, above all.
    async fn keep_gates(&mut self) -> Result<(), String> {
        if self.config.drain != Drain::Readiness {
            return Ok(());
        }
        let pods = self.list_pods().await?;
        let pods: Vec<&Pod> = pods
            .iter()
            .filter(|pod| pod.metadata.deletion_timestamp.is_none())
            .collect();
        if !pods.is_empty() && !pods.iter().any(|pod| has_gate(pod)) {
            return Err(format!(
                "the pods of {} have no readiness gate: add `readinessGates: [{{conditionType: \
                 {GATE}}}]` to the pod template, or use another `drain`",
                self.shown()
            ));
        }
        for pod in pods.into_iter().filter(|pod| has_gate(pod)) {
            let name = pod.name_any();
            if gate(pod).is_none() && !self.scaler.is_victim(&name) {
                self.open_gate(&name, true).await?;
            }
        }
        Ok(())
    }

    fn version_problem(&self) -> Option<String> {
        let old = self.minor.filter(|minor| *minor < DELETION_COST_SINCE)?;
        (self.config.drain == Drain::DeletionCost && self.config.kind != "StatefulSet").then(|| {
            format!(
                "{}: Kubernetes 1.{old} may delete other pods than those that were drained; use \
                 `drain = \"readiness\"`",
                self.shown()
            )
        })
    }

    async fn step(&mut self, proxies: &[Proxy], problems: &mut Vec<String>) -> Option<Seen> {
        let scale = keep(self.read_scale().await, problems);
        if scale.is_some() {
            keep(self.recover().await, problems);
            problems.extend(self.version_problem());
        }
        let mut pools = Vec::new();
        for proxy in proxies {
            let members = proxy.replicas(&self.application).await;
            pools.push(keep(members.map_err(|error| error.to_string()), problems));
        }
        let state = self.service.state();
        problems.extend(state.failure().map(|it| self.of_service(it)));
        let actions = self.scaler.plan(&Look {
            now: Instant::now(),
            scale,
            endpoints: state.endpoints.as_deref(),
            pools: &pools,
        });
        for action in actions {
            keep(self.perform(action, proxies).await, problems);
        }
        if scale.is_some() {
            keep(self.keep_gates().await, problems);
        }
        scale.and_then(|_| self.seen())
    }

    fn of_service(&self, failure: &str) -> String {
        format!("Service {}: {failure}", self.config.service())
    }

    fn seen(&self) -> Option<Seen> {
        Some(Seen {
            desired: self.scaler.desired()?,
            ready: self.scaler.ready(),
        })
    }

    async fn perform(&mut self, action: Action, proxies: &[Proxy]) -> Result<(), String> {
        match action {
            Action::Mark(pod) => self.mark(&pod, true).await,
            Action::Unmark(pod) => self.mark(&pod, false).await,
            Action::Scale(to) => self.write_scale(to).await,
            Action::Pool(index, change, server) => {
                let (proxy, name) = (&proxies[index], &self.application);
                let changed = match change {
                    Change::Add => proxy.add(name, &server).await,
                    Change::Drain => proxy.drain(name, &server).await,
                    Change::Undrain => proxy.undrain(name, &server).await,
                    Change::Remove => proxy.remove(name, &server).await,
                };
                changed.map_err(|error| error.to_string())
            }
        }
    }
}

impl Driver for KubernetesDriver {
    fn set<'a>(&'a mut self, decision: &'a Decision) -> Task<'a, Result<(), String>> {
        Box::pin(async move {
            let scale = self.read_scale().await?;
            match self.scaler.set(scale, decision.to) {
                Some(to) => self.write_scale(to).await,
                None => Ok(()),
            }
        })
    }

    fn advance<'a>(
        &'a mut self,
        proxies: &'a [Proxy],
        problems: &'a mut Vec<String>,
    ) -> Task<'a, Option<Seen>> {
        Box::pin(self.step(proxies, problems))
    }

    fn look<'a>(&'a mut self, problems: &'a mut Vec<String>) -> Task<'a, Option<Seen>> {
        Box::pin(async move {
            let scale = keep(self.read_scale().await, problems)?;
            let state = self.service.state();
            problems.extend(state.failure().map(|it| self.of_service(it)));
            self.scaler.observe(&Look {
                now: Instant::now(),
                scale: Some(scale),
                endpoints: state.endpoints.as_deref(),
                pools: &[],
            });
            Some(Seen {
                desired: scale,
                ready: self.scaler.ready(),
            })
        })
    }

    fn looks(&self) -> bool {
        true
    }

    fn saved(&self) -> Vec<Saved> {
        let saved = |address| Saved {
            url: url(address),
            pid: None,
        };
        self.scaler.ours().map(saved).collect()
    }

    /// Pods are the cluster's; nothing is stopped.
    fn stop_all<'a>(&'a mut self, _: &'a [Proxy]) -> Task<'a, ()> {
        Box::pin(async {})
    }
}

fn resource(config: &KubernetesDriverConfig) -> ApiResource {
    let (group, version) = config
        .api_version
        .split_once('/')
        .unwrap_or(("", &config.api_version));
    let kind = GroupVersionKind::gvk(group, version, &config.kind);
    ApiResource::from_gvk(&kind)
}

fn has_gate(pod: &Pod) -> bool {
    let gates = pod
        .spec
        .iter()
        .flat_map(|it| it.readiness_gates.iter().flatten());
    gates.into_iter().any(|it| it.condition_type == GATE)
}

/// Whether a pod's gate is open; nothing where it was never set.
fn gate(pod: &Pod) -> Option<bool> {
    let conditions = pod
        .status
        .iter()
        .flat_map(|it| it.conditions.iter().flatten());
    let found = conditions.into_iter().find(|it| it.type_ == GATE);
    found.map(|it| it.status == "True")
}

/// What came of it; a problem is noted.
fn keep<T>(outcome: Result<T, String>, problems: &mut Vec<String>) -> Option<T> {
    outcome.map_err(|problem| problems.push(problem)).ok()
}

async fn within_raw<T>(
    call: impl Future<Output = Result<T, kube::Error>>,
) -> Result<Result<T, kube::Error>, String> {
    tokio::time::timeout(CALL_TIMEOUT, call)
        .await
        .map_err(|_| "the API server does not answer".to_owned())
}

/// A call with a limit of time, and its error in words.
pub(crate) async fn within<T>(
    call: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, String> {
    within_raw(call).await?.map_err(|error| describe(&error))
}

/// A pod that is gone needs no mark.
fn tolerate_missing<T>(outcome: Result<Result<T, kube::Error>, String>) -> Result<(), String> {
    match outcome? {
        Ok(_) => Ok(()),
        Err(error) if is_missing(&error) => Ok(()),
        Err(error) => Err(describe(&error)),
    }
}

//! The `TidegateApplication`s of a namespace: read by a watch, their status written.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use k8s_openapi::jiff;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tidegate_kubernetes::{Objects, follow};
use tidegate_plane::PlaneConfig;
use tidegate_planed::{Declared, Report};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::accept::{Object, Verdict, accept};
use crate::driver::within;
use crate::resource::{ResourceStatus, TidegateApplication};
use crate::status::status;

/// Numbers of a status are written at most this often; conditions at once.
const WRITE_INTERVAL: Duration = Duration::from_secs(5);
/// A failure of the watch that was not repeated for this long is over.
const FAILURE_OVER: Duration = Duration::from_secs(10);
/// Fields of a status; those that are absent are deleted.
const FIELDS: [&str; 9] = [
    "observedGeneration",
    "servers",
    "ready",
    "needed",
    "rate",
    "capacity",
    "target",
    "reason",
    "conditions",
];

/// The time now, as Kubernetes writes it.
pub(crate) fn now_text() -> String {
    jiff::Timestamp::now()
        .strftime("%Y-%m-%dT%H:%M:%SZ")
        .to_string()
}

/// What the watch saw.
#[derive(Debug, Default)]
struct Found {
    /// Nothing until they were read once.
    objects: Option<Objects>,
    failure: Option<(Instant, String)>,
}

/// All objects of a namespace.
pub(crate) struct Applications {
    api: Api<DynamicObject>,
    found: watch::Receiver<Found>,
    task: JoinHandle<()>,
    verdicts: BTreeMap<String, Verdict>,
    /// What is in force.
    declared: Option<Vec<Declared>>,
    /// The status of each object as it was written last, and when.
    written: BTreeMap<String, (ResourceStatus, Instant)>,
    failure: Option<String>,
}

impl Drop for Applications {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Applications {
    pub(crate) fn new(client: Client, namespace: &str) -> Self {
        let resource = ApiResource::erase::<TidegateApplication>(&());
        let api: Api<DynamicObject> = Api::namespaced_with(client, namespace, &resource);
        let (tell, found) = watch::channel(Found::default());
        let watched = api.clone();
        let task = tokio::spawn(async move {
            follow(&watched, watcher::Config::default(), |seen| {
                tell.send_modify(|found| match seen {
                    Ok(objects) => {
                        found.objects = Some(objects.clone());
                        found.failure = None;
                    }
                    Err(failure) => found.failure = Some((Instant::now(), failure)),
                });
            })
            .await;
        });
        Self {
            api,
            found,
            task,
            verdicts: BTreeMap::new(),
            declared: None,
            written: BTreeMap::new(),
            failure: None,
        }
    }

    /// What is in force, if that changed.
    pub(crate) fn declared(&mut self, base: &PlaneConfig) -> Option<Vec<Declared>> {
        if !self.found.has_changed().unwrap_or(false) {
            return None;
        }
        let objects: Vec<Object> = {
            let found = self.found.borrow_and_update();
            found.objects.as_ref()?.values().map(object).collect()
        };
        self.verdicts = accept(base, &objects, &self.verdicts);
        self.written
            .retain(|name, _| self.verdicts.contains_key(name));
        let in_force = self.verdicts.values().filter_map(|it| it.declared.clone());
        let in_force: Vec<Declared> = in_force.collect();
        if self.declared.as_ref() == Some(&in_force) {
            return None;
        }
        self.declared = Some(in_force.clone());
        Some(in_force)
    }

    /// What is wrong.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let found = self.found.borrow();
        let watch = found.failure.as_ref();
        let watch = watch.filter(|(at, _)| at.elapsed() < FAILURE_OVER);
        let watch = watch.map(|(_, failure)| {
            format!("TidegateApplications: {failure}; is dist/kubernetes/crd.yaml applied?")
        });
        let refused = self.verdicts.iter().filter_map(|(name, verdict)| {
            let why = verdict.refused.as_ref()?;
            Some(format!("TidegateApplication {name}: {why}"))
        });
        watch
            .into_iter()
            .chain(self.failure.clone())
            .chain(refused)
            .collect()
    }

    /// Writes what changed.
    pub(crate) async fn report(&mut self, reports: &BTreeMap<String, Report<'_>>) {
        self.failure = None;
        let verdicts: Vec<(String, Verdict)> = self.verdicts.clone().into_iter().collect();
        for (name, verdict) in verdicts {
            let application = verdict.declared.as_ref().map(|it| &it.application.name);
            let report = application.and_then(|it| reports.get(it));
            let (before, at) = self.before(&name);
            let next = status(&verdict, report, &before, &now_text());
            let urgent = next.conditions != before.conditions || next.servers != before.servers;
            let rested = at.is_none_or(|at| at.elapsed() >= WRITE_INTERVAL);
            if next == before || !(urgent || rested) {
                continue;
            }
            if let Err(error) = self.write(&name, &next).await {
                self.failure = Some(format!("status of TidegateApplication {name}: {error}"));
                return; // the others would fail as well, and take time
            }
            self.written.insert(name, (next, Instant::now()));
        }
    }

    /// The status as it was written last, by this daemon or an earlier one.
    fn before(&self, name: &str) -> (ResourceStatus, Option<Instant>) {
        if let Some((status, at)) = self.written.get(name) {
            return (status.clone(), Some(*at));
        }
        let found = self.found.borrow();
        let object = found.objects.as_ref().and_then(|it| it.get(name));
        let status = object.and_then(|it| it.data.get("status").cloned());
        let status = status.and_then(|it| serde_json::from_value(it).ok());
        (status.unwrap_or_default(), None)
    }

    async fn write(&self, name: &str, status: &ResourceStatus) -> Result<(), String> {
        let mut fields = serde_json::to_value(status).map_err(|error| error.to_string())?;
        for field in FIELDS {
            if fields.get(field).is_none() {
                fields[field] = Value::Null;
            }
        }
        let patch = json!({ "status": fields });
        let (params, patch) = (PatchParams::default(), Patch::Merge(&patch));
        within(self.api.patch_status(name, &params, &patch)).await?;
        Ok(())
    }
}

fn object(found: &DynamicObject) -> Object {
    Object {
        name: found.name_any(),
        generation: found.metadata.generation,
        spec: found.data.get("spec").cloned().unwrap_or(Value::Null),
    }
}

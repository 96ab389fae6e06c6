//! Calls that concern one application: `/api/applications/NAME` and what is below it.

use std::num::NonZeroU32;
use std::sync::Arc;

use http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tidegate_sentry::ReplicaStatus;

use super::Operator;
use super::error::ApiError;
use crate::application::Application;
use crate::health::ailment;
use crate::pool::{Member, MemberState, PoolCommand, PoolError, PoolSource};
use crate::state::State;

/// The answer of `/api/applications`.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ApplicationList")]
pub(super) struct List {
    /// In the order of the file.
    applications: Vec<Item>,
}

/// One application.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ApplicationItem")]
struct Item {
    /// Its name.
    name: String,
    /// Hosts whose requests are its own; none means every host.
    hosts: Vec<String>,
    /// Path prefixes of its requests; none means every path.
    paths: Vec<String>,
    /// The application whose canary it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    canary_of: Option<String>,
    /// The application whose mirror it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    mirror_of: Option<String>,
    /// The mode in force.
    mode: &'static str,
    /// How many replicas it has.
    replicas: usize,
}

impl List {
    pub(super) fn of(operator: &Operator) -> Self {
        let config = operator.state.config();
        let item = |application: &Arc<Application>| {
            let mut named = config.application.iter();
            let named = named.find(|it| it.name == application.name());
            Item {
                name: application.name().to_owned(),
                hosts: named.map_or_else(Vec::new, |it| it.hosts.clone()),
                paths: named.map_or_else(Vec::new, |it| it.paths.clone()),
                canary_of: named.and_then(|it| Some(it.canary.as_ref()?.of.clone())),
                mirror_of: named.and_then(|it| Some(it.mirror.as_ref()?.of.clone())),
                mode: application.config().protect.mode.as_str(),
                replicas: application.settings().replica_ids().len(),
            }
        };
        Self {
            applications: operator.state.applications().iter().map(item).collect(),
        }
    }
}

/// The application of a call: the one it names, or the only one.
pub(super) fn find(operator: &Operator, name: Option<&str>) -> Result<Arc<Application>, ApiError> {
    let applications = operator.state.applications();
    let Some(name) = name else {
        return applications.single().cloned().ok_or_else(|| {
            ApiError::new(
                StatusCode::CONFLICT,
                "there are several applications",
                "name one: `/api/applications/NAME/...` or `tidegate ctl --application NAME`; \
                 /api/applications lists them",
            )
        });
    };
    applications.get(name).cloned().ok_or_else(|| {
        ApiError::new(
            StatusCode::NOT_FOUND,
            format!("there is no application `{name}`"),
            "see /api/applications for those there are",
        )
    })
}

/// The body of `PUT .../replicas`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Replicas {
    /// All replicas from now on.
    pub(super) replicas: Vec<Member>,
}

/// The answer of `.../replicas`.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct PoolView {
    /// The name of the application.
    application: String,
    /// The replicas.
    replicas: Vec<MemberView>,
    /// Where the list comes from.
    source: PoolSource,
    /// Whether the admin API has set or changed it. `DELETE` goes back to what the file says.
    changed: bool,
}

/// A replica of a pool.
#[derive(Debug, Serialize, JsonSchema)]
struct MemberView {
    /// Where it is.
    url: String,
    /// What it is meant to carry, relative to the others.
    weight: NonZeroU32,
    /// Whether it gets requests.
    state: MemberState,
    /// Who named it.
    source: PoolSource,
    /// Requests that hold a slot.
    in_flight: u32,
    /// Long streams, which hold none.
    streams: u32,
    /// Slots; absent when there is no bound.
    window: Option<u32>,
    /// Whether health checks and requests find it well.
    healthy: bool,
    /// It takes far longer than the others, which get the requests while they have room.
    ejected: bool,
    /// Requests served since the start.
    served: u64,
    /// What is wrong with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl PoolView {
    pub(super) fn of(state: &State, application: &Application) -> Self {
        let settings = application.settings();
        let name = application.name();
        let source = |url| match settings.pool().source {
            PoolSource::Discovery if settings.config.upstream.names(url) => PoolSource::File,
            PoolSource::Discovery if !state.is_discovered(name, url) => PoolSource::Api,
            of_all => of_all,
        };
        let status = application.sentry().status(application.now());
        let view = |replica: &ReplicaStatus| {
            let origin = settings.replica(replica.id)?.origin();
            let mut members = settings.pool().members.iter();
            let member = members.find(|member| member.url == *origin)?;
            let draining = member.is_draining();
            let error = ailment(application, replica.id, replica.up || draining);
            Some(MemberView {
                url: origin.to_string(),
                weight: member.weight,
                state: member.state,
                source: source(origin),
                in_flight: replica.in_flight,
                streams: replica.streams,
                window: replica.window,
                healthy: error.is_none(),
                ejected: replica.aside,
                served: replica.served,
                error,
            })
        };
        let active = |replica: &&ReplicaStatus| settings.replica_ids().contains(&replica.id);
        let replicas = status.replicas.iter().filter(active);
        Self {
            application: name.to_owned(),
            replicas: replicas.filter_map(view).collect(),
            source: settings.pool().source,
            changed: state.is_pool_changed(name),
        }
    }
}

impl From<PoolError> for ApiError {
    fn from(error: PoolError) -> Self {
        match error {
            PoolError::Wrong(message) => {
                Self::from_message(StatusCode::UNPROCESSABLE_ENTITY, &message)
            }
            PoolError::Settings(error) => error.into(),
        }
    }
}

/// Changes the replicas of an application. Blocks while files are read.
pub(super) fn change_pool(
    operator: &Operator,
    name: &str,
    command: &PoolCommand,
) -> Result<PoolView, ApiError> {
    let application = match operator.state.change_pool(name, command)? {
        Some(application) => application,
        None => find(operator, Some(name))?,
    };
    let settings = application.settings();
    let members = &settings.pool().members;
    let draining = members.iter().filter(|member| member.is_draining()).count();
    let by = match command {
        PoolCommand::Reset => "as the file says",
        _ => "by the admin API",
    };
    let line = format!(
        "{} replicas {by}, {draining} of them drained",
        members.len()
    );
    operator.changed(Some(name), &line);
    Ok(PoolView::of(&operator.state, &application))
}

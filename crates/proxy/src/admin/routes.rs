//! Every call of the admin API, once: dispatch and OpenAPI document are made from this table.

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tidegate_http1::event_stream;
use tidegate_sentry::{ModeName, SentryConfig};

use tidegate_fleet::FleetStatus;

use super::applications::{List, PoolView, Replicas};
use super::history::HistoryView;
use super::status::{ApplicationStatus, RequestView, StatusView};
use crate::channel::ChannelCommand;
use crate::config::Config;
use crate::pool::PoolPatch;
use crate::record::{RecordCommand, RecordingStatus};
use crate::reload::ReloadStatus;

/// How it is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    Get,
    Post,
    Put,
    Patch,
    Delete,
}

impl Verb {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }
}

/// What a call does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Endpoint {
    Page,
    Status,
    Applications,
    Application,
    Replicas,
    PutReplicas,
    PatchReplicas,
    ResetReplicas,
    ModeOf,
    ParametersOf,
    DrainOf,
    DryRunOf,
    KillSwitchOf,
    MaintenanceOf,
    ReloadOf,
    History,
    Requests,
    Config,
    Events,
    Mode,
    Parameters,
    Drain,
    DryRun,
    KillSwitch,
    Maintenance,
    Reload,
    Channel,
    Recording,
    Record,
    CommandChannel,
    OpenApi,
    Metrics,
    Fleet,
    FleetReport,
    Alive,
    Ready,
}

/// One call.
#[derive(Clone, Copy)]
pub(super) struct Route {
    pub(super) verb: Verb,
    /// `{name}` stands for the name of an application.
    pub(super) path: &'static str,
    pub(super) endpoint: Endpoint,
    /// Whether callers need the token and a known host; probes of orchestrators have neither.
    pub(super) guarded: bool,
    pub(super) summary: &'static str,
    /// What the body holds, where there is one.
    pub(super) body: Option<Describe>,
    pub(super) answer: Answer,
}

/// Describes a type in the document.
pub(super) type Describe = fn(&mut SchemaGenerator) -> Schema;

/// What a call is answered with.
#[derive(Clone, Copy)]
pub(super) enum Answer {
    Json(Describe),
    Text(&'static str),
    Nothing,
}

/// The body of `/api/mode`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ModeChange {
    /// The mode from now on.
    pub(super) mode: ModeName,
}

/// The body of the switches.
#[derive(Debug, Clone, Copy, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Switch {
    /// Its position from now on.
    pub(super) enabled: bool,
}

fn describe<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

const fn get(
    path: &'static str,
    endpoint: Endpoint,
    summary: &'static str,
    answer: Answer,
) -> Route {
    Route {
        verb: Verb::Get,
        path,
        endpoint,
        guarded: true,
        summary,
        body: None,
        answer,
    }
}

const fn post(
    path: &'static str,
    endpoint: Endpoint,
    summary: &'static str,
    body: Option<Describe>,
    answer: Describe,
) -> Route {
    Route {
        verb: Verb::Post,
        path,
        endpoint,
        guarded: true,
        summary,
        body,
        answer: Answer::Json(answer),
    }
}

const fn with(verb: Verb, route: Route) -> Route {
    Route { verb, ..route }
}

impl Route {
    /// What stands in `path` for `{name}`; empty without one. `None` if it is another call's path.
    pub(super) fn matches<'a>(&self, path: &'a str) -> Option<&'a str> {
        let Some((before, after)) = self.path.split_once("{name}") else {
            return (self.path == path).then_some("");
        };
        let name = path.strip_prefix(before)?.strip_suffix(after)?;
        (!name.is_empty() && !name.contains('/')).then_some(name)
    }
}

const fn open(route: Route) -> Route {
    Route {
        guarded: false,
        ..route
    }
}

/// The table.
pub(super) static ROUTES: [Route; 36] = [
    open(get(
        "/",
        Endpoint::Page,
        "The web page: state, reasons, replicas, history and switches, from the calls below.",
        Answer::Text("text/html"),
    )),
    get(
        "/api/history",
        Endpoint::History,
        "Rates, capacity and response times of the last day: seconds for ten minutes, tens of seconds for three hours, minutes for a day; with marks for overloads, reloads and operators' actions. `since=SECONDS` answers with what is later than this second since 1970.",
        Answer::Json(describe::<HistoryView>),
    ),
    get(
        "/api/requests",
        Endpoint::Requests,
        "What became of a request that was not served, and why: `id` is what its answer had as `x-request-id`. The last hundred thousand are known.",
        Answer::Json(describe::<RequestView>),
    ),
    get(
        "/api/fleet",
        Endpoint::Fleet,
        "The fleet as this proxy sees it: peers with their ages, and the shares in force; `null` without one.",
        Answer::Json(describe::<Option<FleetStatus>>),
    ),
    Route {
        answer: Answer::Json(describe::<Value>),
        ..post(
            "/api/fleet/report",
            Endpoint::FleetReport,
            "What another proxy of the fleet says; the answer is what this one says. For proxies, see docs/fleet.md.",
            Some(describe::<Value>),
            describe::<Value>,
        )
    },
    get(
        "/api/status",
        Endpoint::Status,
        "What the proxy is doing: the process, and per application one sentence in words, mode, overload, replicas, queue, classes, controller, figures of the last seconds, each state with since when.",
        Answer::Json(describe::<StatusView>),
    ),
    get(
        "/api/applications",
        Endpoint::Applications,
        "The applications in the order of the file, with hosts, paths and mode.",
        Answer::Json(describe::<List>),
    ),
    get(
        "/api/applications/{name}",
        Endpoint::Application,
        "What one application is doing: mode, replicas, queue, classes, controller, recent figures.",
        Answer::Json(describe::<ApplicationStatus>),
    ),
    get(
        "/api/applications/{name}/replicas",
        Endpoint::Replicas,
        "The replicas of an application: weight, state, requests inside, window, health, and where the list comes from.",
        Answer::Json(describe::<PoolView>),
    ),
    with(
        Verb::Put,
        post(
            "/api/applications/{name}/replicas",
            Endpoint::PutReplicas,
            "Gives an application these replicas and no others, whole or not at all. They hold until the file names other replicas or sources, or until DELETE; requests inside those that go are finished.",
            Some(describe::<Replicas>),
            describe::<PoolView>,
        ),
    ),
    with(
        Verb::Patch,
        post(
            "/api/applications/{name}/replicas",
            Endpoint::PatchReplicas,
            "Adds, removes, drains, undrains or weighs replicas of an application, whole or not at all. Where replicas are discovered, the change is laid over what is discovered, and ends for a replica that its source no longer names.",
            Some(describe::<PoolPatch>),
            describe::<PoolView>,
        ),
    ),
    with(
        Verb::Delete,
        post(
            "/api/applications/{name}/replicas",
            Endpoint::ResetReplicas,
            "Drops what PUT and PATCH have changed: the replicas are those of the file and of its discovery again.",
            None,
            describe::<PoolView>,
        ),
    ),
    post(
        "/api/applications/{name}/mode",
        Endpoint::ModeOf,
        "As /api/mode, of one application.",
        Some(describe::<ModeChange>),
        describe::<SentryConfig>,
    ),
    post(
        "/api/applications/{name}/parameters",
        Endpoint::ParametersOf,
        "As /api/parameters, of one application.",
        Some(describe::<SentryConfig>),
        describe::<SentryConfig>,
    ),
    post(
        "/api/applications/{name}/drain",
        Endpoint::DrainOf,
        "As /api/drain, of one application.",
        Some(describe::<Switch>),
        describe::<Switch>,
    ),
    post(
        "/api/applications/{name}/dry-run",
        Endpoint::DryRunOf,
        "As /api/dry-run, of one application.",
        Some(describe::<Switch>),
        describe::<Switch>,
    ),
    post(
        "/api/applications/{name}/kill-switch",
        Endpoint::KillSwitchOf,
        "As /api/kill-switch, of one application.",
        Some(describe::<Switch>),
        describe::<Switch>,
    ),
    post(
        "/api/applications/{name}/maintenance",
        Endpoint::MaintenanceOf,
        "As /api/maintenance, of one application.",
        Some(describe::<Switch>),
        describe::<Switch>,
    ),
    post(
        "/api/applications/{name}/reload",
        Endpoint::ReloadOf,
        "Reads the file again and puts it in force, whole or not at all; live changes of this application are dropped. Those of another one stay unless the file changes that one's sections.",
        None,
        describe::<ReloadStatus>,
    ),
    get(
        "/api/config",
        Endpoint::Config,
        "The configuration in force, live changes included, secrets redacted.",
        Answer::Json(describe::<Config>),
    ),
    get(
        "/api/events",
        Endpoint::Events,
        "Server-sent events with time of day: what the engine does (`step` of a controller, `window`, `mode`, `health`, `switch`, `measured` and so on), per class and second what was admitted, refused and earned (`classes`), samples of refusals with class, reason, what was measured and the limit (`shed`), the log (`notice`). `types=overload,window` chooses types, `since=10m` (or a time, RFC 3339) and `after=ID` begin with the history, `follow=false` answers with the history alone, as a JSON array. A reader that does not keep up is closed.",
        Answer::Text(event_stream::MEDIA_TYPE),
    ),
    post(
        "/api/mode",
        Endpoint::Mode,
        "Changes the mode, bumpless, until the file is put in force again. Answers with the protection in force.",
        Some(describe::<ModeChange>),
        describe::<SentryConfig>,
    ),
    post(
        "/api/parameters",
        Endpoint::Parameters,
        "Changes parameters of `protect` until the file is put in force again: a JSON merge patch (RFC 7396), where null goes back to the default. Answers with the protection in force.",
        Some(describe::<SentryConfig>),
        describe::<SentryConfig>,
    ),
    post(
        "/api/drain",
        Endpoint::Drain,
        "Refuses new requests and finishes those inside; off takes requests again.",
        Some(describe::<Switch>),
        describe::<Switch>,
    ),
    post(
        "/api/dry-run",
        Endpoint::DryRun,
        "Decides and reports, but admits everything, until the file is put in force again.",
        Some(describe::<Switch>),
        describe::<Switch>,
    ),
    post(
        "/api/kill-switch",
        Endpoint::KillSwitch,
        "Admits everything at once, waiting requests included.",
        Some(describe::<Switch>),
        describe::<Switch>,
    ),
    post(
        "/api/maintenance",
        Endpoint::Maintenance,
        "Answers everything with the maintenance page, until the file is put in force again.",
        Some(describe::<Switch>),
        describe::<Switch>,
    ),
    post(
        "/api/reload",
        Endpoint::Reload,
        "Reads the file again and puts it in force, whole or not at all; live changes of all applications are dropped.",
        None,
        describe::<ReloadStatus>,
    ),
    get(
        "/api/channel",
        Endpoint::Channel,
        "What clients were told, who listens, and who did not hold back.",
        Answer::Json(describe::<Value>),
    ),
    post(
        "/api/channel",
        Endpoint::CommandChannel,
        "Pardons a client, prolongs or moves deadlines, changes gains, or begins a relay experiment. Answers with the channel's state.",
        Some(describe::<ChannelCommand>),
        describe::<Value>,
    ),
    get(
        "/api/record",
        Endpoint::Recording,
        "How the recording goes: the file written now, requests in it, losses, bytes.",
        Answer::Json(describe::<RecordingStatus>),
    ),
    post(
        "/api/record",
        Endpoint::Record,
        "Starts or stops a recording of what passes. A stop answers when everything recorded is on the disk.",
        Some(describe::<RecordCommand>),
        describe::<RecordingStatus>,
    ),
    get(
        "/openapi.json",
        Endpoint::OpenApi,
        "This document.",
        Answer::Json(describe::<Value>),
    ),
    get(
        "/metrics",
        Endpoint::Metrics,
        "Metrics in the text format of Prometheus, as OpenMetrics with exemplars, or as Prometheus's protobuf messages with native histograms, by `Accept`.",
        Answer::Text("text/plain"),
    ),
    open(get(
        "/healthz",
        Endpoint::Alive,
        "Answers while the process works.",
        Answer::Nothing,
    )),
    open(get(
        "/readyz",
        Endpoint::Ready,
        "200 while requests can be served; 503 with the cause while the proxy drains, and while every replica is out or cannot be reached. That a replica cannot be reached is learnt from checks (`health.active`) and from requests (`health.passive`); without both the answer is 200.",
        Answer::Nothing,
    )),
];

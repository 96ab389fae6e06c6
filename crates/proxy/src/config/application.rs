//! Several applications behind one proxy.
//!
//! A file without `[[application]]` is one application named [`DEFAULT`], and the top of the file
//! describes it. With `[[application]]` the top holds what all of them share (`listen`, `admin`,
//! `access_log`) and, for a section that an application does not have, what holds instead.
//!
//! The rest of the proxy sees one application at a time: [`Config::of_application`] is the file as
//! if that application were alone in it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tidegate_sentry::SentryConfig;

use super::{
    Canary, Channel, ClassRule, Companion, Config, Edge, Forward, Health, KeySource, Limits,
    Mirror, RefusalTexts, Retry, SessionKey, Shadow, Sticky, Timeouts, TokenConfig, Upstream,
    upstream,
};

/// The name of the application that the top of a file describes.
pub const DEFAULT: &str = "default";

/// One of several applications. A section given here replaces the one at the top of the file as a
/// whole; one that is left out is the one at the top. Those are described there, and skipped here.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Application {
    /// Its name in metrics, status, logs and the admin API. Has to be given.
    #[schemars(example = &"shop")]
    pub name: String,
    /// Hosts whose requests are its own: `"shop.example"`, or `"*.shop.example"` for every name
    /// below. None means every host. The most specific host decides.
    #[schemars(example = &["shop.example", "*.shop.example"])]
    pub hosts: Vec<String>,
    /// Path prefixes of its requests, by whole segments: `"/api"` is `/api` and `/api/users`, not
    /// `/apis`. None means every path. Of the applications of one host the longest prefix decides.
    #[schemars(example = &["/api"])]
    pub paths: Vec<String>,
    /// The service behind it: an URL, a list of URLs, or a table as `[upstream]`.
    #[serde(deserialize_with = "upstream::upstream")]
    #[schemars(with = "String", example = &"http://10.0.0.7:3000")]
    pub upstream: Upstream,
    /// Makes it the canary of another application.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub canary: Option<Canary>,
    /// Makes it the mirror of another application.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mirror: Option<Mirror>,
    /// As `[protect]`.
    #[schemars(skip)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protect: Option<SentryConfig>,
    /// As `default_class`.
    #[schemars(example = &"silver")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_class: Option<String>,
    /// As `[[classify]]`.
    #[schemars(skip)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub classify: Option<Vec<ClassRule>>,
    /// As `tenant`.
    #[schemars(example = &"claim:sub")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<KeySource>,
    /// As `[session]`.
    #[schemars(skip)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionKey>,
    /// As `[token]`.
    #[schemars(skip)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<TokenConfig>,
    /// As `[timeouts]`; those of client connections are taken from the top of the file.
    #[schemars(skip)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeouts: Option<Timeouts>,
    /// As `[limits]`; those of client connections are taken from the top of the file.
    #[schemars(skip)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<Limits>,
    /// As `[retry]`.
    #[schemars(skip)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
    /// As `[sticky]`.
    #[schemars(skip)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sticky: Option<Sticky>,
    /// As `[health]`.
    #[schemars(skip)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health: Option<Health>,
    /// As `[forward]`; `trust` is taken from the top of the file.
    #[schemars(skip)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forward: Option<Forward>,
    /// As `[edge]`.
    #[schemars(skip)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub edge: Option<Edge>,
    /// As `[refusal]`.
    #[schemars(skip)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refusal: Option<RefusalTexts>,
    /// As `[shadow]`.
    #[schemars(skip)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shadow: Option<Shadow>,
    /// As `[channel]`; one at the top of the file is no application's.
    #[schemars(skip)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channel: Option<Channel>,
}

impl Application {
    /// Which sections of [`Config`] it has of its own, by their keys.
    fn own_sections(&self) -> impl Iterator<Item = &'static str> {
        [
            ("upstream", true),
            ("channel", true),
            ("protect", self.protect.is_some()),
            ("default_class", self.default_class.is_some()),
            ("classify", self.classify.is_some()),
            ("tenant", self.tenant.is_some()),
            ("session", self.session.is_some()),
            ("token", self.token.is_some()),
            ("timeouts", self.timeouts.is_some()),
            ("limits", self.limits.is_some()),
            ("retry", self.retry.is_some()),
            ("sticky", self.sticky.is_some()),
            ("health", self.health.is_some()),
            ("forward", self.forward.is_some()),
            ("edge", self.edge.is_some()),
            ("refusal", self.refusal.is_some()),
            ("shadow", self.shadow.is_some()),
        ]
        .into_iter()
        .filter_map(|(name, own)| own.then_some(name))
    }

    /// Whether a path as problems have it (`protect.target`) leads to a section of its own.
    pub(super) fn owns(&self, path: &str) -> bool {
        let section = path.split('.').next().unwrap_or(path);
        self.own_sections().any(|own| own == section)
    }

    /// What it is to the application whose requests it gets, if it gets another one's.
    #[must_use]
    pub fn companion(&self) -> Option<Companion> {
        let canary = self.canary.clone().map(Companion::Canary);
        canary.or_else(|| self.mirror.clone().map(Companion::Mirror))
    }

    /// The file as if this application were alone in it. What it leaves out is taken from `top`.
    fn alone(&self, top: &Config) -> Config {
        fn own<T: Clone>(own: &Option<T>, top: &T) -> T {
            own.as_ref().unwrap_or(top).clone()
        }
        Config {
            include: Vec::new(),
            included: Vec::new(),
            threads: top.threads,
            listen: top.listen.clone(),
            upstream: self.upstream.clone(),
            protect: own(&self.protect, &top.protect),
            default_class: self.default_class.clone().or(top.default_class.clone()),
            classify: own(&self.classify, &top.classify),
            tenant: self.tenant.clone().or(top.tenant.clone()),
            session: self.session.clone().or(top.session.clone()),
            token: self.token.clone().or(top.token.clone()),
            timeouts: own(&self.timeouts, &top.timeouts),
            limits: own(&self.limits, &top.limits),
            retry: own(&self.retry, &top.retry),
            sticky: self.sticky.clone().or(top.sticky.clone()),
            health: own(&self.health, &top.health),
            forward: Forward {
                trust: top.forward.trust.clone(),
                ..own(&self.forward, &top.forward)
            },
            edge: own(&self.edge, &top.edge),
            refusal: own(&self.refusal, &top.refusal),
            access_log: top.access_log.clone(),
            record: top.record.clone(),
            shadow: own(&self.shadow, &top.shadow),
            log: top.log,
            tracing: top.tracing.clone(),
            admin: top.admin.clone(),
            fleet: top.fleet.clone(),
            state_file: top.state_file.clone(),
            channel: self.channel.clone(),
            application: Vec::new(),
            default_application: None,
            companion: self.companion(),
        }
    }
}

impl Config {
    /// The names of its applications, in the order of the file.
    pub fn application_names(&self) -> impl Iterator<Item = &str> {
        let named = self.application.iter().map(|it| it.name.as_str());
        let default = self.application.is_empty().then_some(DEFAULT);
        default.into_iter().chain(named)
    }

    /// The file as if this application were alone in it; `None` if it has none of that name.
    #[must_use]
    pub fn of_application(&self, name: &str) -> Option<Self> {
        if self.application.is_empty() {
            return (name == DEFAULT).then(|| self.clone());
        }
        let application = self.named(name)?;
        Some(match self.main_of(application) {
            Some(main) => application.alone(&main.alone(self)),
            None => application.alone(self),
        })
    }

    fn named(&self, name: &str) -> Option<&Application> {
        self.application.iter().find(|it| it.name == name)
    }

    /// The application whose requests this one gets. No companion has companions.
    fn main_of(&self, application: &Application) -> Option<&Application> {
        let main = self.named(application.companion()?.of())?;
        main.companion().is_none().then_some(main)
    }

    /// The edge of this application, to be changed; `None` if the file has none of that name.
    pub fn edge_mut(&mut self, name: &str) -> Option<&mut Edge> {
        if self.application.is_empty() {
            return (name == DEFAULT).then_some(&mut self.edge);
        }
        let inherited = self.of_application(name)?.edge;
        let application = self.application.iter_mut().find(|it| it.name == name)?;
        Some(application.edge.get_or_insert(inherited))
    }

    /// How this application is protected, to be changed; `None` if the file has none of that name.
    pub fn protect_mut(&mut self, name: &str) -> Option<&mut SentryConfig> {
        if self.application.is_empty() {
            return (name == DEFAULT).then_some(&mut self.protect);
        }
        let inherited = self.of_application(name)?.protect;
        let application = self.application.iter_mut().find(|it| it.name == name)?;
        Some(application.protect.get_or_insert(inherited))
    }
}

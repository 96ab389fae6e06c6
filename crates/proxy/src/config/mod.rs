//! The proxy's configuration: one TOML file, or the few flags of the simple case.
//!
//! Reading a file has three steps, and each refuses with file, line and remedy: [`parse`] turns
//! text into these types, [`Config::problems`] checks what a type alone cannot (two keys that
//! contradict, a certificate that cannot be read), and `place` finds the line a problem belongs
//! to. The doc comments of the fields are the reference that `tidegate reference` prints.
//!
//! The shortest useful file:
//!
//! ```
//! let config = tidegate_proxy::config::Config::from_text(
//!     "tidegate.toml",
//!     r#"
//! listen = "0.0.0.0:8080"
//! upstream = ["http://10.0.0.7:3000", "http://10.0.0.8:3000"]
//! protect.target = "500ms"
//! "#,
//! )
//! .unwrap();
//! assert_eq!(config.upstream.replicas.len(), 2);
//! ```
//!
//! [`parse`]: tidegate_config::parse

pub mod application;
mod channel;
mod classify;
mod companion;
pub mod edge;
mod fleet;
mod foreign;
mod health;
mod include;
mod listen;
mod load;
mod operate;
pub mod pem;
mod place;
pub mod reference;
mod secrets;
mod shadow;
mod summary;
mod tracing;
mod traffic;
mod types;
mod upstream;
mod validate;

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use tidegate_config::ConfigError;
use tidegate_sentry::SentryConfig;

pub use application::{Application, DEFAULT};
pub use channel::{Channel, ChannelMeans, Compliance, PerAddress};
pub use classify::{
    Believe, CertificateRule, ClassRule, Fingerprint, KeySource, SessionKey, TokenConfig,
};
pub use companion::{Canary, Companion, Mirror, ShareOf};
pub use edge::{Edge, HeaderChanges, Maintenance, PathRule, Quota, QuotaKey};
pub use fleet::{Fleet, FleetCarrier, Nats};
pub use health::{ActiveHealth, Health, PassiveHealth};
pub use listen::{Certificate, ClientCertificate, Listener};
pub use load::{Loaded, check, load, load_with};
pub use operate::{AccessLog, Admin, LineFormat, Log, LogFormat, LogTarget, Record};
pub(crate) use shadow::patched;
pub use shadow::{Overrides, Shadow};
pub use tracing::Tracing;
pub use traffic::{Forward, Limits, RefusalTexts, Retry, Sticky, Timeouts};
pub use types::{Addr, Secret, StatusRange};
pub use upstream::{
    Discover, EndpointSource, HostHeader, Http2, KubernetesService, Origin, Replica, Streams,
    Upstream, UpstreamTls,
};
pub use validate::{Problem, Severity};

/// The whole file.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// More files, by name or pattern: `"conf.d/*.toml"`, or a list. Lists of tables such as
    /// `[[application]]` are joined in the order of the names; any other key may be in one file
    /// only. Patterns are relative to the file that names them, other file names to the first file.
    #[serde(deserialize_with = "types::strings")]
    #[schemars(example = &["conf.d/*.toml"])]
    pub include: Vec<String>,
    /// What was included, and the directories of patterns: a change there is a change of the file.
    #[serde(skip)]
    #[schemars(skip)]
    pub included: Vec<PathBuf>,
    /// Worker threads, each with its own connections; by default one per core.
    #[schemars(range(min = 1), example = 4)]
    pub threads: Option<usize>,
    /// Where clients connect: an address, a table, or a list of them.
    #[serde(deserialize_with = "listeners")]
    pub listen: Vec<Listener>,
    /// The service to protect: an URL, a list of URLs, or a table.
    #[serde(deserialize_with = "upstream::upstream")]
    pub upstream: Upstream,
    /// How it is protected. Nothing here has to be set.
    pub protect: SentryConfig,
    /// The class of requests that no rule of `[[classify]]` fits; by default the least important.
    #[schemars(example = &"silver")]
    pub default_class: Option<String>,
    /// Which requests are in which class; the first rule that fits decides.
    pub classify: Vec<ClassRule>,
    /// What tenants are told by, who share a class fairly: `"address"`, `"header:NAME"`,
    /// `"cookie:NAME"`, `"claim:NAME"` of the token, or `"certificate"`. Who does not say, or is
    /// not believed, is told by address.
    #[schemars(example = &"claim:sub")]
    pub tenant: Option<KeySource>,
    /// What sessions are told by, whose later requests are preferred within their class.
    pub session: Option<SessionKey>,
    /// Signed tokens that rules and keys can ask for.
    pub token: Option<TokenConfig>,
    /// Times after which the proxy gives up waiting.
    pub timeouts: Timeouts,
    /// Bounds on what clients and replicas may send.
    pub limits: Limits,
    /// When a request is sent a second time.
    pub retry: Retry,
    /// Keeps a client on the replica that served it first.
    pub sticky: Option<Sticky>,
    /// Health of replicas.
    pub health: Health,
    /// Headers that tell replicas about the client.
    pub forward: Forward,
    /// Beside protection: quotas, headers, redirects, networks, maintenance. Nothing by default.
    pub edge: Edge,
    /// What people and programs read when their request is refused.
    pub refusal: RefusalTexts,
    /// One line per request: `"stderr"`, a file's name, or a table.
    #[serde(deserialize_with = "types::short")]
    pub access_log: AccessLog,
    /// A recording of what passes; none by default.
    pub record: Record,
    /// Another protection beside the one in force, which decides about no request.
    pub shadow: Shadow,
    /// Lines about the proxy itself, on standard error: `"text"`, `"json"`, or a table.
    #[serde(deserialize_with = "types::short")]
    pub log: Log,
    /// Distributed traces; only while spans are exported, by default.
    pub tracing: Tracing,
    /// The admin listener: an address, `"off"`, or a table.
    #[serde(deserialize_with = "types::short")]
    pub admin: Admin,
    /// Other proxies in front of the same replicas; none by default.
    pub fleet: Option<Fleet>,
    /// File in which mode `auto` keeps what it has found out about the replicas, so that a restart
    /// need not find it out again under load; none by default. An upgrade passes it on without a
    /// file.
    #[schemars(example = &"/var/lib/tidegate/state.json")]
    pub state_file: Option<PathBuf>,
    /// The channel that tells clients when to send; none by default.
    pub channel: Option<Channel>,
    /// The application that gets the requests which fit no `[[application]]`; without it they are
    /// answered with 404.
    #[schemars(example = &"shop")]
    pub default_application: Option<String>,
    /// Several applications, each with hosts, paths and a service of its own. Without any, the file
    /// as a whole is one application named `default`. Beside the keys below an application may have
    /// sections of its own: `protect`, `classify`, `default_class`, `tenant`, `session`, `token`,
    /// `timeouts`, `limits`, `retry`, `sticky`, `health`, `forward`, `edge`, `refusal` and
    /// `channel`. Those that it does not have are taken from the top of the file.
    pub application: Vec<Application>,
    /// Of one application alone: what it is to the one whose requests it gets.
    #[serde(skip)]
    #[schemars(skip)]
    pub companion: Option<Companion>,
}

fn listeners<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Listener>, D::Error> {
    types::one_or_many(deserializer)
}

impl Config {
    /// Reads a configuration from text; `file` is only used to say where an error is.
    ///
    /// # Errors
    /// What the types refuse, with its place.
    pub fn from_text(file: &str, text: &str) -> Result<Self, ConfigError> {
        tidegate_config::parse(file, text)
    }

    /// Everything wrong with it that its types alone cannot refuse. Reads the files it names.
    #[must_use]
    pub fn problems(&self) -> Vec<Problem> {
        validate::problems(self)
    }

    /// The same of `[protect]` and `[[classify]]` alone, for files that have nothing else of it.
    #[must_use]
    pub fn class_problems(&self) -> Vec<Problem> {
        validate::class_problems(self)
    }

    /// The files it names and whose content is read when it is put in force.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        let certificates = self.listen.iter().flat_map(|listener| &listener.tls);
        let shadows = self.application.iter().filter_map(|it| it.shadow.as_ref());
        let fleet = self.fleet.iter().map(|fleet| &fleet.token_file);
        let optional = [&self.admin.token_file, &self.shadow.file]
            .into_iter()
            .chain(fleet)
            .chain(part_files(
                &self.upstream,
                &self.refusal,
                self.token.as_ref(),
                self.sticky.as_ref(),
            ))
            .chain(self.application.iter().flat_map(|it| {
                let refusal = it.refusal.as_ref().unwrap_or(&self.refusal);
                part_files(&it.upstream, refusal, it.token.as_ref(), it.sticky.as_ref())
            }))
            .chain(shadows.map(|shadow| &shadow.file))
            .chain(self.listen.iter().map(|listener| &listener.client_ca));
        certificates
            .flat_map(|certificate| [&certificate.cert, &certificate.key])
            .chain(optional.flatten())
            .map(PathBuf::as_path)
    }

    /// What another configuration changes that cannot change while the proxy runs.
    #[must_use]
    pub fn fixed_difference(&self, other: &Self) -> Option<String> {
        let sockets = |config: &Self| -> Vec<_> {
            let listeners = config.listen.iter();
            listeners.map(|l| (l.addr, l.tls.is_empty())).collect()
        };
        let differences = [
            ("`threads`", self.threads != other.threads),
            ("`listen`", sockets(self) != sockets(other)),
            ("`admin.enabled`", self.admin.enabled != other.admin.enabled),
            ("`admin.addr`", self.admin.addr != other.admin.addr),
            ("`channel`", self.channels() != other.channels()),
            ("`record`", self.record != other.record),
            ("`fleet`", self.fleet != other.fleet),
        ];
        let changed = differences.iter().filter(|(_, differs)| *differs);
        let names: Vec<_> = changed.map(|(name, _)| *name).collect();
        (!names.is_empty()).then(|| names.join(" and "))
    }

    /// The channels of all applications that have one, by name.
    fn channels(&self) -> Vec<(&str, &Channel)> {
        let own = |it: &'_ Application| it.channel.is_some();
        let top = self.channel.as_ref().map(|channel| (DEFAULT, channel));
        let named = self.application.iter().filter(|it| own(it));
        let named = named.filter_map(|it| Some((it.name.as_str(), it.channel.as_ref()?)));
        top.into_iter().chain(named).collect()
    }

    /// Makes relative file names relative to `base`, the directory the file is in.
    pub fn resolve_paths(&mut self, base: &Path) {
        let resolve = |path: &mut PathBuf| *path = base.join(&*path);
        for listener in &mut self.listen {
            for certificate in &mut listener.tls {
                resolve(&mut certificate.cert);
                resolve(&mut certificate.key);
            }
            listener.client_ca.iter_mut().for_each(resolve);
        }
        resolve_part(base, &mut self.upstream, Some(&mut self.refusal));
        resolve_keys(base, self.token.as_mut(), self.channel.as_mut());
        resolve_sticky(base, self.sticky.as_mut());
        for it in &mut self.application {
            resolve_part(base, &mut it.upstream, it.refusal.as_mut());
            resolve_keys(base, it.token.as_mut(), it.channel.as_mut());
            resolve_sticky(base, it.sticky.as_mut());
        }
        self.admin.token_file.iter_mut().for_each(resolve);
        self.shadow.file.iter_mut().for_each(resolve);
        let shadows = self
            .application
            .iter_mut()
            .filter_map(|it| it.shadow.as_mut());
        shadows.filter_map(|it| it.file.as_mut()).for_each(resolve);
        if let Some(fleet) = &mut self.fleet {
            fleet.token_file.iter_mut().for_each(resolve);
            let nats = fleet.nats.iter_mut();
            nats.flat_map(Nats::files_mut).for_each(resolve);
        }
        self.state_file.iter_mut().for_each(resolve);
        self.record.dir.iter_mut().for_each(resolve);
        if let LogTarget::File(path) = &mut self.access_log.to {
            resolve(path);
        }
    }
}

/// The files that an application names.
fn part_files<'a>(
    upstream: &'a Upstream,
    refusal: &'a RefusalTexts,
    token: Option<&'a TokenConfig>,
    sticky: Option<&'a Sticky>,
) -> impl Iterator<Item = &'a Option<PathBuf>> {
    let tls = &upstream.tls;
    [&tls.ca, &tls.client_cert, &tls.client_key]
        .into_iter()
        .chain([&refusal.html, &refusal.json, &refusal.text])
        .chain(
            token
                .into_iter()
                .flat_map(|it| [&it.public_key, &it.secret_file]),
        )
        .chain(sticky.map(|sticky| &sticky.secret_file))
}

fn resolve_part(base: &Path, upstream: &mut Upstream, refusal: Option<&mut RefusalTexts>) {
    let found = upstream
        .discover
        .iter_mut()
        .filter_map(|it| it.file.as_mut());
    found.for_each(|path| *path = base.join(&*path));
    let tls = &mut upstream.tls;
    let texts = refusal.into_iter();
    [&mut tls.ca, &mut tls.client_cert, &mut tls.client_key]
        .into_iter()
        .chain(texts.flat_map(|texts| [&mut texts.html, &mut texts.json, &mut texts.text]))
        .flatten()
        .for_each(|path| *path = base.join(&*path));
}

fn resolve_sticky(base: &Path, sticky: Option<&mut Sticky>) {
    let file = sticky.and_then(|sticky| sticky.secret_file.as_mut());
    file.into_iter().for_each(|path| *path = base.join(&*path));
}

fn resolve_keys(base: &Path, token: Option<&mut TokenConfig>, channel: Option<&mut Channel>) {
    let resolve = |path: &mut PathBuf| *path = base.join(&*path);
    if let Some(token) = token {
        let files = [&mut token.public_key, &mut token.secret_file];
        files.into_iter().flatten().for_each(resolve);
    }
    if let Some(channel) = channel {
        resolve(&mut channel.key_file);
        channel.next_key_file.iter_mut().for_each(resolve);
        channel.state_file.iter_mut().for_each(resolve);
        for certificate in &mut channel.tls {
            resolve(&mut certificate.cert);
            resolve(&mut certificate.key);
        }
    }
}

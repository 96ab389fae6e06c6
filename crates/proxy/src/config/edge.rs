//! What a proxy at the edge does beside protecting: quotas, headers, redirects, networks,
//! maintenance.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use ipnet::IpNet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tidegate_config::{Dur, Rate, Size};

use super::classify::KeySource;
use super::types::written_as_string;

/// What happens to a request before anything is asked about load, and to what passes.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Edge {
    /// Whether requests that come in plain text are sent to `https` by 308. `X-Forwarded-Proto` of
    /// proxies in `forward.trust` counts.
    pub https_redirect: bool,
    /// The port that they are sent to; 443 if not given.
    #[schemars(example = 8443)]
    pub https_port: Option<u16>,
    /// Networks that are served; all if empty. Others get 403.
    #[schemars(with = "Vec<String>")]
    pub allow: Vec<IpNet>,
    /// Networks that are not served, also where `allow` names them. They get 403.
    #[schemars(with = "Vec<String>")]
    pub deny: Vec<IpNet>,
    /// Path prefix that is taken off before a request goes to a replica, by whole segments.
    #[schemars(example = &"/api")]
    pub strip_prefix: Option<String>,
    /// Bytes of a response's body. One that announces more is answered with 502, one that sends
    /// more breaks off.
    pub response_bytes: Option<Size>,
    /// The switch for maintenance: everything is answered with 503 and the words below.
    pub maintenance: Maintenance,
    /// Headers of requests, as replicas get them.
    pub to_replica: HeaderChanges,
    /// Headers of replicas' answers, as clients get them.
    pub to_client: HeaderChanges,
    /// Paths with bounds of their own; the longest prefix decides.
    pub paths: Vec<PathRule>,
    /// What one client, tenant, key or path may have, whatever the load. Then 429.
    pub quotas: Vec<Quota>,
}

/// The switch for maintenance.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Maintenance {
    /// Whether it is on. Changed while the proxy runs by `tidegate ctl maintenance on`.
    pub enabled: bool,
    /// What people read, instead of the usual sentence.
    #[schemars(example = &"We are back at eight.")]
    pub message: Option<String>,
    /// When clients are told to come back; a minute if not given.
    #[schemars(example = &"10m")]
    pub retry_after: Option<Dur>,
    /// Networks that are served all the same.
    #[schemars(with = "Vec<String>")]
    pub except: Vec<IpNet>,
}

/// Headers that are changed: removed first, then set, then added.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HeaderChanges {
    /// Names of headers that are removed.
    #[schemars(example = &["server"])]
    pub remove: Vec<String>,
    /// Headers that have this value from now on, whatever they had.
    pub set: BTreeMap<String, String>,
    /// Headers that get this value beside those they have.
    pub add: BTreeMap<String, String>,
}

impl HeaderChanges {
    /// Whether nothing is changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.remove.is_empty() && self.set.is_empty() && self.add.is_empty()
    }
}

/// Bounds of the requests below a path.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PathRule {
    /// How the path has to begin, by whole segments; `*` is any one segment.
    #[schemars(example = &"/export")]
    pub path: String,
    /// Instead of `timeouts.request`.
    #[serde(default)]
    pub timeout: Option<Dur>,
    /// Instead of `limits.body_bytes`.
    #[serde(default)]
    pub body_bytes: Option<Size>,
    /// Instead of `edge.response_bytes`.
    #[serde(default)]
    pub response_bytes: Option<Size>,
    /// Networks that are served, beside what `edge.allow` and `edge.deny` say; all if empty.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    pub allow: Vec<IpNet>,
}

/// What one key may have, whatever the load.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Quota {
    /// Its name in metrics and refusals.
    #[schemars(example = &"per-client")]
    pub name: String,
    /// Whose quota it is: `"address"`, `"tenant"`, `"path"`, `"all"`, or as `tenant` is written:
    /// `"header:NAME"`, `"cookie:NAME"`, `"claim:NAME"`, `"certificate"`. Who does not say, or is
    /// not believed, is told by address.
    #[serde(default)]
    pub key: QuotaKey,
    /// The paths it concerns; all if not given. As `path` in `[[classify]]`.
    #[serde(default)]
    #[schemars(example = &"/login")]
    pub path: Option<String>,
    /// The methods it concerns; all if empty.
    #[serde(default)]
    pub methods: Vec<String>,
    /// Requests per unit of time and key.
    #[serde(default)]
    pub rate: Option<Rate>,
    /// Requests that may come at once; by default a second's worth, at least one.
    #[serde(default)]
    #[schemars(range(min = 1), example = 20)]
    pub burst: Option<u32>,
    /// Requests of one key that may be inside at a time.
    #[serde(default)]
    #[schemars(range(min = 1), example = 8)]
    pub concurrency: Option<u32>,
    /// Keys that are remembered, 24 bytes each. Beyond it those that have used least are forgotten.
    #[serde(default = "keys_max")]
    #[schemars(range(min = 1))]
    pub keys_max: usize,
}

fn keys_max() -> usize {
    65_536
}

/// Whose quota it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QuotaKey {
    /// One for all requests together.
    All,
    /// One per path, ids folded.
    Path,
    /// What `tenant` says.
    Tenant,
    /// As a tenant is told.
    Source(KeySource),
}

impl Default for QuotaKey {
    fn default() -> Self {
        Self::Source(KeySource::Address)
    }
}

impl FromStr for QuotaKey {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "all" => Ok(Self::All),
            "path" => Ok(Self::Path),
            "tenant" => Ok(Self::Tenant),
            source => source
                .parse()
                .map(Self::Source)
                .map_err(|error: String| format!("{error}; or \"tenant\", \"path\" or \"all\"")),
        }
    }
}

impl fmt::Display for QuotaKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::Path => f.write_str("path"),
            Self::Tenant => f.write_str("tenant"),
            Self::Source(source) => source.fmt(f),
        }
    }
}

written_as_string!(QuotaKey, "Whose quota it is.");

//! Several proxies in front of the same replicas.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;
use std::{fmt, fs};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tidegate_config::Dur;

use super::types::{self, Secret};
use super::{Admin, Config};

/// The default of `hold_cut_off` where proxies report to each other.
const HOLD_CUT_OFF: Duration = Duration::from_secs(60);

/// Proxies in front of the same replicas: windows, guarantees and quotas are shared among them, so
/// that they add up to what is configured. Each has the same file, but for `proxy`. Reports go to
/// the others' admin listeners (`peers`), or through a server: `nats` or `plane`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Fleet {
    /// Name of the fleet; reports of another one are refused.
    pub name: String,
    /// Name of this proxy, its own in the fleet; by default the machine's name and the port of the
    /// admin listener. The live proxy with the smallest name searches for the windows of all.
    #[schemars(example = &"edge-1")]
    pub proxy: Option<String>,
    /// Admin listeners of the proxies, as `"10.0.0.7:9190"` or `"tidegate.internal:9190"`. Every
    /// address of a name is a proxy. This proxy may be among them.
    #[schemars(example = &["10.0.0.7:9190", "10.0.0.8:9190"])]
    pub peers: Vec<String>,
    /// A server of NATS JetStream through which reports go, instead of `peers`: an address or a
    /// table. Needs a build with the feature `nats`.
    #[serde(deserialize_with = "types::short_if_given")]
    #[schemars(example = &"nats://10.0.0.5:4222")]
    pub nats: Option<Nats>,
    /// The control plane through which reports go, instead of `peers`: where `tidegate plane`
    /// listens.
    #[schemars(example = &"http://127.0.0.1:9191")]
    pub plane: Option<String>,
    /// What the admin listeners of the others ask for; by default what this one asks for. Reports
    /// through `nats` and `plane` are sealed with it: all proxies need the same one.
    #[schemars(example = &"3f9c0b0d6a5e4c12")]
    pub token: Option<Secret>,
    /// File that holds the token, instead of `token`.
    #[schemars(example = &"/run/secrets/tidegate")]
    pub token_file: Option<PathBuf>,
    /// Time between two reports.
    pub interval: Dur,
    /// A proxy that is silent for so long is taken for dead; the others share what it had.
    pub hold: Dur,
    /// The same while no other proxy reports: it may be this proxy that is cut off, so that
    /// it goes on with the last known shares. 60 s by default; through `nats` and `plane` without a
    /// bound, since it is more likely that the server is gone.
    #[schemars(example = &"60s")]
    pub hold_cut_off: Option<Dur>,
}

/// A server of NATS JetStream. Reports are in its bucket `tidegate-fleet-NAME`, which is made in
/// memory where there is none.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Nats {
    /// Addresses of the server, or of several of one cluster. `tls://` demands TLS.
    #[schemars(example = &["nats://10.0.0.5:4222"])]
    pub urls: Vec<String>,
    /// The user as which the proxy connects.
    #[schemars(example = &"tidegate")]
    pub user: Option<String>,
    /// File that holds the user's password.
    #[schemars(example = &"/run/secrets/nats")]
    pub password_file: Option<PathBuf>,
    /// File of credentials, as `nsc` writes it, instead of user and password.
    #[schemars(example = &"/run/secrets/tidegate.creds")]
    pub credentials_file: Option<PathBuf>,
    /// Certificates in PEM form that the server's one may be signed by, beside the system's.
    pub ca: Option<PathBuf>,
    /// The proxy's own certificate chain in PEM form, where the server wants one.
    pub client_cert: Option<PathBuf>,
    /// Its key.
    pub client_key: Option<PathBuf>,
    /// Servers of the cluster that keep the bucket, when it is made.
    pub replicas: u8,
}

impl Default for Nats {
    fn default() -> Self {
        Self {
            urls: Vec::new(),
            user: None,
            password_file: None,
            credentials_file: None,
            ca: None,
            client_cert: None,
            client_key: None,
            replicas: 1,
        }
    }
}

impl FromStr for Nats {
    type Err = String;

    fn from_str(url: &str) -> Result<Self, String> {
        Ok(Self {
            urls: vec![url.to_owned()],
            ..Self::default()
        })
    }
}

impl Nats {
    /// The files that it names.
    pub fn files_mut(&mut self) -> impl Iterator<Item = &mut PathBuf> {
        [
            &mut self.password_file,
            &mut self.credentials_file,
            &mut self.ca,
            &mut self.client_cert,
            &mut self.client_key,
        ]
        .into_iter()
        .flatten()
    }

    /// User and password, where they are given.
    ///
    /// # Errors
    /// The password's file cannot be read.
    pub fn read_user(&self) -> Result<Option<(String, String)>, String> {
        let Some(user) = &self.user else {
            return Ok(None);
        };
        let password = self.password_file.as_deref().map(read_line).transpose()?;
        Ok(Some((user.clone(), password.unwrap_or_default())))
    }
}

fn read_line(path: &Path) -> Result<String, String> {
    let text = fs::read_to_string(path).map_err(|error| {
        let shown = path.display();
        format!("cannot read {shown}: {error}; check the name and who may read it")
    })?;
    Ok(text.trim().to_owned())
}

/// What carries the reports of a fleet.
#[derive(Debug, Clone, Copy)]
pub enum FleetCarrier<'a> {
    /// The admin listeners of the proxies.
    Peers(&'a [String]),
    /// A server of NATS JetStream.
    Nats(&'a Nats),
    /// The control plane.
    Plane(&'a str),
}

impl FleetCarrier<'_> {
    /// Whether reports go through a server, where others could write too.
    #[must_use]
    pub const fn is_server(self) -> bool {
        !matches!(self, Self::Peers(_))
    }
}

impl fmt::Display for FleetCarrier<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Peers(peers) => write!(f, "the proxies at {}", peers.join(" and ")),
            Self::Nats(nats) => write!(f, "NATS at {}", nats.urls.join(", ")),
            Self::Plane(url) => write!(f, "the control plane at {url}"),
        }
    }
}

impl Default for Fleet {
    fn default() -> Self {
        Self {
            name: "tidegate".to_owned(),
            proxy: None,
            peers: Vec::new(),
            nats: None,
            plane: None,
            token: None,
            token_file: None,
            interval: Dur(Duration::from_millis(100)),
            hold: Dur(Duration::from_secs(2)),
            hold_cut_off: None,
        }
    }
}

impl Fleet {
    /// What carries the reports.
    #[must_use]
    pub fn carrier(&self) -> FleetCarrier<'_> {
        match (&self.nats, &self.plane) {
            (Some(nats), _) => FleetCarrier::Nats(nats),
            (None, Some(url)) => FleetCarrier::Plane(url),
            (None, None) => FleetCarrier::Peers(&self.peers),
        }
    }

    /// How long the last known shares stay while no proxy reports; `None` without a bound.
    #[must_use]
    pub fn cut_off_after(&self) -> Option<Duration> {
        let default = (!self.carrier().is_server()).then_some(HOLD_CUT_OFF);
        self.hold_cut_off.map(|hold| *hold).or(default)
    }

    /// The token for the others' admin listeners.
    ///
    /// # Errors
    /// The token's file cannot be read or is empty.
    pub fn read_token(&self, admin: &Admin) -> Result<Option<Secret>, String> {
        let own = self.token.is_some() || self.token_file.is_some();
        let asked = Admin {
            token: self.token.clone(),
            token_file: self.token_file.clone(),
            ..Admin::default()
        };
        if own {
            asked.read_token()
        } else {
            admin.read_token()
        }
    }
}

impl Config {
    /// The name of this proxy in its fleet.
    #[must_use]
    pub fn fleet_proxy(&self) -> String {
        let given = self.fleet.as_ref().and_then(|fleet| fleet.proxy.clone());
        given.unwrap_or_else(|| {
            let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
            let host = match host.trim() {
                "" => "proxy",
                host => host,
            };
            format!("{host}:{}", self.admin.addr.port())
        })
    }
}

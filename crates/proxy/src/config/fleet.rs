//! Several proxies in front of the same replicas.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tidegate_config::Dur;

use super::types::Secret;
use super::{Admin, Config};

/// Proxies in front of the same replicas: windows, guarantees and quotas are shared among them, so
/// that they add up to what is configured. Each has the same file, but for `proxy`.
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
    /// What the admin listeners of the others ask for; by default what this one asks for.
    #[schemars(example = &"3f9c0b0d6a5e4c12")]
    pub token: Option<Secret>,
    /// File that holds the token, instead of `token`.
    #[schemars(example = &"/run/secrets/tidegate")]
    pub token_file: Option<PathBuf>,
    /// Time between two reports.
    pub interval: Dur,
    /// A proxy that is silent for so long is taken for dead; the others share what it had.
    pub hold: Dur,
    /// The same while nothing is heard of any other: it may be this proxy that is cut off, so that
    /// it goes on with the last known shares.
    pub hold_cut_off: Dur,
}

impl Default for Fleet {
    fn default() -> Self {
        Self {
            name: "tidegate".to_owned(),
            proxy: None,
            peers: Vec::new(),
            token: None,
            token_file: None,
            interval: Dur(Duration::from_millis(100)),
            hold: Dur(Duration::from_secs(2)),
            hold_cut_off: Dur(Duration::from_secs(60)),
        }
    }
}

impl Fleet {
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

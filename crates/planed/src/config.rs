//! The file of `tidegate plane -c FILE`.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tidegate_config::{ConfigError, Dur};
use tidegate_plane::PlaneConfig;

/// The whole file.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct File {
    /// How the daemon works.
    #[serde(default)]
    pub daemon: DaemonConfig,
    /// What is decided, and by which rules.
    pub plane: PlaneConfig,
    /// How each application's servers are started and stopped, by the application's name.
    #[serde(default)]
    pub driver: BTreeMap<String, DriverConfig>,
}

/// How the daemon works.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DaemonConfig {
    /// Whether decisions are carried out.
    pub mode: Mode,
    /// Where status, events and metrics are served; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Admin addresses of the proxies, like `http://127.0.0.1:9090`.
    pub proxies: Vec<String>,
    /// File with the token of the proxies' admin API, where they have one.
    pub token_file: Option<PathBuf>,
    /// How often proxies and servers are looked at.
    pub interval: Dur,
    /// File that keeps what was learned and which servers run; one daemon at a time has it.
    pub state_file: Option<PathBuf>,
    /// What becomes of the servers when the daemon ends.
    pub on_exit: OnExit,
}

impl Default for DaemonConfig {
    fn default() -> Self {
        Self {
            mode: Mode::Recommend,
            listen: SocketAddr::from(([127, 0, 0, 1], 9190)),
            proxies: Vec::new(),
            token_file: None,
            interval: Dur(Duration::from_secs(1)),
            state_file: None,
            on_exit: OnExit::Keep,
        }
    }
}

/// Whether decisions are carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// They are reported.
    #[default]
    Recommend,
    /// They are carried out.
    Act,
}

/// What becomes of the servers when the daemon ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnExit {
    /// They go on; the next daemon with the same state file takes them over.
    #[default]
    Keep,
    /// They are stopped.
    Stop,
}

/// How the servers of an application are started and stopped.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum DriverConfig {
    /// Processes of this machine.
    Processes(ProcessesConfig),
    /// Servers that run already.
    List(ListConfig),
    /// A command that is given each decision.
    Hook(HookConfig),
}

/// Processes of this machine.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProcessesConfig {
    /// The program and its arguments; `{port}` becomes a free port.
    pub command: Vec<String>,
    /// Path that answers 2xx when a server is ready.
    #[serde(default = "root")]
    pub health: String,
    /// A server that still holds requests after this time is stopped all the same.
    #[serde(default = "drain_time")]
    pub drain_time: Dur,
}

/// Servers that run already.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListConfig {
    /// Their addresses; the first ones are used first.
    pub urls: Vec<String>,
    /// Path that answers 2xx when a server is ready.
    #[serde(default = "root")]
    pub health: String,
    /// A server that still holds requests after this time is taken away all the same.
    #[serde(default = "drain_time")]
    pub drain_time: Dur,
}

/// A command that is given each decision.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HookConfig {
    /// The program and its arguments. It gets the decision as JSON on its standard input; exit
    /// status 0 means that it was carried out.
    pub command: Vec<String>,
    /// It is ended after this time, and the decision counts as not carried out.
    #[serde(default = "hook_time")]
    pub timeout: Dur,
}

fn root() -> String {
    "/".to_owned()
}
const fn drain_time() -> Dur {
    Dur(Duration::from_secs(30))
}
const fn hook_time() -> Dur {
    Dur(Duration::from_secs(30))
}

impl File {
    /// Reads a file's text; `name` says where errors are.
    ///
    /// # Errors
    /// With place and remedy.
    pub fn parse(name: &str, text: &str) -> Result<Self, ConfigError> {
        let file: Self = tidegate_config::parse(name, text)?;
        let refuse = |message: String| ConfigError::new(name, message);
        file.plane
            .check()
            .map_err(|error| refuse(error.to_string()))?;
        file.check().map_err(refuse)?;
        Ok(file)
    }

    fn check(&self) -> Result<(), String> {
        if self.daemon.proxies.is_empty() {
            return Err(
                "`daemon.proxies` is empty: name the admin address of a proxy, like \
                        [\"http://127.0.0.1:9090\"]"
                    .into(),
            );
        }
        if self.daemon.interval.is_zero() {
            return Err("`daemon.interval` is zero: write a time, like \"1s\"".into());
        }
        let names: Vec<&str> = self
            .plane
            .applications
            .iter()
            .map(|a| a.name.as_str())
            .collect();
        for (name, driver) in &self.driver {
            if !names.contains(&name.as_str()) {
                let known = names.join(", ");
                return Err(format!(
                    "`driver.{name}`: there is no application `{name}`; there are: {known}"
                ));
            }
            driver
                .check()
                .map_err(|message| format!("`driver.{name}`: {message}"))?;
        }
        if self.daemon.mode == Mode::Act
            && let Some(name) = names.iter().find(|name| !self.driver.contains_key(**name))
        {
            return Err(format!(
                "mode `act`, and application `{name}` has no driver: add `[driver.{name}.processes]`, \
                 `list` or `hook`, or use mode `recommend`"
            ));
        }
        Ok(())
    }
}

impl DriverConfig {
    fn check(&self) -> Result<(), String> {
        match self {
            Self::Processes(ProcessesConfig { command, .. }) => {
                if command.is_empty() {
                    return Err("`command` is empty: write the program and its arguments".into());
                }
                if !command.iter().any(|part| part.contains("{port}")) {
                    return Err(
                        "`command` has no `{port}`: every server needs a port of its own".into(),
                    );
                }
                Ok(())
            }
            Self::List(ListConfig { urls, .. }) if urls.is_empty() => {
                Err("`urls` is empty: name the servers".into())
            }
            Self::Hook(HookConfig { command, .. }) if command.is_empty() => {
                Err("`command` is empty: write the program and its arguments".into())
            }
            Self::List(_) | Self::Hook(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(rest: &str) -> String {
        let text = format!("[daemon]\nproxies = ['http://127.0.0.1:1']\nmode = 'act'\n{rest}");
        File::parse("plane.toml", &text).unwrap_err().to_string()
    }

    #[test]
    fn files_that_cannot_work_are_refused_with_a_remedy() {
        let app = "[[plane.application]]\nname = 'shop'\n";
        assert!(refused(app).contains("application `shop` has no driver"));
        let unknown = format!("{app}[driver.shoe.list]\nurls = ['http://127.0.0.1:2']");
        assert!(refused(&unknown).contains("there is no application `shoe`; there are: shop"));
        let no_port = format!("{app}[driver.shop.processes]\ncommand = ['x']");
        assert!(refused(&no_port).contains("has no `{port}`"));
        let pool = format!("[plane]\npool = 0\n{app}[driver.shop.list]\nurls = ['http://h']");
        assert!(
            refused(&pool).contains("raise `pool`"),
            "{}",
            refused(&pool)
        );
    }
}

//! The file of `tidegate plane -c FILE`.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tidegate_config::{ConfigError, Dur};
use tidegate_plane::{PlaneConfig, ServerShare};

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
    /// What adds proxies and takes them away (`plane.proxies` says when). Without it the plane only
    /// says that there should be more or fewer.
    pub proxies: Option<ProxiesDriverConfig>,
    /// The Kubernetes cluster: for its drivers, for one leader, and for `TidegateApplication`s.
    pub kubernetes: Option<ClusterConfig>,
    /// A scaler for KEDA, which then scales instead of this daemon.
    pub keda: Option<KedaConfig>,
}

/// What adds proxies and takes them away.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ProxiesDriverConfig {
    /// A command that is given each decision about proxies: `from`, `to` and `reason` as JSON.
    Hook(HookConfig),
}

/// The Kubernetes cluster.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ClusterConfig {
    /// A kubeconfig file. Without it, the service account of the pod, or `KUBECONFIG`.
    pub kubeconfig: Option<PathBuf>,
    /// The namespace of applications, Services and the Lease. Without it, that of the pod or of
    /// the kubeconfig.
    pub namespace: Option<String>,
    /// Whether `TidegateApplication` objects of the namespace are applications too.
    pub applications: bool,
    /// The Lease by which one of several daemons leads; empty for none.
    pub lease: String,
    /// The name of this daemon in the Lease. Without it, the host's name and a random number.
    pub identity: Option<String>,
}

impl Default for ClusterConfig {
    fn default() -> Self {
        Self {
            kubeconfig: None,
            namespace: None,
            applications: false,
            lease: "tidegate-plane".to_owned(),
            identity: None,
        }
    }
}

/// A scaler for KEDA.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KedaConfig {
    /// Where KEDA asks (gRPC `externalscaler.ExternalScaler`); port 0 takes a free one.
    pub listen: SocketAddr,
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
    /// Whether a name in `proxies` stands for each of its addresses, as that of a headless Service
    /// does: proxies that come and go are found. A name that has IPv4 addresses stands for these.
    pub each_address: bool,
    /// File with the token of the proxies' admin API, where they have one. Proxies that exchange
    /// their reports here (`fleet.plane`) have to show it, and so does the kill switch.
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
            each_address: false,
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
    /// A Deployment or the like in Kubernetes.
    Kubernetes(KubernetesDriverConfig),
}

/// What is scaled in Kubernetes, and how.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KubernetesDriverConfig {
    /// Its API group and version.
    #[serde(default = "apps")]
    pub api_version: String,
    /// Its kind: one that has the `scale` subresource.
    #[serde(default = "deployment")]
    pub kind: String,
    /// Its name.
    pub name: String,
    /// The Service whose endpoints are the servers. Without it, of the same name.
    pub service: Option<String>,
    /// The port of the Service by name, or of the pods by number. Without it, the only one.
    #[serde(default)]
    pub port: String,
    /// How a pod is made the one that is deleted.
    #[serde(default)]
    pub drain: Drain,
    /// A pod that still holds requests after this time is given back all the same.
    #[serde(default = "drain_time")]
    pub drain_time: Dur,
    /// What puts the servers into the proxies' pools.
    #[serde(default)]
    pub pool: PoolBy,
}

/// How a pod is made the one that is deleted when there are to be fewer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Drain {
    /// By the annotation `controller.kubernetes.io/pod-deletion-cost`, from Kubernetes 1.22 on.
    #[default]
    DeletionCost,
    /// By the readiness gate `tidegate.dev/serving` of the pods, in every version.
    Readiness,
    /// Not at all: Kubernetes chooses.
    None,
}

/// What puts the servers into the proxies' pools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PoolBy {
    /// The proxies themselves, which follow the Service (`upstream.discover.kubernetes`). That
    /// works without a control plane too.
    #[default]
    Proxy,
    /// The control plane, by the proxies' admin API, in mode `act` only. It sees which pods hold
    /// requests and drains them to the last one.
    Plane,
}

/// Processes of this machine.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProcessesConfig {
    /// The program and its arguments; `{port}` becomes a free port.
    pub command: Vec<String>,
    /// File that the servers' output is appended to; `{port}` becomes the server's port. Without it
    /// the output is lost.
    pub log: Option<PathBuf>,
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
fn apps() -> String {
    "apps/v1".to_owned()
}
fn deployment() -> String {
    "Deployment".to_owned()
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
        let declared = file.kubernetes.as_ref().is_some_and(|it| it.applications);
        let checked = if declared {
            file.plane.check_parts()
        } else {
            file.plane.check()
        };
        checked.map_err(|error| refuse(error.to_string()))?;
        file.check().map_err(refuse)?;
        Ok(file)
    }

    /// Whether it needs a cluster: its section, or a driver of that kind.
    #[must_use]
    pub fn cluster(&self) -> Option<ClusterConfig> {
        let mut drivers = self.driver.values();
        let driver = drivers.any(|it| matches!(it, DriverConfig::Kubernetes(_)));
        self.kubernetes
            .clone()
            .or_else(|| driver.then(ClusterConfig::default))
    }

    /// What of the machine does not fit the file, for `--check`: the daemon itself starts, reports
    /// it, and goes on with everything else.
    #[must_use]
    pub fn missing(&self) -> Vec<String> {
        let token = self.daemon.read_token().err();
        let drivers = self.driver.iter();
        let drivers = drivers.map(|(name, driver)| (format!("driver.{name}"), driver.command()));
        let proxies = self.proxies.iter();
        let proxies = proxies.map(|ProxiesDriverConfig::Hook(hook)| {
            let command = Some(hook.command.as_slice());
            ("proxies.hook".to_owned(), command)
        });
        let commands = drivers.chain(proxies).filter_map(|(key, command)| {
            let program = command?.first()?;
            (!is_program(program))
                .then(|| format!("`{key}`: there is no program `{program}`; correct `command`"))
        });
        token.into_iter().chain(commands).collect()
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
        for url in &self.daemon.proxies {
            check_url(url).map_err(|message| format!("`daemon.proxies`: {message}"))?;
        }
        self.check_proxies()?;
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
        for application in &self.plane.applications {
            let driver = self.driver.get(&application.name);
            let Some(DriverConfig::List(ListConfig { urls, .. })) = driver else {
                continue;
            };
            if urls.len() < application.min as usize {
                return Err(format!(
                    "`driver.{}.list` has {} servers, and `min` is {}: name more, or lower `min`",
                    application.name,
                    urls.len(),
                    application.min
                ));
            }
        }
        if self.keda.is_some() && self.daemon.mode == Mode::Act {
            return Err(
                "`keda` and mode `act`: two would scale the same servers; remove `[keda]`, or use \
                 mode `recommend` and let KEDA scale"
                    .into(),
            );
        }
        if self.daemon.mode == Mode::Act
            && let Some(name) = names.iter().find(|name| !self.driver.contains_key(**name))
        {
            return Err(format!(
                "mode `act`, and application `{name}` has no driver: add `[driver.{name}.processes]`, \
                 `list`, `hook` or `kubernetes`, or use mode `recommend`"
            ));
        }
        Ok(())
    }
}

impl File {
    /// Whether what is decided about proxies can be carried out.
    fn check_proxies(&self) -> Result<(), String> {
        if let Some(ProxiesDriverConfig::Hook(hook)) = &self.proxies {
            if hook.command.is_empty() {
                return Err(
                    "`proxies.hook.command` is empty: write the program and its arguments".into(),
                );
            }
            if self.plane.proxies.max == 1 {
                return Err(
                    "`proxies.hook` has nothing to do, since `plane.proxies.max` is 1: raise it"
                        .into(),
                );
            }
        }
        let divides = |driver: &DriverConfig| {
            matches!(driver, DriverConfig::Processes(_) | DriverConfig::List(_))
        };
        let mut drivers = self.driver.iter();
        let other = drivers.find(|(_, driver)| !divides(driver));
        match other {
            Some((name, _)) if self.plane.proxies.servers == ServerShare::Partitioned => {
                Err(format!(
                    "`plane.proxies.servers = \"partitioned\"`: the driver of `{name}` does not put \
                     servers into pools; use `processes` or `list`, or `servers = \"shared\"`"
                ))
            }
            _ => Ok(()),
        }
    }
}

impl DaemonConfig {
    /// The token of the proxies' admin API.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn read_token(&self) -> Result<Option<String>, String> {
        let read = |path: &PathBuf| {
            let text = std::fs::read_to_string(path).map_err(|error| {
                format!(
                    "`daemon.token_file`: cannot read {}: {error}; check the name and who may read \
                     it",
                    path.display()
                )
            })?;
            Ok(text.trim().to_owned())
        };
        self.token_file.as_ref().map(read).transpose()
    }
}

/// Whether an address is one that the daemon can call.
fn check_url(url: &str) -> Result<(), String> {
    let uri: Option<http::Uri> = url.parse().ok();
    let host = uri.as_ref().and_then(|uri| uri.host());
    let is_http = uri
        .as_ref()
        .is_some_and(|uri| uri.scheme_str() == Some("http"));
    if is_http && host.is_some_and(|host| !host.is_empty()) {
        return Ok(());
    }
    Err(format!(
        "`{url}` is not an http:// address: write it like \"http://127.0.0.1:9090\""
    ))
}

/// Whether a program is there: by its path, or in the `PATH`.
fn is_program(program: &str) -> bool {
    if program.contains('/') {
        return Path::new(program).is_file();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

impl DriverConfig {
    /// What it runs, where it runs something.
    fn command(&self) -> Option<&[String]> {
        match self {
            Self::Processes(config) => Some(&config.command),
            Self::Hook(config) => Some(&config.command),
            Self::List(_) | Self::Kubernetes(_) => None,
        }
    }

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
            Self::List(ListConfig { urls, .. }) => urls.iter().try_for_each(|url| check_url(url)),
            Self::Hook(HookConfig { command, .. }) if command.is_empty() => {
                Err("`command` is empty: write the program and its arguments".into())
            }
            Self::Kubernetes(config) => config.check(),
            Self::Hook(_) => Ok(()),
        }
    }
}

impl KubernetesDriverConfig {
    /// Whether its parts go together.
    ///
    /// # Errors
    /// The first contradiction, with its remedy.
    pub fn check(&self) -> Result<(), String> {
        if self.name.is_empty() {
            return Err("`name` is empty: name the Deployment".into());
        }
        let stateful = self.kind == "StatefulSet";
        if stateful && self.drain != Drain::None {
            return Err(
                "a StatefulSet gives its last pod back, whatever is marked: write `drain = \"none\"`"
                    .into(),
            );
        }
        Ok(())
    }

    /// The Service of the servers.
    #[must_use]
    pub fn service(&self) -> &str {
        self.service.as_deref().unwrap_or(&self.name)
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
        let keda =
            format!("{app}[driver.shop.list]\nurls = ['http://h']\n[keda]\nlisten = '127.0.0.1:0'");
        assert!(refused(&keda).contains("two would scale"));
        let last = format!("{app}[driver.shop.kubernetes]\nname = 'shop'\nkind = 'StatefulSet'");
        assert!(refused(&last).contains("`drain = \"none\"`"));
        let few = "[[plane.application]]\nname = 'shop'\nmin = 3\n[driver.shop.list]\nurls = ['http://h']";
        assert!(refused(few).contains("has 1 servers, and `min` is 3"));
        let url = format!("{app}[driver.shop.list]\nurls = ['127.0.0.1:2']");
        assert!(refused(&url).contains("not an http:// address"));
        let pool = format!("[plane]\npool = 0\n{app}[driver.shop.list]\nurls = ['http://h']");
        assert!(
            refused(&pool).contains("raise `pool`"),
            "{}",
            refused(&pool)
        );
    }

    #[test]
    fn missing_programs_and_files_are_named_without_stopping_the_rest() {
        let text = "[daemon]\nproxies = ['http://127.0.0.1:1']\ntoken_file = '/no/token'\n\
                    [[plane.application]]\nname = 'shop'\n[[plane.application]]\nname = 'blog'\n\
                    [driver.shop.processes]\ncommand = ['/no/server', '{port}']\n\
                    [driver.blog.hook]\ncommand = ['sh', '-c', 'true']\n";
        let file = File::parse("plane.toml", text).unwrap();
        let missing = file.missing();
        assert_eq!(missing.len(), 2, "{missing:?}");
        assert!(missing[0].contains("/no/token") && missing[1].contains("no program `/no/server`"));
    }
}

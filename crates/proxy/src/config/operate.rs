//! What operators look at: the admin listener and the access log.

use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use tidegate_config::Size;

use super::types::{Addr, Secret, written_as_string};

/// The admin listener: status, live changes, metrics. Clients never reach it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Admin {
    /// Whether there is one.
    pub enabled: bool,
    /// Address and port. Anything but loopback needs a token.
    pub addr: Addr,
    /// What callers have to send as `Authorization: Bearer TOKEN`.
    #[schemars(example = &"3f9c0b0d6a5e4c12")]
    pub token: Option<Secret>,
    /// File that holds the token, instead of `token`.
    #[schemars(example = &"/run/secrets/tidegate")]
    pub token_file: Option<PathBuf>,
    /// Callers without the token may look at everything and change nothing.
    pub read_only_without_token: bool,
    /// Where `tidegate plane` listens: the status and the page show what it wants and why.
    #[schemars(example = &"http://127.0.0.1:9191")]
    pub plane: Option<String>,
    /// Names under which the listener is reached, beside its address and `localhost`. Requests for
    /// other hosts are refused, so that a web page cannot reach it by DNS rebinding.
    pub hosts: Vec<String>,
}

impl Default for Admin {
    fn default() -> Self {
        Self {
            enabled: true,
            addr: Addr::loopback(9190),
            token: None,
            token_file: None,
            read_only_without_token: false,
            plane: None,
            hosts: Vec::new(),
        }
    }
}

impl Admin {
    /// The token in force, from the file or from its file.
    ///
    /// # Errors
    /// The token's file cannot be read or is empty.
    pub fn read_token(&self) -> Result<Option<Secret>, String> {
        let Some(path) = &self.token_file else {
            return Ok(self.token.clone());
        };
        let shown = path.display();
        let text = fs::read_to_string(path).map_err(|error| {
            format!("cannot read {shown}: {error}; check the name and who may read it")
        })?;
        match text.trim() {
            "" => Err(format!("{shown} is empty; write a token into it")),
            token => Ok(Some(Secret::new(token))),
        }
    }
}

impl FromStr for Admin {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(Self {
                enabled: false,
                ..Self::default()
            }),
            text => text.parse().map(|addr| Self {
                addr,
                ..Self::default()
            }),
        }
    }
}

/// Lines about the proxy itself, on standard error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    /// How a line is written: `"text"` for people, `"json"` for programs.
    pub format: LineFormat,
}

impl FromStr for Log {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse().map(|format| Self { format })
    }
}

/// How a line about the proxy is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LineFormat {
    /// Time, level, message, then `name=value`.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

impl FromStr for LineFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            other => Err(format!(
                "`{other}` is not a format of the log: write \"text\" or \"json\""
            )),
        }
    }
}

/// One line per request.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AccessLog {
    /// `"off"`, `"stderr"`, or a file that lines are appended to.
    pub to: LogTarget,
    /// How a line is written.
    pub format: LogFormat,
}

impl FromStr for AccessLog {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse().map(|to| Self {
            to,
            ..Self::default()
        })
    }
}

/// Where the access log goes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum LogTarget {
    /// Nowhere.
    #[default]
    Off,
    /// The process's standard error.
    Stderr,
    /// Appended to this file, which is opened again on every reload.
    File(PathBuf),
}

impl FromStr for LogTarget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "" => Err("an empty name: write \"off\", \"stderr\" or a file".into()),
            "off" => Ok(Self::Off),
            "stderr" => Ok(Self::Stderr),
            path => Ok(Self::File(path.into())),
        }
    }
}

impl fmt::Display for LogTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::Stderr => f.write_str("stderr"),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

written_as_string!(LogTarget, "Where the access log goes.");

/// How a line of the access log is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// One JSON object per line, with class, verdict, waiting and service time.
    #[default]
    Json,
    /// The common log format of web servers.
    Common,
}

/// What passes, recorded for `tidegate whatif` and `tidegate recording`: arrivals, decisions and
/// times, no bodies and no header values. Also begun and ended by `tidegate ctl record`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Record {
    /// Directory the recording is written into, from the start of the proxy on; none by default.
    #[schemars(example = &"/var/lib/tidegate/recording")]
    pub dir: Option<PathBuf>,
    /// Whether paths are recorded with their names, ids folded, beside their keyed hashes.
    pub names: bool,
    /// Whether every call of the engines is recorded from the start of the proxy on, for
    /// `tidegate replay --verify`. Engines are then called by one thread at a time. At
    /// `record.total_size` nothing more is recorded, instead of removing the oldest.
    pub decisions: bool,
    /// A file of this size is followed by another.
    pub file_size: Size,
    /// The oldest files are removed when all together are larger than this.
    pub total_size: Size,
}

impl Default for Record {
    fn default() -> Self {
        Self {
            dir: None,
            names: true,
            decisions: false,
            file_size: Size(64 << 20),
            total_size: Size(1 << 30),
        }
    }
}

//! What the operator has decided about deadlines, kept for the next process.
//!
//! A prolongation is made in an outage, which a restart may be part of. The file holds what was
//! decided and what the configuration said then: a configuration that was changed since wins.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_channel::Terms;
use tidegate_control::Timestamp;

use crate::config::Channel as Config;

/// Beside the key, unless the configuration says where.
pub(super) fn path(config: &Config) -> PathBuf {
    config.state_file.clone().unwrap_or_else(|| {
        let mut name = config.key_file.as_os_str().to_owned();
        name.push(".state");
        name.into()
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Written {
    prolonged_s: f64,
    deadline_s: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct File {
    decided: Written,
    configured: Written,
}

impl Written {
    fn of(terms: &Terms) -> Self {
        Self {
            prolonged_s: terms.prolonged.as_secs_f64(),
            deadline_s: terms.deadline.map(Timestamp::as_secs_f64),
        }
    }

    fn terms(&self) -> Option<Terms> {
        let time = |seconds: f64| Duration::try_from_secs_f64(seconds).ok();
        let deadline = self.deadline_s.map(time);
        let deadline = deadline.map_or(Some(None), |deadline| deadline.map(Some))?;
        Some(Terms {
            prolonged: time(self.prolonged_s)?,
            deadline: deadline.map(|since| Timestamp::ZERO + since),
        })
    }
}

/// What the configuration says.
pub(super) fn configured(config: &Config) -> Terms {
    Terms {
        prolonged: *config.prolong,
        deadline: config
            .deadline
            .map(|seconds| Timestamp::ZERO + Duration::from_secs(seconds)),
    }
}

/// What was decided for this configuration, or what it says itself.
///
/// # Errors
/// A file that is there and cannot be used.
pub(super) fn read(config: &Config) -> io::Result<Terms> {
    let configured = configured(config);
    let text = match fs::read_to_string(path(config)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(configured),
        read => read?,
    };
    let file: File = serde_json::from_str(&text)?;
    let same = file.configured == Written::of(&configured);
    let decided = file.decided.terms().filter(|_| same);
    Ok(decided.unwrap_or(configured))
}

/// Writes what was decided, whole or not at all.
///
/// # Errors
/// When the file cannot be written.
pub(super) fn write(config: &Config, decided: &Terms) -> io::Result<()> {
    let file = File {
        decided: Written::of(decided),
        configured: Written::of(&configured(config)),
    };
    replace(&path(config), &serde_json::to_string(&file)?)
}

fn replace(path: &Path, text: &str) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let mut file = fs::File::create(&beside)?;
    writeln!(file, "{text}")?;
    file.sync_all()?;
    fs::rename(&beside, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_decided_outlives_a_restart_until_the_configuration_says_otherwise() {
        let folder = tempfile::tempdir().unwrap();
        let mut config = Config {
            key_file: folder.path().join("channel.key"),
            deadline: Some(1000),
            ..Config::default()
        };
        assert_eq!(read(&config).unwrap(), configured(&config));
        let decided = Terms {
            prolonged: Duration::from_secs(90),
            deadline: Some(Timestamp::ZERO + Duration::from_secs(2000)),
        };
        write(&config, &decided).unwrap();
        assert_eq!(read(&config).unwrap(), decided);
        config.deadline = Some(3000);
        assert_eq!(read(&config).unwrap(), configured(&config));
        fs::write(path(&config), "{").unwrap();
        assert!(read(&config).is_err());
    }
}

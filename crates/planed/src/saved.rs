//! The state file: written beside and renamed, so that a crash leaves the old one or the new one.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tidegate_plane::Snapshot;

use crate::driver::Saved;

/// What survives the daemon.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct State {
    pub(crate) plane: Snapshot,
    pub(crate) servers: BTreeMap<String, Vec<Saved>>,
    #[serde(default)]
    pub(crate) kill_switch: bool,
}

/// The file, and the lock that makes this daemon the only one that has it.
#[derive(Debug)]
pub(crate) struct StateFile {
    path: PathBuf,
    _lock: File,
}

impl StateFile {
    /// Takes the file for this daemon.
    pub(crate) fn take(path: &Path) -> Result<Self, String> {
        let lock_path = path.with_extension("lock");
        let shown = lock_path.display();
        let lock = File::create(&lock_path)
            .map_err(|error| format!("{shown}: {error}; choose another `daemon.state_file`"))?;
        lock.try_lock().map_err(|_| {
            format!(
                "{shown} is locked: another control plane works with this state file; stop it first"
            )
        })?;
        Ok(Self {
            path: path.to_owned(),
            _lock: lock,
        })
    }

    /// What an earlier daemon left; nothing where there was none. A file that cannot be read is
    /// kept beside, and said.
    pub(crate) fn read(&self) -> (Option<State>, Option<String>) {
        let text = match fs::read(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return (None, None),
            Err(error) => return (None, Some(format!("{}: {error}", self.path.display()))),
        };
        match serde_json::from_slice(&text) {
            Ok(state) => (Some(state), None),
            Err(error) => {
                let aside = self.path.with_extension("unreadable");
                let _ = fs::rename(&self.path, &aside);
                let (path, aside) = (self.path.display(), aside.display());
                (
                    None,
                    Some(format!("{path}: {error}; kept as {aside}, and begun anew")),
                )
            }
        }
    }

    pub(crate) fn write(&self, state: &State) -> io::Result<()> {
        let beside = self.path.with_extension("new");
        let mut file = File::create(&beside)?;
        serde_json::to_writer(&mut file, state)?;
        file.flush()?;
        file.sync_all()?;
        fs::rename(&beside, &self.path)
    }
}

//! What mode `auto` has found out, the pools, and what discovery found, for the next process.
//!
//! A proxy that starts in front of a busy service knows nothing of it. In front of 200 workers
//! hundreds of requests wait until the first window of sixteen has grown to their number. So the
//! windows that were found are written to `state_file` when they have changed, and passed on in an
//! upgrade. They are where the search begins, and are believed no more than the first window is: a
//! file that is old, or of another service, costs what knowing nothing costs.
//!
//! The file is written beside itself and renamed, so that a crash or a full disk leaves the last
//! one whole. One that cannot be read all the same is told of and left alone until there is
//! something to write.
//!
//! Decision: docs/decisions/0057-saved-state.md.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_sentry::ReplicaId;

use crate::application::Application;
use crate::config::DEFAULT;
use crate::notice;
use crate::pool::{Discovered, PoolOverride};
use crate::state::State;

/// Time between two looks at whether something has changed. Chosen: what is learnt in less is
/// learnt again in less.
const PERIOD: Duration = Duration::from_secs(5);

/// The most that is read: some fifty thousand replicas.
const BYTES_MAX: u64 = 16 << 20;

/// Windows that were found, by the URL of the replica.
type Windows = BTreeMap<String, u32>;

/// What was found out about the replicas, and the pools that were set while the proxy ran. Keys
/// that another version writes are passed over.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedState {
    /// Of the application of a file that has one.
    #[serde(default)]
    windows: Windows,
    /// Of several applications, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    applications: BTreeMap<String, Windows>,
    /// By application.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pools: BTreeMap<String, PoolOverride>,
    /// What discovery found last, by application: a proxy that starts while a source is away has
    /// these.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    discovered: BTreeMap<String, Discovered>,
    /// What operators have switched while the proxy ran, by application; for a successor, never
    /// for the file.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    switches: BTreeMap<String, Switches>,
}

/// Switches of operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Switches {
    kill_switch: bool,
    dry_run: bool,
    draining: bool,
    #[serde(default)]
    maintenance: Option<bool>,
}

impl Switches {
    fn put_in_force(self, application: &Application) {
        let now = application.now();
        let sentry = application.sentry();
        application.pass_on(sentry.set_kill_switch(now, self.kill_switch));
        application.pass_on(sentry.set_dry_run(now, self.dry_run));
        sentry.set_draining(now, self.draining);
    }
}

impl SavedState {
    /// What is known by now.
    #[must_use]
    pub fn of(state: &State) -> Self {
        let mut saved = Self {
            pools: state.pools(),
            discovered: state.discovered(),
            ..Self::default()
        };
        for application in state.applications().iter() {
            *saved.windows_mut(application.name()) = windows(application);
        }
        saved.applications.retain(|_, windows| !windows.is_empty());
        saved
    }

    /// What is known by now, and what operators have switched, for the process that takes over.
    #[must_use]
    pub fn for_successor(state: &State) -> Self {
        let mut saved = Self::of(state);
        for application in state.applications().iter() {
            let status = application.sentry().status(application.now());
            let switches = Switches {
                kill_switch: status.kill_switch,
                dry_run: status.dry_run,
                draining: status.draining,
                maintenance: Some(application.config().edge.maintenance.enabled),
            };
            saved
                .switches
                .insert(application.name().to_owned(), switches);
        }
        saved
    }

    fn windows_mut(&mut self, name: &str) -> &mut Windows {
        match name {
            DEFAULT => &mut self.windows,
            name => self.applications.entry(name.to_owned()).or_default(),
        }
    }

    /// Lets the search go on from what is known of the replicas that are still there.
    pub(crate) fn resume(&self, state: &State) {
        if let Err(error) = state.resume_pools(&self.pools, &self.discovered) {
            notice(format_args!(
                "the replicas known before cannot be used, those of the file are: {error}"
            ));
        }
        let switched = self.switches.iter();
        let switched = switched.filter_map(|(name, it)| Some((name.as_str(), it.maintenance?)));
        if let Err(error) = state.resume_maintenance(&switched.collect()) {
            notice(format_args!(
                "maintenance is not switched as it was before: {error}"
            ));
        }
        for application in state.applications().iter() {
            if let Some(switches) = self.switches.get(application.name()) {
                switches.put_in_force(application);
            }
            let found = match application.name() {
                DEFAULT => Some(&self.windows),
                name => self.applications.get(name),
            };
            let Some(found) = found else { continue };
            let known = by_url(application);
            let known = known.filter_map(|(url, id)| Some((id, *found.get(&url)?)));
            let windows: Vec<_> = known.collect();
            application.sentry().resume(application.now(), &windows);
        }
    }

    /// Reads what another process has written or passed on.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// Nothing is known where there is no file.
    fn read(path: &Path) -> io::Result<Self> {
        let file = match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            opened => opened?,
        };
        let mut text = String::new();
        file.take(BYTES_MAX).read_to_string(&mut text)?;
        Self::parse(&text).map_err(io::Error::from)
    }

    /// Whole or not at all.
    fn write(&self, path: &Path) -> io::Result<()> {
        let mut beside = path.as_os_str().to_owned();
        beside.push(".new");
        let mut file = File::create(&beside)?;
        writeln!(file, "{self}")?;
        file.sync_all()?;
        fs::rename(beside, path)
    }
}

/// As [`SavedState::parse`] reads it.
impl std::fmt::Display for SavedState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = serde_json::to_string(self).map_err(|_| std::fmt::Error)?;
        f.write_str(&text)
    }
}

/// The windows that an application has found.
fn windows(application: &Application) -> Windows {
    let windows: BTreeMap<_, _> = application.sentry().windows().into_iter().collect();
    let named = by_url(application);
    named
        .filter_map(|(url, id)| Some((url, *windows.get(&id)?)))
        .collect()
}

/// The replicas in force.
fn by_url(application: &Application) -> impl Iterator<Item = (String, ReplicaId)> {
    let settings = application.settings();
    let named = |&id| Some((settings.replica(id)?.origin().to_string(), id));
    let named: Vec<_> = settings.replica_ids().iter().filter_map(named).collect();
    named.into_iter()
}

/// Begins with what a predecessor has passed on, or else with the file.
pub(crate) fn resume(state: &State, passed_on: Option<&SavedState>) {
    let config = state.config();
    match (passed_on, &config.state_file) {
        (Some(saved), _) => saved.resume(state),
        (None, Some(path)) => match SavedState::read(path) {
            Ok(saved) => saved.resume(state),
            Err(error) => notice(format_args!(
                "{} cannot be read, so what was learnt before is learnt again: {error}",
                path.display()
            )),
        },
        (None, None) => {}
    }
}

/// Writes what is learnt to the state file, for ever; until another process does that.
pub(crate) async fn keep(state: Arc<State>, notice: impl Fn(&str)) {
    let mut keeper = Keeper::of(SavedState::of(&state));
    loop {
        tokio::time::sleep(PERIOD).await;
        let path = state.config().state_file.clone();
        if let Some(path) = path.filter(|_| !state.is_relieved()) {
            keeper.look(SavedState::of(&state), path, &notice).await;
        }
    }
}

/// Remembers what is in the file.
struct Keeper {
    kept: SavedState,
    /// Whether the last attempt failed, which is said once.
    failing: bool,
}

impl Keeper {
    fn of(kept: SavedState) -> Self {
        Self {
            kept,
            failing: false,
        }
    }

    /// Writes what is learnt by now, if that is something else.
    async fn look(&mut self, saved: SavedState, path: PathBuf, notice: &impl Fn(&str)) {
        if saved == self.kept {
            return;
        }
        let (copy, shown) = (saved.clone(), path.display().to_string());
        let written = tokio::task::spawn_blocking(move || copy.write(&path)).await;
        match written.map_err(io::Error::other).flatten() {
            Ok(()) => {
                self.kept = saved;
                self.failing = false;
            }
            Err(error) => {
                if !std::mem::replace(&mut self.failing, true) {
                    notice(&format!(
                        "{shown} cannot be written, so a restart would learn anew: {error}"
                    ));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::config::Config;

    const URL: &str = "http://127.0.0.1:1";

    fn state(more: &str) -> Arc<State> {
        let text = format!("{more}\nupstream = ['{URL}', 'http://127.0.0.1:2']");
        State::new(Config::from_text("state.toml", &text).unwrap()).unwrap()
    }

    fn windows(state: &State) -> Vec<Option<u32>> {
        let status = state.first().sentry().status(state.now());
        status
            .replicas
            .iter()
            .map(|replica| replica.window)
            .collect()
    }

    #[test]
    fn what_is_passed_on_is_where_the_search_begins() {
        let state = state("");
        let passed = format!(r#"{{ "windows": {{ "{URL}": 77, "http://gone": 5 }}, "later": 1 }}"#);
        resume(&state, Some(&SavedState::parse(&passed).unwrap()));
        assert_eq!(windows(&state), [Some(77), Some(16)]);
        let saved = SavedState::of(&state);
        assert_eq!(
            saved.to_string(),
            format!(r#"{{"windows":{{"{URL}":77}}}}"#)
        );
    }

    #[test]
    fn windows_stay_within_their_bounds() {
        let state = state("protect.limits = { window_min = 2, window_max = 50 }");
        let passed =
            format!(r#"{{ "windows": {{ "{URL}": 4294967295, "http://127.0.0.1:2": 0 }} }}"#);
        resume(&state, Some(&SavedState::parse(&passed).unwrap()));
        assert_eq!(windows(&state), [Some(50), Some(2)]);
    }

    #[tokio::test]
    async fn what_was_written_is_read_by_the_next_process() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state.json");
        let configured = format!("state_file = '{}'", path.display());
        let first = state(&configured);
        // There is no file yet.
        resume(&first, None);
        let saved = SavedState::parse(&format!(r#"{{ "windows": {{ "{URL}": 77 }} }}"#)).unwrap();
        let mut keeper = Keeper::of(SavedState::default());
        let silent = |line: &str| panic!("{line}");
        keeper.look(saved, path.clone(), &silent).await;
        let second = state(&configured);
        resume(&second, None);
        assert_eq!(windows(&second), [Some(77), Some(16)]);

        // Torn, as by a disk that lost the end of it.
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, &text[..text.len() / 2]).unwrap();
        let third = state(&configured);
        resume(&third, None);
        assert_eq!(windows(&third), [Some(16), Some(16)]);
    }

    #[tokio::test]
    async fn what_cannot_be_written_is_told_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("gone").join("state.json");
        let told = RefCell::new(Vec::new());
        let notice = |line: &str| told.borrow_mut().push(line.to_owned());
        let mut keeper = Keeper::of(SavedState::default());
        let saved = SavedState::parse(r#"{ "windows": { "a": 1 } }"#).unwrap();
        keeper.look(saved.clone(), path.clone(), &notice).await;
        keeper.look(saved.clone(), path.clone(), &notice).await;
        assert_eq!(told.borrow().len(), 1, "{told:?}");
        fs::create_dir(dir.path().join("gone")).unwrap();
        keeper.look(saved.clone(), path.clone(), &notice).await;
        assert_eq!(
            (keeper.failing, SavedState::read(&path).unwrap()),
            (false, saved)
        );
    }
}

//! Puts a changed configuration in force, whole or not at all.
//!
//! A reload reads the file and everything it names, checks all of it, and only then replaces what
//! is in force; whatever is wrong leaves the old configuration untouched and the message in the
//! log, in the status and in the metrics. Certificates, texts and tokens are read again even when
//! the file itself is the same.
//!
//! Live changes of an application (mode, parameters, dry run, maintenance) last until its sections
//! of the file change, those that it takes from the top included, or a reload is asked for: then
//! the file is right again. A renewed certificate does not undo them, nor does a change of another
//! application.

mod watch;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::Serialize;
use tidegate_config::ConfigError;
use tidegate_sentry::SentryConfig;

use crate::config::{self, Config};
use crate::settings::SettingsError;
use crate::state::State;
use watch::{Stamp, Watch};

/// Where the configuration comes from.
#[derive(Default)]
pub struct Source {
    /// The file; without one there is nothing to reload.
    pub file: Option<PathBuf>,
    /// What the command line adds to it, at the start and at every reload.
    pub flags: Option<Flags>,
}

impl Source {
    /// A file alone.
    #[must_use]
    pub fn file(path: &Path) -> Self {
        Self {
            file: Some(path.to_owned()),
            flags: None,
        }
    }
}

/// Changes a configuration as the command line asks.
pub type Flags = Box<dyn Fn(&mut Config) + Send + Sync>;

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source")
            .field("file", &self.file)
            .finish_non_exhaustive()
    }
}

/// Why a reload happens. Each puts the whole file in force; they differ in which live changes stay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trigger {
    /// Somebody asked: SIGHUP or the admin API. Live changes are dropped.
    Asked,
    /// Somebody asked for one application. Its live changes are dropped; those of the others stay
    /// if their sections have not changed.
    AskedOf(String),
    /// A file has changed. Live changes stay where the sections of the application have not.
    Changed,
}

impl Trigger {
    /// Whether live changes of an application may stay.
    fn spares(&self, application: &str) -> bool {
        match self {
            Self::Asked => false,
            Self::AskedOf(name) => name != application,
            Self::Changed => true,
        }
    }
}

/// Why the configuration in force stays.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// The proxy was started without a file.
    #[error("there is no file to reload; start the proxy with `-c FILE`")]
    NoFile,
    /// The file is refused.
    #[error("{}", join(.0))]
    Refused(Vec<ConfigError>),
    /// The file changes what only a restart can change.
    #[error(
        "{0} cannot change while the proxy runs; restart it, or send it SIGUSR2, which loses no request"
    )]
    NeedsRestart(String),
    /// Something the file needs could not be made.
    #[error(transparent)]
    Settings(#[from] SettingsError),
}

fn join(errors: &[ConfigError]) -> String {
    let lines: Vec<_> = errors.iter().map(ToString::to_string).collect();
    lines.join("\n")
}

/// What became of the file, for status and metrics.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub struct ReloadStatus {
    /// The file, where there is one.
    pub file: Option<String>,
    /// Times it was put in force since the start.
    pub reloads: u64,
    /// Times it was refused.
    pub refused: u64,
    /// When it was last put in force, in seconds since 1970.
    pub reloaded_at_unix_seconds: Option<f64>,
    /// Why the file as it is now is not in force; absent when it is.
    pub error: Option<String>,
    /// Whether parameters were changed live since the file was put in force.
    pub changed_live: bool,
}

/// The one who changes the configuration in force.
#[derive(Debug)]
pub struct Reloader {
    state: Arc<State>,
    source: Source,
    /// One change at a time; holds the file's configuration as it was last put in force.
    in_file: Mutex<Arc<Config>>,
    watch: Mutex<Watch>,
    status: Mutex<ReloadStatus>,
}

impl Reloader {
    /// For a proxy that has just been started from `source`.
    #[must_use]
    pub fn new(state: Arc<State>, source: Source) -> Self {
        let file = source.file.as_ref().map(|path| path.display().to_string());
        let in_file = state.take_in_file();
        let changed_live = *in_file != *state.config();
        let reloader = Self {
            state,
            source,
            in_file: Mutex::new(in_file),
            watch: Mutex::default(),
            status: Mutex::new(ReloadStatus {
                file,
                changed_live,
                ..ReloadStatus::default()
            }),
        };
        reloader.watch.lock().know(&[], reloader.stamps());
        reloader
    }

    /// What became of the file.
    #[must_use]
    pub fn status(&self) -> ReloadStatus {
        self.status.lock().clone()
    }

    /// Whether a file has changed and has settled. Blocks for a few `stat` calls.
    #[must_use]
    pub fn has_changed(&self) -> bool {
        let stamps = self.stamps();
        self.source.file.is_some() && self.watch.lock().look(stamps)
    }

    /// Reads the file and puts it in force. Blocks while files are read.
    ///
    /// # Errors
    /// The cause; the configuration in force stays.
    pub fn reload(&self, trigger: &Trigger) -> Result<(), ReloadError> {
        // Files that cannot be read to their end stop nobody else: nothing is held meanwhile.
        let before = self.stamps();
        let loaded = self.load();
        let mut in_file = self.in_file.lock();
        let outcome = loaded.and_then(|new| self.put_in_force(trigger, new, &mut in_file));
        self.watch.lock().know(&before, self.stamps());
        let mut status = self.status.lock();
        match &outcome {
            Ok(()) => {
                status.reloads += 1;
                status.reloaded_at_unix_seconds = Some(unix_seconds());
                status.error = None;
                status.changed_live = **in_file != *self.state.config();
            }
            Err(ReloadError::NoFile) => {}
            Err(error) => {
                status.refused += 1;
                status.error = Some(error.to_string());
            }
        }
        outcome
    }

    /// A reload does not come to its end: a file is on a file system that hangs.
    pub(crate) fn note_hanging(&self) -> String {
        let error = "a file it needs cannot be read to its end; see whether its file system hangs";
        let mut status = self.status.lock();
        status.refused += 1;
        status.error = Some(error.to_owned());
        error.to_owned()
    }

    /// Reads and checks the file. One that is no file, such as a pipe, is read at the start alone:
    /// nobody may write to it a second time.
    fn load(&self) -> Result<Config, ReloadError> {
        let file = self.source.file.as_ref().ok_or(ReloadError::NoFile)?;
        let flags = |config: &mut Config| {
            if let Some(flags) = &self.source.flags {
                flags(config);
            }
        };
        regular(file)?;
        let loaded = config::load_with(file, flags).map_err(ReloadError::Refused)?;
        loaded.config.files().try_for_each(regular)?;
        Ok(loaded.config)
    }

    fn put_in_force(
        &self,
        trigger: &Trigger,
        new: Config,
        in_file: &mut Arc<Config>,
    ) -> Result<(), ReloadError> {
        if let Some(fixed) = self.state.config().fixed_difference(&new) {
            return Err(ReloadError::NeedsRestart(fixed));
        }
        let live = self.state.config();
        let mut with_live_changes = new.clone();
        if **in_file != *live {
            keep_live_changes(trigger, in_file, &live, &mut with_live_changes);
        }
        self.state.apply(with_live_changes)?;
        *in_file = Arc::new(new);
        Ok(())
    }

    /// Changes the protection of an application while the proxy runs, until the file is put in
    /// force again. Nothing happens if there is none of that name.
    ///
    /// # Errors
    /// What `change` refuses, or the engine; the protection in force stays.
    pub fn change_protection<E>(
        &self,
        application: &str,
        change: impl FnOnce(&mut SentryConfig) -> Result<(), E>,
    ) -> Result<(), E>
    where
        E: From<SettingsError>,
    {
        self.change_live(|config| config.protect_mut(application).map_or(Ok(()), change))
    }

    /// Switches maintenance of some applications while the proxy runs, until the file is put in
    /// force again.
    ///
    /// # Errors
    /// What cannot be made of the configuration; the one in force stays.
    pub fn set_maintenance(&self, names: &[String], enabled: bool) -> Result<(), SettingsError> {
        self.change_live(|config| {
            for name in names {
                if let Some(edge) = config.edge_mut(name) {
                    edge.maintenance.enabled = enabled;
                }
            }
            Ok(())
        })
    }

    fn change_live<E: From<SettingsError>>(
        &self,
        change: impl FnOnce(&mut Config) -> Result<(), E>,
    ) -> Result<(), E> {
        let in_file = self.in_file.lock();
        let mut new = Config::clone(&self.state.config());
        change(&mut new)?;
        self.state.apply(new)?;
        self.status.lock().changed_live = **in_file != *self.state.config();
        Ok(())
    }

    fn stamps(&self) -> Vec<Stamp> {
        let Some(file) = &self.source.file else {
            return Vec::new();
        };
        let config = self.state.config();
        let named = config.files();
        let included = config.included.iter().map(PathBuf::as_path);
        std::iter::once(file.as_path())
            .chain(included)
            .chain(named)
            .map(Stamp::of)
            .collect()
    }
}

/// Carries over into `new` what was changed live, for every application whose sections the file
/// does not change.
fn keep_live_changes(trigger: &Trigger, in_file: &Config, live: &Config, new: &mut Config) {
    let names: Vec<_> = new.application_names().map(str::to_owned).collect();
    for name in names.iter().filter(|name| trigger.spares(name)) {
        let [before, after] = [in_file, &*new].map(|config| config.of_application(name));
        let (Some(before), Some(live)) = (before, live.of_application(name)) else {
            continue;
        };
        if after.as_ref() != Some(&before) {
            continue;
        }
        if live.protect != before.protect
            && let Some(protect) = new.protect_mut(name)
        {
            *protect = live.protect;
        }
        if live.edge != before.edge
            && let Some(edge) = new.edge_mut(name)
        {
            *edge = live.edge;
        }
    }
}

/// Refuses what is there and is no file: to read a pipe may take for ever.
fn regular(path: &Path) -> Result<(), ReloadError> {
    match std::fs::metadata(path) {
        Ok(about) if !about.is_file() => {
            let message = "is no regular file, so it is not read again; restart the proxy instead";
            let file = path.display().to_string();
            Err(ReloadError::Refused(vec![ConfigError::new(&file, message)]))
        }
        // What is missing is explained where it is needed.
        _ => Ok(()),
    }
}

fn unix_seconds() -> f64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0.0, |since| since.as_secs_f64())
}

pub(crate) use watch::PERIOD as WATCH_PERIOD;

//! Recording what passes: starts and stops a recorder, and fills in one row per request.
//!
//! The data path never waits for it: a row goes into a bounded ring, and what does not fit is
//! counted. While nothing is recorded, a request costs one look at a flag.

pub(crate) mod hash_key;
mod places;
mod row;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arc_swap::{ArcSwapOption, Guard};
use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tidegate_control::Timestamp;
use tidegate_record::{Event, FileWriter, Message, Meta, Recorder, Rotation};
use tidegate_sentry::transcript::Sink;
use tidegate_sentry::{ReplicaId, ShedReason};

use crate::application::Application;
use crate::config::{Config, Record};
use crate::operator_log::warn;
use crate::request::engine_keys::recorded_key;
use crate::settings::Settings;
use places::Numbers;
pub(crate) use places::Places;
pub(crate) use row::Row;

/// Reasons beside those of the engine, as the access log has them.
const OTHER_REASONS: [&str; 21] = [
    "malformed",
    "invalid",
    "unrouted",
    "last-hop",
    "uploads",
    "resets",
    "deadline",
    "abandoned",
    "connect",
    "reset",
    "timeout",
    "told-to-wait",
    "banned",
    "again",
    "ahead",
    "stranger",
    "unproven",
    "conflict",
    "too-large",
    "late",
    "other",
];

/// Its number in a recording: that of the engine's reasons first, then the others'.
fn reason_code(reason: &str) -> u8 {
    let engine = ShedReason::ALL.iter().map(|reason| reason.as_str());
    let known = engine
        .chain(OTHER_REASONS)
        .position(|known| known == reason);
    let last = ShedReason::ALL.len() + OTHER_REASONS.len() - 1;
    known.unwrap_or(last) as u8 + 1
}

/// The table of reasons.
fn reasons() -> Vec<String> {
    let engine = ShedReason::ALL.iter().map(|reason| reason.as_str());
    engine.chain(OTHER_REASONS).map(str::to_owned).collect()
}

/// Why a recording cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// The directory or a file in it cannot be written.
    #[error("cannot record into {}: {cause}; check the directory and who may write there", dir.display())]
    Directory {
        /// Which directory.
        dir: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
    /// No directory is known.
    #[error(
        "no directory to record into; name one, as `tidegate ctl record start \
         /var/lib/tidegate/recording`, or set `record.dir`"
    )]
    NoDirectory,
    /// One recording at a time.
    #[error("a recording is being written into {}; stop it first", .0.display())]
    Running(PathBuf),
}

/// How the recording goes, for operators.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RecordingStatus {
    /// Whether one is being written.
    pub enabled: bool,
    /// The file written now, or last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// Requests in it.
    pub requests: u64,
    /// Requests and events lost because the writer did not keep up, the disk refused, or the size
    /// cap was reached.
    pub lost: u64,
    /// Bytes of all files in the directory.
    pub bytes: u64,
    /// Whether the size cap was reached and nothing more is written.
    pub full: bool,
}

/// The body of `/api/record`.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RecordCommand {
    /// Whether to record from now on.
    pub enabled: bool,
    /// Where to; `record.dir` when not given.
    #[serde(default)]
    pub dir: Option<PathBuf>,
}

/// The proxy's recording, if there is one.
#[derive(Debug, Default)]
pub(crate) struct Recordings {
    recorder: ArcSwapOption<Recorder>,
    on: AtomicBool,
    names: AtomicBool,
    /// Whether engines that are made now write their calls down.
    decisions: AtomicBool,
    numbers: Mutex<Numbers>,
    /// The last outlook of each application: when, and whether it is an overload.
    outlooks: Mutex<BTreeMap<String, (Timestamp, bool)>>,
    /// Where the present recording is written; one start or stop at a time.
    dir: Mutex<PathBuf>,
    last: Mutex<Option<tidegate_record::Status>>,
}

impl Recordings {
    /// Whether requests are recorded.
    pub(crate) fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    /// Whether names of paths are recorded.
    fn with_names(&self) -> bool {
        self.names.load(Ordering::Relaxed)
    }

    fn recorder(&self) -> Guard<Option<Arc<Recorder>>> {
        self.recorder.load()
    }

    /// The numbers of an application in recordings.
    pub(crate) fn places(&self, name: &str, settings: &Settings) -> Places {
        self.numbers.lock().places(name, settings)
    }

    /// Where an engine that is made now writes its calls down, if they are recorded. Those of an
    /// engine that has been running are of no use without what came before.
    pub(crate) fn transcript_sink(this: &Arc<Self>) -> Option<Arc<dyn Sink>> {
        let wanted = this.is_on() && this.decisions.load(Ordering::Relaxed);
        wanted.then(|| Arc::clone(this) as Arc<dyn Sink>)
    }

    /// Begins to record.
    pub(crate) fn start(
        &self,
        dir: Option<&Path>,
        config: &Config,
        now: Timestamp,
    ) -> Result<(), RecordingError> {
        let dir = dir.or(config.record.dir.as_deref());
        let dir = dir.ok_or(RecordingError::NoDirectory)?.to_owned();
        let mut present = self.dir.lock();
        if self.is_on() {
            return Err(RecordingError::Running(present.clone()));
        }
        let refused = |cause| RecordingError::Directory {
            dir: dir.clone(),
            cause,
        };
        let meta = self.meta(config, now);
        let writer = FileWriter::create(&dir, meta, rotation(&config.record));
        let shown = dir.display().to_string();
        let recorder = Recorder::start(writer.map_err(refused)?, move |error| {
            warn(format_args!(
                "the recording in {shown} cannot be written: {error}; requests are served, rows \
                 are lost and counted; make room there"
            ));
        });
        let recorder = Arc::new(recorder.map_err(refused)?);
        if let Some(key) = recorded_key(config) {
            hash_key::keep(&dir, key).map_err(refused)?;
        }
        self.recorder.store(Some(recorder));
        self.names.store(config.record.names, Ordering::Relaxed);
        self.decisions
            .store(config.record.decisions, Ordering::Relaxed);
        self.on.store(true, Ordering::Relaxed);
        *present = dir;
        Ok(())
    }

    /// Writes what is left and ends the recording. Waits for the disk.
    pub(crate) fn stop(&self) {
        let _one_at_a_time = self.dir.lock();
        self.on.store(false, Ordering::Relaxed);
        self.decisions.store(false, Ordering::Relaxed);
        if let Some(recorder) = self.recorder.swap(None) {
            *self.last.lock() = Some(recorder.stop());
        }
    }

    /// Another configuration is in force, or another pool.
    pub(crate) fn reconfigured(&self, config: &Config, now: Timestamp) {
        if let Some(recorder) = &*self.recorder() {
            let tables = self.numbers.lock().tables(reasons());
            let value = serde_json::to_value(config).ok();
            recorder.send(Message::Config(Box::new((tables, value.clone()))));
            let event = json!({ "event": "config", "config": value });
            send_event(recorder, now, &event);
        }
    }

    /// An application has other replicas.
    pub(crate) fn replicas_changed(&self, application: &str, settings: &Settings, now: Timestamp) {
        if let Some(recorder) = &*self.recorder() {
            let ids = settings.replica_ids().iter();
            let names = ids.filter_map(|&id| Some(settings.replica(id)?.origin().to_string()));
            let replicas: Vec<_> = names.collect();
            let event =
                json!({ "event": "replicas", "application": application, "replicas": replicas });
            send_event(recorder, now, &event);
        }
    }

    /// An engine did something.
    pub(crate) fn event(&self, application: &Application, event: &tidegate_sentry::Event) {
        let Some(recorder) = &*self.recorder() else {
            return;
        };
        if self.is_repeated(application.name(), event) {
            return;
        }
        if let Ok(mut value) = serde_json::to_value(event) {
            shorten(&mut value);
            value["application"] = Value::from(application.name());
            name_replica(&mut value, &application.settings());
            send_event(recorder, application.now(), &value);
        }
    }

    /// An outlook comes ten times a second; one a second is recorded, and every change of what it
    /// says about an overload.
    fn is_repeated(&self, application: &str, event: &tidegate_sentry::Event) -> bool {
        let tidegate_sentry::Event::Forecast(outlook) = event else {
            return false;
        };
        let mut last = self.outlooks.lock();
        let seen = last.get(application).is_some_and(|(at, overloaded)| {
            let is_near = outlook.at.since(*at) < OUTLOOK_EVERY;
            is_near && *overloaded == outlook.overloaded
        });
        if !seen {
            last.insert(application.to_owned(), (outlook.at, outlook.overloaded));
        }
        seen
    }

    pub(crate) fn status(&self) -> RecordingStatus {
        let running = self.recorder().as_ref().map(|recorder| recorder.status());
        let enabled = running.is_some();
        let status = running.or_else(|| self.last.lock().clone());
        RecordingStatus {
            enabled,
            requests: status.as_ref().map_or(0, |status| status.requests),
            lost: status.as_ref().map_or(0, |status| status.lost),
            bytes: status.as_ref().map_or(0, |status| status.bytes),
            full: status.as_ref().is_some_and(|status| status.full),
            file: status.map(|status| status.file),
        }
    }

    fn meta(&self, config: &Config, now: Timestamp) -> Meta {
        let unix = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let epoch = unix.saturating_sub(Duration::from_nanos(now.as_nanos()));
        Meta {
            program: concat!("tidegate ", env!("CARGO_PKG_VERSION")).to_owned(),
            process: u64::from(std::process::id()) ^ (epoch.as_nanos() as u64 & !0xffff),
            epoch_unix_us: epoch.as_micros() as u64,
            detail: detail(&config.record).to_owned(),
            // Rotation counts on from here; a later recording of this process begins behind it.
            sequence: now.as_nanos() / 1_000_000,
            tables: self.numbers.lock().tables(reasons()),
            config: serde_json::to_value(config).ok(),
        }
    }
}

/// Digits of figures in events: more say nothing, and do not compress.
const DIGITS: i32 = 5;
/// Time between two outlooks that are recorded.
const OUTLOOK_EVERY: Duration = Duration::from_secs(1);

/// Rounds what is not a whole number.
fn shorten(value: &mut Value) {
    match value {
        Value::Number(number) if number.is_f64() => {
            let exact = number.as_f64().filter(|it| *it != 0.0 && it.is_finite());
            if let Some(exact) = exact {
                let digits = DIGITS - 1 - exact.abs().log10().floor() as i32;
                // By text, as what is written back is the shortest that reads the same.
                let text = format!("{exact:.0$}", digits.max(0) as usize);
                *value = text.parse::<f64>().map_or(Value::Null, Value::from);
            }
        }
        Value::Array(all) => all.iter_mut().for_each(shorten),
        Value::Object(all) => all.values_mut().for_each(shorten),
        _ => {}
    }
}

/// An engine's number of a replica means another one after a reload; its name stays.
fn name_replica(event: &mut Value, settings: &Settings) {
    let number = event.get("replica").and_then(Value::as_u64);
    let number = number.and_then(|number| u16::try_from(number).ok());
    if let Some(replica) = number.and_then(|number| settings.replica(ReplicaId(number))) {
        event["replica"] = Value::from(replica.origin().to_string());
    }
}

fn send_event(recorder: &Recorder, now: Timestamp, event: &Value) {
    let (at_us, json) = (now.as_nanos() / 1000, event.to_string());
    recorder.send(Message::Event(Event { at_us, json }));
}

fn rotation(config: &Record) -> Rotation {
    Rotation {
        file_bytes: *config.file_size,
        total_bytes: *config.total_size,
        // The calls of an engine are worth nothing without its first ones.
        keep_first: config.decisions,
    }
}

/// What [`Meta::detail`] says.
fn detail(config: &Record) -> &'static str {
    if config.decisions {
        "inputs"
    } else {
        "requests"
    }
}

impl Sink for Recordings {
    fn put(&self, block: &[u8]) -> bool {
        let recorder = self.recorder();
        recorder
            .as_ref()
            .is_some_and(|recorder| recorder.send(Message::Input(block.into())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_events_are_short() {
        let mut value = json!({
            "a": 0.123_456_789, "b": [123_456.789], "c": 1e-9, "d": 17, "e": 0.0, "f": "1.23456789",
        });
        shorten(&mut value);
        let expected = json!({
            "a": 0.12346, "b": [123_457.0], "c": 1e-9, "d": 17, "e": 0.0, "f": "1.23456789",
        });
        assert_eq!(value, expected);
    }

    #[test]
    fn reasons_have_the_numbers_of_their_table() {
        let reasons = reasons();
        for (index, reason) in reasons.iter().enumerate() {
            assert_eq!(usize::from(reason_code(reason)), index + 1, "{reason}");
        }
        assert_eq!(usize::from(reason_code("what is this")), reasons.len());
    }
}

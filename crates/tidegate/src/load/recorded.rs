//! `tidegate load --recording`: the requests of a recording again, at their times.
//!
//! A recording has no bodies, no header values and no methods. A request is sent with the recorded
//! path (`1` where an id was folded), with the method and headers of the flags, and with a body of
//! the recorded length where the method has one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::uri::PathAndQuery;
use http::{HeaderName, HeaderValue, Method};
use tidegate_control::Timestamp;
use tidegate_lab::load::{LoadConfig, Recorded, RequestSpec};
use tidegate_record::{Recording, Request};
use tidegate_sim::workload::RateFunction;

use super::{Args, usage};
use crate::error::CliError;
use crate::recording;

/// Bodies longer than this are sent with this length.
const BODY_BYTES_MAX: u64 = 1 << 20;

#[derive(Debug, clap::Args)]
pub(super) struct RecordedArgs {
    /// Send the requests of a recording at its own times: a file, or a directory with its files.
    ///
    /// Paths are the recorded ones, with `1` for an id, or that of the URL where the recording has
    /// no names. Methods, headers and contents of bodies are not recorded: give them as flags.
    #[arg(long, value_name = "FILE|DIR", conflicts_with_all = ["schedule", "constant", "class_header"])]
    pub(super) recording: Option<PathBuf>,
    /// This many times as fast.
    #[arg(
        long,
        value_name = "FACTOR",
        default_value_t = 1.0,
        requires = "recording"
    )]
    speed: f64,
    /// Send the name of a request's recorded class in this header.
    #[arg(long, value_name = "NAME", requires = "recording")]
    recorded_class: Option<HeaderName>,
}

/// What requests of one kind have in common.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    class: u16,
    path: u64,
    body_bytes: u64,
}

impl Args {
    /// The load of a recording.
    pub(super) fn recorded_config(&self, path: &Path) -> Result<LoadConfig, CliError> {
        let speed = self.recorded.speed;
        if !(speed > 0.0 && speed.is_finite()) {
            return Err(usage("--speed has to be a number above 0"));
        }
        let recording = recording::open(path)?;
        let first = recording
            .requests
            .first()
            .map_or(0, |request| request.at_us);
        let due = |request: &Request| {
            let after = (request.at_us - first) as f64 * 1e-6 / speed;
            Timestamp::ZERO + Duration::from_secs_f64(after)
        };
        let end = self.duration.map(|duration| Timestamp::ZERO + duration.0);
        let in_time = |at: Timestamp| end.is_none_or(|end| at < end);
        let mut keys = BTreeMap::new();
        let mut replay = Vec::new();
        for request in &recording.requests {
            let count = keys.len();
            let kind = *keys.entry(self.key(request)).or_insert(count);
            let at = due(request);
            if in_time(at) {
                replay.push(Recorded { at, kind });
            }
        }
        let last = replay.last().map_or(Timestamp::ZERO, |last| last.at);
        let duration = (last - Timestamp::ZERO) + Duration::from_millis(1);
        let mut specs: Vec<_> = keys.into_iter().collect();
        specs.sort_by_key(|(_, kind)| *kind);
        let specs = specs.iter().map(|(key, _)| self.spec(key, &recording));
        Ok(LoadConfig {
            requests: specs.collect::<Result<_, _>>()?,
            replay: Some(replay),
            ..self.common(RateFunction::constant(0.0), duration)?
        })
    }

    fn key(&self, request: &Request) -> Key {
        let has_body = !matches!(self.request.method, Method::GET | Method::HEAD);
        let body = request.request_bytes.min(BODY_BYTES_MAX);
        Key {
            class: request.class,
            path: request.path,
            // Powers of two: kinds are few, and a body is no longer than twice the recorded one.
            body_bytes: if has_body && body > 0 {
                body.next_power_of_two()
            } else {
                0
            },
        }
    }

    fn spec(&self, key: &Key, recording: &Recording) -> Result<RequestSpec, CliError> {
        let classes = &recording.meta.tables.classes;
        let class = classes
            .get(usize::from(key.class))
            .map_or("", String::as_str);
        let path = path_of(&recording.names.path(key.path));
        let mut spec = RequestSpec {
            name: name_of(class, path.as_ref()),
            method: self.request.method.clone(),
            headers: self.request.headers.iter().cloned().collect(),
            path,
            body: vec![b'.'; key.body_bytes as usize].into(),
            ..RequestSpec::default()
        };
        if let Some(header) = &self.recorded.recorded_class {
            let value = HeaderValue::from_str(class);
            let value = value.map_err(|_| usage("a class's name is not a header value"))?;
            spec.headers.insert(header.clone(), value);
        }
        Ok(spec)
    }
}

fn name_of(class: &str, path: Option<&PathAndQuery>) -> String {
    match path {
        Some(path) => format!("{class} {path}"),
        None => class.to_owned(),
    }
}

/// A path that can be requested; none where the name is none.
fn path_of(name: &str) -> Option<PathAndQuery> {
    let plain = name.replace(":id", "1").replace('*', "1");
    plain.starts_with('/').then(|| plain.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_names_become_paths_that_can_be_requested() {
        let path = |name| path_of(name).map(|path| path.to_string());
        assert_eq!(path("/user/:id/orders"), Some("/user/1/orders".to_owned()));
        assert_eq!(path("/static/**"), Some("/static/11".to_owned()));
        assert_eq!(path(""), None);
        assert_eq!(path("#1f00"), None);
    }
}

//! One line per request, written by a thread of its own.
//!
//! A disk that is slow or full must not slow down requests: lines go through a bounded channel,
//! and what does not fit is counted and lost, as is what the disk refuses.

mod writer;

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, SystemTime};

use http::header::{HOST, REFERER, USER_AGENT};
use http::{HeaderName, Version};
use serde::Serialize;
use tidegate_sentry::{ClassId, ReplicaId};

use crate::config::{self, LogFormat, LogTarget};
use crate::message::Request;
use crate::metrics::RequestId;
use crate::settings::{Settings, SettingsError};
use crate::wall_clock::{common_log, rfc3339};
pub(crate) use writer::Refused;
use writer::Writer;

/// Lines that may wait for the disk: two megabytes of them, or a second at ten thousand a second.
const LINES_MAX: usize = 10_000;

/// What is known of a request when it has ended.
#[derive(Debug)]
pub(crate) struct Record {
    at: SystemTime,
    peer: SocketAddr,
    method: String,
    target: String,
    host: String,
    referer: String,
    user_agent: String,
    version: Version,
    pub(crate) status: u16,
    pub(crate) bytes: u64,
    pub(crate) took: Duration,
    pub(crate) waited: Option<Duration>,
    pub(crate) class: Option<ClassId>,
    pub(crate) replica: Option<ReplicaId>,
    /// Whether optional content was included, where we decide that.
    pub(crate) optional: Option<bool>,
    /// Why it was not served, if it was not.
    pub(crate) reason: Option<&'static str>,
}

impl Record {
    pub(crate) fn new<B>(request: &Request<B>, peer: SocketAddr) -> Self {
        let header = |name: HeaderName| {
            let value = request.headers.get(name);
            value.map_or_else(String::new, |value| {
                String::from_utf8_lossy(value.as_bytes()).into()
            })
        };
        let uri = &request.uri;
        Self {
            at: SystemTime::now(),
            peer,
            method: request.method.to_string(),
            target: uri
                .path_and_query()
                .map_or("/", |target| target.as_str())
                .to_owned(),
            host: uri
                .authority()
                .map_or_else(|| header(HOST), |host| host.to_string()),
            referer: header(REFERER),
            user_agent: header(USER_AGENT),
            version: request.version,
            status: 0,
            bytes: 0,
            took: Duration::ZERO,
            waited: None,
            class: None,
            replica: None,
            optional: None,
            reason: None,
        }
    }
}

impl Record {
    /// What came was no request, so there is nothing to say about it.
    pub(crate) fn forget_request(&mut self) {
        for text in [&mut self.method, &mut self.target, &mut self.host] {
            "-".clone_into(text);
        }
    }
}

/// A line in JSON.
#[derive(Serialize)]
struct Line<'a> {
    time: String,
    client: std::net::IpAddr,
    method: &'a str,
    host: &'a str,
    application: &'a str,
    target: &'a str,
    protocol: &'static str,
    status: u16,
    bytes: u64,
    ms: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    waited_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    class: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    replica: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    optional: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    request_id: String,
    user_agent: &'a str,
}

/// The open log.
#[derive(Debug)]
pub(crate) struct AccessLog {
    format: LogFormat,
    lines: SyncSender<String>,
}

impl AccessLog {
    /// Opens the log, if one is wanted. A file is opened again every time, so that it may have
    /// been moved away. Lines that it refuses are counted in `refused`.
    pub(crate) fn open(
        config: &config::AccessLog,
        refused: &Arc<Refused>,
    ) -> Result<Option<Self>, SettingsError> {
        let output: Box<dyn Write + Send> = match &config.to {
            LogTarget::Off => return Ok(None),
            LogTarget::Stderr => Box::new(io::stderr()),
            LogTarget::File(path) => {
                let file = OpenOptions::new().create(true).append(true).open(path);
                Box::new(file.map_err(|cause| SettingsError::AccessLog {
                    path: path.clone(),
                    cause,
                })?)
            }
        };
        let (lines, received) = sync_channel(LINES_MAX);
        let writer = Writer::new(config.to.to_string(), output, Arc::clone(refused));
        std::thread::Builder::new()
            .name("access-log".into())
            .spawn(move || writer.run(&received))
            .map_err(|cause| SettingsError::AccessLog {
                path: config.to.to_string().into(),
                cause,
            })?;
        Ok(Some(Self {
            format: config.format,
            lines,
        }))
    }

    /// Writes a line; false if it was lost because the disk is too slow.
    pub(crate) fn write(
        &self,
        record: &Record,
        id: &RequestId,
        application: &str,
        settings: &Settings,
    ) -> bool {
        let line = match self.format {
            LogFormat::Json => json(record, id, application, settings),
            LogFormat::Common => common(record),
        };
        self.lines.try_send(line).is_ok()
    }
}

fn json(record: &Record, id: &RequestId, application: &str, settings: &Settings) -> String {
    let millis = |time: Duration| (time.as_secs_f64() * 1e6).round() / 1e3;
    let replica = record.replica.and_then(|id| settings.replica(id));
    let class = record.class.and_then(|class| settings.class_name(class));
    let line = Line {
        time: rfc3339(record.at),
        client: record.peer.ip(),
        method: &record.method,
        host: &record.host,
        application,
        target: &record.target,
        protocol: protocol(record.version),
        status: record.status,
        bytes: record.bytes,
        ms: millis(record.took),
        waited_ms: record.waited.map(millis),
        class: class.and_then(|name| name.to_str().ok()),
        replica: replica.map(|replica| replica.origin().to_string()),
        optional: record.optional,
        reason: record.reason,
        request_id: id.to_string(),
        user_agent: &record.user_agent,
    };
    // A record holds nothing that JSON cannot.
    let mut text = serde_json::to_string(&line).unwrap_or_default();
    text.push('\n');
    text
}

/// The combined log format of web servers: the common one with referer and user agent.
fn common(record: &Record) -> String {
    let mut line = String::with_capacity(160);
    // Writing to a string cannot fail.
    let _ = writeln!(
        line,
        "{} - - [{}] \"{} {} {}\" {} {} \"{}\" \"{}\"",
        record.peer.ip(),
        common_log(record.at),
        record.method,
        quoted(&record.target),
        protocol(record.version),
        record.status,
        record.bytes,
        quoted(&record.referer),
        quoted(&record.user_agent),
    );
    line
}

/// Text that can stand between quotes on one line.
fn quoted(text: &str) -> String {
    match text {
        "" => "-".to_owned(),
        text => text
            .chars()
            .map(|c| {
                if c == '"' || c == '\\' || c.is_control() {
                    '_'
                } else {
                    c
                }
            })
            .collect(),
    }
}

fn protocol(version: Version) -> &'static str {
    match version {
        Version::HTTP_10 => "HTTP/1.0",
        Version::HTTP_2 => "HTTP/2",
        _ => "HTTP/1.1",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(seconds * 1000 + 7)
    }

    #[test]
    fn a_client_cannot_write_lines_of_its_own() {
        let request = http::Request::get("/a%22b")
            .header("user-agent", "x\" 200 0 \"\t")
            .body(())
            .unwrap();
        let mut record = Record::new(&request.into(), ([192, 0, 2, 1], 5).into());
        record.at = at(0);
        record.status = 503;
        let line = common(&record);
        assert_eq!(
            line,
            "192.0.2.1 - - [01/Jan/1970:00:00:00 +0000] \"GET /a%22b HTTP/1.1\" 503 0 \"-\" \"x_ 200 0 __\"\n"
        );
    }
}

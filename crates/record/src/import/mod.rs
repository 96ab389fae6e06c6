//! Access logs as recordings, so that a question can be asked before anything is installed.
//!
//! | format | what it needs |
//! | --- | --- |
//! | `nginx` | the combined format, with `$request_time` and `$upstream_response_time` behind it |
//! | `haproxy` | `option httplog`, with or without syslog's prefix |
//! | `tidegate` | our own access log in JSON |
//!
//! A log says when a request ended or was accepted, and how long it took; what it does not say
//! (class, tenant) stays empty. nginx writes whole seconds: the requests of a second are spread
//! evenly over it in their order, so that no burst is made up.

mod haproxy;
mod nginx;
mod ours;
mod tables;

use std::io::{self, BufRead};

use crate::names::NameKind;
use crate::request::{Meta, Request};
use crate::writer::FileWriter;

pub use tables::Imported;

/// Whose log it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// nginx, combined.
    Nginx,
    /// HAProxy, HTTP log.
    Haproxy,
    /// Tidegate, JSON.
    Tidegate,
}

impl Format {
    /// All formats with their names.
    pub const ALL: [(&'static str, Self); 3] = [
        ("nginx", Self::Nginx),
        ("haproxy", Self::Haproxy),
        ("tidegate", Self::Tidegate),
    ];

    /// The format of a line, if it can be read as one.
    #[must_use]
    pub fn of(line: &str) -> Option<Self> {
        let fits = |format: Self| format.parse(line).is_ok();
        let mut all = Self::ALL.into_iter().map(|(_, format)| format);
        all.find(|&format| fits(format))
    }

    fn parse(self, line: &str) -> Result<Line, String> {
        match self {
            Self::Nginx => nginx::parse(line),
            Self::Haproxy => haproxy::parse(line),
            Self::Tidegate => ours::parse(line),
        }
    }
}

/// What a line says.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Line {
    /// Arrival in microseconds since 1970.
    pub(crate) at_us: u64,
    /// Length of the unit in which the log writes times: arrivals are known no better.
    pub(crate) resolution_us: u64,
    pub(crate) target: String,
    pub(crate) application: String,
    pub(crate) class: String,
    pub(crate) replica: String,
    pub(crate) reason: String,
    /// The log has no response times.
    pub(crate) untimed: bool,
    pub(crate) request: Request,
}

/// What came of an import.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summary {
    /// Lines that became requests.
    pub requests: u64,
    /// Lines that could not be read: the first few, with their number and the reason.
    pub refused: Vec<(u64, String)>,
    /// How many could not be read.
    pub refused_count: u64,
    /// Lines whose log has no response times: a model of the service cannot use them.
    pub without_time: u64,
}

/// How a compressed log begins.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Why a line is of no format.
fn unknown(line: &str) -> String {
    let json = line.trim_start().starts_with('{');
    match (json, haproxy::parse(line)) {
        (true, _) => "JSON, and not Tidegate's: its lines have `time`, `target`, `status` and `ms`",
        (false, Err(cause)) if cause.contains(haproxy::REMEDY) => return cause,
        _ => "no known format: nginx (combined), HAProxy (`option httplog`) or Tidegate (JSON)",
    }
    .to_owned()
}

/// Most lines that are named in a summary.
const NAMED: usize = 5;

/// Reads a log. `fold` gives the hash and the name of a request's path.
///
/// # Errors
/// What the input says, or that no line could be read.
pub fn read(
    input: impl BufRead,
    format: Option<Format>,
    fold: impl Fn(&str) -> (u64, String),
) -> io::Result<(Imported, Summary)> {
    let mut format = format;
    let mut imported = Imported::default();
    let mut summary = Summary::default();
    for (number, bytes) in (1..).zip(input.split(b'\n')) {
        let bytes = bytes?;
        if number == 1 && bytes.starts_with(&GZIP) {
            let cause = "the log is compressed; write \
                         `zcat LOG | tidegate recording import - -o FILE`";
            return Err(io::Error::new(io::ErrorKind::InvalidData, cause));
        }
        // A name or header that is no UTF-8 costs its own characters, not the log.
        let line = String::from_utf8_lossy(&bytes);
        let line = line.trim_end();
        if line.trim_start().is_empty() {
            continue;
        }
        format = format.or_else(|| Format::of(line));
        let parsed = match format {
            Some(format) => format.parse(line),
            None => Err(unknown(line)),
        };
        match parsed {
            Ok(line) => {
                let (hash, name) = fold(&line.target);
                summary.requests += 1;
                summary.without_time += u64::from(line.untimed);
                imported.add(&line, hash, &name);
            }
            Err(cause) => {
                summary.refused_count += 1;
                if summary.refused.len() < NAMED {
                    summary.refused.push((number, cause));
                }
            }
        }
    }
    imported.spread();
    Ok((imported, summary))
}

/// Writes what was read as a recording.
///
/// # Errors
/// What the system says about the file.
pub fn write(imported: &Imported, path: &std::path::Path, program: &str) -> io::Result<()> {
    let first = imported
        .requests
        .iter()
        .map(|request| request.at_us)
        .min()
        .unwrap_or(0);
    let meta = Meta {
        program: program.to_owned(),
        epoch_unix_us: first,
        detail: "import".to_owned(),
        tables: imported.tables.clone(),
        ..Meta::default()
    };
    let mut writer = FileWriter::create_file(path, meta)?;
    for (kind, hash, name) in imported.names.iter() {
        writer.name(kind, hash, name);
    }
    for request in &imported.requests {
        writer.request(Request {
            at_us: request.at_us - first,
            ..*request
        });
    }
    writer.finish()?;
    Ok(())
}

impl Imported {
    fn add(&mut self, line: &Line, hash: u64, name: &str) {
        self.names.insert(NameKind::Path, hash, name);
        let mut request = line.request;
        request.at_us = line.at_us;
        request.path = hash;
        self.number(&mut request, line);
        self.resolution_us = self.resolution_us.max(line.resolution_us);
        self.requests.push(request);
    }
}

/// Microseconds of a number of seconds, `1.234`.
pub(crate) fn seconds(text: &str) -> Option<u64> {
    let seconds: f64 = text.parse().ok()?;
    (seconds.is_finite() && seconds >= 0.0).then_some((seconds * 1e6).round() as u64)
}

#[cfg(test)]
mod tests;

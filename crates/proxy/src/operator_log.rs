//! Lines for the person who operates the proxy, on standard error.
//!
//! A line has a time (RFC 3339, UTC), a level, a message and fields, as text or as one JSON object
//! (`log` in the configuration). Lines are about the proxy, never about single requests: those have
//! the access log. Decision 0100 says why this is not one of the logging crates.

use std::fmt::{Display, Write as _};
use std::io::{Write, stderr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use serde_json::{Map, Value};

use crate::config::LineFormat;
use crate::wall_clock::rfc3339;

/// How much a line matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Something was done or is over.
    Info,
    /// The service is not what it should be.
    Warn,
    /// The proxy cannot do what it is configured to do.
    Error,
}

impl Level {
    /// The word in JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Error => "error",
        }
    }
}

/// Standard error belongs to the process, so its format does too.
static JSON: AtomicBool = AtomicBool::new(false);

/// Sets how lines are written from now on.
pub fn set_format(format: LineFormat) {
    JSON.store(format == LineFormat::Json, Ordering::Relaxed);
}

/// Writes one line. `fields` is an object; anything else is written as no fields.
///
/// Where standard error is a file on a full disk, or a pipe without a reader, the line is lost:
/// `eprintln!` would end the thread.
pub fn log(level: Level, message: impl Display, fields: &Value) {
    let empty = Map::new();
    let fields = fields.as_object().unwrap_or(&empty);
    let time = rfc3339(SystemTime::now());
    let line = if JSON.load(Ordering::Relaxed) {
        json_line(&time, level, &message.to_string(), fields)
    } else {
        text_line(&time, level, &message.to_string(), fields)
    };
    let _ = stderr().write_all(line.as_bytes());
}

/// One line of level `info` without fields.
pub fn notice(line: impl Display) {
    log(Level::Info, line, &Value::Null);
}

/// One line of level `warn` without fields.
pub fn warn(line: impl Display) {
    log(Level::Warn, line, &Value::Null);
}

fn json_line(time: &str, level: Level, message: &str, fields: &Map<String, Value>) -> String {
    let mut line = format!(
        "{{\"time\":\"{time}\",\"level\":\"{}\",\"message\":{}",
        level.as_str(),
        Value::from(message)
    );
    for (name, value) in fields {
        let _ = write!(line, ",{}:{value}", Value::from(name.as_str()));
    }
    line.push_str("}\n");
    line
}

fn text_line(time: &str, level: Level, message: &str, fields: &Map<String, Value>) -> String {
    let mut line = format!("{time} {:<5} ", level.as_str().to_ascii_uppercase());
    push_printable(&mut line, message);
    for (name, value) in fields {
        let _ = write!(line, " {name}=");
        match value {
            Value::String(text) if is_plain(text) => line.push_str(text),
            value => {
                let _ = write!(line, "{value}");
            }
        }
    }
    line.push('\n');
    line
}

/// A message of several lines, or with bytes that a terminal would obey, stays one line.
fn push_printable(line: &mut String, message: &str) {
    for character in message.chars() {
        if character.is_control() {
            line.extend(character.escape_default());
        } else {
            line.push(character);
        }
    }
}

fn is_plain(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_graphic() && byte != b'"' && byte != b'=';
    !text.is_empty() && text.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const TIME: &str = "2026-01-02T03:04:05.678Z";

    #[test]
    fn line_has_time_level_message_and_fields() {
        let fields = json!({ "replica": "http://a:1", "shed": 3, "why": "two words" });
        let fields = fields.as_object().unwrap();
        assert_eq!(
            text_line(TIME, Level::Warn, "overload began", fields),
            "2026-01-02T03:04:05.678Z WARN  overload began replica=http://a:1 shed=3 \
             why=\"two words\"\n"
        );
        let line = json_line(TIME, Level::Warn, "a \"b\"", fields);
        let read: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(read["message"], "a \"b\"");
        assert_eq!(
            (read["time"].as_str(), &read["shed"]),
            (Some(TIME), &json!(3))
        );
    }

    #[test]
    fn message_cannot_forge_a_line_or_steer_a_terminal() {
        let line = text_line(TIME, Level::Info, "a\nb\x1b[2J", &Map::new());
        assert_eq!(line.matches('\n').count(), 1);
        assert!(!line.contains('\x1b'), "{line}");
    }
}

//! What is wrong with a file, where, and what to do about it.

use std::fmt;
use std::ops::Range;

/// A refused file: one message with its place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct ConfigError {
    file: String,
    /// 1-based line and column, where the cause has a place.
    place: Option<(usize, usize)>,
    message: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place(), self.message)
    }
}

impl ConfigError {
    /// An error that concerns the file as a whole (it cannot be read, two keys contradict).
    #[must_use]
    pub fn new(file: &str, message: impl Into<String>) -> Self {
        Self {
            file: file.to_owned(),
            place: None,
            message: message.into(),
        }
    }

    /// An error at a byte range of `text`, as `serde_spanned` or `toml` report it.
    #[must_use]
    pub fn at(file: &str, text: &str, span: Range<usize>, message: impl Into<String>) -> Self {
        Self {
            file: file.to_owned(),
            place: Some(line_and_column(text, span.start)),
            message: message.into(),
        }
    }

    pub(crate) fn from_toml(file: &str, text: &str, error: &toml::de::Error) -> Self {
        let message = remedy(error.message());
        match error.span() {
            Some(span) => Self::at(file, text, span, message),
            None => Self::new(file, message),
        }
    }

    /// The message without its place.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The file, as it was named.
    #[must_use]
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Where it is: `file:line:column`, or the file alone.
    #[must_use]
    pub fn place(&self) -> String {
        match self.place {
            Some((line, column)) => format!("{}:{line}:{column}", self.file),
            None => self.file.clone(),
        }
    }

    /// 1-based column, where known.
    #[must_use]
    pub fn column(&self) -> Option<usize> {
        self.place.map(|(_, column)| column)
    }

    /// 1-based line, where known.
    #[must_use]
    pub fn line(&self) -> Option<usize> {
        self.place.map(|(line, _)| line)
    }
}

fn line_and_column(text: &str, offset: usize) -> (usize, usize) {
    let before = &text[..floor_char_boundary(text, offset)];
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let line = before.matches('\n').count() + 1;
    (line, before[line_start..].chars().count() + 1)
}

fn floor_char_boundary(text: &str, offset: usize) -> usize {
    (0..=offset.min(text.len()))
        .rev()
        .find(|&at| text.is_char_boundary(at))
        .unwrap_or(0)
}

/// Keys that are gone or have another name: the key, one that stands beside it today (so that a
/// namesake elsewhere is not taken for it), and what to do. A key that is renamed gets a line here.
const FORMER_KEYS: [(&str, &str, &str); 1] = [(
    "interval",
    "target_min",
    "mode `auto` has one interval since 0.2.0; remove it",
)];

/// What to do about a key that was valid once.
fn former(unknown: &str, valid: &[&str]) -> Option<&'static str> {
    let mut keys = FORMER_KEYS.iter();
    let found = keys.find(|(key, beside, _)| *key == unknown && valid.contains(beside));
    found.map(|(_, _, remedy)| *remedy)
}

/// Serde says "unknown field `traget`, expected one of `target`, `weight`"; a person wants the
/// nearest one first.
pub(crate) fn remedy(message: &str) -> String {
    let Some((unknown, valid)) = unknown_name(message) else {
        return in_words(&message.lines().collect::<Vec<_>>().join("; "));
    };
    let kind = if message.starts_with("unknown variant") {
        "value"
    } else {
        "key"
    };
    if let Some(remedy) = former(unknown, &valid) {
        return format!("the {kind} `{unknown}` is gone: {remedy}");
    }
    match nearest(unknown, &valid) {
        Some(near) => format!("unknown {kind} `{unknown}`; did you mean `{near}`?"),
        None if valid.is_empty() => format!("unknown {kind} `{unknown}`; remove it"),
        None => format!(
            "unknown {kind} `{unknown}`; valid here: {}",
            valid.join(", ")
        ),
    }
}

/// Serde says "expected u32", which is a word of programmers.
fn in_words(message: &str) -> String {
    let Some((cause, kind)) = message.rsplit_once(", expected ") else {
        return message.to_owned();
    };
    let (least, kind) = match kind.strip_prefix("a nonzero ") {
        Some(kind) => (1, kind),
        None => (0, kind),
    };
    let most = match kind {
        "u8" => u64::from(u8::MAX),
        "u16" => u64::from(u16::MAX),
        "u32" => u64::from(u32::MAX),
        "u64" | "usize" => i64::MAX as u64,
        "f64" => return format!("{cause}, expected a number"),
        _ => return message.to_owned(),
    };
    format!("{cause}, expected a whole number from {least} to {most}")
}

fn unknown_name(message: &str) -> Option<(&str, Vec<&str>)> {
    let rest = message
        .strip_prefix("unknown field `")
        .or_else(|| message.strip_prefix("unknown variant `"))?;
    let (unknown, rest) = rest.split_once('`')?;
    Some((unknown, rest.split('`').skip(1).step_by(2).collect()))
}

/// The closest of `valid` to `name`, when it is close enough to be what was meant: a few slips, or
/// one is a part of the other (`bytes` for `max_bytes`).
fn nearest<'a>(name: &str, valid: &[&'a str]) -> Option<&'a str> {
    const CLOSE_ENOUGH: f64 = 0.75; // Jaro-Winkler: one or two slips in a word
    valid
        .iter()
        .map(|&candidate| (likeness(name, candidate), candidate))
        .filter(|&(likeness, _)| likeness >= CLOSE_ENOUGH)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

fn likeness(name: &str, candidate: &str) -> f64 {
    const PART: f64 = 0.8; // below a slip or two, above anything else
    let part = |of: &str, whole: &str| of.len() >= 3 && whole.contains(of);
    let related = part(name, candidate) || part(candidate, name);
    strsim::jaro_winkler(name, candidate).max(if related { PART } else { 0.0 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct File {
        #[allow(dead_code)]
        mode: Mode,
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Mode {
        Auto,
        Off,
    }

    fn message(text: &str) -> String {
        crate::parse::<File>("f.toml", text)
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn misspelt_key_names_the_nearest() {
        assert_eq!(
            message("# hi\nmodus = 1"),
            "f.toml:2:1: unknown key `modus`; did you mean `mode`?"
        );
    }

    #[test]
    fn former_key_is_refused_with_what_to_do() {
        let valid = "expected one of `target_min`, `target_max`";
        assert_eq!(
            remedy(&format!("unknown field `interval`, {valid}")),
            "the key `interval` is gone: mode `auto` has one interval since 0.2.0; remove it"
        );
        // A key of the same name elsewhere is a slip.
        assert_eq!(
            remedy("unknown field `interval`, expected `intervals`"),
            "unknown key `interval`; did you mean `intervals`?"
        );
    }

    #[test]
    fn part_of_a_key_names_the_whole() {
        assert_eq!(
            nearest("bytes", &["max_requests", "max_bytes"]),
            Some("max_bytes")
        );
        assert_eq!(nearest("ab", &["cab"]), None);
    }

    #[test]
    fn key_like_no_other_lists_what_is_valid() {
        assert_eq!(
            message("zzz = 1"),
            "f.toml:1:1: unknown key `zzz`; valid here: mode"
        );
    }

    #[test]
    fn misspelt_value_names_the_nearest() {
        assert_eq!(
            message("mode = 'autp'"),
            "f.toml:1:8: unknown value `autp`; did you mean `auto`?"
        );
    }

    #[test]
    fn numbers_are_called_numbers() {
        let said = |kind| in_words(&format!("invalid value: integer `-1`, expected {kind}"));
        assert_eq!(
            said("u16"),
            "invalid value: integer `-1`, expected a whole number from 0 to 65535"
        );
        assert!(said("a nonzero u32").ends_with("a whole number from 1 to 4294967295"));
        assert!(said("usize").ends_with("from 0 to 9223372036854775807"));
        assert!(said("f64").ends_with("expected a number"));
        assert!(said("a string").ends_with("expected a string"));
    }

    #[test]
    fn syntax_errors_have_a_place() {
        assert!(message("mode = ").starts_with("f.toml:1:"));
    }

    #[test]
    fn columns_count_characters_not_bytes() {
        assert_eq!(line_and_column("é = 1", 3), (1, 3));
        assert_eq!(line_and_column("é", 1), (1, 1));
        assert_eq!(line_and_column("a\nb", 99), (2, 2));
    }
}

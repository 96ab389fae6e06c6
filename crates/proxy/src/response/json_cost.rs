//! The cost of a request in the JSON of its answer, as language models report their tokens.
//!
//! `upstream.cost_json` is the path of a number, for example `usage.total_tokens`. It is read from
//! an answer of `application/json` when it is complete, and from the last event of an event stream
//! whose data has it; `[DONE]` and other events behind it change nothing. The bytes are passed on
//! as they come: a copy of at most [`BYTES_MAX`] is kept beside them. What is longer, compressed or
//! no JSON has no cost, and says nothing.

use http::HeaderValue;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use serde_json::Value;
use tidegate_http1::event_stream::{Reader, is_event_stream};

use crate::message::Fields;

/// The longest answer, or event of a stream, that is read.
const BYTES_MAX: usize = 256 << 10;

const JSON: &[u8] = b"application/json";

/// Reads the cost out of one answer.
#[derive(Debug)]
pub(crate) struct JsonCost {
    /// Names of members, joined by dots.
    path: Box<str>,
    body: Kept,
}

/// What is kept of an answer.
#[derive(Debug)]
enum Kept {
    Document(Vec<u8>),
    Events {
        reader: Reader,
        last: Option<String>,
    },
    /// It is too long.
    Nothing,
}

impl JsonCost {
    /// A reader for an answer with this path and these headers; none where there is nothing to
    /// read.
    pub(crate) fn of(path: Option<&str>, headers: &Fields) -> Option<Self> {
        let path = path?;
        let bytes = |name| headers.get(name).map_or(&b""[..], HeaderValue::as_bytes);
        let content_type = bytes(CONTENT_TYPE);
        let is_json = content_type
            .get(..JSON.len())
            .is_some_and(|begins| begins.eq_ignore_ascii_case(JSON));
        let body = if is_event_stream(content_type) {
            Kept::Events {
                reader: Reader::new(BYTES_MAX),
                last: None,
            }
        } else if is_json {
            Kept::Document(Vec::new())
        } else {
            return None;
        };
        let encoding = bytes(CONTENT_ENCODING);
        let plain = encoding.is_empty() || encoding.eq_ignore_ascii_case(b"identity");
        plain.then(|| Self {
            path: path.into(),
            body,
        })
    }

    /// Takes a copy of bytes that are passed on.
    pub(crate) fn read(&mut self, mut bytes: &[u8]) {
        match &mut self.body {
            Kept::Document(text) if text.len() + bytes.len() <= BYTES_MAX => {
                text.extend_from_slice(bytes);
            }
            Kept::Document(_) => self.body = Kept::Nothing,
            Kept::Events { reader, last } => loop {
                match reader.read(&mut bytes) {
                    Ok(Some(event)) if cost(&self.path, event.data.as_bytes()).is_some() => {
                        *last = Some(event.data);
                    }
                    Ok(Some(_)) => {}
                    Ok(None) => return,
                    Err(_) => {
                        self.body = Kept::Nothing;
                        return;
                    }
                }
            },
            Kept::Nothing => {}
        }
    }

    /// The cost, when the answer is complete.
    pub(crate) fn finish(self) -> Option<f64> {
        match &self.body {
            Kept::Document(text) => cost(&self.path, text),
            Kept::Events { last, .. } => cost(&self.path, last.as_ref()?.as_bytes()),
            Kept::Nothing => None,
        }
    }
}

/// The number at a path of a document, also where it is written as text.
fn cost(path: &str, document: &[u8]) -> Option<f64> {
    // Most events of a stream do not have it, and need not be parsed.
    let name = path.rsplit('.').next()?.as_bytes();
    document.windows(name.len()).find(|part| *part == name)?;
    let document: Value = serde_json::from_slice(document).ok()?;
    let found = path
        .split('.')
        .try_fold(&document, |value, name| value.get(name))?;
    let number = found.as_f64().or_else(|| found.as_str()?.parse().ok());
    number.filter(|cost| cost.is_finite() && *cost >= 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: &str = "usage.total_tokens";

    fn headers(content_type: &'static str) -> Fields {
        Fields::from_iter([(CONTENT_TYPE, HeaderValue::from_static(content_type))])
    }

    /// The cost of an answer that comes in pieces of this many bytes.
    fn read(content_type: &'static str, body: &str, piece: usize) -> Option<f64> {
        let mut reader = JsonCost::of(Some(PATH), &headers(content_type))?;
        body.as_bytes()
            .chunks(piece)
            .for_each(|bytes| reader.read(bytes));
        reader.finish()
    }

    #[test]
    fn document_has_its_cost_however_it_is_cut() {
        let body = r#"{"id":"a","usage":{"prompt_tokens":7,"total_tokens":19},"choices":[]}"#;
        for piece in [1, 5, 1000] {
            let found = read("application/json; charset=utf-8", body, piece);
            assert_eq!(found, Some(19.0));
        }
        let text = r#"{"usage":{"total_tokens":"19.5"}}"#;
        assert_eq!(read("application/json", text, 9), Some(19.5));
    }

    #[test]
    fn event_stream_has_the_cost_of_the_last_event_with_one() {
        let body = "data: {\"choices\":[{\"delta\":{\"content\":\"total_tokens\"}}]}\n\n\
                    data: {\"usage\":{\"total_tokens\":3}}\r\n\r\n\
                    data: {\"choices\":[],\"usage\":{\"total_tokens\":42}}\n\n\
                    data: [DONE]\n\n";
        for piece in [1, 7, 1000] {
            assert_eq!(read("text/event-stream", body, piece), Some(42.0));
        }
    }

    #[test]
    fn answers_without_a_number_have_no_cost() {
        for body in [
            "",
            "{",
            "[1]",
            r#"{"usage":null}"#,
            r#"{"usage":{"total_tokens":-1}}"#,
            r#"{"usage":{"total_tokens":"many"}}"#,
            r#"{"total_tokens":4}"#,
        ] {
            assert_eq!(read("application/json", body, 3), None, "{body}");
        }
        assert_eq!(
            read("text/plain", r#"{"usage":{"total_tokens":1}}"#, 3),
            None
        );
        assert!(JsonCost::of(None, &headers("application/json")).is_none());
        let mut compressed = headers("application/json");
        compressed.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        assert!(JsonCost::of(Some(PATH), &compressed).is_none());
    }

    /// Memory is bounded: what is longer has no cost.
    #[test]
    fn answer_beyond_the_bound_is_not_kept() {
        let filler = "x".repeat(BYTES_MAX);
        let body = format!("{{\"a\":\"{filler}\",\"usage\":{{\"total_tokens\":4}}}}");
        assert_eq!(read("application/json", &body, 4096), None);
        assert_eq!(
            read("text/event-stream", &format!("data: {body}\n\n"), 4096),
            None
        );
    }
}

//! Server-sent events: the format `text/event-stream` of the HTML standard, section 9.2.
//!
//! A stream is UTF-8 text of events, each a few lines `field: value` and an empty one. A line that
//! begins with a colon is a comment; it keeps a connection busy and shows a client that is gone.

use std::fmt::{Display, Write};

use bytes::Bytes;

/// The media type of an event stream.
pub const MEDIA_TYPE: &str = "text/event-stream";

/// Whether a `Content-Type` is that of an event stream, whatever its parameters and letters.
#[must_use]
pub fn is_event_stream(content_type: &[u8]) -> bool {
    let begins = content_type.get(..MEDIA_TYPE.len());
    begins.is_some_and(|begins| begins.eq_ignore_ascii_case(MEDIA_TYPE.as_bytes()))
}

/// An event as it is sent.
#[must_use]
pub fn event(id: impl Display, name: Option<&str>, data: &str) -> Bytes {
    let mut text = format!("id: {id}\n");
    if let Some(name) = name {
        // Writing to a string does not fail.
        let _ = writeln!(text, "event: {name}");
    }
    for line in data.split('\n') {
        text.push_str("data: ");
        text.push_str(line);
        text.push('\n');
    }
    text.push('\n');
    text.into()
}

/// A comment as it is sent.
#[must_use]
pub fn comment(text: &str) -> Bytes {
    format!(": {text}\n\n").into()
}

/// An event as it was received.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Event {
    /// Its number or name, empty if it has none.
    pub id: String,
    /// Its type, empty if it has none.
    pub name: String,
    /// Its data, with a line feed between two lines of it.
    pub data: String,
}

/// An event that is longer than the reader takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an event of the stream is longer than {0} bytes")]
pub struct TooLong(pub usize);

/// Takes events out of the bytes of a stream, however they are cut.
#[derive(Debug)]
pub struct Reader {
    bytes_max: usize,
    /// The line that is not complete.
    line: Vec<u8>,
    /// The last byte was a CR: an LF behind it belongs to the same line end.
    after_cr: bool,
    event: Event,
    has_data: bool,
}

impl Reader {
    /// With the longest event that is taken, its field names included.
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            line: Vec::new(),
            after_cr: false,
            event: Event::default(),
            has_data: false,
        }
    }

    /// Takes bytes up to the end of an event from the front of `input`. `None`: all of them are
    /// taken, and the event is not complete.
    ///
    /// # Errors
    /// When the event is longer than the reader takes; the stream cannot be read on.
    pub fn read(&mut self, input: &mut &[u8]) -> Result<Option<Event>, TooLong> {
        while let [byte, rest @ ..] = *input {
            let after_cr = std::mem::replace(&mut self.after_cr, *byte == b'\r');
            *input = rest;
            match byte {
                b'\n' if after_cr => {}
                b'\n' | b'\r' => {
                    if let Some(event) = self.end_of_line() {
                        return Ok(Some(event));
                    }
                }
                byte => self.line.push(*byte),
            }
            if self.line.len() + self.event.data.len() > self.bytes_max {
                return Err(TooLong(self.bytes_max));
            }
        }
        Ok(None)
    }

    /// The event, if an empty line ends one that has data.
    fn end_of_line(&mut self) -> Option<Event> {
        let line = std::mem::take(&mut self.line);
        if line.is_empty() {
            let event = std::mem::take(&mut self.event);
            return std::mem::take(&mut self.has_data).then_some(event);
        }
        let line = String::from_utf8_lossy(&line);
        let (field, value) = line.split_once(':').unwrap_or((&line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "data" => {
                if self.has_data {
                    self.event.data.push('\n');
                }
                self.has_data = true;
                self.event.data.push_str(value);
            }
            "id" => value.clone_into(&mut self.event.id),
            "event" => value.clone_into(&mut self.event.name),
            // Comments, and fields that the standard has readers ignore.
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(stream: &[u8], piece: usize) -> Vec<Event> {
        let mut reader = Reader::new(1000);
        let mut events = Vec::new();
        for mut piece in stream.chunks(piece) {
            while let Some(event) = reader.read(&mut piece).unwrap() {
                events.push(event);
            }
        }
        events
    }

    #[test]
    fn media_type_is_recognised_with_parameters_and_in_capitals() {
        assert!(is_event_stream(b"text/event-stream"));
        assert!(is_event_stream(b"Text/Event-Stream; charset=utf-8"));
        assert!(!is_event_stream(b"text/event"));
        assert!(!is_event_stream(b"text/html"));
    }

    #[test]
    fn line_ends_of_all_kinds_are_read_however_they_are_cut() {
        let stream = b": hello\n\nid: 1\ndata: a\ndata:b\n\nevent: x\r\nid:2\r\ndata\r\n\r\n\
                       data: c\r\revent: without data\n\ndata: cut";
        let event = |id: &str, name: &str, data: &str| Event {
            id: id.to_owned(),
            name: name.to_owned(),
            data: data.to_owned(),
        };
        let expected = [
            event("1", "", "a\nb"),
            event("2", "x", ""),
            event("", "", "c"),
        ];
        for piece in 1..stream.len() {
            assert_eq!(read(stream, piece), expected, "in pieces of {piece}");
        }
    }

    #[test]
    fn event_without_end_is_refused_when_it_is_too_long() {
        let mut reader = Reader::new(10);
        assert_eq!(reader.read(&mut &b"data: 0123"[..]), Ok(None));
        assert_eq!(reader.read(&mut &b"4"[..]), Err(TooLong(10)));
        let mut reader = Reader::new(10);
        let many = b"data: 0\n".repeat(20);
        assert_eq!(reader.read(&mut &many[..]), Err(TooLong(10)));
    }

    proptest! {
        #[test]
        fn event_written_is_the_event_read(
            id in 0_u64..99,
            name in proptest::option::of("[a-z]{1,9}"),
            data in "[^\r\0]{0,80}",
            piece in 1_usize..40,
        ) {
            let mut stream = comment("connected").to_vec();
            stream.extend_from_slice(&event(id, name.as_deref(), &data));
            let expected = Event {
                id: id.to_string(),
                name: name.unwrap_or_default(),
                data,
            };
            prop_assert_eq!(read(&stream, piece), [expected]);
        }
    }
}

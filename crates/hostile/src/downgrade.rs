//! HTTP/2 requests that become something else when they are written as HTTP/1.1: every byte that
//! means something there, in every place where HTTP/2 can carry it.

use crate::frames::{END_HEADERS, END_STREAM, block, frame, kind};
use crate::vector::Vector;

/// Bytes that end a line, a word or a name, or are none that a field may hold.
const BYTES: [&[u8]; 9] = [
    b"\r", b"\n", b"\r\n", b"\0", b" ", b"\t", b":", b"\x7f", b"\xff",
];

/// A request behind a line end.
const SMUGGLED: &[u8] = b"\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";

/// Fields that have no place in HTTP/2 (RFC 9113 section 8.2.2) or are malformed there.
const FORBIDDEN: [(&str, &str); 10] = [
    ("transfer-encoding", "chunked"),
    ("connection", "close"),
    ("connection", "x-a"),
    ("keep-alive", "must-not-pass"),
    ("proxy-connection", "must-not-pass"),
    ("upgrade", "must-not-pass"),
    ("te", "must-not-pass"),
    ("content-length", "5"),
    ("host", "b"),
    ("Upper-Case", "1"),
];

type Fields = Vec<(Vec<u8>, Vec<u8>)>;

/// All of them: what a client sends behind its opening, each on a connection of its own.
#[must_use]
pub fn vectors() -> Vec<Vector> {
    let mut all = Vec::new();
    for place in 0..request().len() {
        for bytes in BYTES.iter().chain([&SMUGGLED]) {
            all.extend(spoiled(place, bytes));
        }
    }
    all.extend(FORBIDDEN.iter().map(|(name, value)| with(name, value)));
    for (name, value) in [
        (":path", "/x"),
        (":method", "POST"),
        (":authority", "b"),
        (":status", "200"),
        (":x", "y"),
    ] {
        all.push(with(name, value));
    }
    let names = ["method", "scheme", "path"];
    all.extend(names.iter().map(|name| without(name)));
    let vector = |(number, fields): (usize, Fields)| Vector {
        class: "HTTP/2 downgrade".into(),
        name: format!("{number}"),
        bytes: frame(kind::HEADERS, END_HEADERS | END_STREAM, 1, &block(&fields)),
        sound: false,
        http2: true,
    };
    all.into_iter().enumerate().map(vector).collect()
}

/// A sound request; the vectors are this one with something wrong.
fn request() -> Fields {
    let fields = [
        (":method", "GET"),
        (":scheme", "http"),
        (":authority", "a"),
        (":path", "/x"),
        ("x-field", "value"),
        ("cookie", "a=b"),
    ];
    fields
        .map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()))
        .to_vec()
}

/// `bytes` before, within and behind the name and the value of a field.
fn spoiled(place: usize, bytes: &[u8]) -> Vec<Fields> {
    let mut all = Vec::new();
    for part in 0..2 {
        let length = [request()[place].0.len(), request()[place].1.len()][part];
        for at in [0, length / 2, length] {
            let mut fields = request();
            let text = if part == 0 {
                &mut fields[place].0
            } else {
                &mut fields[place].1
            };
            text.splice(at..at, bytes.iter().copied());
            all.push(fields);
        }
    }
    all
}

fn with(name: &str, value: &str) -> Fields {
    let mut fields = request();
    fields.push((name.into(), value.into()));
    fields
}

fn without(name: &str) -> Fields {
    let mut fields = request();
    fields.retain(|(found, _)| found[..] != format!(":{name}").into_bytes()[..]);
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_one_for_every_byte_and_place() {
        let vectors = vectors();
        assert_eq!(vectors.len(), 6 * 10 * 6 + FORBIDDEN.len() + 5 + 3);
        let mut bytes: Vec<_> = vectors.iter().map(|vector| &vector.bytes).collect();
        bytes.sort();
        bytes.dedup();
        assert!(bytes.len() > 350, "{}", bytes.len());
    }
}

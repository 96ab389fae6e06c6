//! Vectors: what a hostile client sends on one connection.

use std::fmt;
use std::sync::Arc;

/// What a client sends, and what is known about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vector {
    /// Where it comes from: a class of attacks, or a corpus.
    pub class: Arc<str>,
    /// Tells it from the others of its class.
    pub name: String,
    /// What is sent.
    pub bytes: Vec<u8>,
    /// Whether it is sound, so that all its requests have to arrive.
    pub sound: bool,
    /// Whether the bytes are HTTP/2.
    pub http2: bool,
}

/// The repository's own vectors; the first file holds the sound ones.
const FILES: [(&str, &str); 11] = [
    (SOUND, include_str!("../vectors/sound.txt")),
    ("length", include_str!("../vectors/length.txt")),
    ("coding", include_str!("../vectors/coding.txt")),
    ("both", include_str!("../vectors/both.txt")),
    ("chunks", include_str!("../vectors/chunks.txt")),
    ("lines", include_str!("../vectors/lines.txt")),
    ("names", include_str!("../vectors/names.txt")),
    ("request line", include_str!("../vectors/request_line.txt")),
    ("host", include_str!("../vectors/host.txt")),
    ("hop", include_str!("../vectors/hop.txt")),
    ("spoof", include_str!("../vectors/spoof.txt")),
];
const SOUND: &str = "sound";

/// The repository's own vectors.
#[must_use]
pub fn own() -> Vec<Vector> {
    FILES
        .iter()
        .flat_map(|(class, text)| parse(class, text))
        .collect()
}

/// Reads a file of vectors; see `vectors/README.md`.
#[must_use]
pub fn parse(class: &str, text: &str) -> Vec<Vector> {
    let class: Arc<str> = class.into();
    let mut template = "{}";
    let mut vectors = Vec::new();
    for (number, line) in text.lines().enumerate() {
        match line.strip_prefix("@ ") {
            Some(new) => template = new,
            None if line.is_empty() || line.starts_with('#') => {}
            None => vectors.push(Vector {
                class: Arc::clone(&class),
                name: format!("line {}", number + 1),
                bytes: unescape(&template.replacen("{}", line, 1)),
                sound: &*class == SOUND,
                http2: false,
            }),
        }
    }
    vectors
}

/// Turns escapes into the bytes they stand for; a backslash before anything else stands for itself.
#[must_use]
pub fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let (byte, used) = match (first, tail) {
            (b'\\', [b'r', ..]) => (b'\r', 1),
            (b'\\', [b'n', ..]) => (b'\n', 1),
            (b'\\', [b't', ..]) => (b'\t', 1),
            (b'\\', [b'0', ..]) => (0, 1),
            (b'\\', [b'\\', ..]) => (b'\\', 1),
            (b'\\', [b'x', high, low, ..]) => (hex(*high) << 4 | hex(*low), 3),
            (byte, _) => (*byte, 0),
        };
        bytes.push(byte);
        rest = &tail[used..];
    }
    bytes
}

fn hex(digit: u8) -> u8 {
    char::from(digit)
        .to_digit(16)
        .map_or(0, |value| value as u8)
}

/// Bytes as a person can read them: the reverse of [`unescape`].
#[derive(Debug, Clone, Copy)]
pub struct Shown<'a>(pub &'a [u8]);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for &byte in self.0 {
            match byte {
                b'\r' => f.write_str("\\r")?,
                b'\n' => f.write_str("\\n")?,
                b'\t' => f.write_str("\\t")?,
                b'\\' => f.write_str("\\\\")?,
                0x20..0x7f => write!(f, "{}", char::from(byte))?,
                _ => write!(f, "\\x{byte:02x}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grammar::{self, Rest};

    #[test]
    fn bytes_are_read_back_as_they_are_shown() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(unescape(&Shown(&all).to_string()), all);
        assert_eq!(unescape("a\\rb\\x00\\qc"), b"a\rb\0\\qc");
    }

    #[test]
    fn lines_stand_in_the_place_of_their_template() {
        let vectors = parse("x", "# no\n@ <{}>\\n\na b\nc");
        let bytes: Vec<_> = vectors.iter().map(|vector| &vector.bytes[..]).collect();
        assert_eq!(bytes, [&b"<a b>\n"[..], b"<c>\n"]);
        assert_eq!(vectors[1].name, "line 4");
    }

    #[test]
    fn sound_vectors_are_complete_and_sound() {
        let own = own();
        assert!(own.len() > 300, "{}", own.len());
        for vector in own.iter().filter(|vector| vector.sound) {
            let reading = grammar::read(&vector.bytes);
            assert_eq!(reading.rest, Rest::Nothing, "{}", Shown(&vector.bytes));
            assert!(!reading.messages.is_empty());
        }
    }
}

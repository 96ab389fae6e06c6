//! In how many ways a path can be read.
//!
//! `/%61dmin`, `//admin`, `/./admin` and `/x/..;/admin` are `/admin` to some servers and something
//! else to others, and the replica gets the path as the client wrote it. So a path that is not in
//! its normal form is read twice: as written, and in the form that a server would make of it which
//! decodes, joins slashes, resolves dots and ignores parameters of segments. What fits only one
//! of the readings is in doubt.
//!
//! Escapes that have to be there (`%C3%A9`, `%20`) or that clients are free to write (`%40`) are
//! decoded in both. Not read: what is encoded twice, and letters of another case.

use std::borrow::Cow;

/// The readings of a path.
#[derive(Debug)]
pub(crate) struct Readings<'a> {
    written: Cow<'a, str>,
    /// Where it differs.
    normal: Option<String>,
}

impl<'a> Readings<'a> {
    pub(crate) fn of(path: &'a str) -> Self {
        let path = if path.is_empty() { "/" } else { path };
        if is_plain(path.as_bytes()) {
            return Self {
                written: Cow::Borrowed(path),
                normal: None,
            };
        }
        let written = decode(path, |byte| !is_odd_escape(byte));
        let normal = normalise(path);
        Self {
            normal: (normal != written).then_some(normal),
            written: written.into(),
        }
    }

    /// As the client wrote it.
    pub(crate) fn written(&self) -> &str {
        &self.written
    }

    /// In its normal form, if that is another.
    pub(crate) fn normal(&self) -> Option<&str> {
        self.normal.as_deref()
    }

    /// Whether any of the readings is such a path: for rules that forbid.
    pub(crate) fn any(&self, is_such: impl Fn(&str) -> bool) -> bool {
        is_such(&self.written) || self.normal().is_some_and(is_such)
    }

    /// In the form that does not depend on how a client writes it.
    pub(crate) fn usual(&self) -> &str {
        self.normal().unwrap_or(&self.written)
    }
}

/// Whether there is only one way to read it.
fn is_plain(path: &[u8]) -> bool {
    let structural = |&byte: &u8| matches!(byte, b'%' | b';' | b'\\');
    let odd_pair = |pair: &[u8]| pair[0] == b'/' && matches!(pair[1], b'/' | b'.');
    !path.iter().any(structural) && !path.windows(2).any(odd_pair)
}

/// Whether an escape of this byte is one that nobody needs and that changes what a path means.
fn is_odd_escape(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~' | b'/' | b'\\')
}

/// Decodes the escapes of those bytes that `wanted` names.
fn decode(text: &str, wanted: impl Fn(u8) -> bool) -> String {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        match escape(&bytes[at..]).filter(|byte| wanted(*byte)) {
            Some(byte) => {
                decoded.push(byte);
                at += 3;
            }
            None => {
                decoded.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

/// The byte that an escape at the beginning stands for.
fn escape(bytes: &[u8]) -> Option<u8> {
    let [b'%', high, low, ..] = *bytes else {
        return None;
    };
    let digit = |byte: u8| char::from(byte).to_digit(16);
    u8::try_from(digit(high)? * 16 + digit(low)?).ok()
}

/// Decoded, without parameters, empty segments and dots.
fn normalise(path: &str) -> String {
    let bare: Vec<_> = path.split('/').map(without_parameters).collect();
    let decoded = decode(&bare.join("/"), |_| true).replace('\\', "/");
    let mut kept = Vec::new();
    for segment in decoded.split('/') {
        match segment {
            "" | "." => {}
            ".." => drop(kept.pop()),
            segment => kept.push(segment),
        }
    }
    let ends_open = matches!(decoded.rsplit('/').next(), Some("" | "." | ".."));
    let end = if ends_open && !kept.is_empty() {
        "/"
    } else {
        ""
    };
    format!("/{}{end}", kept.join("/"))
}

fn without_parameters(segment: &str) -> &str {
    segment.split(';').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(path: &str) -> (String, Option<String>) {
        let readings = Readings::of(path);
        (readings.written.into_owned(), readings.normal)
    }

    #[test]
    fn a_plain_path_has_one_reading() {
        for path in ["/", "/a/b", "/a/b/", "/a.b/c-d", "*"] {
            assert_eq!(read(path), (path.to_owned(), None));
        }
        assert_eq!(read(""), ("/".to_owned(), None));
    }

    #[test]
    fn necessary_escapes_leave_no_doubt() {
        assert_eq!(read("/caf%C3%A9/a%20b"), ("/café/a b".to_owned(), None));
        assert_eq!(
            read("/me%40example.org"),
            ("/me@example.org".to_owned(), None)
        );
        assert_eq!(read("/100%25"), ("/100%".to_owned(), None));
    }

    #[test]
    fn disguises_are_seen_through() {
        for path in [
            "/%61dmin",
            "//admin",
            "/./admin",
            "/x/../admin",
            "/x/%2e%2E/admin",
            "/%2Fadmin",
            "/x%2f..%2fadmin",
            "/x\\..\\admin",
            "/x/..;/admin",
            "/admin;v=1",
            "/../admin",
        ] {
            let (written, normal) = read(path);
            assert_ne!(written, "/admin", "{path}");
            assert_eq!(normal.as_deref(), Some("/admin"), "{path}");
        }
    }

    #[test]
    fn broken_escapes_stay_as_they_are() {
        assert_eq!(read("/a%zz%4"), ("/a%zz%4".to_owned(), None));
    }

    #[test]
    fn the_slash_at_the_end_stays() {
        assert_eq!(read("//a/").1.as_deref(), Some("/a/"));
        assert_eq!(read("/a/b/..").1.as_deref(), Some("/a/"));
        assert_eq!(read("/a/..").1.as_deref(), Some("/"));
    }
}

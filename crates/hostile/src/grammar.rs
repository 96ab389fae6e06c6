//! HTTP/1.1 requests by the letter of RFC 9112.
//!
//! Where the RFC lets a recipient be lenient, this one is not: lines end in CRLF, fields are not
//! folded, a length is given once and in one way. The one leniency kept is that empty lines may
//! stand before a request line (section 2.2).
//!
//! The target is any run of visible bytes here; what it may consist of on its way to an upstream
//! is a matter of [`crate::canonical`], since a proxy may rewrite it.

use memchr::memchr;

/// One request.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Message {
    /// A token.
    pub method: Vec<u8>,
    /// As it stands in the request line.
    pub target: Vec<u8>,
    /// Whether it is HTTP/1.0.
    pub http_10: bool,
    /// Names as they were written, values without the white space around them.
    pub fields: Vec<(Vec<u8>, Vec<u8>)>,
    /// Without its chunks.
    pub body: Vec<u8>,
}

impl Message {
    /// The values of a field, whatever the case of its name.
    pub fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        let named =
            move |field: &&(Vec<u8>, Vec<u8>)| field.0.eq_ignore_ascii_case(name.as_bytes());
        self.fields
            .iter()
            .filter(named)
            .map(|(_, value)| &value[..])
    }
}

/// What is wrong with bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
pub enum Flaw {
    /// RFC 9112 section 2.2.
    #[error("a line does not end in CRLF, or holds a CR")]
    LineEnd,
    /// RFC 9112 section 3.
    #[error("the request line is not method, target and version with one space between")]
    RequestLine,
    /// RFC 9112 section 2.3.
    #[error("the version is not HTTP/1.1 or HTTP/1.0")]
    Version,
    /// RFC 9112 section 5.2.
    #[error("a field is folded")]
    Folded,
    /// RFC 9110 section 5.1.
    #[error("a field's name is no token, or a space stands before its colon")]
    FieldName,
    /// RFC 9110 section 5.5.
    #[error("a field's value holds a control character")]
    FieldValue,
    /// RFC 9112 section 6.2.
    #[error("Content-Length is no number, or given twice")]
    ContentLength,
    /// RFC 9112 section 6.1.
    #[error("Transfer-Encoding is not `chunked` alone, or given to HTTP/1.0")]
    TransferEncoding,
    /// RFC 9112 section 6.3.
    #[error("Content-Length stands beside Transfer-Encoding")]
    TwoLengths,
    /// RFC 9112 section 7.1.
    #[error("a chunk is malformed")]
    Chunk,
}

/// Reads the request at the front of `bytes`: it and its length, or `None` if it is not complete.
///
/// # Errors
/// What is wrong with it. A flaw is found as soon as its line is complete.
pub fn message(bytes: &[u8]) -> Result<Option<(Message, usize)>, Flaw> {
    let mut at = 0;
    let mut message = loop {
        match line(bytes, &mut at)? {
            None => return Ok(None),
            Some([]) => {}
            Some(line) => break request_line(line)?,
        }
    };
    if !fields(bytes, &mut at, &mut message.fields)? {
        return Ok(None);
    }
    let body = match framing(&message)? {
        Framing::Length(length) => sized(bytes, &mut at, length),
        Framing::Chunked => chunked(bytes, &mut at)?,
    };
    Ok(body.map(|body| (Message { body, ..message }, at)))
}

/// All that a connection's bytes hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading {
    /// The requests that are complete and sound.
    pub messages: Vec<Message>,
    /// What comes behind them.
    pub rest: Rest,
}

/// What stands behind the last sound request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rest {
    /// Nothing.
    Nothing,
    /// The beginning of another request.
    Incomplete,
    /// Something that is no request.
    Malformed(Flaw),
}

/// Reads a whole connection.
#[must_use]
pub fn read(mut bytes: &[u8]) -> Reading {
    let mut messages = Vec::new();
    let rest = loop {
        if bytes.is_empty() {
            break Rest::Nothing;
        }
        match message(bytes) {
            Ok(Some((message, len))) => {
                messages.push(message);
                bytes = &bytes[len..];
            }
            Ok(None) => break Rest::Incomplete,
            Err(flaw) => break Rest::Malformed(flaw),
        }
    };
    Reading { messages, rest }
}

/// The next line without its CRLF.
fn line<'a>(bytes: &'a [u8], at: &mut usize) -> Result<Option<&'a [u8]>, Flaw> {
    let rest = &bytes[*at..];
    let Some(end) = memchr(b'\n', rest) else {
        return Ok(None);
    };
    *at += end + 1;
    match rest[..end].strip_suffix(b"\r") {
        Some(line) if !line.contains(&b'\r') => Ok(Some(line)),
        _ => Err(Flaw::LineEnd),
    }
}

fn request_line(line: &[u8]) -> Result<Message, Flaw> {
    let parts: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
    let &[method, target, version] = &parts[..] else {
        return Err(Flaw::RequestLine);
    };
    let visible = |byte: &u8| *byte > 0x20 && *byte != 0x7f;
    if !is_token(method) || target.is_empty() || !target.iter().all(visible) {
        return Err(Flaw::RequestLine);
    }
    let http_10 = match version {
        b"HTTP/1.1" => false,
        b"HTTP/1.0" => true,
        _ => return Err(Flaw::Version),
    };
    Ok(Message {
        method: method.to_vec(),
        target: target.to_vec(),
        http_10,
        ..Message::default()
    })
}

/// Reads field lines up to the empty one; false if that has not come yet.
fn fields(
    bytes: &[u8],
    at: &mut usize,
    fields: &mut Vec<(Vec<u8>, Vec<u8>)>,
) -> Result<bool, Flaw> {
    loop {
        match line(bytes, at)? {
            None => return Ok(false),
            Some([]) => return Ok(true),
            Some(line) => fields.push(field(line)?),
        }
    }
}

fn field(line: &[u8]) -> Result<(Vec<u8>, Vec<u8>), Flaw> {
    if matches!(line[0], b' ' | b'\t') {
        return Err(Flaw::Folded);
    }
    let colon = memchr(b':', line).ok_or(Flaw::FieldName)?;
    let (name, value) = (&line[..colon], &line[colon + 1..]);
    let control = |byte: &u8| (*byte < 0x20 && *byte != b'\t') || *byte == 0x7f;
    if !is_token(name) {
        return Err(Flaw::FieldName);
    }
    if value.iter().any(control) {
        Err(Flaw::FieldValue)
    } else {
        Ok((name.to_vec(), trim(value).to_vec()))
    }
}

/// Without optional white space: spaces and tabs only.
fn trim(value: &[u8]) -> &[u8] {
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let start = value.iter().take_while(|byte| is_blank(byte)).count();
    let value = &value[start..];
    let end = value.iter().rev().take_while(|byte| is_blank(byte)).count();
    &value[..value.len() - end]
}

enum Framing {
    Length(usize),
    Chunked,
}

fn framing(message: &Message) -> Result<Framing, Flaw> {
    let lengths: Vec<_> = message.values("content-length").collect();
    let codings: Vec<_> = message.values("transfer-encoding").collect();
    match (&lengths[..], &codings[..]) {
        ([], []) => Ok(Framing::Length(0)),
        ([length], []) => number(length, 10)
            .map(Framing::Length)
            .ok_or(Flaw::ContentLength),
        ([], [coding]) if coding.eq_ignore_ascii_case(b"chunked") && !message.http_10 => {
            Ok(Framing::Chunked)
        }
        ([], _) => Err(Flaw::TransferEncoding),
        (_, []) => Err(Flaw::ContentLength),
        _ => Err(Flaw::TwoLengths),
    }
}

/// A number of digits alone that fits.
fn number(digits: &[u8], radix: u32) -> Option<usize> {
    let sound = digits
        .iter()
        .all(|&digit| char::from(digit).is_digit(radix));
    let text = std::str::from_utf8(digits).ok().filter(|_| sound)?;
    usize::from_str_radix(text, radix).ok()
}

fn sized(bytes: &[u8], at: &mut usize, length: usize) -> Option<Vec<u8>> {
    let body = bytes[*at..].get(..length)?;
    *at += length;
    Some(body.to_vec())
}

fn chunked(bytes: &[u8], at: &mut usize) -> Result<Option<Vec<u8>>, Flaw> {
    let mut body = Vec::new();
    loop {
        let Some(line) = line(bytes, at).map_err(|_| Flaw::Chunk)? else {
            return Ok(None);
        };
        let size = chunk_size(line).ok_or(Flaw::Chunk)?;
        if size == 0 {
            let complete = fields(bytes, at, &mut Vec::new())?;
            return Ok(complete.then_some(body));
        }
        let Some(data) = sized(bytes, at, size) else {
            return Ok(None);
        };
        body.extend(data);
        match bytes[*at..] {
            [b'\r', b'\n', ..] => *at += 2,
            [] | [b'\r'] => return Ok(None),
            _ => return Err(Flaw::Chunk),
        }
    }
}

fn chunk_size(line: &[u8]) -> Option<usize> {
    let end = memchr(b';', line).unwrap_or(line.len());
    let (size, extensions) = line.split_at(end);
    let sound = extensions
        .iter()
        .all(|&byte| byte == b'\t' || (0x20..0x7f).contains(&byte));
    // White space before the semicolon is bad, but allowed ("BWS").
    let size = match extensions {
        [] => size,
        _ => trim(size),
    };
    number(size, 16).filter(|_| sound && !size.is_empty())
}

/// RFC 9110 section 5.6.2.
#[must_use]
pub fn is_token(bytes: &[u8]) -> bool {
    let is_tchar = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    !bytes.is_empty() && bytes.iter().all(is_tchar)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flaw(bytes: &str) -> Option<Flaw> {
        match read(bytes.as_bytes()).rest {
            Rest::Malformed(flaw) => Some(flaw),
            _ => None,
        }
    }

    fn with(fields: &str) -> String {
        format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n")
    }

    #[test]
    fn sound_requests_are_read_one_after_the_other() {
        let bytes = b"\r\nPOST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc\
            PUT /b HTTP/1.1\r\nTransfer-Encoding: Chunked\r\n\r\n2 ;x=y\r\nde\r\n1\r\nf\r\n0\r\nt: v\r\n\r\n\
            GET /c HTTP/1.0\r\n\r\n";
        let reading = read(bytes);
        assert_eq!(reading.rest, Rest::Nothing);
        let bodies: Vec<_> = reading.messages.iter().map(|m| &m.body[..]).collect();
        assert_eq!(bodies, [&b"abc"[..], b"def", b""]);
        assert!(reading.messages[2].http_10);
        for cut in 1..bytes.len() {
            let rest = read(&bytes[..cut]).rest;
            assert!(
                !matches!(rest, Rest::Malformed(_)),
                "cut at {cut}: {rest:?}"
            );
        }
    }

    #[test]
    fn every_flaw_is_found() {
        for (bytes, expected) in [
            ("GET / HTTP/1.1\n\r\n".to_owned(), Flaw::LineEnd),
            (with("a: b\rc\r\n"), Flaw::LineEnd),
            ("GET  / HTTP/1.1\r\n".to_owned(), Flaw::RequestLine),
            ("G(T / HTTP/1.1\r\n".to_owned(), Flaw::RequestLine),
            ("GET / HTTP/1.2\r\n".to_owned(), Flaw::Version),
            (with("a: b\r\n c\r\n"), Flaw::Folded),
            (with("a : b\r\n"), Flaw::FieldName),
            (with("a\r\n"), Flaw::FieldName),
            (with("a: \0\r\n"), Flaw::FieldValue),
            (with("content-length: +1\r\n"), Flaw::ContentLength),
            (with("content-length:\r\n"), Flaw::ContentLength),
            (
                with("content-length: 1\r\ncontent-length: 1\r\n"),
                Flaw::ContentLength,
            ),
            (
                with("transfer-encoding: gzip, chunked\r\n"),
                Flaw::TransferEncoding,
            ),
            (
                with("transfer-encoding: chunked\r\ncontent-length: 1\r\n"),
                Flaw::TwoLengths,
            ),
            (
                with("transfer-encoding: chunked\r\n") + "0x1\r\n",
                Flaw::Chunk,
            ),
            (
                with("transfer-encoding: chunked\r\n") + "1\r\nab\r\n",
                Flaw::Chunk,
            ),
            (
                with("transfer-encoding: chunked\r\n") + "1\nab\r\n",
                Flaw::Chunk,
            ),
        ] {
            assert_eq!(flaw(&bytes), Some(expected), "{bytes:?}");
        }
    }
}

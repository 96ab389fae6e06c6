//! The head of a response.
//!
//! Replicas are trusted more than clients: their lines may end in a bare LF, as old ones do. What
//! could be understood in two ways is refused all the same: a client behind us would be harmed.

use bytes::BytesMut;
use http::header::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderName, HeaderValue, Method, StatusCode, Version};
use memchr::{memchr, memchr_iter};

use super::body::Framing;
use super::{HeadLimits, Violation, field};
use crate::hop::has_token;
use crate::message::{Fields, Response};

/// The head of a response: not with all memory are replicas trusted.
pub(crate) const LIMITS: HeadLimits = HeadLimits {
    bytes: 256 << 10,
    fields: 100,
};

/// A head that is complete.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) response: Response<()>,
    /// Of an informational response it means nothing: it has no body.
    pub(crate) framing: Framing,
    /// Whether the connection can be used again after the body.
    pub(crate) keep_alive: bool,
}

/// Takes the head of a response to a request with `method` out of `input`; `None` if it is not
/// complete yet.
pub(crate) fn read(input: &mut BytesMut, method: &Method) -> Result<Option<Head>, Violation> {
    let Some(extent) = Extent::of(input) else {
        return match input.len() > LIMITS.bytes {
            true => Err(Violation::HeadTooLarge),
            false => Ok(None),
        };
    };
    let head = input.split_to(extent.bytes).freeze();
    let mut lines = Lines { rest: &head };
    let (version, status) = status_line(lines.next().unwrap_or_default())?;
    if extent.fields > LIMITS.fields {
        return Err(Violation::TooManyHeaders);
    }
    let mut headers = Fields::with_room(extent.fields);
    for line in lines {
        let (name, value) = field::split(line)?;
        let name = HeaderName::from_bytes(name).map_err(|_| Violation::FieldName)?;
        let value = HeaderValue::from_maybe_shared(head.slice_ref(value));
        headers.append(name, value.map_err(|_| Violation::FieldValue)?);
    }
    let response = Response {
        status,
        version,
        headers,
        body: (),
    };
    let framing = framing(&response, method)?;
    Ok(Some(Head {
        keep_alive: is_kept_alive(&response, framing),
        framing,
        response,
    }))
}

/// How much of the input is a head.
struct Extent {
    /// The empty line at its end included.
    bytes: usize,
    /// Lines between the first and the empty one.
    fields: usize,
}

impl Extent {
    /// None if the head is not complete.
    fn of(input: &[u8]) -> Option<Self> {
        let mut line = 0;
        for (lines, end) in memchr_iter(b'\n', input).enumerate() {
            if matches!(&input[line..end], b"" | b"\r") && line > 0 {
                return Some(Self {
                    bytes: end + 1,
                    fields: lines - 1,
                });
            }
            line = end + 1;
        }
        None
    }
}

/// The lines of a head up to the empty one.
struct Lines<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Lines<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let end = memchr(b'\n', self.rest)?;
        let line = &self.rest[..end];
        self.rest = &self.rest[end + 1..];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        (!line.is_empty()).then_some(line)
    }
}

/// `HTTP/1.1 200 OK`; the reason says nothing to anybody.
fn status_line(line: &[u8]) -> Result<(Version, StatusCode), Violation> {
    let version = match line.get(..9) {
        Some(b"HTTP/1.1 ") => Version::HTTP_11,
        Some(b"HTTP/1.0 ") => Version::HTTP_10,
        _ => return Err(Violation::Version),
    };
    let (status, reason) = line[9..].split_at_checked(3).ok_or(Violation::StatusLine)?;
    let status = StatusCode::from_bytes(status).map_err(|_| Violation::StatusLine)?;
    match reason.first() {
        None | Some(b' ') if field::is_field_value(reason) => Ok((version, status)),
        _ => Err(Violation::StatusLine),
    }
}

/// RFC 9112 section 6.3, without its leniency: a response says once how long it is.
fn framing(response: &Response<()>, method: &Method) -> Result<Framing, Violation> {
    let headers = &response.headers;
    let length = once(headers, &CONTENT_LENGTH, Violation::ContentLength)?;
    let length = match length {
        Some(value) => Some(field::length(value.as_bytes()).ok_or(Violation::ContentLength)?),
        None => None,
    };
    let coding = once(headers, &TRANSFER_ENCODING, Violation::Framing)?;
    let framing = match (coding, length) {
        (Some(_), Some(_)) => return Err(Violation::Framing),
        (Some(_), None) if response.version == Version::HTTP_10 => {
            return Err(Violation::Framing);
        }
        (Some(coding), None) if coding.as_bytes().eq_ignore_ascii_case(b"chunked") => {
            Framing::Chunked
        }
        (Some(_), None) => return Err(Violation::TransferCoding),
        (None, Some(length)) => Framing::Length(length),
        (None, None) => Framing::UntilClose,
    };
    let status = response.status;
    let bodiless = *method == Method::HEAD
        || status.is_informational()
        || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    Ok(match bodiless {
        true => Framing::Length(0),
        false => framing,
    })
}

/// The value of a header that may be there once.
fn once<'a>(
    headers: &'a Fields,
    name: &'a HeaderName,
    twice: Violation,
) -> Result<Option<&'a HeaderValue>, Violation> {
    let mut values = headers.get_all(name);
    match (values.next(), values.next()) {
        (value, None) => Ok(value),
        _ => Err(twice),
    }
}

fn is_kept_alive(response: &Response<()>, framing: Framing) -> bool {
    let headers = &response.headers;
    let says = |token| has_token(headers, &CONNECTION, token);
    let wanted = match response.version {
        Version::HTTP_10 => says("keep-alive"),
        _ => !says("close"),
    };
    wanted && framing != Framing::UntilClose
}

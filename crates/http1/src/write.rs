//! Heads and bodies as they are written: one spelling for everything.

use bytes::Bytes;
use http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE,
    CONTENT_TYPE, DATE, HOST, MAX_FORWARDS, SET_COOKIE, TE, TRAILER, TRANSFER_ENCODING,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version};

use super::output::Output;
use crate::hop::has_token;
use crate::message::{Fields, Request, Response};

/// How a body is framed on its way out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Encoder {
    /// Bytes that may still come.
    Length(u64),
    /// With the names of the trailers that were announced, if anybody wants them.
    Chunked(Vec<HeaderName>),
    /// It ends with the connection.
    UntilClose,
}

impl Encoder {
    /// Adds data to the output.
    pub fn data(&mut self, data: Bytes, output: &mut Output) {
        match self {
            _ if data.is_empty() => {}
            Self::Length(left) => {
                let len = usize::try_from(*left).map_or(data.len(), |left| left.min(data.len()));
                *left -= len as u64;
                output.push(data.slice(..len), b"");
            }
            Self::Chunked(_) => {
                hex(output.small(), data.len());
                output.small().extend_from_slice(b"\r\n");
                output.push(data, b"\r\n");
            }
            Self::UntilClose => output.push(data, b""),
        }
    }

    /// Adds the end of the body. False if less has come than was promised.
    pub fn end(&self, trailers: Option<&HeaderMap>, output: &mut Output) -> bool {
        match self {
            Self::Length(left) => *left == 0,
            Self::UntilClose => true,
            Self::Chunked(announced) => {
                let out = output.small();
                out.extend_from_slice(b"0\r\n");
                for (name, value) in trailers.into_iter().flatten() {
                    if announced.contains(name) {
                        field(out, name.as_str(), value.as_bytes());
                    }
                }
                out.extend_from_slice(b"\r\n");
                true
            }
        }
    }

    /// Whether all that was promised has been added.
    #[inline]
    #[must_use]
    pub fn is_complete(&self) -> bool {
        *self == Self::Length(0)
    }
}

/// Trailers that are announced and may be trailers (RFC 9110 section 6.5.1): a recipient that
/// merges them into the headers must not be misled by them.
fn announced(headers: &Fields) -> Vec<HeaderName> {
    let forbidden = |name: &HeaderName| {
        matches!(
            *name,
            AUTHORIZATION
                | CACHE_CONTROL
                | CONTENT_ENCODING
                | CONTENT_LENGTH
                | CONTENT_RANGE
                | CONTENT_TYPE
                | HOST
                | MAX_FORWARDS
                | SET_COOKIE
                | TE
                | TRAILER
                | TRANSFER_ENCODING
        )
    };
    let lines = headers.get_all(TRAILER);
    lines
        .flat_map(|line| line.as_bytes().split(|&byte| byte == b','))
        .filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok())
        .filter(|name| !forbidden(name))
        .collect()
}

/// Writes the head of a request whose body has `length` bytes, if that is known.
pub fn request<B>(out: &mut Vec<u8>, request: &Request<B>, length: Option<u64>) -> Encoder {
    let headers = &request.headers;
    let target = request.uri.path_and_query();
    out.extend_from_slice(request.method.as_str().as_bytes());
    out.push(b' ');
    out.extend_from_slice(target.map_or("/", |target| target.as_str()).as_bytes());
    out.extend_from_slice(b" HTTP/1.1\r\n");
    fields(out, headers, |name| {
        *name != CONTENT_LENGTH && *name != TRANSFER_ENCODING
    });
    let encoder = match length {
        // Servers want to be told that a POST has no body (RFC 9110 section 8.6).
        Some(0) if !announces_nothing(request) => Encoder::Length(0),
        Some(length) => {
            content_length(out, length);
            Encoder::Length(length)
        }
        None => {
            out.extend_from_slice(b"transfer-encoding: chunked\r\n");
            Encoder::Chunked(announced(headers))
        }
    };
    out.extend_from_slice(b"\r\n");
    encoder
}

fn announces_nothing<B>(request: &Request<B>) -> bool {
    let expects_body = matches!(request.method, Method::POST | Method::PUT | Method::PATCH);
    expects_body || request.headers.contains(CONTENT_LENGTH)
}

/// What a response's head depends on beside the response.
#[derive(Debug, Clone, Copy)]
pub struct Asker {
    /// The version of the request.
    pub version: Version,
    /// Whether the request was HEAD.
    pub head: bool,
    /// Whether the client takes trailers.
    pub trailers: bool,
    /// Whether the connection can be used again.
    pub keep_alive: bool,
}

impl Asker {
    /// What of a request its response depends on.
    #[must_use]
    pub fn of<B>(request: &Request<B>, keep_alive: bool) -> Self {
        Self {
            version: request.version,
            head: request.method == Method::HEAD,
            trailers: has_token(&request.headers, &TE, "trailers"),
            keep_alive,
        }
    }

    /// Whether a response that was made beforehand will do: version and body as usual.
    #[inline]
    #[must_use]
    pub fn takes_ready_words(&self) -> bool {
        self.version == Version::HTTP_11 && !self.head
    }
}

/// Writes the head of a response whose body has `length` bytes, if that is known. Says how the
/// body is framed; `asker` learns whether the connection stays.
pub fn response<B>(
    out: &mut Vec<u8>,
    response: &Response<B>,
    length: Option<u64>,
    asker: &mut Asker,
    date: impl FnOnce() -> HeaderValue,
) -> Encoder {
    let (status, headers) = (response.status, &response.headers);
    let http_10 = asker.version == Version::HTTP_10;
    status_line(out, status, http_10);
    let (mut said, mut dated) = (None, false);
    for (name, value) in headers.iter() {
        match *name {
            CONTENT_LENGTH | TRANSFER_ENCODING => continue,
            CONNECTION => {
                said = said.or(Some(value));
                continue;
            }
            DATE => dated = true,
            _ => {}
        }
        field(out, name.as_str(), value.as_bytes());
    }
    asker.keep_alive &= said.is_none() || !has_token(headers, &CONNECTION, "close");
    if !dated {
        field(out, "date", date().as_bytes());
    }
    let encoder = frame(out, response, length, asker);
    asker.keep_alive &= encoder != Encoder::UntilClose;
    match said {
        Some(said) if status == StatusCode::SWITCHING_PROTOCOLS => {
            field(out, "connection", said.as_bytes());
        }
        _ if !asker.keep_alive => out.extend_from_slice(b"connection: close\r\n"),
        _ if http_10 => out.extend_from_slice(b"connection: keep-alive\r\n"),
        _ => {}
    }
    out.extend_from_slice(b"\r\n");
    encoder
}

/// The start of a response of `length` bytes, up to the value of `last`.
#[must_use]
pub fn start(status: StatusCode, headers: &Fields, length: usize, last: &HeaderName) -> Vec<u8> {
    let mut out = Vec::new();
    status_line(&mut out, status, false);
    fields(&mut out, headers, |_| true);
    content_length(&mut out, length as u64);
    out.extend_from_slice(last.as_str().as_bytes());
    out.extend_from_slice(b": ");
    out
}

/// Writes an informational response.
pub fn interim(out: &mut Vec<u8>, status: StatusCode, headers: &Fields) {
    status_line(out, status, false);
    fields(out, headers, |name| {
        !matches!(*name, CONTENT_LENGTH | TRANSFER_ENCODING | CONNECTION)
    });
    out.extend_from_slice(b"\r\n");
}

/// Writes what says how the body is framed.
fn frame<B>(
    out: &mut Vec<u8>,
    response: &Response<B>,
    length: Option<u64>,
    asker: &Asker,
) -> Encoder {
    let status = response.status;
    if status.is_informational() || status == StatusCode::NO_CONTENT {
        return Encoder::Length(0);
    }
    if asker.head || status == StatusCode::NOT_MODIFIED {
        // What the body would be: the replica knows, or we do.
        let said = response.headers.get(CONTENT_LENGTH);
        match (said, length) {
            (Some(said), _) => field(out, "content-length", said.as_bytes()),
            (None, Some(length)) if length > 0 => content_length(out, length),
            (None, _) => {}
        }
        return Encoder::Length(0);
    }
    match length {
        Some(length) => {
            content_length(out, length);
            Encoder::Length(length)
        }
        None if asker.version == Version::HTTP_10 => Encoder::UntilClose,
        None => {
            out.extend_from_slice(b"transfer-encoding: chunked\r\n");
            Encoder::Chunked(if asker.trailers {
                announced(&response.headers)
            } else {
                Vec::new()
            })
        }
    }
}

fn status_line(out: &mut Vec<u8>, status: StatusCode, http_10: bool) {
    if status == StatusCode::OK && !http_10 {
        out.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
        return;
    }
    out.extend_from_slice(if http_10 { b"HTTP/1.0 " } else { b"HTTP/1.1 " });
    out.extend_from_slice(status.as_str().as_bytes());
    out.push(b' ');
    out.extend_from_slice(status.canonical_reason().unwrap_or("").as_bytes());
    out.extend_from_slice(b"\r\n");
}

fn fields(out: &mut Vec<u8>, headers: &Fields, passes: impl Fn(&HeaderName) -> bool) {
    for (name, value) in headers.iter() {
        if passes(name) {
            field(out, name.as_str(), value.as_bytes());
        }
    }
}

fn field(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    out.reserve(name.len() + value.len() + 4);
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

fn content_length(out: &mut Vec<u8>, length: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    let mut rest = length;
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    field(out, "content-length", &digits[at..]);
}

fn hex(out: &mut Vec<u8>, number: usize) {
    let digits = (usize::BITS - number.leading_zeros()).div_ceil(4).max(1);
    for at in (0..digits).rev() {
        out.push(b"0123456789abcdef"[(number >> (at * 4)) & 15]);
    }
}

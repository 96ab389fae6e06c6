//! The head of a response.
//!
//! Replicas are trusted more than clients: their lines may end in a bare LF, as old ones do. What
//! could be understood in two ways is refused all the same: a client behind us would be harmed.

use bytes::BytesMut;
use http::header::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderName, HeaderValue, Method, StatusCode, Version};
use memchr::memchr_iter;

use super::body::Framing;
use super::{HeadLimits, Violation, field, name};
use crate::hop::elements;
use crate::message::{Fields, Response};

/// The head of a response: not with all memory are replicas trusted.
pub const LIMITS: HeadLimits = HeadLimits {
    bytes: 256 << 10,
    fields: 100,
};

/// A head that is complete.
#[derive(Debug)]
pub struct Head {
    /// The response without its body.
    pub response: Response<()>,
    /// Of an informational response it means nothing: it has no body.
    pub framing: Framing,
    /// Whether the connection can be used again after the body.
    pub keep_alive: bool,
}

/// Takes the head of a response to a request with `method` out of `input`; `None` if it is not
/// complete yet.
///
/// # Errors
/// What is wrong with it; the connection cannot be read on.
pub fn read(input: &mut BytesMut, method: &Method) -> Result<Option<Head>, Violation> {
    let Some(extent) = Extent::of(input)? else {
        return if input.len() > LIMITS.bytes {
            Err(Violation::HeadTooLarge)
        } else if !may_become_http(input) {
            Err(Violation::Version)
        } else {
            Ok(None)
        };
    };
    if extent.bytes > LIMITS.bytes {
        return Err(Violation::HeadTooLarge);
    }
    let head = input.split_to(extent.bytes).freeze();
    let mut lines = extent.lines(&head);
    let (version, status) = status_line(lines.next().unwrap_or_default())?;
    let mut headers = Fields::of_response(extent.fields());
    let mut said = Said::default();
    for line in lines {
        let (name, value) = field::cut(line)?;
        let name = name::read(name)?;
        said.note(&name, value)?;
        let value = HeaderValue::from_maybe_shared(head.slice_ref(value));
        headers.append(name, value.map_err(|_| Violation::FieldValue)?);
    }
    let response = Response {
        status,
        version,
        headers,
        body: (),
    };
    let framing = said.framing(&response, method)?;
    Ok(Some(Head {
        keep_alive: said.keeps_alive(version) && framing != Framing::UntilClose,
        framing,
        response,
    }))
}

/// Whether what has come so far can be the beginning of a response. A server of another protocol
/// may say one line and wait for the next, and no reader should wait with it.
fn may_become_http(input: &[u8]) -> bool {
    input.iter().zip(b"HTTP/1.").all(|(byte, of)| byte == of)
}

/// Where the lines of a head end: they are sought once.
struct Extent {
    /// Of the first line and the headers.
    ends: [u32; LIMITS.fields + 1],
    lines: usize,
    /// The empty line at the end included.
    bytes: usize,
}

impl Extent {
    /// None if the head is not complete.
    fn of(input: &[u8]) -> Result<Option<Self>, Violation> {
        let mut found = Self {
            ends: [0; LIMITS.fields + 1],
            lines: 0,
            bytes: 0,
        };
        for end in memchr_iter(b'\n', input) {
            let line = &input[found.bytes..end];
            found.bytes = end + 1;
            if matches!(line, b"" | b"\r") && found.lines > 0 {
                return Ok(Some(found));
            }
            let place = found.ends.get_mut(found.lines);
            *place.ok_or(Violation::TooManyHeaders)? = end as u32;
            found.lines += 1;
        }
        Ok(None)
    }

    fn fields(&self) -> usize {
        self.lines - 1
    }

    /// The lines of `head` up to the empty one, without their ends.
    fn lines<'a>(&'a self, head: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        let mut start = 0;
        self.ends[..self.lines].iter().map(move |&end| {
            let line = &head[start..end as usize];
            start = end as usize + 1;
            line.strip_suffix(b"\r").unwrap_or(line)
        })
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

/// What the headers say about the body and the connection.
#[derive(Debug, Default)]
struct Said {
    length: Option<u64>,
    coding: Option<Coding>,
    close: bool,
    keep_alive: bool,
}

/// A transfer coding.
#[derive(Debug, Clone, Copy)]
enum Coding {
    Chunked,
    Other,
}

impl Said {
    /// Without the leniency of RFC 9112 section 6.3: a response says once how long it is.
    fn note(&mut self, name: &HeaderName, value: &[u8]) -> Result<(), Violation> {
        match *name {
            CONTENT_LENGTH if self.length.is_some() => return Err(Violation::ContentLength),
            CONTENT_LENGTH => {
                self.length = Some(field::length(value).ok_or(Violation::ContentLength)?);
            }
            TRANSFER_ENCODING if self.coding.is_some() => return Err(Violation::Framing),
            TRANSFER_ENCODING => {
                let chunked = value.eq_ignore_ascii_case(b"chunked");
                self.coding = Some(if chunked {
                    Coding::Chunked
                } else {
                    Coding::Other
                });
            }
            CONNECTION => {
                for token in elements(value) {
                    self.close |= token.eq_ignore_ascii_case(b"close");
                    self.keep_alive |= token.eq_ignore_ascii_case(b"keep-alive");
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn framing(&self, response: &Response<()>, method: &Method) -> Result<Framing, Violation> {
        let framing = match (self.coding, self.length) {
            (Some(_), Some(_)) => return Err(Violation::Framing),
            (Some(_), None) if response.version == Version::HTTP_10 => {
                return Err(Violation::Framing);
            }
            (Some(Coding::Chunked), None) => Framing::Chunked,
            (Some(Coding::Other), None) => return Err(Violation::TransferCoding),
            (None, Some(length)) => Framing::Length(length),
            (None, None) => Framing::UntilClose,
        };
        let status = response.status;
        let bodiless = *method == Method::HEAD
            || status.is_informational()
            || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        Ok(if bodiless {
            Framing::Length(0)
        } else {
            framing
        })
    }

    fn keeps_alive(&self, version: Version) -> bool {
        match version {
            Version::HTTP_10 => self.keep_alive,
            _ => !self.close,
        }
    }
}

//! The head of a request: its line and its headers, read line by line as they arrive.
//!
//! What has been judged is not judged again when more bytes come, so a client that sends its
//! head byte by byte costs no more than one that sends it at once.

use std::ops::Range;

use bytes::{Bytes, BytesMut};
use http::{HeaderValue, Method, Uri, Version};
use memchr::memchr;

use super::body::Framing;
use super::field::{self, is_token_byte};
use super::{HeadLimits, Violation, name};
use crate::message::{Fields, Request};

/// Longer than any method in use; what has no space by then is not a request.
const METHOD_BYTES_MAX: usize = 24;

/// A head that is complete.
#[derive(Debug)]
pub struct Head {
    /// The request without its body.
    pub request: Request<()>,
    /// Where its body ends.
    pub framing: Framing,
    /// Whether the client wants to go on using the connection.
    pub keep_alive: bool,
    /// Whether the client waits for `100 Continue` before it sends the body.
    pub expects_continue: bool,
}

/// Reads heads, one after the other.
#[derive(Debug, Default)]
pub struct HeadReader {
    /// Bytes of complete lines.
    judged: usize,
    /// Bytes known to hold no further line end.
    searched: usize,
    line: Option<Line>,
    fields: Vec<Field>,
    content_length: Option<u64>,
    chunked: bool,
    close: bool,
    keep_alive: bool,
    expects_continue: bool,
}

/// Where the parts of the request line are.
#[derive(Debug)]
struct Line {
    method: Range<usize>,
    target: Range<usize>,
    version: Version,
}

/// Where a header is: 32 bits each, as every head is bounded.
#[derive(Debug)]
struct Field {
    name: Range<u32>,
    value: Range<u32>,
}

impl HeadReader {
    /// Whether part of a head has been read.
    #[inline]
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.searched > 0
    }

    /// Takes a head out of `input`, which starts where the head starts, in every call. `None`: it
    /// is not complete yet.
    ///
    /// # Errors
    /// What is wrong with it; the connection cannot be read on.
    pub fn read(
        &mut self,
        input: &mut BytesMut,
        limits: &HeadLimits,
    ) -> Result<Option<Head>, Violation> {
        if !self.judge(input, limits)? {
            return Ok(None);
        }
        let head = input.split_to(self.judged).freeze();
        let head = self.build(&head)?;
        self.start_again();
        Ok(Some(head))
    }

    /// Keeps the room for headers: the next request of a client has as many.
    fn start_again(&mut self) {
        let mut fields = std::mem::take(&mut self.fields);
        fields.clear();
        *self = Self {
            fields,
            ..Self::default()
        };
    }

    /// Judges what has come; whether it is complete.
    fn judge(&mut self, bytes: &[u8], limits: &HeadLimits) -> Result<bool, Violation> {
        while let Some(at) = memchr(b'\n', &bytes[self.searched..]) {
            let end = self.searched + at;
            let start = self.judged;
            let line = field::without_cr(&bytes[start..end])?;
            self.judged = end + 1;
            self.searched = end + 1;
            if self.judged > limits.bytes {
                return Err(self.too_long());
            }
            match line {
                // RFC 9112 section 2.2: empty lines before a request line are ignored.
                [] if self.line.is_none() => {}
                [] => return Ok(true),
                line if self.line.is_none() => self.line = Some(request_line(line, start)?),
                line => self.header(line, start, limits)?,
            }
        }
        self.searched = bytes.len();
        self.plausible(&bytes[self.judged..])?;
        if bytes.len() > limits.bytes {
            Err(self.too_long())
        } else {
            Ok(false)
        }
    }

    fn too_long(&self) -> Violation {
        match self.line {
            Some(_) => Violation::HeadTooLarge,
            None => Violation::TargetTooLong,
        }
    }

    /// Refuses at once what will never be a request line, such as a TLS handshake on a plain port.
    fn plausible(&self, partial: &[u8]) -> Result<(), Violation> {
        if self.line.is_some() {
            return Ok(());
        }
        let start = &partial[..partial.len().min(METHOD_BYTES_MAX + 1)];
        match start.iter().position(|&byte| !is_token_byte(byte)) {
            None if start.len() <= METHOD_BYTES_MAX => Ok(()),
            Some(at) if at > 0 && start[at] == b' ' => Ok(()),
            Some(0) if partial == b"\r" => Ok(()),
            _ => Err(Violation::RequestLine),
        }
    }

    fn header(&mut self, line: &[u8], start: usize, limits: &HeadLimits) -> Result<(), Violation> {
        if self.fields.len() >= limits.fields {
            return Err(Violation::TooManyHeaders);
        }
        let (name, value) = field::split(line)?;
        match name.len() {
            6 if name.eq_ignore_ascii_case(b"expect") => {
                self.expects_continue = value.eq_ignore_ascii_case(b"100-continue");
            }
            10 if name.eq_ignore_ascii_case(b"connection") => self.connection(value),
            14 if name.eq_ignore_ascii_case(b"content-length") => self.content_length(value)?,
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => self.coding(value)?,
            _ => {}
        }
        let name_end = start + name.len();
        let value_start = start + field::offset(line, value);
        let range = |range: Range<usize>| range.start as u32..range.end as u32;
        self.fields.push(Field {
            name: range(start..name_end),
            value: range(value_start..value_start + value.len()),
        });
        Ok(())
    }

    fn connection(&mut self, value: &[u8]) {
        for token in value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii) {
            self.close |= token.eq_ignore_ascii_case(b"close");
            self.keep_alive |= token.eq_ignore_ascii_case(b"keep-alive");
        }
    }

    /// RFC 9112 section 6.3 lets equal repetitions pass; we do not, since not every party
    /// behind us compares them.
    fn content_length(&mut self, value: &[u8]) -> Result<(), Violation> {
        if self.content_length.is_some() {
            return Err(Violation::ContentLength);
        }
        self.content_length = Some(field::length(value).ok_or(Violation::ContentLength)?);
        Ok(())
    }

    fn coding(&mut self, value: &[u8]) -> Result<(), Violation> {
        if self.chunked || self.is_http_10() {
            return Err(Violation::Framing);
        }
        if !value.eq_ignore_ascii_case(b"chunked") {
            return Err(Violation::TransferCoding);
        }
        self.chunked = true;
        Ok(())
    }

    fn is_http_10(&self) -> bool {
        let is_10 = |line: &Line| line.version == Version::HTTP_10;
        self.line.as_ref().is_some_and(is_10)
    }

    fn build(&self, head: &Bytes) -> Result<Head, Violation> {
        let framing = match (self.chunked, self.content_length) {
            (true, Some(_)) => return Err(Violation::Framing),
            (true, None) => Framing::Chunked,
            (false, length) => Framing::Length(length.unwrap_or(0)),
        };
        let line = self.line.as_ref().ok_or(Violation::RequestLine)?;
        let method = Method::from_bytes(&head[line.method.clone()]);
        let uri = Uri::from_maybe_shared(head.slice(line.target.clone()));
        let http_11 = line.version == Version::HTTP_11;
        Ok(Head {
            request: Request {
                method: method.map_err(|_| Violation::RequestLine)?,
                uri: uri.map_err(|_| Violation::RequestLine)?,
                version: line.version,
                headers: self.headers(head)?,
                body: (),
            },
            framing,
            keep_alive: !self.close && (http_11 || self.keep_alive),
            expects_continue: self.expects_continue && http_11,
        })
    }

    fn headers(&self, head: &Bytes) -> Result<Fields, Violation> {
        let mut headers = Fields::with_room(self.fields.len());
        let at = |range: &Range<u32>| range.start as usize..range.end as usize;
        for field in &self.fields {
            let name = name::read(&head[at(&field.name)])?;
            let value = HeaderValue::from_maybe_shared(head.slice(at(&field.value)))
                .map_err(|_| Violation::FieldValue)?;
            headers.append(name, value);
        }
        Ok(headers)
    }
}

/// Reads a request line that starts at `start` of the head.
fn request_line(line: &[u8], start: usize) -> Result<Line, Violation> {
    let method = line
        .iter()
        .position(|&byte| !is_token_byte(byte))
        .filter(|&at| (1..=METHOD_BYTES_MAX).contains(&at) && line[at] == b' ')
        .ok_or(Violation::RequestLine)?;
    let rest = &line[method + 1..];
    let space = memchr(b' ', rest).ok_or(Violation::RequestLine)?;
    let (target, version) = (&rest[..space], &rest[space + 1..]);
    if !is_target(target) {
        return Err(Violation::RequestLine);
    }
    let version = match version {
        b"HTTP/1.1" => Version::HTTP_11,
        b"HTTP/1.0" => Version::HTTP_10,
        other if other.starts_with(b"HTTP/") && !other.contains(&b' ') => {
            return Err(Violation::Version);
        }
        _ => return Err(Violation::RequestLine),
    };
    let target_start = start + method + 1;
    Ok(Line {
        method: start..start + method,
        target: target_start..target_start + target.len(),
        version,
    })
}

/// Visible characters. What no client may leave unescaped, and a fragment, never belong into a
/// request; what browsers leave unescaped although RFC 3986 forbids it passes here and is escaped
/// on the way to the replica.
fn is_target(target: &[u8]) -> bool {
    let bad = |byte: u8| {
        (byte <= 0x20)
            | (byte == 0x7f)
            | (byte == b'#')
            | (byte == b'"')
            | (byte == b'<')
            | (byte == b'>')
    };
    !target.is_empty() && !target.iter().fold(false, |any, &byte| any | bad(byte))
}

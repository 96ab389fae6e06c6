//! The head of a request: its line and its headers, read line by line as they arrive.
//!
//! What has been judged is not judged again when more bytes come, so a client that sends its
//! head byte by byte costs no more than one that sends it at once.

use memchr::memchr;

use super::field::{self, is_token_byte};
use super::{Framing, ScanLimits, Violation};

/// Longer than any method in use; what has no space by then is not a request.
const METHOD_BYTES_MAX: usize = 24;

/// A head being read.
#[derive(Debug, Default)]
pub(super) struct HeadScan {
    /// Bytes of complete lines.
    judged: usize,
    /// Bytes known to hold no further line end.
    searched: usize,
    /// Whether the request line has been read.
    started: bool,
    headers: usize,
    http_10: bool,
    content_length: Option<u64>,
    chunked: bool,
    upgrade: bool,
}

/// A complete head.
pub(super) struct Head {
    pub(super) len: usize,
    pub(super) framing: Framing,
    pub(super) upgrade: bool,
}

impl HeadScan {
    /// Reads on; `bytes` starts where the head starts, in every call. `None`: not complete yet.
    pub(super) fn advance(
        &mut self,
        bytes: &[u8],
        limits: &ScanLimits,
    ) -> Result<Option<Head>, Violation> {
        while let Some(at) = memchr(b'\n', &bytes[self.searched..]) {
            let end = self.searched + at;
            let line = field::without_cr(&bytes[self.judged..end])?;
            self.judged = end + 1;
            self.searched = end + 1;
            if self.judged > limits.head_bytes {
                return Err(self.too_long());
            }
            match line {
                // RFC 9112 section 2.2: empty lines before a request line are ignored.
                [] if !self.started => {}
                [] => return self.complete().map(Some),
                line if !self.started => self.request_line(line)?,
                line => self.header(line, limits)?,
            }
        }
        self.searched = bytes.len();
        self.plausible(&bytes[self.judged..])?;
        match bytes.len() > limits.head_bytes {
            true => Err(self.too_long()),
            false => Ok(None),
        }
    }

    fn too_long(&self) -> Violation {
        match self.started {
            true => Violation::HeadTooLarge,
            false => Violation::TargetTooLong,
        }
    }

    /// Refuses at once what will never be a request line, such as a TLS handshake on a plain port.
    fn plausible(&self, partial: &[u8]) -> Result<(), Violation> {
        if self.started {
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

    fn request_line(&mut self, line: &[u8]) -> Result<(), Violation> {
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
        self.http_10 = match version {
            b"HTTP/1.1" => false,
            b"HTTP/1.0" => true,
            other if other.starts_with(b"HTTP/") && !other.contains(&b' ') => {
                return Err(Violation::Version);
            }
            _ => return Err(Violation::RequestLine),
        };
        self.started = true;
        Ok(())
    }

    fn header(&mut self, line: &[u8], limits: &ScanLimits) -> Result<(), Violation> {
        self.headers += 1;
        if self.headers > limits.headers {
            return Err(Violation::TooManyHeaders);
        }
        let (name, value) = field::split(line)?;
        match name.len() {
            7 if name.eq_ignore_ascii_case(b"upgrade") => self.upgrade = !self.http_10,
            14 if name.eq_ignore_ascii_case(b"content-length") => self.content_length(value)?,
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => self.coding(value)?,
            _ => {}
        }
        Ok(())
    }

    /// RFC 9112 section 6.3 lets equal repetitions pass; we do not, since not every party
    /// behind us compares them.
    fn content_length(&mut self, value: &[u8]) -> Result<(), Violation> {
        // 19 digits fit into u64 whatever they are.
        let digits = (1..=19).contains(&value.len()) && value.iter().all(u8::is_ascii_digit);
        if !digits || self.content_length.is_some() {
            return Err(Violation::ContentLength);
        }
        let number = value
            .iter()
            .fold(0, |number, digit| number * 10 + u64::from(digit - b'0'));
        self.content_length = Some(number);
        Ok(())
    }

    fn coding(&mut self, value: &[u8]) -> Result<(), Violation> {
        if self.chunked || self.http_10 {
            return Err(Violation::Framing);
        }
        if !value.eq_ignore_ascii_case(b"chunked") {
            return Err(Violation::TransferCoding);
        }
        self.chunked = true;
        Ok(())
    }

    fn complete(&self) -> Result<Head, Violation> {
        let framing = match (self.chunked, self.content_length) {
            (true, Some(_)) => return Err(Violation::Framing),
            (true, None) => Framing::Chunked,
            (false, length) => Framing::Length(length.unwrap_or(0)),
        };
        Ok(Head {
            len: self.judged,
            framing,
            upgrade: self.upgrade,
        })
    }
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

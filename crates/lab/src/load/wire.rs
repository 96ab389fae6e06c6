//! HTTP/1.1 as bytes: a request is written once, an answer is read as its bytes come (RFC 9112).
//!
//! Of an answer only what the report needs is kept: status, refusal and when to come back. Its body
//! is counted off, not kept.

use bytes::{Buf as _, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, header};

use super::outcome::SHED_HEADER;

/// An answer's head is shorter than this, or it is none.
const HEAD_BYTES_MAX: usize = 64 << 10;
const HEADERS_MAX: usize = 100;

/// Not HTTP/1.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Malformed;

/// A request in the form in which it is sent.
pub(super) fn written(request: &Request<Bytes>) -> Bytes {
    let (method, body, headers) = (request.method(), request.body(), request.headers());
    let mut text = format!("{method} {} HTTP/1.1\r\n", request.uri()).into_bytes();
    let mut add = |name: &HeaderName, value: &[u8]| {
        text.extend_from_slice(name.as_str().as_bytes());
        text.extend_from_slice(b": ");
        text.extend_from_slice(value);
        text.extend_from_slice(b"\r\n");
    };
    for (name, value) in headers {
        add(name, value.as_bytes());
    }
    let has_length = headers.contains_key(header::CONTENT_LENGTH);
    let expects_body = [Method::POST, Method::PUT, Method::PATCH].contains(method);
    if !has_length && (expects_body || !body.is_empty()) {
        add(&header::CONTENT_LENGTH, body.len().to_string().as_bytes());
    }
    text.extend_from_slice(b"\r\n");
    text.extend_from_slice(body);
    text.into()
}

/// An answer on its way.
#[derive(Debug)]
pub(super) struct Answer {
    to_head: bool,
    stage: Stage,
    head: Response<()>,
    keeps_open: bool,
}

/// What comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Head,
    /// So many bytes of body.
    Body(u64),
    ChunkSize,
    /// So many bytes of a chunk, with the line's end behind it.
    Chunk(u64),
    Trailers,
    /// Everything until the connection ends.
    UntilClose,
    Done,
}

impl Answer {
    /// The answer to a HEAD has no body.
    pub(super) fn new(to_head: bool) -> Self {
        Self {
            to_head,
            stage: Stage::Head,
            head: Response::new(()),
            keeps_open: true,
        }
    }

    /// Takes what belongs to it from the front of `bytes`; returns how many bytes of body that was.
    pub(super) fn take(&mut self, bytes: &mut BytesMut) -> Result<u64, Malformed> {
        let mut body = 0;
        loop {
            let before = self.stage;
            match before {
                Stage::Head => self.take_head(bytes)?,
                Stage::Body(left) => {
                    let taken = skip(bytes, left);
                    body += taken;
                    self.stage = match left - taken {
                        0 => Stage::Done,
                        left => Stage::Body(left),
                    };
                }
                Stage::Chunk(left) => {
                    let taken = skip(bytes, left);
                    body += taken;
                    self.stage = match left - taken {
                        0 => Stage::ChunkSize,
                        left => Stage::Chunk(left),
                    };
                }
                Stage::ChunkSize => self.take_chunk_size(bytes)?,
                Stage::Trailers => self.take_trailer(bytes)?,
                Stage::UntilClose => body += skip(bytes, u64::MAX),
                Stage::Done => {}
            }
            if self.stage == before || self.stage == Stage::Done {
                return Ok(body);
            }
        }
    }

    /// The connection ended.
    pub(super) fn on_close(&mut self) -> Result<(), Malformed> {
        match self.stage {
            Stage::UntilClose | Stage::Done => {
                self.stage = Stage::Done;
                Ok(())
            }
            _ => Err(Malformed),
        }
    }

    pub(super) fn is_done(&self) -> bool {
        self.stage == Stage::Done
    }

    /// Whether another request may follow on the connection.
    pub(super) fn keeps_open(&self) -> bool {
        self.keeps_open
    }

    pub(super) fn into_head(self) -> Response<()> {
        self.head
    }

    fn take_head(&mut self, bytes: &mut BytesMut) -> Result<(), Malformed> {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut parsed = httparse::Response::new(&mut headers);
        let length = match parsed.parse(bytes).map_err(|_| Malformed)? {
            httparse::Status::Complete(length) => length,
            httparse::Status::Partial if bytes.len() < HEAD_BYTES_MAX => return Ok(()),
            httparse::Status::Partial => return Err(Malformed),
        };
        let code = parsed.code.ok_or(Malformed)?;
        if code != 101 && code < 200 {
            // An interim answer: the head of the real one follows.
            bytes.advance(length);
            return self.take_head(bytes);
        }
        let framing = Framing::of(parsed.headers)?;
        *self.head.status_mut() = StatusCode::from_u16(code).map_err(|_| Malformed)?;
        *self.head.headers_mut() = reported(parsed.headers);
        self.stage = match framing {
            _ if self.to_head || matches!(code, 101 | 204 | 304) => Stage::Done,
            Framing { chunked: true, .. } => Stage::ChunkSize,
            Framing {
                length: Some(0), ..
            } => Stage::Done,
            Framing {
                length: Some(length),
                ..
            } => Stage::Body(length),
            Framing { length: None, .. } => Stage::UntilClose,
        };
        self.keeps_open = parsed.version == Some(1)
            && !framing.closes
            && self.stage != Stage::UntilClose
            && code != 101;
        bytes.advance(length);
        Ok(())
    }

    fn take_chunk_size(&mut self, bytes: &mut BytesMut) -> Result<(), Malformed> {
        if let httparse::Status::Complete((line, size)) =
            httparse::parse_chunk_size(bytes).map_err(|_| Malformed)?
        {
            bytes.advance(line);
            self.stage = match size {
                0 => Stage::Trailers,
                size => Stage::Chunk(size.saturating_add(2)),
            };
        }
        Ok(())
    }

    fn take_trailer(&mut self, bytes: &mut BytesMut) -> Result<(), Malformed> {
        while let Some(end) = bytes.iter().position(|&byte| byte == b'\n') {
            let last = bytes[..end].iter().all(|&byte| byte == b'\r');
            bytes.advance(end + 1);
            if last {
                self.stage = Stage::Done;
                return Ok(());
            }
        }
        match bytes.len() < HEAD_BYTES_MAX {
            true => Ok(()),
            false => Err(Malformed),
        }
    }
}

/// Drops up to `most` bytes; returns how many.
fn skip(bytes: &mut BytesMut, most: u64) -> u64 {
    let count = usize::try_from(most).map_or(bytes.len(), |most| most.min(bytes.len()));
    bytes.advance(count);
    count as u64
}

/// Where an answer ends, by its headers.
#[derive(Debug, Clone, Copy, Default)]
struct Framing {
    length: Option<u64>,
    chunked: bool,
    closes: bool,
}

impl Framing {
    fn of(headers: &[httparse::Header<'_>]) -> Result<Self, Malformed> {
        let mut framing = Self::default();
        for header in headers {
            let is = |name: &HeaderName| header.name.eq_ignore_ascii_case(name.as_str());
            if is(&header::CONTENT_LENGTH) {
                let text = std::str::from_utf8(header.value).map_err(|_| Malformed)?;
                framing.length = Some(text.trim().parse().map_err(|_| Malformed)?);
            } else if is(&header::TRANSFER_ENCODING) {
                framing.chunked |= has_word(header.value, "chunked");
            } else if is(&header::CONNECTION) {
                framing.closes |= has_word(header.value, "close");
            }
        }
        Ok(framing)
    }
}

fn has_word(list: &[u8], word: &str) -> bool {
    let words = list.split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
    words
        .into_iter()
        .any(|one| one.eq_ignore_ascii_case(word.as_bytes()))
}

/// The headers that the report is about.
fn reported(headers: &[httparse::Header<'_>]) -> HeaderMap {
    let mut kept = HeaderMap::new();
    for name in [SHED_HEADER, header::RETRY_AFTER] {
        let found = headers
            .iter()
            .find(|header| header.name.eq_ignore_ascii_case(name.as_str()));
        let value = found.and_then(|header| HeaderValue::from_bytes(header.value).ok());
        if let Some(value) = value {
            kept.insert(name, value);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Reads `text` in pieces of `step` bytes; returns the answer and what is left.
    fn read(text: &str, step: usize, to_head: bool) -> Result<(Answer, u64, String), Malformed> {
        let mut answer = Answer::new(to_head);
        let mut received = BytesMut::new();
        let mut body = 0;
        for piece in text.as_bytes().chunks(step) {
            received.extend_from_slice(piece);
            body += answer.take(&mut received)?;
        }
        let rest = String::from_utf8_lossy(&received).into_owned();
        Ok((answer, body, rest))
    }

    #[test]
    fn an_answer_ends_where_its_framing_says_whatever_the_pieces() {
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\na;x=y\r\n0123456789\r\n\
                       0\r\ntrailer: x\r\n\r\n";
        let counted = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello";
        let interim = "HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
        let empty = "HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\n\r\n";
        for (text, bytes) in [(chunked, 17), (counted, 5), (interim, 0), (empty, 0)] {
            for step in 1..=text.len() {
                let whole = format!("{text}HTTP");
                let (answer, body, rest) = read(&whole, step, false).unwrap();
                assert!(answer.is_done() && answer.keeps_open(), "{text} by {step}");
                assert_eq!((body, rest.as_str()), (bytes, "HTTP"), "{text} by {step}");
            }
        }
        let (answer, ..) = read("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n", 9, true).unwrap();
        assert!(answer.is_done(), "the answer to a HEAD has no body");
    }

    #[test]
    fn without_a_length_the_end_of_the_connection_is_the_end() {
        let text = "HTTP/1.1 200 OK\r\n\r\nall of it";
        let (mut answer, body, _) = read(text, 4, false).unwrap();
        assert!(!answer.is_done() && !answer.keeps_open());
        assert_eq!(body, 9);
        assert_eq!(answer.on_close(), Ok(()));
        assert!(answer.is_done());
        for cut in [
            "HTTP/1.1 20",
            "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\ncut",
        ] {
            let (mut answer, ..) = read(cut, 4, false).unwrap();
            assert_eq!(answer.on_close(), Err(Malformed), "{cut}");
        }
    }

    #[test]
    fn what_the_report_needs_is_kept() {
        let text = "HTTP/1.1 503 Busy\r\nserver: x\r\nTidegate-Shed: predicted\r\nRetry-After: 2\r\n\
                    connection: keep-alive, Close\r\ncontent-length: 0\r\n\r\n";
        let (answer, ..) = read(text, 7, false).unwrap();
        assert!(!answer.keeps_open());
        let head = answer.into_head();
        assert_eq!(head.status(), 503);
        assert_eq!(head.headers()[SHED_HEADER], "predicted");
        assert_eq!(head.headers()[header::RETRY_AFTER], "2");
        assert_eq!(head.headers().len(), 2);
    }

    #[test]
    fn requests_are_written_with_a_length_where_one_is_due() {
        let request = |method: Method, body: &'static str| {
            let request = Request::builder().method(method).uri("/a?b=c");
            let request = request.header("host", "h").body(Bytes::from(body));
            written(&request.unwrap())
        };
        assert_eq!(
            request(Method::GET, ""),
            "GET /a?b=c HTTP/1.1\r\nhost: h\r\n\r\n"
        );
        assert_eq!(
            request(Method::POST, "hi"),
            "POST /a?b=c HTTP/1.1\r\nhost: h\r\ncontent-length: 2\r\n\r\nhi"
        );
        assert!(request(Method::PUT, "").ends_with(b"content-length: 0\r\n\r\n"));
    }

    proptest! {
        #[test]
        fn nonsense_is_refused_or_waited_out(text in "\\PC{0,200}", step in 1_usize..50) {
            let framed = format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{text}");
            let _ = read(&text, step, false);
            let _ = read(&framed, step, false);
        }
    }
}

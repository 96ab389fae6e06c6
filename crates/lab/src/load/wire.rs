//! HTTP/1.1 of the load generator: a request is written once, an answer is read as its bytes come.
//!
//! Of an answer only what the report needs is kept: status, refusal and when to come back. Its body
//! is counted off, not kept. The codec is the proxy's, and as strict (`tidegate-http1`).

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use tidegate_http1::body::{Decoder, Piece};
use tidegate_http1::message::{self, Fields};
use tidegate_http1::{response, write};

use super::outcome::SHED_HEADER;

/// Not HTTP/1.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Malformed;

/// A request in the form in which it is sent.
pub(super) fn written(request: &Request<Bytes>) -> Bytes {
    let request = message::Request::from(request.clone());
    let mut text = Vec::new();
    write::request(&mut text, &request, Some(request.body.len() as u64));
    text.extend_from_slice(&request.body);
    text.into()
}

/// An answer on its way.
#[derive(Debug)]
pub(super) struct Answer {
    method: Method,
    head: Response<()>,
    /// There as soon as the head is complete.
    body: Option<Decoder>,
    keeps_open: bool,
}

impl Answer {
    /// The answer to a HEAD has no body.
    pub(super) fn new(to_head: bool) -> Self {
        Self {
            method: if to_head { Method::HEAD } else { Method::GET },
            head: Response::new(()),
            body: None,
            keeps_open: true,
        }
    }

    /// Takes what belongs to it from the front of `bytes`; returns how many bytes of body that was.
    pub(super) fn take(&mut self, bytes: &mut BytesMut) -> Result<u64, Malformed> {
        let mut length = 0;
        loop {
            let Some(body) = &mut self.body else {
                if !self.take_head(bytes)? {
                    return Ok(length);
                }
                continue;
            };
            if body.is_end() {
                return Ok(length);
            }
            match body.decode(bytes).map_err(|_| Malformed)? {
                Some(Piece::Data(data)) => length += data.len() as u64,
                Some(Piece::Trailers(_) | Piece::End) => {}
                None => return Ok(length),
            }
        }
    }

    /// Takes one head; false if it is not complete. That of an interim answer is passed over.
    fn take_head(&mut self, bytes: &mut BytesMut) -> Result<bool, Malformed> {
        let Some(head) = response::read(bytes, &self.method).map_err(|_| Malformed)? else {
            return Ok(false);
        };
        let status = head.response.status;
        let switches = status == StatusCode::SWITCHING_PROTOCOLS;
        if switches || !status.is_informational() {
            *self.head.status_mut() = status;
            *self.head.headers_mut() = reported(&head.response.headers);
            self.keeps_open = head.keep_alive && !switches;
            self.body = Some(Decoder::new(head.framing, response::LIMITS));
        }
        Ok(true)
    }

    /// The connection ended.
    pub(super) fn on_close(&mut self) -> Result<(), Malformed> {
        let body = self.body.as_mut().ok_or(Malformed)?;
        body.end_of_input().then_some(()).ok_or(Malformed)
    }

    pub(super) fn is_done(&self) -> bool {
        self.body.as_ref().is_some_and(Decoder::is_end)
    }

    /// Whether another request may follow on the connection.
    pub(super) fn keeps_open(&self) -> bool {
        self.keeps_open
    }

    pub(super) fn into_head(self) -> Response<()> {
        self.head
    }
}

/// The headers that the report is about.
fn reported(headers: &Fields) -> HeaderMap {
    let names = [SHED_HEADER, header::RETRY_AFTER].into_iter();
    let found = names.filter_map(|name| headers.get(&name).cloned().map(|value| (name, value)));
    found.collect()
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
    fn answer_ends_where_its_framing_says_whatever_the_pieces() {
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\na;x=y\r\n0123456789\r\n\
                       0\r\ntrailer: x\r\n\r\n";
        let counted = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello";
        let interim = "HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
        let empty = "HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\n\r\n";
        for (text, bytes) in [(chunked, 13), (counted, 5), (interim, 0), (empty, 0)] {
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

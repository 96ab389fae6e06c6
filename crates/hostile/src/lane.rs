//! One vector at a time through one proxy to one upstream, so that what arrives is known to be
//! its doing.
//!
//! Behind every vector goes a last, sound request that asks for the connection to be closed. A
//! proxy that has lost its place in the bytes takes it for something else; one that has not
//! answers it and closes, so that there is no need to guess when a vector is over.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::canonical::{Breach, leaked, same_target};
use crate::frames::{self, END_STREAM, kind};
use crate::grammar::{self, Message, Reading, Rest};
use crate::record::{Log, Recorder};
use crate::vector::Vector;

/// The request behind every vector.
const LAST: &[u8] = b"GET /last HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

/// How long a proxy may take to close a connection that is over.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long a proxy is given to do something with the beginning of a request: it is right to wait
/// for the rest, so this passes for every vector of that kind.
const MOMENT: Duration = Duration::from_millis(20);

/// A proxy with an upstream of its own.
#[derive(Debug)]
pub struct Lane {
    proxy: SocketAddr,
    upstream: Recorder,
}

/// What became of a vector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Requests that reached the upstream.
    pub arrived: Vec<Message>,
    /// Everything that is wrong with them.
    pub breaches: Vec<Breach>,
    /// The connection was over, and the proxy neither answered nor closed it.
    pub hung: bool,
    /// Whether the vector, read strictly, is sound and complete.
    pub well_formed: bool,
}

impl Lane {
    /// A lane through the proxy at `proxy`, which has to lead to `upstream`.
    #[must_use]
    pub fn new(proxy: SocketAddr, upstream: Recorder) -> Self {
        Self { proxy, upstream }
    }

    /// Sends a vector and judges what arrives.
    ///
    /// # Errors
    /// When the proxy does not take a connection.
    pub async fn run(&mut self, vector: &Vector) -> io::Result<Finding> {
        if vector.http2 {
            self.run_http2(vector).await
        } else {
            self.run_http1(vector).await
        }
    }

    async fn run_http1(&mut self, vector: &Vector) -> io::Result<Finding> {
        let bytes = [&vector.bytes, LAST].concat();
        let reading = grammar::read(&bytes);
        let closed = converse(self.proxy, &bytes, &reading).await?;
        let log = self.upstream.take().await;
        let mut breaches = log.breaches;
        match explain(&log.messages, &reading.messages) {
            None => breaches.push(Breach::Unexplained),
            Some(pairs) if pairs.iter().any(|(sent, seen)| leaked(sent, seen)) => {
                breaches.push(Breach::MustNotPass);
            }
            Some(_) => {}
        }
        if vector.sound && log.messages.len() < reading.messages.len() {
            breaches.push(Breach::Lost);
        }
        Ok(Finding {
            arrived: log.messages,
            breaches: distinct(breaches),
            hung: !closed && is_over(&reading),
            well_formed: grammar::read(&vector.bytes).rest == Rest::Nothing,
        })
    }

    /// One stream, so at most one request, and none with a body.
    async fn run_http2(&mut self, vector: &Vector) -> io::Result<Finding> {
        let ended = converse_http2(self.proxy, &vector.bytes).await?;
        let Log {
            messages,
            mut breaches,
        } = self.upstream.take().await;
        if messages.len() > 1 || messages.iter().any(|message| !message.body.is_empty()) {
            breaches.push(Breach::Unexplained);
        }
        Ok(Finding {
            arrived: messages,
            breaches: distinct(breaches),
            hung: !ended,
            well_formed: false,
        })
    }
}

fn distinct(mut breaches: Vec<Breach>) -> Vec<Breach> {
    breaches.sort();
    breaches.dedup();
    breaches
}

/// Sends everything and waits until the stream or the connection is over; false if neither is.
async fn converse_http2(proxy: SocketAddr, bytes: &[u8]) -> io::Result<bool> {
    let (mut reader, mut writer) = frames::connect(proxy).await?;
    // A proxy that has seen enough may close before it has read everything.
    let _ = writer.send(bytes).await;
    let over = async {
        while let Some(frame) = reader.next().await {
            let ends_stream = match frame.kind {
                kind::DATA | kind::HEADERS => frame.flags & END_STREAM != 0,
                kind::RST_STREAM | kind::GOAWAY => true,
                _ => false,
            };
            if ends_stream {
                return;
            }
        }
    };
    Ok(timeout(PATIENCE, over).await.is_ok())
}

/// Sends everything and reads until the proxy closes; false if it does not.
async fn converse(proxy: SocketAddr, bytes: &[u8], reading: &Reading) -> io::Result<bool> {
    let mut stream = TcpStream::connect(proxy).await?;
    stream.set_nodelay(true)?;
    // A proxy that has seen enough may close before it has read everything.
    let _ = stream.write_all(bytes).await;
    let mut answers = Vec::new();
    let mut patience = PATIENCE;
    loop {
        if !is_over(reading) && count(&answers) >= reading.messages.len() {
            patience = MOMENT;
        }
        match timeout(patience, stream.read_buf(&mut answers)).await {
            Ok(Ok(1..)) => {}
            Ok(Ok(0) | Err(_)) => return Ok(true),
            Err(_) => return Ok(false),
        }
    }
}

/// Whether the proxy has to close: the bytes are malformed, or their last request asks for it. It
/// does not where the vector has swallowed that request, as a body or as trailers.
fn is_over(reading: &Reading) -> bool {
    let closes = |value: &[u8]| value.eq_ignore_ascii_case(b"close");
    match reading.rest {
        Rest::Malformed(_) => true,
        Rest::Incomplete => false,
        Rest::Nothing => {
            let last = reading.messages.last();
            last.is_some_and(|last| last.http_10 || last.values("connection").any(closes))
        }
    }
}

/// Final responses among the bytes.
fn count(answers: &[u8]) -> usize {
    let heads = memchr::memmem::find_iter(answers, b"HTTP/1.1 ");
    heads
        .filter(|at| answers.get(at + 9) != Some(&b'1'))
        .count()
}

/// Finds for every request that arrived the one that was sent, in that order; `None` if one was
/// not.
fn explain<'a>(
    arrived: &'a [Message],
    sent: &'a [Message],
) -> Option<Vec<(&'a Message, &'a Message)>> {
    let mut sent = sent.iter();
    let mut find = |seen| {
        sent.find(|sent| is_same(sent, seen))
            .map(|sent| (sent, seen))
    };
    arrived.iter().map(&mut find).collect()
}

fn is_same(sent: &Message, seen: &Message) -> bool {
    sent.method == seen.method && sent.body == seen.body && same_target(&sent.target, &seen.target)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(bytes: &str) -> Vec<Message> {
        grammar::read(bytes.as_bytes()).messages
    }

    #[test]
    fn what_arrives_has_to_have_been_sent() {
        let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
        let sent = messages(&(get("/1") + &get("/2") + &get("/3")));
        let is_explained = |arrived: &[Message]| explain(arrived, &sent).is_some();
        assert!(is_explained(&[]));
        assert!(is_explained(&messages(&(get("/1") + &get("/3")))));
        assert!(!is_explained(&messages(&get("/smuggled"))));
        assert!(!is_explained(&messages(&(get("/2") + &get("/1")))));
        let with_body = "GET /1 HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx";
        assert!(!is_explained(&messages(with_body)));
    }

    #[test]
    fn a_last_request_that_was_swallowed_ends_nothing() {
        let over = |vector: &[u8]| is_over(&grammar::read(&[vector, LAST].concat()));
        assert!(over(b""));
        assert!(over(b"GET / HTTP/1.1\n"));
        assert!(!over(b"POST / HTTP/1.1\r\nContent-Length: 999\r\n\r\n"));
        let chunked = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: ";
        assert!(!over(chunked));
    }

    #[test]
    fn interim_answers_do_not_count() {
        let answers =
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\nHTTP/1.1 400 Bad Request\r\n";
        assert_eq!(count(answers), 2);
    }
}

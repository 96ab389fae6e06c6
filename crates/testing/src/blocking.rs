//! The same without tokio, for tests that start processes.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};

use crate::{Answer, Framing, LIMIT};

/// A client that sends exactly the bytes it is given.
#[derive(Debug)]
pub struct Connection(BufReader<TcpStream>);

impl Connection {
    /// Opens a connection.
    ///
    /// # Errors
    /// When nothing listens there.
    pub fn open(addr: impl ToSocketAddrs) -> io::Result<Self> {
        let stream = TcpStream::connect(addr)?;
        stream.set_read_timeout(Some(LIMIT))?;
        Ok(Self(BufReader::new(stream)))
    }

    /// Sends bytes.
    ///
    /// # Errors
    /// When the other side is gone.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.0.get_mut().write_all(bytes.as_ref())
    }

    /// Sends a request and reads its answer.
    ///
    /// # Errors
    /// When the connection ends before the answer does.
    ///
    /// # Panics
    /// When what comes is no response.
    pub fn ask(&mut self, request: impl AsRef<[u8]>) -> io::Result<Answer> {
        self.send(request)?;
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if self.0.read_line(&mut head)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        let mut answer = Answer::new(head);
        match answer.framing() {
            Framing::Nothing => {}
            Framing::Length(length) => {
                answer.body.resize(length, 0);
                self.0.read_exact(&mut answer.body)?;
            }
            Framing::Chunked => answer.body = unchunked(&mut self.0)?,
            Framing::Open => {
                self.0.read_to_end(&mut answer.body)?;
            }
        }
        Ok(answer)
    }
}

/// One request on a connection of its own.
///
/// # Errors
/// When nothing listens there, or the connection ends before the answer does.
///
/// # Panics
/// When what comes is no response.
pub fn try_ask(addr: impl ToSocketAddrs, request: impl AsRef<[u8]>) -> io::Result<Answer> {
    Connection::open(addr)?.ask(request)
}

/// The same, where it has to be answered.
///
/// # Panics
/// When it is not.
pub fn ask(addr: impl ToSocketAddrs, request: impl AsRef<[u8]>) -> Answer {
    try_ask(addr, request).expect("the request is answered")
}

/// A request with a method, a path and a body of JSON, where there is one.
///
/// # Panics
/// As [`ask`].
pub fn call(addr: impl ToSocketAddrs, method: &str, path: &str, body: &str) -> Answer {
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    ask(addr, request)
}

/// A GET.
///
/// # Panics
/// As [`ask`].
pub fn get(addr: impl ToSocketAddrs, path: &str) -> Answer {
    let head = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    ask(addr, head)
}

fn unchunked(stream: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line)?;
        let size = usize::from_str_radix(line.trim(), 16).map_err(io::Error::other)?;
        let mut chunk = vec![0; size + 2];
        stream.read_exact(&mut chunk)?;
        body.extend_from_slice(&chunk[..size]);
        if size == 0 {
            return Ok(body);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_put_together() {
        let mut chunks = &b"3\r\nabc\r\na\r\n0123456789\r\n0\r\n\r\n"[..];
        assert_eq!(unchunked(&mut chunks).unwrap(), b"abc0123456789");
    }

    #[test]
    fn chunks_that_break_off_are_no_body() {
        assert!(unchunked(&mut &b"3\r\nab"[..]).is_err());
    }
}

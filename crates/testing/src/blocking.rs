//! The same without tokio: one request on a connection of its own, read to the connection's end.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};

use crate::{Answer, status_of};

/// Sends these bytes, which have to ask for the end of the connection, and reads the answer.
///
/// # Panics
/// When nothing listens there, or what comes is no response.
pub fn ask(addr: impl ToSocketAddrs, request: impl AsRef<[u8]>) -> Answer {
    let mut stream = TcpStream::connect(addr).expect("it connects");
    stream
        .write_all(request.as_ref())
        .expect("it reads the request");
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).expect("it answers");
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
    let end = end.unwrap_or_else(|| panic!("a head: {}", String::from_utf8_lossy(&bytes)));
    let body = bytes.split_off(end + 4);
    let head = String::from_utf8(bytes).expect("a head is text");
    let mut answer = Answer {
        status: status_of(&head),
        head,
        body: Vec::new(),
    };
    let chunked = answer.header("transfer-encoding") == Some("chunked");
    answer.body = if chunked { unchunked(&body) } else { body };
    answer
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

fn unchunked(mut bytes: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    loop {
        let end = bytes.windows(2).position(|two| two == b"\r\n");
        let (line, rest) = bytes.split_at(end.expect("a chunk begins with a line"));
        let digits = std::str::from_utf8(line).expect("its size is text");
        let size = usize::from_str_radix(digits, 16).expect("its size is a number");
        if size == 0 {
            return body;
        }
        body.extend_from_slice(&rest[2..2 + size]);
        bytes = &rest[2 + size + 2..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_put_together() {
        assert_eq!(
            unchunked(b"3\r\nabc\r\na\r\n0123456789\r\n0\r\n\r\n"),
            b"abc0123456789"
        );
    }
}

//! HTTP/2 frames as no library would send them (RFC 9113 section 4.1; HPACK, RFC 7541).
//!
//! Header blocks are literals without indexing and without Huffman coding, so that any byte can
//! stand anywhere.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader, ReadHalf, WriteHalf};
use tokio::net::TcpStream;

/// Types of frames.
pub mod kind {
    #![allow(missing_docs, reason = "the names of RFC 9113 section 6")]
    pub const DATA: u8 = 0;
    pub const HEADERS: u8 = 1;
    pub const PRIORITY: u8 = 2;
    pub const RST_STREAM: u8 = 3;
    pub const SETTINGS: u8 = 4;
    pub const PING: u8 = 6;
    pub const GOAWAY: u8 = 7;
    pub const WINDOW_UPDATE: u8 = 8;
    pub const CONTINUATION: u8 = 9;
}

/// `END_STREAM` of DATA and HEADERS.
pub const END_STREAM: u8 = 1;
/// `END_HEADERS` of HEADERS and CONTINUATION.
pub const END_HEADERS: u8 = 4;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// One frame on the wire.
#[must_use]
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len())
        .unwrap_or(u32::MAX)
        .to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// What a client says first: the preface and empty settings.
#[must_use]
pub fn opening() -> Vec<u8> {
    [PREFACE, &frame(kind::SETTINGS, 0, 0, &[])].concat()
}

/// A header block.
#[must_use]
pub fn block<N: AsRef<[u8]>, V: AsRef<[u8]>>(fields: &[(N, V)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        string(&mut block, name.as_ref());
        string(&mut block, value.as_ref());
    }
    block
}

/// A string literal: its length with a prefix of seven bits (RFC 7541 section 5.1), its bytes.
fn string(block: &mut Vec<u8>, bytes: &[u8]) {
    match bytes.len() {
        short @ ..127 => block.push(short as u8),
        long => {
            block.push(127);
            let mut rest = long - 127;
            while rest >= 128 {
                block.push((rest % 128) as u8 | 128);
                rest /= 128;
            }
            block.push(rest as u8);
        }
    }
    block.extend_from_slice(bytes);
}

/// A HEADERS frame with the fields of a GET.
#[must_use]
pub fn get(stream: u32, flags: u8) -> Vec<u8> {
    let fields = [
        (":method", "GET"),
        (":scheme", "http"),
        (":authority", "a"),
        (":path", "/"),
    ];
    frame(kind::HEADERS, flags | END_HEADERS, stream, &block(&fields))
}

/// A frame that the other side sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    /// See [`kind`].
    pub kind: u8,
    /// Its flags.
    pub flags: u8,
    /// 0 is the connection.
    pub stream: u32,
    /// What it carries.
    pub payload: Vec<u8>,
}

/// The reading side of a raw connection.
#[derive(Debug)]
pub struct Reader(BufReader<ReadHalf<TcpStream>>);

/// The writing side of a raw connection.
#[derive(Debug)]
pub struct Writer(WriteHalf<TcpStream>);

/// Connects and says the opening.
///
/// # Errors
/// When there is no connection.
pub async fn connect(addr: SocketAddr) -> io::Result<(Reader, Writer)> {
    let stream = TcpStream::connect(addr).await?;
    stream.set_nodelay(true)?;
    let (reader, writer) = tokio::io::split(stream);
    let mut writer = Writer(writer);
    writer.send(&opening()).await?;
    Ok((Reader(BufReader::new(reader)), writer))
}

impl Writer {
    /// Sends bytes as they are.
    ///
    /// # Errors
    /// When the other side has closed.
    pub async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes).await
    }
}

impl Reader {
    /// The next frame; `None` at the end of the connection.
    pub async fn next(&mut self) -> Option<Received> {
        let mut head = [0; 9];
        self.0.read_exact(&mut head).await.ok()?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; length as usize];
        self.0.read_exact(&mut payload).await.ok()?;
        Some(Received {
            kind: head[3],
            flags: head[4],
            stream: u32::from_be_bytes([head[5], head[6], head[7], head[8]]),
            payload,
        })
    }

    /// Reads to the end of the connection: whether it was announced by GOAWAY.
    pub async fn said_goodbye(&mut self) -> bool {
        let mut goodbye = false;
        while let Some(frame) = self.next().await {
            goodbye |= frame.kind == kind::GOAWAY;
        }
        goodbye
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_written_as_hpack_has_them() {
        let mut block = Vec::new();
        // RFC 7541 appendix C.1.2, with a prefix of seven bits: 1337 = 127 + 58 + 9 * 128.
        string(&mut block, &[b'x'; 1337]);
        assert_eq!(block[..3], [127, 0b1011_1010, 9]);
        assert_eq!(block.len(), 3 + 1337);
    }

    #[test]
    fn frames_have_nine_bytes_of_head() {
        assert_eq!(
            frame(kind::PING, 1, 2, &[9; 8]),
            [&[0, 0, 8, 6, 1, 0, 0, 0, 2][..], &[9; 8]].concat()
        );
    }
}

//! What hostile bytes must not be able to do to those who read them: one place for the loop of the
//! stable toolchain, below, and for the targets of cargo-fuzz in `fuzz/`.

use bytes::BytesMut;
use http::{HeaderName, HeaderValue};

use crate::config::Config;
use crate::hop::{Border, strip};
use crate::http1::HeadLimits;
use crate::http1::body::{Decoder, Piece};
use crate::http1::request::HeadReader;
use crate::listen::proxy_protocol;
use crate::message::Fields;

/// The HTTP/1 request path: however the bytes are cut into pieces, the same heads pass, and the
/// rest is refused or not.
pub fn http1(bytes: &[u8]) {
    let whole = judged(bytes, bytes.len());
    for piece in [1, 7, 64] {
        assert_eq!(judged(bytes, piece), whole, "in pieces of {piece}");
    }
}

/// How many heads and bytes of bodies pass and whether something is refused, when bytes arrive in
/// pieces.
fn judged(bytes: &[u8], piece: usize) -> (u32, usize, bool) {
    let limits = HeadLimits {
        bytes: 4096,
        fields: 100,
    };
    let (mut reader, mut decoder) = (HeadReader::default(), Decoder::none());
    let (mut heads, mut body) = (0, 0);
    let mut input = BytesMut::new();
    for piece in bytes.chunks(piece.max(1)) {
        input.extend_from_slice(piece);
        loop {
            if decoder.is_end() {
                match reader.read(&mut input, &limits) {
                    Err(_) => return (heads, body, true),
                    Ok(None) => break,
                    Ok(Some(head)) => {
                        heads += 1;
                        decoder = Decoder::new(head.framing, limits);
                    }
                }
            } else {
                match decoder.decode(&mut input) {
                    Err(_) => return (heads, body, true),
                    Ok(None) => break,
                    Ok(Some(Piece::Data(data))) => body += data.len(),
                    Ok(Some(Piece::Trailers(_) | Piece::End)) => {}
                }
            }
        }
    }
    (heads, body, false)
}

const OF_THE_CONNECTION: [&str; 5] = [
    "connection",
    "keep-alive",
    "transfer-encoding",
    "upgrade",
    "forwarded",
];

/// The header policy: of lines `name: value`, nothing that is ours, of the connection, or about
/// forwarding reaches a replica on behalf of a client that is not trusted.
pub fn headers(bytes: &[u8]) {
    let mut headers = Fields::new();
    for line in bytes.split(|&byte| byte == b'\n') {
        let mut parts = line.splitn(2, |&byte| byte == b':');
        let name = HeaderName::from_bytes(parts.next().unwrap_or_default());
        let value = HeaderValue::from_bytes(parts.next().unwrap_or_default());
        if let (Ok(name), Ok(value)) = (name, value) {
            headers.append(name, value);
        }
    }
    strip(&mut headers, Border::ToReplica { trusted: false });
    let forbidden = |name: &HeaderName| {
        let twin = name.as_str().replace('_', "-");
        twin.starts_with("tidegate-")
            || twin.starts_with("x-forwarded-")
            || OF_THE_CONNECTION.contains(&name.as_str())
    };
    let left: Vec<_> = headers.names().filter(|name| forbidden(name)).collect();
    assert!(left.is_empty(), "{left:?}");
}

/// The configuration: it is read or refused.
pub fn config(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = Config::from_text("fuzz.toml", text);
    }
}

/// The PROXY protocol: it is read or refused.
pub fn proxy_protocol(bytes: &[u8]) {
    let _ = proxy_protocol::parse_v1(bytes);
    if let [version, family, block @ ..] = bytes {
        let _ = proxy_protocol::parse_v2(*version, *family, block);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Words that mean something in a request, and bytes that should not.
    fn pieces(words: &'static [&'static str]) -> impl Strategy<Value = Vec<u8>> {
        let word = prop_oneof![
            9 => proptest::sample::select(words).prop_map(|word| word.as_bytes().to_vec()),
            1 => proptest::collection::vec(any::<u8>(), 0..4),
        ];
        proptest::collection::vec(word, 0..24).prop_map(|words| words.concat())
    }

    const REQUEST: &[&str] = &[
        "GET / HTTP/1.1\r\n",
        "POST /a?b HTTP/1.1\r\n",
        "GET / HTTP/1.0\r\n",
        "Host: a\r\n",
        "\r\n",
        "\n",
        "\r",
        "Content-Length: 3\r\n",
        "Transfer-Encoding: chunked\r\n",
        "Upgrade: websocket\r\nConnection: upgrade\r\n",
        "abc",
        "3\r\nabc\r\n",
        "0\r\n\r\n",
        "5;x=y\r\nhello\r\n",
        "Trailer: x\r\n",
        " ",
        ":",
        "X: y\r\n",
    ];

    const FIELDS: &[&str] = &[
        "connection: close, x-a\n",
        "Connection:x-b\n",
        "tidegate-class: gold\n",
        "tidegate_class: gold\n",
        "x-forwarded-for: 1.2.3.4\n",
        "x_forwarded_for: 1\n",
        "forwarded: for=1\n",
        "upgrade: h2c\n",
        "x-a: 1\n",
        "keep-alive: 1\n",
        "transfer-encoding: chunked\n",
        "te: trailers\n",
        "\n",
        ":",
        "x-b: 2\n",
        "Host: a\n",
    ];

    #[test]
    fn what_is_wrong_behind_data_does_not_take_it_along() {
        http1(b"GET / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\nx\r\n");
    }

    proptest! {
        #[test]
        fn fuzz_http1(bytes in pieces(REQUEST)) {
            http1(&bytes);
        }

        #[test]
        fn fuzz_headers(bytes in pieces(FIELDS)) {
            headers(&bytes);
        }

        #[test]
        fn fuzz_config(bytes in pieces(&["[", "]", "listen", "=", "'1s'", "upstream", "\n", "{", "}", "weight", "1"])) {
            config(&bytes);
        }

        #[test]
        fn fuzz_proxy_protocol(bytes in pieces(&["PROXY ", "TCP4 ", "TCP6 ", "1.2.3.4 ", "::1 ", "80", "\r\n", "\x21", "\x11"])) {
            proxy_protocol(&bytes);
        }
    }
}

use bytes::BytesMut;
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode, Version};

use super::body::{Decoder, Framing, Piece};
use super::output::Output;
use super::request::HeadReader;
use super::write::{Asker, Encoder};
use super::*;
use crate::message::Fields;

const LIMITS: HeadLimits = HeadLimits {
    bytes: 1024,
    fields: 10,
};

/// What is read of a connection's bytes when they come in pieces: the length of each body that is
/// complete, whether the rest is incomplete, and what is wrong with it.
#[derive(Debug, PartialEq, Eq)]
struct Reading {
    heads: usize,
    bodies: Vec<usize>,
    incomplete: bool,
    violation: Option<Violation>,
}

fn read(bytes: &[u8], piece: usize, limits: HeadLimits) -> Reading {
    let mut reading = Reading {
        heads: 0,
        bodies: Vec::new(),
        incomplete: false,
        violation: None,
    };
    let (mut reader, mut decoder) = (HeadReader::default(), None::<Decoder>);
    let (mut input, mut length) = (BytesMut::new(), 0);
    for piece in bytes.chunks(piece) {
        input.extend_from_slice(piece);
        loop {
            let step = match &mut decoder {
                None if input.is_empty() => Ok(false),
                None => reader.read(&mut input, &limits).map(|head| {
                    reading.heads += usize::from(head.is_some());
                    decoder = head.map(|head| Decoder::new(head.framing, limits));
                    decoder.is_some()
                }),
                Some(body) => body.decode(&mut input).map(|piece| {
                    if let Some(Piece::Data(data)) = &piece {
                        length += data.len();
                    }
                    piece.is_some()
                }),
            };
            if decoder.as_ref().is_some_and(Decoder::is_end) {
                reading.bodies.push(std::mem::take(&mut length));
                decoder = None;
            }
            match step {
                Ok(true) => {}
                Ok(false) => break,
                Err(violation) => {
                    reading.violation = Some(violation);
                    return reading;
                }
            }
        }
    }
    reading.incomplete = decoder.is_some() || reader.has_begun();
    reading
}

fn judge(bytes: &[u8]) -> Reading {
    read(bytes, bytes.len(), LIMITS)
}

fn violation(bytes: &[u8]) -> Option<Violation> {
    judge(bytes).violation
}

/// A GET with `headers` as its last lines.
fn with(headers: &str) -> Vec<u8> {
    format!("GET / HTTP/1.1\r\nhost: a\r\n{headers}\r\n").into_bytes()
}

#[test]
fn sound_messages_are_read_whole() {
    for (bytes, bodies) in [
        (&b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"[..], &[0][..]),
        (b"\r\nGET /?a=b%20c HTTP/1.0\r\n\r\n", &[0]),
        (
            b"POST / HTTP/1.1\r\nHost: a\r\ncontent-length: 3\r\n\r\nabcGET / HTTP/1.1\r\n\r\n",
            &[3, 0],
        ),
        (
            b"POST / HTTP/1.1\r\ntransfer-encoding: Chunked\r\n\r\n3\r\nabc\r\nA;x=\"y\"\r\n0123456789\r\n0\r\n\r\n",
            &[13],
        ),
        (
            b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n0\r\nchecksum: 1\r\n\r\nGET / HTTP/1.1\r\n\r\n",
            &[0, 0],
        ),
        (
            b"GET http://a/ HTTP/1.1\r\nHost: a\r\nx: \t caf\xc3\xa9 \r\n\r\n",
            &[0],
        ),
    ] {
        let reading = judge(bytes);
        let text = String::from_utf8_lossy(bytes);
        assert_eq!(reading.bodies, bodies, "{text}");
        assert_eq!((reading.violation, reading.incomplete), (None, false), "{text}");
    }
}

#[test]
fn every_way_to_cut_a_connection_is_read_alike() {
    let bytes =
        b"POST /a HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nt: v\r\n\r\n\
        GET /b HTTP/1.1\r\ncontent-length: 2\r\n\r\nxyDELETE /c HTTP/1.1\r\n\r\n";
    for size in 1..bytes.len() {
        let reading = read(bytes, size, LIMITS);
        assert_eq!(reading.bodies, [5, 2, 0], "pieces of {size}");
        assert_eq!((reading.violation, reading.incomplete), (None, false));
    }
}

#[test]
fn head_becomes_its_request() {
    let bytes =
        b"\r\nPOST /a?b HTTP/1.1\r\nHost:  shop.example \r\nX-Empty:\r\nx-two: 1\r\nX-Two: 2\r\n\
        expect: 100-Continue\r\nconnection: x, Close\r\ncontent-length: 7\r\n\r\nnext";
    let mut input = BytesMut::from(&bytes[..]);
    let head = HeadReader::default()
        .read(&mut input, &LIMITS)
        .unwrap()
        .unwrap();
    let request = head.request;
    assert_eq!(
        (request.method, request.version),
        (Method::POST, Version::HTTP_11)
    );
    assert_eq!(request.uri, "/a?b");
    assert_eq!(request.headers["host"], "shop.example");
    assert_eq!(request.headers["x-empty"], "");
    let two: Vec<_> = request
        .headers
        .get_all(HeaderName::from_static("x-two"))
        .collect();
    assert_eq!(two, ["1", "2"]);
    assert_eq!(head.framing, Framing::Length(7));
    assert_eq!((head.keep_alive, head.expects_continue), (false, true));
    assert_eq!(&input[..], b"next");
}

#[test]
fn who_wants_to_stay_is_told_by_version_and_header() {
    for (version, header, expected) in [
        ("1.1", "", true),
        ("1.1", "connection: close\r\n", false),
        ("1.0", "", false),
        ("1.0", "connection: Keep-Alive\r\n", true),
        ("1.0", "connection: keep-alive, close\r\n", false),
    ] {
        let bytes = format!("GET / HTTP/{version}\r\nhost: a\r\n{header}\r\n");
        let mut input = BytesMut::from(bytes.as_bytes());
        let head = HeadReader::default()
            .read(&mut input, &LIMITS)
            .unwrap()
            .unwrap();
        assert_eq!(head.keep_alive, expected, "{version} {header}");
    }
}

#[test]
fn ambiguous_framing_is_refused() {
    for (headers, expected) in [
        (
            "content-length: 1\r\ncontent-length: 1\r\n",
            Violation::ContentLength,
        ),
        ("content-length: 1, 1\r\n", Violation::ContentLength),
        ("content-length: +1\r\n", Violation::ContentLength),
        ("content-length: 0x1\r\n", Violation::ContentLength),
        ("content-length:\r\n", Violation::ContentLength),
        (
            "content-length: 18446744073709551616\r\n",
            Violation::ContentLength,
        ),
        (
            "content-length: 1\r\ntransfer-encoding: chunked\r\n",
            Violation::Framing,
        ),
        (
            "transfer-encoding: chunked\r\nCONTENT-LENGTH: 0\r\n",
            Violation::Framing,
        ),
        (
            "transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n",
            Violation::Framing,
        ),
        (
            "transfer-encoding: gzip, chunked\r\n",
            Violation::TransferCoding,
        ),
        ("transfer-encoding: xchunked\r\n", Violation::TransferCoding),
        (
            "transfer-encoding: chunked;q=1\r\n",
            Violation::TransferCoding,
        ),
        ("transfer-encoding: \x0bchunked\r\n", Violation::FieldValue),
        ("transfer-encoding : chunked\r\n", Violation::FieldName),
        (" folded: 1\r\n", Violation::Folded),
        ("x: 1\r\n\tfolded\r\n", Violation::Folded),
        ("x: a\nb: c\r\n", Violation::BareLf),
        ("x: a\rb\r\n", Violation::FieldValue),
        ("x: a\0b\r\n", Violation::FieldValue),
        (": no name\r\n", Violation::FieldName),
        ("no colon\r\n", Violation::FieldName),
        ("n\u{e9}: 1\r\n", Violation::FieldName),
    ] {
        assert_eq!(violation(&with(headers)), Some(expected), "{headers:?}");
    }
    let http_10 = b"POST / HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n";
    assert_eq!(violation(http_10), Some(Violation::Framing));
}

#[test]
fn request_lines_have_three_parts_and_two_spaces() {
    for (line, expected) in [
        ("GET  / HTTP/1.1", Violation::RequestLine),
        ("GET / HTTP/1.1 ", Violation::RequestLine),
        (" GET / HTTP/1.1", Violation::RequestLine),
        ("GET\t/ HTTP/1.1", Violation::RequestLine),
        ("GET /", Violation::RequestLine),
        ("GET /#x HTTP/1.1", Violation::RequestLine),
        ("GET / http/1.1", Violation::RequestLine),
        ("G@T / HTTP/1.1", Violation::RequestLine),
        ("GET / HTTP/2.0", Violation::Version),
        ("GET / HTTP/1.10", Violation::Version),
        ("GET / HTTP/0.9", Violation::Version),
    ] {
        let bytes = format!("{line}\r\n\r\n");
        assert_eq!(violation(bytes.as_bytes()), Some(expected), "{line}");
    }
}

#[test]
fn what_will_never_be_a_request_is_refused_before_its_first_line_ends() {
    let tls_hello = b"\x16\x03\x01\x02\x00\x01\x00";
    assert_eq!(violation(tls_hello), Some(Violation::RequestLine));
    assert_eq!(violation(&[b'A'; 25]), Some(Violation::RequestLine));
    for start in [&b"GE"[..], b"GET /very/lo", b"\r"] {
        let reading = judge(start);
        assert_eq!((reading.violation, reading.incomplete), (None, true));
    }
}

#[test]
fn heads_are_bounded_in_bytes_and_lines() {
    let long = format!("GET /{} HTTP/1.1\r\n", "x".repeat(1100));
    assert_eq!(violation(long.as_bytes()), Some(Violation::TargetTooLong));
    let large = with(&format!("x: {}\r\n", "x".repeat(1100)));
    assert_eq!(violation(&large), Some(Violation::HeadTooLarge));
    assert_eq!(violation(&large[..1080]), Some(Violation::HeadTooLarge));
    assert_eq!(
        violation(&with(&"x: 1\r\n".repeat(10))),
        Some(Violation::TooManyHeaders)
    );
    assert_eq!(violation(&with(&"x: 1\r\n".repeat(9))), None);
}

#[test]
fn chunks_are_framed_to_the_letter() {
    let chunked = |body: &str| {
        let head = "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n";
        violation(format!("{head}{body}").as_bytes())
    };
    for body in [
        "3\nabc\r\n",
        "3\r\nabcd\r\n",
        "3\r\nabc\n",
        "3 \r\nabc\r\n",
        "0x3\r\nabc\r\n",
        "-3\r\n",
        "\r\n",
        "g\r\n",
        "3;a\tb\r\nabc\r\n",
        "1234567890123456\r\n",
    ] {
        assert_eq!(chunked(body), Some(Violation::Chunk), "{body:?}");
    }
    assert_eq!(
        chunked(&format!("3;{}", "x".repeat(300))),
        Some(Violation::Chunk)
    );
    assert_eq!(chunked("0\r\nbad name: 1\r\n"), Some(Violation::FieldName));
    assert_eq!(chunked("0\r\nt: 1\n\r\n"), Some(Violation::BareLf));
    assert_eq!(
        chunked(&format!("0\r\n{}", "t: 1\r\n".repeat(11))),
        Some(Violation::TooManyHeaders)
    );
}

fn response(bytes: &[u8]) -> Result<Option<response::Head>, Violation> {
    response::read(&mut BytesMut::from(bytes), &Method::GET)
}

#[test]
fn responses_have_heads_of_bounded_size_however_they_come() {
    let with = |len: usize| format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "a".repeat(len));
    let limit = response::LIMITS.bytes;
    assert!(response(with(limit - 30).as_bytes()).unwrap().is_some());
    for bytes in [&with(limit)[..], &with(limit)[..limit + 1]] {
        let refused = response(bytes.as_bytes()).map(|head| head.is_some());
        assert_eq!(refused, Err(Violation::HeadTooLarge));
    }
}

#[test]
fn responses_say_once_how_long_they_are() {
    for (head, framing, keep_alive) in [
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n",
            Framing::Length(5),
            true,
        ),
        (
            "HTTP/1.1 200\r\ntransfer-encoding: chunked\r\n",
            Framing::Chunked,
            true,
        ),
        ("HTTP/1.1 200 OK\r\n", Framing::UntilClose, false),
        (
            "HTTP/1.0 200 OK\r\ncontent-length: 5\r\n",
            Framing::Length(5),
            false,
        ),
        (
            "HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 5\r\n",
            Framing::Length(5),
            true,
        ),
        (
            "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 5\r\n",
            Framing::Length(5),
            false,
        ),
        ("HTTP/1.1 204 No Content\r\n", Framing::Length(0), true),
        (
            "HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\n",
            Framing::Length(0),
            true,
        ),
        (
            "HTTP/1.1 200 Fine\nserver: old\ncontent-length: 5\n",
            Framing::Length(5),
            true,
        ),
    ] {
        let head = response(format!("{head}\r\n").as_bytes()).unwrap().unwrap();
        assert_eq!(
            (head.framing, head.keep_alive),
            (framing, keep_alive),
            "{head:?}"
        );
    }
    for bad in [
        "HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 5\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: +5\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n",
        "HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n",
        "HTTP/1.1 200 OK\r\nx: a\r\n folded\r\n",
        "HTTP/1.1 200 OK\r\nx : a\r\n",
        "HTTP/1.1 200 OK\r\nx: a\0b\r\n",
        "HTTP/2.0 200 OK\r\n",
        "HTTP/1.1 20 OK\r\n",
        "HTTP/1.1 2000\r\n",
        "garbage\r\n",
    ] {
        assert!(
            response(format!("{bad}\r\n").as_bytes()).is_err(),
            "{bad:?}"
        );
    }
    assert!(response(b"HTTP/1.1 200 OK\r\nx: y\r\n").unwrap().is_none());
    let endless = [&b"HTTP/1.1 200 OK\r\nx: "[..], &vec![b'y'; 300 << 10]].concat();
    assert!(matches!(response(&endless), Err(Violation::HeadTooLarge)));
}

/// What is written to a connection that takes everything.
fn written(output: &mut Output) -> String {
    let mut bytes = Vec::new();
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(output.poll_write(&mut bytes, &mut cx).is_ready());
    String::from_utf8(bytes).unwrap()
}

const ASKER: Asker = Asker {
    version: Version::HTTP_11,
    head: false,
    trailers: false,
    keep_alive: true,
};

fn respond(response: &Response<()>, length: Option<u64>, asker: Asker) -> (String, Encoder, bool) {
    let (mut output, mut asker) = (Output::default(), asker);
    let response = response.clone().into();
    let encoder = write::response(output.small(), &response, length, &mut asker, || {
        HeaderValue::from_static("today")
    });
    (written(&mut output), encoder, asker.keep_alive)
}

#[test]
fn responses_are_framed_by_what_the_asker_understands() {
    let plain = Response::builder()
        .header("transfer-encoding", "gzip")
        .body(())
        .unwrap();
    let known = respond(&plain, Some(3), ASKER);
    assert_eq!(
        known,
        (
            "HTTP/1.1 200 OK\r\ndate: today\r\ncontent-length: 3\r\n\r\n".to_owned(),
            Encoder::Length(3),
            true
        )
    );
    let (head, encoder, keeps) = respond(&plain, None, ASKER);
    assert!(head.contains("transfer-encoding: chunked\r\n"));
    assert_eq!((encoder, keeps), (Encoder::Chunked(Vec::new()), true));
    let old = Asker {
        version: Version::HTTP_10,
        ..ASKER
    };
    let (head, encoder, keeps) = respond(&plain, None, old);
    assert!(head.starts_with("HTTP/1.0 200 OK\r\n") && head.contains("connection: close\r\n"));
    assert_eq!((encoder, keeps), (Encoder::UntilClose, false));
    let (head, ..) = respond(&plain, Some(3), old);
    assert!(head.contains("connection: keep-alive\r\n"));
    let head = Asker {
        head: true,
        ..ASKER
    };
    let (text, encoder, _) = respond(&plain, Some(3), head);
    assert!(text.contains("content-length: 3\r\n"));
    assert_eq!(encoder, Encoder::Length(0));
    let empty = Response::builder()
        .status(204)
        .header("content-length", "9")
        .body(())
        .unwrap();
    let (text, encoder, _) = respond(&empty, Some(0), ASKER);
    assert!(!text.contains("content-length"));
    assert_eq!(encoder, Encoder::Length(0));
    let goodbye = Response::builder()
        .header("connection", "close")
        .body(())
        .unwrap();
    assert!(!respond(&goodbye, Some(0), ASKER).2);
}

#[test]
fn requests_announce_their_bodies() {
    for (method, said, length, expected) in [
        ("GET", None, Some(0), "GET /a?b HTTP/1.1\r\nhost: a\r\n\r\n"),
        (
            "POST",
            None,
            Some(0),
            "POST /a?b HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n",
        ),
        (
            "GET",
            Some("0"),
            Some(0),
            "GET /a?b HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n",
        ),
        (
            "PUT",
            Some("9"),
            Some(7),
            "PUT /a?b HTTP/1.1\r\nhost: a\r\ncontent-length: 7\r\n\r\n",
        ),
        (
            "GET",
            None,
            None,
            "GET /a?b HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n",
        ),
    ] {
        let mut request = Request::builder()
            .method(method)
            .uri("/a?b")
            .header("host", "a");
        if let Some(said) = said {
            request = request.header("content-length", said);
        }
        let mut output = Output::default();
        let request = request.body(()).unwrap().into();
        let _ = write::request(output.small(), &request, length);
        assert_eq!(written(&mut output), expected);
    }
}

#[test]
fn chunks_end_with_the_trailers_that_were_announced() {
    let head = Response::builder()
        .header("trailer", "x-sum, content-length")
        .body(())
        .unwrap();
    let asker = Asker {
        trailers: true,
        ..ASKER
    };
    let (_, mut encoder, _) = respond(&head, None, asker);
    let mut output = Output::default();
    encoder.data("hello".into(), &mut output);
    let large = vec![b'x'; 5000];
    encoder.data(large.clone().into(), &mut output);
    assert!(!output.has_room());
    let so_far = written(&mut output);
    let large = String::from_utf8(large).unwrap();
    assert_eq!(so_far, format!("5\r\nhello\r\n1388\r\n{large}\r\n"));
    let trailers = [("x-sum", "1"), ("content-length", "2"), ("x-other", "3")];
    let trailers = trailers.map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
    assert!(encoder.end(Some(&http::HeaderMap::from_iter(trailers)), &mut output));
    assert_eq!(written(&mut output), "0\r\nx-sum: 1\r\n\r\n");
}

#[test]
fn what_comes_short_is_noticed() {
    let mut output = Output::default();
    let mut encoder = Encoder::Length(5);
    encoder.data("abc".into(), &mut output);
    assert!(!encoder.is_complete() && !encoder.end(None, &mut output));
    encoder.data("defgh".into(), &mut output);
    assert!(encoder.is_complete());
    assert_eq!(written(&mut output), "abcde");
}

#[test]
fn interim_responses_have_no_framing() {
    let mut out = Vec::new();
    let headers = [("link", "</a.css>"), ("content-length", "1")];
    let headers = headers.map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
    write::interim(
        &mut out,
        StatusCode::from_u16(103).unwrap(),
        &Fields::from_iter(headers),
    );
    assert_eq!(out, b"HTTP/1.1 103 Early Hints\r\nlink: </a.css>\r\n\r\n");
}

/// What hyper makes of bytes: the requests it serves, each with the length of its body, and
/// whether it refused something on its own.
fn hyper_reads(bytes: &[u8]) -> (Vec<usize>, bool) {
    use http_body_util::{BodyExt, Empty};
    use hyper::service::service_fn;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    let served = std::sync::Mutex::new(Vec::new());
    let service = service_fn(|request: http::Request<hyper::body::Incoming>| async {
        let body = request.into_body().collect().await?;
        served.lock().unwrap().push(body.to_bytes().len());
        Ok::<_, hyper::Error>(http::Response::new(Empty::<bytes::Bytes>::new()))
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let answers = runtime.block_on(async {
        let (mut client, server) = tokio::io::duplex(1 << 20);
        client.write_all(bytes).await.unwrap();
        client.shutdown().await.unwrap();
        let connection = hyper::server::conn::http1::Builder::new()
            .half_close(true)
            .serve_connection(hyper_util::rt::TokioIo::new(server), service);
        let _ = connection.await;
        let mut answers = Vec::new();
        client.read_to_end(&mut answers).await.unwrap();
        answers
    });
    let refused = answers.windows(12).any(|window| window == b"HTTP/1.1 400");
    (served.into_inner().unwrap(), refused)
}

/// What requests, sound and unsound, are made of.
const LINES: &[&str] = &[
    "GET / HTTP/1.1\r\n",
    "POST /x HTTP/1.1\r\n",
    "\r\nPUT /?a=b HTTP/1.1\r\n",
    "GET  / HTTP/1.1\r\n",
    "GET / HTTP/1.1\n",
];
const FIELDS: &[&str] = &[
    "host: a\r\n",
    "x: y\r\n",
    "x:\t\r\n",
    "content-length: 3\r\n",
    "Content-Length:03\r\n",
    "content-length: 0\r\n",
    "content-length: 3, 3\r\n",
    "content-length: +3\r\n",
    "Transfer-Encoding: chunked\r\n",
    "transfer-encoding: \tCHUNKED \r\n",
    "transfer-encoding: chunked, chunked\r\n",
    "transfer-encoding: identity\r\n",
    "transfer_encoding: chunked\r\n",
    "transfer-encoding : chunked\r\n",
    " folded\r\n",
    "host: a\n",
    "expect: 100-continue\r\n",
];
const BODIES: &[&str] = &[
    "",
    "abc",
    "3\r\nabc\r\n0\r\n\r\n",
    "3;ext=\"1\"\r\nabc\r\n000\r\nt: v\r\n\r\n",
    "0\r\n\r\n",
    "3\nabc\n0\n\n",
    "3\r\nabc0\r\n\r\n",
];

fn any_request() -> impl proptest::strategy::Strategy<Value = String> {
    use proptest::prelude::*;
    let fields = proptest::collection::vec(0..FIELDS.len(), 0..4);
    (0..LINES.len(), fields, 0..BODIES.len()).prop_map(|(line, fields, body)| {
        let fields: String = fields.into_iter().map(|at| FIELDS[at]).collect();
        format!("{}{fields}\r\n{}", LINES[line], BODIES[body])
    })
}

proptest::proptest! {
    #![proptest_config(proptest::test_runner::Config { cases: 3000, ..Default::default() })]

    /// Where we see whole messages, another reader sees the same ones, and refuses none. Otherwise
    /// one of the two takes a body for a request.
    #[test]
    fn hyper_reads_the_same_messages(
        requests in proptest::collection::vec(any_request(), 1..4)
    ) {
        let bytes = requests.concat();
        let limits = HeadLimits { bytes: 4096, fields: 100 };
        let reading = read(bytes.as_bytes(), bytes.len(), limits);
        if reading.violation.is_none() && !reading.incomplete {
            let (served, refused) = hyper_reads(bytes.as_bytes());
            proptest::prop_assert_eq!(served, reading.bodies);
            proptest::prop_assert!(!refused);
        }
    }
}

use super::*;

const LIMITS: ScanLimits = ScanLimits {
    head_bytes: 1024,
    headers: 10,
};

fn judge(bytes: &[u8]) -> Scan {
    Scanner::new(LIMITS).scan(bytes)
}

fn violation(bytes: &[u8]) -> Option<Violation> {
    match judge(bytes).stop {
        Stop::Bad(violation) => Some(violation),
        _ => None,
    }
}

/// A GET with `headers` as its last lines.
fn with(headers: &str) -> Vec<u8> {
    format!("GET / HTTP/1.1\r\nhost: a\r\n{headers}\r\n").into_bytes()
}

#[test]
fn sound_messages_pass_whole() {
    for bytes in [
        &b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"[..],
        b"\r\nGET /?a=b%20c HTTP/1.0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\ncontent-length: 3\r\n\r\nabcGET / HTTP/1.1\r\n\r\n",
        b"POST / HTTP/1.1\r\ntransfer-encoding: Chunked\r\n\r\n3\r\nabc\r\nA;x=\"y\"\r\n0123456789\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n0\r\nchecksum: 1\r\n\r\nGET / HTTP/1.1\r\n\r\n",
        b"GET http://a/ HTTP/1.1\r\nHost: a\r\nx: \t caf\xc3\xa9 \r\n\r\n",
    ] {
        let scan = judge(bytes);
        assert_eq!(
            scan,
            Scan { passed: bytes.len(), stop: Stop::End },
            "{}",
            String::from_utf8_lossy(bytes)
        );
    }
}

#[test]
fn every_way_to_cut_a_connection_is_judged_alike() {
    let bytes =
        b"POST /a HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nt: v\r\n\r\n\
        GET /b HTTP/1.1\r\ncontent-length: 2\r\n\r\nxyDELETE /c HTTP/1.1\r\n\r\n";
    for size in 1..bytes.len() {
        let mut scanner = Scanner::new(LIMITS);
        let (mut passed, mut shown) = (0, 0);
        while shown < bytes.len() {
            shown = (shown + size).min(bytes.len());
            let scan = scanner.scan(&bytes[passed..shown]);
            assert!(
                matches!(scan.stop, Stop::End | Stop::Incomplete),
                "{size}: {scan:?}"
            );
            passed += scan.passed;
        }
        assert_eq!(
            (passed, scanner.heads()),
            (bytes.len(), 3),
            "pieces of {size}"
        );
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
    assert_eq!(judge(b"GE").stop, Stop::Incomplete);
    assert_eq!(judge(b"GET /very/lo").stop, Stop::Incomplete);
    assert_eq!(judge(b"\r").stop, Stop::Incomplete);
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

#[test]
fn nothing_passes_behind_an_undecided_upgrade() {
    let head = with("upgrade: websocket\r\n");
    let bytes = [&head[..], b"GET /next HTTP/1.1\r\n\r\n"].concat();
    let mut scanner = Scanner::new(LIMITS);
    let scan = scanner.scan(&bytes);
    assert_eq!(
        scan,
        Scan {
            passed: head.len(),
            stop: Stop::Upgrade
        }
    );
    scanner.upgrade_declined();
    assert_eq!(scanner.scan(&bytes[head.len()..]).stop, Stop::End);
    assert_eq!(scanner.heads(), 2);
}

#[test]
fn an_upgrade_with_a_body_is_none() {
    let bytes = with("upgrade: websocket\r\ncontent-length: 1\r\n");
    assert_eq!(judge(&bytes).stop, Stop::End);
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

    /// Where the scanner sees whole messages, hyper sees the same ones, and refuses none on its
    /// own. Otherwise one of the two takes a body for a request.
    #[test]
    fn hyper_reads_what_passes_as_the_scanner_does(
        requests in proptest::collection::vec(any_request(), 1..4)
    ) {
        let bytes = requests.concat();
        let mut scanner = Scanner::new(ScanLimits { head_bytes: 4096, headers: 100 });
        let scan = scanner.scan(bytes.as_bytes());
        if scan.stop == Stop::End && scanner.in_head() {
            let (served, refused) = hyper_reads(bytes.as_bytes());
            proptest::prop_assert_eq!(served.len(), scanner.heads() as usize);
            proptest::prop_assert!(!refused);
        }
    }
}

//! Clients that bend HTTP/2 within the letter of it.

use tidegate_hostile::frames::{self, END_HEADERS, END_STREAM, block, frame, get, kind};

use tidegate_testing::within;

use crate::stage::{Lie, Stage};

/// A request with these fields beside the usual ones; what reaches the replica of it.
async fn with_fields(fields: &[(&str, &str)], data: Option<&str>) -> Vec<String> {
    let stage = Stage::start().await;
    let method = if data.is_some() { "POST" } else { "GET" };
    let usual = [
        (":method", method),
        (":scheme", "http"),
        (":authority", "a"),
        (":path", "/evil"),
    ];
    let all: Vec<_> = usual
        .iter()
        .copied()
        .chain(fields.iter().copied())
        .collect();
    let flags = if data.is_some() {
        END_HEADERS
    } else {
        END_HEADERS | END_STREAM
    };
    let mut bytes = frame(kind::HEADERS, flags, 1, &block(&all));
    if let Some(data) = data {
        bytes.extend(frame(kind::DATA, END_STREAM, 1, data.as_bytes()));
    }
    until_its_end(&stage, &bytes).await;
    stage.is_unharmed().await;
    let mut heads = stage.heads();
    heads.retain(|head| head.contains("/evil"));
    heads
}

/// Sends the first stream of a connection and waits for its end: an answer, a reset, or the end of
/// the connection.
async fn until_its_end(stage: &Stage, stream: &[u8]) {
    let (mut reader, mut writer) = frames::connect(stage.addr).await.expect("it listens");
    let _ = writer.send(stream).await;
    within(async {
        while let Some(received) = reader.next().await {
            if received.stream == 1 || received.kind == kind::GOAWAY {
                break;
            }
        }
    })
    .await;
}

#[tokio::test]
async fn line_ends_in_values_never_reach_the_replica() {
    for value in ["a\r\nx-evil: 1", "a\nx-evil: 1", "a\rx-evil: 1", "a\0b"] {
        assert_eq!(with_fields(&[("x", value)], None).await, [""; 0]);
    }
}

#[tokio::test]
async fn names_that_would_be_lines_never_reach_the_replica() {
    for name in ["x\r\nhost", "x: y\r\nz", "x y", "X-Upper", ""] {
        assert_eq!(with_fields(&[(name, "v")], None).await, [""; 0]);
    }
}

/// h2 makes a URI of `:path`, and a URI ends at `#`: the rest is in no request.
#[tokio::test]
async fn fragment_in_a_path_reaches_no_replica() {
    for path in ["/evil#secret", "/evil?a#secret", "/evil#secret/../x?y"] {
        let stage = Stage::start().await;
        let fields = [
            (":method", "GET"),
            (":scheme", "http"),
            (":authority", "a"),
            (":path", path),
        ];
        let flags = END_HEADERS | END_STREAM;
        let request = frame(kind::HEADERS, flags, 1, &block(&fields));
        until_its_end(&stage, &request).await;
        let heads = stage.heads();
        assert!(heads.iter().all(|head| !head.contains('#')), "{heads:?}");
        assert!(!stage.replica_saw("secret"), "{heads:?}");
        stage.is_unharmed().await;
    }
}

#[tokio::test]
async fn framing_of_http1_is_not_smuggled() {
    let body = Some("0\r\n\r\nGET /evil2 HTTP/1.1\r\nhost: a\r\n\r\n");
    for field in [
        ("transfer-encoding", "chunked"),
        ("connection", "keep-alive"),
        ("content-length", "3"),
    ] {
        assert_eq!(with_fields(&[field], body).await, [""; 0], "{field:?}");
    }
}

#[tokio::test]
async fn window_of_zero_holds_no_slot() {
    let body = vec![b'x'; 200_000];
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
    let stage = Stage::with(
        "",
        Lie {
            bytes: [head.into_bytes(), body].concat(),
            closes: true,
        },
    )
    .await;
    let mut attackers = Vec::new();
    for _ in 0..4 {
        let (reader, mut writer) = frames::connect(stage.addr).await.expect("it listens");
        // INITIAL_WINDOW_SIZE 0: no answer can flow.
        let mut bytes = frame(kind::SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]);
        for number in 0..10 {
            let fields = [
                (":method", "GET"),
                (":scheme", "http"),
                (":authority", "a"),
                (":path", "/lie"),
            ];
            bytes.extend(frame(
                kind::HEADERS,
                END_HEADERS | END_STREAM,
                2 * number + 1,
                &block(&fields),
            ));
        }
        let _ = writer.send(&bytes).await;
        attackers.push((reader, writer));
    }
    // More streams than there are slots, none of which ever ends.
    let answer = stage.exchange(crate::stage::HONEST).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    drop(attackers);
    stage.is_unharmed().await;
}

/// Bytes after which the proxy may say what it likes, if it stays unharmed.
async fn is_survived(bytes: Vec<u8>) {
    let stage = Stage::start().await;
    let (mut reader, mut writer) = frames::connect(stage.addr).await.expect("it listens");
    let _ = tokio::time::timeout(std::time::Duration::from_secs(5), writer.send(&bytes)).await;
    let _ = writer.send(&frame(kind::GOAWAY, 0, 0, &[0; 8])).await;
    let reading = async { while reader.next().await.is_some() {} };
    let _ = tokio::time::timeout(std::time::Duration::from_millis(200), reading).await;
    drop((reader, writer));
    stage.is_unharmed().await;
}

#[tokio::test]
async fn streams_that_never_end_are_survived() {
    is_survived(
        (0..1000)
            .flat_map(|number| {
                let fields = [
                    (":method", "POST"),
                    (":scheme", "http"),
                    (":authority", "a"),
                    (":path", "/open"),
                ];
                frame(kind::HEADERS, END_HEADERS, 2 * number + 1, &block(&fields))
            })
            .collect(),
    )
    .await;
}

#[tokio::test]
async fn flood_of_priorities_is_survived() {
    is_survived(frame(kind::PRIORITY, 0, 3, &[0, 0, 0, 1, 9]).repeat(20_000)).await;
}

#[tokio::test]
async fn flood_of_unknown_frames_is_survived() {
    is_survived(frame(0xbe, 0xff, 0, &[7; 64]).repeat(20_000)).await;
}

#[tokio::test]
async fn flood_of_window_updates_is_survived() {
    is_survived(frame(kind::WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]).repeat(20_000)).await;
}

#[tokio::test]
async fn window_beyond_its_bound_is_survived() {
    is_survived(frame(kind::WINDOW_UPDATE, 0, 0, &[0x7f, 0xff, 0xff, 0xff]).repeat(2)).await;
}

#[tokio::test]
async fn table_of_four_gigabytes_is_survived() {
    let mut bytes = frame(kind::SETTINGS, 0, 0, &[0, 1, 0xff, 0xff, 0xff, 0xff]);
    bytes.extend(get(1, END_STREAM));
    is_survived(bytes).await;
}

#[tokio::test]
async fn promise_of_a_client_is_survived() {
    is_survived(frame(5, END_HEADERS, 1, &[0, 0, 0, 2, 0x82])).await;
}

#[tokio::test]
async fn padding_alone_is_survived() {
    let fields = [
        (":method", "POST"),
        (":scheme", "http"),
        (":authority", "a"),
        (":path", "/pad"),
    ];
    let mut bytes = frame(kind::HEADERS, END_HEADERS, 1, &block(&fields));
    let padded = [&[255u8][..], &[0; 255]].concat();
    for _ in 0..2000 {
        bytes.extend(frame(kind::DATA, 8, 1, &padded));
    }
    is_survived(bytes).await;
}

#[tokio::test]
async fn last_stream_number_first_is_survived() {
    is_survived([get(0x7fff_ffff, END_STREAM), get(1, END_STREAM)].concat()).await;
}

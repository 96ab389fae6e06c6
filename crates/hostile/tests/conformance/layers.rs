//! Sections 3 to 5: how it starts, what frames look like, what streams may do.

use tidegate_testing::Client;

use super::*;

#[tokio::test]
async fn section_3_4_the_preface() {
    let (_upstream, _proxy, addr) = stage().await;
    let mut client = Client::connect(addr).await;
    client.send("PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n").await;
    let all = client.read_to_end().await;
    // It began like HTTP/2 and is not, so it is judged as HTTP/1.1, which it is neither.
    assert!(!all.starts_with("HTTP/1.1 2"), "it was taken for a request");

    let (mut reader, _writer) = frames::connect(addr).await.unwrap();
    let first = within(reader.next()).await.unwrap();
    assert_eq!((first.kind, first.stream), (kind::SETTINGS, 0));
}

#[tokio::test]
async fn section_4_frames() {
    let unfinished = || headers(1, END_STREAM, &SOUND);
    let big = |length: usize| vec![0; length];
    run(vec![
        (
            "4.1 an unknown type is ignored",
            frame(0xff, 0, 0, &[0; 8]),
            Ignored,
        ),
        (
            "4.1 an unknown flag is ignored",
            frame(kind::PING, 0x16, 0, &[0; 8]),
            Ignored,
        ),
        (
            "4.1 a reserved bit is ignored",
            frame(kind::PING, 0, 0x8000_0000, &[0; 8]),
            Ignored,
        ),
        (
            "4.2 DATA of 2^14 bytes is taken",
            [post(1), data(1, END_STREAM, &big(1 << 14))].concat(),
            Answered(1),
        ),
        (
            "4.2 DATA above the maximum is refused",
            [post(1), data(1, END_STREAM, &big((1 << 14) + 1))].concat(),
            Stream(1, &[FRAME_SIZE]),
        ),
        (
            "4.2 HEADERS above the maximum are refused",
            frame(
                kind::HEADERS,
                END_HEADERS | END_STREAM,
                1,
                &big((1 << 14) + 1),
            ),
            Connection(&[FRAME_SIZE]),
        ),
        (
            "4.3 a block that cannot be decoded",
            // An index where a length begins that is not there.
            frame(kind::HEADERS, END_HEADERS | END_STREAM, 1, &[0x40]),
            Connection(deviation::COMPRESSION),
        ),
        (
            "4.3 PRIORITY inside a block",
            [unfinished(), frame(kind::PRIORITY, 0, 1, &[0, 0, 0, 0, 1])].concat(),
            Connection(&[PROTOCOL]),
        ),
        (
            "4.3 HEADERS of another stream inside a block",
            [unfinished(), get(3)].concat(),
            Connection(&[PROTOCOL]),
        ),
    ])
    .await;
}

#[tokio::test]
async fn section_5_1_states_of_a_stream() {
    let more = |stream| {
        frame(
            kind::CONTINUATION,
            END_HEADERS,
            stream,
            &block(&[("x", "y")]),
        )
    };
    let ended = |then: Vec<u8>| [held(1), then].concat();
    let reset_then = |then: Vec<u8>| [frames::get(1, 0), reset(1), then].concat();
    run(vec![
        (
            "5.1 idle: DATA",
            data(1, END_STREAM, b"x"),
            Connection(&[PROTOCOL]),
        ),
        ("5.1 idle: RST_STREAM", reset(1), Connection(&[PROTOCOL])),
        (
            "5.1 idle: WINDOW_UPDATE",
            window(1, 100),
            Connection(&[PROTOCOL]),
        ),
        ("5.1 idle: CONTINUATION", more(1), Connection(&[PROTOCOL])),
        (
            "5.1 half-closed: DATA",
            ended(data(1, END_STREAM, b"x")),
            Stream(1, deviation::STREAM_CLOSED),
        ),
        (
            "5.1 half-closed: HEADERS",
            ended(get(1)),
            Stream(1, deviation::STREAM_CLOSED),
        ),
        (
            "5.1 half-closed: CONTINUATION",
            ended(more(1)),
            Connection(&[PROTOCOL]),
        ),
        (
            "5.1 half-closed: WINDOW_UPDATE is fine",
            ended(window(1, 1)),
            Ignored,
        ),
        (
            "5.1 half-closed: PRIORITY is fine",
            ended(frame(kind::PRIORITY, 0, 1, &[0, 0, 0, 0, 1])),
            Ignored,
        ),
        (
            "5.1 half-closed: RST_STREAM is fine",
            ended(reset(1)),
            Ignored,
        ),
        (
            "5.1 closed by RST_STREAM: CONTINUATION",
            reset_then(more(1)),
            Connection(&[PROTOCOL]),
        ),
        (
            "5.1 closed: PRIORITY is fine",
            reset_then(frame(kind::PRIORITY, 0, 1, &[0, 0, 0, 0, 1])),
            Ignored,
        ),
        (
            "5.1 closed: a late WINDOW_UPDATE is fine",
            reset_then(window(1, 1)),
            Ignored,
        ),
        ("5.1.1 an even number", held(2), Connection(&[PROTOCOL])),
        (
            "5.1.1 a smaller number",
            [held(5), held(3)].concat(),
            Connection(&[PROTOCOL]),
        ),
    ])
    .await;
}

/// After the client's RST_STREAM what belongs to the stream is an error or nothing: never a second
/// request.
#[tokio::test]
async fn section_5_1_closed_streams_stay_closed() {
    let (upstream, _proxy, addr) = stage().await;
    for late in [
        data(1, END_STREAM, b"x"),
        headers(1, END_HEADERS | END_STREAM, &[("x", "y")]),
    ] {
        let (mut reader, mut writer) = frames::connect(addr).await.unwrap();
        let before = upstream.count();
        let bytes = [post(1), reset(1), late, get(3)].concat();
        writer.send(&bytes).await.unwrap();
        let over = async {
            while let Some(frame) = reader.next().await {
                let answered = frame.kind == kind::HEADERS && frame.stream == 3;
                assert!(
                    frame.kind != kind::HEADERS || answered,
                    "stream 1 was answered"
                );
                if answered || frame.kind == kind::GOAWAY {
                    return;
                }
            }
        };
        within(over).await;
        assert!(upstream.count() <= before + 2);
    }
}

#[tokio::test]
async fn section_5_1_2_more_streams_than_allowed() {
    let all: Vec<u8> = (0..101).flat_map(|n| held(2 * n + 1)).collect();
    run(vec![(
        "5.1.2",
        all,
        Stream(201, &[REFUSED_STREAM, PROTOCOL]),
    )])
    .await;
}

#[tokio::test]
async fn sections_5_3_to_5_5_priority_errors_and_extensions() {
    let on_itself = [0, 0, 0, 1, 1];
    const PRIORITIZED: u8 = 0x20;
    let dependent = [&on_itself[..], &block(&SOUND)].concat();
    run(vec![
        (
            "5.3.1 HEADERS that depend on themselves",
            frame(
                kind::HEADERS,
                END_HEADERS | END_STREAM | PRIORITIZED,
                1,
                &dependent,
            ),
            Stream(1, &[PROTOCOL]),
        ),
        (
            "5.3.1 PRIORITY that depends on itself",
            [held(1), frame(kind::PRIORITY, 0, 1, &on_itself)].concat(),
            Stream(1, &[PROTOCOL]),
        ),
        (
            "5.4.1 a broken PING ends the connection",
            frame(kind::PING, 0, 0, &[0; 6]),
            Connection(deviation::FRAME_SIZE),
        ),
        (
            "5.5 an extension is ignored",
            [frame(0x16, 0, 0, &[0; 8]), get(1)].concat(),
            Answered(1),
        ),
        (
            "5.5 an extension inside a block",
            [headers(1, END_STREAM, &SOUND), frame(0x16, 0, 0, &[0; 8])].concat(),
            Connection(&[PROTOCOL]),
        ),
    ])
    .await;
}

//! Section 6: every type of frame, where it may stand and what it may hold.

use super::*;

const PADDED: u8 = 8;
const PUSH_PROMISE: u8 = 5;

#[tokio::test]
async fn sections_6_1_to_6_4_data_headers_priority_reset() {
    let block_of = |first: &[u8]| [first, &block(&SOUND)].concat();
    run(vec![
        (
            "6.1 DATA on stream 0",
            data(0, END_STREAM, b"x"),
            Connection(&[PROTOCOL]),
        ),
        (
            "6.1 DATA on a stream that is not open",
            [held(1), data(1, END_STREAM, b"x")].concat(),
            Stream(1, deviation::STREAM_CLOSED),
        ),
        (
            "6.1 DATA with more padding than there is",
            [post(1), data(1, PADDED | END_STREAM, &[6, b'x', 0, 0, 0])].concat(),
            Connection(&[PROTOCOL]),
        ),
        (
            "6.2 HEADERS without END_HEADERS, then PRIORITY",
            [
                headers(1, END_STREAM, &SOUND),
                frame(kind::PRIORITY, 0, 1, &[0, 0, 0, 0, 1]),
            ]
            .concat(),
            Connection(&[PROTOCOL]),
        ),
        (
            "6.2 HEADERS without END_HEADERS, then another stream's",
            [headers(1, END_STREAM, &SOUND), get(3)].concat(),
            Connection(&[PROTOCOL]),
        ),
        ("6.2 HEADERS on stream 0", get(0), Connection(&[PROTOCOL])),
        (
            "6.2 HEADERS with more padding than there is",
            frame(
                kind::HEADERS,
                PADDED | END_HEADERS | END_STREAM,
                1,
                &block_of(&[0xff]),
            ),
            Connection(&[PROTOCOL]),
        ),
        (
            "6.3 PRIORITY on stream 0",
            frame(kind::PRIORITY, 0, 0, &[0, 0, 0, 0, 1]),
            Connection(&[PROTOCOL]),
        ),
        (
            "6.3 PRIORITY of four bytes",
            [held(1), frame(kind::PRIORITY, 0, 1, &[0, 0, 0, 1])].concat(),
            Stream(1, deviation::FRAME_SIZE),
        ),
        (
            "6.4 RST_STREAM on stream 0",
            reset(0),
            Connection(&[PROTOCOL]),
        ),
        (
            "6.4 RST_STREAM on an idle stream",
            reset(1),
            Connection(&[PROTOCOL]),
        ),
        (
            "6.4 RST_STREAM of three bytes",
            [held(1), frame(kind::RST_STREAM, 0, 1, &[0, 0, 0])].concat(),
            Connection(deviation::FRAME_SIZE),
        ),
    ])
    .await;
}

#[tokio::test]
async fn section_6_5_settings() {
    const ACK: u8 = 1;
    run(vec![
        (
            "6.5 an ACK with a payload",
            frame(kind::SETTINGS, ACK, 0, &[0; 6]),
            Connection(deviation::FRAME_SIZE),
        ),
        (
            "6.5 on a stream",
            frame(kind::SETTINGS, 0, 1, &[0, 3, 0, 0, 0, 100]),
            Connection(&[PROTOCOL]),
        ),
        (
            "6.5 of five bytes",
            frame(kind::SETTINGS, 0, 0, &[0; 5]),
            Connection(deviation::FRAME_SIZE),
        ),
        (
            "6.5.2 ENABLE_PUSH of 2",
            setting(2, 2),
            Connection(&[PROTOCOL]),
        ),
        (
            "6.5.2 INITIAL_WINDOW_SIZE of 2^31",
            setting(4, 1 << 31),
            Connection(deviation::WINDOW_SIZE),
        ),
        (
            "6.5.2 MAX_FRAME_SIZE below 2^14",
            setting(5, (1 << 14) - 1),
            Connection(&[PROTOCOL]),
        ),
        (
            "6.5.2 MAX_FRAME_SIZE of 2^24",
            setting(5, 1 << 24),
            Connection(&[PROTOCOL]),
        ),
        (
            "6.5.2 an unknown setting is ignored",
            setting(0xff, 1),
            Ignored,
        ),
        (
            "6.5.3 the last of two values counts",
            [setting(4, 0), setting(4, 100), get(1)].concat(),
            Answered(1),
        ),
    ])
    .await;
}

#[tokio::test]
async fn section_6_5_3_settings_are_acknowledged() {
    let (_upstream, _proxy, addr) = stage().await;
    let (mut reader, mut writer) = frames::connect(addr).await.unwrap();
    writer.send(&setting(3, 100)).await.unwrap();
    let mut acks = 0;
    let acknowledged = async {
        while acks < 2 {
            let received = reader.next().await.expect("it goes on");
            let ack = received.kind == kind::SETTINGS && received.flags & 1 == 1;
            acks += u32::from(ack);
        }
    };
    within(acknowledged).await;
}

#[tokio::test]
async fn sections_6_6_to_6_8_push_ping_goaway() {
    let promise = [&3_u32.to_be_bytes()[..], &block(&SOUND)].concat();
    run(vec![
        (
            "6.6 clients cannot push",
            [held(1), frame(PUSH_PROMISE, END_HEADERS, 1, &promise)].concat(),
            Connection(&[PROTOCOL]),
        ),
        ("6.7 a PING is answered", Vec::new(), Ignored),
        (
            "6.7 an ACK that nobody asked for",
            frame(kind::PING, 1, 0, b"who asks"),
            Ignored,
        ),
        (
            "6.7 on a stream",
            frame(kind::PING, 0, 1, &[0; 8]),
            Connection(&[PROTOCOL]),
        ),
        (
            "6.7 of six bytes",
            frame(kind::PING, 0, 0, &[0; 6]),
            Connection(deviation::FRAME_SIZE),
        ),
        (
            "6.8 GOAWAY on a stream",
            frame(kind::GOAWAY, 0, 1, &[0; 8]),
            Connection(&[PROTOCOL]),
        ),
    ])
    .await;
}

#[tokio::test]
async fn sections_6_9_and_6_10_window_update_and_continuation() {
    let most = 0x7fff_ffff;
    let first = || headers(1, END_STREAM, &SOUND[..2]);
    let more =
        |flags: u8, fields: &[(&str, &str)]| frame(kind::CONTINUATION, flags, 1, &block(fields));
    run(vec![
        ("6.9 by nothing", window(0, 0), Connection(&[PROTOCOL])),
        (
            "6.9 by nothing, of a stream",
            [held(1), window(1, 0)].concat(),
            Stream(1, &[PROTOCOL]),
        ),
        (
            "6.9 of three bytes",
            frame(kind::WINDOW_UPDATE, 0, 0, &[0; 3]),
            Connection(deviation::FRAME_SIZE),
        ),
        (
            "6.9.1 beyond 2^31-1",
            [window(0, most), window(0, most)].concat(),
            Connection(&[FLOW_CONTROL]),
        ),
        (
            "6.9.1 beyond 2^31-1, of a stream",
            [held(1), window(1, most), window(1, most)].concat(),
            Stream(1, &[FLOW_CONTROL]),
        ),
        (
            "6.10 a block in three parts",
            [
                first(),
                more(0, &SOUND[2..3]),
                more(END_HEADERS, &SOUND[3..]),
            ]
            .concat(),
            Answered(1),
        ),
        (
            "6.10 then DATA",
            [first(), data(1, END_STREAM, b"x")].concat(),
            Connection(&[PROTOCOL]),
        ),
        (
            "6.10 on stream 0",
            [
                first(),
                frame(kind::CONTINUATION, END_HEADERS, 0, &block(&SOUND[2..])),
            ]
            .concat(),
            Connection(&[PROTOCOL]),
        ),
        (
            "6.10 behind a whole block",
            [held(1), more(END_HEADERS, &SOUND[2..])].concat(),
            Connection(&[PROTOCOL]),
        ),
        (
            "6.10 behind the end of a block",
            [
                first(),
                more(END_HEADERS, &SOUND[2..]),
                more(END_HEADERS, &[("x", "y")]),
            ]
            .concat(),
            Connection(&[PROTOCOL]),
        ),
        (
            "6.10 behind DATA",
            [post(1), data(1, 0, b"x"), more(END_HEADERS, &[("x", "y")])].concat(),
            Connection(&[PROTOCOL]),
        ),
    ])
    .await;
}

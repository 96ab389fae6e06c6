//! HTTP/2 clients that abuse the protocol: a hundred requests of theirs reach the upstream at most,
//! and then the connection ends.

mod support;

use support::{Upstream, proxy};
use tidegate_hostile::frames::{
    self, END_HEADERS, END_STREAM, Reader, Writer, block, frame, get, kind,
};
use tidegate_testing::within;
use tokio::task::JoinSet;

/// Requests of one connection that may reach the upstream before it is closed.
const REACH_MAX: usize = 100;

/// Far more attempts than are allowed.
const ATTEMPTS: u32 = 1000;

fn stream_ids() -> impl Iterator<Item = u32> {
    (0..ATTEMPTS).map(|n| 2 * n + 1)
}

fn reset(stream: u32) -> Vec<u8> {
    const CANCEL: [u8; 4] = [0, 0, 0, 8];
    frame(kind::RST_STREAM, 0, stream, &CANCEL)
}

async fn attack() -> (Upstream, tidegate_proxy::Running, Reader, Writer) {
    let upstream = Upstream::start().await;
    let proxy = proxy(upstream.addr);
    let (reader, writer) = frames::connect(proxy.local_addr())
        .await
        .expect("it listens");
    (upstream, proxy, reader, writer)
}

/// The connection has ended, with a word of goodbye, and the upstream was spared.
async fn is_over(upstream: &Upstream, goodbye: impl Future<Output = bool>, what: &str) {
    assert!(within(goodbye).await, "{what}: no GOAWAY");
    assert!(
        upstream.count() <= REACH_MAX,
        "{what}: {} reached the upstream",
        upstream.count()
    );
}

/// Requests one after the other, each spoiled once it has reached the upstream.
async fn paced(what: &str, spoil: impl Fn(u32) -> Vec<u8>) {
    let (upstream, _proxy, mut reader, mut writer) = attack().await;
    let attacking = async {
        for id in stream_ids() {
            let seen = upstream.count();
            if writer.send(&get(id, 0)).await.is_err() {
                break;
            }
            // Refused ones never come.
            tokio::select! {
                () = upstream.more_than(seen) => {}
                () = tokio::time::sleep(std::time::Duration::from_millis(20)) => {}
            }
            if writer.send(&spoil(id)).await.is_err() {
                break;
            }
        }
    };
    let mut goodbye = Box::pin(reader.said_goodbye());
    let said = tokio::select! {
        said = &mut goodbye => Some(said),
        () = attacking => None,
    };
    let goodbye = async move {
        match said {
            Some(said) => said,
            None => goodbye.await,
        }
    };
    is_over(&upstream, goodbye, what).await;
}

#[tokio::test]
async fn paced_rapid_reset() {
    paced("rapid reset", reset).await;
}

/// What goes behind a request to spoil it, by its stream.
type Spoil = fn(u32) -> Vec<u8>;

/// What makes the server reset a stream, which some count as nobody's cancellation.
const MADE_YOU_RESET: [(&str, Spoil); 5] = [
    ("window update of zero", |id| {
        frame(kind::WINDOW_UPDATE, 0, id, &[0; 4])
    }),
    ("window overflow", |id| {
        frame(kind::WINDOW_UPDATE, 0, id, &0x7fff_ffff_u32.to_be_bytes())
    }),
    ("priority that depends on itself", |id| {
        let dependency = [&id.to_be_bytes()[..], &[1]].concat();
        frame(kind::PRIORITY, 0, id, &dependency)
    }),
    ("priority of four bytes", |id| {
        frame(kind::PRIORITY, 0, id, &[0; 4])
    }),
    ("trailers that do not end", |id| get(id, 0)),
];

#[tokio::test]
async fn paced_made_you_reset() {
    let attacks: JoinSet<()> = MADE_YOU_RESET
        .map(|(what, spoil)| paced(what, spoil))
        .into_iter()
        .collect();
    attacks.join_all().await;
}

/// All requests and what spoils them in one piece.
async fn burst(what: &str, flags: u8, spoil: impl Fn(u32) -> Vec<u8>) {
    let (upstream, _proxy, mut reader, mut writer) = attack().await;
    let all: Vec<u8> = stream_ids()
        .flat_map(|id| [get(id, flags), spoil(id)].concat())
        .collect();
    let sending = async {
        // It may be cut off in the middle.
        let _ = writer.send(&all).await;
    };
    let (goodbye, ()) = within(async { tokio::join!(reader.said_goodbye(), sending) }).await;
    is_over(&upstream, async { goodbye }, what).await;
}

#[tokio::test]
async fn rapid_reset_in_one_burst() {
    burst("burst", END_STREAM, reset).await;
}

#[tokio::test]
async fn made_you_reset_in_one_burst() {
    for (what, spoil) in MADE_YOU_RESET {
        burst(what, 0, spoil).await;
    }
}

#[tokio::test]
async fn rapid_reset_with_many_requests_always_open() {
    const OPEN: usize = 90;
    let (upstream, _proxy, mut reader, mut writer) = attack().await;
    let attacking = async {
        let mut open = std::collections::VecDeque::new();
        for id in stream_ids() {
            let sent = writer.send(&get(id, END_STREAM)).await;
            open.push_back(id);
            if open.len() <= OPEN {
                continue;
            }
            upstream.more_than(OPEN / 2).await;
            let oldest = open.pop_front().unwrap();
            if sent.and(writer.send(&reset(oldest)).await).is_err() {
                break;
            }
            tokio::task::yield_now().await;
        }
        for id in open {
            let _ = writer.send(&reset(id)).await;
        }
    };
    let (goodbye, ()) = within(async { tokio::join!(reader.said_goodbye(), attacking) }).await;
    assert!(goodbye);
    assert!(upstream.count() <= REACH_MAX, "{}", upstream.count());
}

/// Sends pieces for as long as they are taken; the proxy has to end the connection.
async fn flood(what: &str, opening: &[u8], piece: &[u8]) {
    const PIECES: usize = 100_000;
    let (upstream, _proxy, mut reader, mut writer) = attack().await;
    let _ = writer.send(opening).await;
    let flooding = async {
        let many = piece.repeat(100);
        for _ in 0..PIECES / 100 {
            if writer.send(&many).await.is_err() {
                return;
            }
        }
    };
    let reading = async { while reader.next().await.is_some() {} };
    let over = async { tokio::join!(flooding, reading) };
    let limit = std::time::Duration::from_secs(60);
    let over = tokio::time::timeout(limit, over).await;
    assert!(over.is_ok(), "{what}: it may go on for ever");
    let reached = upstream.count();
    assert!(reached <= 1, "{what}: {reached} reached the upstream");
}

#[tokio::test]
async fn floods_are_cut_off() {
    flood("PING", &[], &frame(kind::PING, 0, 0, &[0; 8])).await;
    flood("SETTINGS", &[], &frame(kind::SETTINGS, 0, 0, &[])).await;
    flood(
        "PRIORITY",
        &[],
        &frame(kind::PRIORITY, 0, 1, &[0, 0, 0, 0, 1]),
    )
    .await;
    flood("an unknown type", &[], &frame(99, 0, 0, &[])).await;
    flood("empty DATA", &get(1, 0), &frame(kind::DATA, 0, 1, &[])).await;
    flood(
        "padding",
        &get(1, 0),
        &frame(kind::DATA, 8, 1, &[9, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
    )
    .await;
    let unfinished = frame(kind::HEADERS, 0, 1, &block(&[(":method", "GET")]));
    flood(
        "empty CONTINUATION",
        &unfinished,
        &frame(kind::CONTINUATION, 0, 1, &[]),
    )
    .await;
    let field = block(&[("x-field", "x".repeat(100))]);
    flood(
        "CONTINUATION",
        &unfinished,
        &frame(kind::CONTINUATION, 0, 1, &field),
    )
    .await;
}

/// What comes of one header block: the status' first byte in HPACK is not worth decoding, so only
/// whether it reached the upstream counts, and that the connection then serves another request or
/// ends.
async fn bomb(what: &str, head: Vec<u8>) {
    let (upstream, _proxy, mut reader, mut writer) = attack().await;
    let _ = writer.send(&head).await;
    let _ = writer.send(&sound(3)).await;
    let ended = async {
        while let Some(frame) = reader.next().await {
            let answered = frame.stream == 3 && frame.kind == kind::HEADERS;
            if answered || frame.kind == kind::GOAWAY {
                return;
            }
        }
    };
    within(ended).await;
    assert!(
        upstream.count() <= 1,
        "{what}: {} reached the upstream",
        upstream.count()
    );
}

/// A request that the upstream answers.
fn sound(stream: u32) -> Vec<u8> {
    let fields = [
        (":method", "GET"),
        (":scheme", "http"),
        (":authority", "a"),
        (":path", "/sound"),
    ];
    frame(
        kind::HEADERS,
        END_HEADERS | END_STREAM,
        stream,
        &block(&fields),
    )
}

#[tokio::test]
async fn bombs_are_refused() {
    let plain = [
        (":method", "GET"),
        (":scheme", "http"),
        (":authority", "a"),
        (":path", "/bomb"),
    ];
    let head = |more: &[u8]| {
        let block = [&block(&plain)[..], more].concat();
        frame(kind::HEADERS, END_HEADERS | END_STREAM, 1, &block)
    };
    // A field of 4000 bytes enters the dynamic table once and is named again by one byte each.
    let mut once = vec![0x40];
    once.extend_from_slice(&block(&[("x-bomb", "x".repeat(4000))])[1..]);
    bomb("HPACK", head(&[once, vec![0xbe; 4000]].concat())).await;
    bomb("cookies", head(&block(&vec![("cookie", "a=b"); 1200]))).await;
    bomb("fields", head(&block(&vec![("x", ""); 500]))).await;
    bomb(
        "a length without end",
        head(&[0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]),
    )
    .await;
    bomb("an index that is not there", head(&[0xff, 0xff, 0x01])).await;
    bomb(
        "a table of all memory",
        head(&[0x3f, 0xff, 0xff, 0xff, 0x7f]),
    )
    .await;
}

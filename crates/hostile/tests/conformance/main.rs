//! RFC 9113 and RFC 7541 by the letter, through the whole proxy.
//!
//! The cases are those that h2spec knows, told again as bytes and what has to come of them:
//! sections 3 to 8, HPACK, and what every server has to be able to do. Each case has a connection
//! of its own and names its section. As in h2spec an error of a stream may be treated as one of the
//! connection (RFC 9113 section 5.4.2), and a connection may end without a word.

#[path = "../support/mod.rs"]
#[allow(dead_code, reason = "the tests of abuse use more of it")]
mod support;

mod definitions;
mod flow;
mod generic;
mod hpack;
mod layers;
mod semantics;

use std::net::SocketAddr;

use support::{Upstream, proxy};
use tidegate_hostile::frames::{
    self, END_HEADERS, END_STREAM, Reader, Received, Writer, block, frame, kind,
};
use tidegate_testing::within;

/// Codes of errors (RFC 9113 section 7).
const PROTOCOL: u32 = 1;
const FLOW_CONTROL: u32 = 3;
const FRAME_SIZE: u32 = 6;
const REFUSED_STREAM: u32 = 7;
const CANCEL: u32 = 8;

/// Where h2 0.4 deviates: it says PROTOCOL_ERROR where the RFC has a code of its own. The mistake
/// is noticed and its sender cut off all the same. The cases say what h2 does, so that they tell
/// when it changes; each constant names what the RFC demands.
mod deviation {
    use super::PROTOCOL;

    /// FRAME_SIZE_ERROR (section 4.2) for a payload whose length does not fit its type. Frames
    /// above the maximum do get the right code.
    pub(crate) const FRAME_SIZE: &[u32] = &[PROTOCOL];
    /// FLOW_CONTROL_ERROR (section 6.5.2) for an initial window that is too large.
    pub(crate) const WINDOW_SIZE: &[u32] = &[PROTOCOL];
    /// STREAM_CLOSED (section 5.1) for DATA and HEADERS behind the end of a stream.
    pub(crate) const STREAM_CLOSED: &[u32] = &[PROTOCOL];
    /// COMPRESSION_ERROR (section 4.3) for a block that cannot be decoded.
    pub(crate) const COMPRESSION: &[u32] = &[PROTOCOL];
}

/// What has to come of a case.
#[derive(Debug, Clone, Copy)]
enum Expect {
    /// An error of the connection with one of these codes, or its end.
    Connection(&'static [u32]),
    /// An error of the stream or the connection with one of these codes, or the connection's end.
    Stream(u32, &'static [u32]),
    /// The request is malformed (section 8.1.1): an error, or 400.
    Malformed(u32),
    /// The stream is answered with 200.
    Answered(u32),
    /// The connection goes on: it answers a PING behind what was sent.
    Ignored,
}

use Expect::{Answered, Connection, Ignored, Malformed, Stream};

/// The section, what is sent behind the opening, and what has to come of it.
type Case = (&'static str, Vec<u8>, Expect);

const PING_SENT: [u8; 8] = *b"are you?";

/// Runs the cases, each on a connection of its own, and names all that fail.
async fn run(cases: Vec<Case>) {
    let upstream = Upstream::start().await;
    let proxy = proxy(upstream.addr);
    let mut failed = Vec::new();
    for (section, bytes, expect) in cases {
        let (reader, writer) = frames::connect(proxy.local_addr())
            .await
            .expect("it listens");
        if let Err(seen) = within(judge(reader, writer, &bytes, expect)).await {
            failed.push(format!("{section}: wanted {expect:?}, got {seen}"));
        }
    }
    assert!(failed.is_empty(), "\n{}", failed.join("\n"));
}

async fn judge(
    mut reader: Reader,
    mut writer: Writer,
    bytes: &[u8],
    expect: Expect,
) -> Result<(), String> {
    // It may be cut off in the middle; what it said before counts.
    let _ = writer.send(bytes).await;
    let ping = frame(kind::PING, 0, 0, &PING_SENT);
    let _ = writer.send(&ping).await;
    let mut seen = Vec::new();
    while let Some(received) = reader.next().await {
        if let Some(verdict) = verdict(&received, expect) {
            return verdict.map_err(|()| told(&seen, &received));
        }
        seen.push(received);
    }
    match expect {
        Connection(_) | Stream(..) | Malformed(_) => Ok(()),
        Answered(_) | Ignored => Err("the end of the connection".to_owned()),
    }
}

fn told(seen: &[Received], last: &Received) -> String {
    let brief = |frame: &Received| {
        let start = &frame.payload[..frame.payload.len().min(12)];
        format!("type {} on {} {start:?}", frame.kind, frame.stream)
    };
    let all: Vec<_> = seen.iter().chain([last]).map(brief).collect();
    all.join(", ")
}

/// What a frame says about the case; nothing if it does not matter.
fn verdict(received: &Received, expect: Expect) -> Option<Result<(), ()>> {
    let verdict = |fits: bool| Some(if fits { Ok(()) } else { Err(()) });
    let pong = received.kind == kind::PING && received.payload == PING_SENT;
    let goodbye = received.kind == kind::GOAWAY;
    let code = || error_code(received);
    let of_stream = |stream: u32| received.stream == stream;
    let reset = |stream: u32| received.kind == kind::RST_STREAM && of_stream(stream);
    match expect {
        Connection(codes) if goodbye => verdict(codes.contains(&code())),
        Stream(stream, codes) if goodbye || reset(stream) => verdict(codes.contains(&code())),
        Malformed(stream) if goodbye || reset(stream) => verdict(code() == PROTOCOL),
        Malformed(stream) if of_stream(stream) && received.kind == kind::HEADERS => {
            verdict(status(received) == Some(400))
        }
        Answered(stream) if of_stream(stream) && received.kind == kind::HEADERS => {
            verdict(status(received) == Some(200))
        }
        Answered(_) if goodbye => verdict(false),
        Answered(stream) if reset(stream) => verdict(false),
        Ignored if goodbye || pong => verdict(pong),
        _ => None,
    }
}

/// The code at the end of RST_STREAM, or behind the last stream of GOAWAY.
fn error_code(received: &Received) -> u32 {
    let at = if received.kind == kind::GOAWAY { 4 } else { 0 };
    let code = received.payload.get(at..at + 4);
    code.map_or(u32::MAX, |code| {
        u32::from_be_bytes([code[0], code[1], code[2], code[3]])
    })
}

/// The status, where the static table of HPACK has it (RFC 7541 appendix A).
fn status(received: &Received) -> Option<u16> {
    // Changes of the table's size come first.
    let mut block = received.payload.iter();
    match block.find(|byte| **byte & 0xe0 != 0x20)? {
        0x88 => Some(200),
        0x8c => Some(400),
        0x8d => Some(404),
        0x8e => Some(500),
        _ => None,
    }
}

/// The fields of a request that is answered.
const SOUND: [(&str, &str); 4] = [
    (":method", "GET"),
    (":scheme", "http"),
    (":authority", "a"),
    (":path", "/sound"),
];

/// A request that is answered.
fn get(stream: u32) -> Vec<u8> {
    headers(stream, END_HEADERS | END_STREAM, &SOUND)
}

/// One whose body is still to come.
fn post(stream: u32) -> Vec<u8> {
    request(stream, END_HEADERS, &[(":method", "POST")])
}

/// A request that is never answered.
fn held(stream: u32) -> Vec<u8> {
    frames::get(stream, END_STREAM)
}

fn headers<N: AsRef<[u8]>, V: AsRef<[u8]>>(stream: u32, flags: u8, fields: &[(N, V)]) -> Vec<u8> {
    frame(kind::HEADERS, flags, stream, &block(fields))
}

/// A sound request with some fields replaced, or added.
fn request(stream: u32, flags: u8, changes: &[(&str, &str)]) -> Vec<u8> {
    let mut fields = SOUND.to_vec();
    for &(name, value) in changes {
        match fields.iter_mut().find(|field| field.0 == name) {
            Some(field) => field.1 = value,
            None => fields.push((name, value)),
        }
    }
    headers(stream, flags, &fields)
}

fn data(stream: u32, flags: u8, bytes: &[u8]) -> Vec<u8> {
    frame(kind::DATA, flags, stream, bytes)
}

fn reset(stream: u32) -> Vec<u8> {
    frame(kind::RST_STREAM, 0, stream, &CANCEL.to_be_bytes())
}

fn window(stream: u32, by: u32) -> Vec<u8> {
    frame(kind::WINDOW_UPDATE, 0, stream, &by.to_be_bytes())
}

fn setting(id: u16, value: u32) -> Vec<u8> {
    let payload = [&id.to_be_bytes()[..], &value.to_be_bytes()].concat();
    frame(kind::SETTINGS, 0, 0, &payload)
}

/// A proxy in front of an upstream, for cases that are a conversation.
async fn stage() -> (Upstream, tidegate_proxy::Running, SocketAddr) {
    let upstream = Upstream::start().await;
    let proxy = proxy(upstream.addr);
    let addr = proxy.local_addr();
    (upstream, proxy, addr)
}

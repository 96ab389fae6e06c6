//! Uploads that take their time, and what they cost the others: nothing.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body::Frame;
use http_body_util::StreamBody;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tidegate_proxy::Running;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::support::*;

/// Two slots, so that the third dripped upload would stop the service if it held one.
const TWO_SLOTS: &str =
    "protect.mode = 'static'\nprotect.static.window = 1000\nprotect.limits.slots = 2";

const ATTACKERS: usize = 60;
const HONEST: usize = 40;

/// How the dripped uploads are framed.
const CHUNKED: &str = "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n";
const LONG: &str = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1000000\r\n\r\n";
const CONTINUED: &str = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1000000\r\n\
                         expect: 100-continue\r\n\r\n";

fn status(proxy: &Running) -> (u32, u32) {
    let state = proxy.state();
    let sentry = state
        .applications()
        .single()
        .unwrap()
        .sentry()
        .status(state.now());
    let replica = &sentry.replicas[0];
    (replica.in_flight, replica.streams)
}

/// Sends a head, some of the body at once, and a little more of it for ever.
async fn drip(addr: SocketAddr, head: &'static str, first: Vec<u8>, piece: &'static [u8]) {
    let mut stream = TcpStream::connect(addr).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(&first).await.unwrap();
    let mut ticks = tokio::time::interval(Duration::from_millis(100));
    while stream.write_all(piece).await.is_ok() {
        ticks.tick().await;
    }
}

/// All honest clients are answered while the attack goes on.
async fn honest_clients_are_served(proxy: &Running) {
    for n in 0..HONEST {
        let answer = ask(proxy.local_addr(), GET).await;
        assert_eq!(answer.status, 200, "request {n}, {:?}", status(proxy));
    }
}

async fn under_attack(first: usize, head: &'static str, piece: &'static [u8], config: &str) {
    let service = Service::echo().await;
    let proxy = proxy(&[service.addr], &format!("{TWO_SLOTS}\n{config}"));
    let mut attack = JoinSet::new();
    for _ in 0..ATTACKERS {
        attack.spawn(drip(proxy.local_addr(), head, vec![b'x'; first], piece));
    }
    if first > 0 || head == CHUNKED {
        eventually("an upload is on its way", || status(&proxy).1 > 0).await;
    }
    honest_clients_are_served(&proxy).await;
    let uploads = service.count().saturating_sub(HONEST);
    assert!(uploads <= 2, "{uploads} uploads for two slots");
    attack.shutdown().await;
    eventually("nothing is left", || status(&proxy) == (0, 0)).await;
}

#[tokio::test]
async fn dripped_chunks_hold_no_slot() {
    // Slower than what counts as a pause.
    let service = Service::echo().await;
    let proxy = proxy(&[service.addr], TWO_SLOTS);
    let mut attack = JoinSet::new();
    for _ in 0..ATTACKERS {
        let addr = proxy.local_addr();
        attack.spawn(async move {
            let mut stream = TcpStream::connect(addr).await.unwrap();
            stream.write_all(CHUNKED.as_bytes()).await.unwrap();
            let mut ticks = tokio::time::interval(Duration::from_millis(400));
            while stream.write_all(b"1\r\nx\r\n").await.is_ok() {
                ticks.tick().await;
            }
        });
    }
    eventually("an upload is on its way", || status(&proxy).1 > 0).await;
    honest_clients_are_served(&proxy).await;
    assert!(status(&proxy).1 <= 2);
}

#[tokio::test]
async fn dripped_body_above_the_buffer_holds_no_slot() {
    under_attack(40_000, LONG, b"x", "limits.upload_buffer = '32KiB'").await;
}

#[tokio::test]
async fn dripped_body_within_the_buffer_holds_no_slot() {
    under_attack(0, LONG, b"x", "").await;
}

#[tokio::test]
async fn dripped_body_that_was_asked_for_holds_no_slot() {
    under_attack(0, CONTINUED, b"x", "").await;
}

#[tokio::test]
async fn uploads_that_stop_hold_no_slot() {
    under_attack(40_000, LONG, b"", "limits.upload_buffer = '32KiB'").await;
}

#[tokio::test]
async fn dripped_streams_of_one_http2_connection_hold_no_slot() {
    let service = Service::echo().await;
    let proxy = proxy(&[service.addr], TWO_SLOTS);
    let addr = proxy.local_addr();
    let stream = TcpStream::connect(addr).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
    tokio::spawn(connection);
    let mut attack = JoinSet::new();
    for _ in 0..ATTACKERS {
        let ticks = tokio::time::interval(Duration::from_millis(400));
        let body = StreamBody::new(futures_util::stream::unfold(ticks, |mut ticks| async {
            ticks.tick().await;
            let piece = Frame::data(Bytes::from_static(b"x"));
            Some((Ok::<_, std::io::Error>(piece), ticks))
        }));
        let request = Request::post(format!("http://{addr}/"))
            .body(http_body_util::BodyExt::boxed_unsync(body))
            .unwrap();
        attack.spawn(sender.send_request(request));
    }
    eventually("an upload is on its way", || status(&proxy).1 > 0).await;
    honest_clients_are_served(&proxy).await;
    assert!(status(&proxy).1 <= 2);
}

#[tokio::test]
async fn upload_above_the_buffer_takes_a_slot_when_it_is_complete() {
    let (service, permits) = Service::held().await;
    let buffer = format!("{TWO_SLOTS}\nlimits.upload_buffer = '1KiB'");
    let proxy = proxy(&[service.addr], &buffer);
    let mut client = Client::connect(proxy.local_addr()).await;
    client
        .send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 9000\r\n\r\n")
        .await;
    client.send(vec![b'x'; 8000]).await;
    eventually("it is on its way", || status(&proxy) == (0, 1)).await;
    client.send(vec![b'x'; 1000]).await;
    eventually("it is in service", || status(&proxy) == (1, 0)).await;
    permits.add_permits(1);
    assert_eq!(client.answer().await.status, 200);
    eventually("nothing is left", || status(&proxy) == (0, 0)).await;
}

#[tokio::test]
async fn trailers_of_a_request_in_one_piece_reach_the_service() {
    let addr = raw_service(|mut stream, _| async move {
        let mut head = read_head(&mut stream).await;
        head += &read_head(&mut stream).await;
        let reply = format!(
            "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{head}",
            head.len()
        );
        stream.write_all(reply.as_bytes()).await.unwrap();
    })
    .await;
    let proxy = proxy(&[addr], "");
    let request = "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\ntrailer: x-sum\r\n\r\n\
                   5\r\nhello\r\n0\r\nx-sum: 7\r\n\r\n";
    let text = ask(proxy.local_addr(), request).await.text();
    assert!(text.contains("x-sum: 7"), "{text}");
}

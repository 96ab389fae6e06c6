//! HTTP/2 on either side.

use bytes::Bytes;
use http::{HeaderMap, Request, Response, Version};
use http_body::Frame;
use http_body_util::{BodyExt, Empty, Full, StreamBody};
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::*;

async fn connect<B>(addr: SocketAddr) -> SendRequest<B>
where
    B: http_body::Body + Send + Unpin + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let stream = TcpStream::connect(addr).await.unwrap();
    let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(connection);
    sender
}

fn get(addr: SocketAddr, path: &str) -> Request<Empty<Bytes>> {
    Request::get(format!("http://{addr}{path}"))
        .body(Empty::new())
        .unwrap()
}

async fn text_of(response: Response<Incoming>) -> String {
    let body = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8_lossy(&body).into_owned()
}

#[tokio::test]
async fn http2_clients_reach_an_http1_service() {
    let service = Service::echo().await;
    let proxy = proxy(&[service.addr], "");
    let addr = proxy.local_addr();
    let mut sender = connect(addr).await;
    let answers = (0..50).map(|n| {
        let response = sender.send_request(get(addr, &format!("/{n}")));
        async move { text_of(within(response).await.unwrap()).await }
    });
    for (n, text) in futures_util::future::join_all(answers)
        .await
        .into_iter()
        .enumerate()
    {
        assert!(text.starts_with(&format!("GET /{n} HTTP/1.1\n")), "{text}");
        assert!(text.contains(&format!("host: {addr}\n")), "{text}");
    }
}

#[tokio::test]
async fn http1_clients_reach_an_http2_service_over_one_connection() {
    let service = Service::echo().await;
    let proxy = proxy(&[service.addr], "upstream.http2 = 'always'");
    let mut client = Client::connect(proxy.local_addr()).await;
    for n in 0..10 {
        let request =
            format!("POST /{n} HTTP/1.1\r\nhost: shop.example\r\ncontent-length: 2\r\n\r\nok");
        let text = client.ask(request).await.text();
        assert!(
            text.starts_with(&format!("POST http://shop.example/{n} HTTP/2.0\n")),
            "{text}"
        );
        assert!(text.ends_with("\n\nok"));
    }
    assert_eq!(
        service
            .connections
            .load(std::sync::atomic::Ordering::SeqCst),
        1
    );
}

/// Waits for a request and this many bytes of its body, and closes the connection with the word
/// that it has not been looked at.
async fn take_leave(stream: &mut TcpStream, body: u32) {
    const PREFACE: usize = 24;
    const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    const GOAWAY: [u8; 17] = [0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    const DATA: u8 = 0;
    const HEADERS: u8 = 1;
    stream.write_all(&SETTINGS).await.unwrap();
    stream.read_exact(&mut [0; PREFACE]).await.unwrap();
    let (mut begun, mut seen) = (false, 0);
    while !begun || seen < body {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await.unwrap();
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        stream
            .read_exact(&mut vec![0; length as usize])
            .await
            .unwrap();
        begun |= head[3] == HEADERS;
        seen += if head[3] == DATA { length } else { 0 };
    }
    stream.write_all(&GOAWAY).await.unwrap();
    let _ = stream.read_to_end(&mut Vec::new()).await;
}

#[tokio::test]
async fn what_a_replica_leaves_without_a_look_is_sent_again_whatever_the_method() {
    let service = raw_service(|mut stream, number| async move {
        if number < 2 {
            return take_leave(&mut stream, 0).await;
        }
        let mut connection = h2::server::handshake(stream).await.unwrap();
        while let Some(Ok((_, mut answer))) = connection.accept().await {
            answer.send_response(Response::new(()), true).unwrap();
        }
    })
    .await;
    let extra = "upstream.http2 = 'always'\nretry.attempts = 0";
    let proxy = proxy(&[service], extra);
    let post = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nok";
    assert_eq!(ask(proxy.local_addr(), post).await.status, 200);
}

const CHUNKED: &str =
    "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n5\r\nfirst\r\n";

#[tokio::test]
async fn a_body_that_still_comes_in_is_sent_again_while_nothing_of_it_is_gone() {
    let begun = std::sync::Arc::new(tokio::sync::Semaphore::new(0));
    let begin = std::sync::Arc::clone(&begun);
    let service = raw_service(move |mut stream, number| {
        let begin = std::sync::Arc::clone(&begin);
        async move {
            if number == 0 {
                return take_leave(&mut stream, 5).await;
            }
            let mut connection = h2::server::handshake(stream).await.unwrap();
            while let Some(Ok((request, mut answer))) = connection.accept().await {
                begin.add_permits(1);
                tokio::spawn(async move {
                    let mut body = request.into_body();
                    let mut read = Vec::new();
                    while let Some(data) = body.data().await {
                        read.extend_from_slice(&data.unwrap());
                    }
                    let mut out = answer.send_response(Response::new(()), false).unwrap();
                    out.send_data(read.into(), true).unwrap();
                });
            }
        }
    })
    .await;
    let extra = "upstream.http2 = 'always'\nretry.attempts = 0";
    let proxy = proxy(&[service], extra);
    let mut client = Client::connect(proxy.local_addr()).await;
    client.send(CHUNKED).await;
    within(begun.acquire()).await.unwrap().forget();
    client.send("7\r\n second\r\n0\r\n\r\n").await;
    let answer = client.answer().await;
    assert_eq!((answer.status, answer.text()), (200, "first second".into()));
}

#[tokio::test]
async fn a_body_of_which_a_part_is_gone_is_not_sent_again() {
    let opened = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = std::sync::Arc::clone(&opened);
    let service = raw_service(move |mut stream, _| {
        count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        async move { take_leave(&mut stream, 12).await }
    })
    .await;
    let proxy = proxy(&[service], "upstream.http2 = 'always'");
    let mut client = Client::connect(proxy.local_addr()).await;
    client.send(CHUNKED).await;
    eventually("the request is on its way", || {
        opened.load(std::sync::atomic::Ordering::SeqCst) == 1
    })
    .await;
    client.send("7\r\n second\r\n").await;
    assert_eq!(client.answer().await.status, 502);
    assert_eq!(opened.load(std::sync::atomic::Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_refused_stream_is_a_retry_whatever_the_method() {
    for (attempts, status) in [(1, 200), (0, 502)] {
        let service = raw_service(|stream, _| async move {
            let mut connection = h2::server::handshake(stream).await.unwrap();
            let mut refused = false;
            while let Some(Ok((_, mut answer))) = connection.accept().await {
                if std::mem::replace(&mut refused, true) {
                    drop(answer.send_response(Response::new(()), true));
                } else {
                    answer.send_reset(h2::Reason::REFUSED_STREAM);
                }
            }
        })
        .await;
        let extra = format!("upstream.http2 = 'always'\nretry.attempts = {attempts}");
        let proxy = proxy(&[service], &extra);
        let post = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nok";
        assert_eq!(ask(proxy.local_addr(), post).await.status, status);
    }
}

#[tokio::test]
async fn trailers_pass_both_ways_as_grpc_needs_them() {
    let service = Service::start(|request| async move {
        assert_eq!(request.headers()["te"], "trailers");
        let body = request.into_body().collect().await.unwrap();
        let asked = body.trailers().unwrap()["x-checksum"].clone();
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", "0".parse().unwrap());
        trailers.insert("x-checksum", asked);
        trailers.insert("tidegate-utilization", "0.5".parse().unwrap());
        let frames = [
            Ok(Frame::data(body.to_bytes())),
            Ok(Frame::trailers(trailers)),
        ];
        let mut reply =
            Response::new(StreamBody::new(futures_util::stream::iter(frames)).boxed_unsync());
        reply
            .headers_mut()
            .insert("content-type", "application/grpc".parse().unwrap());
        reply
    })
    .await;
    let proxy = proxy(&[service.addr], "upstream.http2 = 'always'");
    let addr = proxy.local_addr();
    let mut sender = connect(addr).await;
    let mut trailers = HeaderMap::new();
    trailers.insert("x-checksum", "abc".parse().unwrap());
    let frames = [
        Ok::<_, std::io::Error>(Frame::data(Bytes::from("message"))),
        Ok(Frame::trailers(trailers)),
    ];
    let request = Request::post(format!("http://{addr}/pkg.Service/Call"))
        .header("te", "trailers")
        .header("content-type", "application/grpc")
        .body(StreamBody::new(futures_util::stream::iter(frames)))
        .unwrap();
    let response = within(sender.send_request(request)).await.unwrap();
    assert_eq!(response.status(), 200);
    let body = response.into_body().collect().await.unwrap();
    let trailers = body.trailers().unwrap().clone();
    assert_eq!(body.to_bytes(), "message");
    assert_eq!(trailers["grpc-status"], "0");
    assert_eq!(trailers["x-checksum"], "abc");
    assert!(!trailers.contains_key("tidegate-utilization"));
}

#[tokio::test]
async fn a_conversation_flows_while_the_request_is_still_open() {
    let service = Service::start(|request| async move {
        let body = request.into_body().into_data_stream();
        let upper = futures_util::StreamExt::map(body, |data| {
            Ok(Frame::data(Bytes::from(data.unwrap().to_ascii_uppercase())))
        });
        Response::new(StreamBody::new(upper).boxed_unsync())
    })
    .await;
    let proxy = proxy(&[service.addr], "upstream.http2 = 'always'");
    let addr = proxy.local_addr();
    let (questions, receiver) = tokio::sync::mpsc::unbounded_channel::<&'static str>();
    let stream = futures_util::stream::unfold(receiver, |mut receiver| async {
        let question = receiver.recv().await?;
        Some((
            Ok::<_, std::io::Error>(Frame::data(Bytes::from(question))),
            receiver,
        ))
    });
    let mut sender = connect(addr).await;
    let request = Request::post(format!("http://{addr}/"))
        .body(StreamBody::new(Box::pin(stream)))
        .unwrap();
    questions.send("one").unwrap();
    let response = within(sender.send_request(request)).await.unwrap();
    let mut body = response.into_body();
    for (next, expected) in [
        (Some("two"), "ONE"),
        (Some("three"), "TWO"),
        (None, "THREE"),
    ] {
        let frame = within(body.frame()).await.unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), expected);
        if let Some(next) = next {
            questions.send(next).unwrap();
        }
    }
    drop(questions);
    let end = within(body.collect()).await.unwrap();
    assert_eq!(end.to_bytes(), "", "nothing follows");
}

#[tokio::test]
async fn hosts_that_disagree_are_refused() {
    let service = Service::echo().await;
    let proxy = proxy(&[service.addr], "");
    let addr = proxy.local_addr();
    let mut sender = connect(addr).await;
    let mut request = get(addr, "/");
    request
        .headers_mut()
        .insert("host", "elsewhere".parse().unwrap());
    let response = within(sender.send_request(request)).await.unwrap();
    assert_eq!(response.status(), 400);
    assert_eq!(response.version(), Version::HTTP_2);
    assert_eq!(service.count(), 0);
}

#[tokio::test]
async fn a_client_that_cancels_all_it_asks_is_sent_away() {
    let service = Service::start(|_| async { std::future::pending::<Reply>().await }).await;
    let proxy = proxy(&[service.addr], "limits.early_resets = 10");
    let addr = proxy.local_addr();
    let mut sender = connect(addr).await;
    let mut cancelled = 0;
    let sent_away = async {
        while !sender.is_closed() {
            let seen = service.count();
            let mut response = Box::pin(sender.send_request(get(addr, "/")));
            // Cancelled as soon as it has reached the service, or been answered by the proxy.
            let arrived = eventually("it arrived", || service.count() > seen || cancelled >= 10);
            tokio::select! {
                () = arrived => {}
                _ = &mut response => {}
            }
            drop(response);
            cancelled += 1;
            tokio::task::yield_now().await;
        }
    };
    within(sent_away).await;
    assert!(service.count() <= 11, "{}", service.count());
}

#[tokio::test]
async fn refusals_keep_the_connection() {
    let service = Service::echo().await;
    let proxy = proxy(
        &[service.addr],
        "protect.mode = 'static'\nprotect.static.share = '0%'",
    );
    let addr = proxy.local_addr();
    let mut sender = connect::<Full<Bytes>>(addr).await;
    for _ in 0..3 {
        let request = Request::post(format!("http://{addr}/"))
            .body(Full::from("x".repeat(10_000)))
            .unwrap();
        let response = within(sender.send_request(request)).await.unwrap();
        assert_eq!(response.status(), 503);
        assert!(response.headers().contains_key("retry-after"));
    }
}

#[tokio::test]
async fn a_shutdown_finishes_the_streams_and_says_goodbye() {
    let (service, permits) = Service::held().await;
    let mut proxy = proxy(&[service.addr], "");
    let addr = proxy.local_addr();
    let mut sender = connect(addr).await;
    let responses: Vec<_> = (0..10)
        .map(|_| sender.send_request(get(addr, "/")))
        .collect();
    eventually("all are in service", || service.count() == 10).await;
    proxy.shut_down();
    permits.add_permits(10);
    for response in responses {
        assert_eq!(within(response).await.unwrap().status(), 200);
    }
    eventually("the client is told to go", || sender.is_closed()).await;
    within(proxy.finished()).await;
}

#[tokio::test]
async fn a_stream_that_nobody_reads_holds_no_slot() {
    let service = Service::start(|_| async { text(vec![0; 8 << 20]) }).await;
    let proxy = proxy(
        &[service.addr],
        "protect.mode = 'static'\nprotect.static.window = 100\nprotect.limits.slots = 1",
    );
    let addr = proxy.local_addr();
    let mut sender = connect(addr).await;
    let response = within(sender.send_request(get(addr, "/"))).await.unwrap();
    let state = proxy.state();
    let in_flight = || state.first().sentry().status(state.now()).replicas[0].in_flight;
    eventually("its slot is free", || in_flight() == 0).await;
    let body = within(response.into_body().collect()).await.unwrap();
    assert_eq!(
        body.to_bytes().len(),
        8 << 20,
        "and it still gets everything"
    );
}

#[tokio::test]
async fn a_response_that_breaks_off_is_seen_to_break_off() {
    for head in ["content-length: 1000", "transfer-encoding: chunked"] {
        let service = raw_service(move |mut stream, _| async move {
            read_head(&mut stream).await;
            let answer = format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n5\r\nhello\r\n");
            stream.write_all(answer.as_bytes()).await.unwrap();
        })
        .await;
        let proxy = proxy(&[service], "");
        let addr = proxy.local_addr();
        let mut sender = connect(addr).await;
        let response = within(sender.send_request(get(addr, "/"))).await.unwrap();
        assert_eq!(response.status(), 200);
        let whole = within(response.into_body().collect()).await;
        assert!(
            whole.is_err(),
            "{head}: a truncated body is not a whole one"
        );
    }
}

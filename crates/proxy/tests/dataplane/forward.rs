//! Requests and responses of every shape pass unharmed.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use http::Response;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use tokio::io::AsyncWriteExt;

use crate::support::*;

#[tokio::test]
async fn a_get_reaches_the_service_and_its_answer_comes_back() {
    let service = Service::echo().await;
    let proxy = proxy(&[service.addr], "");
    let answer = ask(
        proxy.local_addr(),
        "GET /a?b=c HTTP/1.1\r\nhost: shop.example\r\nx-own: 1\r\n\r\n",
    )
    .await;
    assert_eq!(answer.status, 200);
    let text = answer.text();
    assert!(text.starts_with("GET /a?b=c HTTP/1.1\n"), "{text}");
    for line in [
        "host: shop.example",
        "x-own: 1",
        "x-forwarded-for: 127.0.0.1",
        "x-forwarded-proto: http",
        "tidegate-class: default",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} in {text}");
    }
}

/// What the echo of a request has under a name.
fn echoed(text: &str, name: &str) -> Vec<String> {
    let start = format!("{name}: ");
    let lines = text.lines().filter_map(|line| line.strip_prefix(&start));
    lines.map(str::to_owned).collect()
}

#[tokio::test]
async fn request_id_is_made_for_strangers_and_taken_over_from_trusted_proxies() {
    let service = Service::echo().await;
    let request = "GET / HTTP/1.1\r\nhost: a\r\nx-request-id: edge-7\r\n\r\n";
    let stranger = proxy(&[service.addr], "");
    let made = ask(stranger.local_addr(), request).await.text();
    let made = echoed(&made, "x-request-id");
    assert_eq!(made.len(), 1);
    assert!(made[0].len() == 16 && made[0] != "edge-7", "{made:?}");
    let trusting = proxy(&[service.addr], "forward.trust = ['127.0.0.0/8']");
    let kept = ask(trusting.local_addr(), request).await.text();
    assert_eq!(echoed(&kept, "x-request-id"), ["edge-7"]);
    let off = proxy(&[service.addr], "forward.request_id = false");
    let plain = ask(off.local_addr(), GET).await.text();
    assert!(echoed(&plain, "x-request-id").is_empty());
}

#[tokio::test]
async fn request_id_is_one_in_access_log_and_refusal() {
    let service = Service::echo().await;
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("access.log");
    let config = format!(
        "protect.mode = 'static'\nprotect.static.share = '0%'\naccess_log = '{}'\n\
         forward.trust = ['127.0.0.0/8']",
        log.display()
    );
    let proxy = proxy(&[service.addr], &config);
    for (field, id) in [("", None), ("x-request-id: edge-8\r\n", Some("edge-8"))] {
        let head = format!("GET / HTTP/1.1\r\nhost: a\r\n{field}\r\n");
        let answer = ask(proxy.local_addr(), head).await;
        let answered = answer.header("x-request-id").unwrap().to_owned();
        assert!(id.is_none_or(|id| id == answered), "{answered}");
        let line = format!("\"request_id\":\"{answered}\"");
        eventually("the access log has it", || {
            std::fs::read_to_string(&log).is_ok_and(|text| text.contains(&line))
        })
        .await;
    }
}

#[tokio::test]
async fn options_go_as_far_as_they_may() {
    let service = Service::echo().await;
    let proxy = proxy(&[service.addr], "");
    let mut client = Client::connect(proxy.local_addr()).await;
    let mut asked = async |method: &str, left: &str| {
        let head = format!("{method} / HTTP/1.1\r\nhost: a\r\nmax-forwards: {left}\r\n\r\n");
        client.ask(head).await
    };
    for (method, left, passed) in [
        ("OPTIONS", "7", "6"),
        ("OPTIONS", "many", "many"),
        ("GET", "0", "0"),
    ] {
        let text = asked(method, left).await.text();
        assert!(
            text.contains(&format!("max-forwards: {passed}\n")),
            "{text}"
        );
    }
    let served = service.count();
    let here = asked("OPTIONS", "0").await;
    assert_eq!(here.status, 200);
    assert!(here.header("allow").unwrap().contains("GET"));
    assert_eq!(service.count(), served, "it went further");
}

#[tokio::test]
async fn connections_are_reused_on_both_sides() {
    let service = Service::echo().await;
    let proxy = proxy(&[service.addr], "");
    let mut client = Client::connect(proxy.local_addr()).await;
    for _ in 0..20 {
        assert_eq!(client.ask(GET).await.status, 200);
    }
    assert_eq!(service.connections.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let service = Service::echo().await;
    let proxy = proxy(&[service.addr], "");
    let mut client = Client::connect(proxy.local_addr()).await;
    let requests: String = (0..10)
        .map(|n| format!("GET /{n} HTTP/1.1\r\nhost: a\r\n\r\n"))
        .collect();
    client.send(requests).await;
    for n in 0..10 {
        let text = client.answer().await.text();
        assert!(text.starts_with(&format!("GET /{n} ")), "{text}");
    }
}

/// What is not there yet on a new connection is waited for, whatever has been read already.
#[tokio::test]
async fn a_request_in_pieces_is_served_on_a_new_connection() {
    let service = Service::echo().await;
    let proxy = proxy(&[service.addr], "");
    let mut client = Client::connect(proxy.local_addr()).await;
    for piece in [
        "POST / HTTP/1.1\r\nhost: a\r\n",
        "content-length: 5\r\n\r\n",
    ] {
        client.send(piece).await;
        // A request that is answered came later: the piece has been seen.
        assert_eq!(ask(proxy.local_addr(), GET).await.status, 200);
    }
    let text = client.ask("hello").await.text();
    assert!(text.ends_with("\n\nhello"), "{text}");
}

#[tokio::test]
async fn bodies_arrive_whole_by_length_and_by_chunks() {
    let service = Service::echo().await;
    let proxy = proxy(&[service.addr], "");
    let mut client = Client::connect(proxy.local_addr()).await;
    let sized = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\nhello";
    assert!(client.ask(sized).await.text().ends_with("\n\nhello"));
    let chunked = "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n";
    let text = client.ask(chunked).await.text();
    assert!(text.ends_with("\n\nhello"), "{text}");
    let empty = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n";
    assert!(
        client
            .ask(empty)
            .await
            .text()
            .contains("content-length: 0\n")
    );
}

#[tokio::test]
async fn a_head_that_comes_in_pieces_is_put_together() {
    let service = Service::echo().await;
    let proxy = proxy(&[service.addr], "");
    let mut client = Client::connect(proxy.local_addr()).await;
    for piece in "POST /x HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nok"
        .as_bytes()
        .chunks(7)
    {
        client.send(piece).await;
        tokio::task::yield_now().await;
    }
    assert!(client.answer().await.text().ends_with("\n\nok"));
}

#[tokio::test]
async fn head_requests_keep_the_length_and_have_no_body() {
    let service = Service::start(|_| async { text("hello") }).await;
    let proxy = proxy(&[service.addr], "");
    let mut client = Client::connect(proxy.local_addr()).await;
    client.send("HEAD / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    let answer = client.try_answer(true).await.unwrap();
    assert_eq!(
        (answer.status, answer.header("content-length")),
        (200, Some("5"))
    );
    assert_eq!(
        client.ask(GET).await.body,
        b"hello",
        "the connection still serves"
    );
}

#[tokio::test]
async fn large_bodies_stream_both_ways() {
    const PIECE: usize = 64 << 10;
    const PIECES: usize = 256;
    let service = Service::start(|request| async move {
        let mut received = 0;
        let mut body = request.into_body();
        while let Some(frame) = body.frame().await {
            received += frame.unwrap().into_data().unwrap().len();
        }
        let pieces = (0..PIECES).map(|n| Ok(Frame::data(Bytes::from(vec![n as u8; PIECE]))));
        let mut reply = Response::new(StreamBody::new(stream_of(pieces)).boxed_unsync());
        reply.headers_mut().insert("x-received", received.into());
        reply
    })
    .await;
    let proxy = proxy(&[service.addr], "");
    let mut client = Client::connect(proxy.local_addr()).await;
    let length = PIECE * PIECES;
    client
        .send(format!(
            "PUT / HTTP/1.1\r\nhost: a\r\ncontent-length: {length}\r\n\r\n"
        ))
        .await;
    for _ in 0..PIECES {
        client.send(vec![7; PIECE]).await;
    }
    let answer = client.answer().await;
    assert_eq!(
        answer.header("x-received"),
        Some(length.to_string().as_str())
    );
    assert_eq!(answer.body.len(), length);
    assert!(
        answer
            .body
            .chunks(PIECE)
            .enumerate()
            .all(|(n, piece)| piece.iter().all(|&b| b == n as u8))
    );
}

fn stream_of<T>(items: impl Iterator<Item = T>) -> impl futures_util::Stream<Item = T> {
    let mut items = items;
    futures_util::stream::poll_fn(move |_| std::task::Poll::Ready(items.next()))
}

#[tokio::test]
async fn a_body_is_asked_for_only_when_the_request_is_admitted() {
    let service = Service::echo().await;
    let proxy = proxy(&[service.addr], "");
    let mut client = Client::connect(proxy.local_addr()).await;
    client
        .send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\nexpect: 100-continue\r\n\r\n")
        .await;
    assert_eq!(client.try_answer(false).await.unwrap().status, 100);
    let text = client.ask("ok").await.text();
    assert!(
        text.ends_with("\n\nok") && !text.contains("expect"),
        "{text}"
    );
}

#[tokio::test]
async fn interim_responses_are_passed_on_and_not_taken_for_the_answer() {
    let service = raw_service(|mut stream, _| async move {
        while !read_head(&mut stream).await.is_empty() {
            let answer = "HTTP/1.1 100 Continue\r\n\r\n\
                          HTTP/1.1 102 Processing\r\n\r\n\
                          HTTP/1.1 103 Early Hints\r\nlink: </a.css>; rel=preload\r\n\r\n\
                          HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nfinal";
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    })
    .await;
    let proxy = proxy(&[service], "");
    let mut client = Client::connect(proxy.local_addr()).await;
    for _ in 0..3 {
        client.send(GET).await;
        assert_eq!(client.try_answer(false).await.unwrap().status, 102);
        let hint = client.try_answer(false).await.unwrap();
        assert_eq!(hint.status, 103);
        assert_eq!(hint.header("link"), Some("</a.css>; rel=preload"));
        let answer = client.answer().await;
        assert_eq!((answer.status, &*answer.text()), (200, "final"));
        assert_eq!(
            answer.header("link"),
            None,
            "a hint is no part of the answer"
        );
    }
}

#[tokio::test]
async fn interim_responses_without_end_do_not_outlast_the_deadline() {
    let service = raw_service(|mut stream, _| async move {
        read_head(&mut stream).await;
        while stream
            .write_all(b"HTTP/1.1 103 Early Hints\r\n\r\n")
            .await
            .is_ok()
        {}
    })
    .await;
    let proxy = proxy(&[service], "timeouts.request = '300ms'");
    let mut client = Client::connect(proxy.local_addr()).await;
    client.send(GET).await;
    let mut status = 103;
    while status == 103 {
        status = client.try_answer(false).await.unwrap().status;
    }
    assert_eq!(status, 504);
}

#[tokio::test]
async fn who_expects_100_continue_is_asked_once_and_its_body_arrives_whole() {
    let service = Service::echo().await;
    let proxy = proxy(&[service.addr], "");
    let mut client = Client::connect(proxy.local_addr()).await;
    for framing in ["content-length: 5", "transfer-encoding: chunked"] {
        let head =
            format!("PUT / HTTP/1.1\r\nhost: a\r\n{framing}\r\nexpect: 100-Continue\r\n\r\n");
        client.send(head).await;
        assert_eq!(client.try_answer(false).await.unwrap().status, 100);
        let body = if framing.starts_with('c') {
            "hello"
        } else {
            "5\r\nhello\r\n0\r\n\r\n"
        };
        let answer = client.ask(body).await;
        assert_eq!(answer.status, 200);
        assert!(answer.text().ends_with("\n\nhello"), "{}", answer.text());
    }
    // Who sends its body without waiting is understood too.
    let eager =
        "PUT / HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\nexpect: 100-continue\r\n\r\nhello";
    let mut answer = client.ask(eager).await;
    if answer.status == 100 {
        answer = client.answer().await;
    }
    assert!(answer.text().ends_with("\n\nhello"), "{}", answer.text());
}

#[tokio::test]
async fn replicas_get_what_their_weights_say() {
    let (light, heavy) = (Service::echo().await, Service::echo().await);
    let text = format!(
        "upstream = ['http://{} weight=1', 'http://{} weight=3']\n{PLAIN}\nprotect.balance = 'round-robin'",
        light.addr, heavy.addr
    );
    let proxy = proxy_from(&text);
    let mut client = Client::connect(proxy.local_addr()).await;
    for _ in 0..100 {
        client.ask(GET).await;
    }
    assert!((23..=27).contains(&light.count()), "{}", light.count());
    let other = text.replace("weight=3", "weight=1");
    let config = tidegate_proxy::config::Config::from_text("test.toml", &other).unwrap();
    proxy.state().apply(config).unwrap();
    let before = light.count();
    for _ in 0..100 {
        client.ask(GET).await;
    }
    assert_eq!(light.count() - before, 50);
}

#[tokio::test]
async fn http_10_clients_are_served_and_let_go() {
    let service = Service::echo().await;
    let proxy = proxy(&[service.addr], "");
    let mut client = Client::connect(proxy.local_addr()).await;
    let answer = client.ask("GET / HTTP/1.0\r\n\r\n").await;
    assert_eq!(answer.status, 200);
    assert!(answer.text().contains(&format!("host: {}", service.addr)));
    assert!(client.is_closed().await);
}

#[tokio::test]
async fn requests_are_spread_over_the_replicas() {
    let (first, second) = (Service::echo().await, Service::echo().await);
    let proxy = proxy(
        &[first.addr, second.addr],
        "protect.balance = 'round-robin'",
    );
    let mut client = Client::connect(proxy.local_addr()).await;
    for _ in 0..100 {
        client.ask(GET).await;
    }
    assert_eq!((first.count(), second.count()), (50, 50));
}

#[tokio::test]
async fn a_cookie_keeps_a_client_on_its_replica() {
    let services = [
        Service::echo().await,
        Service::echo().await,
        Service::echo().await,
    ];
    let addrs = services.each_ref().map(|service| service.addr);
    let proxy = proxy(&addrs, "sticky.cookie = 'lane'");
    let mut client = Client::connect(proxy.local_addr()).await;
    let answer = client.ask(GET).await;
    let cookie = answer
        .header("set-cookie")
        .unwrap()
        .split(';')
        .next()
        .unwrap()
        .to_owned();
    let first = services
        .iter()
        .position(|service| service.count() == 1)
        .unwrap();
    for _ in 0..30 {
        let request = format!("GET / HTTP/1.1\r\nhost: a\r\ncookie: {cookie}\r\n\r\n");
        assert_eq!(client.ask(request).await.header("set-cookie"), None);
    }
    assert_eq!(services[first].count(), 31);
}

#[tokio::test]
async fn the_replica_can_be_told_its_own_host() {
    let service = Service::echo().await;
    let proxy = proxy(&[service.addr], "upstream.host = 'replica'");
    let text = ask(proxy.local_addr(), GET).await.text();
    assert!(
        text.contains(&format!("host: {}\n", service.addr)),
        "{text}"
    );
    assert!(text.contains("x-forwarded-host: a\n"), "{text}");
}

#[tokio::test]
async fn the_proxy_protocol_names_the_client() {
    let service = Service::echo().await;
    let text = format!(
        "admin = 'off'\nthreads = 1\nprotect.mode = 'off'\nupstream = 'http://{}'\n\
         listen = {{ addr = '127.0.0.1:0', proxy_protocol = true }}",
        service.addr
    );
    let proxy = proxy_from(&text);
    let line = "PROXY TCP4 192.0.2.9 198.51.100.1 56324 443\r\n";
    let answer = ask(proxy.local_addr(), format!("{line}{GET}")).await;
    assert!(
        answer.text().contains("x-forwarded-for: 192.0.2.9\n"),
        "{}",
        answer.text()
    );
    let mut block =
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xc0\0\x02\x0a\xc6\x33\x64\x01\xdc\x04\x01\xbb"
            .to_vec();
    block.extend_from_slice(GET.as_bytes());
    let answer = ask(proxy.local_addr(), block).await;
    assert!(
        answer.text().contains("x-forwarded-for: 192.0.2.10\n"),
        "{}",
        answer.text()
    );
    let mut stranger = Client::connect(proxy.local_addr()).await;
    stranger.send(GET).await;
    assert!(
        stranger.is_closed().await,
        "nobody comes in without the header"
    );
    eventually("it is counted", || {
        proxy.state().metrics().totals().turned_away == [0, 0, 1, 0]
    })
    .await;
}

#[tokio::test]
async fn a_response_until_the_close_is_passed_on_whole() {
    let service = raw_service(|mut stream, _| async move {
        read_head(&mut stream).await;
        stream
            .write_all(b"HTTP/1.0 200 OK\r\n\r\nuntil the end")
            .await
            .unwrap();
    })
    .await;
    let proxy = proxy(&[service], "");
    let mut client = Client::connect(proxy.local_addr()).await;
    for _ in 0..3 {
        assert_eq!(client.ask(GET).await.text(), "until the end");
    }
}

#[tokio::test]
async fn every_request_leaves_a_line_in_the_log() {
    let service = Service::echo().await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("access.log");
    let extra = format!("access_log = '{}'", file.display());
    let proxy = proxy(&[service.addr], &extra);
    let mut client = Client::connect(proxy.local_addr()).await;
    client
        .ask("GET /a?b HTTP/1.1\r\nhost: shop.example\r\nuser-agent: t\r\n\r\n")
        .await;
    client.ask("GET / HTTP/1.1\r\nbad name: 1\r\n\r\n").await;
    let text = || std::fs::read_to_string(&file).unwrap_or_default();
    eventually("two lines are written", || text().lines().count() == 2).await;
    let lines: Vec<serde_json::Value> = text()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let served = &lines[0];
    assert_eq!(served["target"], "/a?b");
    assert_eq!(served["host"], "shop.example");
    assert_eq!(served["client"], "127.0.0.1");
    assert_eq!(served["status"], 200);
    assert_eq!(served["class"], "default");
    assert_eq!(served["replica"], format!("http://{}", service.addr));
    assert!(served["bytes"].as_u64().unwrap() > 0 && served["ms"].as_f64().unwrap() > 0.0);
    assert_eq!(lines[1]["status"], 400);
    assert_eq!(
        (&lines[1]["reason"], &lines[1]["target"]),
        (&"malformed".into(), &"-".into())
    );
}

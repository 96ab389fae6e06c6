//! What a hostile client, or a replica that closes connections, must not bring about.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::support::*;

const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// A replica that answers once per connection and closes it when the second request has come: as
/// one does whose keep-alive time ends while a request is on its way.
async fn closes_under_requests(seen: Arc<AtomicUsize>) -> std::net::SocketAddr {
    raw_service(move |mut stream, _| {
        let seen = Arc::clone(&seen);
        async move {
            read_head(&mut stream).await;
            stream.write_all(OK).await.unwrap();
            if !read_head(&mut stream).await.is_empty() {
                seen.fetch_add(1, Ordering::SeqCst);
            }
        }
    })
    .await
}

#[tokio::test]
async fn get_that_meets_a_closing_connection_is_answered_and_costs_no_retry() {
    let closed = Arc::<AtomicUsize>::default();
    let addr = closes_under_requests(Arc::clone(&closed)).await;
    // No retry is granted at all.
    let proxy = proxy(&[addr], "retry.budget = '0%'\nretry.floor = '0/s'");
    let mut client = Client::connect(proxy.local_addr()).await;
    for n in 0..30 {
        assert_eq!(client.ask(GET).await.status, 200, "request {n}");
    }
    assert!(closed.load(Ordering::SeqCst) > 5, "connections were reused");
    let totals = proxy.state().metrics().totals();
    assert_eq!(totals.retries, 0);
    assert!(totals.failures.iter().all(|&failures| failures == 0));
}

#[tokio::test]
async fn post_that_meets_a_closing_connection_is_not_sent_twice() {
    let closed = Arc::<AtomicUsize>::default();
    let addr = closes_under_requests(Arc::clone(&closed)).await;
    let proxy = proxy(&[addr], "");
    let mut client = Client::connect(proxy.local_addr()).await;
    let post = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\n\r\nx";
    assert_eq!(client.ask(post).await.status, 200);
    assert_eq!(client.ask(post).await.status, 502);
}

#[tokio::test]
async fn address_that_a_stranger_claims_is_not_forwarded() {
    let service = Service::echo().await;
    let request = "GET / HTTP/1.1\r\nhost: a\r\nX-Real-IP: 6.6.6.6\r\n\r\n";
    let strict = proxy(&[service.addr], "");
    let text = ask(strict.local_addr(), request).await.text();
    assert!(!text.contains("6.6.6.6"), "{text}");
    let trusting = proxy(&[service.addr], "forward.trust = ['127.0.0.1/32']");
    let text = ask(trusting.local_addr(), request).await.text();
    assert!(text.contains("6.6.6.6"), "{text}");
}

async fn http2(
    addr: std::net::SocketAddr,
    request: Request<Full<Bytes>>,
) -> hyper::Result<http::Response<hyper::body::Incoming>> {
    let stream = TcpStream::connect(addr).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    within(sender.send_request(request)).await
}

fn grpc_call(addr: std::net::SocketAddr) -> http::request::Builder {
    Request::post(format!("http://{addr}/pkg.Service/Call"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
}

#[tokio::test]
async fn grpc_client_reads_its_own_status_when_it_is_shed_or_late() {
    let (service, _permits) = Service::held().await;
    let shedding = "protect.mode = 'static'\nprotect.static.share = '0%'";
    for (config, timeout, status) in [(shedding, "9S", "14"), ("", "100m", "4")] {
        let proxy = proxy(&[service.addr], config);
        let addr = proxy.local_addr();
        let call = grpc_call(addr).header("grpc-timeout", timeout);
        let request = call.body(Full::from("12345")).unwrap();
        let response = http2(addr, request).await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["grpc-status"], status);
        assert_eq!(response.headers()["content-type"], "application/grpc");
        assert!(
            http_body::Body::is_end_stream(response.body()),
            "headers alone"
        );
    }
}

#[tokio::test]
async fn http2_value_with_outer_white_space_is_rejected() {
    let service = Service::echo().await;
    let proxy = proxy(&[service.addr], "");
    let addr = proxy.local_addr();
    let padded = http::HeaderValue::from_bytes(b" padded").unwrap();
    let request = Request::get(format!("http://{addr}/")).header("x-a", padded);
    let response = http2(addr, request.body(Full::default()).unwrap()).await;
    assert_eq!(response.unwrap().status(), 400);
    assert_eq!(service.count(), 0);
}

#[tokio::test]
async fn connections_that_send_nothing_give_way_to_those_that_do() {
    let service = Service::echo().await;
    let proxy = proxy(
        &[service.addr],
        "limits.connections = 20\nlimits.connections_per_address = '100%'\ntimeouts.head = '60s'",
    );
    let mut slow = Vec::new();
    for _ in 0..20 {
        let mut client = Client::connect(proxy.local_addr()).await;
        client.send("GET / HT").await;
        slow.push(client);
    }
    eventually("all are open", || proxy.state().connections() == 20).await;
    let mut served = 0;
    for _ in 0..200 {
        // Those that have just come are not closed yet.
        let mut client = Client::connect(proxy.local_addr()).await;
        if client.try_send(GET).await && client.try_answer(false).await.is_some() {
            served += 1;
            if served == 10 {
                return;
            }
        } else {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    panic!("{served} of 10 were served");
}

/// A connection from another address of this machine.
async fn connect_from(source: [u8; 4], addr: std::net::SocketAddr) -> TcpStream {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind((source, 0).into()).unwrap();
    within(socket.connect(addr)).await.unwrap()
}

/// Bodies that never end: the proxy can only wait for such a client.
const ENDLESS: &[u8] = b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1000\r\n\r\nx";

#[tokio::test]
async fn address_has_no_more_than_its_share_of_the_connections() {
    let service = Service::echo().await;
    let proxy = proxy(&[service.addr], "limits.connections = 20");
    let mut slow = Vec::new();
    for _ in 0..30 {
        let mut stream = connect_from([127, 0, 0, 2], proxy.local_addr()).await;
        stream.write_all(ENDLESS).await.unwrap();
        slow.push(stream);
    }
    let refused = || proxy.state().metrics().totals().turned_away[1] == 20;
    eventually("its share is held and the rest closed", refused).await;
    assert_eq!(proxy.state().connections(), 10);
    for _ in 0..20 {
        assert_eq!(ask(proxy.local_addr(), GET).await.status, 200);
    }
}

#[tokio::test]
async fn proxy_that_is_trusted_has_as_many_connections_as_there_are() {
    let service = Service::echo().await;
    let trust = "limits.connections = 20\nforward.trust = ['127.0.0.2/32']";
    let proxy = proxy(&[service.addr], trust);
    let mut slow = Vec::new();
    for _ in 0..20 {
        let mut stream = connect_from([127, 0, 0, 2], proxy.local_addr()).await;
        stream.write_all(ENDLESS).await.unwrap();
        slow.push(stream);
    }
    eventually("all are open", || proxy.state().connections() == 20).await;
    assert_eq!(proxy.state().metrics().totals().turned_away, [0; 4]);
}

#[tokio::test]
async fn address_that_the_proxy_protocol_names_is_the_one_that_counts() {
    let service = Service::echo().await;
    let config = format!(
        "upstream = 'http://{}'\nadmin = 'off'\nthreads = 1\nprotect.mode = 'off'\n\
         listen = {{ addr = '127.0.0.1:0', proxy_protocol = true }}\n\
         limits = {{ connections = 100, connections_per_address = '10%' }}",
        service.addr
    );
    let proxy = proxy_from(&config);
    let mut open = Vec::new();
    for number in 0..30 {
        let mut client = Client::connect(proxy.local_addr()).await;
        let source = if number < 25 { 7 } else { number };
        client
            .send(format!("PROXY TCP4 192.0.2.{source} 192.0.2.1 5 80\r\n"))
            .await;
        client.send(ENDLESS).await;
        open.push(client);
    }
    let refused = || proxy.state().metrics().totals().turned_away[1] == 15;
    eventually("one of the clients has too many", refused).await;
    eventually("others have theirs", || proxy.state().connections() == 15).await;
}

#[tokio::test]
async fn connections_of_one_address_that_send_nothing_give_way_to_its_own() {
    let service = Service::echo().await;
    let proxy = proxy(
        &[service.addr],
        "limits.connections = 40\ntimeouts.head = '60s'",
    );
    let mut slow = Vec::new();
    for _ in 0..20 {
        let mut client = Client::connect(proxy.local_addr()).await;
        client.send("GET / HT").await;
        slow.push(client);
    }
    eventually("its share is open", || proxy.state().connections() == 20).await;
    let mut answers = 0;
    let mut ticks = tokio::time::interval(Duration::from_millis(20));
    while answers < 5 {
        within(ticks.tick()).await;
        let mut client = Client::connect(proxy.local_addr()).await;
        if client.try_send(GET).await {
            answers += usize::from(client.try_answer(false).await.is_some());
        }
    }
}

#[tokio::test]
async fn deadline_is_exact_to_a_few_milliseconds() {
    let (service, _permits) = Service::held().await;
    let proxy = proxy(&[service.addr], "");
    let mut client = Client::connect(proxy.local_addr()).await;
    let hasty = "GET / HTTP/1.1\r\nhost: a\r\ntidegate-deadline-ms: 30\r\n\r\n";
    // The shortest of many: the machine may be busy, but it is not busy all the time.
    let mut shortest = Duration::MAX;
    for _ in 0..30 {
        let begun = std::time::Instant::now();
        assert_eq!(client.ask(hasty).await.status, 504);
        shortest = shortest.min(begun.elapsed());
    }
    assert!(shortest >= Duration::from_millis(30), "{shortest:?}");
    assert!(shortest < Duration::from_millis(60), "{shortest:?}");
}

/// Most services finish what they began when a client leaves, so its place in `static.window` is
/// kept for as long as a request takes: half a second here. Each place is taken twice a second at
/// most, and no more connections are opened to the replica than requests were admitted.
#[tokio::test]
async fn static_window_holds_while_clients_leave() {
    const WINDOW: usize = 4;
    const TAKES: Duration = Duration::from_millis(500);
    let service = Service::start(|_| async {
        tokio::time::sleep(TAKES).await;
        text("served")
    })
    .await;
    let quota = format!("protect.mode = 'static'\nprotect.static.window = {WINDOW}");
    let proxy = proxy(&[service.addr], &quota);
    let addr = proxy.local_addr();
    assert_eq!(ask(addr, GET).await.status, 200);
    let status = || {
        let state = proxy.state();
        let applications = state.applications();
        let engine = applications.single().unwrap().sentry();
        engine.status(state.now()).classes[0].clone()
    };
    let begun = std::time::Instant::now();
    for left in 1..=100 {
        let mut client = Client::connect(addr).await;
        client.send(GET).await;
        eventually("it is judged", || status().arrived > left).await;
        drop(client);
        eventually("it is gone", || proxy.state().connections() == 0).await;
    }
    let places = 1 + begun.elapsed().as_millis() / TAKES.as_millis();
    let admitted = status().admitted as usize;
    let most = WINDOW * (1 + places as usize);
    assert!(admitted <= most, "{admitted} admitted, at most {most}");
    assert!(admitted > WINDOW, "{admitted} admitted");
    let connections = service.connections.load(Ordering::SeqCst);
    assert!(connections <= admitted, "{connections} for {admitted}");
}

#[tokio::test]
async fn methods_in_small_letters_fit() {
    let service = Service::echo().await;
    let rules = "protect.classes = [{ name = 'gold' }, { name = 'tin' }]\n\
                 classify = [{ class = 'gold', methods = ['post'] }]\ndefault_class = 'tin'";
    let proxy = proxy(&[service.addr], rules);
    let post = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n";
    let text = ask(proxy.local_addr(), post).await.text();
    assert!(text.contains("tidegate-class: gold"), "{text}");
    let text = ask(proxy.local_addr(), GET).await.text();
    assert!(text.contains("tidegate-class: tin"), "{text}");
}

//! Replicas that are dead, hang, break off, lie or come back.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tidegate_proxy::health::Trip;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::support::*;

/// An address where nobody listens.
async fn nobody() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap()
}

const POST: &str = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nok";

#[tokio::test]
async fn a_dead_service_is_503_with_a_time_to_come_back() {
    let proxy = proxy(&[nobody().await], "");
    let mut client = Client::connect(proxy.local_addr()).await;
    for request in [GET, POST] {
        let answer = client.ask(request).await;
        assert_eq!(answer.status, 503);
        assert!(answer.header("retry-after").is_some());
    }
}

#[tokio::test]
async fn a_dead_replica_is_passed_over_whatever_the_method() {
    let service = Service::echo().await;
    let proxy = proxy(&[nobody().await, service.addr], "");
    for _ in 0..10 {
        assert_eq!(ask(proxy.local_addr(), POST).await.status, 200);
        assert_eq!(ask(proxy.local_addr(), GET).await.status, 200);
    }
    assert_eq!(service.count(), 20);
}

#[tokio::test]
async fn a_hanging_replica_is_504_and_its_slot_is_free() {
    let service = raw_service(|mut stream, _| async move {
        read_head(&mut stream).await;
        std::future::pending::<()>().await;
    })
    .await;
    let proxy = proxy(&[service], "timeouts.request = '200ms'");
    assert_eq!(ask(proxy.local_addr(), GET).await.status, 504);
    let state = proxy.state();
    eventually("the slot is free", || {
        state.first().sentry().status(state.now()).replicas[0].in_flight == 0
    })
    .await;
}

#[tokio::test]
async fn a_replica_whose_connections_all_hang_can_be_reached() {
    let service = raw_service(|mut stream, _| async move {
        read_head(&mut stream).await;
        std::future::pending::<()>().await;
    })
    .await;
    let extra =
        "upstream.connections_max = 1\ntimeouts.connect = '50ms'\nhealth.passive.failures = 1";
    let proxy = proxy(&[service], extra);
    let state = proxy.state();
    let mut first = Client::connect(proxy.local_addr()).await;
    first.send(GET).await;
    eventually("the first is in service", || {
        state.first().sentry().status(state.now()).replicas[0].in_flight == 1
    })
    .await;
    assert_eq!(ask(proxy.local_addr(), GET).await.status, 503);
    let trip = state.first().board().trip(tidegate_sentry::ReplicaId(0));
    assert_eq!(trip, Some(Trip::Faulty));
}

#[tokio::test]
async fn a_replica_that_never_ends_what_it_begins_is_taken_for_faulty() {
    for begins in ["", "half"] {
        let service = raw_service(move |mut stream, _| async move {
            read_head(&mut stream).await;
            let head = "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n";
            let _ = stream.write_all(format!("{head}{begins}").as_bytes()).await;
        })
        .await;
        let proxy = proxy(
            &[service],
            "health.passive.failures = 3\nretry.attempts = 0",
        );
        for _ in 0..3 {
            let mut client = Client::connect(proxy.local_addr()).await;
            client.send(GET).await;
            let answer = client.try_answer(false).await;
            assert!(answer.is_none_or(|answer| answer.status == 502));
        }
        let state = proxy.state();
        eventually("it is faulty", || {
            state.first().board().trip(tidegate_sentry::ReplicaId(0)) == Some(Trip::Faulty)
        })
        .await;
    }
}

/// Serves the first request of a connection, then closes as if it had timed out idle.
async fn closes_after_one(mut stream: TcpStream) {
    read_head(&mut stream).await;
    stream
        .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
        .await
        .unwrap();
    stream.shutdown().await.unwrap();
    // Stay until the proxy has noticed, so that it is a close and not a reset.
    let _ = stream.read(&mut [0]).await;
}

#[tokio::test]
async fn a_stale_connection_of_the_pool_harms_nobody() {
    let service = raw_service(|stream, _| closes_after_one(stream)).await;
    let proxy = proxy(&[service], "");
    let mut client = Client::connect(proxy.local_addr()).await;
    for _ in 0..20 {
        assert_eq!(client.ask(POST).await.status, 200);
    }
}

/// Reads a request and dies before it answers, `times` times; then answers.
async fn dies_before_answering(times: usize) -> (SocketAddr, Arc<AtomicUsize>) {
    let seen = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&seen);
    let addr = raw_service(move |mut stream, _| {
        let counter = Arc::clone(&counter);
        async move {
            while !read_head(&mut stream).await.is_empty() {
                if counter.fetch_add(1, Ordering::SeqCst) < times {
                    return;
                }
                stream
                    .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
                    .await
                    .unwrap();
            }
        }
    })
    .await;
    (addr, seen)
}

#[tokio::test]
async fn an_idempotent_request_survives_the_death_of_its_replica() {
    let (addr, seen) = dies_before_answering(1).await;
    let proxy = proxy(&[addr], "");
    assert_eq!(ask(proxy.local_addr(), GET).await.status, 200);
    assert_eq!(seen.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_post_is_never_sent_twice() {
    let (addr, seen) = dies_before_answering(usize::MAX).await;
    let proxy = proxy(&[addr], "");
    let post = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n";
    assert_eq!(ask(proxy.local_addr(), post).await.status, 502);
    assert_eq!(seen.load(Ordering::SeqCst), 1);
}

const TWO_SLOTS: &str = "protect.mode = 'static'\nprotect.static.window = 100\n\
                         protect.limits.slots = 1\nhealth.passive.failures = 0";

fn waiting(proxy: &tidegate_proxy::Running) -> u32 {
    let state = proxy.state();
    state.first().sentry().status(state.now()).queue.requests
}

/// A proxy whose good replica is busy until it gets permits, beside a bad one that has room.
async fn busy_beside(
    bad: SocketAddr,
    extra: &str,
) -> (tidegate_proxy::Running, Service, Arc<Semaphore>, Client) {
    let (service, permits) = Service::held().await;
    let proxy = proxy(&[bad, service.addr], &format!("{TWO_SLOTS}\n{extra}"));
    let mut first = Client::connect(proxy.local_addr()).await;
    first.send(GET).await;
    eventually("the good one is busy", || service.count() == 1).await;
    (proxy, service, permits, first)
}

#[tokio::test]
async fn what_a_dead_replica_never_saw_waits_for_another() {
    let (proxy, service, permits, mut first) = busy_beside(nobody().await, "").await;
    let mut second = Client::connect(proxy.local_addr()).await;
    second.send(POST).await;
    eventually("it waits again", || waiting(&proxy) == 1).await;
    permits.add_permits(2);
    assert_eq!(first.answer().await.status, 200);
    assert_eq!(second.answer().await.status, 200);
    assert_eq!(service.count(), 2);
}

#[tokio::test]
async fn who_waits_again_waits_no_longer_than_its_deadline() {
    let (proxy, service, _permits, _first) = busy_beside(nobody().await, "").await;
    let hasty =
        "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\ntidegate-deadline-ms: 300\r\n\r\nok";
    // The engine calls it expired, or its own timer ends it: whichever sees the deadline first.
    let answer = ask(proxy.local_addr(), hasty).await;
    assert!([503, 504].contains(&answer.status), "{answer:?}");
    assert_eq!(service.count(), 1, "it was not sent");
    assert_eq!(waiting(&proxy), 0);
}

#[tokio::test]
async fn only_what_may_be_repeated_waits_after_it_was_seen() {
    let (bad, seen) = dies_before_answering(usize::MAX).await;
    let (proxy, service, permits, mut first) = busy_beside(bad, "").await;
    let before = seen.load(Ordering::SeqCst);
    let mut second = Client::connect(proxy.local_addr()).await;
    second.send(GET).await;
    eventually("it waits again", || waiting(&proxy) == 1).await;
    assert_eq!(seen.load(Ordering::SeqCst), before + 1);
    let post = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n";
    assert_eq!(ask(proxy.local_addr(), post).await.status, 502);
    assert_eq!(seen.load(Ordering::SeqCst), before + 2);
    permits.add_permits(2);
    assert_eq!(first.answer().await.status, 200);
    assert_eq!(second.answer().await.status, 200);
    assert_eq!(service.count(), 2, "the POST was not sent again");
}

#[tokio::test]
async fn retries_stay_within_their_budget() {
    let (addr, seen) = dies_before_answering(usize::MAX).await;
    let proxy = proxy(&[addr], "retry = { budget = '10%', floor = '0/s' }");
    let mut client = Client::connect(proxy.local_addr()).await;
    for _ in 0..50 {
        assert_eq!(client.ask(GET).await.status, 502);
    }
    let seen = seen.load(Ordering::SeqCst);
    assert!((50..=55).contains(&seen), "{seen}");
    let totals = proxy.state().metrics().totals();
    assert_eq!(totals.retries as usize, seen - 50);
    assert!(totals.retries_denied > 0);
}

#[tokio::test]
async fn a_response_that_breaks_off_is_seen_to_break_off() {
    let service = raw_service(|mut stream, _| async move {
        read_head(&mut stream).await;
        stream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\nonly this")
            .await
            .unwrap();
    })
    .await;
    let proxy = proxy(&[service], "");
    let mut client = Client::connect(proxy.local_addr()).await;
    client.send(GET).await;
    assert!(
        client.try_answer(false).await.is_none(),
        "a truncated body is not a whole one"
    );
    let chunked = raw_service(|mut stream, _| async move {
        read_head(&mut stream).await;
        stream
            .write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n")
            .await
            .unwrap();
    })
    .await;
    let proxy = crate::support::proxy(&[chunked], "");
    let mut client = Client::connect(proxy.local_addr()).await;
    client.send(GET).await;
    assert!(client.try_answer(false).await.is_none());
}

#[tokio::test]
async fn malformed_responses_are_502_and_the_connection_is_not_used_again() {
    for lie in [
        "nonsense\r\n\r\n",
        "220 mail.example ESMTP\r\n",
        "SSH",
        "HTTP/1.1 abc OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 2\r\n\r\nab",
        "HTTP/1.1 200 OK\r\ncontent-length: 2, 2\r\n\r\nab",
        "HTTP/1.1 200 OK\r\ncontent-length: 9\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nx: a\r\n folded\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nbad header: 1\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
    ] {
        let service = raw_service(move |mut stream, _| async move {
            while !read_head(&mut stream).await.is_empty() {
                let _ = stream.write_all(lie.as_bytes()).await;
            }
        })
        .await;
        let proxy = proxy(&[service], "retry.attempts = 0");
        let mut client = Client::connect(proxy.local_addr()).await;
        for _ in 0..2 {
            assert_eq!(client.ask(GET).await.status, 502, "{lie:?}");
        }
    }
}

#[tokio::test]
async fn bytes_behind_a_response_are_nobodys_next_response() {
    let service = raw_service(|mut stream, number| async move {
        read_head(&mut stream).await;
        let smuggled = "HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\nsmuggle";
        let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n{number}{smuggled}");
        stream.write_all(answer.as_bytes()).await.unwrap();
        let _ = stream.read(&mut [0]).await;
    })
    .await;
    let proxy = proxy(&[service], "");
    let mut client = Client::connect(proxy.local_addr()).await;
    for number in 0..5 {
        assert_eq!(client.ask(GET).await.text(), number.to_string());
    }
}

#[tokio::test]
async fn a_service_that_comes_back_is_used_again() {
    let addr = nobody().await;
    let proxy = proxy(&[addr], "");
    assert_eq!(ask(proxy.local_addr(), GET).await.status, 503);
    let listener = TcpListener::bind(addr).await.unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(closes_after_one(stream));
        }
    });
    assert_eq!(ask(proxy.local_addr(), GET).await.status, 200);
}

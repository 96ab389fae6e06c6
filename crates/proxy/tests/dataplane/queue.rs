//! Waiting for a slot, and leaving while waiting.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tidegate_proxy::Running;
use tokio::sync::Semaphore;

use crate::support::*;

const ONE_SLOT: &str =
    "protect.mode = 'static'\nprotect.static.window = 100\nprotect.limits.slots = 1";

fn waiting(proxy: &Running) -> u32 {
    let state = proxy.state();
    state.first().sentry().status(state.now()).queue.requests
}

fn in_flight(proxy: &Running) -> u32 {
    let state = proxy.state();
    state.first().sentry().status(state.now()).replicas[0].in_flight
}

#[tokio::test]
async fn requests_wait_for_a_slot_in_turn() {
    let (service, permits) = Service::held().await;
    let proxy = proxy(&[service.addr], ONE_SLOT);
    let mut clients = Vec::new();
    for n in 0..3 {
        let mut client = Client::connect(proxy.local_addr()).await;
        client.send(GET).await;
        clients.push(client);
        eventually("it arrived", || {
            waiting(&proxy) + in_flight(&proxy) == n + 1
        })
        .await;
    }
    eventually("the first is served", || service.count() == 1).await;
    assert_eq!(waiting(&proxy), 2);
    permits.add_permits(3);
    for client in &mut clients {
        assert_eq!(client.answer().await.status, 200);
    }
    eventually("nothing is left", || {
        waiting(&proxy) + in_flight(&proxy) == 0
    })
    .await;
}

#[tokio::test]
async fn a_client_that_leaves_leaves_the_queue_at_once() {
    let (service, permits) = Service::held().await;
    let proxy = proxy(&[service.addr], ONE_SLOT);
    let mut first = Client::connect(proxy.local_addr()).await;
    first.send(GET).await;
    eventually("the first is in service", || service.count() == 1).await;
    let mut second = Client::connect(proxy.local_addr()).await;
    second.send(GET).await;
    eventually("the second waits", || waiting(&proxy) == 1).await;
    drop(second);
    eventually("the second is gone", || waiting(&proxy) == 0).await;
    permits.add_permits(1);
    assert_eq!(first.answer().await.status, 200);
    assert_eq!(service.count(), 1);
}

#[tokio::test]
async fn a_client_that_leaves_with_its_body_half_read_costs_no_slot() {
    let (service, permits) = Service::held().await;
    let buffer = format!("{ONE_SLOT}\nlimits.upload_buffer = '32KiB'");
    let proxy = proxy(&[service.addr], &buffer);
    let mut first = Client::connect(proxy.local_addr()).await;
    first.send(GET).await;
    eventually("the first is in service", || service.count() == 1).await;
    // More than is read ahead, so that hyper no longer looks at the socket; and less than the
    // kernel holds for us, so that the close arrives behind it.
    let mut second = Client::connect(proxy.local_addr()).await;
    second
        .send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 80000\r\n\r\n")
        .await;
    second.send(vec![0; 80_000]).await;
    eventually("the second waits", || waiting(&proxy) == 1).await;
    drop(second);
    permits.add_permits(10);
    assert_eq!(first.answer().await.status, 200);
    eventually("nothing is left", || {
        waiting(&proxy) + in_flight(&proxy) == 0
    })
    .await;
    assert_eq!(
        service.count(),
        1,
        "the request of a client that left was not sent"
    );
}

#[tokio::test]
async fn a_client_that_leaves_in_service_frees_its_slot() {
    let (service, _permits) = Service::held().await;
    let proxy = proxy(&[service.addr], ONE_SLOT);
    let mut client = Client::connect(proxy.local_addr()).await;
    client.send(GET).await;
    eventually("it is in service", || service.count() == 1).await;
    drop(client);
    eventually("its slot is free", || in_flight(&proxy) == 0).await;
}

#[tokio::test]
async fn a_slow_reader_holds_no_slot() {
    let service = Service::start(|_| async { text(vec![0; 32 << 20]) }).await;
    let proxy = proxy(&[service.addr], ONE_SLOT);
    let mut slow = Client::connect(proxy.local_addr()).await;
    slow.send(GET).await;
    eventually("it is in service", || service.count() == 1).await;
    eventually("its slot is free", || in_flight(&proxy) == 0).await;
    assert_eq!(
        slow.answer().await.body.len(),
        32 << 20,
        "and it still gets everything"
    );
}

#[tokio::test]
async fn a_slow_sender_holds_no_slot() {
    let service = Service::echo().await;
    let proxy = proxy(&[service.addr], ONE_SLOT);
    let mut slow = Client::connect(proxy.local_addr()).await;
    slow.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\nhello")
        .await;
    assert_eq!(ask(proxy.local_addr(), GET).await.status, 200);
    let mut chunked = Client::connect(proxy.local_addr()).await;
    chunked
        .send("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n")
        .await;
    eventually("it is at the service", || service.count() == 2).await;
    eventually("its slot is free", || in_flight(&proxy) == 0).await;
    slow.send("world").await;
    assert!(slow.answer().await.text().ends_with("helloworld"));
    chunked.send("0\r\n\r\n").await;
    assert!(chunked.answer().await.text().ends_with("hello"));
}

#[tokio::test]
async fn event_streams_hold_no_slot_and_end_with_their_client() {
    let service = Service::start(|_| async {
        let never = futures_util::stream::pending();
        let mut reply = http::Response::new(http_body_util::BodyExt::boxed_unsync(
            http_body_util::StreamBody::new(never),
        ));
        reply
            .headers_mut()
            .insert("content-type", "text/event-stream".parse().unwrap());
        reply
    })
    .await;
    let proxy = proxy(&[service.addr], ONE_SLOT);
    let mut listener = Client::connect(proxy.local_addr()).await;
    listener.send(GET).await;
    assert_eq!(listener.try_answer(true).await.unwrap().status, 200);
    let streams = || {
        let state = proxy.state();
        state.first().sentry().status(state.now()).replicas[0].streams
    };
    eventually("it is a stream", || {
        streams() == 1 && in_flight(&proxy) == 0
    })
    .await;
    drop(listener);
    eventually("it has ended", || streams() == 0).await;
    assert_eq!(service.requests.load(Ordering::SeqCst), 1);
}

/// A language model computes each piece of its answer.
#[tokio::test]
async fn event_stream_that_is_work_holds_its_slot_until_it_ends() {
    let pieces = Arc::new(Semaphore::new(0));
    let turns = Arc::clone(&pieces);
    let service = Service::start(move |_| {
        let turns = Arc::clone(&turns);
        let answer = futures_util::stream::unfold(0, move |sent| {
            let turns = Arc::clone(&turns);
            async move {
                if sent == 2 {
                    return None;
                }
                turns.acquire_owned().await.unwrap().forget();
                let frame = http_body::Frame::data(bytes::Bytes::from_static(b"data: a\n\n"));
                Some((Ok(frame), sent + 1))
            }
        });
        async move {
            let mut reply = http::Response::new(http_body_util::BodyExt::boxed_unsync(
                http_body_util::StreamBody::new(answer),
            ));
            reply
                .headers_mut()
                .insert("content-type", "text/event-stream".parse().unwrap());
            reply
        }
    })
    .await;
    let more = format!("{ONE_SLOT}\nupstream.streams = 'work'");
    let proxy = proxy(&[service.addr], &more);
    let mut reader = Client::connect(proxy.local_addr()).await;
    reader.send(GET).await;
    assert_eq!(reader.try_answer(true).await.unwrap().status, 200);
    let replica = || {
        let state = proxy.state();
        let replica = state.first().sentry().status(state.now()).replicas[0].clone();
        (replica.streams, replica.in_flight, replica.served)
    };
    pieces.add_permits(1);
    eventually("the first piece is taken", || {
        pieces.available_permits() == 0
    })
    .await;
    assert_eq!(replica(), (0, 1, 0), "its slot is taken while it streams");
    pieces.add_permits(1);
    eventually("it ends, and was served", || replica() == (0, 0, 1)).await;
}

#[tokio::test]
async fn who_has_no_time_is_told_so() {
    let (service, _permits) = Service::held().await;
    let proxy = proxy(&[service.addr], "timeouts.request = '300ms'");
    assert_eq!(ask(proxy.local_addr(), GET).await.status, 504);
    let hasty = "GET / HTTP/1.1\r\nhost: a\r\ntidegate-deadline-ms: 60\r\n\r\n";
    assert_eq!(ask(proxy.local_addr(), hasty).await.status, 504);
    eventually("no slot is left behind", || in_flight(&proxy) == 0).await;
}

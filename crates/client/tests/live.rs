//! A client against a publisher and a server on loopback.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../channel/tests/support/mod.rs"]
mod support;

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use support::{Node, key, listener, publisher, soon, until};
use tidegate_channel::net::relay::Parents;
use tidegate_channel::net::{Dialer, HELD_HEADER, STAMP_HEADER};
use tidegate_channel::stamp::{Content, Stamp};
use tidegate_channel::{Strategy, Variant};
use tidegate_client::forward::{self, Forward};
use tidegate_client::outbox::Outbox;
use tidegate_client::{Client, Config, Outcome, Relaying, blocking};

/// A service that keeps what it was sent by item number, and fails as often as it is told to.
#[derive(Default)]
struct Service {
    items: Mutex<HashMap<u64, Vec<String>>>,
    fail: AtomicU32,
    /// Bans the next requests, as the proxy does.
    ban: AtomicU32,
}

impl Service {
    async fn start() -> (SocketAddr, Arc<Self>) {
        let (listener, addr) = listener().await;
        let service = Arc::new(Self::default());
        let shared = Arc::clone(&service);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let service = Arc::clone(&shared);
                let answer = service_fn(move |request| {
                    let service = Arc::clone(&service);
                    async move { Ok::<_, Infallible>(service.answer(request).await) }
                });
                let serving = http1::Builder::new().serve_connection(TokioIo::new(stream), answer);
                tokio::spawn(serving);
            }
        });
        (addr, service)
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let stamp = request.headers().get(STAMP_HEADER);
        let item = stamp.and_then(|stamp| Stamp::read(stamp.to_str().ok()?));
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let body = String::from_utf8(body.to_vec()).unwrap();
        if let Some(stamp) = item {
            let mut items = self.items.lock();
            items.entry(stamp.item).or_default().push(body.clone());
        }
        let mut response = Response::new(Full::from(format!("got {body}")));
        if take_one(&self.ban) {
            *response.status_mut() = StatusCode::FORBIDDEN;
            let headers = response.headers_mut();
            headers.insert(HELD_HEADER, HeaderValue::from_static("banned"));
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
            return response;
        }
        if take_one(&self.fail) {
            *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        }
        response
    }
}

/// Counts down; true while there was something left.
fn take_one(count: &AtomicU32) -> bool {
    let order = Ordering::SeqCst;
    let taken = count.fetch_update(order, order, |left| left.checked_sub(1));
    taken.is_ok()
}

fn config(publisher: &str, folder: &Path) -> Config {
    Config {
        parents: Parents::Fixed(vec![publisher.to_owned()]),
        ..Config::new(publisher, key().public(), folder.join("outbox.redb"))
    }
}

/// A client that may send once an hour by the last message.
async fn once_an_hour(folder: &Path) -> (Node, Client) {
    let publisher = publisher().await;
    publisher.say(1, Strategy::Interval(Duration::from_secs(3600)));
    let client = Client::open(config(&publisher.url(), folder)).unwrap();
    until(|| !client.status().partitioned).await;
    (publisher, client)
}

fn bid(addr: SocketAddr, amount: &str) -> Request<Bytes> {
    let request = Request::post(format!("http://{addr}/bids"));
    request.body(Bytes::from(amount.to_owned())).unwrap()
}

#[tokio::test]
async fn item_waits_for_its_turn_and_the_newest_wins() {
    let folder = tempfile::tempdir().unwrap();
    let (publisher, client) = once_an_hour(folder.path()).await;
    let (addr, service) = Service::start().await;
    // The first goes at once, then the hour's window is used.
    let first = client.submit(bid(addr, "1"), Some("lot")).unwrap();
    assert!(matches!(soon(first.outcome()).await, Outcome::Answered(_)));
    let second = client.submit(bid(addr, "2"), Some("lot")).unwrap();
    let third = client.submit(bid(addr, "3"), Some("lot")).unwrap();
    assert!(matches!(soon(second.outcome()).await, Outcome::Replaced));
    assert_eq!(client.status().pending, 1);
    publisher.say(2, Strategy::Open);
    let Outcome::Answered(response) = soon(third.outcome()).await else {
        panic!("the third bid has no answer")
    };
    assert_eq!(&response.body()[..], b"got 3");
    let items: Vec<_> = service.items.lock().values().flatten().cloned().collect();
    assert_eq!(items.len(), 2, "{items:?}");
}

#[tokio::test]
async fn item_has_a_deadline_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let publisher = publisher().await;
    let hour = Strategy::Interval(Duration::from_secs(3600));
    publisher.say(1, hour.clone());
    let client = Client::open(Config {
        grace: Duration::ZERO,
        ..config(&publisher.url(), folder.path())
    })
    .unwrap();
    until(|| !client.status().partitioned).await;
    let (addr, service) = Service::start().await;
    let first = client.submit(bid(addr, "1"), None).unwrap();
    assert!(matches!(soon(first.outcome()).await, Outcome::Answered(_)));
    let short = client.submit_within(bid(addr, "2"), None, Duration::from_millis(1));
    let usual = client.submit(bid(addr, "3"), None).unwrap();
    // It is given up when a message of the server comes after its time, by the server's clock.
    until(|| client.status().overdue == 1).await;
    let short = short.unwrap();
    let outcome = short.outcome();
    tokio::pin!(outcome);
    let mut number = 1;
    let outcome = soon(async {
        loop {
            number += 1;
            publisher.say(number, hour.clone());
            let wait = Duration::from_millis(100);
            if let Ok(outcome) = tokio::time::timeout(wait, &mut outcome).await {
                return outcome;
            }
        }
    })
    .await;
    assert!(matches!(outcome, Outcome::Expired));
    assert_eq!(client.status().pending, 1);
    publisher.say(number + 1, Strategy::Open);
    assert!(matches!(soon(usual.outcome()).await, Outcome::Answered(_)));
    assert!(!service.items.lock().contains_key(&2));
}

#[tokio::test]
async fn failed_item_goes_again_with_its_number_and_survives_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let publisher = publisher().await;
    let (addr, service) = Service::start().await;
    service.fail.store(1, Ordering::SeqCst);
    publisher.say(1, Strategy::Open);
    let queue = Config {
        variant: Variant::Queue,
        ..config(&publisher.url(), folder.path())
    };
    let client = Client::open(queue.clone()).unwrap();
    let id = client.id();
    let ticket = client.submit(bid(addr, "7"), None).unwrap();
    let number = ticket.number;
    until(|| !service.items.lock().is_empty()).await;
    drop(client);
    assert!(matches!(soon(ticket.outcome()).await, Outcome::Kept));
    let client = Client::open(queue).unwrap();
    assert_eq!(client.id(), id);
    until(|| client.status().pending == 0).await;
    let sent = service.items.lock()[&number].clone();
    assert_eq!(sent, ["7", "7"], "the same item twice, by its number");
}

#[test]
fn program_without_async_waits_for_its_answer() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let (publisher, (addr, _)) =
        runtime.block_on(async { (publisher().await, Service::start().await) });
    publisher.say(1, Strategy::Open);
    // The servers live as long as they are run.
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let servers = std::thread::spawn(move || runtime.block_on(stopped));
    let client = blocking::Client::open(config(&publisher.url(), folder.path())).unwrap();
    let ticket = client.submit(bid(addr, "9"), None).unwrap();
    assert_eq!(ticket.number(), 1);
    assert!(matches!(ticket.outcome(), Outcome::Answered(response) if response.status() == 200));
    drop(client);
    let _ = stop.send(());
    let _ = servers.join();
}

#[tokio::test]
async fn forward_proxy_holds_back_for_any_program() {
    let folder = tempfile::tempdir().unwrap();
    let publisher = publisher().await;
    let (addr, service) = Service::start().await;
    publisher.say(1, Strategy::Open);
    let (listener, local) = listener().await;
    let forward = Arc::new(Forward {
        client: Client::open(config(&publisher.url(), folder.path())).unwrap(),
        server: Some(format!("http://{addr}")),
    });
    tokio::spawn(forward::serve(listener, forward));
    let send = |request: Request<Full<Bytes>>| async {
        let response = Dialer::default().send(request).await.unwrap();
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    };
    let base = format!("http://{local}");
    let late = Request::post(format!("{base}/bids"))
        .header("tidegate-delay-max", "soon")
        .body(Full::default())
        .unwrap();
    assert_eq!(soon(send(late)).await.0, 400);
    let post = |body: &str, prefer: &str| {
        Request::post(format!("{base}/bids"))
            .header("prefer", prefer)
            .body(Full::from(body.to_owned()))
            .unwrap()
    };
    assert_eq!(soon(send(post("5", ""))).await, (200, "got 5".to_owned()));
    let (status, body) = soon(send(post("6", "respond-async"))).await;
    assert_eq!((status, body.as_str()), (202, "{\"item\":2}\n"));
    until(|| service.items.lock().contains_key(&2)).await;
    let get = |path: &str| {
        Request::get(format!("{base}{path}"))
            .body(Full::default())
            .unwrap()
    };
    assert_eq!(soon(send(get("/"))).await, (200, "got ".to_owned()));
    let (status, body) = soon(send(get(forward::STATUS_PATH))).await;
    assert_eq!(status, 200);
    assert!(body.contains("\"partitioned\":false"), "{body}");
}

#[tokio::test]
async fn client_that_opted_in_passes_messages_on() {
    let folder = tempfile::tempdir().unwrap();
    let publisher = publisher().await;
    publisher.say(1, Strategy::Open);
    let relaying = Config {
        parents: Parents::Tracked {
            tracker: publisher.url(),
            own: None,
        },
        relay: Some(Relaying {
            listen: "127.0.0.1:0".parse().unwrap(),
            url: None,
        }),
        ..config(&publisher.url(), folder.path())
    };
    let relaying = Client::open(relaying).unwrap();
    until(|| !relaying.status().partitioned).await;
    let below = Config {
        outbox: folder.path().join("below.redb"),
        ..config(relaying.relay_url().unwrap(), folder.path())
    };
    let below = Client::open(below).unwrap();
    until(|| !below.status().partitioned).await;
    assert_eq!(relaying.hub().listeners(), 1);
    assert_eq!(publisher.hub.listeners(), 1);
}

#[tokio::test]
async fn ban_keeps_every_item_and_tells_its_owner() {
    let folder = tempfile::tempdir().unwrap();
    let publisher = publisher().await;
    let (addr, service) = Service::start().await;
    service.ban.store(2, Ordering::SeqCst);
    publisher.say(1, Strategy::Open);
    // The channel goes on speaking.
    let hub = publisher.hub.clone();
    tokio::spawn(async move {
        for seq in 2.. {
            tokio::time::sleep(Duration::from_millis(500)).await;
            hub.publish(&support::signed(seq, Strategy::Open, &key()));
        }
    });
    let queue = Config {
        variant: Variant::Queue,
        ..config(&publisher.url(), folder.path())
    };
    let client = Client::open(queue).unwrap();
    let tickets: Vec<_> = (0..8)
        .map(|bid_no| client.submit(bid(addr, &bid_no.to_string()), None).unwrap())
        .collect();
    until(|| client.status().held.is_some()).await;
    let status = client.status();
    let held = status.held.unwrap();
    assert_eq!((held.reason.as_str(), held.for_s), ("banned", 1));
    assert!(held.remedy.contains("pardon"));
    assert_eq!(status.pending, 8, "a ban is no answer");
    // The ban is over: all of them go.
    for ticket in tickets {
        let outcome = soon(ticket.outcome()).await;
        assert!(matches!(outcome, Outcome::Answered(response) if response.status() == 200));
    }
    assert_eq!(client.status().held, None);
}

#[tokio::test]
async fn stamp_is_for_this_request_with_a_clock_that_the_server_has_seen() {
    let folder = tempfile::tempdir().unwrap();
    let publisher = publisher().await;
    publisher.say(1, Strategy::Interval(Duration::from_secs(3600)));
    let client = Client::open(config(&publisher.url(), folder.path())).unwrap();
    until(|| client.status().clock_error_ms < 1000).await;
    let (addr, _) = Service::start().await;
    let first = client.submit(bid(addr, "1"), None).unwrap();
    assert!(matches!(soon(first.outcome()).await, Outcome::Answered(_)));
    // The second waits: it is on disk, with its stamp.
    client.submit(bid(addr, "2"), None).unwrap();
    drop(client);
    // Its tasks let go of the file when they are next looked at.
    let outbox = soon(async {
        loop {
            match Outbox::open(&folder.path().join("outbox.redb")) {
                Ok(outbox) => return outbox,
                Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    })
    .await;
    let (_, item) = outbox.items().unwrap().pop().unwrap();
    let stamp = Stamp::read(&item.stamp).unwrap();
    assert_eq!(stamp.content, Content::of("POST", "/bids", b"2"));
    let proof = stamp.clock.unwrap();
    assert!(proof.is_signed_by(&[key().public()]));
    assert!(proof.answer.error_at(stamp.made).unwrap() < Duration::from_secs(5));
}

//! Canaries and mirrors: applications that get requests of another one, under load and when they
//! fail.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http_body_util::BodyExt;
use tidegate_proxy::Running;
use tidegate_proxy::config::Config;

use crate::support::{Client, Service, ask, eventually, proxy_from, text};

const TOP: &str = "threads = 2\nlisten = '127.0.0.1:0'\nadmin = 'off'\n";

async fn named(name: &'static str) -> Service {
    Service::start(move |_| async move { text(name) }).await
}

fn file(main: SocketAddr, other: SocketAddr, keys: &str) -> String {
    format!(
        "{TOP}[[application]]\nname = 'shop'\nhosts = ['shop']\nupstream = 'http://{main}'\n\
         [[application]]\nname = 'next'\nupstream = 'http://{other}'\n{keys}\n"
    )
}

fn get(fields: &str) -> String {
    format!("GET / HTTP/1.1\r\nhost: shop\r\n{fields}\r\n")
}

async fn asked(proxy: &Running, fields: &str) -> String {
    let answer = ask(proxy.local_addr(), get(fields)).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.text()
}

/// Asks `count` times over a few connections at once; fails if one is not answered with 200.
async fn crowd(proxy: &Running, count: usize) {
    let addr = proxy.local_addr();
    let clients = (0..4).map(|_| {
        tokio::spawn(async move {
            let mut client = Client::connect(addr).await;
            for _ in 0..count / 4 {
                let answer = client.ask(get("")).await;
                assert_eq!(answer.status, 200, "{}", answer.text());
            }
        })
    });
    for client in clients.collect::<Vec<_>>() {
        client.await.expect("a request was lost");
    }
}

/// An address that refuses connections.
async fn nowhere() -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await;
    listener
        .and_then(|it| it.local_addr())
        .expect("a free port")
}

fn total(proxy: &Running, outcome: &str) -> u64 {
    let totals = proxy.state().companion_totals("next");
    let found = totals.into_iter().find(|(word, _)| *word == outcome);
    found.expect("it is counted").1
}

#[tokio::test]
async fn canary_is_chosen_by_header_then_cookie_then_share() {
    let (main, next) = (named("main").await, named("next").await);
    let keys = "canary = { of = 'shop', header = 'x-canary', cookie = 'c', share = '0%' }";
    let proxy = proxy_from(&file(main.addr, next.addr, keys));
    for (fields, expected) in [
        ("", "main"),
        ("x-canary: always\r\n", "next"),
        ("x-canary: never\r\ncookie: c=always\r\n", "main"),
        ("x-canary: perhaps\r\ncookie: a=b; c=always\r\n", "next"),
        ("cookie: c=never\r\n", "main"),
    ] {
        assert_eq!(asked(&proxy, fields).await, expected, "{fields}");
    }
    let keys = "canary = { of = 'shop', header = 'x-v', header_value = '2', share = 1 }";
    let all = Config::from_text("t.toml", &file(main.addr, next.addr, keys)).unwrap();
    proxy.state().apply(all).unwrap();
    assert_eq!(asked(&proxy, "").await, "next");
    assert_eq!(asked(&proxy, "x-v: never\r\n").await, "main");
}

#[tokio::test]
async fn canary_share_is_kept_under_load_with_windows_apart() {
    let (main, next) = (named("main").await, named("next").await);
    let keys = "canary = { of = 'shop', share = '25%' }\n\
                protect = { mode = 'static', static.window = 100, limits.slots = 7 }";
    let proxy = proxy_from(&file(main.addr, next.addr, keys));
    crowd(&proxy, 400).await;
    assert_eq!(main.count() + next.count(), 400);
    assert!((95..=105).contains(&next.count()), "{}", next.count());
    let window = |name: &str| {
        let application = proxy.state().application(name).unwrap();
        application.sentry().status(application.now()).replicas[0].window
    };
    assert_eq!(window("next"), Some(7));
    assert_ne!(window("shop"), Some(7));
}

#[tokio::test]
async fn canary_by_address_serves_a_client_always_or_never() {
    let (main, next) = (named("main").await, named("next").await);
    let keys = "canary = { of = 'shop', share = '50%', by = 'address' }";
    let proxy = proxy_from(&file(main.addr, next.addr, keys));
    crowd(&proxy, 40).await;
    let (main, next) = (main.count(), next.count());
    assert!(main == 0 || next == 0, "{main} {next}");
}

#[tokio::test]
async fn canary_that_is_dead_loses_no_request() {
    let main = named("main").await;
    let keys = "canary = { of = 'shop', share = '50%' }";
    let proxy = proxy_from(&file(main.addr, nowhere().await, keys));
    crowd(&proxy, 200).await;
    assert_eq!(main.count(), 200);
    assert!(total(&proxy, "returned-unreachable") >= 1);
    // It is left alone for a while, so that not every request looks for it first.
    let tried = total(&proxy, "sent");
    assert!(
        total(&proxy, "returned-away") > tried,
        "tried {tried} times"
    );
    let post = "POST / HTTP/1.1\r\nhost: shop\r\ncontent-length: 5\r\n\r\nhello";
    for _ in 0..4 {
        assert_eq!(ask(proxy.local_addr(), post).await.status, 200);
    }
}

#[tokio::test]
async fn canary_without_fallback_shows_its_own_failures() {
    let main = named("main").await;
    let keys = "canary = { of = 'shop', header = 'x-canary', fallback = false }";
    let proxy = proxy_from(&file(main.addr, nowhere().await, keys));
    let answer = ask(proxy.local_addr(), get("x-canary: always\r\n")).await;
    // Which one depends on whether a health check has found it first.
    assert!(matches!(answer.status, 502 | 503), "{}", answer.status);
    assert_eq!(main.count(), 0);
}

#[tokio::test]
async fn canary_that_is_full_gives_requests_back() {
    let (main, (next, permits)) = (named("main").await, Service::held().await);
    let keys = "canary = { of = 'shop', share = 1 }\n\
                protect = { mode = 'static', static.window = 100, limits.slots = 1, \
                queue.max_requests = 1, target = '20s' }";
    let proxy = proxy_from(&file(main.addr, next.addr, keys));
    let addr = proxy.local_addr();
    let inside: Vec<_> = (0..2).map(|_| tokio::spawn(ask(addr, get("")))).collect();
    let its = proxy.state().application("next").unwrap();
    eventually("one inside and one waiting", || {
        let status = its.sentry().status(its.now());
        (status.replicas[0].in_flight, status.queue.requests) == (1, 1)
    })
    .await;
    crowd(&proxy, 20).await;
    assert_eq!((main.count(), total(&proxy, "returned-shed")), (20, 20));
    permits.add_permits(2);
    for answer in inside {
        assert_eq!(answer.await.unwrap().text(), "served");
    }
}

#[tokio::test]
async fn canary_passes_the_edge_of_its_application() {
    let (main, next) = (named("main").await, named("next").await);
    let keys = "canary = { of = 'shop', header = 'x-canary' }";
    let with_edge = file(main.addr, next.addr, keys).replace(
        "hosts = ['shop']",
        "hosts = ['shop']\nedge.deny = ['127.0.0.0/8']",
    );
    let proxy = proxy_from(&with_edge);
    for fields in ["", "x-canary: always\r\n"] {
        assert_eq!(ask(proxy.local_addr(), get(fields)).await.status, 403);
    }
}

#[tokio::test]
async fn reload_that_brings_and_takes_a_canary_loses_no_request() {
    let (main, next) = (named("main").await, named("next").await);
    let keys = "canary = { of = 'shop', share = '50%' }";
    let with = file(main.addr, next.addr, keys);
    let without = with[..with.rfind("[[application]]").unwrap()].to_owned();
    let proxy = Arc::new(proxy_from(&with));
    let asking = Arc::clone(&proxy);
    let asking = tokio::spawn(async move { crowd(&asking, 800).await });
    for text in [&without, &with].into_iter().cycle().take(20) {
        let config = Config::from_text("t.toml", text).unwrap();
        proxy.state().apply(config).unwrap();
        tokio::task::yield_now().await;
    }
    asking.await.expect("a request was lost");
    assert_eq!(main.count() + next.count(), 800);
}

/// A service that keeps the bodies and the mark of what it gets.
async fn watching() -> (Service, Arc<parking_lot::Mutex<Vec<(bool, usize)>>>) {
    let seen: Arc<parking_lot::Mutex<Vec<_>>> = Arc::default();
    let kept = Arc::clone(&seen);
    let service = Service::start(move |request| {
        let kept = Arc::clone(&kept);
        async move {
            let marked = request.headers().contains_key("tidegate-mirrored");
            let body = request.into_body().collect().await;
            let bytes = body.map_or(0, |body| body.to_bytes().len());
            kept.lock().push((marked, bytes));
            text("copy")
        }
    })
    .await;
    (service, seen)
}

#[tokio::test]
async fn mirror_gets_a_share_of_the_requests_and_answers_nobody() {
    let main = named("main").await;
    let (next, seen) = watching().await;
    let keys = "mirror = { of = 'shop', share = '50%' }";
    let proxy = proxy_from(&file(main.addr, next.addr, keys));
    crowd(&proxy, 200).await;
    assert_eq!(main.count(), 200);
    eventually("copies", || total(&proxy, "answered") >= 95).await;
    assert!((95..=105).contains(&next.count()), "{}", next.count());
    assert!(seen.lock().iter().all(|(marked, _)| *marked));
    let shop = proxy.state().application("shop").unwrap();
    assert_eq!(shop.metrics().totals().responses[1], 200);
}

#[tokio::test]
async fn mirror_copies_bodies_up_to_its_bound() {
    let main = named("main").await;
    let (next, seen) = watching().await;
    let keys = "mirror = { of = 'shop', body_bytes = '1KiB' }";
    let proxy = proxy_from(&file(main.addr, next.addr, keys));
    for bytes in [1000, 2000] {
        let body = "x".repeat(bytes);
        let head = format!("POST / HTTP/1.1\r\nhost: shop\r\ncontent-length: {bytes}\r\n\r\n");
        let answer = ask(proxy.local_addr(), head + &body).await;
        assert_eq!(answer.status, 200);
    }
    eventually("the copy", || seen.lock().len() == 1).await;
    assert_eq!(*seen.lock(), [(true, 1000)]);
    assert_eq!(total(&proxy, "skipped-body"), 1);
}

#[tokio::test]
async fn mirror_that_hangs_delays_nothing_and_holds_a_bounded_number() {
    let (main, (next, permits)) = (named("main").await, Service::held().await);
    let keys = "mirror = { of = 'shop', concurrency = 3 }\nprotect.mode = 'off'";
    let proxy = proxy_from(&file(main.addr, next.addr, keys));
    crowd(&proxy, 100).await;
    assert_eq!((main.count(), total(&proxy, "skipped-busy")), (100, 97));
    eventually("the three are there", || next.count() == 3).await;
    permits.add_permits(3);
    eventually("the three are answered", || total(&proxy, "answered") == 3).await;
    assert_eq!(asked(&proxy, "").await, "main");
}

#[tokio::test]
async fn mirror_that_is_dead_loses_no_request() {
    let main = named("main").await;
    let keys = "mirror = { of = 'shop' }";
    let proxy = proxy_from(&file(main.addr, nowhere().await, keys));
    crowd(&proxy, 100).await;
    assert_eq!(main.count(), 100);
    let lost = || ["failed", "shed", "skipped-busy"].map(|it| total(&proxy, it));
    eventually("each copy is counted", || lost().iter().sum::<u64>() == 100).await;
}

/// Copies hold a slot of the mirror's engine: its windows protect it.
#[tokio::test]
async fn mirror_has_a_window_of_its_own() {
    static INSIDE: AtomicUsize = AtomicUsize::new(0);
    static MOST: AtomicUsize = AtomicUsize::new(0);
    let main = named("main").await;
    let next = Service::start(|_| async {
        MOST.fetch_max(1 + INSIDE.fetch_add(1, Ordering::SeqCst), Ordering::SeqCst);
        tokio::task::yield_now().await;
        INSIDE.fetch_sub(1, Ordering::SeqCst);
        text("copy")
    })
    .await;
    let keys = "mirror = { of = 'shop' }\n\
                protect = { mode = 'static', static.window = 100, limits.slots = 2, target = '20s' }";
    let proxy = proxy_from(&file(main.addr, next.addr, keys));
    crowd(&proxy, 200).await;
    eventually("copies", || total(&proxy, "answered") > 50).await;
    let most = MOST.load(Ordering::SeqCst);
    assert!(most <= 2, "{most} inside");
}

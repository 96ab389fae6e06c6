//! Attacks on the channel that worked once: by strangers, by members, by observers of a request on
//! its way.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tidegate_channel::clock::Answer;
use tidegate_channel::net::{CHANNEL_PATH, TIME_PATH, tracker::Assignment};
use tidegate_channel::receipt::Receipt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;

use super::*;

/// Asks for a page from an address of loopback's; status and as much of the body as there is.
async fn ask(from: [u8; 4], at: SocketAddr, target: &str) -> (u16, String) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((IpAddr::from(from), 0).into()).unwrap();
    let Ok(mut stream) = socket.connect(at).await else {
        return (0, String::new());
    };
    let request = format!("GET {target} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
    let mut answer = Vec::new();
    let _ = stream.write_all(request.as_bytes()).await;
    let _ = stream.read_to_end(&mut answer).await;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let status = answer.get(9..12).and_then(|status| status.parse().ok());
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    (status.unwrap_or(0), body.to_owned())
}

/// What the service was told.
fn told<'a>(body: &'a str, name: &str) -> &'a str {
    let line = body.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap().trim_start_matches(": ")
}

#[tokio::test]
async fn a_stamp_carries_the_bid_that_it_is_for_and_no_other() {
    let world = world("paths = ['/bids']\n").await;
    let bidder = Bidder::new(1);
    let stamp = bidder.sign(&bidder.stamp(7));
    let headers = |key| [(STAMP_HEADER, stamp.as_str()), ("idempotency-key", key)];
    for (method, target, body) in [
        ("POST", "/bids", "2"),
        ("POST", "/bids", ""),
        ("POST", "/bids?x", "1"),
        ("PUT", "/bids", "1"),
        ("DELETE", "/bids", "1"),
    ] {
        let (status, _, _, held) = world.send(method, target, body, &headers("\"a\"")).await;
        assert_eq!((status.as_u16(), held.as_deref()), (403, Some("unproven")));
    }
    let (status, _, body, _) = world.send("POST", "/bids", "1", &headers("\"a\"")).await;
    assert_eq!(status, 200);
    // Whatever key it says, the service sees the name of this item.
    let name = format!("\"{:016x}-7\"", bidder.id().0);
    assert_eq!(told(&body, "item"), name);
    for key in ["\"b\"", "\"c\""] {
        let (status, _, _, held) = world.send("POST", "/bids", "1", &headers(key)).await;
        assert_eq!((status.as_u16(), held.as_deref()), (429, Some("again")));
    }
    // Its owner signs another bid under the same number.
    let other = Stamp {
        content: Content::of("POST", "/bids", b"2"),
        ..bidder.stamp(7)
    };
    let other = bidder.sign(&other);
    let (status, _, _, held) = world
        .send("POST", "/bids", "2", &[(STAMP_HEADER, &other)])
        .await;
    assert_eq!((status.as_u16(), held.as_deref()), (409, Some("conflict")));
}

#[tokio::test]
async fn the_service_is_told_the_secured_time_signed_and_nobody_else_can_say_it() {
    let world = world("").await;
    let bidder = Bidder::new(1);
    let stamp = bidder.stamp(3);
    let text = bidder.sign(&stamp);
    let forged = [(STAMP_HEADER, text.as_str()), (RECEIPT_HEADER, "client=00")];
    let (_, _, body, _) = world.send("POST", "/bids", "1", &forged).await;
    let receipt = Receipt::read(told(&body, "receipt"), &[publisher().public()]).unwrap();
    assert_eq!((receipt.client, receipt.item), (stamp.client, 3));
    assert_eq!(
        receipt.made.as_nanos() / 1_000_000,
        stamp.made.as_nanos() / 1_000_000
    );
    assert_eq!(receipt.content, stamp.content);
    // The client's own signature goes along.
    assert_eq!(told(&body, "stamp"), text);
    // Without a stamp there is nothing to tell.
    let (_, _, body, _) = world
        .send("POST", "/bids", "1", &[(RECEIPT_HEADER, "client=00")])
        .await;
    assert_eq!(told(&body, "receipt"), "none");
}

#[tokio::test]
async fn an_error_of_forty_nine_days_passes_no_deadline() {
    let past = unix_now().as_nanos() / 1_000_000_000 - 60;
    let world = world(&format!("paths = ['/bids']\ndeadline = {past}\n")).await;
    let bidder = Bidder::new(1);
    let days = Duration::from_secs(49 * 86_400);
    let seen = Answer::new(1, unix_now(), unix_now(), None);
    let seen = Answer::new(2, unix_now(), unix_now(), Some(&seen));
    let own = seen.sign(&bidder.key);
    for (item, clock) in [None, Some(own), Some(seen.sign(&publisher()))]
        .into_iter()
        .enumerate()
    {
        let stamp = Stamp {
            error: days,
            clock,
            ..bidder.stamp(item as u64)
        };
        let held = world.stamped(&bidder, &stamp).await;
        assert_eq!(held, (410, Some("late".to_owned())));
    }
}

#[tokio::test]
async fn a_request_without_a_stamp_is_not_in_time() {
    let past = unix_now().as_nanos() / 1_000_000_000 - 60;
    for section in ["", "paths = ['/bids']\n"] {
        let world = world(&format!("{section}deadline = {past}\n")).await;
        for headers in [&[][..], &[(CLIENT_HEADER, "ff")], &[(STAMP_HEADER, "ff")]] {
            let (status, _, _, held) = world.send("POST", "/bids", "1", headers).await;
            assert_eq!(status, 403, "{held:?}");
        }
        // Reading is free.
        let (status, _, _, _) = world.send("GET", "/bids", "", &[]).await;
        assert_eq!(status, 200);
    }
}

/// Several ways to write `/bids`, which the service takes for the same.
#[tokio::test]
async fn spelling_of_a_path_passes_no_reserved_one() {
    let past = unix_now().as_nanos() / 1_000_000_000 - 60;
    for section in [
        "paths = ['/bids']\n".to_owned(),
        format!("paths = ['/bids']\ndeadline = {past}\n"),
    ] {
        let world = world(&section).await;
        let post = async |target: &str| {
            let request = format!(
                "POST {target} HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\n\
                 connection: close\r\n\r\n1"
            );
            tidegate_testing::ask(world.listen, request).await.status
        };
        for target in [
            "/bids",
            "/%62ids",
            "/b%69ds",
            "//bids",
            "/./bids",
            "/x/../bids",
            "/x/%2e%2e/bids",
            "/x/..//%62ids?item=1",
            "/bids/.",
            // A service that does not resolve it takes it for a part of `/bids`.
            "/bids/../asks",
        ] {
            assert_eq!(post(target).await, 403, "{target}");
        }
        for target in ["/asks", "/x/bids"] {
            assert_eq!(post(target).await, 200, "{target}");
        }
    }
}

#[tokio::test]
async fn nobody_is_banned_for_what_others_do_in_its_name() {
    let compliance = "[channel.compliance]\nslack = '0s'\nthrottle_after = 3\nban_after = 6\n";
    let world = world(compliance).await;
    let application = world.state.first();
    let channel = application.channel().unwrap();
    channel.command(&HOLD).unwrap();
    let victim = world.somebody_who_waits().await;
    // By its number,
    let name = format!("{:016x}", victim.id().0);
    for _ in 0..50 {
        world.bid(&[(CLIENT_HEADER, &name)]).await;
    }
    assert_eq!(channel.status().offenders, []);
    // by an item of its own that was seen on its way,
    let stamp = victim.stamp(1);
    assert_eq!(world.stamped(&victim, &stamp).await.0, 200);
    let struck = channel.status().offenders;
    for _ in 0..50 {
        world.stamped(&victim, &stamp).await;
    }
    assert_eq!(channel.status().offenders, struck);
    // or by its stamp on something else.
    let stamp = victim.sign(&victim.stamp(2));
    for _ in 0..50 {
        let (_, _, _, held) = world
            .send("POST", "/bids", "9", &[(STAMP_HEADER, &stamp)])
            .await;
        assert_eq!(held.as_deref(), Some("unproven"));
    }
    assert_eq!(channel.status().offenders, struck);
    assert_eq!(world.stamped(&victim, &victim.stamp(2)).await.0, 200);
}

#[tokio::test]
async fn made_up_clients_and_lags_do_not_feed_the_controller() {
    let world = world("predict = true\ndead_time = '300ms'\n").await;
    for id in 0..100 {
        let claim = format!("{id:016x};seq=1;lag=30000");
        world.bid(&[(CLIENT_HEADER, &claim)]).await;
    }
    world.until(|_| true).await;
    let status = world.state.first().channel().unwrap().status();
    assert_eq!((status.clients, status.dead_time_s), (1.0, 0.3));
}

#[tokio::test]
async fn a_large_item_is_not_read_whole() {
    let world = world("item_bytes = 1000\n").await;
    let bidder = Bidder::new(1);
    let body = "x".repeat(5000);
    let stamp = Stamp {
        content: Content::of("POST", "/bids", body.as_bytes()),
        ..bidder.stamp(1)
    };
    let stamp = bidder.sign(&stamp);
    let (status, _, _, held) = world
        .send("POST", "/bids", &body, &[(STAMP_HEADER, &stamp)])
        .await;
    assert_eq!((status.as_u16(), held.as_deref()), (413, Some("too-large")));
}

#[tokio::test]
async fn a_flood_of_joins_moves_nobody_else() {
    let world = world("").await;
    let mut refused = 0;
    for index in 0..2000 {
        // Relays that do not exist, at the stranger's own address and at others'.
        let at = match index % 2 {
            0 => format!("http://127.0.0.2:{}", 1 + index % 60_000),
            _ => format!("http://192.0.2.1:{}", 1 + index % 60_000),
        };
        let target = format!("{JOIN_PATH}?relay={at}&dead=http://127.0.0.1:1");
        let (status, _) = ask([127, 0, 0, 2], world.channel, &target).await;
        refused += u32::from(status != 200);
    }
    assert!(refused > 1500, "{refused}");
    let (status, body) = ask([127, 0, 0, 3], world.channel, JOIN_PATH).await;
    assert_eq!(status, 200);
    let assigned: Assignment = serde_json::from_str(&body).unwrap();
    assert!(assigned.wait_ms < 1000, "{assigned:?}");
    let real = format!("http://{}", world.channel);
    assert!(assigned.parents.iter().all(|parent| *parent == real));
    assert_eq!(world.state.first().channel().unwrap().status().relays, 0);
}

#[tokio::test]
async fn the_clock_is_not_signed_for_one_address_without_end() {
    let world = world("").await;
    let mut answered = 0;
    for nonce in 0..400 {
        let target = format!("{TIME_PATH}?nonce={nonce}");
        answered += u32::from(ask([127, 0, 0, 2], world.channel, &target).await.0 == 200);
    }
    // A hundred at once, then ten a second.
    assert!((100..380).contains(&answered), "{answered}");
    let (status, _) = ask(
        [127, 0, 0, 3],
        world.channel,
        &format!("{TIME_PATH}?nonce=1"),
    )
    .await;
    assert_eq!(status, 200);
}

#[tokio::test]
async fn the_arity_holds_whoever_listens() {
    let section = "arity = 4\n[channel.per_address]\nlisteners = 1000\nconnections = 1000\n";
    let world = world(section).await;
    world.until(|_| true).await;
    let mut open = Vec::new();
    for _ in 0..100 {
        let mut stream = tokio::net::TcpStream::connect(world.channel).await.unwrap();
        let request = format!("GET {CHANNEL_PATH} HTTP/1.1\r\nhost: a\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut head = [0; 12];
        stream.read_exact(&mut head).await.unwrap();
        open.push((String::from_utf8_lossy(&head).into_owned(), stream));
    }
    let listening = open
        .iter()
        .filter(|(head, _)| head.ends_with("200"))
        .count();
    assert_eq!(listening, 4);
    assert_eq!(world.state.first().channel().unwrap().status().listeners, 4);
    // Who was sent by the tracker has a place of its own.
    let (_, body) = ask([127, 0, 0, 1], world.channel, JOIN_PATH).await;
    let assigned: Assignment = serde_json::from_str(&body).unwrap();
    let stream = Subscription::open(&Dialer::default(), &assigned.parents[0]).await;
    assert!(stream.is_ok());
}

//! Messages over real sockets: a publisher, relays, listeners, and what happens when relays die.

#![cfg(feature = "net")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::sync::Arc;
use std::time::Duration;

use support::{Node, key, listener, publisher, publisher_for, soon, until};
use tidegate_channel::clock::Answer;
use tidegate_channel::message::{from_text, to_text};
use tidegate_channel::net::relay::Parents;
use tidegate_channel::net::{
    Desk, Dialer, JOIN_PATH, MESSAGE_PATH, RELAY_PATH, Relay, serve, unix_now,
};
use tidegate_channel::{ControlMessage, SecretKey, Strategy, Terms};
use tidegate_control::Timestamp;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// A parent that says nothing for this long is given up. Those that a test drops keep their
/// connections and fall silent.
const SILENCE: Duration = Duration::from_secs(1);

fn signed(seq: u64, key: &SecretKey) -> Vec<u8> {
    support::signed(seq, Strategy::Interval(Duration::from_secs(seq)), key)
}

async fn page(base: &str, path: &str) -> Option<String> {
    Dialer::default().get(base, path, None).await.ok()
}

async fn relay(parents: impl FnOnce(String) -> Parents) -> Node {
    let (listener, addr) = listener().await;
    let relay = Relay::new(
        &[key().public()],
        parents(format!("http://{addr}")),
        u64::from(addr.port()),
    )
    .with_silence(SILENCE);
    let hub = relay.hub();
    let desk = Arc::new(Desk::relay(hub.clone()));
    let tasks = vec![
        tokio::spawn(relay.run(|_| {})),
        tokio::spawn(serve::serve(listener, desk, std::future::pending())),
    ];
    Node { addr, hub, tasks }
}

/// A leaf and the numbers of the messages it accepts.
fn leaf(parents: Parents) -> (mpsc::UnboundedReceiver<u64>, JoinHandle<()>) {
    let (tell, told) = mpsc::unbounded_channel();
    let relay = Relay::new(&[key().public()], parents, 99).with_silence(SILENCE);
    let run = relay.run(move |message| {
        let _ = tell.send(message.seq);
    });
    (told, tokio::spawn(run))
}

async fn heard(told: &mut mpsc::UnboundedReceiver<u64>, seq: u64) {
    let wait = async {
        while let Some(got) = told.recv().await {
            if got == seq {
                return;
            }
        }
        panic!("the leaf ended");
    };
    soon(wait).await;
}

#[tokio::test]
async fn message_travels_over_two_hops_and_outlives_a_parent() {
    let root = publisher().await;
    let fixed = |urls: Vec<String>| move |_| Parents::Fixed(urls);
    let first = relay(fixed(vec![root.url()])).await;
    let second = relay(fixed(vec![root.url()])).await;
    let (mut told, _leaf) = leaf(Parents::Fixed(vec![first.url(), second.url()]));
    until(|| root.hub.listeners() == 2).await;
    root.hub.publish(&signed(1, &key()));
    heard(&mut told, 1).await;
    until(|| first.hub.listeners() == 1 && second.hub.listeners() == 1).await;
    drop(first);
    root.hub.publish(&signed(2, &key()));
    heard(&mut told, 2).await;
    // The publisher wrote one copy per child, however many listen below.
    assert!(root.hub.copies() <= 4, "{}", root.hub.copies());
}

#[tokio::test]
async fn forged_message_is_not_passed_on() {
    let root = publisher().await;
    let below = relay(|_| Parents::Fixed(vec![root.url()])).await;
    until(|| root.hub.listeners() == 1).await;
    root.hub.publish(&signed(1, &key()));
    until(|| below.hub.newest().is_some_and(|packed| packed.seq == 1)).await;
    root.hub
        .publish(&signed(2, &SecretKey::from_seed(&[6; 32])));
    root.hub.publish(&signed(3, &key()));
    until(|| below.hub.newest().is_some_and(|packed| packed.seq == 3)).await;
    let newest = page(&below.url(), MESSAGE_PATH).await.unwrap();
    assert_eq!(
        from_text(&newest),
        Some(from_text(&root.hub.newest().unwrap().text).unwrap())
    );
}

#[tokio::test]
async fn tracker_finds_new_parents_for_orphans() {
    let root = publisher().await;
    let tracked = |own: Option<String>| Parents::Tracked {
        tracker: root.url(),
        own,
    };
    let mut relays = Vec::new();
    for _ in 0..6 {
        relays.push(relay(|own| tracked(Some(own))).await);
    }
    root.hub.publish(&signed(1, &key()));
    for relay in &relays {
        until(|| relay.hub.newest().is_some()).await;
    }
    let (mut told, _leaf) = leaf(tracked(None));
    heard(&mut told, 1).await;
    // Half of them die; the others and the leaf still receive what follows.
    relays.truncate(3);
    let mut seq = 1;
    let repaired = async {
        loop {
            seq += 1;
            root.hub.publish(&signed(seq, &key()));
            let newest = |node: &Node| node.hub.newest().map(|packed| packed.seq);
            let all = relays
                .iter()
                .all(|relay| newest(relay).is_some_and(|at| at > 1));
            if all && told.try_recv().is_ok() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    soon(repaired).await;
}

#[tokio::test]
async fn clock_is_signed_and_answers_the_question_asked() {
    let root = publisher().await;
    let text = page(&root.url(), "/.tidegate/time?nonce=77").await.unwrap();
    let bytes = from_text(&text).unwrap();
    let answer = Answer::read(&bytes, 77, &[key().public()]).unwrap();
    assert!(unix_now().since(answer.answer.received) < support::PATIENCE);
    assert!(page(&root.url(), "/.tidegate/time").await.is_none());
}

#[tokio::test]
async fn messages_that_come_another_way_do_not_wait_for_the_tracker() {
    // Nothing listens there any more.
    let gone = listener().await.1;
    let parents = Parents::Tracked {
        tracker: format!("http://{gone}"),
        own: None,
    };
    let relay = Relay::new(&[key().public()], parents, 3);
    let (inlet, hub) = (relay.inlet(), relay.hub());
    let _run = tokio::spawn(relay.run(|_| {}));
    // More than the inlet holds.
    for seq in 1..200 {
        assert!(soon(inlet.offer(signed(seq, &key()))).await);
    }
    until(|| hub.newest().is_some_and(|packed| packed.seq == 199)).await;
}

#[tokio::test]
async fn in_a_closed_group_only_members_become_relays() {
    let member = Arc::new(SecretKey::from_seed(&[7; 32]));
    let root = publisher_for(&[member.public()]).await;
    let join = format!("{JOIN_PATH}?relay=http://127.0.0.1:1");
    assert_eq!(page(&root.url(), &join).await, None);
    // Who only listens need not say who it is.
    assert!(page(&root.url(), JOIN_PATH).await.is_some());
    let parents = Parents::Tracked {
        tracker: root.url(),
        own: Some("http://127.0.0.1:1".to_owned()),
    };
    let relay = Relay::new(&[key().public()], parents, 3).with_member(member);
    let hub = relay.hub();
    let _run = tokio::spawn(relay.run(|_| {}));
    root.hub.publish(&signed(1, &key()));
    until(|| hub.newest().is_some()).await;
}

/// A publisher whose clock is off by `ahead` seconds, and which speaks as any other.
async fn publisher_with_clock(ahead_s: i64) -> String {
    let (listener, addr) = listener().await;
    let now = move || {
        let nanos = unix_now().as_nanos() as i64 + ahead_s * 1_000_000_000;
        Timestamp::from_nanos(nanos as u64)
    };
    tokio::spawn(async move {
        let mut seq = 0;
        while let Ok((mut stream, _)) = listener.accept().await {
            seq += 1;
            let mut head = vec![0; 2048];
            let Ok(length) = stream.read(&mut head).await else {
                continue;
            };
            let head = String::from_utf8_lossy(&head[..length]).into_owned();
            let nonce = head.split_once("nonce=").map(|(_, rest)| {
                let digits = rest.split(|it: char| !it.is_ascii_digit()).next();
                digits.unwrap().parse().unwrap()
            });
            let message = ControlMessage {
                seq,
                issued: now(),
                validity: Duration::from_secs(30),
                setpoint: Duration::from_secs(1),
                strategy: Strategy::Open,
                successor: None,
                terms: Terms::default(),
            };
            let body = match nonce {
                Some(nonce) => {
                    let answer = Answer::new(nonce, now(), now(), None);
                    to_text(&answer.sign(&key()).to_bytes())
                }
                None => format!("data: {}\n\n", to_text(&message.sign(&key()))),
            };
            let length = body.len();
            let answer = format!(
                "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
            );
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    format!("http://{addr}")
}

#[tokio::test]
async fn messages_are_judged_by_the_servers_clock_and_not_by_our_own() {
    // Ours is 7 s slow, 40 s fast, and a day fast.
    for ahead_s in [7, -40, -86_400] {
        let publisher = publisher_with_clock(ahead_s).await;
        let relay = Relay::new(&[key().public()], Parents::Fixed(vec![publisher]), 3);
        let (hub, status) = (relay.hub(), relay.status());
        let _run = tokio::spawn(relay.run(|_| {}));
        until(|| hub.newest().is_some()).await;
        assert!(status().clock_compared, "{ahead_s}");
    }
}

#[tokio::test]
async fn relay_says_how_it_is_doing() {
    let root = publisher().await;
    let (listener, addr) = listener().await;
    let relay = Relay::new(
        &[key().public(), SecretKey::from_seed(&[8; 32]).public()],
        Parents::Fixed(vec![root.url()]),
        3,
    );
    let page = relay.status();
    let desk = Desk::relay(relay.hub());
    let desk = desk.with_status(Box::new(move || serde_json::to_string(&page()).unwrap()));
    let hub = relay.hub();
    let _tasks = [
        tokio::spawn(relay.run(|_| {})),
        tokio::spawn(serve::serve(
            listener,
            Arc::new(desk),
            std::future::pending(),
        )),
    ];
    root.hub.publish(&signed(1, &key()));
    until(|| hub.newest().is_some_and(|packed| packed.seq == 1)).await;
    root.hub.publish(&signed(5, &key()));
    until(|| hub.newest().is_some_and(|packed| packed.seq == 5)).await;
    let page = page_of(&format!("http://{addr}")).await;
    assert_eq!(page["parents"][0], root.url());
    assert_eq!(page["messages"]["accepted"], 2);
    assert_eq!(page["messages"]["missed"], 3);
}

async fn page_of(base: &str) -> serde_json::Value {
    let text = page(base, RELAY_PATH).await.unwrap();
    serde_json::from_str(&text).unwrap()
}

#[tokio::test]
async fn relay_is_given_to_others_once_the_publisher_has_reached_it() {
    let root = publisher().await;
    root.hub.publish(&signed(1, &key()));
    // Nothing listens there: it is never handed out.
    let gone = listener().await.1;
    let join = format!("{JOIN_PATH}?relay=http://{gone}");
    assert!(page(&root.url(), &join).await.is_some());
    let tracked = |own: String| Parents::Tracked {
        tracker: root.url(),
        own: Some(own),
    };
    let real = relay(tracked).await;
    let given = async {
        loop {
            let text = page(&root.url(), &format!("{JOIN_PATH}?tries=9"))
                .await
                .unwrap();
            assert!(!text.contains(&gone.to_string()), "{text}");
            if text.contains(&real.url()) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    soon(given).await;
    // What is not its own address cannot be registered at all.
    let elsewhere = format!("{JOIN_PATH}?relay=http://192.0.2.1:80");
    assert_eq!(page(&root.url(), &elsewhere).await, None);
}

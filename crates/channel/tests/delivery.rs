//! Messages over real sockets: a publisher, relays, listeners, and what happens when relays die.

#![cfg(feature = "net")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_channel::clock::Answer;
use tidegate_channel::message::from_text;
use tidegate_channel::net::relay::Parents;
use tidegate_channel::net::{Desk, Hub, MESSAGE_PATH, Relay, Tracker, http, serve, unix_now};
use tidegate_channel::{ControlMessage, SecretKey, Strategy};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Longest wait for something that has to happen.
const PATIENCE: Duration = Duration::from_secs(30);

/// A parent that says nothing for this long is given up. Those that a test drops keep their
/// connections and fall silent.
const SILENCE: Duration = Duration::from_secs(1);

fn key() -> SecretKey {
    SecretKey::from_seed(&[5; 32])
}

fn signed(seq: u64, key: &SecretKey) -> Vec<u8> {
    let message = ControlMessage {
        seq,
        issued: unix_now(),
        validity: Duration::from_secs(60),
        setpoint: Duration::from_secs(1),
        strategy: Strategy::Interval(Duration::from_secs(seq)),
        successor: None,
    };
    message.sign(key)
}

/// Something that listens, until it is dropped.
struct Node {
    addr: SocketAddr,
    hub: Hub,
    tasks: Vec<JoinHandle<()>>,
}

impl Node {
    fn url(&self) -> String {
        format!("http://{}", self.addr)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

async fn publisher() -> Node {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let hub = Hub::default();
    let desk = Desk {
        hub: hub.clone(),
        key: Some(Arc::new(key())),
        tracker: Some(Mutex::new(Tracker::new(&format!("http://{addr}"), 2))),
    };
    let serving = serve::serve(listener, Arc::new(desk), std::future::pending());
    Node {
        addr,
        hub,
        tasks: vec![tokio::spawn(serving)],
    }
}

async fn relay(parents: impl FnOnce(String) -> Parents) -> Node {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
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
    let waited = tokio::time::timeout(PATIENCE, wait).await;
    waited.unwrap_or_else(|_| panic!("message {seq} did not arrive"));
}

async fn until(what: impl Fn() -> bool) {
    let wait = async {
        while !what() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.unwrap();
}

#[tokio::test]
async fn a_message_travels_over_two_hops_and_outlives_a_parent() {
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
async fn a_forged_message_is_not_passed_on() {
    let root = publisher().await;
    let below = relay(|_| Parents::Fixed(vec![root.url()])).await;
    until(|| root.hub.listeners() == 1).await;
    root.hub.publish(&signed(1, &key()));
    until(|| below.hub.newest().is_some_and(|packed| packed.seq == 1)).await;
    root.hub
        .publish(&signed(2, &SecretKey::from_seed(&[6; 32])));
    root.hub.publish(&signed(3, &key()));
    until(|| below.hub.newest().is_some_and(|packed| packed.seq == 3)).await;
    let newest = http::get(&below.url(), MESSAGE_PATH).await.unwrap();
    assert_eq!(
        from_text(&newest),
        Some(from_text(&root.hub.newest().unwrap().text).unwrap())
    );
}

#[tokio::test]
async fn a_tracker_finds_new_parents_for_orphans() {
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
    // Half of them die; the others and the leaf still hear what follows.
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
    tokio::time::timeout(PATIENCE, repaired).await.unwrap();
}

#[tokio::test]
async fn the_clock_is_signed_and_answers_the_question_asked() {
    let root = publisher().await;
    let text = http::get(&root.url(), "/.tidegate/time?nonce=77")
        .await
        .unwrap();
    let bytes = from_text(&text).unwrap();
    let answer = Answer::read(&bytes, 77, &[key().public()]).unwrap();
    assert!(unix_now().since(answer.received) < PATIENCE);
    assert!(http::get(&root.url(), "/.tidegate/time").await.is_err());
    assert!(http::get("https://127.0.0.1:1", "/").await.is_err());
}

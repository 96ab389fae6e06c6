//! Messages over real sockets: a publisher, relays, listeners, and what happens when relays die.

#![cfg(feature = "net")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::sync::Arc;
use std::time::Duration;

use support::{Node, key, listener, publisher, publisher_for, soon, until};
use tidegate_channel::clock::Answer;
use tidegate_channel::message::from_text;
use tidegate_channel::net::relay::Parents;
use tidegate_channel::net::{Desk, Dialer, JOIN_PATH, MESSAGE_PATH, Relay, serve, unix_now};
use tidegate_channel::{SecretKey, Strategy};
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
    let newest = page(&below.url(), MESSAGE_PATH).await.unwrap();
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
    soon(repaired).await;
}

#[tokio::test]
async fn the_clock_is_signed_and_answers_the_question_asked() {
    let root = publisher().await;
    let text = page(&root.url(), "/.tidegate/time?nonce=77").await.unwrap();
    let bytes = from_text(&text).unwrap();
    let answer = Answer::read(&bytes, 77, &[key().public()]).unwrap();
    assert!(unix_now().since(answer.answer.received) < support::PATIENCE);
    assert!(page(&root.url(), "/.tidegate/time").await.is_none());
}

#[tokio::test]
async fn messages_that_come_another_way_do_not_wait_for_the_tracker() {
    // Nobody listens there any more.
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

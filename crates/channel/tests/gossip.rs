//! Gossip over real sockets: peers on loopback, a relay that bridges, a closed group, and a liar.

#![cfg(feature = "gossip")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::time::Duration;

use support::{key, publisher, signed};
use tidegate_channel::net::gossip::{Gossip, GossipConfig};
use tidegate_channel::net::relay::Parents;
use tidegate_channel::net::{Hub, Relay};
use tidegate_channel::verify::Counts;
use tidegate_channel::{PublicKey, SecretKey, Strategy};
use tokio::task::JoinHandle;

/// A peer, until it is dropped.
struct Peer {
    address: String,
    hub: Hub,
    counts: Box<dyn Fn() -> Counts>,
    task: JoinHandle<()>,
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Peer {
    fn seq(&self) -> u64 {
        self.hub.newest().map_or(0, |packed| packed.seq)
    }
}

fn secret(number: u8) -> [u8; 32] {
    [number; 32]
}

fn public(number: u8) -> PublicKey {
    SecretKey::from_seed(&secret(number)).public()
}

/// A peer that believes messages of `trusted`, knows `peers`, and has `parents` in the trees.
async fn peer(number: u8, trusted: &SecretKey, config: GossipConfig, parents: Vec<String>) -> Peer {
    let config = GossipConfig {
        listen: vec!["/ip4/127.0.0.1/tcp/0".parse().unwrap()],
        ..config
    };
    let mut gossip = Gossip::new(&secret(number), config).unwrap();
    let address = gossip.address().await.unwrap().to_string();
    let relay = Relay::new(&[trusted.public()], Parents::Fixed(parents), number.into())
        .with_overlay(Box::new(gossip));
    let (hub, counts) = (relay.hub(), Box::new(relay.counts()));
    let task = tokio::spawn(relay.run(|_| {}));
    Peer {
        address,
        hub,
        counts,
        task,
    }
}

fn knowing(peers: &[&Peer]) -> GossipConfig {
    GossipConfig {
        peers: peers
            .iter()
            .map(|peer| peer.address.parse().unwrap())
            .collect(),
        ..GossipConfig::default()
    }
}

/// Publishes until each peer has a message of the publisher's.
async fn everybody_hears(root: &support::Node, peers: &[&Peer], from: u64) -> u64 {
    let mut seq = from;
    loop {
        seq += 1;
        root.say(seq, Strategy::Open);
        tokio::time::sleep(Duration::from_millis(100)).await;
        if peers.iter().all(|peer| peer.seq() > from) {
            return seq;
        }
    }
}

#[tokio::test]
async fn bridge_feeds_peers_that_know_only_each_other() {
    let root = publisher().await;
    let bridge = peer(1, &key(), GossipConfig::default(), vec![root.url()]).await;
    let second = peer(2, &key(), knowing(&[&bridge]), Vec::new()).await;
    let third = peer(3, &key(), knowing(&[&second]), Vec::new()).await;
    let fourth = peer(4, &key(), knowing(&[&third]), Vec::new()).await;
    let peers = [&bridge, &second, &third, &fourth];
    let seq = support::soon(everybody_hears(&root, &peers, 0)).await;
    // The publisher has one listener, however many gossip.
    assert_eq!(root.hub.listeners(), 1);
    // Without the second, the rest find each other by the peers they were given.
    let fifth = peer(5, &key(), knowing(&[&bridge, &fourth]), Vec::new()).await;
    drop(second);
    let peers = [&bridge, &third, &fourth, &fifth];
    support::soon(everybody_hears(&root, &peers, seq)).await;
}

#[tokio::test]
async fn message_that_does_not_verify_goes_no_further() {
    // The liar believes another key, and so passes its messages to its neighbour.
    let other = SecretKey::from_seed(&[6; 32]);
    let liar = peer(1, &other, GossipConfig::default(), Vec::new()).await;
    let middle = peer(2, &key(), knowing(&[&liar]), Vec::new()).await;
    let last = peer(3, &key(), knowing(&[&middle]), Vec::new()).await;
    let mut seq = 0;
    support::soon(async {
        while (middle.counts)().key == 0 {
            seq += 1;
            liar.hub.publish(&signed(seq, Strategy::Open, &other));
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })
    .await;
    assert_eq!((middle.seq(), last.seq()), (0, 0));
    // What is genuine travels the same way, and is the first thing the last peer receives at all.
    support::soon(async {
        while last.seq() == 0 {
            seq += 1;
            middle.hub.publish(&signed(seq, Strategy::Open, &key()));
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })
    .await;
    let counts = (last.counts)();
    assert_eq!((counts.key, counts.forged), (0, 0));
}

#[tokio::test]
async fn closed_group_talks_to_its_members_alone() {
    let root = publisher().await;
    let members = vec![public(1), public(2)];
    let closed = |config| GossipConfig {
        members: members.clone(),
        ..config
    };
    let bridge = closed(GossipConfig::default());
    let bridge = peer(1, &key(), bridge, vec![root.url()]).await;
    let member = peer(2, &key(), closed(knowing(&[&bridge])), Vec::new()).await;
    let stranger = peer(3, &key(), knowing(&[&bridge]), Vec::new()).await;
    // Long enough for a stranger to receive it as well: others do at the first or second message.
    let mut seq = 0;
    for _ in 0..10 {
        seq = support::soon(everybody_hears(&root, &[&bridge, &member], seq)).await;
    }
    assert_eq!(stranger.seq(), 0);
}

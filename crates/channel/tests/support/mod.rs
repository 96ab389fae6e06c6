//! A publisher for tests, used by those of `tidegate-client` too.

#![allow(dead_code, reason = "not every test needs all of it")]

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tidegate_channel::net::tracker::Room;
use tidegate_channel::net::{Desk, Hub, Limits, PerAddress, Tracker, serve, unix_now};
use tidegate_channel::{ControlMessage, PublicKey, SecretKey, Strategy, Terms};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// Longest wait for something that has to happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The publisher's key.
pub(crate) fn key() -> SecretKey {
    SecretKey::from_seed(&[5; 32])
}

/// A message that is valid for a minute.
pub(crate) fn signed(seq: u64, strategy: Strategy, key: &SecretKey) -> Vec<u8> {
    let message = ControlMessage {
        seq,
        issued: unix_now(),
        validity: Duration::from_secs(60),
        setpoint: Duration::from_secs(1),
        strategy,
        successor: None,
        terms: Terms::default(),
    };
    message.sign(key)
}

/// Something that listens, until it is dropped.
pub(crate) struct Node {
    pub(crate) addr: SocketAddr,
    pub(crate) hub: Hub,
    pub(crate) tasks: Vec<JoinHandle<()>>,
}

impl Node {
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    pub(crate) fn say(&self, seq: u64, strategy: Strategy) {
        self.hub.publish(&signed(seq, strategy, &key()));
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// A listener on a free port.
pub(crate) async fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await;
    let listener = listener.expect("loopback has free ports");
    let addr = listener.local_addr().expect("it is bound");
    (listener, addr)
}

/// A publisher with a tracker that gives each relay two children; for `members` alone, if any.
pub(crate) async fn publisher_for(members: &[PublicKey]) -> Node {
    // All peers of a test have the same address.
    publisher_with(members, Limits::new(PerAddress::unlimited(), 1000, 1000)).await
}

/// A publisher that strangers can ask for so much.
pub(crate) async fn publisher_with(members: &[PublicKey], limits: Limits) -> Node {
    let (listener, addr) = listener().await;
    let hub = Hub::default();
    let room = Room {
        arity: 2,
        listeners_max: limits.listeners_max(),
        per_address: limits.per_address().listeners,
    };
    let desk = Desk::publisher(
        hub.clone(),
        limits,
        Arc::new(key()),
        Tracker::new(&format!("http://{addr}"), room),
        HashSet::from_iter(members.iter().copied()),
        HashSet::new(),
    );
    let serving = serve::serve(listener, Arc::new(desk), std::future::pending());
    Node {
        addr,
        hub,
        tasks: vec![tokio::spawn(serving)],
    }
}

/// A publisher for anybody.
pub(crate) async fn publisher() -> Node {
    publisher_for(&[]).await
}

/// Waits for something that has to happen.
pub(crate) async fn soon<T>(what: impl Future<Output = T>) -> T {
    let waited = tokio::time::timeout(PATIENCE, what).await;
    waited.expect("it happens within a minute")
}

/// Waits for something to hold.
pub(crate) async fn until(what: impl Fn() -> bool) {
    soon(async {
        while !what() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

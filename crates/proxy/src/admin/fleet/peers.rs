//! Reports to the admin listeners of the other proxies. The answer to a report is the peer's own,
//! so that one direction is enough.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tidegate_fleet::MESSAGE_BYTES_MAX;
use tokio::time::{sleep, timeout};

use super::super::{AbortOnDrop, Operator};
use super::FleetNode;
use super::carrier::{Carrier, Link, Unanswered, patience};
use super::post::Post;

/// Time between two looks at what the names of peers stand for.
const LOOKUP: Duration = Duration::from_secs(5);

/// Connections to the peers, one task each.
#[derive(Default)]
pub(super) struct Links {
    looked: Option<Instant>,
    tasks: HashMap<SocketAddr, AbortOnDrop>,
}

impl Links {
    /// Keeps a connection to every address that the names of the peers stand for.
    pub(super) async fn follow(&mut self, operator: &Arc<Operator>, node: &FleetNode) {
        if self.looked.is_some_and(|at| at.elapsed() < LOOKUP) {
            return;
        }
        self.looked = Some(Instant::now());
        let mut found = Vec::new();
        let mut complete = true;
        for peer in &node.config.peers {
            // A name server that does not answer must not hold up the shares.
            let lookup = timeout(
                *node.config.interval,
                tokio::net::lookup_host(peer.as_str()),
            );
            match lookup.await {
                Ok(Ok(addresses)) => found.extend(addresses),
                _ => complete = false,
            }
        }
        if complete {
            self.tasks.retain(|address, _| found.contains(address));
        }
        for address in found {
            self.tasks.entry(address).or_insert_with(|| {
                let peer = Peer::new(address, node);
                let link = Link::new(Arc::clone(operator), node, peer);
                AbortOnDrop(tokio::spawn(link.run()))
            });
        }
    }
}

/// The admin listener of one proxy.
struct Peer {
    post: Post,
    patience: Duration,
}

impl Peer {
    fn new(address: SocketAddr, node: &FleetNode) -> Self {
        let post = Post {
            authority: address.to_string(),
            path: "/api/fleet/report",
            content_type: "application/json",
            token: node.token.clone(),
            answer_bytes_max: MESSAGE_BYTES_MAX,
            sender: None,
        };
        Self {
            post,
            patience: patience(node),
        }
    }

    fn apart(&self, why: &str) -> String {
        format!(
            "the proxy at {} and this one do not share: {why}; both need one `fleet.name`, names of \
             their own, and the token of the other's admin listener",
            self.post.authority
        )
    }
}

impl Carrier for Peer {
    async fn exchange(&mut self, report: Bytes) -> Result<Vec<Bytes>, Unanswered> {
        let answered = timeout(self.patience, self.post.send(report)).await;
        let answer = answered.unwrap_or(Err(Unanswered::Lost))?;
        Ok(vec![answer])
    }

    /// An address of its own: nothing to say for a while.
    async fn met_itself(&mut self) {
        sleep(LOOKUP).await;
    }

    fn disbelieved(&self, why: &str) -> String {
        self.apart(why)
    }

    fn declined(&self, why: &str) -> String {
        self.apart(why)
    }

    fn is_server(&self) -> bool {
        false
    }
}

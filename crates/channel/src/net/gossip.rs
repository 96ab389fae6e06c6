//! Gossip among native clients (libp2p gossipsub 1.1): for those that come in large numbers, or
//! that others cannot reach by an address of their own.
//!
//! Peers are connected to a few others, and a message goes from mesh to mesh. Nothing is forwarded
//! before it was verified: gossipsub keeps a message back until the relay has judged it. Messages
//! carry no sender, since who passes one on does not matter; what counts is the publisher's
//! signature within. A peer's identity is its ed25519 key, the same that stamps a client's items,
//! so that a closed group is a list of public keys: connections of others are refused.
//!
//! What breaks it: peers that know only dead peers. Give each peer several addresses.
//!
//! Decision: docs/decisions/0029-gossip-by-libp2p.md.

use std::time::Duration;

use futures_util::StreamExt;
use libp2p::gossipsub::{
    self, IdentTopic, MessageAcceptance, MessageAuthenticity, MessageId, ValidationMode,
};
use libp2p::identity::{self, Keypair};
use libp2p::swarm::behaviour::toggle::Toggle;
use libp2p::swarm::{NetworkBehaviour, SwarmEvent};
use libp2p::{Multiaddr, PeerId, Swarm, SwarmBuilder, allow_block_list, noise, tcp, yamux};
use ring::digest;

use super::relay::{Inlet, Overlay, Running};
use super::subscribe::Backoff;
use super::{Hub, hub::Packed};
use crate::key::PublicKey;
use crate::message::{BYTES_MAX, from_text};
use crate::verify::Rejection;

/// What peers talk about.
const TOPIC: &str = "tidegate-channel-v1";

/// Connections without a mesh are kept this long: messages are rare, handshakes are not cheap.
const IDLE: Duration = Duration::from_secs(600);

/// A message that was seen is not looked at again for this long: longer than it is valid.
const SEEN: Duration = Duration::from_secs(120);

/// With fewer neighbours than this the given peers are dialled again.
const NEIGHBOURS: usize = 2;

/// Why there is no gossip.
#[derive(Debug, thiserror::Error)]
pub enum GossipError {
    /// A key that is none.
    #[error("`{0}` is not the public key of a member")]
    Member(PublicKey),
    /// An address that cannot be listened on.
    #[error("cannot listen on {0}: {1}; the form is /ip4/ADDRESS/tcp/PORT")]
    Listen(Multiaddr, String),
    /// libp2p refuses its configuration.
    #[error("gossip cannot start: {0}")]
    Start(String),
}

/// A peer among others.
#[derive(Debug, Clone, Default)]
pub struct GossipConfig {
    /// Where to listen; nowhere for a peer that only dials.
    pub listen: Vec<Multiaddr>,
    /// Peers to begin with.
    pub peers: Vec<Multiaddr>,
    /// Keys of the peers that are talked to; anybody when empty.
    pub members: Vec<PublicKey>,
}

#[derive(NetworkBehaviour)]
struct Behaviour {
    gossip: gossipsub::Behaviour,
    members: Toggle<allow_block_list::Behaviour<allow_block_list::AllowedPeers>>,
}

/// Gossip, ready to run as an overlay of a relay.
pub struct Gossip {
    swarm: Swarm<Behaviour>,
    topic: IdentTopic,
    listens: bool,
    peers: Vec<Multiaddr>,
    backoff: Backoff,
}

impl std::fmt::Debug for Gossip {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gossip")
            .field("peer", self.swarm.local_peer_id())
            .finish_non_exhaustive()
    }
}

impl Gossip {
    /// A peer with the identity of this secret key's seed. Needs a tokio runtime.
    ///
    /// # Errors
    /// Members that are no keys, addresses that are not ours.
    pub fn new(seed: &[u8; 32], config: GossipConfig) -> Result<Self, GossipError> {
        let start = |error: &dyn std::fmt::Display| GossipError::Start(error.to_string());
        let identity = Keypair::ed25519_from_bytes(*seed).map_err(|error| start(&error))?;
        let topic = IdentTopic::new(TOPIC);
        let behaviour = behaviour(&config.members, &topic)?;
        let mut swarm = SwarmBuilder::with_existing_identity(identity)
            .with_tokio()
            .with_tcp(
                tcp::Config::default().nodelay(true),
                noise::Config::new,
                yamux::Config::default,
            )
            .map_err(|error| start(&error))?
            .with_behaviour(|_| behaviour)
            .map_err(|error| start(&error))?
            .with_swarm_config(|swarm| swarm.with_idle_connection_timeout(IDLE))
            .build();
        let listens = !config.listen.is_empty();
        for addr in config.listen {
            let listening = swarm.listen_on(addr.clone());
            listening.map_err(|error| GossipError::Listen(addr, error.to_string()))?;
        }
        let jitter = u64::from_be_bytes(std::array::from_fn(|index| seed[index]));
        Ok(Self {
            swarm,
            topic,
            listens,
            peers: config.peers,
            backoff: Backoff::new(jitter),
        })
    }

    /// The first address at which it can be reached, with its identity; `None` if it only dials.
    pub async fn address(&mut self) -> Option<Multiaddr> {
        if !self.listens {
            return None;
        }
        let own = *self.swarm.local_peer_id();
        loop {
            if let SwarmEvent::NewListenAddr { address, .. } = self.swarm.select_next_some().await {
                return address.with_p2p(own).ok();
            }
        }
    }

    async fn keep(mut self, inlet: Inlet, hub: Hub) {
        let mut newest = hub.watch();
        newest.mark_changed();
        let look = tokio::time::sleep(Duration::ZERO);
        tokio::pin!(look);
        loop {
            tokio::select! {
                event = self.swarm.select_next_some() => self.on_event(event, &inlet, &hub).await,
                Ok(()) = newest.changed() => {
                    let packed = newest.borrow_and_update().clone();
                    self.publish(packed);
                }
                () = &mut look => {
                    self.look_around();
                    look.as_mut().reset(tokio::time::Instant::now() + self.backoff.next_wait());
                }
            }
        }
    }

    /// Dials the given peers while there are too few.
    fn look_around(&mut self) {
        if self.swarm.connected_peers().count() >= NEIGHBOURS.min(self.peers.len()) {
            return;
        }
        for peer in &self.peers {
            // One that cannot be dialled now is dialled again.
            let _ = self.swarm.dial(peer.clone());
        }
    }

    /// Says what was accepted by whichever way. What came by gossip has been said already.
    fn publish(&mut self, packed: Option<Packed>) {
        if let Some(bytes) = packed.and_then(|packed| from_text(&packed.text)) {
            let topic = self.topic.hash();
            let _ = self.swarm.behaviour_mut().gossip.publish(topic, bytes);
        }
    }

    async fn on_event(&mut self, event: SwarmEvent<BehaviourEvent>, inlet: &Inlet, hub: &Hub) {
        match event {
            SwarmEvent::Behaviour(BehaviourEvent::Gossip(gossipsub::Event::Message {
                propagation_source,
                message_id,
                message,
            })) => {
                let acceptance = judge(message.data, inlet, hub).await;
                let gossip = &mut self.swarm.behaviour_mut().gossip;
                gossip.report_message_validation_result(
                    &message_id,
                    &propagation_source,
                    acceptance,
                );
            }
            // A new peer may have missed earlier messages.
            SwarmEvent::Behaviour(BehaviourEvent::Gossip(gossipsub::Event::Subscribed {
                ..
            })) => self.publish(hub.newest()),
            SwarmEvent::ConnectionEstablished { .. } => self.backoff.reset(),
            _ => {}
        }
    }
}

impl Overlay for Gossip {
    fn run(self: Box<Self>, inlet: Inlet, hub: Hub) -> Running {
        Box::pin(self.keep(inlet, hub))
    }
}

/// Whether a message may be passed on.
async fn judge(bytes: Vec<u8>, inlet: &Inlet, hub: &Hub) -> MessageAcceptance {
    let in_force = hub.newest().and_then(|packed| from_text(&packed.text));
    let known = in_force.as_ref() == Some(&bytes);
    match inlet.judge(bytes).await {
        Some(Ok(())) => MessageAcceptance::Accept,
        // Another way was faster.
        Some(Err(Rejection::Replayed)) if known => MessageAcceptance::Accept,
        // Late, which honest peers may be.
        None | Some(Err(Rejection::Older | Rejection::Replayed | Rejection::Expired)) => {
            MessageAcceptance::Ignore
        }
        Some(Err(_)) => MessageAcceptance::Reject,
    }
}

fn behaviour(members: &[PublicKey], topic: &IdentTopic) -> Result<Behaviour, GossipError> {
    let start = |error: &dyn std::fmt::Display| GossipError::Start(error.to_string());
    let config = gossipsub::ConfigBuilder::default()
        .validation_mode(ValidationMode::Anonymous)
        .validate_messages()
        .flood_publish(false)
        .duplicate_cache_time(SEEN)
        .max_transmit_size(BYTES_MAX.max(MESH_BYTES_MIN))
        .message_id_fn(|message: &gossipsub::Message| {
            let digest = digest::digest(&digest::SHA256, &message.data);
            MessageId::from(digest.as_ref().to_vec())
        })
        .build()
        .map_err(|error| start(&error))?;
    let mut gossip = gossipsub::Behaviour::new(MessageAuthenticity::Anonymous, config)
        .map_err(|error| start(&error))?;
    gossip.subscribe(topic).map_err(|error| start(&error))?;
    Ok(Behaviour {
        gossip,
        members: Toggle::from(closed_group(members)?),
    })
}

/// Gossipsub's own words need room beside the message.
const MESH_BYTES_MIN: usize = 4096;

/// Refuses all other peers; `None` admits any peer.
fn closed_group(
    members: &[PublicKey],
) -> Result<Option<allow_block_list::Behaviour<allow_block_list::AllowedPeers>>, GossipError> {
    if members.is_empty() {
        return Ok(None);
    }
    let mut allowed = allow_block_list::Behaviour::default();
    for &member in members {
        allowed.allow_peer(peer_id(member)?);
    }
    Ok(Some(allowed))
}

/// The name of the peer with this key.
///
/// # Errors
/// When it is no key.
pub fn peer_id(key: PublicKey) -> Result<PeerId, GossipError> {
    let key_of = identity::ed25519::PublicKey::try_from_bytes(&key.0);
    let public = key_of.map_err(|_| GossipError::Member(key))?;
    Ok(identity::PublicKey::from(public).to_peer_id())
}

//! What `tidegate relay` and `tidegate client` are told about gossip.

use tidegate_channel::PublicKey;
use tidegate_channel::net::gossip::{Gossip, GossipConfig};
use tidegate_channel::net::relay::Overlay;

use crate::channel::random_seed;
use crate::error::CliError;

#[derive(Debug, clap::Args)]
pub(crate) struct GossipArgs {
    /// Take part in gossip among peers, and listen for them there: /ip4/ADDRESS/tcp/PORT.
    #[arg(long = "gossip", value_name = "MULTIADDR")]
    listen: Vec<String>,
    /// A peer to begin with: /ip4/ADDRESS/tcp/PORT/p2p/PEER; give several.
    #[arg(long = "peer", value_name = "MULTIADDR")]
    peers: Vec<String>,
    /// Talk to peers with these keys alone; repeat it.
    #[arg(long = "member", value_name = "HEX")]
    members: Vec<PublicKey>,
}

impl GossipArgs {
    /// `None` when there is to be none.
    pub(crate) fn config(&self) -> Result<Option<GossipConfig>, CliError> {
        if self.listen.is_empty() && self.peers.is_empty() {
            return Ok(None);
        }
        let unusable = |text: &String| CliError::Usage(format!("`{text}` is no multiaddress"));
        let parse = |text: &String| text.parse().map_err(|_| unusable(text));
        let listen = self.listen.iter().map(parse).collect::<Result<_, _>>()?;
        let peers = self.peers.iter().map(parse).collect::<Result<_, _>>()?;
        Ok(Some(GossipConfig {
            listen,
            peers,
            members: self.members.clone(),
        }))
    }
}

/// Starts as the peer with this key, or a new one, and says where it is reached.
pub(crate) async fn start(
    seed: Option<[u8; 32]>,
    config: GossipConfig,
) -> Result<Box<dyn Overlay>, CliError> {
    let seed = seed.map_or_else(random_seed, Ok)?;
    let mut gossip =
        Gossip::new(&seed, config).map_err(|error| CliError::Usage(error.to_string()))?;
    if let Some(address) = gossip.address().await {
        eprintln!("gossiping at {address}");
    }
    Ok(Box::new(gossip))
}

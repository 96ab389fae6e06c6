//! What a client is told, and why it may not start.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tidegate_channel::net::Dialer;
#[cfg(feature = "gossip")]
use tidegate_channel::net::gossip::GossipConfig;
use tidegate_channel::net::relay::Parents;
use tidegate_channel::stamp::Stamper;
use tidegate_channel::{PublicKey, Variant};
use tokio::net::TcpListener;

use crate::outbox::OutboxError;

/// What a client needs to know.
#[derive(Clone)]
pub struct Config {
    /// The publisher: the address of the proxy's channel listener.
    pub publisher: String,
    /// The keys it signs with.
    pub keys: Vec<PublicKey>,
    /// Where to subscribe.
    pub parents: Parents,
    /// Where items are kept.
    pub outbox: PathBuf,
    /// Whether a newer item replaces an older one of its key.
    pub variant: Variant,
    /// How long an item is worth something, unless it says otherwise.
    pub delay_max: Duration,
    /// An item that was not sent in time is kept for so much longer: the server may prolong.
    pub grace: Duration,
    /// One item per so long while the channel is silent.
    pub fallback: Duration,
    /// How long the channel must be silent for that.
    pub silence: Duration,
    /// What stamps items; a key in the outbox when missing.
    pub stamper: Option<Arc<dyn Stamper>>,
    /// Opens connections to server and channel; says whose certificates are believed.
    pub dialer: Dialer,
    /// Where to pass messages on to others, if at all.
    pub relay: Option<Relaying>,
    /// Gossip with other clients, if at all, by the key in the outbox.
    #[cfg(feature = "gossip")]
    pub gossip: Option<GossipConfig>,
}

/// A client that passes messages on to others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Relaying {
    /// Where to listen; port 0 takes a free one.
    pub listen: SocketAddr,
    /// The address by which others reach it, if it is another.
    pub url: Option<String>,
}

impl Config {
    /// The usual: parents from the publisher's tracker, overwriting, items worth an hour.
    pub fn new(publisher: &str, key: PublicKey, outbox: impl Into<PathBuf>) -> Self {
        Self {
            publisher: publisher.to_owned(),
            keys: vec![key],
            parents: Parents::Tracked {
                tracker: publisher.to_owned(),
                own: None,
            },
            outbox: outbox.into(),
            variant: Variant::Overwrite,
            delay_max: Duration::from_secs(3600),
            grace: Duration::from_secs(600),
            fallback: Duration::from_secs(60),
            silence: Duration::from_secs(10),
            stamper: None,
            dialer: Dialer::default(),
            relay: None,
            #[cfg(feature = "gossip")]
            gossip: None,
        }
    }
}

/// Why a client cannot start.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The outbox cannot be used.
    #[error(transparent)]
    Outbox(#[from] OutboxError),
    /// The address for others is taken, or not ours.
    #[error("cannot listen on {0} for others: {1}; choose another address")]
    Listen(SocketAddr, std::io::Error),
    /// Gossip cannot start.
    #[cfg(feature = "gossip")]
    #[error(transparent)]
    Gossip(#[from] tidegate_channel::net::gossip::GossipError),
}

/// A listener for others, and the address by which they reach it.
pub(crate) type Listener = (TcpListener, String);

impl Relaying {
    pub(crate) fn bind(&self) -> Result<Listener, OpenError> {
        let bound = || {
            let socket = std::net::TcpListener::bind(self.listen)?;
            socket.set_nonblocking(true)?;
            let own = format!("http://{}", socket.local_addr()?);
            Ok((TcpListener::from_std(socket)?, own))
        };
        let refused = |error| OpenError::Listen(self.listen, error);
        let (listener, own) = bound().map_err(refused)?;
        Ok((listener, self.url.clone().unwrap_or(own)))
    }
}

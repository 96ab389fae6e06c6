//! Delivery of control messages: server-sent events, over trees of relays.
//!
//! ```text
//!  publisher ──► hub ──► SSE ──► relay: verify ──► hub ──► SSE ──► client: verify, apply
//!      │                          ▲ two parents at least             ▲
//!      └── tracker: who subscribes where, joins paced ───────────────┘
//! ```
//!
//! A [`Hub`] holds the newest message and hands it to its listeners; one that is slow
//! skips to the newest, since older ones mean nothing any more. A [`relay`] subscribes to parents,
//! verifies, and feeds a hub of its own: the same message, the same check at every hop. Joining
//! is paced by the [`tracker`], and repair is jittered: when every client notices silence at once
//! and reconnects, an overlay melts.
//!
//! The trees are one [`Overlay`](relay::Overlay); with the feature `gossip` there is another, for
//! native clients that come in large numbers or cannot be reached from outside.
//!
//! Paths, on the proxy's channel listener and on every relay:
//!
//! | path | answer |
//! | --- | --- |
//! | `/.tidegate/channel` | the event stream; each event's data is a message as text |
//! | `/.tidegate/message` | the newest message as text |
//! | `/.tidegate/join` | where to subscribe (publisher only) |
//! | `/.tidegate/time?nonce=N` | the server's clock, signed (publisher only) |
//! | `/.tidegate/relay` | how a relay is doing (relays only) |
//!
//! All of it is open to strangers, within [`limits`].

#[cfg(feature = "gossip")]
pub mod gossip;
pub mod http;
pub mod hub;
pub mod limits;
pub mod relay;
pub mod serve;
pub mod subscribe;
pub mod sync;
mod tree;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tidegate_control::Timestamp;

pub use crate::tracker::{self, Tracker};
pub use http::Dialer;
pub use hub::Hub;
pub use limits::{Limits, PerAddress};
pub use relay::Relay;
pub use serve::Desk;
pub use sync::Clock;

/// Where the event stream is.
pub const CHANNEL_PATH: &str = "/.tidegate/channel";
/// Where the newest message is.
pub const MESSAGE_PATH: &str = "/.tidegate/message";
/// Where the tracker is.
pub const JOIN_PATH: &str = "/.tidegate/join";
/// Where the clock is.
pub const TIME_PATH: &str = "/.tidegate/time";
/// Where a relay says how it is doing.
pub const RELAY_PATH: &str = "/.tidegate/relay";

/// The header that carries a message on a response.
pub const MESSAGE_HEADER: &str = "tidegate-control";
/// The header in which a client says who it is and what it was told.
pub const CLIENT_HEADER: &str = "tidegate-client";
/// The header that carries a stamp.
pub const STAMP_HEADER: &str = "tidegate-stamp";
/// The header in which the proxy says why it did not pass an item on: no answer to the item.
pub const HELD_HEADER: &str = "tidegate-held";
/// The header in which the proxy tells the service whose an item is and when it was made.
pub const RECEIPT_HEADER: &str = "tidegate-receipt";

/// Now, since the Unix epoch.
#[must_use]
pub fn unix_now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    Timestamp::ZERO + since.unwrap_or(Duration::ZERO)
}

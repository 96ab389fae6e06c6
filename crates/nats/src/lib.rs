//! Reports of proxies through a key-value bucket of NATS JetStream.
//!
//! ```text
//! proxy ── put, every interval ──► bucket: one key per proxy ── watch ──► every other proxy
//! ```
//!
//! A bucket is a fleet and a key is a proxy. The server forgets a key that is not put for the time
//! that the bucket was made with. What the values mean, and whether they can be believed, is not
//! known here.
//!
//! Names and addresses are plain functions. The feature `client` adds what talks to a server:
//! without it the crate builds in a second, with it in a minute.

mod names;

#[cfg(feature = "client")]
mod bucket;

pub use names::{bucket_name, check_url, key_name};

#[cfg(feature = "client")]
pub use bucket::{Bucket, NatsError, Server, Watched};

//! When an item was made: a timestamp that its client signs and the server can check later.
//!
//! In 001 a smart card stamps each bid (§2.3), so that a bid made before the deadline may be sent
//! after it. Here that is a [`Stamper`]: a key in software by default, or hardware behind the same
//! two calls (as in PKCS#11: the public key, and `C_Sign` with the mechanism `CKM_EDDSA`).
//!
//! ```text
//! 1 version (2), 32 client's public key, 8 number of the item, 8 made at (ms), 4 error of that (ms),
//! 4 longest delay (ms), 32 digest of the content, 0 or 92 the server's signed answer about the
//! client's clock, 64 signature of "tidegate-stamp-v2" and everything before
//! ```
//!
//! A stamp is for one content: SHA-256 of method, target and body, each with its length before it
//! ([`Content`]). On another request it is worth nothing.
//!
//! A software key proves who, not when: its owner can stamp any time. Against that the server
//! bounds the delay of each item (001 §2.2), not the deadline alone, and believes an error of the
//! clock only as far as it has seen it itself ([`clock`](crate::clock)).
//!
//! Decision: docs/decisions/0080-stamps-for-one-content.md.

use std::time::Duration;

use data_encoding::BASE64URL_NOPAD;
use ring::digest;
use tidegate_control::Timestamp;

use crate::clock::SignedAnswer;
use crate::key::{PublicKey, SIGNATURE_BYTES, SecretKey};
use crate::strategy::ClientId;
use crate::wire::{Reader, millis, timestamp};

const VERSION: u8 = 2;
const DOMAIN: &[u8] = b"tidegate-stamp-v2";

/// The digest of what is stamped: a request's method, target and body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Content(pub [u8; 32]);

impl Content {
    /// Of a request; `target` is path and query as they are sent.
    #[must_use]
    pub fn of(method: &str, target: &str, body: &[u8]) -> Self {
        let mut context = digest::Context::new(&digest::SHA256);
        for part in [method.as_bytes(), target.as_bytes(), body] {
            context.update(&(part.len() as u64).to_be_bytes());
            context.update(part);
        }
        let mut content = [0; 32];
        content.copy_from_slice(context.finish().as_ref());
        Self(content)
    }
}

/// What signs stamps: software, a smart card, a token.
pub trait Stamper: Send + Sync {
    /// The key that stamps are verified with.
    fn public_key(&self) -> PublicKey;

    /// Signs; `None` when the device does not answer or refuses.
    fn sign(&self, message: &[u8]) -> Option<[u8; SIGNATURE_BYTES]>;
}

impl Stamper for SecretKey {
    fn public_key(&self) -> PublicKey {
        self.public()
    }

    fn sign(&self, message: &[u8]) -> Option<[u8; SIGNATURE_BYTES]> {
        Some(self.sign(message))
    }
}

/// The number of a client that has a key: no client can take another's.
#[must_use]
pub fn client_id(key: &PublicKey) -> ClientId {
    ClientId(first_of_digest(&key.0))
}

/// Who made which item when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// The client's key.
    pub client: PublicKey,
    /// The item's number, unique for the client.
    pub item: u64,
    /// When it was made, by the server's clock.
    pub made: Timestamp,
    /// How far that may be off.
    pub error: Duration,
    /// How long after it was made it is still worth something.
    pub delay_max: Duration,
    /// What was made.
    pub content: Content,
    /// What the server has signed about the client's clock.
    pub clock: Option<SignedAnswer>,
}

impl Stamp {
    /// The stamp as text, signed; `None` when the stamper does not sign.
    #[must_use]
    pub fn sign(&self, stamper: &dyn Stamper) -> Option<String> {
        let mut bytes = vec![VERSION];
        bytes.extend_from_slice(&self.client.0);
        bytes.extend_from_slice(&self.item.to_be_bytes());
        bytes.extend_from_slice(&millis(self.made).to_be_bytes());
        bytes.extend_from_slice(&short_millis(self.error).to_be_bytes());
        bytes.extend_from_slice(&short_millis(self.delay_max).to_be_bytes());
        bytes.extend_from_slice(&self.content.0);
        if let Some(clock) = &self.clock {
            bytes.extend_from_slice(&clock.to_bytes());
        }
        let signature = stamper.sign(&[DOMAIN, &bytes].concat())?;
        bytes.extend_from_slice(&signature);
        Some(BASE64URL_NOPAD.encode(&bytes))
    }

    /// Reads a stamp; `None` unless the client it names signed it.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let bytes = BASE64URL_NOPAD.decode(text.trim().as_bytes()).ok()?;
        let (body, signature) = bytes.split_at(bytes.len().checked_sub(SIGNATURE_BYTES)?);
        let mut reader = Reader(body);
        if reader.u8()? != VERSION {
            return None;
        }
        let stamp = Self {
            client: PublicKey(reader.bytes()?),
            item: reader.u64()?,
            made: timestamp(reader.u64()?),
            error: Duration::from_millis(reader.u32()?.into()),
            delay_max: Duration::from_millis(reader.u32()?.into()),
            content: Content(reader.bytes()?),
            clock: match reader.0 {
                [] => None,
                answer => Some(SignedAnswer::read(answer)?),
            },
        };
        let signed = [DOMAIN, body].concat();
        stamp.client.verifies(&signed, signature).then_some(stamp)
    }

    /// Names the item over retransmissions: the value of `idempotency-key`.
    #[must_use]
    pub fn name(&self) -> String {
        item_name(client_id(&self.client), self.item)
    }
}

/// Names an item of a client: the value of `idempotency-key`.
#[must_use]
pub fn item_name(client: ClientId, item: u64) -> String {
    format!("\"{:016x}-{item}\"", client.0)
}

/// How old the stamp of a joining client may be, and how far clocks may differ.
const JOIN_AGE_MAX: Duration = Duration::from_secs(60);

/// What a member signs when it joins: its address, empty for one that does not relay.
fn join_content(address: &str) -> Content {
    Content::of("JOIN", address, b"")
}

/// A member's word that it is about to relay at this address: its content is the address, so that
/// no other client can register with it.
#[must_use]
pub fn join_stamp(member: &dyn Stamper, address: &str, now: Timestamp) -> Option<String> {
    let stamp = Stamp {
        client: member.public_key(),
        item: 0,
        made: now,
        error: Duration::ZERO,
        delay_max: JOIN_AGE_MAX,
        content: join_content(address),
        clock: None,
    };
    stamp.sign(member)
}

/// Who gave a [`join_stamp`]; `None` when it is forged, old, or for another address.
#[must_use]
pub fn read_join_stamp(text: &str, address: &str, now: Timestamp) -> Option<PublicKey> {
    let stamp = Stamp::read(text)?;
    let age = now.since(stamp.made).max(stamp.made.since(now));
    let fits = stamp.content == join_content(address) && age <= JOIN_AGE_MAX;
    fits.then_some(stamp.client)
}

fn first_of_digest(bytes: &[u8]) -> u64 {
    let digest = digest::digest(&digest::SHA256, bytes);
    let first = digest.as_ref().first_chunk::<8>();
    first.map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

fn short_millis(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Answer;

    struct Broken;

    impl Stamper for Broken {
        fn public_key(&self) -> PublicKey {
            PublicKey([0; 32])
        }

        fn sign(&self, _: &[u8]) -> Option<[u8; SIGNATURE_BYTES]> {
            None
        }
    }

    fn stamp(key: &SecretKey) -> Stamp {
        Stamp {
            client: key.public(),
            item: 12,
            made: timestamp(1_700_000_000_000),
            error: Duration::from_millis(40),
            delay_max: Duration::from_secs(300),
            content: Content::of("POST", "/bids", b"1"),
            clock: None,
        }
    }

    #[test]
    fn stamp_is_for_one_content() {
        let of = Content::of("POST", "/bids", b"amount=1");
        for other in [
            Content::of("PUT", "/bids", b"amount=1"),
            Content::of("POST", "/bids?", b"amount=1"),
            Content::of("POST", "/bids", b"amount=2"),
            // The same bytes, cut elsewhere.
            Content::of("POST", "/bid", b"samount=1"),
            Content::of("POST/", "bids", b"amount=1"),
        ] {
            assert_ne!(of, other);
        }
    }

    #[test]
    fn stamp_carries_what_the_server_said_about_the_clock() {
        let (key, server) = (
            SecretKey::from_seed(&[3; 32]),
            SecretKey::from_seed(&[9; 32]),
        );
        let at = timestamp(1_700_000_000_000);
        let clock = Some(Answer::new(7, at, at, None).sign(&server));
        let with = Stamp {
            clock,
            ..stamp(&key)
        };
        let text = with.sign(&key).unwrap();
        let read = Stamp::read(&text).unwrap();
        assert_eq!(read, with);
        assert!(read.clock.unwrap().is_signed_by(&[server.public()]));
    }

    #[test]
    fn only_the_client_itself_can_stamp() {
        let key = SecretKey::from_seed(&[3; 32]);
        let text = stamp(&key).sign(&key).unwrap();
        assert_eq!(Stamp::read(&text), Some(stamp(&key)));
        let other = SecretKey::from_seed(&[4; 32]);
        assert_eq!(Stamp::read(&stamp(&key).sign(&other).unwrap()), None);
        for position in 0..text.len() {
            let mut changed = text.clone().into_bytes();
            changed[position] = if changed[position] == b'A' {
                b'B'
            } else {
                b'A'
            };
            assert_eq!(Stamp::read(std::str::from_utf8(&changed).unwrap()), None);
        }
        assert_eq!(Stamp::read(""), None);
    }

    #[test]
    fn member_joins_at_its_own_address_and_not_for_ever() {
        let key = SecretKey::from_seed(&[3; 32]);
        let (now, later) = (timestamp(1_700_000_000_000), timestamp(1_700_000_061_000));
        let text = join_stamp(&key, "http://a:1", now).unwrap();
        assert_eq!(
            read_join_stamp(&text, "http://a:1", now),
            Some(key.public())
        );
        assert_eq!(read_join_stamp(&text, "http://b:1", now), None);
        assert_eq!(read_join_stamp(&text, "http://a:1", later), None);
    }

    #[test]
    fn device_may_refuse() {
        assert_eq!(stamp(&SecretKey::from_seed(&[3; 32])).sign(&Broken), None);
    }

    #[test]
    fn numbers_of_clients_come_from_their_keys() {
        let id = |seed| client_id(&SecretKey::from_seed(&[seed; 32]).public());
        assert_ne!(id(1), id(2));
        assert_eq!(id(1), id(1));
    }
}

//! The control message, and its bytes on the wire.
//!
//! ```text
//! offset  bytes
//!      0      1  version, 1
//!      1      4  the first bytes of the signer's public key
//!      5      8  sequence number
//!     13      8  time of issue, milliseconds since the Unix epoch
//!     21      4  validity, milliseconds from the time of issue
//!     25      4  setpoint in force, milliseconds
//!     29      1  strategy (0 open, 1 group, 2 interval), plus 128 when a successor key follows,
//!                plus 64 when terms follow
//!                 group:    slot in milliseconds (4), number of classes (1), each divisor (2), modulo (2)
//!                 interval: milliseconds (4)
//!            32  successor's public key, if announced
//!            12  terms, if any: seconds added to every item's delay (4), deadline in milliseconds
//!                since the Unix epoch, 0 for none (8)
//!            64  ed25519 signature of "tidegate-channel-v1" and everything before
//! ```
//!
//! All numbers are big-endian; nothing may follow. As text (in a header, in an event stream) a
//! message is base64url without padding. `tests/vectors.json` has examples for other languages.
//! An open message has 94 bytes, a group of eight classes 131.
//!
//! **Sequence numbers** only grow, by one from message to message while the server runs, so that
//! what a number skips was lost on the way ([`missed`]). The upper 44 bits of the first number are
//! the time of the server's start in milliseconds: numbers grow over a restart too.

use std::time::Duration;

use data_encoding::BASE64URL_NOPAD;
use tidegate_control::Timestamp;

use crate::key::{PublicKey, SIGNATURE_BYTES, SecretKey};
use crate::strategy::{CLASSES_MAX, Class, Groups, Strategy};
use crate::wire::{Reader, millis, timestamp};

/// The version this code reads and writes.
pub const VERSION: u8 = 1;

/// What is signed begins with this, so that a signature made for another purpose is none here.
const DOMAIN: &[u8] = b"tidegate-channel-v1";

const OPEN: u8 = 0;
const GROUP: u8 = 1;
const INTERVAL: u8 = 2;
const SUCCESSOR: u8 = 0x80;
const TERMS: u8 = 0x40;

/// Longest message: a group of eight classes that announces a successor, with terms.
pub const BYTES_MAX: usize = 30 + 4 + 1 + 4 * CLASSES_MAX + 32 + 12 + SIGNATURE_BYTES;

/// Bits of a sequence number that count within a run of the server: a million messages. One run
/// that needs more goes on into the bits of the time, which it never overtakes.
const RUN_BITS: u32 = 20;

/// The first sequence number of a server that starts at `now`.
#[must_use]
pub fn first_seq(now: Timestamp) -> u64 {
    (millis(now) << RUN_BITS) | 1
}

/// Messages of the same run that lie between two numbers. Between two runs the number is unknown.
#[must_use]
pub fn missed(last: u64, next: u64) -> u64 {
    if last >> RUN_BITS == next >> RUN_BITS {
        next.saturating_sub(last).saturating_sub(1)
    } else {
        0
    }
}

/// What the server has decided about the time of items.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Terms {
    /// Added to the longest delay of every item, in whole seconds.
    pub prolonged: Duration,
    /// Items made later do not count.
    pub deadline: Option<Timestamp>,
}

impl Terms {
    fn is_usual(&self) -> bool {
        *self == Self::default()
    }
}

/// What the server tells its clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlMessage {
    /// Grows with every message.
    pub seq: u64,
    /// When it was issued, by the server's clock, to the millisecond.
    pub issued: Timestamp,
    /// How long it may be believed.
    pub validity: Duration,
    /// The delay that the server aims at.
    pub setpoint: Duration,
    /// Who may send when.
    pub strategy: Strategy,
    /// The key that will sign after this one.
    pub successor: Option<PublicKey>,
    /// Until when items count.
    pub terms: Terms,
}

/// Why bytes are not a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Malformed {
    /// A version that this code does not know.
    Version,
    /// Too short, too long, or with values that mean nothing.
    Content,
}

/// A message taken apart, its signature not yet looked at.
#[derive(Debug, Clone)]
pub struct Unverified<'a> {
    /// What it claims.
    pub message: ControlMessage,
    /// Who it claims to be from.
    pub signer: [u8; 4],
    body: &'a [u8],
    signature: &'a [u8],
}

impl ControlMessage {
    /// The bytes of the message, signed.
    #[must_use]
    pub fn sign(&self, key: &SecretKey) -> Vec<u8> {
        let mut bytes = self.body(key.public());
        let signature = key.sign(&signed_part(&bytes));
        bytes.extend_from_slice(&signature);
        bytes
    }

    fn body(&self, signer: PublicKey) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(BYTES_MAX);
        bytes.push(VERSION);
        bytes.extend_from_slice(&signer.short());
        bytes.extend_from_slice(&self.seq.to_be_bytes());
        bytes.extend_from_slice(&millis(self.issued).to_be_bytes());
        bytes.extend_from_slice(&short_millis(self.validity).to_be_bytes());
        bytes.extend_from_slice(&short_millis(self.setpoint).to_be_bytes());
        let flags = self.flags();
        match &self.strategy {
            Strategy::Open => bytes.push(OPEN | flags),
            Strategy::Group(groups) => {
                bytes.push(GROUP | flags);
                put_groups(&mut bytes, groups);
            }
            Strategy::Interval(interval) => {
                bytes.push(INTERVAL | flags);
                bytes.extend_from_slice(&short_millis(*interval).to_be_bytes());
            }
        }
        if let Some(PublicKey(key)) = &self.successor {
            bytes.extend_from_slice(key);
        }
        if !self.terms.is_usual() {
            put_terms(&mut bytes, &self.terms);
        }
        bytes
    }

    fn flags(&self) -> u8 {
        let successor = if self.successor.is_some() {
            SUCCESSOR
        } else {
            0
        };
        let terms = if self.terms.is_usual() { 0 } else { TERMS };
        successor | terms
    }

    /// Until when it may be believed.
    #[must_use]
    pub fn expires(&self) -> Timestamp {
        self.issued + self.validity
    }
}

impl<'a> Unverified<'a> {
    /// Takes a message apart.
    ///
    /// # Errors
    /// What is wrong with its form.
    pub fn read(bytes: &'a [u8]) -> Result<Self, Malformed> {
        if bytes.first().is_some_and(|&version| version != VERSION) {
            return Err(Malformed::Version);
        }
        let length = bytes.len().checked_sub(SIGNATURE_BYTES);
        let (body, signature) = bytes.split_at(length.ok_or(Malformed::Content)?);
        let (message, signer) = read_body(body).ok_or(Malformed::Content)?;
        Ok(Self {
            message,
            signer,
            body,
            signature,
        })
    }

    /// Whether `key` signed it.
    #[must_use]
    pub fn is_signed_by(&self, key: &PublicKey) -> bool {
        key.verifies(&signed_part(self.body), self.signature)
    }
}

/// A message as text.
#[must_use]
pub fn to_text(bytes: &[u8]) -> String {
    BASE64URL_NOPAD.encode(bytes)
}

/// The bytes of a message written as text; `None` when it is none.
#[must_use]
pub fn from_text(text: &str) -> Option<Vec<u8>> {
    BASE64URL_NOPAD.decode(text.trim().as_bytes()).ok()
}

fn signed_part(body: &[u8]) -> Vec<u8> {
    [DOMAIN, body].concat()
}

/// Longer than 49 days is 49 days.
fn short_millis(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis()).unwrap_or(u32::MAX)
}

fn put_groups(bytes: &mut Vec<u8>, groups: &Groups) {
    let classes = &groups.classes[..groups.classes.len().min(CLASSES_MAX)];
    bytes.extend_from_slice(&short_millis(groups.slot).to_be_bytes());
    bytes.push(classes.len() as u8);
    for class in classes {
        bytes.extend_from_slice(&class.divisor.to_be_bytes());
        bytes.extend_from_slice(&class.modulo.to_be_bytes());
    }
}

fn put_terms(bytes: &mut Vec<u8>, terms: &Terms) {
    let prolonged_s = u32::try_from(terms.prolonged.as_secs()).unwrap_or(u32::MAX);
    bytes.extend_from_slice(&prolonged_s.to_be_bytes());
    bytes.extend_from_slice(&terms.deadline.map_or(0, millis).to_be_bytes());
}

fn read_terms(reader: &mut Reader<'_>) -> Option<Terms> {
    let prolonged = Duration::from_secs(reader.u32()?.into());
    let deadline = reader.u64()?;
    Some(Terms {
        prolonged,
        deadline: (deadline > 0).then(|| timestamp(deadline)),
    })
}

fn read_body(body: &[u8]) -> Option<(ControlMessage, [u8; 4])> {
    let mut reader = Reader(body);
    reader.u8()?;
    let signer = reader.bytes()?;
    let seq = reader.u64()?;
    let issued = timestamp(reader.u64()?);
    let validity = Duration::from_millis(reader.u32()?.into());
    let setpoint = Duration::from_millis(reader.u32()?.into());
    let kind = reader.u8()?;
    let strategy = match kind & !(SUCCESSOR | TERMS) {
        OPEN => Strategy::Open,
        GROUP => Strategy::Group(read_groups(&mut reader)?),
        INTERVAL => Strategy::Interval(Duration::from_millis(reader.u32()?.into())),
        _ => return None,
    };
    let successor = match kind & SUCCESSOR {
        0 => None,
        _ => Some(PublicKey(reader.bytes()?)),
    };
    let terms = match kind & TERMS {
        0 => Terms::default(),
        _ => read_terms(&mut reader)?,
    };
    let message = ControlMessage {
        seq,
        issued,
        validity,
        setpoint,
        strategy,
        successor,
        terms,
    };
    reader.is_done().then_some((message, signer))
}

fn read_groups(reader: &mut Reader<'_>) -> Option<Groups> {
    let slot = Duration::from_millis(reader.u32()?.into());
    let count = usize::from(reader.u8()?);
    if slot.is_zero() || count > CLASSES_MAX {
        return None;
    }
    let class = |_| {
        let (divisor, modulo) = (reader.u16()?, reader.u16()?);
        (modulo < divisor).then_some(Class { divisor, modulo })
    };
    let classes = (0..count).map(class).collect::<Option<_>>()?;
    Some(Groups { slot, classes })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(strategy: Strategy, successor: Option<PublicKey>) -> ControlMessage {
        ControlMessage {
            seq: 42,
            issued: timestamp(1_700_000_000_123),
            validity: Duration::from_secs(30),
            setpoint: Duration::from_secs(1),
            strategy,
            successor,
            terms: Terms::default(),
        }
    }

    fn strategies() -> Vec<Strategy> {
        let slot = Duration::from_secs(4);
        vec![
            Strategy::Open,
            Strategy::Interval(Duration::from_millis(12_345)),
            Strategy::Group(Groups::with_share(255.0 / 256.0, slot)),
            Strategy::Group(Groups::one_of(75, slot)),
        ]
    }

    #[test]
    fn what_is_written_is_read_back() {
        let key = SecretKey::from_seed(&[1; 32]);
        for strategy in strategies() {
            let late = Terms {
                prolonged: Duration::from_secs(90),
                deadline: Some(timestamp(1_700_000_900_000)),
            };
            let cases = [None, Some(PublicKey([9; 32]))];
            let cases = cases.map(|successor| [Terms::default(), late].map(|it| (successor, it)));
            for (successor, terms) in cases.into_iter().flatten() {
                let mut sent = message(strategy.clone(), successor);
                sent.terms = terms;
                let bytes = sent.sign(&key);
                assert!(bytes.len() <= BYTES_MAX);
                let text = to_text(&bytes);
                let bytes = from_text(&text).unwrap();
                let read = Unverified::read(&bytes).unwrap();
                assert_eq!(read.message, sent);
                assert!(read.is_signed_by(&key.public()));
            }
        }
    }

    #[test]
    fn what_is_too_short_too_long_or_senseless_is_refused() {
        let key = SecretKey::from_seed(&[1; 32]);
        let bytes = message(
            Strategy::Group(Groups::one_of(3, Duration::from_secs(1))),
            None,
        )
        .sign(&key);
        for length in 0..bytes.len() {
            assert!(Unverified::read(&bytes[..length]).is_err(), "{length}");
        }
        let longer = [&bytes[..], &[0]].concat();
        assert_eq!(Unverified::read(&longer).unwrap_err(), Malformed::Content);
        let mut other = bytes;
        other[0] = 2;
        assert_eq!(Unverified::read(&other).unwrap_err(), Malformed::Version);
        assert!(from_text("not base64!").is_none());
    }

    #[test]
    fn missed_messages_show_in_the_numbers_of_one_run() {
        let first = first_seq(timestamp(1_700_000_000_000));
        assert_eq!(missed(first, first + 1), 0);
        assert_eq!(missed(first, first + 4), 3);
        assert_eq!(missed(first, first), 0);
        // A restart, a millisecond later: the number grows, and says nothing about gaps.
        let second = first_seq(timestamp(1_700_000_000_001));
        assert!(second > first + 1_000_000);
        assert_eq!(missed(first + 7, second), 0);
    }
}

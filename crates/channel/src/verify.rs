//! Whether to believe a message: before it is applied, and before it is passed on.
//!
//! A message is dropped and counted when it is malformed or cut short, of another version, from a
//! key that is not trusted, wrongly signed, past its validity, from the future (beyond the clocks'
//! possible error), or not newer than the last one accepted. That a message arrives twice is
//! normal: every client has two parents.
//!
//! Times are the server's, by a [`Reading`] of its clock: what this machine's own clock shows does
//! not matter once clocks were compared, and its error counts for the message.
//!
//! **Key rotation.** The server announces the next key in messages that the present one signs;
//! then it signs with the next one. From the first message of the new key on, the old one is
//! believed for [`OVERLAP`] more, for messages that took a longer way. A client that was away
//! during the announcement needs the new key from elsewhere.

use std::time::Duration;

use serde::Serialize;
use tidegate_control::Timestamp;

use crate::clock::Reading;
use crate::key::PublicKey;
use crate::message::{ControlMessage, Malformed, Unverified, missed};

/// How long a replaced key is still believed: longer than any message is valid in practice.
pub const OVERLAP: Duration = Duration::from_secs(600);

/// How far ahead of ours the server's clock may be.
const AHEAD_MAX: Duration = Duration::from_secs(5);

/// Why a message was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// Not the form of a message.
    #[error("malformed or truncated")]
    Malformed,
    /// A version that is not known here.
    #[error("of another version")]
    Version,
    /// Signed by a key that is not trusted, or no longer.
    #[error("from a key that is not trusted")]
    Key,
    /// The signature is not that of its content.
    #[error("forged")]
    Forged,
    /// Past its validity.
    #[error("expired")]
    Expired,
    /// Issued later than now.
    #[error("from the future")]
    Future,
    /// The last one accepted, again.
    #[error("received before")]
    Replayed,
    /// A newer one was accepted.
    #[error("older than the one in force")]
    Older,
}

/// How often each has happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Counts {
    /// Messages accepted.
    pub accepted: u64,
    /// Malformed or truncated.
    pub malformed: u64,
    /// Of another version.
    pub version: u64,
    /// From a key that is not trusted.
    pub key: u64,
    /// Wrongly signed.
    pub forged: u64,
    /// Expired.
    pub expired: u64,
    /// From the future.
    pub future: u64,
    /// Received before.
    pub replayed: u64,
    /// Older than the one in force.
    pub older: u64,
    /// Messages that never arrived, by the numbers between those that did.
    pub missed: u64,
}

impl Counts {
    fn count(&mut self, rejection: Rejection) {
        let counter = match rejection {
            Rejection::Malformed => &mut self.malformed,
            Rejection::Version => &mut self.version,
            Rejection::Key => &mut self.key,
            Rejection::Forged => &mut self.forged,
            Rejection::Expired => &mut self.expired,
            Rejection::Future => &mut self.future,
            Rejection::Replayed => &mut self.replayed,
            Rejection::Older => &mut self.older,
        };
        *counter += 1;
    }
}

#[derive(Debug, Clone, Copy)]
struct Trusted {
    key: PublicKey,
    /// Not believed from then on.
    until: Timestamp,
}

/// Believes the messages of trusted keys, each newer than the last.
#[derive(Debug, Clone)]
pub struct Verifier {
    trusted: Vec<Trusted>,
    last_seq: Option<u64>,
    counts: Counts,
}

impl Verifier {
    /// Believes messages of `keys`.
    #[must_use]
    pub fn new(keys: &[PublicKey]) -> Self {
        let trusted = |&key: &PublicKey| Trusted {
            key,
            until: Timestamp::MAX,
        };
        Self {
            trusted: keys.iter().map(trusted).collect(),
            last_seq: None,
            counts: Counts::default(),
        }
    }

    /// What was accepted and dropped so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The number of the last message accepted.
    #[must_use]
    pub fn last_seq(&self) -> Option<u64> {
        self.last_seq
    }

    /// The keys that are believed at `now`.
    #[must_use]
    pub fn keys(&self, now: Timestamp) -> Vec<PublicKey> {
        let believed = self.trusted.iter().filter(|trusted| now < trusted.until);
        believed.map(|trusted| trusted.key).collect()
    }

    /// Checks a message that arrived at `now`, by the server's clock, which is known exactly.
    ///
    /// # Errors
    /// Why it must neither be applied nor passed on.
    pub fn accept(&mut self, now: Timestamp, bytes: &[u8]) -> Result<ControlMessage, Rejection> {
        let error = Duration::ZERO;
        self.accept_at(Reading { at: now, error }, bytes)
    }

    /// Checks a message that arrived at a time of the server that is known to an error, which
    /// counts for the message.
    ///
    /// # Errors
    /// Why it must neither be applied nor passed on.
    pub fn accept_at(&mut self, now: Reading, bytes: &[u8]) -> Result<ControlMessage, Rejection> {
        let checked = self.check(now, bytes);
        match checked {
            Ok((message, signer)) => {
                self.counts.accepted += 1;
                self.counts.missed += self.last_seq.map_or(0, |last| missed(last, message.seq));
                self.last_seq = Some(message.seq);
                self.follow_keys(&message, signer);
                Ok(message)
            }
            Err(rejection) => {
                self.counts.count(rejection);
                Err(rejection)
            }
        }
    }

    /// What costs little is checked first; the signature still decides about everything that is
    /// accepted.
    fn check(
        &self,
        reading: Reading,
        bytes: &[u8],
    ) -> Result<(ControlMessage, PublicKey), Rejection> {
        let now = reading.at;
        let unverified = Unverified::read(bytes).map_err(|malformed| match malformed {
            Malformed::Version => Rejection::Version,
            Malformed::Content => Rejection::Malformed,
        })?;
        let message = &unverified.message;
        match self.last_seq {
            Some(last) if message.seq == last => return Err(Rejection::Replayed),
            Some(last) if message.seq < last => return Err(Rejection::Older),
            _ => {}
        }
        if message.expires() + reading.error <= now {
            return Err(Rejection::Expired);
        }
        if message.issued > now + AHEAD_MAX + reading.error {
            return Err(Rejection::Future);
        }
        let mut candidates = self
            .trusted
            .iter()
            .filter(|trusted| trusted.key.short() == unverified.signer && now < trusted.until)
            .peekable();
        candidates.peek().ok_or(Rejection::Key)?;
        let signer = candidates
            .find(|trusted| unverified.is_signed_by(&trusted.key))
            .ok_or(Rejection::Forged)?;
        Ok((unverified.message, signer.key))
    }

    fn follow_keys(&mut self, message: &ControlMessage, signer: PublicKey) {
        if let Some(key) = message.successor
            && self.trusted.iter().all(|trusted| trusted.key != key)
        {
            // Behind the key that announced it, which this order says.
            let until = Timestamp::MAX;
            self.trusted.push(Trusted { key, until });
        }
        let position = self.trusted.iter().position(|t| t.key == signer);
        let retire = message.issued + OVERLAP;
        for older in &mut self.trusted[..position.unwrap_or(0)] {
            older.until = older.until.min(retire);
        }
        self.trusted
            .retain(|trusted| message.issued < trusted.until);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::SecretKey;
    use crate::message::Terms;
    use crate::strategy::{Groups, Strategy};
    use crate::wire::timestamp;

    fn key(seed: u8) -> SecretKey {
        SecretKey::from_seed(&[seed; 32])
    }

    fn message(seq: u64, at_ms: u64) -> ControlMessage {
        ControlMessage {
            seq,
            issued: timestamp(at_ms),
            validity: Duration::from_secs(10),
            setpoint: Duration::from_secs(1),
            strategy: Strategy::Group(Groups::with_share(0.3, Duration::from_secs(4))),
            successor: None,
            terms: Terms::default(),
        }
    }

    #[test]
    fn missed_messages_are_counted() {
        let mut verifier = Verifier::new(&[key(1).public()]);
        for seq in [5, 6, 9] {
            let bytes = message(seq, 1000).sign(&key(1));
            assert!(verifier.accept(timestamp(1000), &bytes).is_ok());
        }
        assert_eq!(verifier.counts().missed, 2);
    }

    #[test]
    fn error_of_the_clock_counts_for_the_message() {
        let reading = |at_ms, error_s| Reading {
            at: timestamp(at_ms),
            error: Duration::from_secs(error_s),
        };
        // Issued at 100 s and valid for ten.
        let bytes = message(1, 100_000).sign(&key(1));
        let judged = |reading| Verifier::new(&[key(1).public()]).accept_at(reading, &bytes);
        assert_eq!(judged(reading(115_000, 1)), Err(Rejection::Expired));
        assert!(judged(reading(115_000, 10)).is_ok());
        assert_eq!(judged(reading(90_000, 1)), Err(Rejection::Future));
        assert!(judged(reading(90_000, 10)).is_ok());
    }

    #[test]
    fn each_reason_is_told_apart_and_counted() {
        let mut verifier = Verifier::new(&[key(1).public()]);
        let now = timestamp(100_000);
        let signed = |seq, at| message(seq, at).sign(&key(1));
        let good = signed(5, 99_000);
        assert_eq!(verifier.accept(now, &good).unwrap().seq, 5);
        let mut forged = signed(6, 99_500);
        forged[30] ^= 1;
        let mut version = signed(6, 99_500);
        version[0] = 9;
        let attempts = [
            (good.clone(), Rejection::Replayed),
            (signed(4, 99_900), Rejection::Older),
            (signed(6, 80_000), Rejection::Expired),
            (signed(6, 200_000), Rejection::Future),
            (good[..good.len() - 1].to_vec(), Rejection::Malformed),
            (message(6, 99_500).sign(&key(2)), Rejection::Key),
            (forged, Rejection::Forged),
            (version, Rejection::Version),
        ];
        for (bytes, expected) in attempts {
            assert_eq!(verifier.accept(now, &bytes), Err(expected));
        }
        let counts = verifier.counts();
        let each = [
            counts.replayed,
            counts.older,
            counts.expired,
            counts.future,
            counts.malformed,
            counts.key,
            counts.forged,
            counts.version,
        ];
        assert_eq!((counts.accepted, each), (1, [1; 8]));
        assert_eq!(verifier.last_seq(), Some(5));
    }

    #[test]
    fn signature_by_the_right_short_name_but_another_key_is_a_forgery() {
        let mut verifier = Verifier::new(&[key(1).public()]);
        let mut bytes = message(1, 1000).sign(&key(2));
        bytes[1..5].copy_from_slice(&key(1).public().short());
        assert_eq!(
            verifier.accept(timestamp(1000), &bytes),
            Err(Rejection::Forged)
        );
    }

    #[test]
    fn new_key_takes_over_with_an_overlap() {
        let mut verifier = Verifier::new(&[key(1).public()]);
        let announcing = ControlMessage {
            successor: Some(key(2).public()),
            ..message(1, 1000)
        };
        // The new key is unknown before it is announced.
        let early = message(2, 1000).sign(&key(2));
        assert_eq!(
            verifier.accept(timestamp(1000), &early),
            Err(Rejection::Key)
        );
        assert!(
            verifier
                .accept(timestamp(1000), &announcing.sign(&key(1)))
                .is_ok()
        );
        assert!(
            verifier
                .accept(timestamp(2000), &message(2, 2000).sign(&key(2)))
                .is_ok()
        );
        // The old key still counts, for a while.
        assert!(
            verifier
                .accept(timestamp(3000), &message(3, 3000).sign(&key(1)))
                .is_ok()
        );
        assert!(
            verifier
                .accept(timestamp(4000), &message(4, 4000).sign(&key(2)))
                .is_ok()
        );
        let late = 2000 + u64::try_from(OVERLAP.as_millis()).unwrap() + 1000;
        assert_eq!(
            verifier.accept(timestamp(late), &message(5, late).sign(&key(1))),
            Err(Rejection::Key)
        );
        assert!(
            verifier
                .accept(timestamp(late), &message(5, late).sign(&key(2)))
                .is_ok()
        );
    }

    #[test]
    fn announcement_is_believed_only_with_its_signature() {
        let mut verifier = Verifier::new(&[key(1).public()]);
        let announcing = ControlMessage {
            successor: Some(key(3).public()),
            ..message(1, 1000)
        };
        assert!(
            verifier
                .accept(timestamp(1000), &announcing.sign(&key(3)))
                .is_err()
        );
        let next = message(2, 1000).sign(&key(3));
        assert_eq!(verifier.accept(timestamp(1000), &next), Err(Rejection::Key));
    }
}

//! The server's clock, as a client knows it, with a bound on the error.
//!
//! One exchange gives four times: sent `t0` and received `t3` by the client's clock, received
//! `t1` and answered `t2` by the server's. Then (Cristian 1989, as in NTP)
//!
//! ```text
//! server - client = ((t1 - t0) + (t2 - t3))/2  ±  ((t3 - t0) - (t2 - t1))/2
//! ```
//!
//! The bound holds however unequal the two ways are, as long as the server is honest; its answer
//! is signed and repeats the client's nonce. Between exchanges the bound grows by what two
//! clocks may drift, and the exchange with the smallest bound counts.
//!
//! **Proof.** The server has to believe a client's error only as far as it has seen it. A client
//! that shows the answer of its last exchange with the next question lets the server measure a
//! round trip by its own clock, from sending that answer (`t2`) to receiving this question (`t1'`).
//! The client received the one (`t3`) before it sent the other (`t0'`), so that
//!
//! ```text
//! t2 - t3  <=  server - client  <=  t1' - t0',        (t1' - t0') - (t2 - t3)  <=  t1' - t2
//! ```
//!
//! and its error is at most half a round trip. The answer says so, signed, and goes along with each
//! stamp. A client can make its round trip longer by waiting, which is why the server has a
//! longest error of its own besides.

use std::time::Duration;

use tidegate_control::Timestamp;

use crate::key::{PublicKey, SIGNATURE_BYTES, SecretKey};
use crate::wire::Reader;

/// Two quartz clocks, 50 ppm each.
const DRIFT: f64 = 100e-6;

const DOMAIN: &[u8] = b"tidegate-time-v2";

/// Round trips of more than this are none.
const ROUND_TRIP_MAX: Duration = Duration::from_secs(10);

/// Times of stamps are cut to milliseconds, at both ends.
const ROUNDING: Duration = Duration::from_millis(2);

/// A round trip that the server has not seen.
const UNSEEN: u32 = u32::MAX;

/// Bytes of a signed answer.
pub const ANSWER_BYTES: usize = 28 + SIGNATURE_BYTES;

/// The server's part of an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// What the client chose.
    pub nonce: u64,
    /// `t1`.
    pub received: Timestamp,
    /// `t2`.
    pub sent: Timestamp,
    /// The round trip that the server has measured, if the client showed an earlier answer.
    pub round_trip: Option<Duration>,
}

impl Answer {
    /// An answer to a question that was received at `received`, to a client that has shown
    /// `earlier`, an answer that is the server's own.
    #[must_use]
    pub fn new(nonce: u64, received: Timestamp, sent: Timestamp, earlier: Option<&Self>) -> Self {
        let round_trip = earlier.map(|earlier| received.since(earlier.sent));
        Self {
            nonce,
            received,
            sent,
            round_trip: round_trip.filter(|trip| *trip <= ROUND_TRIP_MAX),
        }
    }

    fn body(&self) -> Vec<u8> {
        let trip = self.round_trip.map_or(UNSEEN, |trip| {
            let millis = trip.as_nanos().div_ceil(1_000_000);
            u32::try_from(millis).unwrap_or(UNSEEN)
        });
        let mut body = self.nonce.to_be_bytes().to_vec();
        body.extend_from_slice(&self.received.as_nanos().to_be_bytes());
        body.extend_from_slice(&self.sent.as_nanos().to_be_bytes());
        body.extend_from_slice(&trip.to_be_bytes());
        body
    }

    /// The answer, signed.
    #[must_use]
    pub fn sign(&self, key: &SecretKey) -> SignedAnswer {
        SignedAnswer {
            answer: *self,
            signature: key.sign(&[DOMAIN, &self.body()].concat()),
        }
    }

    /// Reads an answer; `None` unless one of `keys` signed it for this `nonce`.
    #[must_use]
    pub fn read(bytes: &[u8], nonce: u64, keys: &[PublicKey]) -> Option<SignedAnswer> {
        let signed = SignedAnswer::read(bytes)?;
        (signed.answer.nonce == nonce && signed.is_signed_by(keys)).then_some(signed)
    }

    /// How far the clock of a client may be off at `made`, as far as the server knows; `None` when
    /// it has seen no round trip.
    #[must_use]
    pub fn error_at(&self, made: Timestamp) -> Option<Duration> {
        let age = made.since(self.received).max(self.received.since(made));
        let error = self.round_trip? / 2 + age.mul_f64(DRIFT) + ROUNDING;
        Some(error)
    }
}

/// An answer and its signature: what a client shows for its clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SignedAnswer {
    /// What the server says.
    pub answer: Answer,
    signature: [u8; SIGNATURE_BYTES],
}

impl SignedAnswer {
    /// Nonce, `t1` and `t2` in nanoseconds, the round trip in milliseconds, signature.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        [&self.answer.body()[..], &self.signature].concat()
    }

    /// Takes an answer apart; its signature is not looked at.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let answer = Answer {
            nonce: reader.u64()?,
            received: Timestamp::from_nanos(reader.u64()?),
            sent: Timestamp::from_nanos(reader.u64()?),
            round_trip: Some(reader.u32()?)
                .filter(|&millis| millis != UNSEEN)
                .map(|millis| Duration::from_millis(millis.into())),
        };
        let signature = reader.bytes()?;
        reader.is_done().then_some(Self { answer, signature })
    }

    /// Whether one of `keys` signed it.
    #[must_use]
    pub fn is_signed_by(&self, keys: &[PublicKey]) -> bool {
        let signed = [DOMAIN, &self.answer.body()].concat();
        keys.iter()
            .any(|key| key.verifies(&signed, &self.signature))
    }
}

/// A time of the server, and how far it may be off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    /// The server's time.
    pub at: Timestamp,
    /// The true one lies within this distance.
    pub error: Duration,
}

#[derive(Debug, Clone, Copy)]
struct Sample {
    offset_ns: i128,
    error: Duration,
    taken: Timestamp,
}

/// The server's clock, from the client's.
#[derive(Debug, Clone, Default)]
pub struct ServerClock {
    best: Option<Sample>,
    proof: Option<SignedAnswer>,
}

impl ServerClock {
    /// Takes in an exchange: sent and received by the local clock, and the server's answer.
    /// A clock that ran backwards meanwhile gives nothing.
    pub fn on_exchange(&mut self, sent: Timestamp, received: Timestamp, answer: Answer) {
        let [t0, t1, t2, t3] =
            [sent, answer.received, answer.sent, received].map(|time| i128::from(time.as_nanos()));
        let uncertain = (t3 - t0) - (t2 - t1);
        if t3 < t0 || t2 < t1 || uncertain < 0 {
            return;
        }
        let error = Duration::from_nanos(u64::try_from(uncertain / 2 + 1).unwrap_or(u64::MAX));
        let sample = Sample {
            offset_ns: ((t1 - t0) + (t2 - t3)) / 2,
            error,
            taken: received,
        };
        let better = self
            .best
            .is_none_or(|best| error <= best.error_at(received));
        if better {
            self.best = Some(sample);
        }
    }

    /// Keeps an answer as proof, if it shows a smaller error than the one that is kept.
    pub fn keep_proof(&mut self, proof: SignedAnswer) {
        let at = proof.answer.received;
        let error = |proof: &SignedAnswer| proof.answer.error_at(at).unwrap_or(Duration::MAX);
        let better = self.proof.is_none_or(|kept| error(&proof) <= error(&kept));
        if better {
            self.proof = Some(proof);
        }
    }

    /// What the server has signed about this clock.
    #[must_use]
    pub fn proof(&self) -> Option<SignedAnswer> {
        self.proof
    }

    /// The server's time when the local clock shows `local`; `None` before the first exchange.
    #[must_use]
    pub fn read(&self, local: Timestamp) -> Option<Reading> {
        let best = self.best?;
        let at = i128::from(local.as_nanos()) + best.offset_ns;
        Some(Reading {
            at: Timestamp::from_nanos(u64::try_from(at.max(0)).unwrap_or(u64::MAX)),
            error: best.error_at(local),
        })
    }

    /// The local time at which the server's clock shows `server`; the same before the first
    /// exchange.
    #[must_use]
    pub fn local(&self, server: Timestamp) -> Timestamp {
        let offset = self.best.map_or(0, |best| best.offset_ns);
        let at = i128::from(server.as_nanos()) - offset;
        Timestamp::from_nanos(u64::try_from(at.max(0)).unwrap_or(u64::MAX))
    }
}

impl Sample {
    fn error_at(&self, local: Timestamp) -> Duration {
        let age = local.since(self.taken).max(self.taken.since(local));
        self.error + age.mul_f64(DRIFT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: f64) -> Timestamp {
        Timestamp::from_secs_f64(seconds)
    }

    /// An exchange with a server whose clock is ahead, over ways of unequal length.
    fn exchange(clock: &mut ServerClock, start: f64, ahead: f64, there: f64, back: f64) {
        let received = at(start + there + ahead);
        let sent = at(start + there + 0.001 + ahead);
        let answer = Answer::new(1, received, sent, None);
        clock.on_exchange(at(start), at(start + there + 0.001 + back), answer);
    }

    #[test]
    fn error_is_within_its_bound_however_unequal_the_ways() {
        for (there, back) in [(0.05, 0.05), (0.2, 0.0), (0.0, 0.2)] {
            let mut clock = ServerClock::default();
            exchange(&mut clock, 100.0, 3.5, there, back);
            let reading = clock.read(at(101.0)).unwrap();
            let truth = 104.5;
            let off = (reading.at.as_secs_f64() - truth).abs();
            assert!(off <= reading.error.as_secs_f64() + 1e-6, "{off}");
            assert!((clock.local(reading.at).as_secs_f64() - 101.0).abs() < 1e-6);
        }
    }

    #[test]
    fn best_exchange_counts_until_drift_makes_it_worse() {
        let mut clock = ServerClock::default();
        exchange(&mut clock, 100.0, 3.5, 0.001, 0.001);
        let good = clock.read(at(100.0)).unwrap().error;
        exchange(&mut clock, 101.0, 3.5, 0.3, 0.0);
        assert!(clock.read(at(101.0)).unwrap().error < good + Duration::from_millis(1));
        exchange(&mut clock, 10_000.0, 3.5, 0.3, 0.0);
        let later = clock.read(at(10_000.0)).unwrap();
        assert!(later.error > Duration::from_millis(100));
    }

    #[test]
    fn answer_counts_only_signed_and_for_this_question() {
        let key = SecretKey::from_seed(&[4; 32]);
        let answer = Answer::new(77, at(1.0), at(2.0), None);
        let bytes = answer.sign(&key).to_bytes();
        assert_eq!(bytes.len(), ANSWER_BYTES);
        let read = Answer::read(&bytes, 77, &[key.public()]).unwrap();
        assert_eq!(read.answer, answer);
        assert_eq!(Answer::read(&bytes, 78, &[key.public()]), None);
        assert_eq!(Answer::read(&bytes, 77, &[]), None);
        for at in 0..ANSWER_BYTES {
            let mut forged = bytes.clone();
            forged[at] ^= 1;
            assert_eq!(Answer::read(&forged, 77, &[key.public()]), None);
        }
    }

    #[test]
    fn round_trip_counts_from_the_answer_that_was_shown() {
        let first = Answer::new(1, at(10.0), at(10.001), None);
        assert_eq!(first.error_at(at(10.0)), None);
        let second = Answer::new(2, at(10.041), at(10.042), Some(&first));
        assert_eq!(second.round_trip, Some(Duration::from_millis(40)));
        let error = second.error_at(at(10.041)).unwrap();
        assert_eq!(error, Duration::from_millis(20) + ROUNDING);
        // It grows by what clocks drift, backwards too.
        let later = second.error_at(at(1010.041)).unwrap();
        assert_eq!(later - error, Duration::from_millis(100));
        assert!(second.error_at(at(1.0)).unwrap() > error);
        // A client that waits with the next question has shown nothing.
        let late = Answer::new(3, at(100.0), at(100.0), Some(&first));
        assert_eq!(late.round_trip, None);
    }

    #[test]
    fn best_proof_is_kept_until_drift_makes_it_worse() {
        let key = SecretKey::from_seed(&[4; 32]);
        let mut clock = ServerClock::default();
        let mut show = |asked: f64, trip: f64| {
            let earlier = Answer::new(1, at(asked - trip), at(asked - trip), None);
            let answer = Answer::new(2, at(asked), at(asked), Some(&earlier));
            clock.keep_proof(answer.sign(&key));
            clock.proof().unwrap().answer.received
        };
        assert_eq!(show(10.0, 0.5), at(10.0));
        assert_eq!(show(11.0, 0.02), at(11.0));
        assert_eq!(show(12.0, 0.3), at(11.0));
        assert_eq!(show(10_000.0, 0.3), at(10_000.0));
    }

    #[test]
    fn clock_that_ran_backwards_gives_nothing() {
        let mut clock = ServerClock::default();
        exchange(&mut clock, 100.0, 0.0, -1.0, 0.0);
        assert_eq!(clock.read(at(100.0)), None);
    }
}

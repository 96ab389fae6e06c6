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

use std::time::Duration;

use tidegate_control::Timestamp;

use crate::key::{PublicKey, SIGNATURE_BYTES, SecretKey};
use crate::wire::Reader;

/// Two quartz clocks, 50 ppm each.
const DRIFT: f64 = 100e-6;

const DOMAIN: &[u8] = b"tidegate-time-v1";

/// The server's part of an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// What the client chose.
    pub nonce: u64,
    /// `t1`.
    pub received: Timestamp,
    /// `t2`.
    pub sent: Timestamp,
}

impl Answer {
    /// The bytes of the answer, signed: nonce, `t1` and `t2` in nanoseconds, signature.
    #[must_use]
    pub fn sign(&self, key: &SecretKey) -> Vec<u8> {
        let body = [
            self.nonce.to_be_bytes(),
            self.received.as_nanos().to_be_bytes(),
            self.sent.as_nanos().to_be_bytes(),
        ]
        .concat();
        let signature = key.sign(&[DOMAIN, &body].concat());
        [&body[..], &signature].concat()
    }

    /// Reads an answer; `None` unless one of `keys` signed it for this `nonce`.
    #[must_use]
    pub fn read(bytes: &[u8], nonce: u64, keys: &[PublicKey]) -> Option<Self> {
        let length = bytes.len().checked_sub(SIGNATURE_BYTES)?;
        let (body, signature) = bytes.split_at(length);
        let signed = [DOMAIN, body].concat();
        if !keys.iter().any(|key| key.verifies(&signed, signature)) {
            return None;
        }
        let mut reader = Reader(body);
        let answer = Self {
            nonce: reader.u64()?,
            received: Timestamp::from_nanos(reader.u64()?),
            sent: Timestamp::from_nanos(reader.u64()?),
        };
        (reader.is_done() && answer.nonce == nonce).then_some(answer)
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
        let answer = Answer {
            nonce: 1,
            received: at(start + there + ahead),
            sent: at(start + there + 0.001 + ahead),
        };
        clock.on_exchange(at(start), at(start + there + 0.001 + back), answer);
    }

    #[test]
    fn the_error_is_within_its_bound_however_unequal_the_ways() {
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
    fn the_best_exchange_counts_until_drift_makes_it_worse() {
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
    fn an_answer_counts_only_signed_and_for_this_question() {
        let key = SecretKey::from_seed(&[4; 32]);
        let answer = Answer {
            nonce: 77,
            received: at(1.0),
            sent: at(2.0),
        };
        let bytes = answer.sign(&key);
        assert_eq!(Answer::read(&bytes, 77, &[key.public()]), Some(answer));
        assert_eq!(Answer::read(&bytes, 78, &[key.public()]), None);
        assert_eq!(Answer::read(&bytes, 77, &[]), None);
        let mut forged = bytes;
        forged[12] ^= 1;
        assert_eq!(Answer::read(&forged, 77, &[key.public()]), None);
    }

    #[test]
    fn a_clock_that_ran_backwards_gives_nothing() {
        let mut clock = ServerClock::default();
        exchange(&mut clock, 100.0, 0.0, -1.0, 0.0);
        assert_eq!(clock.read(at(100.0)), None);
    }
}

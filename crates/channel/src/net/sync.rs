//! The server's clock, requested now and then by clients, relays and verifiers of messages.

use std::time::Duration;

use parking_lot::Mutex;
use ring::rand::{SecureRandom, SystemRandom};
use tidegate_control::Timestamp;
use tokio::sync::Notify;

use super::subscribe::Backoff;
use super::{Dialer, TIME_PATH, unix_now};
use crate::clock::{Answer, Reading, ServerClock, SignedAnswer};
use crate::key::PublicKey;
use crate::message::{from_text, to_text};

/// Time between two exchanges, doubled each time: at 100 ppm the error grows by 6 ms in the first
/// and by 96 ms in the longest, and a thousand clients ask the publisher about once a second.
const EXCHANGE_INTERVALS: (Duration, Duration) =
    (Duration::from_secs(60), Duration::from_secs(960));
/// Exchanges right after each other at the beginning, of which the best counts.
const EXCHANGES_FIRST: usize = 4;
/// Error of a clock that was never compared: what most machines keep by themselves.
const UNKNOWN: Duration = Duration::from_secs(10);
/// A clock that is doubted is compared again, but not more often than this.
const DOUBT_EVERY: Duration = Duration::from_secs(5);
/// How long an answer may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// The server's clock, shared by those who need it.
#[derive(Debug, Default)]
pub struct Clock {
    server: Mutex<ServerClock>,
    doubted: Notify,
}

impl Clock {
    /// The server's time now, as far as it is known.
    #[must_use]
    pub fn read(&self) -> Reading {
        let local = unix_now();
        self.server.lock().read(local).unwrap_or(Reading {
            at: local,
            error: UNKNOWN,
        })
    }

    /// The server's time now.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.read().at
    }

    /// What the server has signed about this clock.
    #[must_use]
    pub fn proof(&self) -> Option<SignedAnswer> {
        self.server.lock().proof()
    }

    /// Something does not fit: perhaps this machine's clock was set. It is compared again.
    pub(super) fn doubt(&self) {
        self.doubted.notify_one();
    }

    /// Compares clocks for ever with the first of `publishers` that answers, by the keys that are
    /// believed by then. A relay has no clock to compare with.
    pub(super) async fn keep(
        &self,
        dialer: &Dialer,
        publishers: Vec<String>,
        keys: impl Fn(Timestamp) -> Vec<PublicKey>,
    ) {
        if publishers.is_empty() {
            return std::future::pending().await;
        }
        let mut backoff = Backoff::new(unix_now().as_nanos());
        let mut wait = EXCHANGE_INTERVALS.0;
        loop {
            if self.compare(dialer, &publishers, &keys).await {
                self.rest(wait).await;
                wait = (2 * wait).min(EXCHANGE_INTERVALS.1);
            } else {
                tokio::time::sleep(backoff.next_wait()).await;
            }
        }
    }

    /// Waits, less long when the clock is doubted.
    async fn rest(&self, wait: Duration) {
        let doubt = async {
            tokio::time::sleep(DOUBT_EVERY).await;
            self.doubted.notified().await;
            // What was measured before is not better for its smaller error.
            *self.server.lock() = ServerClock::default();
        };
        let _ = tokio::time::timeout(wait, doubt).await;
    }

    /// Some exchanges with one publisher; false when none answers.
    async fn compare(
        &self,
        dialer: &Dialer,
        publishers: &[String],
        keys: &impl Fn(Timestamp) -> Vec<PublicKey>,
    ) -> bool {
        for publisher in publishers {
            let mut earlier = None;
            for _ in 0..EXCHANGES_FIRST {
                let keys = keys(self.now());
                earlier = self.exchange(dialer, publisher, &keys, earlier).await;
                if earlier.is_none() {
                    break;
                }
            }
            if earlier.is_some() {
                return true;
            }
        }
        false
    }

    /// One exchange; without an answer, or with a forged one, nothing changes.
    async fn exchange(
        &self,
        dialer: &Dialer,
        publisher: &str,
        keys: &[PublicKey],
        earlier: Option<SignedAnswer>,
    ) -> Option<SignedAnswer> {
        let mut nonce = [0; 8];
        SystemRandom::new().fill(&mut nonce).ok()?;
        let nonce = u64::from_be_bytes(nonce);
        let shown = earlier.map_or_else(String::new, |earlier| {
            format!("&earlier={}", to_text(&earlier.to_bytes()))
        });
        let path = format!("{TIME_PATH}?nonce={nonce}{shown}");
        let sent = unix_now();
        let asked = dialer.get(publisher, &path, None);
        let text = tokio::time::timeout(ANSWER_TIMEOUT, asked)
            .await
            .ok()?
            .ok()?;
        let received = unix_now();
        let signed = Answer::read(&from_text(&text)?, nonce, keys)?;
        let mut server = self.server.lock();
        server.on_exchange(sent, received, signed.answer);
        server.keep_proof(signed);
        Some(signed)
    }
}

//! The server's clock, asked for now and then.

use std::time::Duration;

use parking_lot::Mutex;
use ring::rand::{SecureRandom, SystemRandom};
use tidegate_channel::PublicKey;
use tidegate_channel::clock::{Answer, Reading, ServerClock};
use tidegate_channel::message::from_text;
use tidegate_channel::net::{Dialer, TIME_PATH, unix_now};
use tidegate_control::Timestamp;

/// Time between two exchanges, doubled each time: at 100 ppm the error grows by 6 ms in the first
/// and by 96 ms in the longest, and a thousand clients ask the publisher about once a second.
const EVERY: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(960));
/// Exchanges right after each other at the beginning, of which the best counts.
const FIRST: usize = 4;
/// Error of a clock that nobody has compared yet: what most machines keep by themselves.
const UNKNOWN: Duration = Duration::from_secs(10);

/// The server's clock, shared by those who need it.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    server: Mutex<ServerClock>,
}

impl Clock {
    /// The server's time now, as far as it is known.
    pub(crate) fn read(&self) -> Reading {
        let local = unix_now();
        self.server.lock().read(local).unwrap_or(Reading {
            at: local,
            error: UNKNOWN,
        })
    }

    /// The server's time now.
    pub(crate) fn now(&self) -> Timestamp {
        self.read().at
    }

    /// Compares clocks with the publisher for ever.
    pub(crate) async fn keep(&self, dialer: &Dialer, publisher: String, keys: Vec<PublicKey>) {
        for _ in 1..FIRST {
            self.exchange(dialer, &publisher, &keys).await;
        }
        let mut wait = EVERY.0;
        loop {
            // Without an answer it does not become rarer.
            if self.exchange(dialer, &publisher, &keys).await {
                wait = (2 * wait).min(EVERY.1);
            }
            tokio::time::sleep(wait).await;
        }
    }

    /// One exchange; without an answer, or with a forged one, nothing changes. Says whether there
    /// was one.
    async fn exchange(&self, dialer: &Dialer, publisher: &str, keys: &[PublicKey]) -> bool {
        let mut nonce = [0; 8];
        if SystemRandom::new().fill(&mut nonce).is_err() {
            return false;
        }
        let nonce = u64::from_be_bytes(nonce);
        let sent = unix_now();
        let path = format!("{TIME_PATH}?nonce={nonce}");
        let Ok(text) = dialer.get(publisher, &path, None).await else {
            return false;
        };
        let received = unix_now();
        let answer = from_text(&text).and_then(|bytes| Answer::read(&bytes, nonce, keys));
        if let Some(answer) = answer {
            self.server.lock().on_exchange(sent, received, answer);
        }
        answer.is_some()
    }
}

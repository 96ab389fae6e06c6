//! The server's clock, asked for now and then.

use std::time::Duration;

use parking_lot::Mutex;
use ring::rand::{SecureRandom, SystemRandom};
use tidegate_channel::PublicKey;
use tidegate_channel::clock::{Answer, Reading, ServerClock};
use tidegate_channel::message::from_text;
use tidegate_channel::net::{TIME_PATH, http, unix_now};
use tidegate_control::Timestamp;

/// Time between two exchanges: at 100 ppm the error grows by 6 ms in it.
const EVERY: Duration = Duration::from_secs(60);
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
    pub(crate) async fn keep(&self, publisher: String, keys: Vec<PublicKey>) {
        for _ in 1..FIRST {
            self.exchange(&publisher, &keys).await;
        }
        loop {
            self.exchange(&publisher, &keys).await;
            tokio::time::sleep(EVERY).await;
        }
    }

    /// One exchange; without an answer, or with a forged one, nothing changes.
    async fn exchange(&self, publisher: &str, keys: &[PublicKey]) {
        let mut nonce = [0; 8];
        if SystemRandom::new().fill(&mut nonce).is_err() {
            return;
        }
        let nonce = u64::from_be_bytes(nonce);
        let sent = unix_now();
        let Ok(text) = http::get(publisher, &format!("{TIME_PATH}?nonce={nonce}")).await else {
            return;
        };
        let received = unix_now();
        let answer = from_text(&text).and_then(|bytes| Answer::read(&bytes, nonce, keys));
        if let Some(answer) = answer {
            self.server.lock().on_exchange(sent, received, answer);
        }
    }
}

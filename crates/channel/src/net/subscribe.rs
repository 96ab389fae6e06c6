//! Listening to one parent.

use std::collections::VecDeque;
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::Incoming;
use tidegate_http1::event_stream::{Reader, TooLong};

use super::CHANNEL_PATH;
use super::http::{Dialer, HttpError};
use crate::message::{BYTES_MAX, from_text};

/// Longest event of a stream: a message as text, and its name.
const EVENT_BYTES_MAX: usize = 2 * BYTES_MAX;

/// A stream of messages, not yet verified.
#[derive(Debug)]
pub struct Subscription {
    body: Incoming,
    messages: Messages,
}

impl Subscription {
    /// Subscribes to the hub at `base`.
    ///
    /// # Errors
    /// When there is no connection, or no stream.
    pub async fn open(dialer: &Dialer, base: &str) -> Result<Self, HttpError> {
        let response = dialer.open(base, CHANNEL_PATH, None).await?;
        Ok(Self {
            body: response.into_body(),
            messages: Messages::default(),
        })
    }

    /// The next message; `None` when the parent is gone or sends an event without end.
    pub async fn next(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(message) = self.messages.complete.pop_front() {
                return Some(message);
            }
            let frame = self.body.frame().await?.ok()?;
            if let Ok(data) = frame.into_data() {
                self.messages.add(&data).ok()?;
            }
        }
    }
}

/// Takes messages out of the bytes of an event stream: of its fields only `data` matters here.
#[derive(Debug)]
struct Messages {
    reader: Reader,
    complete: VecDeque<Vec<u8>>,
}

impl Default for Messages {
    fn default() -> Self {
        Self {
            reader: Reader::new(EVENT_BYTES_MAX),
            complete: VecDeque::new(),
        }
    }
}

impl Messages {
    /// Adds what has arrived.
    fn add(&mut self, mut data: &[u8]) -> Result<(), TooLong> {
        while let Some(event) = self.reader.read(&mut data)? {
            self.complete.extend(from_text(event.data.trim()));
        }
        Ok(())
    }
}

/// Waits longer after each failure, by a random part, so that those who lost the same parent do
/// not come back together.
#[derive(Debug, Clone)]
pub struct Backoff {
    wait: Duration,
    random: u64,
}

impl Backoff {
    /// First and longest wait.
    const RANGE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));

    /// With a seed of its own.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            wait: Self::RANGE.0,
            random: seed | 1,
        }
    }

    /// All is well again.
    pub fn reset(&mut self) {
        self.wait = Self::RANGE.0;
    }

    /// How long to wait now: between half and all of a bound that doubles.
    pub fn next_wait(&mut self) -> Duration {
        // xorshift64 (Marsaglia 2003): jitter needs no better.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let part = 0.5 + (self.random >> 11) as f64 / (1_u64 << 54) as f64;
        let wait = self.wait.mul_f64(part);
        self.wait = (2 * self.wait).min(Self::RANGE.1);
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::to_text;

    #[test]
    fn messages_are_found_wherever_the_stream_is_cut() {
        let stream = format!(
            ": hello\n\nid: 1\ndata: {}\n\nid: 2\r\ndata:{}\r\n\r\nevent: x\ndata: !!\n\n",
            to_text(b"first"),
            to_text(b"second"),
        );
        for size in 1..20 {
            let mut messages = Messages::default();
            for part in stream.as_bytes().chunks(size) {
                messages.add(part).unwrap();
            }
            assert_eq!(messages.complete, [b"first".to_vec(), b"second".to_vec()]);
        }
    }

    #[test]
    fn endless_line_is_not_kept() {
        let endless = [b'x'; EVENT_BYTES_MAX + 1];
        assert!(Messages::default().add(&endless).is_err());
    }

    #[test]
    fn waits_grow_are_bounded_and_differ() {
        let waits = |seed| {
            let mut backoff = Backoff::new(seed);
            (0..12).map(|_| backoff.next_wait()).collect::<Vec<_>>()
        };
        assert_ne!(waits(1), waits(2));
        let all = waits(77);
        assert!(all[11] >= Duration::from_secs(5) && all[11] <= Duration::from_secs(10));
        assert!(all[0] <= Duration::from_millis(100));
    }
}

//! The newest message, and its listeners.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame};
use tidegate_http1::event_stream;
use tokio::sync::watch;

use super::limits::Place;
use crate::message::{Unverified, to_text};

/// A message in the forms in which it travels.
#[derive(Debug, Clone)]
pub struct Packed {
    /// Its number.
    pub seq: u64,
    /// As text.
    pub text: Arc<str>,
    /// As an event.
    event: Bytes,
}

impl Packed {
    fn new(seq: u64, bytes: &[u8]) -> Self {
        let text = to_text(bytes);
        Self {
            seq,
            event: event_stream::event(seq, None, &text),
            text: text.into(),
        }
    }
}

/// What a hub has done.
#[derive(Debug, Default)]
struct Counters {
    listeners: AtomicUsize,
    copies: AtomicU64,
    bytes: AtomicU64,
}

/// Hands the newest message to all listeners.
#[derive(Debug, Clone)]
pub struct Hub {
    newest: watch::Sender<Option<Packed>>,
    counters: Arc<Counters>,
}

impl Default for Hub {
    fn default() -> Self {
        Self {
            newest: watch::Sender::new(None),
            counters: Arc::default(),
        }
    }
}

impl Hub {
    /// Passes on a message that was verified, or signed here. What is no message is not.
    pub fn publish(&self, bytes: &[u8]) {
        if let Ok(unverified) = Unverified::read(bytes) {
            let packed = Packed::new(unverified.message.seq, bytes);
            self.newest.send_replace(Some(packed));
        }
    }

    /// The newest message.
    #[must_use]
    pub fn newest(&self) -> Option<Packed> {
        self.newest.borrow().clone()
    }

    /// Follows the newest message within the process.
    #[cfg(feature = "gossip")]
    pub(super) fn watch(&self) -> Receiver {
        self.newest.subscribe()
    }

    /// A body that begins with the newest message and goes on with those to come.
    #[must_use]
    pub fn listen(&self) -> Events {
        self.counters.listeners.fetch_add(1, Ordering::Relaxed);
        let mut receiver = self.newest.subscribe();
        receiver.mark_changed();
        Events {
            waiting: Box::pin(next(receiver)),
            counters: Arc::clone(&self.counters),
            place: None,
        }
    }

    /// How many listen.
    #[must_use]
    pub fn listeners(&self) -> usize {
        self.counters.listeners.load(Ordering::Relaxed)
    }

    /// Copies of messages that were written.
    #[must_use]
    pub fn copies(&self) -> u64 {
        self.counters.copies.load(Ordering::Relaxed)
    }

    /// Bytes of these copies.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.counters.bytes.load(Ordering::Relaxed)
    }
}

pub(super) type Receiver = watch::Receiver<Option<Packed>>;
type Waiting = Pin<Box<dyn Future<Output = Option<(Packed, Receiver)>> + Send + Sync>>;

/// Waits for a message; `None` when the hub is gone.
async fn next(mut receiver: Receiver) -> Option<(Packed, Receiver)> {
    loop {
        receiver.changed().await.ok()?;
        let packed = receiver.borrow_and_update().clone();
        if let Some(packed) = packed {
            return Some((packed, receiver));
        }
    }
}

/// An endless body of events.
pub struct Events {
    waiting: Waiting,
    counters: Arc<Counters>,
    /// Given back with the stream.
    place: Option<Place>,
}

impl Events {
    /// Listens at a place that is given back when the stream ends.
    #[must_use]
    pub fn at(mut self, place: Place) -> Self {
        self.place = Some(place);
        self
    }
}

impl Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Poll::Ready(arrived) = self.waiting.as_mut().poll(cx) else {
            return Poll::Pending;
        };
        let Some((packed, receiver)) = arrived else {
            return Poll::Ready(None);
        };
        self.waiting = Box::pin(next(receiver));
        self.counters.copies.fetch_add(1, Ordering::Relaxed);
        let bytes = packed.event.len() as u64;
        self.counters.bytes.fetch_add(bytes, Ordering::Relaxed);
        Poll::Ready(Some(Ok(Frame::data(packed.event))))
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        self.place = None;
        self.counters.listeners.fetch_sub(1, Ordering::Relaxed);
    }
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Events")
    }
}

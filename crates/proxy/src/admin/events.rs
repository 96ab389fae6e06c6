//! The stream of events: server-sent events (SSE), bounded per subscriber.
//!
//! Every subscriber has a queue of [`QUEUE`] events. One that does not keep up is let go (its
//! stream ends; a browser connects again by itself) instead of holding up the others or memory.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame};
use parking_lot::Mutex;
use serde::Serialize;
use tidegate_sentry::Event;
use tokio::sync::mpsc;

/// Events a subscriber may be behind: half a minute of a controller that steps ten times a second.
const QUEUE: usize = 256;
/// Subscribers at a time: dashboards and terminals of one operator's team.
const SUBSCRIBERS_MAX: usize = 32;

/// Passes events on to whoever listens.
#[derive(Debug, Default)]
pub struct Events {
    subscribers: Mutex<Vec<mpsc::Sender<Bytes>>>,
    next_id: AtomicU64,
    let_go: AtomicU64,
}

impl Events {
    /// A new subscription; `None` when there are too many.
    #[must_use]
    pub fn subscribe(&self) -> Option<Subscription> {
        let mut subscribers = self.subscribers.lock();
        subscribers.retain(|subscriber| !subscriber.is_closed());
        if subscribers.len() >= SUBSCRIBERS_MAX {
            return None;
        }
        let (sender, events) = mpsc::channel(QUEUE);
        // Something to read at once tells the client that it is connected.
        let _ = sender.try_send(Bytes::from_static(b": connected\n\n"));
        subscribers.push(sender);
        Some(Subscription(events))
    }

    /// Whether anybody listens; nothing needs to be written down otherwise.
    #[must_use]
    pub fn is_watched(&self) -> bool {
        !self.subscribers.lock().is_empty()
    }

    /// Subscribers there are.
    #[must_use]
    pub fn subscribers(&self) -> usize {
        self.subscribers.lock().len()
    }

    /// Subscribers that were too slow.
    #[must_use]
    pub fn let_go(&self) -> u64 {
        self.let_go.load(Ordering::Relaxed)
    }

    /// Passes an event on. Its JSON is written once for all.
    pub fn publish(&self, name: &str, event: &impl Serialize) {
        if !self.is_watched() {
            return;
        }
        if let Ok(data) = serde_json::to_string(event) {
            let id = self.next_id.fetch_add(1, Ordering::Relaxed);
            self.send(&format!("id: {id}\nevent: {name}\ndata: {data}\n\n").into());
        }
    }

    /// Passes an event of the engine on, under the name that the engine gives it.
    pub fn publish_engine(&self, application: &str, event: &Event) {
        if !self.is_watched() {
            return;
        }
        if let Ok(mut event) = serde_json::to_value(event) {
            event["application"] = application.into();
            self.publish(event["event"].as_str().unwrap_or("event"), &event);
        }
    }

    /// Sends a comment, so that a client that is gone is found out.
    pub fn keep_alive(&self) {
        self.send(&Bytes::from_static(b": still here\n\n"));
    }

    fn send(&self, frame: &Bytes) {
        self.subscribers
            .lock()
            .retain(|subscriber| match subscriber.try_send(frame.clone()) {
                Ok(()) => true,
                Err(mpsc::error::TrySendError::Closed(_)) => false,
                Err(mpsc::error::TrySendError::Full(_)) => {
                    self.let_go.fetch_add(1, Ordering::Relaxed);
                    false
                }
            });
    }
}

/// A response body that never ends by itself.
#[derive(Debug)]
pub struct Subscription(mpsc::Receiver<Bytes>);

impl Body for Subscription {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let event = self.0.poll_recv(cx);
        event.map(|event| event.map(|bytes| Ok(Frame::data(bytes))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;
    use tidegate_control::Timestamp;
    use tidegate_sentry::ReplicaId;

    async fn next(subscription: &mut Subscription) -> Option<String> {
        let frame = subscription.frame().await?.unwrap();
        let bytes = frame.into_data().unwrap();
        Some(String::from_utf8(bytes.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn events_arrive_in_order_with_their_names() {
        let events = Events::default();
        events.publish("lost", &1);
        let mut one = events.subscribe().unwrap();
        events.publish("step", &serde_json::json!({ "output": 2 }));
        events.publish("mode", &"pi");
        assert_eq!(next(&mut one).await.unwrap(), ": connected\n\n");
        assert_eq!(
            next(&mut one).await.unwrap(),
            "id: 0\nevent: step\ndata: {\"output\":2}\n\n"
        );
        assert_eq!(
            next(&mut one).await.unwrap(),
            "id: 1\nevent: mode\ndata: \"pi\"\n\n"
        );
    }

    #[tokio::test]
    async fn events_of_the_engine_keep_their_names() {
        let events = Events::default();
        let mut one = events.subscribe().unwrap();
        let event = Event::Health {
            at: Timestamp::from_nanos(7),
            replica: ReplicaId(3),
            up: false,
        };
        events.publish_engine("shop", &event);
        next(&mut one).await;
        assert_eq!(
            next(&mut one).await.unwrap(),
            "id: 0\nevent: health\n\
             data: {\"event\":\"health\",\"at\":7,\"replica\":3,\"up\":false,\
             \"application\":\"shop\"}\n\n"
        );
    }

    #[tokio::test]
    async fn a_slow_subscriber_is_let_go_and_the_others_stay() {
        let events = Events::default();
        let mut slow = events.subscribe().unwrap();
        let mut fast = events.subscribe().unwrap();
        next(&mut fast).await;
        for number in 0..QUEUE {
            events.publish("step", &number);
            assert!(next(&mut fast).await.is_some());
        }
        assert_eq!((events.subscribers(), events.let_go()), (1, 1));
        let mut read = 0;
        while next(&mut slow).await.is_some() {
            read += 1;
        }
        assert_eq!(read, QUEUE, "what was queued is still read, then it ends");
    }

    #[test]
    fn subscribers_are_bounded_and_make_room_when_they_leave() {
        let events = Events::default();
        let mut all: Vec<_> = (0..SUBSCRIBERS_MAX)
            .map(|_| events.subscribe().unwrap())
            .collect();
        assert!(events.subscribe().is_none());
        all.pop();
        assert!(events.subscribe().is_some());
    }
}

//! The stream of events: server-sent events (SSE), bounded per subscriber, with a bounded history.
//!
//! Every subscriber has a queue of [`QUEUE`] events. One that does not keep up is closed (its
//! stream ends; a browser connects again by itself) instead of holding up the others or memory.
//! The history keeps the last [`KEPT_PER_TYPE`] events of each type, so that a type that happens
//! often does not push out one that happens rarely.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::SystemTime;

use bytes::Bytes;
use http_body::{Body, Frame};
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::{Map, Value};
use tidegate_http1::event_stream;
use tidegate_sentry::Event;
use tokio::sync::mpsc;

use super::event_types::{self, EventType};
use crate::wall_clock::{parse_since, rfc3339};

/// Events a subscriber may be behind: half a minute of a controller that steps ten times a second.
const QUEUE: usize = 256;
/// Subscribers at a time: dashboards and terminals of one operator's team.
const SUBSCRIBERS_MAX: usize = 32;
/// Events of one type in the history. Chosen: an hour of a controller that steps twice a minute,
/// and some 100 KiB for all types.
const KEPT_PER_TYPE: usize = 200;

/// Which events a reader wants.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// Types; all when empty.
    types: Vec<&'static str>,
    /// Events of the past from this time on; none when absent.
    since: Option<SystemTime>,
    /// Events of the past after this id.
    after: Option<u64>,
    /// Whether the answer ends with the past.
    past_only: bool,
}

impl Filter {
    /// Reads the query of a call: `types=overload,window`, `since=10m`, `after=17`, `follow=false`.
    ///
    /// # Errors
    /// Cause and remedy, separated by a semicolon.
    pub fn parse(query: &str, now: SystemTime) -> Result<Self, String> {
        let mut filter = Self::default();
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        for pair in pairs {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = percent_decoded(value);
            match key {
                "types" => filter.types = types(&value)?,
                "since" => filter.since = Some(since(&value, now)?),
                "after" => filter.after = Some(after(&value)?),
                "follow" => filter.past_only = !follow(&value)?,
                other => {
                    return Err(format!(
                        "`{other}` is no parameter of the events; use types, since, after or follow"
                    ));
                }
            }
        }
        Ok(filter)
    }

    /// Whether the answer ends with the past.
    #[must_use]
    pub fn is_past_only(&self) -> bool {
        self.past_only
    }

    fn takes(&self, name: &str) -> bool {
        self.types.is_empty() || self.types.contains(&name)
    }

    fn takes_past(&self, kept: &Kept) -> bool {
        let asked = self.past_only || self.since.is_some() || self.after.is_some();
        asked
            && self.takes(kept.name)
            && self.since.is_none_or(|since| kept.time >= since)
            && self.after.is_none_or(|after| kept.id > after)
    }
}

fn types(list: &str) -> Result<Vec<&'static str>, String> {
    let names = list
        .split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty());
    names
        .map(|name| {
            event_types::find(name)
                .map(|found| found.name)
                .ok_or_else(|| {
                    let all: Vec<_> = event_types::ALL.iter().map(|of| of.name).collect();
                    format!("`{name}` is no type of event; use {}", all.join(", "))
                })
        })
        .collect()
}

fn since(text: &str, now: SystemTime) -> Result<SystemTime, String> {
    parse_since(text, now).ok_or_else(|| {
        format!("`{text}` is no time; write how long ago, as 10m, or 2026-01-02T03:04:05Z")
    })
}

fn after(text: &str) -> Result<u64, String> {
    let wrong = |_| format!("`{text}` is no event id; write the number of an event");
    text.parse().map_err(wrong)
}

fn follow(text: &str) -> Result<bool, String> {
    match text {
        "true" | "" => Ok(true),
        "false" => Ok(false),
        _ => Err(format!(
            "`{text}` is neither true nor false; write follow=false"
        )),
    }
}

/// `%3A` and `+` as query strings have them; what is not valid stays as it is.
pub(super) fn percent_decoded(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.as_bytes().iter().copied();
    while let Some(byte) = bytes.next() {
        let rest = text.len() - bytes.len();
        let hex = text.get(rest..rest + 2).filter(|_| byte == b'%');
        match hex.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            Some(code) => {
                out.push(code);
                bytes.nth(1);
            }
            None => out.push(if byte == b'+' { b' ' } else { byte }),
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// One event of the history.
#[derive(Debug, Clone)]
struct Kept {
    id: u64,
    time: SystemTime,
    name: &'static str,
    /// Its JSON.
    data: String,
}

impl Kept {
    fn frame(&self) -> Bytes {
        let Self { id, name, data, .. } = self;
        event_stream::event(id, Some(name), data)
    }
}

#[derive(Debug)]
struct Subscriber {
    sender: mpsc::Sender<Bytes>,
    filter: Filter,
}

#[derive(Debug, Default)]
struct Inner {
    subscribers: Vec<Subscriber>,
    next_id: u64,
    too_slow: u64,
    history: BTreeMap<&'static str, VecDeque<Kept>>,
}

/// Passes events on to their readers, and keeps the last of them.
#[derive(Debug, Default)]
pub struct Events(Mutex<Inner>);

impl Events {
    /// A new subscription; `None` when there are too many.
    #[must_use]
    pub fn subscribe(&self, filter: Filter) -> Option<Subscription> {
        let mut inner = self.0.lock();
        inner
            .subscribers
            .retain(|subscriber| !subscriber.sender.is_closed());
        if inner.subscribers.len() >= SUBSCRIBERS_MAX {
            return None;
        }
        let past = inner.past(&filter);
        let (sender, events) = mpsc::channel(QUEUE + past.len() + 1);
        // Something to read at once tells the client that it is connected.
        let _ = sender.try_send(event_stream::comment("connected"));
        for kept in past {
            let _ = sender.try_send(kept.frame());
        }
        inner.subscribers.push(Subscriber { sender, filter });
        Some(Subscription(events))
    }

    /// The events of the history that a reader wants, as a JSON array, oldest first.
    #[must_use]
    pub fn past(&self, filter: &Filter) -> String {
        let past = self.0.lock().past(filter);
        let data: Vec<_> = past.into_iter().map(|kept| kept.data).collect();
        format!("[{}]", data.join(","))
    }

    /// Whether there is a reader; what is not kept need not be written otherwise.
    #[must_use]
    pub fn is_watched(&self) -> bool {
        !self.0.lock().subscribers.is_empty()
    }

    /// Subscribers there are.
    #[must_use]
    pub fn subscribers(&self) -> usize {
        self.0.lock().subscribers.len()
    }

    /// Subscribers that were too slow.
    #[must_use]
    pub fn too_slow(&self) -> u64 {
        self.0.lock().too_slow
    }

    /// Passes an event on. Its JSON is written once for all.
    pub fn publish(&self, kind: &EventType, time: SystemTime, event: &impl Serialize) {
        let mut inner = self.0.lock();
        if !kind.kept && inner.subscribers.is_empty() {
            return;
        }
        let Ok(fields) = serde_json::to_value(event) else {
            return;
        };
        inner.next_id += 1;
        let kept = Kept {
            id: inner.next_id,
            time,
            name: kind.name,
            data: data(inner.next_id, time, kind.name, fields),
        };
        inner.send(&kept.frame(), |filter| filter.takes(kind.name));
        if kind.kept {
            inner.keep(kept);
        }
    }

    /// Passes an event of the engine on, under the name that the engine gives it, with what it says
    /// in words.
    pub fn publish_engine(
        &self,
        application: &str,
        time: SystemTime,
        event: &Event,
        words: Option<String>,
    ) {
        let Ok(Value::Object(mut fields)) = serde_json::to_value(event) else {
            return;
        };
        let name = fields.remove("event");
        // Nanoseconds since the proxy's start mean nothing to a reader, who has `time`.
        fields.remove("at");
        fields.insert("application".into(), application.into());
        fields.extend(words.map(|words| ("words".to_owned(), words.into())));
        if let Some(kind) = name
            .as_ref()
            .and_then(Value::as_str)
            .and_then(event_types::find)
        {
            self.publish(kind, time, &fields);
        }
    }

    /// Sends a comment, so that a client that is gone is found out.
    pub fn keep_alive(&self) {
        let comment = event_stream::comment("still here");
        self.0.lock().send(&comment, |_| true);
    }
}

/// The event as a reader gets it: id, time and type first.
fn data(id: u64, time: SystemTime, name: &str, fields: Value) -> String {
    let mut all = Map::new();
    all.insert("id".into(), id.into());
    all.insert("time".into(), rfc3339(time).into());
    all.insert("type".into(), name.into());
    match fields {
        Value::Object(fields) => all.extend(fields),
        value => drop(all.insert("value".into(), value)),
    }
    Value::Object(all).to_string()
}

impl Inner {
    fn past(&self, filter: &Filter) -> Vec<Kept> {
        let kept = self.history.values().flatten();
        let mut past: Vec<_> = kept
            .filter(|kept| filter.takes_past(kept))
            .cloned()
            .collect();
        past.sort_by_key(|kept| kept.id);
        past
    }

    fn keep(&mut self, event: Kept) {
        let ring = self.history.entry(event.name).or_default();
        if ring.len() >= KEPT_PER_TYPE {
            ring.pop_front();
        }
        ring.push_back(event);
    }

    fn send(&mut self, frame: &Bytes, wanted: impl Fn(&Filter) -> bool) {
        let too_slow = &mut self.too_slow;
        self.subscribers.retain(|subscriber| {
            if !wanted(&subscriber.filter) {
                return true;
            }
            match subscriber.sender.try_send(frame.clone()) {
                Ok(()) => true,
                Err(mpsc::error::TrySendError::Closed(_)) => false,
                Err(mpsc::error::TrySendError::Full(_)) => {
                    *too_slow += 1;
                    false
                }
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
    use std::time::Duration;

    use super::*;
    use http_body_util::BodyExt;
    use serde_json::json;
    use tidegate_control::Timestamp;
    use tidegate_sentry::ReplicaId;

    fn kind(name: &str) -> &'static EventType {
        event_types::find(name).unwrap()
    }

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    async fn next(subscription: &mut Subscription) -> Option<String> {
        let frame = subscription.frame().await?.unwrap();
        let bytes = frame.into_data().unwrap();
        Some(String::from_utf8(bytes.to_vec()).unwrap())
    }

    fn names(past: &str) -> Vec<(u64, String)> {
        let past: Vec<Value> = serde_json::from_str(past).unwrap();
        let name = |event: &Value| {
            let name = event["type"].as_str().unwrap().to_owned();
            (event["id"].as_u64().unwrap(), name)
        };
        past.iter().map(name).collect()
    }

    #[tokio::test]
    async fn events_arrive_in_order_with_names_and_times() {
        let events = Events::default();
        let mut one = events.subscribe(Filter::default()).unwrap();
        events.publish(kind("step"), at(0), &json!({ "output": 2 }));
        events.publish_engine(
            "shop",
            at(1),
            &Event::Health {
                at: Timestamp::from_nanos(7),
                replica: ReplicaId(3),
                up: false,
            },
            Some("it gets no requests".to_owned()),
        );
        assert_eq!(next(&mut one).await.unwrap(), ": connected\n\n");
        let first = next(&mut one).await.unwrap();
        assert!(first.starts_with("id: 1\nevent: step\ndata: {"), "{first}");
        assert!(
            first.contains(r#""time":"1970-01-01T00:00:00.000Z""#),
            "{first}"
        );
        let second = next(&mut one).await.unwrap();
        assert!(second.starts_with("id: 2\nevent: health\n"), "{second}");
        assert!(
            second.contains(r#""replica":3"#) && !second.contains("\"at\""),
            "{second}"
        );
    }

    #[tokio::test]
    async fn filter_chooses_types() {
        let events = Events::default();
        let filter = Filter::parse("types=mode", at(0)).unwrap();
        let mut one = events.subscribe(filter).unwrap();
        events.publish(kind("step"), at(0), &1);
        events.publish(kind("mode"), at(0), &2);
        next(&mut one).await;
        assert!(next(&mut one).await.unwrap().contains("event: mode"));
        let wrong = Filter::parse("types=mode,nonsense", at(0)).unwrap_err();
        assert!(
            wrong.contains("`nonsense`") && wrong.contains("overload"),
            "{wrong}"
        );
        assert!(
            Filter::parse("type=mode", at(0))
                .unwrap_err()
                .contains("types, since")
        );
    }

    #[tokio::test]
    async fn history_is_bounded_by_type_and_chosen_by_time() {
        let events = Events::default();
        events.publish(kind("mode"), at(1), &1);
        for second in 0..1000 {
            events.publish(kind("step"), at(second), &second);
        }
        let all = names(&events.past(&Filter::parse("follow=false", at(1000)).unwrap()));
        assert_eq!(all.len(), KEPT_PER_TYPE + 1);
        assert_eq!(all[0], (1, "mode".to_owned()));
        let filter = Filter::parse("since=10s&types=step", at(1000)).unwrap();
        assert_eq!(names(&events.past(&filter)).len(), 10);
        let filter = Filter::parse("since=1970-01-01T00%3A16%3A38Z", at(1000)).unwrap();
        assert_eq!(names(&events.past(&filter)).len(), 2);
        let filter = Filter::parse("after=1000", at(1000)).unwrap();
        assert_eq!(names(&events.past(&filter)), [(1001, "step".to_owned())]);
        let mut one = events.subscribe(filter).unwrap();
        next(&mut one).await;
        assert!(next(&mut one).await.unwrap().starts_with("id: 1001\n"));
    }

    #[tokio::test]
    async fn reader_that_does_not_keep_up_is_closed() {
        let events = Events::default();
        let mut slow = events.subscribe(Filter::default()).unwrap();
        let mut fast = events.subscribe(Filter::default()).unwrap();
        for number in 0..=QUEUE + 1 {
            events.publish(kind("step"), at(0), &number);
            next(&mut fast).await.unwrap();
        }
        assert_eq!((events.subscribers(), events.too_slow()), (1, 1));
        let mut read = 0;
        while next(&mut slow).await.is_some() {
            read += 1;
        }
        assert!(read <= QUEUE + 1, "{read}");
    }

    #[test]
    fn subscribers_are_bounded_and_make_room_when_they_leave() {
        let events = Events::default();
        let readers: Vec<_> = (0..SUBSCRIBERS_MAX)
            .map(|_| events.subscribe(Filter::default()).unwrap())
            .collect();
        assert!(events.subscribe(Filter::default()).is_none());
        drop(readers);
        assert!(events.subscribe(Filter::default()).is_some());
    }
}

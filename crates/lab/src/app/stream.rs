//! A body of server-sent events at a steady pace.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame};
use tidegate_config::Dur;
use tidegate_http1::event_stream;
use tokio::time::{Interval, interval};

/// Streams end by themselves: a day of events per second is a mistake.
const EVENTS_MAX: u64 = 100_000;

/// This many events, one after each interval.
#[derive(Debug)]
pub(super) struct Events {
    ticks: Interval,
    sent: u64,
    total: u64,
}

impl Events {
    /// Reads `events` and `every` from a query; ten events, one a second, where it is silent.
    pub(super) fn from_query(query: Option<&str>) -> Self {
        let value = |name: &str| {
            let pairs = query?.split('&').filter_map(|pair| pair.split_once('='));
            pairs
                .into_iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| value)
        };
        let every = value("every").and_then(|text| text.parse::<Dur>().ok());
        let total = value("events").and_then(|text| text.parse().ok());
        Self {
            ticks: interval(
                every
                    .map_or(Duration::from_secs(1), |every| every.0)
                    .max(Duration::from_millis(1)),
            ),
            sent: 0,
            total: total.unwrap_or(10).min(EVENTS_MAX),
        }
    }
}

impl Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.sent == self.total {
            return Poll::Ready(None);
        }
        ready!(self.ticks.poll_tick(context));
        self.sent += 1;
        let data = format!("{} of {}", self.sent, self.total);
        let event = event_stream::event(self.sent, None, &data);
        Poll::Ready(Some(Ok(Frame::data(event))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt as _;

    #[tokio::test]
    async fn as_many_events_as_asked_for() {
        let events = Events::from_query(Some("every=1ms&events=3"));
        let text = events.collect().await.unwrap().to_bytes();
        assert_eq!(
            text.iter().filter(|&&byte| byte == b'd').count(),
            6,
            "id and data"
        );
        assert!(text.ends_with(b"data: 3 of 3\n\n"));
    }

    #[tokio::test]
    async fn nonsense_in_the_query_is_the_default() {
        let events = Events::from_query(Some("every=soon&events=-1"));
        assert_eq!(events.total, 10);
        assert_eq!(events.ticks.period(), Duration::from_secs(1));
    }
}

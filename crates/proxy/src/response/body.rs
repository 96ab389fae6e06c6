//! The body of a response on its way to the client.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use http_body::{Body, Frame, SizeHint};
use tidegate_control::Timestamp;
use tidegate_sentry::Ending;

use super::json_cost::JsonCost;
use super::report::About;
use super::slow_reader::Reading;
use super::tunnel::Tunnel;
use super::{Kind, ending, report};
use crate::alarm::Alarm;
use crate::fault::Fault;
use crate::gate::Slot;
use crate::health::Outcome;
use crate::message::Fields;
use crate::metrics::{Direction, UpstreamFailure};
use crate::request::Request;
use crate::request::exchange::Exchange;
use crate::upstream::download::Download;
use crate::worker::{LocalApplication, Worker};

/// Why a response breaks off. The client sees the truncation: the connection closes, or the
/// stream is reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Truncated {
    #[error("the replica's connection broke")]
    Reset,
    #[error("the replica went silent")]
    Silent,
    #[error("the replica sends more than is allowed")]
    TooLarge,
}

/// The body of a response.
#[derive(Debug)]
pub(crate) enum Outbound {
    Full(Bytes),
    Relay(Box<Relay>),
    /// No body: another protocol follows.
    Tunnel(Box<Tunnel>),
}

impl Outbound {
    pub(crate) fn full(data: Bytes) -> Self {
        Self::Full(data)
    }

    pub(crate) fn relay(relay: Relay) -> Self {
        Self::Relay(Box::new(relay))
    }

    /// The client takes no more for now (`true`), or takes more again.
    pub(crate) fn set_blocked(&self, blocked: bool) {
        if let Self::Relay(relay) = self
            && let Some(rest) = &relay.rest
        {
            rest.reading.set_blocked(blocked);
        }
    }

    /// Lets the request end with the body; at once if it is here already.
    pub(crate) fn carry(&mut self, mut exchange: Exchange) {
        match self {
            Self::Full(data) => {
                exchange.count(data.len() as u64);
                exchange.complete();
            }
            Self::Relay(relay) => relay.exchange = Some(exchange),
            Self::Tunnel(_) => exchange.complete(),
        }
    }
}

/// A body that is passed on as it comes.
#[derive(Debug)]
pub(crate) struct Relay {
    worker: Rc<Worker>,
    application: Rc<LocalApplication>,
    about: About,
    first: Option<Frame<Bytes>>,
    body: Download,
    /// Taken when the replica has sent everything.
    rest: Option<Rest>,
    exchange: Option<Exchange>,
    /// Rings when the replica may have been silent for too long.
    silence: Option<Alarm<Rc<Worker>>>,
    heard: Timestamp,
    /// Bytes that may still come, where there is a bound.
    left: Option<u64>,
    /// Where the answer says what the request has cost.
    cost: Option<Box<JsonCost>>,
}

/// What is given back at the replica's last byte.
#[derive(Debug)]
struct Rest {
    reading: Rc<Reading>,
    status: StatusCode,
    kind: Kind,
    key: usize,
}

impl Relay {
    pub(crate) fn new(
        request: &Request,
        first: Option<Frame<Bytes>>,
        body: Download,
        slot: Slot,
        status: StatusCode,
        kind: Kind,
        cost: Option<JsonCost>,
    ) -> Self {
        let exchange = &request.exchange;
        let worker = Rc::clone(exchange.worker());
        let now = worker.state.now();
        let about = About::new(request, &slot);
        let (key, reading) = worker.slow_readers.watch(slot, kind, now);
        let relay = Self {
            worker,
            application: Rc::clone(&exchange.application),
            about,
            first,
            body,
            rest: Some(Rest {
                reading,
                status,
                kind,
                key,
            }),
            exchange: None,
            silence: None,
            heard: now,
            left: exchange.passage.as_ref().and_then(|it| it.response_bytes),
            cost: cost.map(Box::new),
        };
        if kind == Kind::Stream {
            relay.record_answered(status);
        }
        relay
    }

    /// The replica has answered well, as far as its health is concerned: to the end, as long as the
    /// client listened, or, where there is no end to wait for, with its first words.
    fn record_answered(&self, status: StatusCode) {
        let outcome = Outcome::Answered(status.as_u16());
        let board = self.application.shared.board();
        board.record(self.about.replica, outcome);
    }

    /// The replica has sent everything.
    fn end(&mut self) {
        let Some(rest) = self.rest.take() else {
            return;
        };
        self.worker.slow_readers.forget(rest.key);
        if let Some(cost) = self.cost.take() {
            report::cost(&self.application.shared, self.about, cost.finish());
        }
        let streamed = rest.reading.is_streaming();
        if let Some(slot) = rest.reading.take() {
            slot.end(if streamed {
                Ending::Ignored
            } else {
                ending(rest.status)
            });
        }
        if rest.kind != Kind::Stream {
            self.record_answered(rest.status);
        }
        let settings = self.application.settings();
        self.body.give_back(&self.worker, &settings);
    }

    /// The replica failed in the middle.
    fn fail(&mut self, failure: UpstreamFailure) {
        let Some(rest) = self.rest.take() else {
            return;
        };
        self.worker.slow_readers.forget(rest.key);
        if let Some(slot) = rest.reading.take() {
            slot.end(Ending::Dropped);
        }
        self.application.metrics().record_upstream_failure(failure);
        self.application
            .shared
            .board()
            .record(self.about.replica, Outcome::Failed(failure));
        if let Some(exchange) = self.exchange.take() {
            exchange.truncated(failure);
        }
    }

    /// Whether a frame is beyond the bound of the response.
    fn is_too_large(&mut self, frame: &Frame<Bytes>) -> bool {
        let Some(left) = &mut self.left else {
            return false;
        };
        let bytes = frame.data_ref().map_or(0, Bytes::len) as u64;
        let beyond = bytes > *left;
        *left = left.saturating_sub(bytes);
        beyond
    }

    /// Ends a response that is larger than allowed: the replica did its work, the client sees that
    /// something is missing.
    fn cut_off(&mut self) -> Truncated {
        if let Some(rest) = self.rest.take() {
            self.worker.slow_readers.forget(rest.key);
            if let Some(slot) = rest.reading.take() {
                slot.end(ending(rest.status));
            }
            self.record_answered(rest.status);
        }
        let counters = self.application.shared.edge_counters();
        counters.count(&Fault::ResponseTooLarge);
        if let Some(exchange) = self.exchange.take() {
            exchange.truncated(UpstreamFailure::Malformed);
        }
        Truncated::TooLarge
    }

    fn set_waiting(&self, waiting: Option<Timestamp>) {
        if let Some(rest) = &self.rest {
            rest.reading.set_waiting(waiting);
        }
    }

    fn poll_relay(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Truncated>>> {
        if let Some(first) = self.first.take() {
            if self.is_too_large(&first) {
                return Poll::Ready(Some(Err(self.cut_off())));
            }
            return Poll::Ready(self.pass(first).map(Ok));
        }
        match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Pending => {
                self.set_waiting(None);
                ready!(self.poll_silence(cx));
                self.fail(UpstreamFailure::Timeout);
                Poll::Ready(Some(Err(Truncated::Silent)))
            }
            Poll::Ready(Some(Ok(frame))) if self.is_too_large(&frame) => {
                Poll::Ready(Some(Err(self.cut_off())))
            }
            Poll::Ready(Some(Ok(frame))) => Poll::Ready(self.pass(frame).map(Ok)),
            Poll::Ready(Some(Err(_))) => {
                self.fail(UpstreamFailure::Reset);
                Poll::Ready(Some(Err(Truncated::Reset)))
            }
            Poll::Ready(None) => {
                self.end();
                self.complete();
                Poll::Ready(None)
            }
        }
    }

    /// Notes a frame on its way through; trailers that were for us only are the end.
    fn pass(&mut self, frame: Frame<Bytes>) -> Option<Frame<Bytes>> {
        let now = self.worker.state.now();
        self.heard = now;
        let frame = match frame.into_trailers() {
            Ok(trailers) => {
                let mut trailers = Fields::from(trailers);
                report::strip(&self.application.shared, self.about, &mut trailers);
                Frame::trailers(trailers.into())
            }
            Err(frame) => frame,
        };
        if let (Some(cost), Some(data)) = (&mut self.cost, frame.data_ref()) {
            cost.read(data);
        }
        let bytes = frame.data_ref().map_or(0, Bytes::len);
        self.application
            .metrics()
            .record_bytes(Direction::Response, bytes as u64);
        if let Some(exchange) = &mut self.exchange {
            exchange.count(bytes as u64);
        }
        if frame.is_trailers() || self.body.is_end_stream() {
            self.end();
        }
        if frame.is_trailers() {
            self.complete();
        }
        self.set_waiting(Some(now));
        let was_for_us = frame.trailers_ref().is_some_and(HeaderMap::is_empty);
        (!was_for_us).then_some(frame)
    }

    fn complete(&mut self) {
        if let Some(exchange) = self.exchange.take() {
            exchange.complete();
        }
    }

    /// Ready when the replica has been silent for too long.
    fn poll_silence(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let limit = *self.application.settings().config.timeouts.body_idle;
        let due = self.heard + limit;
        let silence = self
            .silence
            .get_or_insert_with(|| Alarm::set(Rc::clone(&self.worker), due));
        while silence.poll(cx).is_ready() {
            if self.worker.state.now() >= due {
                return Poll::Ready(());
            }
            // Bytes came since: the alarm is set again only now, not for every frame.
            silence.reset(due);
        }
        Poll::Pending
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let Some(rest) = self.rest.take() else {
            // A body of known length is not polled for its end.
            self.complete();
            return;
        };
        // The client left, and the connection to the replica closes.
        self.worker.slow_readers.forget(rest.key);
        if let Some(slot) = rest.reading.take() {
            slot.end_as_noted();
        }
        if rest.kind != Kind::Stream {
            self.record_answered(rest.status);
        }
    }
}

impl Body for Outbound {
    type Data = Bytes;
    type Error = Truncated;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Truncated>>> {
        match &mut *self {
            Self::Full(data) if data.is_empty() => Poll::Ready(None),
            Self::Full(data) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(data))))),
            Self::Relay(relay) => relay.poll_relay(cx),
            Self::Tunnel(_) => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Full(data) => data.is_empty(),
            Self::Relay(relay) => relay.first.is_none() && relay.body.is_end_stream(),
            Self::Tunnel(_) => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Full(data) => SizeHint::with_exact(data.len() as u64),
            Self::Tunnel(_) => SizeHint::with_exact(0),
            Self::Relay(relay) => {
                let first = relay
                    .first
                    .as_ref()
                    .and_then(Frame::data_ref)
                    .map_or(0, Bytes::len) as u64;
                match relay.body.size_hint().exact() {
                    Some(rest) => SizeHint::with_exact(rest + first),
                    None => SizeHint::default(),
                }
            }
        }
    }
}

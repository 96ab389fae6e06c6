//! The body of a request on its way to a replica.
//!
//! A client that sends its body slowly must not hold a slot meanwhile. So a body is read first, up
//! to `limits.upload_buffer`, and only then is a slot asked for. A body of unknown length may be a
//! conversation, of which the client sends nothing more before it receives something: if it
//! pauses, what has arrived is taken along, and of gRPC that is done at once. The rest is passed
//! on as it comes, if there is a place for it ([`super::upload_places`]), and the slot is paused
//! until the body has reached the replica.
//!
//! A client has to send `limits.upload_rate` over [`RATE_WINDOW`], and all of it within
//! `timeouts.upload` ([`Pace::is_too_slow`]). A conversation need not.
//!
//! Decision: docs/decisions/0075-uploads-hold-no-slot.md.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use tidegate_control::Timestamp;

use super::upload_places::Place;
use crate::client::Client;
use crate::client::inbound::Inbound;
use crate::fault::Invalid;
use crate::hop::{self, Border};
use crate::message::Fields;
use crate::worker::LocalApplication;

/// Time over which a client's rate is measured. Chosen: a phone that changes its network takes a
/// few seconds.
const RATE_WINDOW: Duration = Duration::from_secs(10);

/// What the operator allows an upload.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UploadRules {
    /// Bytes that may come.
    pub(crate) bytes_max: u64,
    /// Bytes per second that have to come.
    pub(crate) rate: u64,
    /// When all of it has to be here.
    pub(crate) until: Timestamp,
    /// Whether it may last, because client and replica talk in turns.
    pub(crate) is_conversation: bool,
    /// Whose it is.
    pub(crate) tenant: u64,
}

/// A request's body as it is sent.
#[derive(Debug)]
pub(crate) enum Upload {
    Empty,
    /// Read to its end; can be sent twice.
    Full(Bytes),
    Stream(Box<Stream>),
    /// A stream in the hands of a task that sends it, see [`Upload::lend`].
    Lent(Rc<RefCell<Loan>>),
}

/// A body that can be had back while nothing of it is lost.
#[derive(Debug)]
pub(crate) struct Loan {
    /// `None` when it has been taken back.
    stream: Option<Box<Stream>>,
    /// What was read ahead of it, until the first piece behind that is passed on.
    ahead: Bytes,
}

/// A body that is still coming in.
#[derive(Debug)]
pub(crate) struct Stream {
    /// Being read ahead.
    reading: BytesMut,
    /// Read ahead and not yet passed on.
    ahead: Bytes,
    trailers: Option<HeaderMap>,
    body: Inbound,
    /// Bytes that may still come.
    allowed: u64,
    rules: UploadRules,
    /// Bytes of it that count as held, see [`super::upload_places`].
    counted: u64,
    client: Rc<Client>,
    /// Whose share of the memory it uses.
    application: Rc<LocalApplication>,
    waiting: bool,
    pace: Rc<Pace>,
}

/// What the request's task sees of a body that is being sent.
#[derive(Default)]
pub(crate) struct Pace {
    frames: Cell<u32>,
    state: Cell<PaceState>,
    /// Bytes received.
    bytes: Cell<u64>,
    /// When the rate was last looked at, and the bytes received until then.
    looked: Cell<(Timestamp, u64)>,
    rules: Cell<Option<UploadRules>>,
    /// Held until the body is complete.
    place: Cell<Option<Place>>,
    /// The task to wake when the body is complete.
    waker: Cell<Option<Waker>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum PaceState {
    #[default]
    Flowing,
    WaitingForClient,
    Complete,
    TooLarge,
    Broken,
}

impl fmt::Debug for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.get();
        f.debug_struct("Pace")
            .field("state", &state)
            .finish_non_exhaustive()
    }
}

impl Pace {
    fn set(&self, state: PaceState) {
        self.state.set(state);
        if state == PaceState::Complete {
            self.place.take();
            if let Some(waker) = self.waker.take() {
                waker.wake();
            }
        }
    }

    /// Holds a place until the body is complete.
    pub(crate) fn hold(&self, place: Place) {
        self.place.set(Some(place));
    }

    /// Ready when the whole body has been passed on.
    pub(crate) fn poll_complete(&self, cx: &Context<'_>) -> Poll<()> {
        if self.is(PaceState::Complete) {
            return Poll::Ready(());
        }
        self.waker.set(Some(cx.waker().clone()));
        Poll::Pending
    }

    /// Measures the rate from now on.
    pub(crate) fn begin(&self, now: Timestamp) {
        self.looked.set((now, self.bytes.get()));
    }

    /// Whether the client sends too slowly, or takes too long altogether, if `waiting` for it.
    pub(crate) fn is_too_slow(&self, now: Timestamp, waiting: bool) -> bool {
        let Some(rules) = self.rules.get().filter(|rules| !rules.is_conversation) else {
            return false;
        };
        let (since, before) = self.looked.get();
        let elapsed = now.since(since);
        if elapsed < RATE_WINDOW {
            return now >= rules.until;
        }
        self.begin(now);
        let wanted = rules.rate.saturating_mul(elapsed.as_secs());
        now >= rules.until || (waiting && self.bytes.get() - before < wanted)
    }

    /// Bytes received so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.get()
    }

    fn is(&self, state: PaceState) -> bool {
        self.state.get() == state
    }

    /// Moves whenever a piece of the body has been passed on.
    pub(crate) fn frames(&self) -> u32 {
        self.frames.get()
    }

    /// Whether the replica waits for the client.
    pub(crate) fn is_waiting(&self) -> bool {
        self.is(PaceState::WaitingForClient)
    }

    /// Whether the body has not been passed on whole yet.
    pub(crate) fn is_open(&self) -> bool {
        !self.is(PaceState::Complete)
    }

    /// What the client did wrong, if the request failed for that.
    pub(crate) fn fault(&self) -> Option<Invalid> {
        match self.state.get() {
            PaceState::TooLarge => Some(Invalid::BodyTooLarge),
            PaceState::Broken => Some(Invalid::Body),
            _ => None,
        }
    }
}

impl Upload {
    /// Takes over a request's body, if there is one.
    pub(crate) fn new(
        body: Inbound,
        client: &Rc<Client>,
        application: &Rc<LocalApplication>,
        rules: Option<UploadRules>,
    ) -> Result<Self, Invalid> {
        let Some(rules) = rules else {
            return Ok(Self::Empty);
        };
        if body.size_hint().lower() > rules.bytes_max {
            return Err(Invalid::BodyTooLarge);
        }
        let pace = Pace::default();
        pace.rules.set(Some(rules));
        Ok(Self::Stream(Box::new(Stream {
            reading: BytesMut::new(),
            ahead: Bytes::new(),
            trailers: None,
            body,
            allowed: rules.bytes_max,
            rules,
            counted: 0,
            client: Rc::clone(client),
            application: Rc::clone(application),
            waiting: false,
            pace: Rc::new(pace),
        })))
    }

    /// Reads what should be read before a slot is asked for, at most about `bytes_max`. Called
    /// again after it was cancelled it goes on where it was.
    pub(crate) async fn read_ahead(&mut self, bytes_max: u64) -> Result<(), Invalid> {
        let Self::Stream(stream) = self else {
            return Ok(());
        };
        if let Some(whole) = stream.read_ahead(bytes_max).await? {
            *self = Self::Full(whole);
        }
        Ok(())
    }

    /// Ends the reading ahead: what has come is passed on first.
    pub(crate) fn end_reading_ahead(&mut self) {
        if let Self::Stream(stream) = self {
            stream.set_waiting(false);
            stream.ahead = std::mem::take(&mut stream.reading).freeze();
        }
    }

    /// Whether it is known how much has still to come.
    pub(crate) fn is_announced(&self) -> bool {
        match self {
            Self::Stream(stream) => stream.body.size_hint().exact().is_some(),
            _ => true,
        }
    }

    /// Whose upload this is, if a part has still to come for which it needs a place.
    pub(crate) fn needs_place(&self) -> Option<u64> {
        match self {
            Self::Stream(stream) if !stream.is_received() && !stream.rules.is_conversation => {
                Some(stream.rules.tenant)
            }
            _ => None,
        }
    }

    /// Reads and forgets, at most `limit` bytes. True if that was all.
    pub(crate) async fn discard(self, limit: u64) -> bool {
        let Self::Stream(mut stream) = self else {
            return true;
        };
        let mut left = limit;
        if stream.body.size_hint().lower() > limit {
            return false;
        }
        loop {
            match stream.next(true).await {
                Ok(Some(Piece::End | Piece::Trailers(_)) | None) => return true,
                Ok(Some(Piece::Data(data))) => match left.checked_sub(data.len() as u64) {
                    Some(rest) => left = rest,
                    None => return false,
                },
                Err(_) => return false,
            }
        }
    }

    /// What can be watched of the body while it is sent; `None` if it is all there.
    pub(crate) fn pace(&self) -> Option<Rc<Pace>> {
        match self {
            Self::Stream(stream) => Some(Rc::clone(&stream.pace)),
            Self::Empty | Self::Full(_) | Self::Lent(_) => None,
        }
    }

    /// A second copy, where there can be one.
    pub(crate) fn copy(&self) -> Option<Self> {
        match self {
            Self::Empty => Some(Self::Empty),
            Self::Full(data) => Some(Self::Full(data.clone())),
            Self::Stream(_) | Self::Lent(_) => None,
        }
    }

    /// A second hold of the body, which is given to somebody to send.
    pub(crate) fn lend(&mut self) -> Self {
        match std::mem::replace(self, Self::Empty) {
            Self::Stream(stream) => {
                let ahead = stream.ahead.clone();
                let stream = Some(stream);
                let loan = Rc::new(RefCell::new(Loan { stream, ahead }));
                *self = Self::Lent(Rc::clone(&loan));
                Self::Lent(loan)
            }
            body => {
                *self = body;
                self.copy().unwrap_or(Self::Empty)
            }
        }
    }

    /// The body as it was before it was lent; `None` if a part of it is gone.
    pub(crate) fn take_back(self) -> Option<Self> {
        let Self::Lent(loan) = self else {
            return Some(self);
        };
        let mut loan = loan.borrow_mut();
        let ahead = std::mem::take(&mut loan.ahead);
        let mut stream = loan.stream.take().filter(|it| it.pace.frames() == 0)?;
        stream.ahead = ahead;
        stream.set_waiting(false);
        stream.pace.set(PaceState::Flowing);
        Some(Self::Stream(stream))
    }

    /// Whether any of it has still to come from the client.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self, Self::Stream(_) | Self::Lent(_))
    }

    /// Bytes it holds in memory.
    pub(crate) fn held(&self) -> usize {
        match self {
            Self::Empty => 0,
            Self::Full(data) => data.len(),
            Self::Stream(stream) => stream.ahead.len(),
            Self::Lent(loan) => loan.borrow().ahead.len(),
        }
    }
}

impl Loan {
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Invalid>>> {
        let Some(stream) = &mut self.stream else {
            // Never an end: what was passed on is a part of the body.
            return Poll::Ready(Some(Err(Invalid::Body)));
        };
        let polled = stream.poll_send(cx);
        if stream.pace.frames() > 0 {
            self.ahead = Bytes::new();
        }
        polled
    }
}

/// What comes next in a body.
enum Piece {
    Data(Bytes),
    Trailers(HeaderMap),
    End,
}

impl Stream {
    /// The next piece from the client; `None` if there is none yet and `wait` is false.
    fn next(&mut self, wait: bool) -> impl Future<Output = Result<Option<Piece>, Invalid>> + '_ {
        poll_fn(move |cx| match self.poll_piece(cx) {
            Poll::Ready(piece) => Poll::Ready(piece.map(Some)),
            Poll::Pending if wait => Poll::Pending,
            Poll::Pending => {
                self.set_waiting(false);
                Poll::Ready(Ok(None))
            }
        })
    }

    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<Piece, Invalid>> {
        loop {
            let polled = Pin::new(&mut self.body).poll_frame(cx);
            self.set_waiting(polled.is_pending());
            let frame = match ready!(polled) {
                None => return Poll::Ready(Ok(Piece::End)),
                Some(Err(_)) => {
                    self.pace.set(PaceState::Broken);
                    return Poll::Ready(Err(Invalid::Body));
                }
                Some(Ok(frame)) => frame,
            };
            match frame.into_data() {
                Ok(data) => return Poll::Ready(self.count(data)),
                Err(frame) => {
                    if let Ok(trailers) = frame.into_trailers() {
                        let mut trailers = Fields::from(trailers);
                        let trusted = self.client.trusted;
                        hop::strip(&mut trailers, Border::ToReplica { trusted });
                        return Poll::Ready(Ok(Piece::Trailers(trailers.into())));
                    }
                }
            }
        }
    }

    fn count(&mut self, data: Bytes) -> Result<Piece, Invalid> {
        match self.allowed.checked_sub(data.len() as u64) {
            Some(allowed) => {
                self.allowed = allowed;
                let bytes = &self.pace.bytes;
                bytes.set(bytes.get() + data.len() as u64);
                Ok(Piece::Data(data))
            }
            None => {
                self.pace.set(PaceState::TooLarge);
                Err(Invalid::BodyTooLarge)
            }
        }
    }

    /// Lets the sweep know whether we wait for the client.
    fn set_waiting(&mut self, waiting: bool) {
        if self.waiting != waiting {
            self.waiting = waiting;
            self.client.upload_waits(waiting);
        }
    }

    /// Reads ahead; gives the body if that was all of it and there are no trailers.
    async fn read_ahead(&mut self, bytes_max: u64) -> Result<Option<Bytes>, Invalid> {
        let waits = !self.rules.is_conversation;
        while (self.reading.len() as u64) < bytes_max {
            let Some(piece) = self.next(waits).await? else {
                break;
            };
            match piece {
                Piece::Data(data) if self.reading.is_empty() && self.body.is_end_stream() => {
                    return Ok(Some(data));
                }
                Piece::Data(data) => self.keep(&data),
                Piece::Trailers(trailers) => {
                    self.trailers = Some(trailers);
                    self.pace.set(PaceState::Complete);
                    break;
                }
                Piece::End => return Ok(Some(std::mem::take(&mut self.reading).freeze())),
            }
            if self.body.is_end_stream() {
                return Ok(Some(std::mem::take(&mut self.reading).freeze()));
            }
        }
        Ok(None)
    }

    fn keep(&mut self, data: &[u8]) {
        self.reading.extend_from_slice(data);
        let more = data.len() as u64;
        self.counted += more;
        self.client.worker().state.uploads.add_bytes(more);
        self.application.shared.uploads.add_bytes(more);
    }

    /// Whether the client has sent all of it.
    fn is_received(&self) -> bool {
        self.trailers.is_some() || self.body.is_end_stream()
    }

    /// Whether nothing more will be passed on.
    fn is_over(&self) -> bool {
        self.ahead.is_empty() && self.trailers.is_none() && self.body.is_end_stream()
    }

    fn size(&self) -> SizeHint {
        match self.body.size_hint().exact() {
            // A length would leave no room for them.
            _ if self.trailers.is_some() => SizeHint::default(),
            Some(rest) => SizeHint::with_exact(rest + self.ahead.len() as u64),
            None => SizeHint::default(),
        }
    }

    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Invalid>>> {
        if !self.ahead.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut self.ahead)))));
        }
        if let Some(trailers) = self.trailers.take() {
            self.pace.frames.update(|frames| frames.wrapping_add(1));
            self.pace.set(PaceState::Complete);
            return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
        }
        let Poll::Ready(piece) = self.poll_piece(cx) else {
            self.pace.set(PaceState::WaitingForClient);
            return Poll::Pending;
        };
        self.pace.frames.update(|frames| frames.wrapping_add(1));
        Poll::Ready(match piece {
            Err(invalid) => Some(Err(invalid)),
            Ok(Piece::End) => {
                self.pace.set(PaceState::Complete);
                None
            }
            Ok(Piece::Trailers(trailers)) => {
                self.pace.set(PaceState::Complete);
                Some(Ok(Frame::trailers(trailers)))
            }
            Ok(Piece::Data(data)) => {
                self.pace.set(if self.body.is_end_stream() {
                    PaceState::Complete
                } else {
                    PaceState::Flowing
                });
                Some(Ok(Frame::data(data)))
            }
        })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.set_waiting(false);
        let uploads = &self.client.worker().state.uploads;
        uploads.remove_bytes(self.counted);
        self.application.shared.uploads.remove_bytes(self.counted);
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = Invalid;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Invalid>>> {
        match &mut *self {
            Self::Empty => Poll::Ready(None),
            Self::Stream(stream) => stream.poll_send(cx),
            Self::Lent(loan) => loan.borrow_mut().poll_send(cx),
            Self::Full(data) => {
                let data = std::mem::take(data);
                *self = Self::Empty;
                Poll::Ready(Some(Ok(Frame::data(data))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Full(data) => data.is_empty(),
            Self::Stream(stream) => stream.is_over(),
            Self::Lent(loan) => {
                let loan = loan.borrow();
                loan.stream.as_ref().is_some_and(|stream| stream.is_over())
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Full(data) => SizeHint::with_exact(data.len() as u64),
            Self::Stream(stream) => stream.size(),
            Self::Lent(loan) => {
                let loan = loan.borrow();
                loan.stream
                    .as_ref()
                    .map_or_else(SizeHint::default, |it| it.size())
            }
        }
    }
}

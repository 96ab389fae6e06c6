//! The body of a request on its way to a replica.
//!
//! A client that sends its body slowly must not hold a slot meanwhile. So what a client has
//! announced by its length is read first, up to [`READ_AHEAD_MAX`], and only then is a slot
//! asked for. A body of unknown length may be a conversation (gRPC), of which the client sends
//! nothing more before it hears something: there only what has arrived is taken along. The rest
//! is streamed, and a slot whose client makes its replica wait is given back as if it were a
//! stream ([`Pace::is_waiting`]).

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};

use crate::client::Client;
use crate::client::inbound::Inbound;
use crate::fault::Invalid;
use crate::hop::{self, Border};
use crate::message::Fields;

/// Bytes of a body read before a slot is asked for. Chosen: most forms and API calls fit, and
/// ten thousand slow senders hold no more than a few hundred megabytes.
const READ_AHEAD_MAX: u64 = 32 << 10;

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
    /// Read ahead and not yet passed on.
    ahead: Bytes,
    trailers: Option<HeaderMap>,
    body: Inbound,
    /// Bytes that may still come.
    allowed: u64,
    client: Rc<Client>,
    waiting: bool,
    pace: Rc<Pace>,
}

/// What the request's task sees of a body that is being sent.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    frames: Cell<u32>,
    state: Cell<PaceState>,
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

impl Pace {
    fn set(&self, state: PaceState) {
        self.state.set(state);
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
    /// Takes over a request's body, of which `allowed` bytes may come.
    pub(crate) fn new(
        body: Inbound,
        client: &Rc<Client>,
        allowed: Option<u64>,
    ) -> Result<Self, Invalid> {
        if body.is_end_stream() {
            return Ok(Self::Empty);
        }
        let allowed = allowed.unwrap_or(u64::MAX);
        if body.size_hint().lower() > allowed {
            return Err(Invalid::BodyTooLarge);
        }
        Ok(Self::Stream(Box::new(Stream {
            ahead: Bytes::new(),
            trailers: None,
            body,
            allowed,
            client: Rc::clone(client),
            waiting: false,
            pace: Rc::default(),
        })))
    }

    /// Reads what should be read before a slot is asked for.
    pub(crate) async fn read_ahead(self) -> Result<Self, Invalid> {
        let Self::Stream(mut stream) = self else {
            return Ok(self);
        };
        let announced = stream.body.size_hint().exact();
        let mut ahead = BytesMut::new();
        while (ahead.len() as u64) < READ_AHEAD_MAX {
            let Some(frame) = stream.next(announced.is_some()).await? else {
                break;
            };
            match frame {
                Piece::Data(data) if ahead.is_empty() && stream.body.is_end_stream() => {
                    return Ok(Self::Full(data));
                }
                Piece::Data(data) => ahead.extend_from_slice(&data),
                Piece::Trailers(trailers) => {
                    stream.trailers = Some(trailers);
                    break;
                }
                Piece::End => return Ok(Self::Full(ahead.freeze())),
            }
            if stream.body.is_end_stream() {
                return Ok(Self::Full(ahead.freeze()));
            }
        }
        stream.ahead = ahead.freeze();
        Ok(Self::Stream(stream))
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

    /// Whether nothing more will be passed on.
    fn is_over(&self) -> bool {
        self.ahead.is_empty() && self.trailers.is_none() && self.body.is_end_stream()
    }

    fn size(&self) -> SizeHint {
        match self.body.size_hint().exact() {
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
                self.pace.set(match self.body.is_end_stream() {
                    true => PaceState::Complete,
                    false => PaceState::Flowing,
                });
                Some(Ok(Frame::data(data)))
            }
        })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.set_waiting(false);
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

//! HTTP/1.1 with a replica: one exchange after the other on a connection.
//!
//! The request that uses a connection also runs it: no task of its own, nothing to hand over.
//! While a response comes in, the rest of the request's body still goes out, if there is any.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Method, StatusCode};
use http_body::{Body, Frame, SizeHint};
use tokio::io::AsyncWrite;
use tokio::sync::OwnedSemaphorePermit;

use super::connect::Transport;
use crate::http1::body::{Decoder, Piece};
use crate::http1::input::{is_quiet, poll_fill};
use crate::http1::output::Output;
use crate::http1::response;
use crate::http1::write::{self, Encoder};
use crate::message::{Fields, Request, Response};
use crate::metrics::UpstreamFailure;
use crate::request::upload::Upload;

/// Bytes to read at a time where nothing is known of a message, and the most of a long one.
const READ_BYTES: usize = 8 << 10;
const STEP_MAX: u64 = 64 << 10;

/// A connection to a replica.
#[derive(Debug)]
pub(crate) struct Connection {
    io: Transport,
    input: BytesMut,
    output: Output,
    /// Of the exchange that is under way, or was.
    method: Method,
    upload: Upload,
    encoder: Encoder,
    sending: Sending,
    decoder: Decoder,
    keep_alive: bool,
    /// Whether the replica has said something in this exchange.
    heard: bool,
    /// One of those the replica may have.
    _permit: OwnedSemaphorePermit,
}

/// How far the request has gone out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sending {
    /// Part of its body has still to come.
    Body,
    /// The rest waits in the output.
    Rest,
    Done,
    /// It cannot be sent.
    Broken,
}

/// Why there is no response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failed {
    /// Not a byte of the request has left.
    Unsent,
    /// The replica has said that it did not look at the request.
    Declined,
    /// The replica closed the connection without a byte of an answer.
    Closed,
    /// The replica may have seen it.
    Seen(UpstreamFailure),
}

impl Connection {
    pub(crate) fn new(io: Transport, permit: OwnedSemaphorePermit) -> Self {
        Self {
            io,
            input: BytesMut::new(),
            output: Output::default(),
            method: Method::GET,
            upload: Upload::Empty,
            encoder: Encoder::Length(0),
            sending: Sending::Done,
            decoder: Decoder::none(),
            keep_alive: true,
            heard: false,
            _permit: permit,
        }
    }

    /// Whether it can carry a request: the replica has neither closed it nor spoken unasked.
    pub(crate) fn is_idle(&mut self) -> bool {
        self.is_reusable() && is_quiet(&mut self.io)
    }

    /// Whether its last exchange has ended and left nothing behind.
    pub(crate) fn is_reusable(&self) -> bool {
        self.keep_alive
            && self.sending == Sending::Done
            && self.decoder.is_end()
            && self.input.is_empty()
    }

    /// Begins an exchange. The body is taken out of the request; its head is only looked at.
    pub(crate) fn begin(&mut self, request: &mut Request<Upload>) {
        let length = request.body.size_hint().exact();
        self.output.renew();
        self.encoder = write::request(self.output.small(), request, length);
        self.upload = std::mem::replace(&mut request.body, Upload::Empty);
        self.sending = if self.encoder.is_complete() {
            Sending::Rest
        } else {
            Sending::Body
        };
        self.method.clone_from(&request.method);
        self.decoder = Decoder::none();
        self.keep_alive = false;
        self.heard = false;
    }

    /// The body of a request that was not sent.
    pub(crate) fn take_upload(&mut self) -> Upload {
        std::mem::replace(&mut self.upload, Upload::Empty)
    }

    /// Waits for the head of the response; `hear` gets those that come before it.
    pub(crate) fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        mut hear: impl FnMut(StatusCode, Fields),
    ) -> Poll<Result<Response<()>, Failed>> {
        if let Err(failed) = self.poll_request(cx) {
            return Poll::Ready(Err(failed));
        }
        loop {
            let read = response::read(&mut self.input, &self.method);
            match read.map_err(|_| Failed::Seen(UpstreamFailure::Malformed))? {
                Some(head) if is_interim(head.response.status) => {
                    self.heard = true;
                    hear(head.response.status, head.response.headers);
                    continue;
                }
                Some(head) => {
                    self.decoder = Decoder::new(head.framing, response::LIMITS);
                    self.keep_alive = head.keep_alive;
                    return Poll::Ready(Ok(head.response));
                }
                None => {}
            }
            match ready!(poll_fill(&mut self.io, cx, &mut self.input, READ_BYTES)) {
                Ok(1..) => {}
                Ok(0) | Err(_) if self.input.is_empty() && !self.heard => {
                    return Poll::Ready(Err(Failed::Closed));
                }
                Ok(0) | Err(_) => return Poll::Ready(Err(Failed::Seen(UpstreamFailure::Reset))),
            }
        }
    }

    /// Sends what can be sent before the response has begun.
    fn poll_request(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        match self.poll_send(cx) {
            Poll::Pending | Poll::Ready(Ok(())) => Ok(()),
            Poll::Ready(Err(_)) if !self.output.is_touched() => Err(Failed::Unsent),
            // Its client broke off.
            Poll::Ready(Err(SendError::Upload)) => Err(Failed::Seen(UpstreamFailure::Reset)),
            // It may have been answered before it was all there.
            Poll::Ready(Err(SendError::Io)) => Ok(()),
        }
    }

    /// Ready when the whole request has left.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), SendError>> {
        if matches!(self.sending, Sending::Done | Sending::Broken) {
            return Poll::Ready(Ok(()));
        }
        let sent = self.poll_send_on(cx);
        if let Poll::Ready(sent) = &sent {
            self.sending = match sent {
                Ok(()) => Sending::Done,
                Err(_) => Sending::Broken,
            };
            // Unless it is taken back, nobody needs it any more.
            if self.output.is_touched() {
                self.upload = Upload::Empty;
            }
        }
        sent
    }

    fn poll_send_on(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), SendError>> {
        loop {
            let waits = self.take_from_upload(cx)?;
            ready!(self.output.poll_write(&mut self.io, cx)).map_err(|_| SendError::Io)?;
            ready!(Pin::new(&mut self.io).poll_flush(cx)).map_err(|_| SendError::Io)?;
            match self.sending {
                Sending::Body if waits => return Poll::Pending,
                Sending::Body => {}
                _ => return Poll::Ready(Ok(())),
            }
        }
    }

    /// Puts what has come of the body into the output. Whether the rest has to be waited for.
    fn take_from_upload(&mut self, cx: &mut Context<'_>) -> Result<bool, SendError> {
        // A stream is not touched before the connection has shown that it takes something.
        let postponed = self.upload.is_open() && !self.output.is_touched();
        while self.sending == Sending::Body && self.output.has_room() && !postponed {
            match Pin::new(&mut self.upload).poll_frame(cx) {
                Poll::Pending => return Ok(true),
                Poll::Ready(Some(Err(_))) => return Err(SendError::Upload),
                Poll::Ready(None) => self.end_upload(None)?,
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => {
                        self.encoder.data(data, &mut self.output);
                        if self.encoder.is_complete() {
                            self.sending = Sending::Rest;
                        }
                    }
                    Err(frame) => self.end_upload(frame.trailers_ref())?,
                },
            }
        }
        Ok(false)
    }

    fn end_upload(&mut self, trailers: Option<&HeaderMap>) -> Result<(), SendError> {
        self.sending = Sending::Rest;
        if self.encoder.end(trailers, &mut self.output) {
            Ok(())
        } else {
            Err(SendError::Upload)
        }
    }

    /// The next piece of the response's body.
    pub(crate) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        // What cannot be sent any more is not missed: the response is there.
        let _ = self.poll_send(cx);
        loop {
            let piece = self.decoder.decode(&mut self.input);
            match piece.map_err(|violation| io::Error::new(io::ErrorKind::InvalidData, violation)) {
                Err(error) => return Poll::Ready(Some(Err(error))),
                Ok(Some(Piece::Data(data))) => return Poll::Ready(Some(Ok(Frame::data(data)))),
                Ok(Some(Piece::Trailers(trailers))) => {
                    return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
                }
                Ok(Some(Piece::End)) => return Poll::Ready(None),
                Ok(None) => {}
            }
            let step = self.decoder.remaining().map_or(READ_BYTES * 2, |left| {
                left.clamp(READ_BYTES as u64, STEP_MAX) as usize
            });
            match ready!(poll_fill(&mut self.io, cx, &mut self.input, step)) {
                Ok(1..) => {}
                Ok(0) if self.decoder.end_of_input() => return Poll::Ready(None),
                Ok(0) => {
                    return Poll::Ready(Some(Err(io::ErrorKind::UnexpectedEof.into())));
                }
                Err(error) => return Poll::Ready(Some(Err(error))),
            }
        }
    }

    /// Whether the response's body has been read to its end.
    pub(crate) fn is_end(&self) -> bool {
        self.decoder.is_end()
    }

    pub(crate) fn size_hint(&self) -> SizeHint {
        let exact = self.decoder.remaining().map(SizeHint::with_exact);
        exact.unwrap_or_default()
    }

    /// The connection below HTTP, and what has been read of it, after an upgrade.
    pub(crate) fn into_tunnel(self) -> (Transport, BytesMut) {
        (self.io, self.input)
    }
}

/// Why a request cannot be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SendError {
    Upload,
    Io,
}

/// Whether a status announces that the response has still to come.
fn is_interim(status: StatusCode) -> bool {
    status.is_informational() && status != StatusCode::SWITCHING_PROTOCOLS
}

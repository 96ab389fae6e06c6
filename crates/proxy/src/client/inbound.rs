//! The body of a request as it comes in.

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::RecvStream;
use http::header::CONTENT_LENGTH;
use http_body::{Body, Frame, SizeHint};

use super::wire::Wire;
use crate::http1::body::Piece;
use crate::message::Request;

/// A request's body.
#[derive(Debug)]
pub(crate) enum Inbound {
    Empty,
    Http1 { wire: Rc<Wire>, turn: u32 },
    Http2(Http2),
}

/// A body in the frames of HTTP/2.
#[derive(Debug)]
pub(crate) struct Http2 {
    stream: RecvStream,
    /// Bytes still to come, if the client has said so; h2 holds it to that.
    left: Option<u64>,
    data_ended: bool,
}

impl Inbound {
    /// The body of the request whose turn it is on an HTTP/1 connection.
    pub(crate) fn http1(wire: Rc<Wire>, turn: u32) -> Self {
        Self::Http1 { wire, turn }
    }

    /// A request with the body of its stream.
    pub(crate) fn http2(request: Request<RecvStream>) -> Request<Self> {
        let length = request.headers.get(CONTENT_LENGTH);
        let left = length.and_then(|length| length.to_str().ok()?.parse().ok());
        request.map(|stream| {
            if stream.is_end_stream() {
                Self::Empty
            } else {
                Self::Http2(Http2 {
                    stream,
                    left,
                    data_ended: false,
                })
            }
        })
    }
}

impl Http2 {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if !self.data_ended {
            if let Some(data) = ready!(self.stream.poll_data(cx)) {
                let data = data.map_err(io::Error::other)?;
                self.left = self.left.map(|left| left.saturating_sub(data.len() as u64));
                // The client may send as much again.
                let released = self.stream.flow_control().release_capacity(data.len());
                released.map_err(io::Error::other)?;
                return Poll::Ready(Some(Ok(Frame::data(data))));
            }
            self.data_ended = true;
        }
        let trailers = ready!(self.stream.poll_trailers(cx)).map_err(io::Error::other)?;
        Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers))))
    }
}

impl Body for Inbound {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match &mut *self {
            Self::Empty => Poll::Ready(None),
            Self::Http1 { wire, turn } => wire.poll_piece(cx, *turn).map(|piece| match piece {
                Ok(Piece::Data(data)) => Some(Ok(Frame::data(data))),
                Ok(Piece::Trailers(trailers)) => Some(Ok(Frame::trailers(trailers))),
                Ok(Piece::End) => None,
                Err(error) => Some(Err(error)),
            }),
            Self::Http2(body) => body.poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Http1 { wire, .. } => wire.is_body_end(),
            Self::Http2(body) => body.stream.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Http1 { wire, .. } => wire
                .remaining()
                .map_or_else(SizeHint::default, SizeHint::with_exact),
            Self::Http2(body) => body
                .left
                .map_or_else(SizeHint::default, SizeHint::with_exact),
        }
    }
}

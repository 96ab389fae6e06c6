//! The body of a request as it comes in.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::http1::Wire;
use crate::http1::body::Piece;

/// A request's body.
#[derive(Debug)]
pub(crate) enum Inbound {
    Empty,
    Http1 { wire: Arc<Wire>, turn: u32 },
    Http2(Incoming),
}

impl Inbound {
    /// The body of the request whose turn it is on an HTTP/1 connection.
    pub(crate) fn http1(wire: Arc<Wire>, turn: u32) -> Self {
        Self::Http1 { wire, turn }
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
            Self::Http2(body) => Pin::new(body)
                .poll_frame(cx)
                .map(|frame| frame.map(|frame| frame.map_err(io::Error::other))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Http1 { wire, .. } => wire.is_body_end(),
            Self::Http2(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Http1 { wire, .. } => wire
                .remaining()
                .map_or_else(SizeHint::default, SizeHint::with_exact),
            Self::Http2(body) => body.size_hint(),
        }
    }
}

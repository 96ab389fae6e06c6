//! The body of a response, and the connection it comes in on.
//!
//! Decision: docs/decisions/0036-interim-responses.md.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::http1;
use super::pool::Sender;
use crate::settings::Settings;
use crate::worker::Worker;

/// A body that a replica sends. Dropped before its end, it takes an HTTP/1.1 connection with it.
#[derive(Debug)]
pub(crate) enum Download {
    Http1 {
        connection: Box<http1::Connection>,
        /// The replica it leads to.
        uid: u64,
    },
    /// These connections are shared, and have never left the pool.
    Http2(Incoming),
    /// The connection has been given back.
    Over,
}

/// The replica broke off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BrokeOff;

impl Download {
    /// Gives the connection back after the last byte.
    pub(crate) fn give_back(&mut self, worker: &Worker, settings: &Settings) {
        let Self::Http1 { connection, uid } = std::mem::replace(self, Self::Over) else {
            return;
        };
        if !connection.is_reusable() || worker.state.is_draining() {
            return;
        }
        // One that others wait for is closed, so that they can open theirs: they may be on
        // another core.
        if !settings.is_crowded(uid) {
            let idle_max = settings.config.upstream.idle_max;
            let sender = Sender::Http1(connection);
            worker.pool.put(uid, sender, worker.about_now(), idle_max);
        }
    }

    /// The connection after an upgrade; `None` if it cannot be upgraded.
    pub(crate) fn into_upgraded(self) -> Option<Box<http1::Connection>> {
        match self {
            Self::Http1 { connection, .. } => Some(connection),
            Self::Http2(_) | Self::Over => None,
        }
    }
}

impl Body for Download {
    type Data = Bytes;
    type Error = BrokeOff;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokeOff>>> {
        match &mut *self {
            Self::Http1 { connection, .. } => connection.poll_frame(cx).map_err(|_| BrokeOff),
            Self::Http2(body) => Pin::new(body).poll_frame(cx).map_err(|_| BrokeOff),
            Self::Over => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Http1 { connection, .. } => connection.is_end(),
            Self::Http2(body) => body.is_end_stream(),
            Self::Over => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Http1 { connection, .. } => connection.size_hint(),
            Self::Http2(body) => body.size_hint(),
            Self::Over => SizeHint::with_exact(0),
        }
    }
}

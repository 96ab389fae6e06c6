//! HTTP/1.1 connections of one target: at most this many, reused while the server keeps them open.
//!
//! A lease is the right to one connection, counted whether it is open, opening or idle. A lease
//! that is dropped instead of given back closes its connection at once: that is how a client
//! that lost patience leaves.
//!
//! A connection is a socket and what was read from it, with no task of its own: the generator
//! shares the machine with what it measures, and two tasks that wake each other for every part of
//! an answer cost as much as the sockets.
//!
//! Decision: docs/decisions/0044-load-generator-own-http1.md.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{Method, Request, Response};
use tokio::io::{AsyncRead as _, AsyncWrite as _, ReadBuf};

use super::transport::{Endpoint, Failure, Stream, open};
use super::wire::{Answer, written};

/// Read at once: more than most pages.
const READ_BYTES: usize = 4096;

/// The connections to one target.
#[derive(Debug)]
pub(super) struct Pool {
    endpoint: Endpoint,
    connections_max: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Last in, first out: under low load the rest may time out on the server's side.
    idle: Vec<Connection>,
    /// Leased and idle together.
    open: usize,
}

impl Pool {
    pub(super) fn new(endpoint: Endpoint, connections_max: usize) -> Arc<Self> {
        Arc::new(Self {
            endpoint,
            connections_max,
            state: Mutex::default(),
        })
    }

    /// A connection, or the right to open one; `None` when all are busy.
    pub(super) fn lease(self: &Arc<Self>) -> Option<Lease> {
        let connection = {
            let mut state = self.lock();
            let connection = state.idle.pop();
            if connection.is_none() {
                if state.open >= self.connections_max {
                    return None;
                }
                state.open += 1;
            }
            connection
        };
        Some(Lease {
            pool: Arc::clone(self),
            connection,
        })
    }

    /// No code between lock and unlock can panic, so a poisoned lock still holds a valid state.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request, ready to be sent any number of times.
#[derive(Debug, Clone)]
pub(super) struct Outgoing {
    bytes: Bytes,
    is_head: bool,
}

impl Outgoing {
    pub(super) fn new(request: &Request<Bytes>) -> Self {
        Self {
            bytes: written(request),
            is_head: request.method() == Method::HEAD,
        }
    }
}

/// The right to one connection.
#[derive(Debug)]
pub(super) struct Lease {
    pool: Arc<Pool>,
    connection: Option<Connection>,
}

impl Lease {
    /// Sends one request and reads its answer to the last byte.
    ///
    /// An idle connection that the server closed before is replaced.
    pub(super) async fn exchange(
        &mut self,
        request: &Outgoing,
        read_pause: Option<Duration>,
    ) -> Result<Response<()>, Failure> {
        let idle = self.connection.take();
        let mut connection = match idle.and_then(Connection::still_open) {
            Some(connection) => connection,
            None => Connection::open(&self.pool.endpoint).await?,
        };
        let (answer, reusable) = connection.exchange(request, read_pause).await?;
        self.connection = reusable.then_some(connection);
        Ok(answer)
    }

    /// Leaves the connection for another request, where it can carry one.
    pub(super) fn give_back(mut self) {
        if let Some(connection) = self.connection.take() {
            let mut state = self.pool.lock();
            state.idle.push(connection);
            state.open += 1; // the lease takes its own count back as it drops
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.pool.lock().open -= 1;
    }
}

#[derive(Debug)]
struct Connection {
    stream: Stream,
    received: BytesMut,
}

impl Connection {
    async fn open(endpoint: &Endpoint) -> Result<Self, Failure> {
        Ok(Self {
            stream: open(endpoint).await?,
            received: BytesMut::new(),
        })
    }

    /// The connection, unless the server has ended it: nothing is to be read from one that waits.
    fn still_open(mut self) -> Option<Self> {
        let mut context = Context::from_waker(Waker::noop());
        self.poll_read(&mut context).is_pending().then_some(self)
    }

    /// The answer, and whether another request may follow it.
    async fn exchange(
        &mut self,
        request: &Outgoing,
        read_pause: Option<Duration>,
    ) -> Result<(Response<()>, bool), Failure> {
        let mut unsent = &*request.bytes;
        let mut answer = Answer::new(request.is_head);
        while !answer.is_done() {
            // Whatever ended the connection: what counts is how far the answer had come.
            let count = poll_fn(|context| self.poll_exchange(context, &mut unsent)).await;
            let body = match count {
                Ok(1..) => answer.take(&mut self.received),
                Ok(0) | Err(_) => answer.on_close().map(|()| 0),
            };
            let body = body.map_err(|_| Failure::Broken)?;
            if let Some(pause) = read_pause.filter(|_| body > 0) {
                tokio::time::sleep(pause).await;
            }
        }
        let reusable = answer.keeps_open() && unsent.is_empty() && self.received.is_empty();
        Ok((answer.into_head(), reusable))
    }

    /// Sends what is still to be sent and reads, whichever is possible: a server may answer a long
    /// request before it has read it.
    fn poll_exchange(
        &mut self,
        context: &mut Context<'_>,
        unsent: &mut &[u8],
    ) -> Poll<std::io::Result<usize>> {
        while !unsent.is_empty() {
            match Pin::new(&mut self.stream).poll_write(context, unsent) {
                Poll::Ready(Ok(count)) if count > 0 => *unsent = &unsent[count..],
                // It reads no more; what it has said before can be read all the same.
                Poll::Ready(_) | Poll::Pending => break,
            }
        }
        if let Poll::Ready(Err(error)) = Pin::new(&mut self.stream).poll_flush(context) {
            return Poll::Ready(Err(error));
        }
        self.poll_read(context)
    }

    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<std::io::Result<usize>> {
        let mut part = [std::mem::MaybeUninit::uninit(); READ_BYTES];
        let mut part = ReadBuf::uninit(&mut part);
        ready!(Pin::new(&mut self.stream).poll_read(context, &mut part))?;
        self.received.extend_from_slice(part.filled());
        Poll::Ready(Ok(part.filled().len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_are_bounded_and_come_back_when_dropped() {
        let endpoint = Endpoint {
            address: ([127, 0, 0, 1], 9).into(),
            tls: None,
            trouble: Arc::default(),
        };
        let pool = Pool::new(endpoint, 2);
        let first = pool.lease().expect("room");
        let second = pool.lease().expect("room");
        assert!(pool.lease().is_none());
        drop(first);
        assert!(pool.lease().is_some());
        drop(second);
        assert_eq!(pool.lock().open, 0);
    }
}

//! HTTP/2 connections of one target: a fixed number, each shared by many requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::sync::Mutex;

use super::transport::{self, Endpoint, Failure};

/// Streams we gave up on whose late frames are still tolerated. An overloaded server answers
/// many requests after their client left; with the library's 50 that ends the connection.
const RESET_STREAMS_REMEMBERED: usize = 100_000;

/// The connections to one target.
#[derive(Debug)]
pub(super) struct Pool {
    endpoint: Endpoint,
    streams_max: usize,
    connections: Box<[Connection]>,
}

#[derive(Debug, Default)]
struct Connection {
    streams: AtomicUsize,
    sender: Mutex<Option<SendRequest<Full<Bytes>>>>,
}

impl Pool {
    pub(super) fn new(endpoint: Endpoint, connections: usize, streams_max: usize) -> Arc<Self> {
        Arc::new(Self {
            endpoint,
            streams_max,
            connections: (0..connections).map(|_| Connection::default()).collect(),
        })
    }

    /// A stream on the connection that has the fewest; `None` when all are full.
    pub(super) fn lease(self: &Arc<Self>) -> Option<Lease> {
        let streams = |index: &usize| self.connections[*index].streams.load(Ordering::Relaxed);
        let index = (0..self.connections.len()).min_by_key(streams)?;
        if streams(&index) >= self.streams_max {
            return None;
        }
        self.connections[index]
            .streams
            .fetch_add(1, Ordering::Relaxed);
        Some(Lease {
            pool: Arc::clone(self),
            index,
        })
    }
}

/// The right to one stream.
#[derive(Debug)]
pub(super) struct Lease {
    pool: Arc<Pool>,
    index: usize,
}

impl Lease {
    /// Sends one request and returns the head of its answer; the body is still to be read.
    pub(super) async fn send(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, Failure> {
        let mut sender = self.sender().await?;
        let sent = sender.send_request(request).await;
        sent.map_err(|_| Failure::Broken)
    }

    /// The shared sender, after (re)connecting where there is no connection.
    async fn sender(&self) -> Result<SendRequest<Full<Bytes>>, Failure> {
        let mut shared = self.pool.connections[self.index].sender.lock().await;
        match &*shared {
            Some(sender) if !sender.is_closed() => Ok(sender.clone()),
            _ => {
                let sender = open(&self.pool.endpoint).await?;
                *shared = Some(sender.clone());
                Ok(sender)
            }
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.pool.connections[self.index]
            .streams
            .fetch_sub(1, Ordering::Relaxed);
    }
}

async fn open(endpoint: &Endpoint) -> Result<SendRequest<Full<Bytes>>, Failure> {
    let socket = transport::open(endpoint).await?;
    let (sender, connection) = Builder::new(TokioExecutor::new())
        .max_concurrent_reset_streams(RESET_STREAMS_REMEMBERED)
        .handshake(TokioIo::new(socket))
        .await
        .map_err(|_| Failure::Broken)?;
    // Ends when the last sender is gone; errors reach the senders.
    tokio::spawn(async move { drop(connection.await) });
    Ok(sender)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_spread_over_the_connections_and_are_bounded() {
        let endpoint = Endpoint {
            address: ([127, 0, 0, 1], 9).into(),
            tls: None,
            trouble: Arc::default(),
        };
        let pool = Pool::new(endpoint, 2, 2);
        let leases: Vec<_> = std::iter::from_fn(|| pool.lease()).collect();
        let used: Vec<_> = leases.iter().map(|lease| lease.index).collect();
        assert_eq!(used, [0, 1, 0, 1]);
        drop(leases);
        assert!(pool.lease().is_some());
    }
}

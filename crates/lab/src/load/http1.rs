//! HTTP/1.1 connections of one target: at most so many, reused while the server keeps them open.
//!
//! A lease is the right to one connection, counted whether it is open, opening or idle. A lease
//! that is dropped instead of given back closes its connection at once: that is how a client
//! that lost patience leaves.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::task::AbortHandle;

use super::transport::{Endpoint, Failure, open};

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
            let connection = state.pop_usable();
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

impl State {
    fn pop_usable(&mut self) -> Option<Connection> {
        while let Some(connection) = self.idle.pop() {
            if connection.sender.is_ready() {
                return Some(connection);
            }
            self.open -= 1;
        }
        None
    }
}

/// The right to one connection.
#[derive(Debug)]
pub(super) struct Lease {
    pool: Arc<Pool>,
    connection: Option<Connection>,
}

impl Lease {
    /// Sends one request and returns the head of its answer; the body is still to be read.
    ///
    /// An idle connection that the server closed before it saw the request is replaced once.
    pub(super) async fn send(
        &mut self,
        mut request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, Failure> {
        if let Some(mut reused) = self.connection.take() {
            match reused.sender.try_send_request(request).await {
                Ok(response) => {
                    self.connection = Some(reused);
                    return Ok(response);
                }
                Err(mut error) => match error.take_message() {
                    Some(unseen) => request = unseen,
                    None => return Err(Failure::Broken),
                },
            }
        }
        let mut fresh = Connection::open(&self.pool.endpoint).await?;
        let sent = fresh.sender.send_request(request).await;
        let response = sent.map_err(|_| Failure::Broken)?;
        self.connection = Some(fresh);
        Ok(response)
    }

    /// Leaves the connection for another request, once the server has let go of this one.
    pub(super) async fn give_back(mut self) {
        let Some(mut connection) = self.connection.take() else {
            return;
        };
        if connection.sender.ready().await.is_ok() {
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
    sender: SendRequest<Full<Bytes>>,
    driver: AbortHandle,
}

impl Connection {
    async fn open(endpoint: &Endpoint) -> Result<Self, Failure> {
        let socket = open(endpoint).await?;
        let (sender, connection) = http1::handshake(TokioIo::new(socket))
            .await
            .map_err(|_| Failure::Broken)?;
        // The sender hears of errors; the driver has nothing to add.
        let driver = tokio::spawn(async move { drop(connection.await) }).abort_handle();
        Ok(Self { sender, driver })
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
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

//! One request over one connection, whichever protocol carries it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use tokio::net::TcpStream;

use super::config::Protocol;
use super::{http1, http2};

/// Why there was no complete answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failure {
    Connect,
    Broken,
}

/// The connections to one address.
#[derive(Debug, Clone)]
pub(super) enum Pool {
    Http1(Arc<http1::Pool>),
    Http2(Arc<http2::Pool>),
}

impl Pool {
    pub(super) fn new(address: SocketAddr, protocol: Protocol, connections: usize) -> Self {
        match protocol {
            Protocol::Http1 => Self::Http1(http1::Pool::new(address, connections)),
            Protocol::Http2 { streams } => {
                Self::Http2(http2::Pool::new(address, connections, streams))
            }
        }
    }

    /// The right to send one request; `None` when every connection is busy.
    pub(super) fn lease(&self) -> Option<Lease> {
        match self {
            Self::Http1(pool) => pool.lease().map(Lease::Http1),
            Self::Http2(pool) => pool.lease().map(Lease::Http2),
        }
    }
}

/// The right to send one request.
#[derive(Debug)]
pub(super) enum Lease {
    Http1(http1::Lease),
    Http2(http2::Lease),
}

impl Lease {
    /// Sends the request and reads its answer to the last byte; a pause between parts of the
    /// body makes a slow reader.
    pub(super) async fn exchange(
        &mut self,
        request: Request<Full<Bytes>>,
        read_pause: Option<Duration>,
    ) -> Result<Response<()>, Failure> {
        let answer = match self {
            Self::Http1(lease) => lease.send(request).await?,
            Self::Http2(lease) => lease.send(request).await?,
        };
        let (head, body) = answer.into_parts();
        read_to_end(body, read_pause).await?;
        Ok(Response::from_parts(head, ()))
    }

    /// Leaves the connection for the next request.
    pub(super) async fn give_back(self) {
        match self {
            Self::Http1(lease) => lease.give_back().await,
            Self::Http2(lease) => drop(lease),
        }
    }
}

async fn read_to_end(mut body: Incoming, pause: Option<Duration>) -> Result<(), Failure> {
    while let Some(frame) = body.frame().await {
        frame.map_err(|_| Failure::Broken)?;
        if let Some(pause) = pause {
            tokio::time::sleep(pause).await;
        }
    }
    Ok(())
}

/// Opens a socket that closes without TIME_WAIT: thousands of impatient clients a minute would
/// otherwise leave the machine without local ports.
pub(super) async fn open_socket(address: SocketAddr) -> Result<TcpStream, Failure> {
    let socket = TcpStream::connect(address)
        .await
        .map_err(|_| Failure::Connect)?;
    let configured = socket
        .set_nodelay(true)
        .and_then(|()| socket.set_zero_linger());
    configured.map_err(|_| Failure::Connect)?;
    Ok(socket)
}

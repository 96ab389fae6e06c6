//! One request over one connection, whichever protocol carries it.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::either::Either;

use super::config::Protocol;
use super::http1::Outgoing;
use super::{http1, http2};

/// Why there was no complete answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failure {
    Connect,
    Broken,
}

/// Where a target is and how it is spoken to.
#[derive(Debug, Clone)]
pub(super) struct Endpoint {
    pub(super) address: SocketAddr,
    /// How to verify it, and under which name; `None` is plain text.
    pub(super) tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    /// Why the first connection that failed did, of all targets.
    pub(super) trouble: Trouble,
}

/// Why the first connection that failed did.
pub(super) type Trouble = Arc<OnceLock<String>>;

/// A connection below HTTP.
pub(super) type Stream = Either<TcpStream, Box<TlsStream<TcpStream>>>;

/// The connections to one target.
#[derive(Debug, Clone)]
pub(super) enum Pool {
    Http1(Arc<http1::Pool>),
    Http2(Arc<http2::Pool>),
}

impl Pool {
    pub(super) fn new(endpoint: Endpoint, protocol: Protocol, connections: usize) -> Self {
        match protocol {
            Protocol::Http1 => Self::Http1(http1::Pool::new(endpoint, connections)),
            Protocol::Http2 { streams } => {
                Self::Http2(http2::Pool::new(endpoint, connections, streams))
            }
        }
    }

    /// The way of one request over these connections.
    pub(super) fn route(self, request: Request<Bytes>) -> Route {
        match self {
            Self::Http1(pool) => Route::Http1(pool, Outgoing::new(&request)),
            Self::Http2(pool) => Route::Http2(pool, Arc::new(request.map(Full::new))),
        }
    }
}

/// A request, and the connections that can carry it.
#[derive(Debug)]
pub(super) enum Route {
    Http1(Arc<http1::Pool>, Outgoing),
    Http2(Arc<http2::Pool>, Arc<Request<Full<Bytes>>>),
}

impl Route {
    /// The right to send it once; `None` when every connection is busy.
    pub(super) fn lease(&self) -> Option<Lease> {
        match self {
            Self::Http1(pool, request) => {
                let lease = pool.lease()?;
                Some(Lease::Http1(lease, request.clone()))
            }
            Self::Http2(pool, request) => {
                let lease = pool.lease()?;
                Some(Lease::Http2(lease, Arc::clone(request)))
            }
        }
    }
}

/// The right to send a request once.
#[derive(Debug)]
pub(super) enum Lease {
    Http1(http1::Lease, Outgoing),
    Http2(http2::Lease, Arc<Request<Full<Bytes>>>),
}

impl Lease {
    /// Sends the request and reads its answer to the last byte; a pause between parts of the
    /// body makes a slow reader.
    pub(super) async fn exchange(
        &mut self,
        read_pause: Option<Duration>,
    ) -> Result<Response<()>, Failure> {
        match self {
            Self::Http1(lease, request) => lease.exchange(request, read_pause).await,
            Self::Http2(lease, request) => {
                let answer = lease.send(Request::clone(request)).await?;
                let (head, body) = answer.into_parts();
                read_to_end(body, read_pause).await?;
                Ok(Response::from_parts(head, ()))
            }
        }
    }

    /// Leaves the connection for the next request.
    pub(super) fn give_back(self) {
        match self {
            Self::Http1(lease, _) => lease.give_back(),
            Self::Http2(lease, _) => drop(lease),
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
async fn open_socket(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = TcpStream::connect(address).await?;
    socket.set_nodelay(true)?;
    socket.set_zero_linger()?;
    Ok(socket)
}

/// Opens a connection up to where HTTP begins.
pub(super) async fn open(endpoint: &Endpoint) -> Result<Stream, Failure> {
    try_open(endpoint).await.map_err(|cause| {
        endpoint.trouble.get_or_init(|| cause.to_string());
        Failure::Connect
    })
}

/// Under TLS the other side has to agree to the protocol that is going to be used.
async fn try_open(endpoint: &Endpoint) -> io::Result<Stream> {
    let socket = open_socket(endpoint.address).await?;
    let Some((config, name)) = &endpoint.tls else {
        return Ok(Either::Left(socket));
    };
    let connector = TlsConnector::from(Arc::clone(config));
    let stream = connector.connect(name.clone(), socket).await?;
    let agreed = stream.get_ref().1.alpn_protocol();
    let offered = &config.alpn_protocols;
    // A server that knows no ALPN speaks HTTP/1.1.
    let agreed = agreed.unwrap_or(b"http/1.1");
    if offered.is_empty() || offered.iter().any(|protocol| protocol == agreed) {
        Ok(Either::Right(Box::new(stream)))
    } else {
        Err(io::Error::other("it does not speak the protocol asked for"))
    }
}

//! Opens connections to replicas.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio_rustls::client::TlsStream;

use super::Replica;
use super::pool::Sender;
use crate::gather;

/// The head of a response; replicas are trusted, but not with all memory. The number of headers is
/// bounded by hyper's default of 100: any other makes it allocate for every response.
const HEAD_BYTES_MAX: usize = 256 << 10;

/// Flow-control windows towards HTTP/2 replicas: several responses of ordinary size.
const STREAM_WINDOW: u32 = 256 << 10;
const CONNECTION_WINDOW: u32 = 1 << 20;

/// Opens a connection and starts the task that runs it. The task ends with the connection.
pub(crate) async fn connect(replica: &Replica, permit: OwnedSemaphorePermit) -> io::Result<Sender> {
    let stream = open(replica).await?;
    match stream.is_http2(replica) {
        true => handshake_http2(stream, permit).await,
        false => handshake_http1(stream, permit).await,
    }
}

/// Waits until the replica may have one more connection.
pub(crate) async fn permit(replica: &Replica) -> io::Result<OwnedSemaphorePermit> {
    let permit = Arc::clone(&replica.connections).acquire_owned().await;
    permit.map_err(io::Error::other)
}

/// Opens a connection, TLS included, up to where HTTP begins.
pub(crate) async fn open(replica: &Replica) -> io::Result<Transport> {
    let tcp = open_tcp(replica).await?;
    let Some((tls, name)) = replica.tls() else {
        return match replica.origin.tls {
            true => Err(io::Error::other("the replica's name is no server name")),
            false => Ok(Transport::Plain(tcp)),
        };
    };
    let stream = tls.connector.connect(name, tcp).await?;
    Ok(Transport::Tls(Box::new(stream)))
}

/// Tries the replica's addresses one after the other.
async fn open_tcp(replica: &Replica) -> io::Result<TcpStream> {
    let mut failure = io::Error::from(io::ErrorKind::NotFound);
    for address in replica.addresses.get(Instant::now()).await? {
        match TcpStream::connect(address).await {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

async fn handshake_http1(io: Transport, permit: OwnedSemaphorePermit) -> io::Result<Sender> {
    let mut builder = http1::Builder::new();
    builder.max_header_size(HEAD_BYTES_MAX);
    let (sender, connection) = builder
        .handshake(TokioIo::new(io))
        .await
        .map_err(io::Error::other)?;
    tokio::spawn(async move {
        // Its requests learn of the error; there is nobody else to tell.
        let _ = connection.with_upgrades().await;
        drop(permit);
    });
    Ok(Sender::Http1(sender))
}

async fn handshake_http2(io: Transport, permit: OwnedSemaphorePermit) -> io::Result<Sender> {
    let (sender, connection) = http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_header_list_size(HEAD_BYTES_MAX as u32)
        .handshake(TokioIo::new(io))
        .await
        .map_err(io::Error::other)?;
    tokio::spawn(async move {
        let _ = connection.await;
        drop(permit);
    });
    Ok(Sender::Http2(sender))
}

/// A connection to a replica, below HTTP.
#[derive(Debug)]
pub(crate) enum Transport {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Transport {
    /// Whether HTTP/2 is spoken on it: as agreed under TLS, as configured otherwise.
    pub(crate) fn is_http2(&self, replica: &Replica) -> bool {
        match self {
            Self::Plain(_) => replica.is_http2(),
            Self::Tls(stream) => {
                let agreed = stream.get_ref().1.alpn_protocol();
                agreed.map_or(replica.is_http2(), |protocol| protocol == b"h2")
            }
        }
    }
}

impl AsyncRead for Transport {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Transport {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => gather::poll_write(stream, cx, bufs),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

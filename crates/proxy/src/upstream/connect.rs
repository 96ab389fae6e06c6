//! Opens connections to replicas.

use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use hyper::client::conn::http2;
use hyper::rt::Executor;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::spawn_local;

use super::pool::Sender;
use super::{Replica, http1};
use crate::http1::response;
use crate::pipe::Pipe;
use crate::tcp::Tcp;

/// Flow-control windows towards HTTP/2 replicas: several responses of ordinary size.
const STREAM_WINDOW: u32 = 256 << 10;
const CONNECTION_WINDOW: u32 = 1 << 20;

/// Opens a connection; an HTTP/2 connection is run by a task of its own, which ends with it.
pub(crate) async fn connect(replica: &Replica, permit: OwnedSemaphorePermit) -> io::Result<Sender> {
    let stream = open(replica).await?;
    if is_http2(&stream, replica) {
        handshake_http2(stream, permit).await
    } else {
        Ok(Sender::Http1(Box::new(http1::Connection::new(
            stream, permit,
        ))))
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
        return if replica.origin.tls {
            Err(io::Error::other("the replica's name is no server name"))
        } else {
            Ok(Pipe::Plain(tcp))
        };
    };
    let stream = tls.connector.connect(name, tcp).await;
    let stream = stream.map_err(super::tls::explain)?;
    Ok(Pipe::Tls(Box::new(stream.into())))
}

/// A connection to a Unix socket. The kernel reads and writes it by the same calls as one by TCP,
/// so that from here on it is one.
async fn open_unix(path: &str) -> io::Result<Tcp> {
    let stream = UnixStream::connect(path).await?.into_std()?;
    let stream = std::net::TcpStream::from(OwnedFd::from(stream));
    TcpStream::from_std(stream).map(Tcp::new)
}

/// Tries the replica's addresses one after the other.
async fn open_tcp(replica: &Replica) -> io::Result<Tcp> {
    if let Some(path) = replica.origin.unix_path() {
        return open_unix(path).await;
    }
    let mut failure = io::Error::from(io::ErrorKind::NotFound);
    for address in replica.addresses.get(Instant::now()).await? {
        match TcpStream::connect(address).await {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(Tcp::new(stream));
            }
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

/// Runs what an HTTP/2 connection needs where the requests are that use it.
#[derive(Debug, Clone, Copy)]
struct OwnThread;

impl<F: Future<Output = ()> + 'static> Executor<F> for OwnThread {
    fn execute(&self, task: F) {
        spawn_local(task);
    }
}

async fn handshake_http2(io: Transport, permit: OwnedSemaphorePermit) -> io::Result<Sender> {
    let (sender, connection) = http2::Builder::new(OwnThread)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_header_list_size(response::LIMITS.bytes as u32)
        .handshake(TokioIo::new(io))
        .await
        .map_err(io::Error::other)?;
    spawn_local(async move {
        let _ = connection.await;
        drop(permit);
    });
    Ok(Sender::Http2(sender))
}

/// A connection to a replica, below HTTP.
pub(crate) type Transport = Pipe<Tcp>;

/// Whether HTTP/2 is spoken on a connection: as agreed under TLS, as configured otherwise.
pub(crate) fn is_http2(stream: &Transport, replica: &Replica) -> bool {
    match stream {
        Pipe::Plain(_) => replica.is_http2(),
        Pipe::Tls(stream) => {
            let agreed = stream.get_ref().1.alpn_protocol();
            agreed.map_or(replica.is_http2(), |protocol| protocol == b"h2")
        }
    }
}

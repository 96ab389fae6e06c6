//! From an accepted connection to the first byte of HTTP.

use std::future::poll_fn;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use rustix::net::{SocketFlags, acceptfrom_with};
use rustls::ServerConfig;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::proxy_protocol;
use super::tls::ServerTls;
use crate::client::identity::Identity;
use crate::client::socket::{Socket, canonical};
use crate::client::stream::Stream;
use crate::client::{Client, Link, Protocol, serve};
use crate::pipe::Pipe;
use crate::worker::{OpenGuard, Worker};

/// After a failed accept (out of file descriptors) the next one waits a little: connections have to end first.
const PAUSE: Duration = Duration::from_millis(20);

/// Accepts connections until the proxy shuts down, then those that are already in the queue.
pub(crate) async fn run(
    worker: Arc<Worker>,
    listener: TcpListener,
    index: usize,
) -> io::Result<()> {
    let listener = watch(listener)?;
    {
        let mut draining = pin!(worker.state.draining());
        loop {
            let accepted = tokio::select! {
                accepted = accept(&listener) => accepted,
                () = &mut draining => break,
            };
            match accepted {
                Ok((stream, peer)) => welcome(&worker, stream, peer, index),
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    }
    while let Ok((stream, peer)) = accept_now(listener.get_ref()) {
        welcome(&worker, stream, peer, index);
    }
    Ok(())
}

#[expect(
    deprecated,
    reason = "unsound for types whose descriptor changes while it is watched; a listener's does not, \
              and what replaces it is an unsafe function"
)]
fn watch(listener: TcpListener) -> io::Result<AsyncFd<TcpListener>> {
    AsyncFd::with_interest(listener, Interest::READABLE)
}

/// The next connection. By way of the runtime's readiness, which is rationed, so that a flood of
/// connections does not stop everything else.
async fn accept(listener: &AsyncFd<TcpListener>) -> io::Result<(Stream, SocketAddr)> {
    loop {
        let mut ready = poll_fn(|cx| listener.poll_read_ready(cx)).await?;
        if let Ok(accepted) = ready.try_io(|listener| accept_now(listener.get_ref())) {
            return accepted;
        }
    }
}

/// A connection that is in the queue already. The runtime is not told of it: see [`Stream`].
fn accept_now(listener: &TcpListener) -> io::Result<(Stream, SocketAddr)> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let (descriptor, peer) = acceptfrom_with(listener, flags)?;
    let peer = peer.ok_or(io::ErrorKind::NotConnected)?.try_into()?;
    Ok((Stream::Fresh(descriptor.into()), peer))
}

fn welcome(worker: &Arc<Worker>, stream: Stream, peer: SocketAddr, index: usize) {
    let limit = worker.state.settings().config.limits.connections;
    if worker.state.connections() >= limit {
        worker.metrics().record_turned_away();
        return;
    }
    let open = worker.count_open();
    let worker = Arc::clone(worker);
    tokio::spawn(async move {
        let metrics = Arc::clone(&worker);
        if open_connection(worker, stream, canonical(peer), index, open)
            .await
            .is_err()
        {
            metrics.metrics().record_turned_away();
        }
    });
}

/// What a listener's configuration says about a new connection.
struct Manner {
    tls: Option<ServerTls>,
    http2: bool,
    proxy_protocol: bool,
    handshake: Duration,
    linger_bytes: u32,
}

impl Manner {
    fn of(worker: &Worker, index: usize) -> Self {
        let settings = worker.state.settings();
        let listener = settings.config.listen.get(index);
        let linger = *settings.config.limits.refused_body;
        Self {
            tls: settings.tls.get(index).cloned().flatten(),
            http2: listener.is_none_or(|listener| listener.http2),
            proxy_protocol: listener.is_some_and(|listener| listener.proxy_protocol),
            handshake: *settings.config.timeouts.handshake,
            linger_bytes: u32::try_from(linger).unwrap_or(u32::MAX),
        }
    }
}

/// Fails if the connection never got as far as HTTP.
async fn open_connection(
    worker: Arc<Worker>,
    mut stream: Stream,
    mut peer: SocketAddr,
    index: usize,
    open: OpenGuard,
) -> io::Result<()> {
    let manner = Manner::of(&worker, index);
    if manner.proxy_protocol {
        let mut watched = stream.into_watched()?;
        let header = Box::pin(proxy_protocol::read(&mut watched));
        let told = timeout(manner.handshake, header).await??;
        stream = Stream::Watched(watched);
        peer = told.map_or(peer, canonical);
    }
    let link = Link {
        peer,
        tls: manner.tls.is_some(),
        trusted: is_trusted(&worker, peer),
        linger_bytes: manner.linger_bytes,
    };
    let client = Arc::new(Client::new(link, Some(open)));
    let socket = Socket::new(stream, Arc::clone(&client));
    let Some(ServerTls(config)) = manner.tls else {
        serve::plain(worker, client, socket, manner.http2).await;
        return Ok(());
    };
    // Boxed: a session of TLS is large, and plain connections should not be.
    Box::pin(secure(worker, client, socket, config, manner.handshake)).await
}

async fn secure(
    worker: Arc<Worker>,
    client: Arc<Client>,
    socket: Socket,
    config: Arc<ServerConfig>,
    limit: Duration,
) -> io::Result<()> {
    let handshake = TlsAcceptor::from(config).accept(socket);
    let stream = timeout(limit, handshake).await??;
    if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
        client.set_protocol(Protocol::Http2);
    }
    if let Some([certificate, ..]) = stream.get_ref().1.peer_certificates() {
        client.set_identity(Identity::of(certificate));
    }
    let pipe = Pipe::Tls(Box::new(stream.into()));
    serve::negotiated(worker, client, pipe).await;
    Ok(())
}

fn is_trusted(worker: &Worker, peer: SocketAddr) -> bool {
    let settings = worker.state.settings();
    let trusts = |net: &IpNet| net.contains(&peer.ip());
    settings.config.forward.trust.iter().any(trusts)
}

//! From an accepted connection to the first byte of HTTP.

use std::future::{Future, poll_fn};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsRawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use ipnet::IpNet;
use rustix::io::Errno;
use rustix::net::{SocketFlags, acceptfrom_with};
use rustls::ServerConfig;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::task::spawn_local;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::per_address::Address;
use super::tls::ServerTls;
use super::{LATECOMERS, defer, proxy_protocol};
use crate::client::identity::Identity;
use crate::client::socket::{Socket, canonical};
use crate::client::stream::Stream;
use crate::client::{Client, Link, Protocol, serve};
use crate::metrics::TurnedAway;
use crate::pipe::Pipe;
use crate::settings::Settings;
use crate::tcp::Tcp;
use crate::worker::{OpenGuard, Worker};

/// After a failed accept (out of file descriptors) the next one waits a little: connections have to
/// end first.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// Accepts connections until the proxy shuts down, and for a while after that if nobody else does.
pub(crate) async fn run(worker: Rc<Worker>, listener: TcpListener, index: usize) -> io::Result<()> {
    let listener = watch(listener)?;
    let mut spare = None;
    let mut start = |(stream, peer)| {
        if let Some(connection) = welcome(&worker, stream, peer, index) {
            begin(connection, &mut spare);
        }
    };
    {
        let mut over = pin!(async {
            worker.state.draining().await;
            if !worker.state.is_relieved() {
                await_latecomers(listener.get_ref()).await;
            }
        });
        loop {
            let accepted = tokio::select! {
                accepted = accept(&listener) => accepted,
                () = &mut over => break,
            };
            match accepted {
                Ok(accepted) => start(accepted),
                Err(error) => {
                    note_shortage(&worker, &error);
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
    while let Ok(accepted) = accept_now(listener.get_ref()) {
        start(accepted);
    }
    Ok(())
}

/// A failed accept that was for want of descriptors is written down; other ones are the client's.
fn note_shortage(worker: &Worker, error: &io::Error) {
    let errno = Errno::from_io_error(error);
    if matches!(
        errno,
        Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)
    ) {
        worker.state.descriptors.ran_out(worker.state.now());
    }
}

/// The system may keep connections to itself whose clients believe that they are connected, and may
/// speak yet. It is told to begin no more of these, and given the time to hand over what it has.
async fn await_latecomers(listener: &TcpListener) {
    // If it cannot be told, some client may have to connect again.
    let _ = defer(listener, false);
    tokio::time::sleep(LATECOMERS).await;
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

/// The future of a new connection, unless there are too many.
fn welcome(
    worker: &Rc<Worker>,
    stream: Stream,
    peer: SocketAddr,
    index: usize,
) -> Option<impl Future<Output = ()> + use<>> {
    let settings = worker.settings();
    let peer = canonical(peer);
    let manner = Manner::of(&settings, index);
    let newcomer = (!manner.proxy_protocol).then(|| peer.ip().into());
    let full = worker.state.connections() >= settings.config.limits.connections
        || lacks_descriptors(worker, &stream);
    if full && !worker.reclaim(newcomer, TurnedAway::Limit) {
        worker.metrics().record_turned_away(TurnedAway::Limit);
        return None;
    }
    let mut open = worker.count_open();
    if !manner.proxy_protocol
        && let Err(cause) = count_address(worker, &settings, peer, &mut open)
    {
        worker.metrics().record_turned_away(cause);
        return None;
    }
    let worker = Rc::clone(worker);
    Some(connection(worker, stream, peer, manner, open))
}

/// Whether a connection took one of the descriptors that are kept for others than clients.
fn lacks_descriptors(worker: &Worker, stream: &Stream) -> bool {
    let number = stream.descriptor().map_or(0, |it| it.as_raw_fd());
    let lacks = !worker.state.descriptors.allow(number.unsigned_abs().into());
    if lacks {
        worker.state.descriptors.ran_out(worker.state.now());
    }
    lacks
}

/// Counts a connection for its address, unless that one has too many: see [`super::per_address`].
fn count_address(
    worker: &Rc<Worker>,
    settings: &Settings,
    peer: SocketAddr,
    open: &mut OpenGuard,
) -> Result<(), TurnedAway> {
    let limits = &settings.config.limits;
    let share = limits.connections_per_address.0;
    if share >= 1.0 || is_trusted(settings, peer) {
        return Ok(());
    }
    let most = (limits.connections as f64 * share).max(1.0) as usize;
    let address = Address::from(peer.ip());
    if open.count_for(address) <= most || worker.reclaim(Some(address), TurnedAway::Address) {
        return Ok(());
    }
    Err(TurnedAway::Address)
}

/// Runs a connection as far as it goes without waiting, and gives it a task if that was not to
/// its end.
///
/// A client that opens a connection for one request has usually sent it by now. If that needs no
/// replica, as a refusal does not, the connection is over before a task would have been made for
/// it, and its memory is there for the next one. Whatever it waits for otherwise is told by its
/// task whom to wake.
fn begin<F>(connection: F, spare: &mut Option<Pin<Box<F>>>)
where
    F: Future<Output = ()> + 'static,
{
    let mut connection = match spare.take() {
        Some(mut over) => {
            over.set(connection);
            over
        }
        None => Box::pin(connection),
    };
    let mut cx = Context::from_waker(Waker::noop());
    // As in a task: what goes wrong with one connection does not concern the others.
    match catch_unwind(AssertUnwindSafe(|| connection.as_mut().poll(&mut cx))) {
        Ok(Poll::Pending) => drop(spawn_local(connection)),
        Ok(Poll::Ready(())) => *spare = Some(connection),
        Err(_) => {}
    }
}

/// A connection from its first byte to its last.
async fn connection(
    worker: Rc<Worker>,
    stream: Stream,
    peer: SocketAddr,
    manner: Manner,
    open: OpenGuard,
) {
    let served = open_connection(&worker, stream, peer, manner, open).await;
    if let Err(cause) = served {
        worker.metrics().record_turned_away(cause);
    }
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
    fn of(settings: &Settings, index: usize) -> Self {
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
    worker: &Rc<Worker>,
    mut stream: Stream,
    mut peer: SocketAddr,
    manner: Manner,
    mut open: OpenGuard,
) -> Result<(), TurnedAway> {
    if manner.proxy_protocol {
        let watched = stream.into_watched();
        let mut watched = watched.map_err(|_| TurnedAway::ProxyProtocol)?;
        let header = Box::pin(proxy_protocol::read(&mut watched));
        let Ok(Ok(told)) = timeout(manner.handshake, header).await else {
            return Err(TurnedAway::ProxyProtocol);
        };
        stream = Stream::Watched(Tcp::new(watched));
        if let Some(client) = told.map(canonical) {
            peer = client;
            count_address(worker, &worker.settings(), peer, &mut open)?;
        }
    }
    let link = Link {
        peer,
        tls: manner.tls.is_some(),
        trusted: is_trusted(&worker.settings(), peer),
        linger_bytes: manner.linger_bytes,
    };
    let client = Rc::new(Client::new(link, open));
    let socket = Socket::new(stream, Rc::clone(&client));
    let Some(ServerTls { config, .. }) = manner.tls else {
        serve::plain(worker, client, socket, manner.http2).await;
        return Ok(());
    };
    // A handshake is too much work to be done between two accepts.
    tokio::task::yield_now().await;
    // Boxed: a session of TLS is large, and plain connections should not be.
    Box::pin(secure(worker, client, socket, config, manner.handshake)).await
}

async fn secure(
    worker: &Rc<Worker>,
    client: Rc<Client>,
    socket: Socket,
    config: Arc<ServerConfig>,
    limit: Duration,
) -> Result<(), TurnedAway> {
    let handshake = pin!(TlsAcceptor::from(config).accept(socket));
    client.begin_handshake();
    let watched = worker.register(Rc::clone(&client));
    let agreed = timeout(limit, serve::obey(&client, handshake, serve::After::End)).await;
    drop(watched);
    client.end_handshake();
    let Ok(Some(Ok(stream))) = agreed else {
        return Err(TurnedAway::Tls);
    };
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

fn is_trusted(settings: &Settings, peer: SocketAddr) -> bool {
    let trusts = |net: &IpNet| net.contains(&peer.ip());
    settings.config.forward.trust.iter().any(trusts)
}

//! Listening sockets: one per worker and address, all on the same port (SO_REUSEPORT), so that the
//! kernel spreads connections and no worker waits for another.

pub(crate) mod accept;
pub(crate) mod descriptors;
pub(crate) mod inherited;
pub(crate) mod per_address;
pub(crate) mod proxy_protocol;
pub(crate) mod tls;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};

/// Connections that may wait to be accepted; the kernel caps it at its own limit.
const BACKLOG: i32 = 4096;
/// A peer that vanished without a word is noticed after this and a few probes.
const KEEPALIVE: Duration = Duration::from_secs(60);

/// For how long the system keeps a connection to itself whose client says nothing, in seconds: the
/// least that it can, the time until it says its part of the handshake again.
const SILENT_MAX_S: u16 = 1;
/// For how long connections are accepted when the proxy shuts down: until all of them are here
/// whose clients believe that they are connected. Chosen: the time above, and the half of it for
/// the answer.
pub(crate) const LATECOMERS: Duration = Duration::from_millis(1500);

/// Why a listening socket cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {addr}: {cause}; {}", remedy(cause))]
pub struct ListenError {
    /// The address.
    pub addr: SocketAddr,
    /// What the system said.
    pub cause: io::Error,
}

fn remedy(cause: &io::Error) -> &'static str {
    match cause.kind() {
        io::ErrorKind::AddrInUse => "stop the program that listens there, or choose another port",
        io::ErrorKind::PermissionDenied => {
            "ports below 1024 need the capability CAP_NET_BIND_SERVICE; choose a higher one"
        }
        io::ErrorKind::AddrNotAvailable => "this machine does not have that address",
        _ => "choose another address with `--listen` or `listen`",
    }
}

/// One socket per worker, all on one port; port 0 lets the system choose it.
pub(crate) fn bind(addr: SocketAddr, workers: usize) -> Result<Vec<TcpListener>, ListenError> {
    let refused = |cause| ListenError { addr, cause };
    // With SO_REUSEPORT a second proxy could share the port of a first one unnoticed.
    open(addr, false).map_err(refused)?;
    let first = open(addr, true).map_err(refused)?;
    let bound = first.local_addr().map_err(refused)?;
    let mut sockets = vec![first];
    for _ in 1..workers {
        sockets.push(open(bound, true).map_err(refused)?);
    }
    Ok(sockets)
}

/// Whether the system waits for a client's first word before it hands a connection over.
///
/// A connection that is answered when it is accepted is never waited for: neither is it read for
/// nothing, nor does the runtime get to know of it. Of nginx' CPU time for a refusal on a new
/// connection that is a fifth.
pub(crate) fn defer(socket: &TcpListener, defers: bool) -> io::Result<()> {
    tidegate_sockopt::defer_accept(socket, if defers { SILENT_MAX_S } else { 0 })
}

/// One socket; `shared` lets others have the same port.
pub(crate) fn open(addr: SocketAddr, shared: bool) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(shared)?;
    if addr.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    // Accepted connections inherit these, which saves their system calls.
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE))?;
    socket.set_nonblocking(true)?;
    socket.bind(&addr.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

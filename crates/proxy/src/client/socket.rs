//! The TCP socket of a client, below TLS.
//!
//! It counts progress for the sweep, tells whether the client has closed its side, and swallows
//! what a refused client still sends: closing a socket with unread bytes makes the kernel send a
//! reset, which destroys the answer on its way.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::Client;
use super::stream::Stream;
use crate::coalesce;

/// A client's TCP connection.
#[derive(Debug)]
pub(crate) struct Socket {
    stream: Stream,
    client: Rc<Client>,
    closing: Closing,
}

#[derive(Debug, Clone, Copy)]
enum Closing {
    Not,
    /// Our side is closed; this many bytes of the other side may still be swallowed.
    Lingering(u32),
}

impl Socket {
    pub(crate) fn new(stream: Stream, client: Rc<Client>) -> Self {
        Self {
            stream,
            client,
            closing: Closing::Not,
        }
    }

    /// The stream itself.
    pub(crate) fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Lets the runtime forget it.
    pub(crate) fn unwatch(&mut self) -> io::Result<()> {
        self.stream.unwatch()
    }

    /// Whether the client has closed its sending side, bytes not yet read or not.
    pub(crate) fn has_closed(&self) -> bool {
        let gone = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
        self.is_any(gone).unwrap_or(true)
    }

    /// Whether there is something to read, the end included.
    pub(crate) fn has_unread(&self) -> bool {
        self.is_any(PollFlags::IN).unwrap_or(false)
    }

    /// Asks the system for the state of the socket; `None` where there is no socket.
    fn is_any(&self, of: PollFlags) -> Option<bool> {
        let descriptor = self.stream.descriptor()?;
        let mut fds = [PollFd::new(&descriptor, of)];
        let asked = poll(&mut fds, Some(&Timespec::default()));
        Some(asked.is_ok_and(|_| fds[0].revents().intersects(of)))
    }

    fn watch_write<T>(&self, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        self.client.set_write_blocked(result.is_pending());
        if result.is_ready() {
            self.client.progressed();
        }
        result
    }

    fn poll_linger(&mut self, cx: &mut Context<'_>, mut left: u32) -> Poll<io::Result<()>> {
        let mut scratch = [0; 4096];
        loop {
            let mut buf = ReadBuf::new(&mut scratch);
            let read = Pin::new(&mut self.stream).poll_read(cx, &mut buf);
            let swallowed = buf.filled().len() as u32;
            left = left.saturating_sub(swallowed);
            self.closing = Closing::Lingering(left);
            match read {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(())) if swallowed > 0 && left > 0 => {}
                Poll::Ready(_) => return Poll::Ready(Ok(())),
            }
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        self.client.progressed();
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.watch_write(result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = coalesce::poll_write(&mut self.stream, cx, bufs);
        self.watch_write(result)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// A TCP stream has nothing to flush.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Closing::Lingering(left) = self.closing {
            return self.poll_linger(cx, left);
        }
        let left = self.client.start_lingering();
        // What is not read on is dropped next, and that closes both sides with one call less.
        if left.is_some() || self.client.is_tunnel() {
            ready!(Pin::new(&mut self.stream).poll_shutdown(cx))?;
        }
        match left {
            None => Poll::Ready(Ok(())),
            Some(left) => self.poll_linger(cx, left),
        }
    }
}

/// The remote address of an accepted connection as a plain IPv4 address where it is a mapped one.
pub(crate) fn canonical(addr: SocketAddr) -> SocketAddr {
    SocketAddr::new(addr.ip().to_canonical(), addr.port())
}

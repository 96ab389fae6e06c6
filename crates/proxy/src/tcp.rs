//! TCP connections, read and written without the C library.
//!
//! In a process with threads glibc makes `recv` and `send` points where a thread can be cancelled,
//! which takes two atomic operations each time. Nobody cancels threads here, and of what a short
//! exchange costs a proxy that is a few hundredths. [`rustix`] asks the kernel itself.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustix::net::{RecvFlags, SendFlags, recv, send};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

/// The most that is read by way of the stack, which saves clearing the buffer first or unsafe
/// code. Chosen: heads, and bodies where a copy within the cache is cheaper than that.
const SMALL: usize = 8 << 10;

/// Reads what has come, up to [`SMALL`] bytes.
pub(crate) fn receive(socket: impl AsFd, buf: &mut ReadBuf<'_>) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); SMALL];
    let room = buf.remaining().min(SMALL);
    let ((received, _), _) = recv(socket, &mut space[..room], RecvFlags::empty())?;
    buf.put_slice(received);
    Ok(received.len())
}

/// Writes what there is room for.
pub(crate) fn transmit(socket: impl AsFd, bytes: &[u8]) -> io::Result<usize> {
    // A client that has left is an error, not a signal.
    Ok(send(socket, bytes, SendFlags::NOSIGNAL)?)
}

/// A connection that the runtime watches.
#[derive(Debug)]
pub(crate) struct Tcp(TcpStream);

impl Tcp {
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self(stream)
    }

    /// Does something with the socket that is known to be ready. `call` has done less than it was
    /// asked for if there was no more: that is as good as being told so by another call.
    fn attempt(
        &self,
        interest: Interest,
        asked: usize,
        mut call: impl FnMut(&TcpStream) -> io::Result<usize>,
    ) -> Option<io::Result<usize>> {
        let mut partly = None;
        let done = self.0.try_io(interest, || match call(&self.0) {
            Ok(done) if 0 < done && done < asked => {
                partly = Some(done);
                Err(io::ErrorKind::WouldBlock.into())
            }
            done => done,
        });
        match (partly, done) {
            (Some(done), _) => Some(Ok(done)),
            (None, Err(error)) if error.kind() == io::ErrorKind::WouldBlock => None,
            (None, done) => Some(done),
        }
    }
}

impl From<Tcp> for TcpStream {
    fn from(tcp: Tcp) -> Self {
        tcp.0
    }
}

impl AsFd for Tcp {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsyncRead for Tcp {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let room = buf.remaining();
        if room > SMALL {
            return Pin::new(&mut self.0).poll_read(cx, buf);
        }
        loop {
            ready!(self.0.poll_read_ready(cx))?;
            let read = self.attempt(Interest::READABLE, room, |socket| receive(socket, buf));
            if let Some(read) = read {
                return Poll::Ready(read.map(|_| ()));
            }
        }
    }
}

impl AsyncWrite for Tcp {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.0.poll_write_ready(cx))?;
            let write = |socket: &TcpStream| transmit(socket, bytes);
            if let Some(written) = self.attempt(Interest::WRITABLE, bytes.len(), write) {
                return Poll::Ready(written);
            }
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Closes our side.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

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
pub(crate) const SMALL: usize = 8 << 10;

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

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    async fn pair() -> io::Result<(Tcp, TcpStream)> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let client = TcpStream::connect(listener.local_addr()?).await?;
        let (server, _) = listener.accept().await?;
        Ok((Tcp::new(server), client))
    }

    #[tokio::test]
    async fn what_comes_after_less_than_was_asked_for_is_read_too() {
        let (mut tcp, mut client) = pair().await.unwrap();
        let mut input = [0; 16];
        for turn in 0..100_u8 {
            client.write_all(&[turn; 5]).await.unwrap();
            let read = tcp.read(&mut input).await.unwrap();
            assert_eq!(input[..read], [turn; 5]);
            tcp.write_all(&[turn]).await.unwrap();
            assert_eq!(client.read_u8().await.unwrap(), turn);
        }
    }

    #[tokio::test]
    async fn what_fills_the_buffer_to_its_end_is_followed_by_the_rest() {
        let (mut tcp, mut client) = pair().await.unwrap();
        for size in [1, 4, SMALL - 1, SMALL, SMALL + 1, 3 * SMALL] {
            let sent: Vec<u8> = (0..2 * size).map(|at| at as u8).collect();
            let (mut first, mut second) = (vec![0; size], vec![0; size]);
            let sending = client.write_all(&sent);
            let receiving = async {
                tcp.read_exact(&mut first).await?;
                tcp.read_exact(&mut second).await
            };
            tokio::try_join!(sending, receiving).unwrap();
            assert_eq!([first, second].concat(), sent);
        }
    }

    #[tokio::test]
    async fn the_end_is_seen_behind_the_last_bytes() {
        let (mut tcp, mut client) = pair().await.unwrap();
        client.write_all(b"last words").await.unwrap();
        drop(client);
        let mut heard = Vec::new();
        tcp.read_to_end(&mut heard).await.unwrap();
        assert_eq!(heard, b"last words");
    }

    #[tokio::test]
    async fn nobody_to_write_to_is_an_error() {
        let (mut tcp, client) = pair().await.unwrap();
        drop(client);
        let broken = loop {
            if let Err(error) = tcp.write(b"hello?").await {
                break error;
            }
        };
        let expected = [io::ErrorKind::BrokenPipe, io::ErrorKind::ConnectionReset];
        assert!(expected.contains(&broken.kind()), "{broken}");
    }

    #[tokio::test]
    async fn more_than_there_is_room_for_is_written_in_the_end() {
        let (mut tcp, mut client) = pair().await.unwrap();
        let sent = vec![7; 16 << 20];
        let mut received = vec![0; sent.len()];
        let sending = tcp.write_all(&sent);
        let receiving = client.read_exact(&mut received);
        tokio::try_join!(sending, receiving).unwrap();
        assert!(received == sent);
    }
}

//! A TCP connection that the runtime learns of only when something has to be waited for.
//!
//! To watch a socket and to stop watching it are two system calls. A client that opens a connection
//! for one request has usually sent it by the time the connection is accepted, and is answered
//! at once: nothing is ever waited for, and both calls are saved. A client that is slower costs
//! one read for nothing, once.

use std::io::{self, IoSlice, Write};
use std::net::TcpStream as Unwatched;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::tcp::{self, Tcp};

/// A connection of a client.
#[derive(Debug)]
pub(crate) enum Stream {
    /// Non-blocking; the runtime does not know of it.
    Fresh(Unwatched),
    Watched(Tcp),
    /// The runtime refused to watch it.
    Lost,
}

impl Stream {
    /// The descriptor, to ask the system about it.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Fresh(stream) => Some(stream.as_fd()),
            Self::Watched(stream) => Some(stream.as_fd()),
            Self::Lost => None,
        }
    }

    /// The stream as the runtime knows it.
    fn watched(&mut self) -> io::Result<Pin<&mut Tcp>> {
        if let Self::Fresh(_) = self
            && let Self::Fresh(stream) = std::mem::replace(self, Self::Lost)
        {
            *self = Self::Watched(Tcp::new(TcpStream::from_std(stream)?));
        }
        match self {
            Self::Watched(stream) => Ok(Pin::new(stream)),
            Self::Fresh(_) | Self::Lost => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Lets the runtime forget it.
    pub(crate) fn unwatch(&mut self) -> io::Result<()> {
        if let Self::Watched(_) = self {
            let watched = std::mem::replace(self, Self::Lost).into_watched()?;
            *self = Self::Fresh(watched.into_std()?);
        }
        Ok(())
    }

    /// The same for those who need nothing else.
    pub(crate) fn into_watched(self) -> io::Result<TcpStream> {
        match self {
            Self::Fresh(stream) => TcpStream::from_std(stream),
            Self::Watched(stream) => Ok(stream.into()),
            Self::Lost => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Tries what does not need the runtime. None if it has to be waited for.
    fn at_once<T>(
        &self,
        mut call: impl FnMut(&Unwatched) -> io::Result<T>,
    ) -> Option<io::Result<T>> {
        let Self::Fresh(stream) = self else {
            return None;
        };
        loop {
            match call(stream) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                done => return Some(done),
            }
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.at_once(|stream| tcp::receive(stream, buf)) {
            None => self.watched()?.poll_read(cx, buf),
            Some(read) => Poll::Ready(read.map(|_| ())),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.at_once(|stream| tcp::transmit(stream, buf)) {
            None => self.watched()?.poll_write(cx, buf),
            Some(written) => Poll::Ready(written),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.at_once(|mut stream| stream.write_vectored(bufs)) {
            None => self.watched()?.poll_write_vectored(cx, bufs),
            Some(written) => Poll::Ready(written),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Closes our side.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Fresh(stream) => Poll::Ready(stream.shutdown(std::net::Shutdown::Write)),
            Self::Watched(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Lost => Poll::Ready(Ok(())),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::TcpListener;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    fn pair() -> io::Result<(Stream, Unwatched)> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let client = Unwatched::connect(listener.local_addr()?)?;
        let (server, _) = listener.accept()?;
        server.set_nonblocking(true)?;
        Ok((Stream::Fresh(server), client))
    }

    #[tokio::test]
    async fn what_is_there_is_read_and_answered_without_the_runtime() {
        let (mut stream, mut client) = pair().unwrap();
        client.write_all(b"ping").unwrap();
        let mut read = [0; 4];
        // The loopback has delivered it when `write_all` returns.
        stream.read_exact(&mut read).await.unwrap();
        stream.write_all(b"pong").await.unwrap();
        assert!(matches!(stream, Stream::Fresh(_)));
        drop(stream);
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).unwrap();
        assert_eq!((&read, &answer[..]), (b"ping", &b"pong"[..]));
    }

    #[tokio::test]
    async fn what_is_not_there_is_waited_for() {
        let (mut stream, mut client) = pair().unwrap();
        let mut read = [0; 4];
        let mut waiting = Box::pin(stream.read_exact(&mut read));
        let mut cx = Context::from_waker(std::task::Waker::noop());
        assert!(waiting.as_mut().poll(&mut cx).is_pending());
        client.write_all(b"ping").unwrap();
        waiting.await.unwrap();
        assert!(matches!(stream, Stream::Watched(_)));
        assert_eq!(&read, b"ping");
    }

    #[tokio::test]
    async fn more_than_fits_is_written_in_the_end() {
        let (mut stream, mut client) = pair().unwrap();
        let writing = tokio::spawn(async move {
            let sent = stream.write_all(&vec![1; 16 << 20]).await;
            (sent.is_ok(), matches!(stream, Stream::Watched(_)))
        });
        let mut received = Vec::new();
        let reading = tokio::task::spawn_blocking(move || client.read_to_end(&mut received));
        assert_eq!(writing.await.unwrap(), (true, true));
        assert_eq!(reading.await.unwrap().unwrap(), 16 << 20);
    }
}

//! An HTTP/2 connection below h2: frames that carry nothing are counted on their way in, and what
//! is written while the connection is corked leaves together.

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::Client;
use super::frames::FrameScan;
use super::socket::Socket;
use crate::http1::output::Output;
use crate::pipe::Pipe;

/// A connection whose frames are looked at: see [`super::frames`].
#[derive(Debug)]
pub(crate) struct Counted {
    pipe: Pipe<Socket>,
    client: Rc<Client>,
    frames: FrameScan,
    /// Read before it was known that this is HTTP/2.
    start: BytesMut,
    /// Written and not yet passed on.
    output: Output,
}

impl Counted {
    pub(crate) fn new(pipe: Pipe<Socket>, client: Rc<Client>, start: BytesMut) -> Self {
        let mut frames = FrameScan::new();
        client.count_idle_frames(frames.idle_frames(&start));
        Self {
            pipe,
            client,
            frames,
            start,
            output: Output::default(),
        }
    }

    /// Whether what is written waits for more.
    fn gathers(&self) -> bool {
        self.client.is_corked() && self.output.has_room()
    }
}

impl AsyncRead for Counted {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.start.is_empty() {
            let len = this.start.len().min(buf.remaining());
            buf.put_slice(&this.start[..len]);
            this.start.advance(len);
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        ready!(Pin::new(&mut this.pipe).poll_read(cx, buf))?;
        let idle = this.frames.idle_frames(&buf.filled()[before..]);
        Poll::Ready(if this.client.count_idle_frames(idle) {
            Ok(())
        } else {
            Err(io::Error::other("a flood of frames that carry nothing"))
        })
    }
}

impl AsyncWrite for Counted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        if this.gathers() {
            this.output.small().extend_from_slice(buf);
            return Poll::Ready(Ok(buf.len()));
        }
        ready!(this.output.poll_write(&mut this.pipe, cx))?;
        Pin::new(&mut this.pipe).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        if this.gathers() {
            let gathered = this.output.small();
            bufs.iter().for_each(|buf| gathered.extend_from_slice(buf));
            return Poll::Ready(Ok(bufs.iter().map(|buf| buf.len()).sum()));
        }
        ready!(this.output.poll_write(&mut this.pipe, cx))?;
        Pin::new(&mut this.pipe).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.pipe.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.gathers() {
            return Poll::Ready(Ok(()));
        }
        ready!(this.output.poll_write(&mut this.pipe, cx))?;
        Pin::new(&mut this.pipe).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        ready!(this.output.poll_write(&mut this.pipe, cx))?;
        Pin::new(&mut this.pipe).poll_shutdown(cx)
    }
}

//! Puts the [`Scanner`] under hyper: only bytes it has judged get there.
//!
//! Usually a head arrives whole, is judged where hyper's buffer has it, and nothing is copied.
//! What is incomplete is held back until it is complete. A head that is not sound never reaches
//! hyper: a stand-in goes up in its place, the service answers it with what is wrong, in its turn
//! behind earlier requests of the connection, and the connection closes. Everything behind it is
//! thrown away.
//!
//! After an upgrade bytes pass unseen. Of HTTP/2 only the heads of frames are looked at: see
//! [`super::frames`].

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::frames::FrameScan;
use super::scan::{ScanLimits, Scanner, Stop, Violation};
use super::{Client, Upgrade};

/// Takes the place of a head that is not sound.
const STAND_IN: &[u8] = b"GET / HTTP/1.1\r\nhost: invalid\r\nconnection: close\r\n\r\n";

/// Bytes read at a time where they cannot go straight into hyper's buffer.
const PIECE: usize = 2048;

/// Bytes held behind a request to upgrade that is not decided yet. A client that keeps to the
/// protocol sends none.
const EARLY_BYTES_MAX: usize = 16 << 10;

/// An IO that lets only sound HTTP/1 messages through.
#[derive(Debug)]
pub(crate) struct Inspector<S> {
    io: S,
    client: Arc<Client>,
    mode: Mode,
    /// Bytes read but not yet passed on; the first `ready` of them may be.
    held: Vec<u8>,
    ready: usize,
}

#[derive(Debug)]
enum Mode {
    Inspect(Scanner),
    /// A head asked for an upgrade; `Scanner` goes on if it is declined.
    Upgrade(Scanner),
    /// The stand-in went up: silence until hyper has answered and closes.
    Refused,
    /// A body is not sound: an error to whoever reads it.
    Broken(Violation),
    /// HTTP/2.
    Frames(FrameScan),
    Opaque,
}

impl<S> Inspector<S> {
    /// Inspects HTTP/1; `start` has been read from `io` already.
    pub(crate) fn http1(io: S, client: Arc<Client>, start: Vec<u8>, limits: ScanLimits) -> Self {
        let mut inspector = Self {
            io,
            client,
            mode: Mode::Inspect(Scanner::new(limits)),
            held: start,
            ready: 0,
        };
        if !inspector.held.is_empty() {
            inspector.judge_held();
        }
        inspector
    }

    /// Watches HTTP/2; `start` has been read from `io` already.
    pub(crate) fn http2(io: S, client: Arc<Client>, start: Vec<u8>) -> Self {
        let mut frames = FrameScan::new();
        client.count_idle_frames(frames.idle_frames(&start));
        Self {
            io,
            client,
            mode: Mode::Frames(frames),
            ready: start.len(),
            held: start,
        }
    }

    /// Judges what is held.
    fn judge_held(&mut self) {
        let Mode::Inspect(scanner) = &mut self.mode else {
            return;
        };
        let scan = scanner.scan(&self.held);
        self.ready = scan.passed;
        self.after(scan.stop);
    }

    /// Judges what has just been read into `buf` behind `before`, and takes back what must wait.
    fn judge_read(&mut self, buf: &mut ReadBuf<'_>, before: usize) {
        let Mode::Inspect(scanner) = &mut self.mode else {
            return;
        };
        let fresh = &buf.filled()[before..];
        let scan = scanner.scan(fresh);
        if scan.passed < fresh.len() {
            self.held.extend_from_slice(&fresh[scan.passed..]);
            buf.set_filled(before + scan.passed);
        }
        self.after(scan.stop);
    }

    fn after(&mut self, stop: Stop) {
        let Mode::Inspect(scanner) = &self.mode else {
            return;
        };
        let in_head = scanner.in_head();
        let partial = in_head && stop == Stop::Incomplete;
        self.client.set_heads(scanner.heads(), partial);
        match stop {
            Stop::End | Stop::Incomplete => {}
            Stop::Upgrade => {
                self.client.upgrade_asked();
                if let Mode::Inspect(scanner) = std::mem::replace(&mut self.mode, Mode::Refused) {
                    self.mode = Mode::Upgrade(scanner);
                }
            }
            Stop::Bad(violation) => self.refuse(violation, in_head),
        }
    }

    /// Refuses the rest of the connection; in a head, by way of the stand-in.
    fn refuse(&mut self, violation: Violation, in_head: bool) {
        self.client.set_violation(violation);
        self.client.linger();
        self.held.truncate(self.ready);
        if !in_head {
            self.mode = Mode::Broken(violation);
            return;
        }
        self.held.extend_from_slice(STAND_IN);
        self.ready = self.held.len();
        self.mode = Mode::Refused;
    }

    /// Passes on what may be passed on.
    fn deliver(&mut self, buf: &mut ReadBuf<'_>) {
        let len = self.ready.min(buf.remaining());
        buf.put_slice(&self.held[..len]);
        self.ready -= len;
        self.held.drain(..len);
        if self.held.is_empty() {
            // Idle connections keep no buffer.
            self.held = Vec::new();
        }
    }
}

impl<S: AsyncRead + Unpin> Inspector<S> {
    /// Reads more behind what is held. Ready with the number of bytes; 0 is the end.
    fn poll_hold_more(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut piece = [0; PIECE];
        let mut buf = ReadBuf::new(&mut piece);
        ready!(Pin::new(&mut self.io).poll_read(cx, &mut buf))?;
        self.held.extend_from_slice(buf.filled());
        Poll::Ready(Ok(buf.filled().len()))
    }

    /// Behind a request to upgrade: reads only to notice that the client leaves, until the
    /// request is answered.
    fn poll_undecided(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        loop {
            match (
                self.client.upgrade(),
                std::mem::replace(&mut self.mode, Mode::Opaque),
            ) {
                (Upgrade::Accepted, _) => {
                    self.ready = self.held.len();
                    return Poll::Ready(Ok(true));
                }
                (Upgrade::Declined, Mode::Upgrade(mut scanner)) => {
                    scanner.upgrade_declined();
                    self.mode = Mode::Inspect(scanner);
                    self.judge_held();
                    return Poll::Ready(Ok(true));
                }
                (_, mode) => self.mode = mode,
            }
            if self.held.len() >= EARLY_BYTES_MAX {
                return Poll::Pending;
            }
            if ready!(self.poll_hold_more(cx))? == 0 {
                return Poll::Ready(Ok(false));
            }
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Inspector<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            if this.ready > 0 {
                this.deliver(buf);
                return Poll::Ready(Ok(()));
            }
            match &mut this.mode {
                Mode::Frames(frames) => {
                    let before = buf.filled().len();
                    ready!(Pin::new(&mut this.io).poll_read(cx, buf))?;
                    let idle = frames.idle_frames(&buf.filled()[before..]);
                    return Poll::Ready(match this.client.count_idle_frames(idle) {
                        true => Ok(()),
                        false => Err(io::Error::other("a flood of frames that carry nothing")),
                    });
                }
                Mode::Opaque => return Pin::new(&mut this.io).poll_read(cx, buf),
                Mode::Refused => return Poll::Pending,
                Mode::Broken(violation) => {
                    return Poll::Ready(Err(io::Error::new(
                        io::ErrorKind::InvalidData,
                        *violation,
                    )));
                }
                Mode::Upgrade(_) => {
                    if !ready!(this.poll_undecided(cx))? {
                        return Poll::Ready(Ok(()));
                    }
                }
                Mode::Inspect(_) if this.client.take_timeout() => {
                    this.refuse(Violation::HeadTimeout, true);
                }
                Mode::Inspect(_) if this.held.is_empty() => {
                    let before = buf.filled().len();
                    ready!(Pin::new(&mut this.io).poll_read(cx, buf))?;
                    if buf.filled().len() == before {
                        return Poll::Ready(Ok(()));
                    }
                    this.judge_read(buf, before);
                    if buf.filled().len() > before {
                        return Poll::Ready(Ok(()));
                    }
                }
                Mode::Inspect(_) => {
                    if ready!(this.poll_hold_more(cx))? == 0 {
                        return Poll::Ready(Ok(()));
                    }
                    this.judge_held();
                }
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Inspector<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

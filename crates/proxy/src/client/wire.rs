//! The wire of an HTTP/1.1 connection: bytes read, bytes to be written, and the body of the request
//! in service.
//!
//! It is shared by the connection's task ([`super::http1`]) and the task that passes the body on
//! ([`super::inbound`]).

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::io;
use std::os::fd::BorrowedFd;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};

use bytes::BytesMut;
use http::Version;
use http_body::{Body as _, Frame};
use tokio::io::AsyncWrite;

use super::socket::Socket;
use super::{Client, ConnectionCommand};
use crate::http1::body::{Decoder, Piece};
use crate::http1::input::poll_fill;
use crate::http1::output::Output;
use crate::http1::request::{Head, HeadReader};
use crate::http1::write::{self, Asker, Encoder};
use crate::http1::{HeadLimits, Violation};
use crate::message::Response;
use crate::pipe::Pipe;
use crate::refuse::Shed;
use crate::response::body::Outbound;
use crate::tcp;
use crate::worker::Worker;

/// Bytes to read at a time: most heads are smaller, and an idle connection keeps as many.
const READ_BYTES: usize = 4 << 10;
/// The most of a long body.
const STEP_MAX: u64 = 64 << 10;
/// Bytes of further requests that are read while one is in service, to notice that the client
/// leaves.
const AHEAD_MAX: usize = 16 << 10;

const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// What has come from the client.
pub(crate) enum Incoming {
    Head(Head, Turn),
    Bad(Violation),
    End,
    /// Nothing, and nothing has to be done until something comes.
    Rest,
}

/// What the wire knows of the request in service.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Turn {
    pub(super) number: u32,
    pub(super) has_body: bool,
}

/// The connection, shared by its task and the body of the request in service.
#[derive(Debug)]
pub(crate) struct Wire {
    inner: RefCell<Inner>,
}

#[derive(Debug)]
struct Inner {
    pipe: Pipe<Socket>,
    input: BytesMut,
    output: Output,
    /// The body of the request in service, and whose turn it is: what is left of an earlier
    /// request must not read on.
    decoder: Decoder,
    turn: u32,
    /// Whether the client waits to be told to send its body.
    continues: bool,
    /// Whether the client has closed its side.
    ended: bool,
    /// Whether the last read may have left something behind.
    more: bool,
}

impl Wire {
    pub(super) fn new(pipe: Pipe<Socket>, start: BytesMut) -> Self {
        Self {
            inner: RefCell::new(Inner {
                pipe,
                input: start,
                output: Output::default(),
                decoder: Decoder::none(),
                turn: 0,
                continues: false,
                ended: false,
                more: false,
            }),
        }
    }

    pub(super) fn poll_head(
        &self,
        cx: &mut Context<'_>,
        client: &Client,
        reader: &mut HeadReader,
        limits: &HeadLimits,
    ) -> Poll<Incoming> {
        let mut inner = self.inner.borrow_mut();
        loop {
            if client.take_timeout() {
                return Poll::Ready(Incoming::Bad(Violation::HeadTimeout));
            }
            if !inner.input.is_empty() {
                match reader.read(&mut inner.input, limits) {
                    Err(violation) => return Poll::Ready(Incoming::Bad(violation)),
                    Ok(Some(head)) => {
                        client.head_complete();
                        let turn = inner.begin_turn(&head, *limits);
                        return Poll::Ready(Incoming::Head(head, turn));
                    }
                    Ok(None) => client.head_begun(),
                }
            }
            let leaves = client.command() >= ConnectionCommand::Close && !reader.has_begun();
            match inner.poll_more(cx, leaves) {
                Poll::Ready(true) => {}
                Poll::Ready(false) => return Poll::Ready(Incoming::End),
                Poll::Pending if client.may_rest() && inner.may_rest() && !reader.has_begun() => {
                    return Poll::Ready(Incoming::Rest);
                }
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// Runs a request. Ready with nothing if its client leaves.
    pub(super) fn poll_serving<F: Future>(
        &self,
        cx: &mut Context<'_>,
        client: &Client,
        asker: &Asker,
        serving: Pin<&mut F>,
    ) -> Poll<Option<F::Output>> {
        let served = serving.poll(cx);
        if let Some(heard) = client.take_heard() {
            let output = &mut self.inner.borrow_mut().output;
            // A client that does not read them misses some.
            if asker.version == Version::HTTP_11 && output.has_room() {
                output.small().extend_from_slice(&heard);
            }
        }
        if let Poll::Ready(served) = served {
            return Poll::Ready(Some(served));
        }
        let mut inner = self.inner.borrow_mut();
        if client.presence_asked() {
            client.set_presence(inner.pipe.below().has_closed());
        }
        let written = inner.poll_write(cx);
        let broken = matches!(written, Poll::Ready(Err(_)));
        if broken || inner.poll_departure(cx, client) {
            Poll::Ready(None)
        } else {
            Poll::Pending
        }
    }

    /// Puts the head of a response into the output, and its body if that is here.
    pub(super) fn begin_response(
        &self,
        worker: &Worker,
        response: Response<Outbound>,
        asker: &mut Asker,
    ) -> (Outbound, Encoder) {
        let length = response.body.size_hint().exact();
        let mut inner = self.inner.borrow_mut();
        inner.continues = false;
        let output = &mut inner.output;
        let mut encoder =
            write::response(output.small(), &response, length, asker, || worker.date());
        let mut body = response.body;
        if let Outbound::Full(data) = &mut body {
            encoder.data(std::mem::take(data), output);
        }
        (body, encoder)
    }

    /// Ready when the whole response is written.
    pub(super) fn poll_respond(
        &self,
        cx: &mut Context<'_>,
        body: &mut Outbound,
        encoder: &mut Encoder,
    ) -> Poll<io::Result<()>> {
        if encoder.is_complete() && matches!(body, Outbound::Full(_)) {
            return self.inner.borrow_mut().poll_write(cx);
        }
        loop {
            let taken = self.take_from_body(cx, body, encoder);
            let mut inner = self.inner.borrow_mut();
            let written = inner.poll_write(cx);
            body.set_blocked(written.is_pending());
            ready!(written)?;
            match taken {
                Taken::End => return Poll::Ready(Ok(())),
                Taken::Broken => return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
                Taken::Some => {}
                Taken::Waits if inner.poll_gone(cx) => {
                    return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
                }
                Taken::Waits => return Poll::Pending,
            }
        }
    }

    /// Puts what has come of a response's body into the output. The wire is not held while the body
    /// is polled: it may need the rest of the request's body, which is read from the same wire.
    fn take_from_body(
        &self,
        cx: &mut Context<'_>,
        body: &mut Outbound,
        encoder: &mut Encoder,
    ) -> Taken {
        while self.inner.borrow_mut().output.has_room() {
            if let Outbound::Tunnel(_) = body {
                return Taken::End;
            }
            let frame = match Pin::new(&mut *body).poll_frame(cx) {
                Poll::Pending => return Taken::Waits,
                Poll::Ready(Some(Err(_))) => return Taken::Broken,
                Poll::Ready(frame) => frame.and_then(Result::ok),
            };
            let output = &mut self.inner.borrow_mut().output;
            let (data, trailers) = match frame.map(Frame::into_data) {
                Some(Ok(data)) => (Some(data), None),
                Some(Err(frame)) => (None, frame.into_trailers().ok()),
                None => (None, None),
            };
            match data {
                Some(data) => encoder.data(data, output),
                None => {
                    return if encoder.end(trailers.as_ref(), output) {
                        Taken::End
                    } else {
                        Taken::Broken
                    };
                }
            }
            if encoder.is_complete() && body.is_end_stream() {
                return Taken::End;
            }
        }
        Taken::Some
    }

    /// The next piece of the body of the request whose turn it was.
    pub(super) fn poll_piece(&self, cx: &mut Context<'_>, turn: u32) -> Poll<io::Result<Piece>> {
        let mut inner = self.inner.borrow_mut();
        let inner = &mut *inner;
        if inner.turn != turn {
            return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
        }
        loop {
            let piece = inner.decoder.decode(&mut inner.input);
            let invalid = |violation| io::Error::new(io::ErrorKind::InvalidData, violation);
            if let Some(piece) = piece.map_err(invalid)? {
                return Poll::Ready(Ok(piece));
            }
            if inner.ended {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
            if std::mem::take(&mut inner.continues) {
                inner.output.small().extend_from_slice(CONTINUE);
            }
            // What does not go out now goes out with the response.
            let _ = inner.poll_write(cx)?;
            let left = inner.decoder.remaining().unwrap_or(READ_BYTES as u64 * 4);
            let step = left.clamp(READ_BYTES as u64, STEP_MAX) as usize;
            ready!(inner.poll_read(cx, step))?;
        }
    }

    /// Bytes of the request's body that have still to come, where that is known.
    pub(super) fn remaining(&self) -> Option<u64> {
        self.inner.borrow_mut().decoder.remaining()
    }

    pub(super) fn is_body_end(&self) -> bool {
        self.inner.borrow_mut().decoder.is_end()
    }

    /// Whether the body of the request, if it has one, has been read, as far as it has come.
    pub(super) fn is_drained(&self, has_body: bool) -> bool {
        if !has_body {
            return true;
        }
        let mut inner = self.inner.borrow_mut();
        let inner = &mut *inner;
        while !inner.decoder.is_end() {
            match inner.decoder.decode(&mut inner.input) {
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => return false,
            }
        }
        true
    }

    /// Reads what has come, without waiting. Whether the connection has ended, or nothing has come,
    /// is found out again by the next read.
    pub(super) fn read_ready(&self) {
        let mut cx = Context::from_waker(Waker::noop());
        let _ = self.inner.borrow_mut().poll_read(&mut cx, READ_BYTES);
    }

    /// Writes what there is, without waiting.
    pub(super) fn write_ready(&self) -> Poll<io::Result<()>> {
        let mut cx = Context::from_waker(Waker::noop());
        self.inner.borrow_mut().poll_write(&mut cx)
    }

    /// Waits until all that there is to write is written.
    pub(super) async fn written(&self) -> io::Result<()> {
        poll_fn(|cx| self.inner.borrow_mut().poll_write(cx)).await
    }

    /// Puts a refusal into the output; whether nothing that came is left.
    pub(super) fn put_refusal(&self, worker: &Worker, shed: &Shed, keep_alive: bool) -> bool {
        let inner = &mut *self.inner.borrow_mut();
        let out = inner.output.small();
        worker.with_date(|date| shed.write_http1(out, date, keep_alive));
        inner.is_drained()
    }

    /// Lets the runtime forget the connection, and shows its socket.
    ///
    /// # Errors
    /// When there is no socket, or the runtime does not let go of it.
    pub(super) fn unwatch(
        &self,
        watch: impl FnOnce(BorrowedFd<'_>) -> io::Result<()>,
    ) -> io::Result<()> {
        let inner = &mut *self.inner.borrow_mut();
        let socket = inner.pipe.as_plain().ok_or(io::ErrorKind::Unsupported)?;
        socket.unwatch()?;
        let descriptor = socket.stream().descriptor();
        watch(descriptor.ok_or(io::ErrorKind::NotConnected)?)
    }

    /// Gives back the memory that is needed while requests flow.
    pub(super) fn shrink(&self) {
        let inner = &mut *self.inner.borrow_mut();
        inner.input = BytesMut::new();
        inner.output = Output::default();
    }

    /// Closes our side, and lingers if that was asked for.
    pub(super) async fn close(&self) {
        let _ = poll_fn(|cx| {
            let mut inner = self.inner.borrow_mut();
            Pin::new(&mut inner.pipe).poll_shutdown(cx)
        })
        .await;
    }

    /// Takes the connection out, and what was read of it, unless somebody else still holds it.
    pub(super) fn into_parts(wire: Rc<Self>) -> Option<(Pipe<Socket>, BytesMut)> {
        let inner = Rc::into_inner(wire)?.inner.into_inner();
        Some((inner.pipe, inner.input))
    }
}

/// What was taken of a response's body.
enum Taken {
    /// As much as there is room for.
    Some,
    /// All that has come.
    Waits,
    End,
    Broken,
}

impl Inner {
    /// The body of another request is read from now on, if it has one.
    fn begin_turn(&mut self, head: &Head, limits: HeadLimits) -> Turn {
        self.turn = self.turn.wrapping_add(1);
        self.decoder = Decoder::new(head.framing, limits);
        let has_body = !self.decoder.is_end();
        self.continues = head.expects_continue && has_body;
        Turn {
            number: self.turn,
            has_body,
        }
    }

    /// Reads on; whether something came. A connection that `leaves` does so when nothing has come:
    /// what the client sent before it could know is answered, even if the runtime has not reported
    /// it yet.
    fn poll_more(&mut self, cx: &mut Context<'_>, leaves: bool) -> Poll<bool> {
        if self.ended {
            return Poll::Ready(false);
        }
        match self.poll_read(cx, READ_BYTES) {
            Poll::Ready(read) => Poll::Ready(read.is_ok()),
            Poll::Pending if leaves && !self.pipe.below().has_unread() => Poll::Ready(false),
            Poll::Pending => Poll::Pending,
        }
    }

    /// Reads on. An error if nothing will come any more.
    fn poll_read(&mut self, cx: &mut Context<'_>, step: usize) -> Poll<io::Result<()>> {
        let read = ready!(poll_fill(&mut self.pipe, cx, &mut self.input, step));
        self.ended = !matches!(read, Ok(1..));
        self.more = self.input.len() == self.input.capacity() || matches!(read, Ok(tcp::SMALL..));
        Poll::Ready(match read {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            read => read.map(|_| ()),
        })
    }

    /// Whether nothing that came is left.
    fn is_drained(&self) -> bool {
        self.input.is_empty() && !self.more
    }

    /// Whether there is nothing to be done for it, nor by TLS.
    fn may_rest(&mut self) -> bool {
        self.is_drained() && self.output.is_empty() && self.pipe.as_plain().is_some()
    }

    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.output.is_empty() {
            return Poll::Ready(Ok(()));
        }
        ready!(self.output.poll_write(&mut self.pipe, cx))?;
        Pin::new(&mut self.pipe).poll_flush(cx)
    }

    /// Whether the client has left while its request is in service.
    fn poll_departure(&mut self, cx: &mut Context<'_>, client: &Client) -> bool {
        let gone = self.poll_gone(cx);
        // What is not watched has to be asked for.
        client.set_unwatched(!self.decoder.is_end() || self.input.len() >= AHEAD_MAX);
        gone
    }

    /// Whether the client has left, as far as that can be seen by reading on. While its body is
    /// being read, the reader will see it.
    fn poll_gone(&mut self, cx: &mut Context<'_>) -> bool {
        while self.decoder.is_end() && !self.ended && self.input.len() < AHEAD_MAX {
            if self.poll_read(cx, READ_BYTES).is_pending() {
                return false;
            }
        }
        self.ended && self.decoder.is_end()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::{TcpListener, TcpStream};

    use super::super::Link;
    use super::super::stream::Stream;
    use super::*;

    const GET: &[u8] = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";

    /// A connection of ours, and the client's end of it.
    fn connection() -> io::Result<(Rc<Client>, Wire, TcpStream)> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let peer = TcpStream::connect(listener.local_addr()?)?;
        let (accepted, addr) = listener.accept()?;
        accepted.set_nonblocking(true)?;
        let link = Link {
            peer: addr,
            tls: false,
            trusted: false,
            linger_bytes: 0,
        };
        let client = Rc::new(Client::new(link, Worker::idle().count_open()));
        let socket = Socket::new(Stream::Fresh(accepted), Rc::clone(&client));
        let wire = Wire::new(Pipe::Plain(socket), BytesMut::new());
        Ok((client, wire, peer))
    }

    #[tokio::test]
    async fn who_has_spoken_before_it_was_told_to_go_is_heard() {
        let (client, wire, mut peer) = connection().unwrap();
        let (mut reader, limits) = (HeadReader::default(), client.worker().state.head_limits());
        let mut cx = Context::from_waker(Waker::noop());
        let waits = wire.poll_head(&mut cx, &client, &mut reader, &limits);
        assert!(waits.is_pending(), "nothing was said");

        // It is in the socket, and the runtime has not looked since.
        peer.write_all(GET).unwrap();
        client.give(ConnectionCommand::Close);
        let waits = wire.poll_head(&mut cx, &client, &mut reader, &limits);
        assert!(waits.is_pending(), "it is not let go unheard");
        let heard = poll_fn(|cx| wire.poll_head(cx, &client, &mut reader, &limits)).await;
        assert!(matches!(heard, Incoming::Head(..)));

        let next = wire.poll_head(&mut cx, &client, &mut reader, &limits);
        assert!(
            matches!(next, Poll::Ready(Incoming::End)),
            "then it is let go"
        );
    }
}

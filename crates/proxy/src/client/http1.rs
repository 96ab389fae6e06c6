//! HTTP/1.1 with a client: one request after the other on a connection.
//!
//! The connection's task reads a head, runs its request and writes the response. While a request is
//! in service it also watches whether the client leaves. Bytes are read and written by the
//! [`Wire`], which it shares with the task that passes the body of a request on
//! ([`super::inbound`]).

use std::future::{Future, poll_fn};
use std::io;
use std::os::fd::BorrowedFd;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::BytesMut;
use http::{StatusCode, Version};

use super::inbound::Inbound;
use super::socket::Socket;
use super::wire::{Incoming, Turn, Wire};
use super::{Client, ConnectionCommand};
use crate::http1::Violation;
use crate::http1::request::{Head, HeadReader};
use crate::http1::write::Asker;
use crate::message::{Request, Response};
use crate::pipe::Pipe;
use crate::request::{self, Served, Serving};
use crate::response::body::Outbound;
use crate::response::tunnel::Tunnel;
use crate::worker::Worker;

/// What becomes of a connection that is no longer HTTP.
#[derive(Debug)]
pub(crate) struct Upgraded {
    tunnel: Box<Tunnel>,
    pipe: Pipe<Socket>,
    /// What the client has said already.
    early: BytesMut,
}

impl Upgraded {
    /// Passes bytes both ways until one side ends.
    pub(crate) async fn run(self, client: &Client) {
        client.upgrade();
        self.tunnel.run(client, self.pipe, self.early).await;
    }
}

/// What a connection's task leaves behind.
pub(crate) enum Left {
    Nothing,
    Upgraded(Upgraded),
    /// It goes on without a task for a while.
    Resting(Resting),
}

/// A connection between two requests.
#[derive(Debug)]
pub(crate) struct Resting {
    wire: Rc<Wire>,
    reader: HeadReader,
}

impl Resting {
    /// A connection at its start; `start` has been read from it already.
    pub(crate) fn new(pipe: Pipe<Socket>, start: BytesMut) -> Self {
        Self {
            wire: Rc::new(Wire::new(pipe, start)),
            reader: HeadReader::default(),
        }
    }

    /// Serves it until it ends or rests; `first` is what has come already.
    pub(crate) async fn serve(
        self,
        worker: &Rc<Worker>,
        client: &Rc<Client>,
        mut first: Option<Box<Next>>,
    ) -> Left {
        let Self { wire, mut reader } = self;
        loop {
            let next = match first.take() {
                Some(next) => *next,
                None => {
                    let limits = worker.state.head_limits();
                    let incoming = poll_fn(|cx| wire.poll_head(cx, client, &mut reader, &limits));
                    Next::Incoming(incoming.await)
                }
            };
            let ended = match next {
                Next::Incoming(Incoming::Head(head, turn)) => {
                    serve_one(worker, client, &wire, head, turn).await
                }
                Next::Asked(asked) => {
                    finish(
                        worker,
                        client,
                        &wire,
                        asked.turn,
                        asked.asker,
                        asked.serving,
                    )
                    .await
                }
                Next::Answered => written(&wire, true).await,
                Next::Incoming(Incoming::Bad(violation)) => {
                    refuse(worker, client, &wire, violation).await
                }
                Next::Incoming(Incoming::End) => Ended::Close,
                Next::Incoming(Incoming::Rest) => return Left::Resting(Self { wire, reader }),
            };
            match ended {
                Ended::Kept => {}
                Ended::Upgraded(tunnel) => return upgraded(wire, tunnel),
                Ended::Cut => return Left::Nothing,
                Ended::Close => break,
            }
        }
        wire.close().await;
        Left::Nothing
    }

    /// Reads what has come, for [`Resting::refuse`].
    pub(crate) fn read(&self) {
        self.wire.read_ready();
    }

    /// Refuses what has come, where that is all there is to do, up to where it is written. Says
    /// what there is otherwise.
    pub(crate) fn refuse(&mut self, worker: &Rc<Worker>, client: &Rc<Client>) -> Greeted {
        let mut cx = Context::from_waker(Waker::noop());
        let (reader, limits) = (&mut self.reader, worker.state.head_limits());
        let (head, turn) = match self.wire.poll_head(&mut cx, client, reader, &limits) {
            Poll::Ready(Incoming::Head(head, turn)) => (head, turn),
            Poll::Ready(Incoming::Rest) | Poll::Pending => return Greeted::Goes(None),
            Poll::Ready(incoming) => {
                return Greeted::Goes(Some(Box::new(Next::Incoming(incoming))));
            }
        };
        let asker = Asker::of(&head.request, head.keep_alive);
        let serving = request::serve(worker, client, request(&self.wire, head, turn));
        let stays = asker.takes_ready_words()
            && asker.keep_alive
            && !turn.has_body
            && client.command() == ConnectionCommand::None;
        let shed = match serving {
            Serving::Done(Some(Served::Shed(shed))) if stays => shed,
            serving => {
                let asked = Box::new(Asked {
                    turn,
                    asker,
                    serving,
                });
                return Greeted::Goes(Some(Box::new(Next::Asked(asked))));
            }
        };
        if self.wire.put_refusal(worker, &shed, true) {
            Greeted::Stays
        } else {
            // There is more than one request.
            Greeted::Goes(Some(Box::new(Next::Answered)))
        }
    }

    /// Writes what [`Resting::refuse`] has to say.
    pub(crate) fn write(&self) -> Greeted {
        match self.wire.write_ready() {
            Poll::Ready(Ok(())) => Greeted::Stays,
            Poll::Ready(Err(_)) => Greeted::Gone,
            Poll::Pending => Greeted::Goes(Some(Box::new(Next::Answered))),
        }
    }

    /// Lets the runtime forget the connection, and shows its socket.
    ///
    /// # Errors
    /// When there is no socket, or the runtime does not let go of it.
    pub(crate) fn rest(
        &self,
        watch: impl FnOnce(BorrowedFd<'_>) -> io::Result<()>,
    ) -> io::Result<()> {
        self.wire.unwatch(watch)
    }

    /// Gives back the memory that is needed while requests flow.
    pub(crate) fn shrink(&self) {
        self.wire.shrink();
    }
}

/// What becomes of a connection that rested, after something came.
pub(crate) enum Greeted {
    /// It rests on.
    Stays,
    /// The client has left.
    Gone,
    /// It needs a task, which begins with this.
    Goes(Option<Box<Next>>),
}

/// What comes next on a connection.
pub(crate) enum Next {
    Incoming(Incoming),
    /// A request that the engine has been asked about.
    Asked(Box<Asked>),
    /// Part of an answer has still to be written.
    Answered,
}

/// A request that is being served.
pub(crate) struct Asked {
    turn: Turn,
    asker: Asker,
    serving: Serving,
}

/// How a connection is after a request.
enum Ended {
    /// Ready for the next one.
    Kept,
    /// To be closed in good order.
    Close,
    /// The client has left, or must see that something is missing.
    Cut,
    Upgraded(Box<Tunnel>),
}

/// Serves the request of a head. What has become of the head is no part of the future: it would be
/// kept, and moved, with every connection.
fn serve_one(
    worker: &Rc<Worker>,
    client: &Rc<Client>,
    wire: &Rc<Wire>,
    head: Head,
    turn: Turn,
) -> impl Future<Output = Ended> {
    let asker = Asker::of(&head.request, head.keep_alive);
    let serving = request::serve(worker, client, request(wire, head, turn));
    finish(worker, client, wire, turn, asker, serving)
}

async fn finish(
    worker: &Rc<Worker>,
    client: &Rc<Client>,
    wire: &Rc<Wire>,
    turn: Turn,
    mut asker: Asker,
    mut serving: Serving,
) -> Ended {
    let served = poll_fn(|cx| wire.poll_serving(cx, client, &asker, Pin::new(&mut serving))).await;
    client.count_refusal(matches!(served, Some(Served::Shed(_))));
    let response = match served {
        Some(Served::Response(response)) => response,
        Some(Served::Shed(shed)) if asker.takes_ready_words() && wire.is_drained(turn.has_body) => {
            asker.keep_alive &= client.command() < ConnectionCommand::Close;
            wire.put_refusal(worker, &shed, asker.keep_alive);
            return written(wire, asker.keep_alive).await;
        }
        Some(Served::Shed(shed)) => shed.into(),
        Some(Served::Reset(_)) | None => return Ended::Cut,
    };
    respond(worker, client, wire, response, &mut asker, turn.has_body).await
}

/// Waits until an answer is written.
async fn written(wire: &Wire, keep_alive: bool) -> Ended {
    match wire.written().await {
        Ok(()) if keep_alive => Ended::Kept,
        Ok(()) => Ended::Close,
        Err(_) => Ended::Cut,
    }
}

/// Takes the connection out for another protocol, unless somebody else still holds it.
fn upgraded(wire: Rc<Wire>, tunnel: Box<Tunnel>) -> Left {
    match Wire::into_parts(wire) {
        None => Left::Nothing,
        Some((pipe, early)) => Left::Upgraded(Upgraded {
            tunnel,
            pipe,
            early,
        }),
    }
}

/// Makes the request of a head: its body is read through the wire.
fn request(wire: &Rc<Wire>, head: Head, turn: Turn) -> Request<Inbound> {
    head.request.map(|()| {
        if turn.has_body {
            Inbound::http1(Rc::clone(wire), turn.number)
        } else {
            Inbound::Empty
        }
    })
}

/// Answers what is no request, in its turn, and ends the connection.
async fn refuse(
    worker: &Rc<Worker>,
    client: &Rc<Client>,
    wire: &Rc<Wire>,
    violation: Violation,
) -> Ended {
    client.linger();
    let response = request::refuse(worker, client, violation);
    let mut asker = Asker {
        version: Version::HTTP_11,
        head: false,
        trailers: false,
        keep_alive: false,
    };
    respond(worker, client, wire, response, &mut asker, true).await
}

async fn respond(
    worker: &Rc<Worker>,
    client: &Rc<Client>,
    wire: &Rc<Wire>,
    response: Response<Outbound>,
    asker: &mut Asker,
    has_body: bool,
) -> Ended {
    // A body that nobody will read any more stands before the next request.
    let unread = !wire.is_drained(has_body) && Rc::strong_count(wire) == 1;
    asker.keep_alive &= !unread && client.command() < ConnectionCommand::Close;
    let switched = response.status == StatusCode::SWITCHING_PROTOCOLS;
    let (mut body, mut encoder) = wire.begin_response(worker, response, asker);
    let sent = poll_fn(|cx| wire.poll_respond(cx, &mut body, &mut encoder)).await;
    match (sent, body) {
        (Err(_), _) => Ended::Cut,
        (Ok(()), Outbound::Tunnel(tunnel)) if switched => Ended::Upgraded(tunnel),
        (Ok(()), _) => match (wire.is_drained(has_body), asker.keep_alive) {
            (true, true) => Ended::Kept,
            (true, false) => Ended::Close,
            (false, _) => {
                client.linger();
                Ended::Close
            }
        },
    }
}

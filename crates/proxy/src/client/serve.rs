//! Runs a client's connection.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Poll, Waker};

use bytes::BytesMut;
use tokio::io::AsyncReadExt;

use super::http1::{Left, Next, Resting};
use super::socket::Socket;
use super::{Client, ConnectionCommand, Protocol, http2};
use crate::pipe::Pipe;
use crate::worker::{Registration, Worker};

/// How an HTTP/2 connection with prior knowledge begins.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Bytes to read before it is known which protocol a client speaks. Chosen: most first requests,
/// and no more than an allocator has at hand, since many a connection has no second one.
const START: usize = 1 << 10;

/// Serves a connection without TLS: HTTP/1.1, or HTTP/2 if the client begins with it.
pub(crate) async fn plain(worker: &Rc<Worker>, client: Rc<Client>, socket: Socket, http2: bool) {
    let registration = worker.register(Rc::clone(&client));
    let mut pipe = Pipe::Plain(socket);
    let start = if http2 {
        obey(&client, pin!(sniff(&mut pipe)), After::End).await
    } else {
        Some(Ok(BytesMut::new()))
    };
    let Some(Ok(start)) = start else {
        return;
    };
    if start.starts_with(PREFACE) {
        client.set_protocol(Protocol::Http2);
    }
    run(worker, client, pipe, start, registration).await;
}

/// Serves a connection whose protocol TLS has negotiated.
pub(crate) async fn negotiated(worker: &Rc<Worker>, client: Rc<Client>, pipe: Pipe<Socket>) {
    let registration = worker.register(Rc::clone(&client));
    run(worker, client, pipe, BytesMut::new(), registration).await;
}

/// Reads until it is clear whether the client speaks HTTP/2.
async fn sniff(pipe: &mut Pipe<Socket>) -> io::Result<BytesMut> {
    let mut start = BytesMut::with_capacity(START);
    loop {
        if pipe.read_buf(&mut start).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let known = start.len().min(PREFACE.len());
        if start[..known] != PREFACE[..known] || known == PREFACE.len() {
            return Ok(start);
        }
    }
}

/// Errors are the client's: it left, or broke the protocol and was told.
async fn run(
    worker: &Rc<Worker>,
    client: Rc<Client>,
    pipe: Pipe<Socket>,
    start: BytesMut,
    registration: Registration,
) {
    if client.protocol() == Protocol::Http2 {
        // Boxed: it is far larger, and most connections are not.
        let mut connection = Box::pin(http2::serve(worker, &client, pipe, start));
        obey(&client, connection.as_mut(), After::Finish).await;
        return;
    }
    serve_on(
        worker,
        client,
        Resting::new(pipe, start),
        None,
        registration,
    )
    .await;
}

/// Serves an HTTP/1.1 connection until it ends, or rests; `first` is what has come already.
pub(crate) async fn serve_on(
    worker: &Rc<Worker>,
    client: Rc<Client>,
    connection: Resting,
    first: Option<Box<Next>>,
    registration: Registration,
) {
    let left = {
        let serving = pin!(connection.serve(worker, &client, first));
        obey(&client, serving, After::Finish).await
    };
    match left {
        Some(Left::Upgraded(upgraded)) => {
            // What is no longer HTTP is not for the sweep to judge.
            drop(registration);
            Box::pin(upgraded.run(&client)).await;
        }
        Some(Left::Resting(connection)) => worker.lobby.seat(client, connection, registration),
        Some(Left::Nothing) | None => {}
    }
}

/// What follows when a connection is to be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum After {
    /// It sees that itself, and finishes what is in flight.
    Finish,
    /// Nothing is in flight.
    End,
}

/// Runs a connection's future until it ends or the sweep wants it to. `None` if it was cut off.
pub(crate) async fn obey<F: Future>(
    client: &Client,
    mut future: Pin<&mut F>,
    after_close: After,
) -> Option<F::Output> {
    let mut known: Option<Waker> = None;
    poll_fn(|cx| {
        // It changes once: when a connection gets its task.
        let is_new = |known: &Waker| !known.will_wake(cx.waker());
        if known.as_ref().is_none_or(is_new) {
            client.set_task(cx.waker());
            known = Some(cx.waker().clone());
        }
        if client.command() == ConnectionCommand::Abort {
            return Poll::Ready(None);
        }
        // Bytes received before the close are still processed.
        match future.as_mut().poll(cx) {
            Poll::Pending
                if client.command() == ConnectionCommand::Close && after_close == After::End =>
            {
                Poll::Ready(None)
            }
            polled => polled.map(Some),
        }
    })
    .await
}

//! HTTP/2 with a client, by the h2 crate.
//!
//! What is decided at once, a refusal above all, is answered where it is accepted; only a request
//! that goes on gets a task. Answers to requests that came together leave together.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use h2::server::{Builder, Connection, SendResponse};
use h2::{Reason, RecvStream, SendStream};
use http::header::{CONNECTION, CONTENT_LENGTH, DATE};
use http::{HeaderValue, Method};
use http_body::Body as _;

use super::counted::Counted;
use super::inbound::Inbound;
use super::socket::Socket;
use super::{Client, ConnectionCommand};
use crate::config::Limits;
use crate::message::Request;
use crate::pipe::Pipe;
use crate::refuse::Shed;
use crate::request::{self, Served, Serving};
use crate::response::body::Outbound;
use crate::worker::Worker;

/// Flow-control windows: what one connection may make us hold.
const STREAM_WINDOW: u32 = 64 << 10;
const CONNECTION_WINDOW: u32 = 256 << 10;

/// The largest frame that clients may send: the smallest that can be asked for.
const FRAME_BYTES: u32 = 16 << 10;

/// Serves a connection to its end; `start` has been read from it already.
pub(crate) async fn serve(
    worker: &Rc<Worker>,
    client: &Rc<Client>,
    pipe: Pipe<Socket>,
    start: BytesMut,
) {
    let io = Counted::new(pipe, Rc::clone(client), start);
    let builder = builder(&worker.settings().config.limits);
    let Ok(mut connection) = builder.handshake(io).await else {
        return;
    };
    let mut closing = false;
    poll_fn(|cx| {
        if !closing && client.command() >= ConnectionCommand::Close {
            closing = true;
            connection.graceful_shutdown();
        }
        poll_requests(cx, &mut connection, worker, client)
    })
    .await;
}

fn builder(limits: &Limits) -> Builder {
    let head_bytes = u32::try_from(*limits.head_bytes).unwrap_or(u32::MAX);
    let response_buffer = usize::try_from(*limits.response_buffer).unwrap_or(usize::MAX);
    let mut builder = Builder::new();
    builder
        .max_concurrent_streams(limits.streams)
        .max_header_list_size(head_bytes)
        .max_frame_size(FRAME_BYTES)
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buffer_size(response_buffer)
        .max_local_error_reset_streams(Some(limits.early_resets as usize));
    builder
}

/// Takes in what has come, and writes the answers that are there. Ready at the end.
fn poll_requests(
    cx: &mut Context<'_>,
    connection: &mut Connection<Counted, Bytes>,
    worker: &Rc<Worker>,
    client: &Rc<Client>,
) -> Poll<()> {
    loop {
        match connection.poll_accept(cx) {
            Poll::Ready(Some(Ok((request, reply)))) => {
                client.cork(true);
                accept(worker, client, request.into(), Reply::new(worker, reply));
            }
            // The client left, or broke the protocol and was told.
            Poll::Ready(Some(Err(_)) | None) => return Poll::Ready(()),
            // h2 writes when it is asked for the next request.
            Poll::Pending if client.is_corked() => client.cork(false),
            Poll::Pending => return Poll::Pending,
        }
    }
}

fn accept(
    worker: &Rc<Worker>,
    client: &Rc<Client>,
    request: Request<RecvStream>,
    mut reply: Reply,
) {
    reply.to_head = request.method == Method::HEAD;
    let request = Inbound::http2(request);
    let serving = request::serve(worker, client, request);
    let unfinished = match serving {
        Serving::Done(served) => served.and_then(|served| reply.give(served)),
        going @ Serving::Going(_) => {
            tokio::task::spawn_local(serve_on(going, reply));
            return;
        }
    };
    if let Some((body, stream)) = unfinished {
        tokio::task::spawn_local(send(body, stream));
    }
}

/// Serves a request that has to wait. It ends early if its client cancels it.
async fn serve_on(serving: Serving, mut reply: Reply) {
    let served = {
        let mut serving = pin!(serving);
        poll_fn(|cx| match serving.as_mut().poll(cx) {
            Poll::Ready(served) => Poll::Ready(Some(served)),
            Poll::Pending => reply.stream.poll_reset(cx).map(|_| None),
        })
        .await
    };
    let unfinished = served.and_then(|served| reply.give(served));
    if let Some((body, stream)) = unfinished {
        send(body, stream).await;
    }
}

/// The answer to one request.
struct Reply {
    worker: Rc<Worker>,
    stream: SendResponse<Bytes>,
    to_head: bool,
}

impl Reply {
    fn new(worker: &Rc<Worker>, stream: SendResponse<Bytes>) -> Self {
        Self {
            worker: Rc::clone(worker),
            stream,
            to_head: false,
        }
    }

    /// Answers, as far as there is no need to wait. Gives what is left to send.
    fn give(&mut self, served: Served) -> Option<(Outbound, SendStream<Bytes>)> {
        let mut response = match served {
            Served::Response(response) => response,
            Served::Shed(shed) => return self.shed(&shed),
            Served::Reset(reason) => {
                self.stream.send_reset(reason);
                return None;
            }
        };
        let headers = &mut response.headers;
        // What concerns the connection is said in frames.
        headers.remove(CONNECTION);
        headers.insert_if_absent(DATE, || self.worker.date());
        let length = response.body.size_hint().exact();
        if let Some(length @ 1..) = length {
            headers.insert_if_absent(CONTENT_LENGTH, || HeaderValue::from(length));
        }
        let ends = self.to_head || response.body.is_end_stream();
        let (head, body) = http::Response::from(response).into_parts();
        let head = http::Response::from_parts(head, ());
        let mut stream = self.start(head, ends)?;
        match body {
            _ if ends => None,
            Outbound::Full(data) => {
                // A client that has left misses nothing.
                let _ = stream.send_data(data, true);
                None
            }
            body => Some((body, stream)),
        }
    }

    /// Answers that there is no room; nothing is left to send.
    fn shed(&mut self, shed: &Shed) -> Option<(Outbound, SendStream<Bytes>)> {
        let head = shed.http2(self.worker.date());
        let ends = self.to_head || shed.body().is_empty();
        let mut stream = self.start(head, ends)?;
        if !ends {
            let _ = stream.send_data(shed.body(), true);
        }
        None
    }

    fn start(&mut self, head: http::Response<()>, ends: bool) -> Option<SendStream<Bytes>> {
        let started = self.stream.send_response(head, ends);
        if started.is_err() {
            self.stream.send_reset(Reason::INTERNAL_ERROR);
        }
        started.ok()
    }
}

/// Sends a body as fast as its client takes it. Ended early, it is dropped with all it holds.
async fn send(mut body: Outbound, mut stream: SendStream<Bytes>) {
    loop {
        let next = poll_fn(|cx| {
            if stream.poll_reset(cx).is_ready() {
                return Poll::Ready(None);
            }
            let frame = pin!(&mut body).poll_frame(cx);
            frame.map(Some)
        })
        .await;
        let sent = match next {
            // It was cancelled.
            None => return,
            Some(Some(Err(_))) => {
                // A reset takes the place of all that has not been written yet.
                tokio::task::yield_now().await;
                stream.send_reset(Reason::INTERNAL_ERROR);
                return;
            }
            Some(None) => stream.send_data(Bytes::new(), true).map(|()| true),
            Some(Some(Ok(frame))) => match frame.into_data() {
                Ok(data) => {
                    let ends = body.is_end_stream();
                    if !data.is_empty() && !has_capacity(&mut stream, &body).await {
                        return;
                    }
                    stream.send_data(data, ends).map(|()| ends)
                }
                Err(frame) => match frame.into_trailers() {
                    Ok(trailers) => stream.send_trailers(trailers).map(|()| true),
                    Err(_) => Ok(false),
                },
            },
        };
        if !matches!(sent, Ok(false)) {
            return;
        }
    }
}

/// Waits until the client takes more; false if it takes nothing any more. A byte of capacity is
/// enough: h2 asks for the rest when it has the data, and what is not there yet claims no window.
async fn has_capacity(stream: &mut SendStream<Bytes>, body: &Outbound) -> bool {
    stream.reserve_capacity(1);
    poll_fn(|cx| {
        loop {
            if stream.poll_reset(cx).is_ready() {
                return Poll::Ready(false);
            }
            if stream.capacity() > 0 {
                body.set_blocked(false);
                return Poll::Ready(true);
            }
            match stream.poll_capacity(cx) {
                Poll::Pending => {
                    body.set_blocked(true);
                    return Poll::Pending;
                }
                Poll::Ready(Some(Ok(_))) => {}
                Poll::Ready(Some(Err(_)) | None) => return Poll::Ready(false),
            }
        }
    })
    .await
}

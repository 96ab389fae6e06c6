//! Runs a client's connection.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

use bytes::BytesMut;
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::{HttpService, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::AsyncReadExt;

use super::counted::Counted;
use super::http1;
use super::inbound::Inbound;
use super::socket::Socket;
use super::{Client, Order, Protocol};
use crate::config::Limits;
use crate::pipe::Pipe;
use crate::request;
use crate::response::body::Outbound;
use crate::worker::{Registration, Worker};

/// How an HTTP/2 connection with prior knowledge begins.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Flow-control windows for HTTP/2 clients: what one connection may make us hold.
const STREAM_WINDOW: u32 = 64 << 10;
const CONNECTION_WINDOW: u32 = 256 << 10;

/// Bytes to read before it is known which protocol a client speaks.
const START: usize = 4 << 10;

/// Serves a connection without TLS: HTTP/1.1, or HTTP/2 if the client begins with it.
pub(crate) async fn plain(worker: Arc<Worker>, client: Arc<Client>, socket: Socket, http2: bool) {
    let registration = worker.register(Arc::clone(&client));
    let mut pipe = Pipe::Plain(socket);
    let start = match http2 {
        true => obey(&client, pin!(sniff(&mut pipe)), |_| After::End).await,
        false => Some(Ok(BytesMut::new())),
    };
    let Some(Ok(start)) = start else {
        return;
    };
    if start.starts_with(PREFACE) {
        client.set_protocol(Protocol::Http2);
    }
    run(&worker, client, pipe, start, registration).await;
}

/// Serves a connection whose protocol TLS has negotiated.
pub(crate) async fn negotiated(worker: Arc<Worker>, client: Arc<Client>, pipe: Pipe<Socket>) {
    let registration = worker.register(Arc::clone(&client));
    run(&worker, client, pipe, BytesMut::new(), registration).await;
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
    worker: &Arc<Worker>,
    client: Arc<Client>,
    pipe: Pipe<Socket>,
    start: BytesMut,
    registration: Registration,
) {
    if client.protocol() == Protocol::Http2 {
        // Boxed: it is far larger, and most connections are not.
        return Box::pin(http2(worker, &client, pipe, start)).await;
    }
    let connection = pin!(http1::serve(worker, &client, pipe, start));
    // It looks at its orders itself, where it is between two requests.
    let served = obey(&client, connection, |_| After::Finish).await;
    if let Some(Some(upgraded)) = served {
        // What is no longer HTTP is not for the sweep to judge.
        drop(registration);
        Box::pin(upgraded.run(&client)).await;
    }
}

async fn http2(worker: &Arc<Worker>, client: &Arc<Client>, pipe: Pipe<Socket>, start: BytesMut) {
    let connection = {
        let settings = worker.state.settings();
        let io = Counted::new(pipe, Arc::clone(client), start);
        http2_builder(&settings.config.limits)
            .serve_connection(TokioIo::new(io), service(worker, client))
    };
    obey(client, pin!(connection), |connection| {
        connection.graceful_shutdown();
        After::Finish
    })
    .await;
}

fn service(
    worker: &Arc<Worker>,
    client: &Arc<Client>,
) -> impl HttpService<Incoming, ResBody = Outbound, Error = h2::Error, Future: Send> + Send + use<>
{
    let (worker, client) = (Arc::clone(worker), Arc::clone(client));
    service_fn(move |request: Request<Incoming>| {
        let request = request.map(Inbound::Http2);
        request::serve(Arc::clone(&worker), Arc::clone(&client), request)
    })
}

fn http2_builder(limits: &Limits) -> http2::Builder<TokioExecutor> {
    let head_bytes = u32::try_from(*limits.head_bytes).unwrap_or(u32::MAX);
    let response_buffer = usize::try_from(*limits.response_buffer).unwrap_or(usize::MAX);
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .max_concurrent_streams(limits.streams)
        .max_header_list_size(head_bytes)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(response_buffer)
        .max_local_error_reset_streams(limits.early_resets as usize);
    builder
}

/// What follows when a connection is to be closed.
enum After {
    /// It finishes what is in flight.
    Finish,
    /// Nothing is in flight.
    End,
}

/// Runs a connection's future until it ends or the sweep wants it to. `close` begins an orderly
/// end. `None` if it was cut off.
async fn obey<F: Future>(
    client: &Client,
    mut future: Pin<&mut F>,
    close: impl Fn(Pin<&mut F>) -> After,
) -> Option<F::Output> {
    let mut closing = false;
    let mut known = false;
    poll_fn(|cx| {
        if !known {
            // A task's waker stays the same as long as the task lives.
            client.set_task(cx.waker());
            known = true;
        }
        match client.order() {
            Order::Abort => return Poll::Ready(None),
            Order::Close if !closing => {
                closing = true;
                if let After::End = close(future.as_mut()) {
                    return Poll::Ready(None);
                }
            }
            Order::None | Order::Timeout | Order::Close => {}
        }
        future.as_mut().poll(cx).map(Some)
    })
    .await
}

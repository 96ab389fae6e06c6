//! Runs hyper on a client's connection.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::{HttpService, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};

use super::inspect::Inspector;
use super::scan::ScanLimits;
use super::{Client, Order, Protocol};
use crate::config::Limits;
use crate::request;
use crate::response::body::Outbound;
use crate::worker::Worker;

/// How an HTTP/2 connection with prior knowledge begins.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// hyper parses this many headers on its stack; more make it allocate.
const HEADERS_ON_STACK: usize = 100;
/// hyper's smallest buffer, and room for the longest head beside what is already read.
const BUFFER_BYTES_MIN: usize = 16 << 10;

/// Flow-control windows for HTTP/2 clients: what one connection may make us hold.
const STREAM_WINDOW: u32 = 64 << 10;
const CONNECTION_WINDOW: u32 = 256 << 10;

/// Serves a connection without TLS: HTTP/1.1, or HTTP/2 if the client begins with it.
pub(crate) async fn plain<S>(worker: Arc<Worker>, client: Arc<Client>, mut io: S, http2: bool)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let _registration = worker.register(Arc::clone(&client));
    let start = match http2 {
        true => obey(&client, pin!(sniff(&mut io)), |_| After::End).await,
        false => Some(Ok(Vec::new())),
    };
    let Some(Ok(start)) = start else {
        return;
    };
    if start.starts_with(PREFACE) {
        client.set_protocol(Protocol::Http2);
    } else if !start.is_empty() {
        client.postpone_reads();
    }
    run(&worker, client, io, start).await;
}

/// Serves a connection whose protocol TLS has negotiated.
pub(crate) async fn negotiated<S>(worker: Arc<Worker>, client: Arc<Client>, io: S)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let _registration = worker.register(Arc::clone(&client));
    run(&worker, client, io, Vec::new()).await;
}

/// Reads until it is clear whether the client speaks HTTP/2.
async fn sniff<S: AsyncRead + Unpin>(io: &mut S) -> io::Result<Vec<u8>> {
    let mut start = Vec::with_capacity(1024);
    loop {
        if io.read_buf(&mut start).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let known = start.len().min(PREFACE.len());
        if start[..known] != PREFACE[..known] || known == PREFACE.len() {
            return Ok(start);
        }
    }
}

/// Errors are the client's: it left, or broke the protocol and was told.
async fn run<S>(worker: &Arc<Worker>, client: Arc<Client>, io: S, start: Vec<u8>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    match client.protocol() {
        Protocol::Http1 => http1(worker, &client, io, start).await,
        // Boxed: it is far larger, and most connections are not.
        Protocol::Http2 => Box::pin(http2(worker, &client, io, start)).await,
    }
}

async fn http1<S>(worker: &Arc<Worker>, client: &Arc<Client>, io: S, start: Vec<u8>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let connection = {
        let settings = worker.state.settings();
        let limits = &settings.config.limits;
        let io = Inspector::http1(io, Arc::clone(client), start, scan_limits(limits));
        http1_builder(limits)
            .serve_connection(TokioIo::new(io), service(worker, client))
            .with_upgrades()
    };
    obey(client, pin!(connection), |connection| {
        connection.graceful_shutdown();
        After::Finish
    })
    .await;
}

async fn http2<S>(worker: &Arc<Worker>, client: &Arc<Client>, io: S, start: Vec<u8>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let connection = {
        let settings = worker.state.settings();
        let io = Inspector::http2(io, Arc::clone(client), start);
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
    service_fn(move |request| request::serve(Arc::clone(&worker), Arc::clone(&client), request))
}

fn scan_limits(limits: &Limits) -> ScanLimits {
    ScanLimits {
        head_bytes: usize::try_from(*limits.head_bytes).unwrap_or(usize::MAX),
        headers: limits.headers,
    }
}

fn http1_builder(limits: &Limits) -> http1::Builder {
    let buffered = (*limits.head_bytes).max(*limits.response_buffer);
    let buffered = usize::try_from(buffered).unwrap_or(usize::MAX / 2);
    let mut builder = http1::Builder::new();
    // The sweep keeps the time: a timer here would cost a system call every few requests.
    builder.header_read_timeout(None);
    builder.max_buf_size(buffered.max(BUFFER_BYTES_MIN));
    if limits.headers > HEADERS_ON_STACK {
        builder.max_headers(limits.headers);
    }
    builder
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
        let mut polled = future.as_mut().poll(cx);
        if polled.is_pending() && client.resume_reads() {
            polled = future.as_mut().poll(cx);
        }
        polled.map(Some)
    })
    .await
}

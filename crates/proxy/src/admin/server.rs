//! The admin listener's connections.

use std::collections::VecDeque;
use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http_body_util::Either;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::task::{AbortHandle, JoinSet};

use super::{Operator, calls};

/// Connections at a time: dashboards, scrapers, terminals.
const CONNECTIONS_MAX: usize = 128;
/// A call's head must be complete within this time.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of a call's head.
const HEAD_MAX: usize = 16 << 10;
/// After a failed accept (out of descriptors) the next try waits this long.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves calls until it is dropped, connections included.
pub(super) async fn serve(listener: TcpListener, operator: Arc<Operator>) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let mut connections = JoinSet::new();
    let mut oldest_first = VecDeque::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        while connections.try_join_next().is_some() {}
        make_room(&mut oldest_first);
        let streams = Arc::<AtomicBool>::default();
        let conversation = converse(stream, Arc::clone(&operator), Arc::clone(&streams));
        let task = connections.spawn(conversation);
        oldest_first.push_back(Connection { task, streams });
    }
}

struct Connection {
    task: AbortHandle,
    /// Its caller reads the stream of events.
    streams: Arc<AtomicBool>,
}

/// Beyond the bound the oldest connection is closed, so that a health check always gets through,
/// whatever the others do. A stream of events is old because somebody reads it: it is closed last,
/// and there are fewer of them than connections.
fn make_room(oldest_first: &mut VecDeque<Connection>) {
    oldest_first.retain(|connection| !connection.task.is_finished());
    while oldest_first.len() >= CONNECTIONS_MAX {
        let is_call = |it: &Connection| !it.streams.load(Ordering::Relaxed);
        let closed = oldest_first.iter().position(is_call).unwrap_or(0);
        if let Some(connection) = oldest_first.remove(closed) {
            connection.task.abort();
        }
    }
}

/// A connection that breaks is its caller's business.
async fn converse(stream: TcpStream, operator: Arc<Operator>, streams: Arc<AtomicBool>) {
    let _ = stream.set_nodelay(true);
    let service = service_fn(|request| {
        let (operator, streams) = (Arc::clone(&operator), Arc::clone(&streams));
        async move {
            let answer = calls::answer(operator, request).await;
            let is_stream = matches!(answer.body(), Either::Right(_));
            streams.store(is_stream, Ordering::Relaxed);
            Ok::<_, std::convert::Infallible>(answer)
        }
    });
    let _ = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(HEAD_MAX)
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

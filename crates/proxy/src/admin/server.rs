//! The admin listener's connections.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

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
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        while connections.try_join_next().is_some() {}
        // Beyond the bound the stream is dropped, which closes it.
        if let Ok(permit) = Arc::clone(&room).try_acquire_owned() {
            let operator = Arc::clone(&operator);
            connections.spawn(async move {
                converse(stream, operator).await;
                drop(permit);
            });
        }
    }
}

/// A connection that breaks is its caller's business.
async fn converse(stream: TcpStream, operator: Arc<Operator>) {
    let _ = stream.set_nodelay(true);
    let service = service_fn(|request| {
        let operator = Arc::clone(&operator);
        async move { Ok::<_, std::convert::Infallible>(calls::answer(operator, request).await) }
    });
    let _ = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(HEAD_MAX)
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

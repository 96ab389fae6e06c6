//! The nucleus beside a service that is not written in Rust: a small reverse proxy on the same
//! machine.
//!
//! It forwards everything unchanged, adds the measurements to the answers, and passes
//! `tidegate-optional` on, so that the application in whatever language needs to look at one
//! header. It has no limits and no timeouts of its own, since the proxy in front of it has; for the
//! same reason it belongs on an address that only the proxy reaches.

mod forward;
mod hop;
mod upstream;

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpStream};

use crate::nucleus::Nucleus;
use forward::Forwarder;
pub use upstream::{BadUpstream, Upstream};

/// Pause after a failed accept: out of descriptors, trying again at once would only burn the CPU
/// that is needed to close some. Chosen.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// Serves until `stop` is done, then lets requests in flight finish for at most `grace`. Returns
/// how many were cut; streams are waited for, upgraded connections (WebSockets) are not.
pub async fn serve(
    listener: TcpListener,
    upstream: Upstream,
    nucleus: Arc<Nucleus>,
    stop: impl Future<Output = ()>,
    grace: Duration,
) -> usize {
    let forwarder = Arc::new(Forwarder::new(upstream, Arc::clone(&nucleus)));
    let graceful = GracefulShutdown::new();
    let mut stop = std::pin::pin!(stop);
    loop {
        tokio::select! {
            stream = accept(&listener) => spawn(stream, Arc::clone(&forwarder), &graceful),
            () = &mut stop => break,
        }
    }
    // A connection from here on is refused at once, and another process can have the port.
    drop(listener);
    match tokio::time::timeout(grace, graceful.shutdown()).await {
        Ok(()) => 0,
        Err(_) => nucleus.reading().present,
    }
}

async fn accept(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
}

fn spawn(stream: TcpStream, forwarder: Arc<Forwarder>, graceful: &GracefulShutdown) {
    // Without it an answer in two parts waits for the reader's delayed acknowledgement.
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request| {
        let forwarder = Arc::clone(&forwarder);
        async move { Ok::<_, Infallible>(forwarder.forward(request).await) }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    // The proxy keeps idle connections for as long as it likes.
    builder.http1().header_read_timeout(None);
    let connection = builder
        .serve_connection_with_upgrades(TokioIo::new(stream), service)
        .into_owned();
    tokio::spawn(graceful.watch(connection));
}

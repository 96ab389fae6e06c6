//! The demo upstream: an HTTP server whose capacity is virtual.
//!
//! It behaves like a service with this many workers and so much work per request, but its work is
//! waiting, not computing: a hundred replicas fit into one process, and an experiment gives the
//! same result on a fast and on a slow machine.
//!
//! | request | answer |
//! | --- | --- |
//! | `GET /_app/stats` | counts on the virtual clock ([`Stats`]), at once |
//! | `POST /_app/params` | changes to a running upstream ([`Params`]) |
//! | `GET /stream?events=10&every=1s` | server-sent events, after the usual service |
//! | `GET /ws` | a WebSocket that echoes, after the usual service |
//! | anything else | a page, after queueing and service |

mod config;
mod core;
mod http;
mod law;
mod shared;
mod stream;
mod websocket;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

pub use config::{AppConfig, Discipline, Params, ParamsError, SlowPath};
pub use core::Stats;
pub use law::{FORMS as LAW_FORMS, LawTextError, parse_law};

use http::Site;
use shared::Shared;

/// Starts an upstream on the runtime it is called from.
///
/// # Errors
/// The address cannot be listened on.
pub async fn spawn(config: AppConfig) -> io::Result<AppHandle> {
    let listener = TcpListener::bind(config.listen).await?;
    let addr = listener.local_addr()?;
    let shared = Shared::start(&config);
    let site = Arc::new(Site::new(&config, Arc::clone(&shared)));
    let mut tasks = JoinSet::new();
    tasks.spawn(Arc::clone(&shared).run_timer());
    tasks.spawn(accept(listener, site));
    Ok(AppHandle {
        addr,
        shared,
        tasks,
    })
}

/// A running upstream; dropping it closes its listener and every connection.
#[derive(Debug)]
pub struct AppHandle {
    addr: SocketAddr,
    shared: Arc<Shared>,
    tasks: JoinSet<()>,
}

impl AppHandle {
    /// Where it listens.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Changes it from now on.
    ///
    /// # Errors
    /// A change that is not possible; nothing of it is in force then.
    pub fn set_params(&self, params: &Params) -> Result<(), ParamsError> {
        self.shared.set_params(params)
    }

    /// The counts, as of now.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.shared.stats()
    }

    /// Closes the listener and every connection.
    pub async fn shutdown(mut self) {
        self.tasks.shutdown().await;
    }

    /// Runs until the process ends.
    pub async fn serve(mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}

/// Accepts until it is dropped, and its connections with it.
async fn accept(listener: TcpListener, site: Arc<Site>) {
    let mut connections = JoinSet::new();
    loop {
        let Ok((socket, _)) = listener.accept().await else {
            // Out of file descriptors, mostly: let some connections end first.
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            continue;
        };
        // Small answers leave at once; where that cannot be set they leave a little later.
        let _ = socket.set_nodelay(true);
        let site = Arc::clone(&site);
        connections.spawn(async move {
            let service = hyper::service::service_fn(move |request| {
                let site = Arc::clone(&site);
                async move { site.answer(request).await }
            });
            // A client that leaves is an error here and a fact of life.
            let _ = auto::Builder::new(TokioExecutor::new())
                .serve_connection_with_upgrades(TokioIo::new(socket), service)
                .await;
        });
        while connections.try_join_next().is_some() {}
    }
}

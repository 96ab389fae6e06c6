//! Real sockets for the tests: a service behind the proxy, the proxy, and a raw client.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tidegate_proxy::config::Config;
use tidegate_proxy::{Proxy, Running};
pub use tidegate_testing::{Answer, Client, ask, eventually, raw_service, read_head, within};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

pub type Reply = Response<UnsyncBoxBody<Bytes, std::io::Error>>;

pub fn full(data: impl Into<Bytes>) -> UnsyncBoxBody<Bytes, std::io::Error> {
    Full::new(data.into())
        .map_err(|never| match never {})
        .boxed_unsync()
}

pub fn text(data: impl Into<Bytes>) -> Reply {
    Response::new(full(data))
}

/// A service behind the proxy: HTTP/1.1 and HTTP/2.
pub struct Service {
    pub addr: SocketAddr,
    pub requests: Arc<AtomicUsize>,
    pub connections: Arc<AtomicUsize>,
    task: tokio::task::JoinHandle<()>,
}

impl Service {
    pub async fn start<H, F>(handler: H) -> Self
    where
        H: Fn(Request<Incoming>) -> F + Clone + Send + 'static,
        F: Future<Output = Reply> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (requests, connections) =
            (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let (counted, opened) = (Arc::clone(&requests), Arc::clone(&connections));
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                opened.fetch_add(1, Ordering::SeqCst);
                let (handler, counted) = (handler.clone(), Arc::clone(&counted));
                let service = service_fn(move |request| {
                    counted.fetch_add(1, Ordering::SeqCst);
                    let reply = handler(request);
                    async move { Ok::<_, std::convert::Infallible>(reply.await) }
                });
                tokio::spawn(async move {
                    let builder = auto::Builder::new(TokioExecutor::new());
                    let serving =
                        builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
                    let _ = serving.await;
                });
            }
        });
        Self {
            addr,
            requests,
            connections,
            task,
        }
    }

    /// Answers every request with its own method, target, headers and body.
    pub async fn echo() -> Self {
        Self::start(|request| async move { echo(request).await }).await
    }

    /// Answers as many requests as it is given permits.
    pub async fn held() -> (Self, Arc<Semaphore>) {
        let permits = Arc::new(Semaphore::new(0));
        let held = Arc::clone(&permits);
        let service = Self::start(move |_| {
            let held = Arc::clone(&held);
            async move {
                held.acquire().await.unwrap().forget();
                text("served")
            }
        })
        .await;
        (service, permits)
    }

    pub fn count(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn echo(request: Request<Incoming>) -> Reply {
    let (parts, body) = request.into_parts();
    let mut text = format!("{} {} {:?}\n", parts.method, parts.uri, parts.version);
    for (name, value) in &parts.headers {
        text += &format!("{name}: {}\n", String::from_utf8_lossy(value.as_bytes()));
    }
    let body = body
        .collect()
        .await
        .map(|body| body.to_bytes())
        .unwrap_or_default();
    text += &format!("\n{}", String::from_utf8_lossy(&body));
    self::text(text)
}

/// Starts a proxy on a port of its own; `extra` is more of the configuration.
pub fn proxy(replicas: &[SocketAddr], extra: &str) -> Running {
    let urls: Vec<_> = replicas
        .iter()
        .map(|addr| format!("\"http://{addr}\""))
        .collect();
    proxy_from(&format!(
        "upstream.replicas = [{}]\n{PLAIN}\n{extra}",
        urls.join(", ")
    ))
}

/// What every proxy of the tests has: no admin listener, one thread, and an engine that admits all
/// unless the test says otherwise.
pub const PLAIN: &str = "admin = 'off'\nthreads = 1\nlisten = '127.0.0.1:0'\nprotect.mode = 'off'";

pub fn proxy_from(text: &str) -> Running {
    let text = match text.matches("protect.mode").count() {
        2 => text.replacen("protect.mode = 'off'", "", 1),
        _ => text.to_owned(),
    };
    let config = Config::from_text("test.toml", &text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    Proxy::bind(config).unwrap().start().unwrap()
}

pub const GET: &str = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";

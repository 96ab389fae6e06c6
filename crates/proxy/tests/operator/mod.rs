//! A running set of operations with its admin listener, and an operator who calls it.

#![allow(dead_code, reason = "each test uses its own part")]

pub(crate) mod exposition;

use std::future::Future;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tidegate_proxy::Bound;
use tidegate_proxy::admin::Operations;
use tidegate_proxy::config::{self, Config};
use tidegate_proxy::reload::Source;
use tidegate_proxy::state::State;
use tidegate_proxy::ticker::{self, Ticking};
use tokio::net::TcpStream;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinHandle;

/// Longest wait for something that has to happen.
const PATIENCE: Duration = Duration::from_secs(20);

/// A proxy's operations without its data plane.
pub(crate) struct Desk {
    pub(crate) state: Arc<State>,
    pub(crate) addr: SocketAddr,
    _ticking: Ticking,
    running: JoinHandle<()>,
}

impl Drop for Desk {
    fn drop(&mut self) {
        self.running.abort();
    }
}

/// What a call was answered with.
pub(crate) struct Answered {
    pub(crate) status: u16,
    pub(crate) head: http::response::Parts,
    pub(crate) body: String,
}

impl Answered {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }
}

/// Waits for what has to happen.
pub(crate) async fn soon<T>(what: impl Future<Output = T>) -> T {
    let outcome = tokio::time::timeout(PATIENCE, what).await;
    outcome.expect("it should have happened by now")
}

impl Desk {
    /// Starts with a configuration's text; `admin.addr` must have port 0.
    pub(crate) fn start(text: &str) -> Self {
        let config = Config::from_text("test.toml", text).unwrap();
        Self::start_with(config, Source::default())
    }

    /// Starts from a file, which is watched.
    pub(crate) fn start_from(file: &Path) -> Self {
        let config = config::load(file).unwrap().config;
        Self::start_with(config, Source::file(file))
    }

    /// Starts from a file beside a whole proxy, which the caller starts.
    pub(crate) fn beside(proxy: &Bound, file: &Path) -> Self {
        let state = Arc::clone(proxy.state());
        let operations = Operations::bind(Arc::clone(&state), Source::file(file)).unwrap();
        Self::run(state, operations, std::future::pending())
    }

    /// Starts from a file and what a command line adds to it.
    pub(crate) fn start_from_with(file: &Path, flags: fn(&mut Config)) -> Self {
        let config = config::load_with(file, flags).unwrap().config;
        let source = Source {
            flags: Some(Box::new(flags)),
            ..Source::file(file)
        };
        Self::start_with(config, source)
    }

    /// Starts from a file, as the only one of this process that minds SIGHUP.
    pub(crate) fn start_minding_hangups(file: &Path) -> Self {
        let config = config::load(file).unwrap().config;
        let (state, operations) = Self::bind(config, Source::file(file));
        let hangups = operations.reload_on(signal(SignalKind::hangup()).unwrap());
        Self::run(state, operations, hangups)
    }

    fn start_with(config: Config, source: Source) -> Self {
        let (state, operations) = Self::bind(config, source);
        Self::run(state, operations, std::future::pending())
    }

    fn bind(config: Config, source: Source) -> (Arc<State>, Operations) {
        let state = State::new(config).unwrap();
        let operations = Operations::bind(Arc::clone(&state), source).unwrap();
        (state, operations)
    }

    fn run(
        state: Arc<State>,
        operations: Operations,
        until: impl Future<Output = ()> + Send + 'static,
    ) -> Self {
        let addr = operations.admin_addr().unwrap();
        Self {
            _ticking: ticker::start(Arc::clone(&state)).unwrap(),
            state,
            addr,
            running: tokio::spawn(operations.run(until)),
        }
    }

    /// Sends a request as it is.
    pub(crate) async fn send(&self, request: Request<Full<Bytes>>) -> Response<Incoming> {
        let stream = TcpStream::connect(self.addr).await.unwrap();
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        soon(sender.send_request(request)).await.unwrap()
    }

    pub(crate) async fn call(&self, request: Request<Full<Bytes>>) -> Answered {
        let (head, body) = self.send(request).await.into_parts();
        let body = soon(body.collect()).await.unwrap().to_bytes();
        Answered {
            status: head.status.as_u16(),
            head,
            body: String::from_utf8(body.to_vec()).unwrap(),
        }
    }

    /// A request with the headers that a well-behaved program sends.
    pub(crate) fn request(&self, method: Method, path: &str, body: &str) -> Request<Full<Bytes>> {
        Request::builder()
            .method(method)
            .uri(path)
            .header("host", self.addr.to_string())
            .header("content-type", "application/json")
            .body(Full::from(body.to_owned()))
            .unwrap()
    }

    pub(crate) async fn get(&self, path: &str) -> Answered {
        self.call(self.request(Method::GET, path, "")).await
    }

    pub(crate) async fn post(&self, path: &str, body: &str) -> Answered {
        self.call(self.request(Method::POST, path, body)).await
    }

    /// Subscribes to the events; returns once the stream has begun.
    pub(crate) async fn events(&self) -> EventStream {
        let response = self
            .send(self.request(Method::GET, "/api/events", ""))
            .await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        let mut stream = EventStream {
            body: response.into_body(),
            buffer: String::new(),
        };
        stream.block().await;
        stream
    }
}

/// The events as they come in.
pub(crate) struct EventStream {
    body: Incoming,
    buffer: String,
}

impl EventStream {
    /// The next block of the stream, an event or a comment; empty at the end.
    async fn block(&mut self) -> String {
        loop {
            if let Some((block, rest)) = self.buffer.split_once("\n\n") {
                let block = block.to_owned();
                self.buffer = rest.to_owned();
                return block;
            }
            let Some(frame) = soon(self.body.frame()).await else {
                return String::new();
            };
            let data = frame.unwrap().into_data().unwrap();
            self.buffer.push_str(std::str::from_utf8(&data).unwrap());
        }
    }

    /// The data of the next event of this name that `fits`.
    pub(crate) async fn wait_for(&mut self, name: &str, fits: impl Fn(&Value) -> bool) -> Value {
        let search = async {
            loop {
                let block = self.block().await;
                let field = |name: &str| {
                    let mut lines = block.lines();
                    lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
                };
                let data = field("data").and_then(|data| serde_json::from_str(data).ok());
                match data {
                    Some(data) if field("event") == Some(name) && fits(&data) => return data,
                    _ => {}
                }
            }
        };
        soon(search).await
    }
}

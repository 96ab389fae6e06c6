//! Real sockets on free ports: an axum service, a sidecar in front of it, and clients.

#![allow(dead_code, reason = "each test file uses its own part")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, Empty, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tidegate_nucleus::sidecar::{self, Upstream};
use tidegate_nucleus::{Nucleus, NucleusConfig};
use tidegate_testing::within;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Far longer than anything here takes; only a test that hangs meets it.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    (listener, addr)
}

pub(crate) fn nucleus() -> Arc<Nucleus> {
    Nucleus::new(NucleusConfig::default(), None)
}

/// A service with both versions of HTTP, as `axum` starts it.
pub(crate) async fn service(router: Router) -> SocketAddr {
    let (listener, addr) = listen().await;
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    addr
}

/// An address that is taken, and where nothing listens.
pub(crate) fn nobody() -> (socket2::Socket, SocketAddr) {
    use socket2::{Domain, Socket, Type};
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
    socket.bind(&any.into()).unwrap();
    let addr = socket.local_addr().unwrap().as_socket().unwrap();
    (socket, addr)
}

/// A sidecar that can be stopped.
pub(crate) struct Sidecar {
    pub(crate) addr: SocketAddr,
    pub(crate) nucleus: Arc<Nucleus>,
    stop: oneshot::Sender<()>,
    done: JoinHandle<usize>,
}

impl Sidecar {
    pub(crate) async fn before(upstream: &str) -> Self {
        Self::with_grace(upstream, PATIENCE).await
    }

    pub(crate) async fn with_grace(upstream: &str, grace: Duration) -> Self {
        let upstream: Upstream = upstream.parse().unwrap();
        let (listener, addr) = listen().await;
        let nucleus = nucleus();
        let (stop, stopped) = oneshot::channel();
        let stopped = async move { stopped.await.unwrap_or(()) };
        let serve = sidecar::serve(listener, upstream, Arc::clone(&nucleus), stopped, grace);
        Self {
            addr,
            nucleus,
            stop,
            done: tokio::spawn(serve),
        }
    }

    pub(crate) fn stop(self) -> JoinHandle<usize> {
        self.stop.send(()).unwrap();
        self.done
    }
}

/// An answer, read to its end.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) trailers: HeaderMap,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub(crate) fn trailer(&self, name: &str) -> Option<&str> {
        self.trailers.get(name).map(|value| value.to_str().unwrap())
    }
}

/// Which HTTP a client speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Http {
    One,
    Two,
}

pub(crate) fn get(addr: SocketAddr, path: &str) -> http::request::Builder {
    // Over HTTP/1.1 hyper sends only the path, over HTTP/2 the whole.
    Request::get(format!("http://{addr}{path}")).header("host", addr.to_string())
}

pub(crate) async fn send(http: Http, addr: SocketAddr, request: http::request::Builder) -> Answer {
    send_body(http, addr, request, "").await
}

pub(crate) async fn send_body(
    http: Http,
    addr: SocketAddr,
    request: http::request::Builder,
    body: &'static str,
) -> Answer {
    let mut request = request.body(Full::new(Bytes::from(body))).unwrap();
    if http == Http::One {
        *request.uri_mut() = request
            .uri()
            .path_and_query()
            .unwrap()
            .as_str()
            .parse()
            .unwrap();
    }
    let io = TokioIo::new(TcpStream::connect(addr).await.unwrap());
    let response = match http {
        Http::One => {
            let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
            tokio::spawn(connection);
            within(sender.send_request(request)).await
        }
        Http::Two => {
            let executor = TokioExecutor::new();
            let handshake = hyper::client::conn::http2::handshake(executor, io);
            let (mut sender, connection) = handshake.await.unwrap();
            tokio::spawn(connection);
            within(sender.send_request(request)).await
        }
    };
    let (head, body) = response.unwrap().into_parts();
    let body = within(body.collect()).await.unwrap();
    Answer {
        status: head.status,
        headers: head.headers,
        trailers: body.trailers().cloned().unwrap_or_default(),
        body: body.to_bytes(),
    }
}

/// Sends a request and leaves before the answer.
pub(crate) async fn send_and_leave(addr: SocketAddr, path: &str, leave: oneshot::Receiver<()>) {
    let io = TokioIo::new(TcpStream::connect(addr).await.unwrap());
    let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
    let connection = tokio::spawn(connection);
    let request = Request::get(path).header("host", "shop.example");
    let answer = sender.send_request(request.body(Empty::<Bytes>::new()).unwrap());
    tokio::select! {
        _ = answer => panic!("answered before it was left"),
        left = leave => left.unwrap(),
    }
    connection.abort();
}

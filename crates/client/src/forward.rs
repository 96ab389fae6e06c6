//! A local forward proxy: programs in any language hold back without a line of code.
//!
//! A program sends its requests here instead of to the server (`http_proxy=http://127.0.0.1:9100`,
//! or the address itself when there is one server only). Requests that change something are items:
//! they go to disk, wait for their turn, and the program gets the server's answer. With
//! `prefer: respond-async` (RFC 7240) the answer is 202 at once and the item goes by itself.
//! `tidegate-key: NAME` makes an item replace the one of that name that still waits, and
//! `tidegate-delay-max: SECONDS` says how long it is worth something. Requests that only read pass
//! at once.
//!
//! `GET /.tidegate/client` on this listener says how the client is doing.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Either, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};

use crate::client::Client;
use crate::items::Outcome;

/// Where the client's own state is.
pub const STATUS_PATH: &str = "/.tidegate/client";

/// Longest body of an item.
const BODY_MAX: usize = 8 << 20;
/// How long a program may take to say what it wants.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Wait after an accept that failed.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// What the proxy stands for.
#[derive(Debug)]
pub struct Forward {
    /// Holds items back.
    pub client: Client,
    /// Where requests go that name no server.
    pub server: Option<String>,
}

type Answer = Response<Either<Full<Bytes>, Incoming>>;

/// Serves programs for ever.
pub async fn serve(listener: TcpListener, forward: Arc<Forward>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                tokio::spawn(connection(stream, Arc::clone(&forward)));
            }
            Err(_) => tokio::time::sleep(ACCEPT_RETRY).await,
        }
    }
}

async fn connection(stream: TcpStream, forward: Arc<Forward>) {
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request| {
        let forward = Arc::clone(&forward);
        async move { Ok::<_, Infallible>(forward.answer(request).await) }
    });
    // Errors are the program's: it left.
    let _ = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

impl Forward {
    async fn answer(&self, request: Request<Incoming>) -> Answer {
        if request.uri().authority().is_none() && request.uri().path() == STATUS_PATH {
            return self.status();
        }
        let Some(request) = self.addressed(request) else {
            return say(
                StatusCode::BAD_REQUEST,
                "name the server in the request (as to a proxy), or start with --to URL\n",
            );
        };
        match *request.method() {
            Method::CONNECT => say(
                StatusCode::NOT_IMPLEMENTED,
                "encrypted tunnels cannot be held back; send http:// requests here and start with --to https://HOST\n",
            ),
            Method::GET | Method::HEAD | Method::OPTIONS => self.pass(request).await,
            _ => self.hold(request).await,
        }
    }

    /// The request with the address it goes to.
    fn addressed(&self, mut request: Request<Incoming>) -> Option<Request<Incoming>> {
        if request.uri().authority().is_none() {
            let path = request.uri().path_and_query()?.as_str();
            let server = self.server.as_ref()?.trim_end_matches('/');
            *request.uri_mut() = format!("{server}{path}").parse::<Uri>().ok()?;
            request.headers_mut().remove(http::header::HOST);
        }
        Some(request)
    }

    /// Makes an item of the request.
    async fn hold(&self, request: Request<Incoming>) -> Answer {
        let header = |name: &str| {
            let value = request.headers().get(name)?;
            value.to_str().ok().map(str::to_owned)
        };
        let key = header("tidegate-key");
        let at_once = header("prefer").is_some_and(|prefer| prefer.contains("respond-async"));
        let delay_max = header("tidegate-delay-max").map(|seconds| seconds.trim().parse());
        let Ok(delay_max) = delay_max.transpose() else {
            return say(
                StatusCode::BAD_REQUEST,
                "tidegate-delay-max is a whole number of seconds\n",
            );
        };
        let (parts, body) = request.into_parts();
        let Ok(body) = Limited::new(body, BODY_MAX).collect().await else {
            return say(StatusCode::PAYLOAD_TOO_LARGE, "an item has at most 8 MiB\n");
        };
        let request = Request::from_parts(parts, body.to_bytes());
        let submitted = match delay_max {
            Some(seconds) => {
                let delay_max = Duration::from_secs(seconds);
                self.client
                    .submit_within(request, key.as_deref(), delay_max)
            }
            None => self.client.submit(request, key.as_deref()),
        };
        let ticket = match submitted {
            Ok(ticket) => ticket,
            Err(error) => return say(StatusCode::INTERNAL_SERVER_ERROR, &format!("{error}\n")),
        };
        if at_once {
            let accepted = format!("{{\"item\":{}}}\n", ticket.number);
            return say(StatusCode::ACCEPTED, &accepted);
        }
        match ticket.outcome().await {
            Outcome::Answered(response) => response.map(|body| Either::Left(Full::from(body))),
            Outcome::Replaced => say(StatusCode::CONFLICT, "a newer item took its place\n"),
            Outcome::Expired => say(StatusCode::GONE, "the item was not sent in time\n"),
            Outcome::Kept => say(
                StatusCode::SERVICE_UNAVAILABLE,
                "shutting down; the item is kept and goes next time\n",
            ),
        }
    }

    /// Passes a request that only reads.
    async fn pass(&self, request: Request<Incoming>) -> Answer {
        match self.client.dialer().send(request).await {
            Ok(response) => response.map(Either::Right),
            Err(error) => say(StatusCode::BAD_GATEWAY, &format!("{error}\n")),
        }
    }

    fn status(&self) -> Answer {
        match serde_json::to_string(&self.client.status()) {
            Ok(json) => {
                let mut response = say(StatusCode::OK, &format!("{json}\n"));
                let content_type = HeaderValue::from_static("application/json");
                response.headers_mut().insert(CONTENT_TYPE, content_type);
                response
            }
            Err(error) => say(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
        }
    }
}

fn say(status: StatusCode, text: &str) -> Answer {
    let mut response = Response::new(Either::Left(Full::from(text.to_owned())));
    *response.status_mut() = status;
    response
}

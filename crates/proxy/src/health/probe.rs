//! Asks one replica how it is.
//!
//! Decision: docs/decisions/0045-utilization-by-health-checks.md.

use bytes::Bytes;
use http::header::{HOST, HeaderValue, USER_AGENT};
use http::uri::{PathAndQuery, Uri};
use http::{Method, Request};
use http_body_util::Empty;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::task::JoinSet;

use crate::config::{ActiveHealth, Config};
use crate::message::Response;
use crate::response::report;
use crate::upstream::{Replica, connect};

pub(super) const AGENT: HeaderValue = HeaderValue::from_static("tidegate-health");

/// What a replica answered.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Answer {
    /// It is well: it gives the path with a good status, or without a path it takes a connection,
    /// TLS included.
    pub(super) well: bool,
    /// What it says of its utilization. Unlike what comes with the answers of requests this is
    /// known while nobody gets one.
    pub(super) utilization: Option<f64>,
}

/// Asks one replica.
pub(super) async fn probe(replica: &Replica, config: &Config) -> Answer {
    let stream = match connect::open(replica).await {
        Ok(stream) => stream,
        Err(cause) => {
            replica.note_unreachable(&cause);
            replica.note_failed_check(cause.to_string());
            return Answer::default();
        }
    };
    let active = &config.health.active;
    let Some(path) = &active.path else {
        return Answer {
            well: true,
            utilization: None,
        };
    };
    let response = if connect::is_http2(&stream, replica) {
        ask_http2(stream, replica, active, path).await
    } else {
        ask_http1(stream, replica, active, path).await
    };
    let Some(response) = response else {
        replica.note_failed_check("no valid answer".into());
        return Answer::default();
    };
    let status = response.status.as_u16();
    let well = active.status.contains(status);
    if !well {
        replica.note_failed_check(format!("{path} answers {status}"));
    }
    Answer {
        well,
        utilization: report::utilization(&response.headers),
    }
}

async fn ask_http1(
    stream: connect::Transport,
    replica: &Replica,
    active: &ActiveHealth,
    path: &str,
) -> Option<Response<()>> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.ok()?;
    let mut driving = JoinSet::new();
    driving.spawn(connection);
    let request = request(path.parse().ok()?, host(replica, active)?)?;
    let response = sender.send_request(request).await.ok()?;
    Some(Response::from(response).map(|_| ()))
}

async fn ask_http2(
    stream: connect::Transport,
    replica: &Replica,
    active: &ActiveHealth,
    path: &str,
) -> Option<Response<()>> {
    let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let (mut sender, connection) = handshake.await.ok()?;
    let mut driving = JoinSet::new();
    driving.spawn(connection);
    let host = host(replica, active)?;
    let uri = Uri::builder()
        .scheme(replica.scheme())
        .authority(host.as_bytes())
        .path_and_query(path.parse::<PathAndQuery>().ok()?)
        .build()
        .ok()?;
    let mut request = request(uri, host)?;
    request.headers_mut().remove(HOST);
    let response = sender.send_request(request).await.ok()?;
    Some(Response::from(response).map(|_| ()))
}

fn host(replica: &Replica, active: &ActiveHealth) -> Option<HeaderValue> {
    match &active.host {
        Some(host) => HeaderValue::from_str(host).ok(),
        None => Some(replica.host().clone()),
    }
}

fn request(uri: Uri, host: HeaderValue) -> Option<Request<Empty<Bytes>>> {
    Request::builder()
        .method(Method::GET)
        .uri(uri)
        .header(HOST, host)
        .header(USER_AGENT, AGENT)
        .body(Empty::new())
        .ok()
}

//! Requests of the demo upstream and their answers.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Either, Full, Limited};
use hyper::body::{Body as _, Incoming};
use serde::Serialize;
use tidegate_config::Size;
use tidegate_http1::event_stream;

use super::config::{AppConfig, Params, SlowPath};
use super::core::Served;
use super::shared::{Now, Shared};
use super::stream::Events;
use super::websocket::{Echoes, Handshake};

/// Longest request body that is read; parameters are far shorter.
const REQUEST_BYTES_MAX: usize = 64 << 20;

pub(super) type Body = Either<Full<Bytes>, Events>;

/// What connections share.
#[derive(Debug)]
pub(super) struct Site {
    shared: Arc<Shared>,
    slow_paths: Vec<SlowPath>,
    report: bool,
    echoes: Echoes,
    /// A page as long as the longest asked for so far; answers are slices of it.
    page: Bytes,
}

impl Site {
    pub(super) fn new(config: &AppConfig, shared: Arc<Shared>) -> Self {
        Self {
            shared,
            slow_paths: config.slow_paths.clone(),
            report: config.report,
            echoes: Echoes::default(),
            page: page(config.response.0),
        }
    }

    /// The service function: never fails, so that no connection ends without an answer.
    pub(super) async fn answer(
        &self,
        request: Request<Incoming>,
    ) -> Result<Response<Body>, Infallible> {
        let is_head = *request.method() == Method::HEAD;
        let answer = match (request.method(), request.uri().path()) {
            (&Method::GET, "/_app/stats") => self.stats(),
            (&Method::POST, "/_app/params") => self.change(request).await,
            (_, path) if path.starts_with("/_app/") => not_found(),
            _ => self.work(request).await,
        };
        Ok(if is_head { bodiless(answer) } else { answer })
    }

    /// The counts; with the report that every answer carries, so that a health check can ask for
    /// it.
    fn stats(&self) -> Response<Body> {
        let mut answer = json(StatusCode::OK, &self.shared.stats());
        if self.report {
            add_report(answer.headers_mut(), &self.shared.now(), None);
        }
        answer
    }

    async fn change(&self, request: Request<Incoming>) -> Response<Body> {
        let Some(body) = read(request.into_body()).await else {
            return text(StatusCode::PAYLOAD_TOO_LARGE, "too long");
        };
        let params = match serde_json::from_slice::<Params>(&body) {
            Ok(params) => params,
            Err(error) => return refused(&error),
        };
        match self.shared.set_params(&params) {
            Ok(()) => json(StatusCode::OK, &params),
            Err(error) => refused(&error),
        }
    }

    /// A page, a stream or a WebSocket, after its turn.
    async fn work(&self, mut request: Request<Incoming>) -> Response<Body> {
        let handshake = match request.uri().path() {
            "/ws" => Handshake::of(&mut request),
            _ => None,
        };
        let (head, body) = request.into_parts();
        if !body.is_end_stream() && read(body).await.is_none() {
            return text(StatusCode::PAYLOAD_TOO_LARGE, "too long");
        }
        let factor = self.factor(head.uri.path());
        let optional = wants_optional(&head.headers);
        let Some(served) = self.shared.serve(factor, optional).await else {
            return text(StatusCode::SERVICE_UNAVAILABLE, "the queue is full\n");
        };
        let now = self.shared.now();
        let mut answer = match (handshake, head.uri.path()) {
            (Some(handshake), _) => self.echoes.start(handshake),
            (None, "/stream") => stream(head.uri.query()),
            _ => self.page(now.response),
        };
        if self.report {
            add_report(answer.headers_mut(), &now, Some(served));
        }
        answer
    }

    fn factor(&self, path: &str) -> f64 {
        self.slow_paths
            .iter()
            .find(|slow| path.starts_with(&slow.prefix))
            .map_or(1.0, |slow| slow.factor)
    }

    fn page(&self, size: Size) -> Response<Body> {
        let body = match usize::try_from(size.0) {
            Ok(length) if length <= self.page.len() => self.page.slice(..length),
            _ => page(size.0),
        };
        let mut answer = Response::new(Either::Left(Full::new(body)));
        let html = HeaderValue::from_static("text/html; charset=utf-8");
        answer.headers_mut().insert(header::CONTENT_TYPE, html);
        answer
    }
}

const UTILIZATION: HeaderName = HeaderName::from_static("tidegate-utilization");
const SERVICE_MS: HeaderName = HeaderName::from_static("tidegate-service-ms");

/// Who tells its service time can leave something out, as the proxy understands it: where there is
/// nothing to leave out it is not told.
fn add_report(headers: &mut HeaderMap, now: &Now, served: Option<Served>) {
    add_number(headers, UTILIZATION, format_args!("{:.4}", now.utilization));
    if let Some(served) = served.filter(|_| now.has_optional) {
        let service_ms = 1e3 * served.took.as_secs_f64();
        add_number(headers, SERVICE_MS, format_args!("{service_ms:.3}"));
    }
}

fn add_number(headers: &mut HeaderMap, name: HeaderName, number: fmt::Arguments<'_>) {
    if let Ok(value) = HeaderValue::from_maybe_shared(Bytes::from(number.to_string())) {
        headers.insert(name, value);
    }
}

/// Whether optional content is wanted: unless the proxy says it is not.
fn wants_optional(headers: &HeaderMap) -> bool {
    headers
        .get("tidegate-optional")
        .is_none_or(|value| value != "0")
}

fn page(length: u64) -> Bytes {
    const LINE: &[u8] = b"The tide is in, the gate holds. ";
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    LINE.iter().copied().cycle().take(length).collect()
}

fn stream(query: Option<&str>) -> Response<Body> {
    let mut answer = Response::new(Either::Right(Events::from_query(query)));
    let events = HeaderValue::from_static(event_stream::MEDIA_TYPE);
    answer.headers_mut().insert(header::CONTENT_TYPE, events);
    answer
}

/// The answer to HEAD: what the body would be like, without it. hyper sees to that in HTTP/1.1
/// only.
fn bodiless(answer: Response<Body>) -> Response<Body> {
    let (mut head, body) = answer.into_parts();
    if let Some(length) = body.size_hint().exact() {
        head.headers
            .insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    }
    Response::from_parts(head, Either::Left(Full::default()))
}

async fn read(body: Incoming) -> Option<Bytes> {
    let limited = Limited::new(body, REQUEST_BYTES_MAX).collect().await;
    limited.ok().map(http_body_util::Collected::to_bytes)
}

fn refused(cause: &dyn std::error::Error) -> Response<Body> {
    let message = serde_json::json!({ "error": cause.to_string() });
    json(StatusCode::BAD_REQUEST, &message)
}

fn not_found() -> Response<Body> {
    text(
        StatusCode::NOT_FOUND,
        "GET /_app/stats or POST /_app/params\n",
    )
}

fn json(status: StatusCode, value: &impl Serialize) -> Response<Body> {
    // Plain data of our own always serializes.
    let body = serde_json::to_vec(value).unwrap_or_default();
    with_type(status, Bytes::from(body), "application/json")
}

fn text(status: StatusCode, message: &'static str) -> Response<Body> {
    with_type(status, Bytes::from_static(message.as_bytes()), "text/plain")
}

fn with_type(status: StatusCode, body: Bytes, content_type: &'static str) -> Response<Body> {
    let mut answer = Response::new(Either::Left(Full::new(body)));
    *answer.status_mut() = status;
    let content_type = HeaderValue::from_static(content_type);
    answer
        .headers_mut()
        .insert(header::CONTENT_TYPE, content_type);
    answer
}

//! One request through the sidecar.

use std::error::Error;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, Version};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{self, Client};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::sync::Arc;
use tidegate_http1::hop;

use super::hop::prepare;
use super::upstream::Upstream;
use crate::nucleus::Nucleus;
use crate::report::Room;
use crate::wire::{self, Instructions};

pub(super) type AnyBody = BoxBody<Bytes, hyper::Error>;

/// Connections are given up before the service does so: a request sent into a connection that is
/// being closed would fail. Below the two seconds of gunicorn and the five of Node and uvicorn.
const IDLE: Duration = Duration::from_millis(1500);

/// A service on the same machine accepts at once, or not at all. Chosen.
const CONNECT: Duration = Duration::from_secs(5);

/// Forwards requests to the service, and measures them.
#[derive(Debug)]
pub(super) struct Forwarder {
    client: Client<HttpConnector, Incoming>,
    upstream: Upstream,
    nucleus: Arc<Nucleus>,
}

impl Forwarder {
    pub(super) fn new(upstream: Upstream, nucleus: Arc<Nucleus>) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(CONNECT));
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .http2_only(upstream.http2())
            .build(connector);
        Self {
            client,
            upstream,
            nucleus,
        }
    }

    pub(super) async fn forward(&self, mut request: Request<Incoming>) -> Response<AnyBody> {
        let room = Room::of(&request);
        let flight = self.nucleus.begin(Instructions::read(request.headers()));
        let flag = if flight.full() { "1" } else { "0" };
        let flag = HeaderValue::from_static(flag);
        request.headers_mut().insert(wire::OPTIONAL, flag);
        let upgrade = hop::upgrade(request.headers()).is_some();
        let front = upgrade.then(|| hyper::upgrade::on(&mut request));
        prepare(&mut request);
        *request.uri_mut() = self.upstream.uri(request.uri());
        *request.version_mut() = if self.upstream.http2() {
            Version::HTTP_2
        } else {
            Version::HTTP_11
        };
        match self.client.request(request).await {
            Ok(response) => match switch(response, front) {
                Some(response) => room.report(response, flight).map(BodyExt::boxed),
                None => bad_gateway("it switched protocols without being asked"),
            },
            Err(error) => bad_gateway(&chain(&error)),
        }
    }
}

/// Joins the two connections of an upgrade; `None` when the service upgrades one that was not asked
/// it to.
fn switch(
    mut response: Response<Incoming>,
    front: Option<OnUpgrade>,
) -> Option<Response<Incoming>> {
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        let back = hyper::upgrade::on(&mut response);
        tokio::spawn(tunnel(front?, back));
    }
    hop::strip_but_upgrade(response.headers_mut());
    Some(response)
}

/// Carries bytes both ways until both sides are done; a side that breaks off ends it for both.
async fn tunnel(front: OnUpgrade, back: OnUpgrade) {
    if let (Ok(front), Ok(back)) = (front.await, back.await) {
        let (mut front, mut back) = (TokioIo::new(front), TokioIo::new(back));
        let _ = tokio::io::copy_bidirectional(&mut front, &mut back).await;
    }
}

fn bad_gateway(why: &str) -> Response<AnyBody> {
    let text = format!("the service beside this sidecar did not answer: {why}\n");
    let body = Full::new(Bytes::from(text)).map_err(|never| match never {});
    let mut response = Response::new(body.boxed());
    *response.status_mut() = StatusCode::BAD_GATEWAY;
    response
}

/// An error with its causes.
fn chain(error: &legacy::Error) -> String {
    let causes = std::iter::successors(error.source(), |&cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

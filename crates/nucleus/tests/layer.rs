//! The layer around a real axum service, over real sockets.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::convert::Infallible;
use std::sync::Arc;

use axum::Extension;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures_util::{StreamExt, stream};
use http_body_util::BodyExt;
use tidegate_nucleus::{Nucleus, NucleusLayer, OptionalContent};
use tidegate_testing::{Client, within};
use tokio::sync::{mpsc, oneshot};

use support::{Http, send, send_and_leave, service};

async fn page(Extension(OptionalContent(full)): Extension<OptionalContent>) -> &'static str {
    if full {
        "product, and what others bought"
    } else {
        "product"
    }
}

async fn chunks() -> Response {
    let chunks = ["one ", "two"].map(|chunk| Ok::<_, Infallible>(Bytes::from(chunk)));
    Body::from_stream(stream::iter(chunks)).into_response()
}

async fn events() -> Response {
    let never_ends = stream::iter([Ok::<_, Infallible>("data: 1\n\n")]).chain(stream::pending());
    let body = Body::from_stream(never_ends);
    ([("content-type", "text/event-stream")], body).into_response()
}

/// Chunks with trailers of the application's own.
async fn summed() -> Response {
    let mut trailers = http::HeaderMap::new();
    trailers.insert("x-sum", "42".parse().unwrap());
    let frames = [
        Ok::<_, Infallible>(http_body::Frame::data(Bytes::from("page"))),
        Ok(http_body::Frame::trailers(trailers)),
    ];
    let body = http_body_util::StreamBody::new(stream::iter(frames));
    ([("trailer", "x-sum")], Body::new(body.boxed_unsync())).into_response()
}

fn router(nucleus: &Arc<Nucleus>) -> Router {
    Router::new()
        .route("/", get(page))
        .route("/chunks", get(chunks))
        .route("/events", get(events))
        .route("/summed", get(summed))
        .route(
            "/broken",
            get(|| async { StatusCode::INTERNAL_SERVER_ERROR }),
        )
        .layer(NucleusLayer::new(Arc::clone(nucleus)))
        .route("/health", get(|| async { "well" }))
}

#[tokio::test]
async fn page_reports_in_its_headers() {
    let nucleus = support::nucleus();
    let addr = service(router(&nucleus)).await;
    for http in [Http::One, Http::Two] {
        for (optional, body) in [("1", "product, and what others bought"), ("0", "product")] {
            let request = support::get(addr, "/").header("tidegate-optional", optional);
            let answer = send(http, addr, request).await;
            assert_eq!(answer.body, body);
            assert_eq!(answer.header("tidegate-demand"), Some("1"));
            let service_ms: f64 = answer
                .header("tidegate-service-ms")
                .unwrap()
                .parse()
                .unwrap();
            assert!(service_ms > 0.0, "{service_ms}");
            assert!(answer.trailers.is_empty());
        }
    }
    assert_eq!(nucleus.reading().answered, 4);
}

#[tokio::test]
async fn chunks_report_in_trailers() {
    let nucleus = support::nucleus();
    let addr = service(router(&nucleus)).await;
    for http in [Http::One, Http::Two] {
        let request = support::get(addr, "/chunks").header("te", "trailers");
        let answer = send(http, addr, request).await;
        assert_eq!(answer.body, "one two");
        assert_eq!(answer.header("tidegate-demand"), None);
        assert_eq!(answer.trailer("tidegate-demand"), Some("1"), "{http:?}");
        assert!(answer.trailer("tidegate-service-ms").is_some(), "{http:?}");
        assert_eq!(nucleus.reading().present, 0);
    }
}

#[tokio::test]
async fn applications_own_trailers_are_kept() {
    let addr = service(router(&support::nucleus())).await;
    for http in [Http::One, Http::Two] {
        let request = support::get(addr, "/summed").header("te", "trailers");
        let answer = send(http, addr, request).await;
        assert_eq!(answer.trailer("x-sum"), Some("42"), "{http:?}");
        assert_eq!(answer.trailer("tidegate-demand"), Some("1"), "{http:?}");
    }
}

/// Byte for byte, because a client library may hide what is wrong: no `te`, no trailers, and the
/// next request on the connection is answered.
#[tokio::test]
async fn client_that_takes_no_trailers_gets_none() {
    let nucleus = support::nucleus();
    let addr = service(router(&nucleus)).await;
    let mut client = Client::connect(addr).await;
    let request = "GET /chunks HTTP/1.1\r\nhost: a\r\n\r\n\
                   GET /health HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
    client.send(request).await;
    let answer = client.read_to_end().await;
    assert!(
        answer.contains("3\r\ntwo\r\n0\r\n\r\nHTTP/1.1 200 OK"),
        "{answer}"
    );
    let ours = answer.lines().filter(|line| line.starts_with("tidegate-"));
    assert_eq!(ours.collect::<Vec<_>>(), ["tidegate-optional: 1"]);
    assert!(answer.ends_with("well"), "{answer}");
    assert_eq!(nucleus.reading().answered, 1, "measured although not told");
}

#[tokio::test]
async fn event_stream_is_counted_out_with_its_head() {
    let nucleus = support::nucleus();
    let addr = service(router(&nucleus)).await;
    let mut client = Client::connect(addr).await;
    let request = "GET /events HTTP/1.1\r\nhost: a\r\nte: trailers\r\n\r\n";
    client.send(request).await;
    let answer = client.read_until("data: 1\n\n\r\n").await;
    assert!(answer.contains("data: 1\n\n\r\n"), "{answer}");
    assert!(answer.contains("\r\ntidegate-demand: 1\r\n"), "{answer}");
    assert_eq!(nucleus.reading().present, 0, "though it goes on");
}

#[tokio::test]
async fn head_reports_in_its_headers_and_errors_are_answered_too() {
    let nucleus = support::nucleus();
    let addr = service(router(&nucleus)).await;
    let head = support::get(addr, "/chunks").method("HEAD");
    let answer = send(Http::One, addr, head).await;
    assert_eq!(answer.header("tidegate-demand"), Some("1"));
    let answer = send(Http::One, addr, support::get(addr, "/broken")).await;
    assert_eq!(answer.status, 500);
    assert_eq!(answer.header("tidegate-demand"), Some("1"));
    assert_eq!(nucleus.reading().answered, 2);
}

#[tokio::test]
async fn client_that_leaves_is_counted_out() {
    let nucleus = support::nucleus();
    let (arrived_in, mut arrived) = mpsc::unbounded_channel::<oneshot::Sender<()>>();
    let hang = move || {
        let (guard, dropped) = oneshot::channel::<()>();
        arrived_in.send(guard).unwrap();
        async move {
            // Ends only when the connection drops this future.
            let _ = (dropped, std::future::pending::<()>().await);
        }
    };
    let layer = NucleusLayer::new(Arc::clone(&nucleus));
    let addr = service(Router::new().route("/", get(hang)).layer(layer)).await;

    let (leave, left) = oneshot::channel();
    let client = tokio::spawn(send_and_leave(addr, "/", left));
    let mut handler = within(arrived.recv()).await.unwrap();
    assert_eq!(nucleus.reading().present, 1);
    leave.send(()).unwrap();
    client.await.unwrap();
    within(handler.closed()).await;
    // The flight is dropped after the handler, on another task's turn.
    within(async {
        while nucleus.reading().present > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(nucleus.reading().answered, 0);
}

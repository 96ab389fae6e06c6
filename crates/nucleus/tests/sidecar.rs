//! The sidecar in front of a real axum service that knows nothing of it, over real sockets.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use futures_util::{SinkExt, StreamExt, stream};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio_tungstenite::tungstenite::Message;

use support::{Http, Sidecar, listen, nobody, send, send_and_leave, send_body, service};
use tidegate_testing::within;

/// Tells what it was asked, one line per header.
async fn echo(headers: HeaderMap) -> Response {
    let line = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
        format!("{name}: {}\n", value.to_str().unwrap())
    };
    let lines: String = headers.iter().map(line).collect();
    ([("x-service", "echo"), ("set-cookie", "a=1")], lines).into_response()
}

async fn chunks() -> Response {
    let chunks = ["one ", "two"].map(|chunk| Ok::<_, Infallible>(Bytes::from(chunk)));
    Body::from_stream(stream::iter(chunks)).into_response()
}

fn router() -> Router {
    Router::new()
        .route("/echo", any(echo))
        .route("/chunks", get(chunks))
        .route(
            "/upload",
            post(|body: String| async move { body.to_uppercase() }),
        )
}

async fn before_router() -> Sidecar {
    Sidecar::before(&format!("http://{}", service(router()).await)).await
}

#[tokio::test]
async fn headers_pass_in_both_directions() {
    let sidecar = before_router().await;
    for http in [Http::One, Http::Two] {
        let request = support::get(sidecar.addr, "/echo?q=1")
            .header("x-own", "mine")
            .header("tidegate-optional", "0");
        let answer = send(http, sidecar.addr, request).await;
        let seen = String::from_utf8(answer.body.to_vec()).unwrap();
        assert!(seen.contains("x-own: mine\n"), "{seen}");
        assert!(seen.contains("tidegate-optional: 0\n"), "{seen}");
        assert!(
            seen.contains(&format!("host: {}\n", sidecar.addr)),
            "{seen}"
        );
        assert_eq!(answer.header("x-service"), Some("echo"));
        assert_eq!(answer.header("set-cookie"), Some("a=1"));
    }
}

#[tokio::test]
async fn measurements_come_in_headers_of_whole_answers() {
    let sidecar = before_router().await;
    for http in [Http::One, Http::Two] {
        let request = support::get(sidecar.addr, "/echo").header("te", "trailers");
        let answer = send(http, sidecar.addr, request).await;
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

#[tokio::test]
async fn measurements_come_in_trailers_of_chunked_answers() {
    let sidecar = before_router().await;
    for http in [Http::One, Http::Two] {
        let request = support::get(sidecar.addr, "/chunks").header("te", "trailers");
        let answer = send(http, sidecar.addr, request).await;
        assert_eq!(answer.body, "one two");
        assert_eq!(answer.header("tidegate-demand"), None);
        assert_eq!(answer.trailer("tidegate-demand"), Some("1"), "{http:?}");
        assert!(answer.trailer("tidegate-service-ms").is_some(), "{http:?}");
    }
    assert_eq!(sidecar.nucleus.reading().present, 0);
}

#[tokio::test]
async fn bodies_pass_to_a_service_of_either_protocol() {
    let addr = service(router()).await;
    for scheme in ["http", "h2c"] {
        let sidecar = Sidecar::before(&format!("{scheme}://{addr}")).await;
        let request = support::get(sidecar.addr, "/upload").method("POST");
        let answer = send_body(Http::One, sidecar.addr, request, "quiet").await;
        assert_eq!(answer.body, "QUIET", "{scheme}");
    }
}

#[tokio::test]
async fn service_that_is_gone_is_a_bad_gateway_and_nobody_is_counted() {
    let (_taken, addr) = nobody();
    let sidecar = Sidecar::before(&format!("http://{addr}")).await;
    let answer = send(Http::One, sidecar.addr, support::get(sidecar.addr, "/")).await;
    assert_eq!(answer.status, 502);
    assert_eq!(answer.header("tidegate-demand"), None, "nothing was served");
    let text = String::from_utf8(answer.body.to_vec()).unwrap();
    assert!(
        text.contains("did not answer") && text.contains("refused"),
        "{text}"
    );
    let reading = sidecar.nucleus.reading();
    assert_eq!((reading.present, reading.answered), (0, 0));
}

/// A service whose requests hang until they are dropped, and who tells of each that came.
fn hanging() -> (Router, mpsc::UnboundedReceiver<oneshot::Sender<()>>) {
    let (arrived_in, arrived) = mpsc::unbounded_channel();
    let hang = move || {
        let (guard, dropped) = oneshot::channel::<()>();
        arrived_in.send(guard).unwrap();
        async move {
            let _ = (dropped, std::future::pending::<()>().await);
        }
    };
    (Router::new().route("/", get(hang)), arrived)
}

#[tokio::test]
async fn client_that_leaves_is_counted_out_and_the_service_learns_of_it() {
    let (router, mut arrived) = hanging();
    let sidecar = Sidecar::before(&format!("http://{}", service(router).await)).await;
    let (leave, left) = oneshot::channel();
    let client = tokio::spawn(send_and_leave(sidecar.addr, "/", left));
    let mut handler = within(arrived.recv()).await.unwrap();
    assert_eq!(sidecar.nucleus.reading().present, 1);
    leave.send(()).unwrap();
    client.await.unwrap();
    // The service learns of it from the sidecar, which has counted the request out before.
    within(handler.closed()).await;
    let reading = sidecar.nucleus.reading();
    assert_eq!((reading.present, reading.answered), (0, 0));
}

#[tokio::test]
async fn requests_in_flight_finish_after_the_stop() {
    let gate = Arc::new((Notify::new(), Notify::new()));
    let wait = |State(gate): State<Arc<(Notify, Notify)>>| async move {
        gate.0.notify_one();
        gate.1.notified().await;
        "finished"
    };
    let router = Router::new()
        .route("/", get(wait))
        .with_state(Arc::clone(&gate));
    let sidecar = Sidecar::before(&format!("http://{}", service(router).await)).await;
    let addr = sidecar.addr;
    let client = tokio::spawn(send(Http::One, addr, support::get(addr, "/")));
    within(gate.0.notified()).await;
    let done = sidecar.stop();
    // The port is free before the last request is done.
    within(async {
        while tokio::net::TcpStream::connect(addr).await.is_ok() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    gate.1.notify_one();
    assert_eq!(client.await.unwrap().body, "finished");
    assert_eq!(within(done).await.unwrap(), 0, "nobody was cut");
}

#[tokio::test]
async fn stop_does_not_wait_for_ever() {
    let (router, mut arrived) = hanging();
    let upstream = format!("http://{}", service(router).await);
    let sidecar = Sidecar::with_grace(&upstream, Duration::ZERO).await;
    let (_leave, left) = oneshot::channel();
    let client = tokio::spawn(send_and_leave(sidecar.addr, "/", left));
    let _handler = within(arrived.recv()).await.unwrap();
    assert_eq!(within(sidecar.stop()).await.unwrap(), 1, "one was cut");
    client.abort();
}

#[tokio::test]
async fn websocket_passes_and_holds_no_place() {
    let (listener, addr) = listen().await;
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let socket = tokio_tungstenite::accept_async(stream).await.unwrap();
        let (sink, stream) = socket.split();
        let texts =
            stream.filter(|message| std::future::ready(matches!(message, Ok(Message::Text(_)))));
        texts.forward(sink).await.unwrap();
    });
    let sidecar = Sidecar::before(&format!("http://{addr}")).await;
    let stream = tokio::net::TcpStream::connect(sidecar.addr).await.unwrap();
    let handshake = tokio_tungstenite::client_async("ws://shop.example/chat", stream);
    let (mut socket, response) = within(handshake).await.unwrap();
    assert_eq!(response.headers()["tidegate-demand"], "1");
    assert_eq!(sidecar.nucleus.reading().present, 0);
    socket.send(Message::text("ahoy")).await.unwrap();
    let echoed = within(socket.next()).await.unwrap().unwrap();
    assert_eq!(echoed, Message::text("ahoy"));
    socket.close(None).await.unwrap();
}

//! Optional content: what a replica is told, what it answers, and what of it a client sees.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use tidegate_proxy::admin::Operations;
use tidegate_proxy::reload::Source;

use crate::support::*;

const ILAC: &str = "protect.mode = 'ilac'\nprotect.target = '1s'";
const GET: &str = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";

/// The names we use between proxy and replica.
fn is_ours(line: &str) -> bool {
    line.to_ascii_lowercase().contains("tidegate")
}

#[tokio::test]
async fn a_replica_is_told_what_to_include_and_how_long_to_take() {
    let service = Service::echo().await;
    let proxy = proxy(&[service.addr], ILAC);
    let request = "GET / HTTP/1.1\r\nhost: a\r\ntidegate-optional: 0\r\n\r\n";
    let seen = ask(proxy.local_addr(), request).await.text();
    assert!(seen.contains("tidegate-optional: 1\n"), "{seen}");
    assert!(
        seen.contains("tidegate-service-target-ms: 50.000\n"),
        "{seen}"
    );
    assert!(seen.contains("te: trailers\n"), "{seen}");
}

#[tokio::test]
async fn other_modes_say_nothing_about_content() {
    let service = Service::echo().await;
    let proxy = proxy(&[service.addr], "");
    let seen = ask(proxy.local_addr(), GET).await.text();
    assert!(!seen.contains("tidegate-optional"), "{seen}");
    assert!(!seen.contains("tidegate-service-target-ms"), "{seen}");
}

#[tokio::test]
async fn demand_in_headers_is_heard_and_not_passed_on() {
    let service = Service::start(|_| async {
        let mut reply = text("page");
        let headers = reply.headers_mut();
        headers.insert("tidegate-demand", HeaderValue::from_static("3"));
        headers.insert("tidegate-service-ms", HeaderValue::from_static("2.5"));
        headers.insert("tidegate-cpu-ms", HeaderValue::from_static("2"));
        headers.insert("tidegate-io-ms", HeaderValue::from_static("0.5"));
        headers.insert("tidegate-utilization", HeaderValue::from_static("0.5"));
        reply
    })
    .await;
    let proxy = proxy(&[service.addr], ILAC);
    let answer = ask(proxy.local_addr(), GET).await;
    assert_eq!(answer.text(), "page");
    assert!(!answer.head.lines().any(is_ours), "{}", answer.head);
    let status = proxy.state().first().sentry().status(proxy.state().now());
    assert_eq!(status.replicas[0].window, Some(3));
    assert_eq!(status.bad_reports, 0);
}

#[tokio::test]
async fn demand_in_trailers_is_heard_and_not_passed_on() {
    let service = Service::start(|_| async {
        let mut trailers = HeaderMap::new();
        trailers.insert("tidegate-demand", HeaderValue::from_static("4"));
        let frames = [
            Ok::<_, std::io::Error>(Frame::data(Bytes::from_static(b"page"))),
            Ok(Frame::trailers(trailers)),
        ];
        let body = StreamBody::new(futures_util::stream::iter(frames)).boxed_unsync();
        let mut reply = Response::new(body);
        let announced = HeaderValue::from_static("tidegate-demand");
        reply.headers_mut().insert("trailer", announced);
        reply
    })
    .await;
    let proxy = proxy(&[service.addr], ILAC);
    let mut client = Client::connect(proxy.local_addr()).await;
    let answer = client
        .ask("GET / HTTP/1.1\r\nhost: a\r\nte: trailers\r\nconnection: te\r\n\r\n")
        .await;
    assert_eq!(answer.text(), "page");
    assert_eq!(answer.header("trailer"), None);
    assert!(!answer.head.lines().any(is_ours), "{}", answer.head);
    let state = proxy.state();
    eventually("the demand is heard", || {
        state.first().sentry().status(state.now()).replicas[0].window == Some(4)
    })
    .await;
    // The connection is in order: nothing of the trailers was left on it.
    assert_eq!(client.ask(GET).await.text(), "page");
}

/// A nucleus whose answers are all sent in parts can say nothing to a client that takes no
/// trailers. Mode `auto` asks for trailers once it knows that there is one.
#[tokio::test]
async fn a_nucleus_of_chunked_answers_is_discovered_in_auto() {
    let service = Service::start(|request| async move {
        let takes_trailers = request.headers().contains_key("te");
        let frames = [Ok::<_, std::io::Error>(Frame::data(Bytes::from(
            if takes_trailers { "asked" } else { "not asked" },
        )))];
        let body = StreamBody::new(futures_util::stream::iter(frames)).boxed_unsync();
        let mut reply = Response::new(body);
        let full = HeaderValue::from_static("1");
        reply.headers_mut().insert("tidegate-optional", full);
        reply
    })
    .await;
    let proxy = proxy(
        &[service.addr],
        "protect.mode = 'auto'\nprotect.target = '1s'",
    );
    // The mode takes steps only where operations run beside the data plane.
    let operations = Operations::bind(Arc::clone(proxy.state()), Source::default()).unwrap();
    let _running = tokio::spawn(operations.run(std::future::pending()));
    let first = ask(proxy.local_addr(), GET).await;
    assert_eq!(first.text(), "not asked");
    assert!(!first.head.lines().any(is_ours), "{}", first.head);
    let asked = async {
        while ask(proxy.local_addr(), GET).await.text() != "asked" {
            tokio::task::yield_now().await;
        }
    };
    within(asked).await;
}

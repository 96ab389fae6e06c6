//! The trace context of requests on their way, and what is recorded of them.

use std::sync::Arc;

use tidegate_proxy::Running;
use tidegate_proxy::trace::Span;

use crate::support::*;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const SAMPLED: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const UNSAMPLED: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";

const ON: &str = "tracing = { context = true, sample = '0%' }";
const TRUSTED: &str = "forward.trust = ['127.0.0.0/8']";

/// The `traceparent` and `tracestate` that a replica gets.
async fn seen(proxy: &Running, headers: &str) -> (String, String) {
    let request = format!("GET /a HTTP/1.1\r\nhost: a\r\n{headers}\r\n");
    let text = ask(proxy.local_addr(), request).await.text();
    let line = |name: &str| {
        let mut lines = text.lines().filter_map(|line| line.strip_prefix(name));
        let found = lines.next().unwrap_or_default().to_owned();
        assert_eq!(lines.next(), None, "{text}");
        found
    };
    (line("traceparent: "), line("tracestate: "))
}

/// The parts of a valid one: trace, parent, flags.
fn parts(traceparent: &str) -> (&str, &str, &str) {
    let parts: Vec<_> = traceparent.split('-').collect();
    let [version, trace, parent, flags] = parts[..] else {
        panic!("{traceparent}");
    };
    assert_eq!((version, trace.len(), parent.len()), ("00", 32, 16));
    (trace, parent, flags)
}

#[tokio::test]
async fn trace_context_passes_unread_where_nothing_is_configured() {
    let service = Service::echo().await;
    let proxy = proxy(&[service.addr], "");
    let odd = "traceparent: odd\r\ntracestate: x\r\n";
    assert_eq!(seen(&proxy, odd).await, ("odd".into(), "x".into()));
    assert_eq!(seen(&proxy, "").await, (String::new(), String::new()));
}

#[tokio::test]
async fn trace_context_is_passed_on_begun_or_replaced() {
    let service = Service::echo().await;
    let proxy = proxy(&[service.addr], &format!("{ON}\n{TRUSTED}"));
    for parent in [SAMPLED, UNSAMPLED] {
        // With nothing recorded here the caller's span stays the parent.
        let headers = format!("traceparent: {parent}\r\ntracestate: rojo=1\r\n");
        let never = proxy.state().traces().recorded();
        let (kept, state) = seen(&proxy, &headers).await;
        assert_eq!(state, "rojo=1");
        assert_eq!(parts(&kept).0, TRACE);
        if parent == UNSAMPLED {
            assert_eq!(kept, UNSAMPLED);
            assert_eq!(proxy.state().traces().recorded(), never);
        } else {
            assert_ne!(kept, SAMPLED, "the proxy's span is the parent");
            assert_eq!(parts(&kept).2, "01");
        }
    }
    let (begun, _) = seen(&proxy, "").await;
    assert_eq!(parts(&begun).2, "02", "random, not sampled");
    let malformed = "traceparent: 00-0-0-01\r\ntracestate: rojo=1\r\n";
    let (replaced, state) = seen(&proxy, malformed).await;
    assert_ne!(parts(&replaced).0, parts(&begun).0);
    assert_eq!(state, "");
}

#[tokio::test]
async fn sampled_flag_of_strangers_is_taken_off() {
    let service = Service::echo().await;
    let proxy = proxy(&[service.addr], ON);
    let (seen, _) = seen(&proxy, &format!("traceparent: {SAMPLED}\r\n")).await;
    let (trace, parent, flags) = parts(&seen);
    assert_eq!((trace, flags), (TRACE, "00"));
    assert_ne!(parent, "00f067aa0ba902b7");
    assert_eq!(proxy.state().traces().recorded(), 0);
}

/// What is recorded when requests have ended.
async fn recorded(proxy: &Running, count: usize) -> Vec<Span> {
    let traces = Arc::clone(proxy.state().traces());
    let mut spans = Vec::new();
    eventually("so many spans", || {
        spans.extend(traces.drain());
        spans.len() >= count
    })
    .await;
    spans
}

#[tokio::test]
async fn span_has_what_became_of_its_request() {
    let service = Service::echo().await;
    let proxy = proxy(&[service.addr], "tracing.sample = 1.0");
    proxy.state().traces().export(None);
    let answer = ask(proxy.local_addr(), GET).await;
    assert_eq!(answer.status, 200);
    let spans = recorded(&proxy, 1).await;
    let span = &spans[0];
    assert_eq!((span.status, span.reason), (200, None));
    assert_eq!(span.class_name(), "default");
    assert_eq!(span.replica_url(), Some(format!("http://{}", service.addr)));
    let (admitted, left) = (span.admitted.unwrap(), span.left.unwrap());
    assert!(span.arrived <= admitted && admitted <= left && left <= span.ended);
    assert!(span.refusal.is_none() && span.parent.is_none());
}

#[tokio::test]
async fn refusals_are_recorded_whatever_the_share() {
    let service = Service::echo().await;
    let extra = "tracing = { sample = '0%', per_second = 3 }";
    let proxy = proxy(&[service.addr], extra);
    proxy.state().traces().export(None);
    assert_eq!(ask(proxy.local_addr(), GET).await.status, 200);
    let application = proxy.state().first();
    application.sentry().set_draining(application.now(), true);
    let headers = format!("GET /b HTTP/1.1\r\nhost: a\r\ntraceparent: {SAMPLED}\r\n\r\n");
    let refused = ask(proxy.local_addr(), headers).await;
    assert_eq!(refused.status, 503);
    let spans = recorded(&proxy, 1).await;
    assert_eq!(spans.len(), 1, "the request that was served is not there");
    let span = &spans[0];
    assert_eq!((span.status, span.reason), (503, Some("draining")));
    assert_eq!(
        (span.trace.to_string(), span.path.as_str()),
        (TRACE.into(), "/b")
    );
    assert_eq!(span.parent.unwrap().to_string(), "00f067aa0ba902b7");
    assert!(span.admitted.is_none() && span.refusal.is_some());
    let id = refused.header("x-request-id").unwrap();
    let remembered = proxy.state().metrics().find_request(id).unwrap();
    assert_eq!(remembered.trace.unwrap().to_string(), TRACE);
}

#[tokio::test]
async fn trace_ends_once_for_clients_that_leave() {
    let (service, _held) = Service::held().await;
    let proxy = proxy(&[service.addr], "tracing.sample = 1.0");
    proxy.state().traces().export(None);
    let mut client = Client::connect(proxy.local_addr()).await;
    client.send(GET).await;
    eventually("it is inside", || service.count() == 1).await;
    drop(client);
    let spans = recorded(&proxy, 1).await;
    assert_eq!((spans[0].status, spans[0].reason), (0, Some("abandoned")));
    assert_eq!(proxy.state().traces().recorded(), 1);
}

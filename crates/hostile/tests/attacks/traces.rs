//! Trace contexts that are none.

use crate::stage::Stage;

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

/// Sends a request with these lines; gives the trace lines of what the replica got.
async fn forwarded(stage: &Stage, lines: &str) -> Vec<String> {
    let before = stage.heads().len();
    let request = format!("GET /trace HTTP/1.1\r\nhost: a\r\nconnection: close\r\n{lines}\r\n");
    let answer = stage.exchange(request).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let heads = stage.heads().split_off(before);
    let lines = heads.iter().flat_map(|head| head.lines());
    let traces = lines.filter(|line| line.starts_with("trace"));
    traces.map(str::to_owned).collect()
}

#[tokio::test]
async fn trace_context_that_is_none_is_replaced() {
    let stage = Stage::configured("tracing.context = true").await;
    let later = PARENT.replacen("00", "ff", 1);
    for lines in [
        format!("traceparent: {PARENT}\r\ntraceparent: {PARENT}\r\n"),
        format!("traceparent: {later}\r\n"),
        format!("traceparent: {PARENT}{PARENT}\r\ntracestate: a=b\r\n"),
        format!("traceparent: {}\r\n", PARENT.to_uppercase()),
    ] {
        let traces = forwarded(&stage, &lines).await;
        assert_eq!(traces.len(), 1, "one parent and no state: {traces:?}");
        assert!(traces[0].starts_with("traceparent: 00-"), "{traces:?}");
        assert!(!traces[0].contains(TRACE), "{traces:?}");
    }
    stage.is_unharmed().await;
}

#[tokio::test]
async fn trace_state_beyond_its_bounds_is_not_passed_on() {
    let stage = Stage::configured("tracing.context = true").await;
    let many: Vec<String> = (0..33).map(|number| format!("a{number}=b")).collect();
    for state in [
        format!("tracestate: {}\r\n", many.join(",")),
        "tracestate: a=b\r\n".repeat(60),
        format!("tracestate: a={}\r\n", "b".repeat(16_000)),
        "tracestate: no member\r\n".to_owned(),
    ] {
        let traces = forwarded(&stage, &format!("traceparent: {PARENT}\r\n{state}")).await;
        assert_eq!(traces.len(), 1, "the parent alone: {traces:?}");
        assert!(traces[0].contains(TRACE), "{traces:?}");
    }
    stage.is_unharmed().await;
}

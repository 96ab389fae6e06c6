//! What requests cost, as trusted callers and replicas say.

use std::time::Duration;

use crate::support::*;

const BY_COST: &str = "protect.mode = 'auto'\nprotect.auto.cost_fairness = 1.0\n";

/// Asks for 20 pages and gives the costs that the status then shows for the only class.
async fn costs_shown(service: &Service, extra: &str, request: &str) -> Vec<f64> {
    let proxy = proxy(&[service.addr], &format!("{BY_COST}{extra}"));
    let mut client = Client::connect(proxy.local_addr()).await;
    let mut costs = Vec::new();
    // The first ones teach what one costs.
    for _ in 0..2 {
        for _ in 0..20 {
            assert_eq!(client.ask(request).await.status, 200);
        }
        eventually("a tick counts them", || {
            let state = proxy.state();
            let status = state.first().sentry().status(state.now());
            costs = status.classes[0].costs.iter().map(|it| it.cost).collect();
            !costs.is_empty()
        })
        .await;
    }
    costs
}

/// A service that reports a cost of 1200 in this header.
async fn reporting(name: &'static str, value: &'static str) -> Service {
    Service::start(move |_| async move {
        let mut reply = text("ok");
        let value = value.parse().expect("a header's value");
        reply.headers_mut().insert(name, value);
        reply
    })
    .await
}

fn is_about(costs: &[f64], cost: f64) -> bool {
    let near = |shown: &f64| (0.8..1.25).contains(&(shown / cost));
    costs.iter().any(near)
}

#[tokio::test]
async fn cost_declared_by_a_trusted_caller_counts_and_by_another_does_not() {
    let service = Service::echo().await;
    // In milliseconds, where time is the cost.
    let request = "GET / HTTP/1.1\r\nhost: a\r\ntidegate-cost: 400000\r\n\r\n";
    let trusting = "forward.trust = ['127.0.0.1/32']";
    let believed = costs_shown(&service, trusting, request).await;
    assert!(is_about(&believed, 400.0), "{believed:?}");
    let ignored = costs_shown(&service, "", request).await;
    assert!(!is_about(&ignored, 400.0), "{ignored:?}");
}

/// A request of 20 ms whose client says that it is almost free: the cost that was learned counts.
#[tokio::test]
async fn cost_understated_by_a_stranger_is_the_learned_one() {
    const WORK: Duration = Duration::from_millis(20);
    let service = Service::start(|_| async {
        tokio::time::sleep(WORK).await;
        text("ok")
    })
    .await;
    let lie = "GET / HTTP/1.1\r\nhost: a\r\ntidegate-cost: 0.001\r\n\r\n";
    let least = |costs: &[f64]| costs.iter().copied().fold(f64::INFINITY, f64::min);
    let shown = costs_shown(&service, "", lie).await;
    assert!(least(&shown) > 0.8 * WORK.as_secs_f64(), "{shown:?}");
    let trusting = "forward.trust = ['127.0.0.1/32']";
    let believed = costs_shown(&service, trusting, lie).await;
    assert!(least(&believed) < 1e-3, "{believed:?}");
}

#[tokio::test]
async fn cost_reported_by_replicas_is_learned() {
    for (name, value) in [
        ("tidegate-cost", "1200"),
        (
            "endpoint-load-metrics",
            r#"JSON {"request_cost":{"prefill":1000,"decode":200}}"#,
        ),
    ] {
        let service = reporting(name, value).await;
        let by_report = "protect.auto.cost_by = 'report'";
        let learned = costs_shown(&service, by_report, GET).await;
        assert!(is_about(&learned, 1200.0), "{name}: {learned:?}");
        let by_time = costs_shown(&service, "", GET).await;
        assert!(!is_about(&by_time, 1200.0), "{name}: {by_time:?}");
    }
}

/// A language model: tokens in the answer, and in the last event but one of a stream. Nothing of
/// the answer is changed.
#[tokio::test]
async fn cost_in_the_json_of_an_answer_is_learned() {
    const DOCUMENT: &str = r#"{"choices":[],"usage":{"total_tokens":1200,"input":30}}"#;
    const EVENTS: [&str; 3] = [
        "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}],\"usage\":null}\n\n",
        "data: {\"choices\":[],\"usage\":{\"total_tok",
        "ens\":1200,\"input\":30}}\n\ndata: [DONE]\n\n",
    ];
    for streamed in [false, true] {
        let service = Service::start(move |_| async move {
            let pieces: &[&str] = if streamed { &EVENTS } else { &[DOCUMENT] };
            let frames: Vec<_> = pieces
                .iter()
                .map(|piece| Ok(http_body::Frame::data(bytes::Bytes::from(*piece))))
                .collect();
            let body = http_body_util::StreamBody::new(futures_util::stream::iter(frames));
            let body = http_body_util::BodyExt::boxed_unsync(body);
            let mut reply = http::Response::new(body);
            let kind = if streamed {
                "text/event-stream"
            } else {
                "application/json"
            };
            let headers = reply.headers_mut();
            headers.insert("content-type", kind.parse().expect("a header's value"));
            reply
        })
        .await;
        let by_report = "protect.auto.cost_by = 'report'\nupstream.streams = 'work'\n";
        let read = format!("{by_report}upstream.cost_json = 'usage.total_tokens'");
        let learned = costs_shown(&service, &read, GET).await;
        assert!(is_about(&learned, 1200.0), "{streamed}: {learned:?}");
        let other = format!("{by_report}upstream.cost_json = 'usage.input'");
        let input = costs_shown(&service, &other, GET).await;
        assert!(is_about(&input, 30.0), "{streamed}: {input:?}");
        assert!(!is_about(&input, 1200.0), "{streamed}: {input:?}");

        let proxy = proxy(&[service.addr], &read);
        let answer = Client::connect(proxy.local_addr()).await.ask(GET).await;
        let expected = if streamed {
            EVENTS.concat()
        } else {
            DOCUMENT.to_owned()
        };
        assert_eq!(answer.text(), expected);
    }
}

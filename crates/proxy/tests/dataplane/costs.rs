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

//! The load generator against servers that behave and servers that do not.

mod support;

use std::time::Duration;

use http::{HeaderMap, HeaderValue, Uri};
use support::{patient, run, scripted, upstream};
use tidegate_lab::app;
use tidegate_lab::load::{self, LoadError, RequestSpec};
use tidegate_sim::workload::Spacing;

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok";

#[tokio::test]
async fn when_every_connection_is_busy_requests_are_unsent_not_late() {
    let app = app::spawn(upstream(10, "det:300ms")).await.unwrap();
    let mut config = patient(app.addr(), 50.0, 1);
    config.connections = 2;
    let report = run(config).await;
    let requests = &report.requests;
    assert!(requests.unsent > 0, "{requests:?}");
    assert_eq!(requests.ok + requests.unsent, requests.total);
    assert!(app.stats().concurrency_max <= 2);
    assert_eq!(app.stats().arrivals, requests.ok);
}

#[tokio::test]
async fn client_that_left_before_its_turn_is_not_sent() {
    let app = app::spawn(upstream(1, "det:1ms")).await.unwrap();
    let mut config = patient(app.addr(), 100.0, 1);
    config.timeout = Duration::from_nanos(1);
    let requests = run(config).await.requests;
    assert_eq!(requests.timeouts, requests.total);
    assert_eq!(app.stats().arrivals, 0);
}

#[tokio::test]
async fn refusals_are_counted_by_reason() {
    let addr = scripted(|turn| match turn % 3 {
        0 => "HTTP/1.1 503 Busy\r\ntidegate-shed: predicted\r\ncontent-length: 0\r\n\r\n",
        1 => "HTTP/1.1 429 Slow down\r\ncontent-length: 0\r\n\r\n",
        _ => OK,
    })
    .await;
    let mut config = patient(addr, 100.0, 1);
    config.pattern = Spacing::deterministic().into();
    let report = run(config).await.requests;
    assert_eq!(report.total, 99);
    assert_eq!(report.shed_by_reason["predicted"], 33);
    assert_eq!(report.shed_by_reason["429"], 33);
    assert_eq!((report.ok, report.within_target), (33, 33));
    assert!(report.refusal_latency.is_some());
}

#[tokio::test]
async fn failures_of_the_server_have_their_own_classes() {
    let broken = scripted(|_| "HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\ncut").await;
    assert_all(patient(broken, 50.0, 1), |requests| requests.broken).await;
    let failing = scripted(|_| "HTTP/1.1 500 Oh\r\ncontent-length: 0\r\n\r\n").await;
    assert_all(patient(failing, 50.0, 1), |requests| requests.server_errors).await;
    let missing = scripted(|_| "HTTP/1.1 404 No\r\ncontent-length: 0\r\n\r\n").await;
    assert_all(patient(missing, 50.0, 1), |requests| requests.client_errors).await;
    let closed = {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        listener.local_addr().unwrap()
    };
    let report = assert_all(patient(closed, 50.0, 1), |requests| requests.connect_errors).await;
    let cause = report.connect_error.as_deref().unwrap_or_default();
    assert!(!cause.is_empty() && report.to_string().contains(cause));
}

async fn assert_all(
    config: load::LoadConfig,
    class: fn(&load::Summary) -> u64,
) -> load::LoadReport {
    let report = run(config).await;
    let requests = &report.requests;
    assert!(requests.total > 10);
    assert_eq!(class(requests), requests.total, "{requests:?}");
    report
}

#[tokio::test]
async fn refused_clients_come_back_as_often_as_told() {
    let addr = scripted(|_| "HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n").await;
    let mut config = patient(addr, 20.0, 1);
    config.retry.retries_max = 2;
    config.retry.backoff = Duration::from_millis(5);
    let report = run(config).await;
    let attempts = report
        .attempts
        .expect("tries are counted where there are retries");
    assert_eq!(report.requests.shed, report.requests.total);
    assert_eq!(attempts.total, 3 * report.requests.total);
}

#[tokio::test]
async fn retry_that_succeeds_makes_the_request_ok() {
    let addr = scripted(|turn| match turn {
        0 => "HTTP/1.1 503 Busy\r\nretry-after: 0\r\ncontent-length: 0\r\n\r\n",
        _ => OK,
    })
    .await;
    let mut config = patient(addr, 20.0, 1);
    config.retry.retries_max = 1;
    config.retry.obey_retry_after = true;
    let report = run(config).await;
    assert_eq!(report.requests.ok, report.requests.total);
    assert_eq!(report.attempts.unwrap().shed, 1);
}

#[tokio::test]
async fn kinds_are_sent_and_counted_by_name() {
    let app = app::spawn(upstream(10, "det:1ms")).await.unwrap();
    let mut config = patient(app.addr(), 200.0, 1);
    let plan = |name: &'static str, weight| RequestSpec {
        name: name.to_owned(),
        weight,
        headers: HeaderMap::from_iter([(
            http::HeaderName::from_static("x-plan"),
            HeaderValue::from_static(name),
        )]),
        ..RequestSpec::default()
    };
    config.requests = vec![plan("gold", 1.0), plan("bronze", 9.0)];
    let report = run(config).await;
    let (gold, bronze) = (&report.kinds["gold"], &report.kinds["bronze"]);
    assert_eq!(gold.total + bronze.total, report.requests.total);
    assert!(gold.total > 0 && bronze.total > gold.total);
}

#[tokio::test]
async fn seconds_add_up_to_the_whole() {
    let app = app::spawn(upstream(10, "det:5ms")).await.unwrap();
    let mut seen = Vec::new();
    let report = load::run(patient(app.addr(), 100.0, 2), |second| {
        seen.push(second.clone());
    })
    .await
    .unwrap();
    assert_eq!(seen, report.seconds);
    let offered: u64 = seen.iter().map(|second| second.offered).sum();
    let ok: u64 = seen.iter().map(|second| second.ok).sum();
    assert_eq!((offered, ok), (report.requests.total, report.requests.ok));
    assert_eq!(
        report.requests.total,
        patient(app.addr(), 100.0, 2).arrival_times().count() as u64
    );
}

#[tokio::test]
async fn url_that_cannot_be_sent_to_is_refused_before_the_start() {
    let mut config = patient(([127, 0, 0, 1], 9).into(), 1.0, 1);
    config.targets = vec![Uri::from_static("ftp://127.0.0.1/")];
    let refused = load::run(config, |_| {}).await.unwrap_err();
    assert!(matches!(refused, LoadError::Url(_)), "{refused}");
}

//! The demo upstream over real sockets. What is asserted is read from its virtual clock, so that a
//! busy machine changes nothing.

mod support;

use std::time::Duration;

use http::Method;
use support::{PATIENCE, fetch, get, patient, post, run, upstream, url};
use tidegate_lab::app::{self, Params, SlowPath, Stats};
use tidegate_lab::load::{self, LoadConfig, Protocol, RequestSpec};
use tidegate_sim::workload::RateFunction;
use tokio::net::TcpStream;

#[tokio::test]
async fn below_capacity_everything_is_served_and_work_is_exact() {
    let app = app::spawn(upstream(1, "det:10ms")).await.unwrap();
    let report = run(patient(app.addr(), 50.0, 2)).await;
    let stats = app.stats();
    assert_eq!(report.requests.ok, report.requests.total);
    assert_eq!(stats.completions, report.requests.total);
    let work = stats.completions as f64 * 0.01;
    assert!((stats.work_s - work).abs() < 1e-6, "{stats:?}");
    assert!((stats.busy_s - work).abs() < 1e-6, "{stats:?}");
}

#[tokio::test]
async fn at_twice_its_capacity_throughput_is_the_capacity() {
    let app = app::spawn(upstream(1, "det:10ms")).await.unwrap();
    let mut snapshots: Vec<Stats> = Vec::new();
    let config = patient(app.addr(), 200.0, 3);
    let report = load::run(config, |_| snapshots.push(app.stats()))
        .await
        .unwrap();
    // After a second at twice the capacity some hundred wait: the worker is never idle.
    let (from, to) = (snapshots[0], snapshots[2]);
    let elapsed = to.time_s - from.time_s;
    let served = (to.completions - from.completions) as f64;
    assert!(
        (served - 100.0 * elapsed).abs() <= 1.0,
        "{served} in {elapsed} s"
    );
    assert!((to.busy_s - from.busy_s - elapsed).abs() < 1e-6);
    assert_eq!(report.requests.ok, app.stats().completions);
}

#[tokio::test]
async fn four_workers_with_random_work_have_four_times_the_throughput() {
    let app = app::spawn(upstream(4, "exp:40ms")).await.unwrap();
    let mut snapshots: Vec<Stats> = Vec::new();
    // Four seconds of work are waiting when it is looked at first, whatever the machine does.
    load::run(patient(app.addr(), 500.0, 3), |_| {
        snapshots.push(app.stats());
    })
    .await
    .unwrap();
    let (from, to) = (snapshots[0], snapshots[2]);
    let elapsed = to.time_s - from.time_s;
    assert!(
        (to.busy_s - from.busy_s - 4.0 * elapsed).abs() < 1e-6,
        "all four always busy"
    );
    // Completions of four exponential workers are a Poisson process of 100/s: five deviations.
    let expected = 100.0 * elapsed;
    let served = (to.completions - from.completions) as f64;
    assert!(
        (served - expected).abs() < 5.0 * expected.sqrt(),
        "{served} of {expected}"
    );
}

#[tokio::test]
async fn work_for_clients_that_left_is_wasted() {
    let app = app::spawn(upstream(1, "det:50ms")).await.unwrap();
    let mut config = patient(app.addr(), 100.0, 1);
    config.timeout = Duration::from_millis(300);
    let report = run(config).await;
    assert!(report.requests.timeouts > 0, "20/s cannot serve 100/s");
    let answered = report.requests.ok + report.requests.timeouts;
    assert_eq!(answered, report.requests.total);
    // All requests are served in the end, abandoned or not.
    tokio::time::timeout(
        PATIENCE,
        until(|| {
            let stats = app.stats();
            stats.in_service + stats.waiting == 0
        }),
    )
    .await
    .unwrap();
    let stats = app.stats();
    assert_eq!(stats.completions, stats.arrivals);
    assert!(stats.wasted >= stats.abandoned, "{stats:?}");
    assert!(
        stats.completions - stats.wasted >= report.requests.ok,
        "{stats:?}"
    );
}

async fn until(mut done: impl FnMut() -> bool) {
    while !done() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn parameters_change_while_it_runs() {
    let app = app::spawn(upstream(1, "det:1ms")).await.unwrap();
    let answer = post(
        app.addr(),
        "/_app/params",
        r#"{"speed":0.5,"service":"det:10ms"}"#,
    );
    assert!(answer.await.starts_with("HTTP/1.1 200 OK"));
    run(patient(app.addr(), 100.0, 1)).await;
    let stats = app.stats();
    assert!((stats.work_s - 0.01 * stats.completions as f64).abs() < 1e-6);
    assert!(
        (stats.busy_s - 2.0 * stats.work_s).abs() < 1e-6,
        "half speed"
    );

    let refused = post(app.addr(), "/_app/params", r#"{"sped":0.5}"#).await;
    assert!(refused.starts_with("HTTP/1.1 400"), "{refused}");
    assert!(refused.contains("unknown field `sped`"), "{refused}");
    let refused = app.set_params(&Params {
        speed: Some(-1.0),
        ..Params::default()
    });
    assert!(refused.unwrap_err().to_string().contains("from 0"));
}

const LEAN: &str = "GET / HTTP/1.1\r\ntidegate-optional: 0\r\n";

#[tokio::test]
async fn slow_paths_optional_content_and_reports() {
    let mut config = upstream(1, "det:10ms");
    config.optional = tidegate_config::Share(0.5);
    config.slow_paths = vec![SlowPath {
        prefix: "/slow".to_owned(),
        factor: 3.0,
    }];
    config.report = true;
    let app = app::spawn(config).await.unwrap();
    let slow = get(app.addr(), "/slow/page").await;
    assert!(slow.contains("tidegate-service-ms: 30.000"), "{slow}");
    assert!(slow.contains("tidegate-utilization: "), "{slow}");
    let lean = fetch(app.addr(), LEAN, "").await;
    assert!(lean.contains("tidegate-service-ms: 5.000"), "{lean}");
    assert_eq!(app.stats().degraded, 1);
    let stats = get(app.addr(), "/_app/stats").await;
    assert!(stats.contains("tidegate-utilization: "), "{stats}");
}

#[tokio::test]
async fn without_optional_content_nobody_is_told_that_there_is_some() {
    let mut config = upstream(1, "det:1ms");
    config.report = true;
    let app = app::spawn(config).await.unwrap();
    let page = get(app.addr(), "/").await;
    assert!(page.contains("tidegate-utilization: "), "{page}");
    assert!(!page.contains("tidegate-service-ms"), "{page}");
}

#[tokio::test]
async fn streams_and_statistics_are_served() {
    let app = app::spawn(upstream(1, "det:1ms")).await.unwrap();
    let stream = get(app.addr(), "/stream?events=3&every=2ms").await;
    assert!(stream.contains("text/event-stream"), "{stream}");
    assert!(stream.contains("data: 3 of 3"), "{stream}");
    let stats = get(app.addr(), "/_app/stats").await;
    assert!(stats.contains(r#""completions":1"#), "{stats}");
    let nothing = get(app.addr(), "/_app/else").await;
    assert!(nothing.starts_with("HTTP/1.1 404"), "{nothing}");
}

#[tokio::test]
async fn websocket_echoes_until_the_upstream_ends() {
    use futures_util::{SinkExt as _, StreamExt as _};
    use tokio_tungstenite::tungstenite::Message;

    let app = app::spawn(upstream(1, "det:1ms")).await.unwrap();
    let socket = TcpStream::connect(app.addr()).await.unwrap();
    let (mut websocket, answer) = tokio_tungstenite::client_async("ws://test/ws", socket)
        .await
        .unwrap();
    assert_eq!(answer.status(), 101);
    websocket.send(Message::text("hello")).await.unwrap();
    let echoed = websocket.next().await.unwrap().unwrap();
    assert_eq!(echoed.into_text().unwrap().as_str(), "hello");
    assert_eq!(app.stats().completions, 1);
    app.shutdown().await;
    assert!(
        !matches!(websocket.next().await, Some(Ok(_))),
        "closed with its upstream"
    );
}

#[tokio::test]
async fn http2_serves_many_requests_over_one_connection() {
    let app = app::spawn(upstream(8, "det:20ms")).await.unwrap();
    let mut config = LoadConfig::new(
        vec![url(app.addr(), "/h2")],
        RateFunction::constant(200.0),
        Duration::from_secs(1),
    );
    config.timeout = PATIENCE;
    config.connections = 1;
    config.protocol = Protocol::Http2 { streams: 100 };
    // A body in the answer to it would be an error of the protocol.
    config.requests.push(RequestSpec {
        method: Method::HEAD,
        ..RequestSpec::default()
    });
    let report = run(config).await;
    assert_eq!(
        report.requests.ok,
        report.requests.total - report.requests.unsent
    );
    assert!(report.requests.ok > 100);
    assert!(app.stats().concurrency_max > 1, "multiplexed");
}

#[tokio::test]
async fn port_in_use_is_an_error() {
    let first = app::spawn(upstream(1, "det:1ms")).await.unwrap();
    let mut config = upstream(1, "det:1ms");
    config.listen = first.addr();
    assert!(app::spawn(config).await.is_err());
    let addr = first.addr();
    first.shutdown().await;
    assert!(TcpStream::connect(addr).await.is_err());
}

//! What a client may not say, and what neither side hears of the other.

use http::{HeaderName, HeaderValue};

use crate::support::*;

async fn refused(bytes: &str, status: u16) {
    let service = Service::echo().await;
    let proxy = proxy(
        &[service.addr],
        "limits.head_bytes = '2KiB'\nlimits.headers = 20",
    );
    let mut client = Client::connect(proxy.local_addr()).await;
    client.send(bytes).await;
    let answer = client.answer().await;
    assert_eq!(answer.status, status, "{bytes:?}: {}", answer.text());
    assert_eq!(service.count(), 0, "{bytes:?} reached the service");
    if answer.header("connection") == Some("close") {
        assert!(client.is_closed().await, "{bytes:?}");
    }
}

#[tokio::test]
async fn ambiguous_requests_are_refused() {
    for (headers, status) in [
        (
            "host: a\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n",
            400,
        ),
        ("host: a\r\ncontent-length: 3\r\ncontent-length: 3\r\n", 400),
        ("host: a\r\ntransfer-encoding: gzip\r\n", 501),
        ("host: a\r\nx: 1\r\n folded\r\n", 400),
        ("host: a\nx: 1\r\n", 400),
        ("host: a\r\nx: a\rb\r\n", 400),
        ("host: a\r\nx : 1\r\n", 400),
        ("", 400),
        ("host: a\r\nhost: a\r\n", 400),
        ("host: a, b\r\n", 400),
        ("host: a\r\nexpect: the-unexpected\r\n", 417),
    ] {
        refused(
            &format!("POST / HTTP/1.1\r\n{headers}\r\n0\r\n\r\n"),
            status,
        )
        .await;
    }
}

#[tokio::test]
async fn odd_request_lines_are_refused() {
    for (line, status) in [
        ("GET http://b/ HTTP/1.1", 400),
        ("GET ftp://a/ HTTP/1.1", 400),
        ("GET  / HTTP/1.1", 400),
        ("GET / HTTP/1.2", 505),
        ("GET /#x HTTP/1.1", 400),
        ("GET /<x> HTTP/1.1", 400),
        ("CONNECT a:443 HTTP/1.1", 405),
        ("TRACE / HTTP/1.1", 405),
    ] {
        let host = if line.starts_with("CONNECT") {
            "a:443"
        } else {
            "a"
        };
        refused(&format!("{line}\r\nhost: {host}\r\n\r\n"), status).await;
    }
}

#[tokio::test]
async fn heads_that_are_too_large_are_refused() {
    refused(
        &format!("GET /{} HTTP/1.1\r\nhost: a\r\n\r\n", "x".repeat(3000)),
        414,
    )
    .await;
    refused(
        &format!(
            "GET / HTTP/1.1\r\nhost: a\r\nx: {}\r\n\r\n",
            "x".repeat(3000)
        ),
        431,
    )
    .await;
    refused(
        &format!("GET / HTTP/1.1\r\nhost: a\r\n{}\r\n", "x: 1\r\n".repeat(20)),
        431,
    )
    .await;
}

#[tokio::test]
async fn a_sound_request_in_front_of_an_ambiguous_one_is_answered() {
    let service = Service::echo().await;
    let proxy = proxy(&[service.addr], "");
    let mut client = Client::connect(proxy.local_addr()).await;
    client
        .send(format!(
            "{GET}GET / HTTP/1.1\r\nhost: a\r\ncontent-length: x\r\n\r\n{GET}"
        ))
        .await;
    assert_eq!(client.answer().await.status, 200);
    assert_eq!(client.answer().await.status, 400);
    assert!(client.is_closed().await);
    assert_eq!(service.count(), 1);
}

#[tokio::test]
async fn a_body_with_broken_chunks_is_never_passed_on_as_whole() {
    let service = Service::echo().await;
    let proxy = proxy(&[service.addr], "");
    let head = "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n";
    for body in ["3\r\nabcX\r\n0\r\n\r\n", "3\nabc\r\n0\r\n\r\n", "zz\r\n"] {
        let answer = ask(proxy.local_addr(), format!("{head}{body}")).await;
        assert_eq!(answer.status, 400, "{body:?}");
    }
}

#[tokio::test]
async fn nothing_is_smuggled_in_the_disguise_of_our_own() {
    let service = Service::echo().await;
    let proxy = proxy(&[service.addr], "");
    let request = "GET / HTTP/1.1\r\nhost: a\r\nTidegate-Class: gold\r\ntidegate_class: gold\r\n\
        X-Forwarded-For: 10.0.0.1\r\nx_forwarded_for: 10.0.0.1\r\nconnection: x-gone, close\r\nx-gone: 1\r\n\
        keep-alive: 1\r\nte: trailers, gzip\r\nproxy-authorization: x\r\nupgrade: h2c\r\nhttp2-settings: x\r\n\r\n";
    let text = ask(proxy.local_addr(), request).await.text();
    for gone in [
        "gold",
        "10.0.0.1",
        "x-gone",
        "keep-alive",
        "gzip",
        "proxy-auth",
        "h2c",
        "http2-settings",
        "connection",
    ] {
        assert!(!text.contains(gone), "{gone} in {text}");
    }
    assert!(text.contains("te: trailers\n"));
}

#[tokio::test]
async fn targets_reach_the_service_in_the_letters_of_the_rfc() {
    let service = Service::echo().await;
    let proxy = proxy(&[service.addr], "");
    let text = ask(
        proxy.local_addr(),
        "GET http://a/b|c?d={%} HTTP/1.1\r\nhost: a\r\n\r\n",
    )
    .await
    .text();
    assert!(
        text.starts_with("GET /b%7Cc?d=%7B%25%7D HTTP/1.1\n"),
        "{text}"
    );
}

#[tokio::test]
async fn replicas_reports_stay_inside() {
    let service = Service::start(|_| async {
        let mut reply = text("ok");
        for (name, value) in [
            ("tidegate-utilization", "0.5"),
            ("tidegate_shed", "x"),
            ("endpoint-load-metrics", "TEXT cpu_utilization=0.5"),
            ("connection", "x-hop"),
            ("x-hop", "1"),
            ("x-own", "1"),
        ] {
            reply.headers_mut().append(
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            );
        }
        reply
    })
    .await;
    let proxy = proxy(&[service.addr], "");
    let answer = ask(proxy.local_addr(), GET).await;
    for gone in ["tidegate", "endpoint-load", "x-hop"] {
        assert!(!answer.head.contains(gone), "{gone} in {}", answer.head);
    }
    assert_eq!(answer.header("x-own"), Some("1"));
}

#[tokio::test]
async fn own_load_is_reported_to_trusted_callers_that_ask() {
    let service = reporting(&["endpoint-load-metrics"], "TEXT cpu_utilization=0.5").await;
    let load = |format: &str| {
        format!("GET / HTTP/1.1\r\nhost: a\r\nendpoint-load-metrics-format: {format}\r\n\r\n")
    };
    let strict = proxy(&[service.addr], "");
    let answer = ask(strict.local_addr(), &load("TEXT")).await;
    assert_eq!(answer.header("endpoint-load-metrics"), None);
    let trusting = "forward.trust = ['127.0.0.1/32']\nprotect.mode = 'static'\n\
                    protect.static.share = '100%'\nprotect.limits.slots = 16";
    let trusting = proxy(&[service.addr], trusting);
    // The request itself takes one of the sixteen slots, or has just given it back.
    for (format, reports) in [
        (
            "TEXT",
            [
                "TEXT application_utilization=0.0625",
                "TEXT application_utilization=0.0000",
            ],
        ),
        (
            "json",
            [
                r#"JSON {"application_utilization":0.0625}"#,
                r#"JSON {"application_utilization":0.0000}"#,
            ],
        ),
    ] {
        let answer = ask(trusting.local_addr(), &load(format)).await;
        let report = answer.header("endpoint-load-metrics").unwrap();
        assert!(reports.contains(&report), "{report}");
    }
    for silent in ["XML", ""] {
        let answer = ask(trusting.local_addr(), &load(silent)).await;
        assert_eq!(answer.header("endpoint-load-metrics"), None);
    }
}

/// A service whose every answer reports these values.
async fn reporting(names: &'static [&'static str], value: &'static str) -> Service {
    Service::start(move |_| async move {
        let mut reply = text("ok");
        for name in names {
            let name = HeaderName::from_static(name);
            reply
                .headers_mut()
                .append(name, HeaderValue::from_static(value));
        }
        reply
    })
    .await
}

#[tokio::test]
async fn nonsense_that_a_replica_reports_is_counted_and_harms_nobody() {
    const REPORTS: &[&str] = &[
        "tidegate-utilization",
        "tidegate-service-ms",
        "tidegate-cpu-ms",
        "tidegate-io-ms",
        "tidegate-dimmer",
        "tidegate-cost",
    ];
    for nonsense in ["nan", "inf", "-inf", "-1", "1e300"] {
        let liar = reporting(REPORTS, nonsense).await;
        let proxy = proxy(&[liar.addr], "protect.mode = 'auto'");
        let mut client = Client::connect(proxy.local_addr()).await;
        for _ in 0..20 {
            assert_eq!(client.ask(GET).await.status, 200, "{nonsense}");
        }
        let status = proxy.state().first().sentry().status(proxy.state().now());
        assert_eq!(status.bad_reports, 20 * REPORTS.len() as u64, "{nonsense}");
    }
}

#[tokio::test]
async fn bodies_beyond_the_limit_are_refused() {
    let service = Service::echo().await;
    let proxy = proxy(&[service.addr], "limits.body_bytes = '1KiB'");
    let announced = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1025\r\n\r\n";
    assert_eq!(ask(proxy.local_addr(), announced).await.status, 413);
    let chunk = format!("400\r\n{}\r\n", "x".repeat(1024));
    let chunked = format!(
        "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n{chunk}{chunk}0\r\n\r\n"
    );
    assert_eq!(ask(proxy.local_addr(), chunked).await.status, 413);
    let allowed = format!(
        "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1024\r\n\r\n{}",
        "x".repeat(1024)
    );
    assert_eq!(ask(proxy.local_addr(), allowed).await.status, 200);
}

#[tokio::test]
async fn a_head_that_never_ends_is_answered_408() {
    let service = Service::echo().await;
    let proxy = proxy(&[service.addr], "timeouts.head = '200ms'");
    let mut client = Client::connect(proxy.local_addr()).await;
    client.send("GET / HTTP/1.1\r\nhost: a\r\n").await;
    assert_eq!(client.answer().await.status, 408);
    assert!(client.is_closed().await);
    let mut silent = Client::connect(proxy.local_addr()).await;
    assert!(
        silent.is_closed().await,
        "who says nothing is let go without a word"
    );
}

#[tokio::test]
async fn connections_beyond_the_limit_are_closed() {
    let service = Service::echo().await;
    let limits = "limits = { connections = 2, connections_per_address = '100%' }";
    let proxy = proxy(&[service.addr], limits);
    let mut first = Client::connect(proxy.local_addr()).await;
    let mut second = Client::connect(proxy.local_addr()).await;
    assert_eq!(first.ask(GET).await.status, 200);
    assert_eq!(second.ask(GET).await.status, 200);
    let mut third = Client::connect(proxy.local_addr()).await;
    assert!(third.is_closed().await);
    assert_eq!(proxy.state().metrics().totals().turned_away, [1, 0, 0, 0]);
    drop(first);
    eventually("the first connection is gone", || {
        proxy.state().connections() < 2
    })
    .await;
    assert_eq!(ask(proxy.local_addr(), GET).await.status, 200);
}

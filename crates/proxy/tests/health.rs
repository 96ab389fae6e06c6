//! Health checks against real sockets: replicas that die, hang, answer badly and come back.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod operator;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Response;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use operator::{Desk, EventStream};
use tidegate_proxy::health::Outcome;
use tidegate_proxy::metrics::UpstreamFailure;
use tidegate_sentry::ReplicaId;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// A replica whose health answer can be changed; 0 hangs.
struct Patient {
    addr: SocketAddr,
    status: Arc<AtomicU16>,
    serving: JoinHandle<()>,
}

impl Patient {
    async fn start() -> Self {
        Self::at("127.0.0.1:0".parse().unwrap()).await
    }

    async fn at(addr: SocketAddr) -> Self {
        let listener = TcpListener::bind(addr).await.unwrap();
        let addr = listener.local_addr().unwrap();
        let status = Arc::new(AtomicU16::new(200));
        let shared = Arc::clone(&status);
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(stream, Arc::clone(&shared)));
            }
        });
        Self {
            addr,
            status,
            serving,
        }
    }

    fn answer_with(&self, status: u16) {
        self.status.store(status, Ordering::SeqCst);
    }

    /// Closes the listener: connections are refused from now on.
    async fn die(self) -> SocketAddr {
        self.serving.abort();
        let _ = self.serving.await;
        self.addr
    }
}

async fn answer(stream: TcpStream, status: Arc<AtomicU16>) {
    let service = service_fn(|request: http::Request<hyper::body::Incoming>| {
        assert_eq!(request.uri().path(), "/healthz");
        let host = request.headers().contains_key("host") || request.uri().host().is_some();
        assert!(host, "{request:?}");
        let status = status.load(Ordering::SeqCst);
        async move {
            if status == 0 {
                std::future::pending::<()>().await;
            }
            let mut response = Response::new(Full::<Bytes>::default());
            *response.status_mut() = status.try_into().unwrap();
            let headers = response.headers_mut();
            headers.insert("tidegate-utilization", "0.75".parse().unwrap());
            Ok::<_, Infallible>(response)
        }
    });
    let _ = auto::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

fn config(replicas: &[SocketAddr], health: &str) -> String {
    let urls: Vec<_> = replicas
        .iter()
        .map(|addr| format!("'http://{addr}'"))
        .collect();
    format!(
        "listen = '127.0.0.1:0'\nadmin = '127.0.0.1:0'\nupstream = [{}]\n[health.active]\n{health}",
        urls.join(", ")
    )
}

const FAST: &str = "path = '/healthz'\ninterval = '50ms'\ntimeout = '200ms'\n";

async fn becomes(events: &mut EventStream, replica: u16, up: bool) {
    let fits = |event: &serde_json::Value| event["replica"] == replica && event["up"] == up;
    events.wait_for("health", fits).await;
}

#[tokio::test]
async fn a_replica_that_answers_badly_or_hangs_is_out_until_it_answers_well() {
    let (a, b) = (Patient::start().await, Patient::start().await);
    let desk = Desk::start(&config(&[a.addr, b.addr], FAST));
    let mut events = desk.events().await;
    for (status, cause) in [(503, "(/healthz answers 503)"), (0, "(no answer in time)")] {
        b.answer_with(status);
        let told = |event: &serde_json::Value| event["line"].as_str().unwrap().contains(cause);
        events.wait_for("notice", told).await;
        becomes(&mut events, 1, false).await;
        let status = desk.get("/api/status").await.json();
        let warnings = status["applications"]["default"]["warnings"].to_string();
        assert!(warnings.contains(cause), "{warnings}");
        let metrics = desk.get("/metrics").await.body;
        let series = format!(
            "tidegate_replica_up{{application=\"default\",replica=\"http://{}\"}} 0\n",
            b.addr
        );
        assert!(metrics.contains(&series));
        b.answer_with(204);
        becomes(&mut events, 1, true).await;
    }
}

#[tokio::test]
async fn after_all_have_died_the_first_to_return_is_used_within_a_second() {
    let (a, b) = (Patient::start().await, Patient::start().await);
    let slow = "path = '/healthz'\ninterval = '60s'\nunhealthy_after = 1\n";
    let desk = Desk::start(&config(&[a.addr, b.addr], FAST));
    let mut events = desk.events().await;
    let addr = a.die().await;
    b.die().await;
    let out = std::cell::Cell::new(0);
    let second = |event: &serde_json::Value| {
        out.set(out.get() + u32::from(event["up"] == false));
        out.get() == 2
    };
    events.wait_for("health", second).await;
    assert_eq!(desk.get("/readyz").await.status, 503);
    // From here on the configured interval would be far too slow.
    let patch = config(&[addr, "127.0.0.1:1".parse().unwrap()], slow);
    let mut config = tidegate_proxy::config::Config::from_text("f", &patch).unwrap();
    config.upstream = desk.state.config().upstream.clone();
    desk.state.apply(config).unwrap();

    let _back = Patient::at(addr).await;
    let from = Instant::now();
    becomes(&mut events, 0, true).await;
    assert!(
        from.elapsed() < Duration::from_secs(1),
        "{:?}",
        from.elapsed()
    );
    assert_eq!(desk.get("/readyz").await.status, 200);
}

#[tokio::test]
async fn failing_requests_eject_and_a_connection_brings_back() {
    let (a, b) = (Patient::start().await, Patient::start().await);
    let desk = Desk::start(&config(&[a.addr, b.addr], "interval = '50ms'\n"));
    let mut events = desk.events().await;
    let addr = a.die().await;
    for _ in 0..5 {
        let outcome = Outcome::Failed(UpstreamFailure::Connect);
        desk.state.first().board().record(ReplicaId(0), outcome);
    }
    becomes(&mut events, 0, false).await;
    let _back = Patient::at(addr).await;
    becomes(&mut events, 0, true).await;
}

#[tokio::test]
async fn the_only_replica_is_asked_however_it_fails_and_that_is_said() {
    let a = Patient::start().await;
    let desk = Desk::start(&config(&[a.addr], "interval = '50ms'\n"));
    let mut events = desk.events().await;
    let says = |what: &'static str| {
        move |event: &serde_json::Value| event["line"].as_str().unwrap().contains(what)
    };
    let record = |outcome| desk.state.first().board().record(ReplicaId(0), outcome);
    assert_eq!(desk.get("/readyz").await.status, 200);
    let addr = a.die().await;
    for _ in 0..5 {
        record(Outcome::Failed(UpstreamFailure::Connect));
    }
    events.wait_for("notice", says("no other one works")).await;
    let status = desk.get("/api/status").await.json();
    assert_eq!(status["applications"]["default"]["replicas"][0]["up"], true);
    let warning = &status["applications"]["default"]["warnings"][0]["text"];
    let warning = warning.as_str().unwrap();
    assert!(warning.contains("connections to it fail"), "{warning}");
    let ready = desk.get("/readyz").await;
    assert_eq!(ready.status, 503);
    let cause = ready.json()["cause"].to_string();
    assert!(cause.contains(&addr.to_string()), "{cause}");
    // Nobody sends a request to a proxy that is not ready.
    let _back = Patient::at(addr).await;
    events.wait_for("notice", says("answers again")).await;
    let status = desk.get("/api/status").await.json();
    assert_eq!(status["warnings"].as_array().unwrap().len(), 0);
    assert_eq!(desk.get("/readyz").await.status, 200);
    for _ in 0..5 {
        record(Outcome::Failed(UpstreamFailure::Reset));
    }
    events.wait_for("notice", says("no other one works")).await;
    assert_eq!(desk.get("/readyz").await.status, 200, "it can be reached");
}

#[tokio::test]
async fn what_a_health_check_says_of_the_utilization_reaches_the_controller() {
    let a = Patient::start().await;
    let pi = "[protect]\nmode = 'pi'\n[protect.pi]\ngain = 50\nintegral_time = '3s'\nsetpoint = 0.9\n\
              initial = 100\nmin = 0\nmax = 200\n";
    let desk = Desk::start(&config(&[a.addr], &format!("{FAST}{pi}")));
    let mut events = desk.events().await;
    let told = |event: &serde_json::Value| event["measured"] == 0.75;
    events.wait_for("step", told).await;
}

/// A replica with ORCA's gRPC service: it says how long the interval is that it was asked for, and
/// sends two reports in one piece and a half.
async fn reporting_replica() -> (SocketAddr, tokio::sync::mpsc::UnboundedReceiver<Bytes>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let (asked, requests) = tokio::sync::mpsc::unbounded_channel();
    let service = service_fn(move |request: http::Request<hyper::body::Incoming>| {
        let asked = asked.clone();
        async move {
            let path = "/xds.service.orca.v3.OpenRcaService/StreamCoreMetrics";
            assert_eq!(request.uri().path(), path);
            assert_eq!(request.headers()["content-type"], "application/grpc");
            let body = request.into_body().collect().await.unwrap().to_bytes();
            asked.send(body).unwrap();
            // Field 9, `application_utilization`, as a double.
            let report =
                |used: f64| [&[0, 0, 0, 0, 9, 9 << 3 | 1][..], &used.to_le_bytes()].concat();
            let (first, second) = (report(0.25), report(0.625));
            let (begin, end) = second.split_at(7);
            let pieces = [[&first, begin].concat(), end.to_vec()];
            let pieces = pieces.map(|it| Ok::<_, Infallible>(Frame::data(Bytes::from(it))));
            let open = futures_util::stream::iter(pieces);
            let open = futures_util::StreamExt::chain(open, futures_util::stream::pending());
            let response = Response::builder().header("content-type", "application/grpc");
            Ok::<_, Infallible>(response.body(StreamBody::new(open)).unwrap())
        }
    });
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let service = service.clone();
            tokio::spawn(async move {
                let _ = auto::Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            });
        }
    });
    (addr, requests)
}

#[tokio::test]
async fn load_reports_out_of_band_reach_the_controller() {
    let (addr, mut requests) = reporting_replica().await;
    let text = format!(
        "listen = '127.0.0.1:0'\nadmin = '127.0.0.1:0'\n\
         upstream = {{ replicas = ['http://{addr}'], load_reports = '2s' }}\n[protect]\n\
         mode = 'pi'\n[protect.pi]\ngain = 50\nintegral_time = '3s'\nsetpoint = 0.9\n\
         initial = 100\nmin = 0\nmax = 200\n"
    );
    let desk = Desk::start(&text);
    let mut events = desk.events().await;
    let told = |event: &serde_json::Value| event["measured"].as_f64().is_some_and(|it| it >= 0.25);
    events.wait_for("step", told).await;
    let asked = requests.recv().await.unwrap();
    assert_eq!(
        &asked[..],
        [0, 0, 0, 0, 4, 0x0a, 2, 0x08, 2],
        "every two seconds"
    );
}

#[tokio::test]
async fn replicas_that_only_speak_http2_are_asked_in_it() {
    let a = Patient::start().await;
    let b = Patient::start().await;
    let text = format!(
        "listen = '127.0.0.1:0'\nadmin = '127.0.0.1:0'\n[upstream]\nhttp2 = 'always'\n\
         replicas = ['http://{}', 'http://{}']\n[health.active]\n{FAST}",
        a.addr, b.addr
    );
    let desk = Desk::start(&text);
    let mut events = desk.events().await;
    a.answer_with(500);
    becomes(&mut events, 0, false).await;
    a.answer_with(200);
    becomes(&mut events, 0, true).await;
}

#[tokio::test]
async fn a_replica_added_by_a_reload_is_checked_too() {
    let (a, b) = (Patient::start().await, Patient::start().await);
    let desk = Desk::start(&config(&[a.addr], FAST));
    let mut events = desk.events().await;
    b.answer_with(500);
    let text = config(&[a.addr, b.addr], FAST);
    let config = tidegate_proxy::config::Config::from_text("f", &text).unwrap();
    desk.state.apply(config).unwrap();
    becomes(&mut events, 1, false).await;
}

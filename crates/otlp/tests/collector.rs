//! A proxy under requests, and a collector that reads what it is sent with the types that are
//! generated from OTLP's own definitions.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::HashMap;
use std::convert::Infallible;
use std::io::Read as _;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use flate2::read::GzDecoder;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::{Metric, number_data_point};
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use prost::Message;
use tidegate_otlp::{Environment, Exporter};
use tidegate_proxy::admin::Operations;
use tidegate_proxy::config::Config;
use tidegate_proxy::reload::Source;
use tidegate_proxy::trace::Exports;
use tidegate_proxy::{Proxy, Running};
use tidegate_testing::Client;
use tokio::net::TcpListener;

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// No test waits longer, however busy the machine is.
const LIMIT: Duration = Duration::from_secs(60);

async fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let waiting = async {
        loop {
            if let Some(found) = look() {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let found = tokio::time::timeout(LIMIT, waiting).await;
    found.unwrap_or_else(|_| panic!("never happened: {what}"))
}

/// A listener on a thread of its own, so that it answers also while a test blocks.
fn listen<F>(serve: impl FnOnce(TcpListener) -> F + Send + 'static) -> SocketAddr
where
    F: Future<Output = ()>,
{
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let addr = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async { serve(TcpListener::from_std(listener).unwrap()).await });
    });
    addr
}

/// What a collector was sent.
#[derive(Default)]
struct Received {
    traces: Vec<ExportTraceServiceRequest>,
    metrics: Vec<ExportMetricsServiceRequest>,
    headers: Vec<HeaderMap>,
}

/// A collector of both protocols. It answers 503 to as many messages as it is told to.
#[derive(Clone, Default)]
struct Collector {
    received: Arc<Mutex<Received>>,
    refuse: Arc<AtomicUsize>,
    refused: Arc<AtomicUsize>,
}

type Body = http_body_util::combinators::UnsyncBoxBody<Bytes, Infallible>;

impl Collector {
    fn start(&self) -> SocketAddr {
        let its = self.clone();
        listen(async move |listener| {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let its = its.clone();
                let service = service_fn(move |request| {
                    let its = its.clone();
                    async move { Ok::<_, Infallible>(its.take(request).await) }
                });
                tokio::spawn(async move {
                    let builder = auto::Builder::new(TokioExecutor::new());
                    let _ = builder
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        })
    }

    async fn take(&self, request: Request<Incoming>) -> Response<Body> {
        let (head, body) = request.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let waiting = self.refuse.load(Ordering::SeqCst);
        if waiting > 0 {
            self.refuse.store(waiting - 1, Ordering::SeqCst);
            self.refused.fetch_add(1, Ordering::SeqCst);
            let mut answer = Response::new(Full::default().boxed_unsync());
            *answer.status_mut() = http::StatusCode::SERVICE_UNAVAILABLE;
            return answer;
        }
        let grpc = head.headers["content-type"] == "application/grpc";
        let (body, gzip) = if grpc {
            let length = u32::from_be_bytes(body[1..5].try_into().unwrap());
            assert_eq!(body.len(), length as usize + 5);
            assert_eq!(head.version, http::Version::HTTP_2);
            (body.slice(5..), body[0] == 1)
        } else {
            (body, head.headers.contains_key("content-encoding"))
        };
        let mut message = Vec::new();
        if gzip {
            GzDecoder::new(&body[..]).read_to_end(&mut message).unwrap();
        } else {
            message.extend_from_slice(&body);
        }
        let mut received = self.received.lock().unwrap();
        match head.uri.path() {
            "/v1/traces" | "/opentelemetry.proto.collector.trace.v1.TraceService/Export" => {
                received.traces.push(Message::decode(&message[..]).unwrap());
            }
            "/v1/metrics" | "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export" => {
                received
                    .metrics
                    .push(Message::decode(&message[..]).unwrap());
            }
            path => panic!("{path}"),
        }
        received.headers.push(head.headers);
        if !grpc {
            return Response::new(Full::default().boxed_unsync());
        }
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", "0".parse().unwrap());
        let frames = [
            Frame::data(Bytes::from_static(&[0; 5])),
            Frame::trailers(trailers),
        ];
        let frames = futures_util::stream::iter(frames.map(Ok));
        Response::new(BodyExt::boxed_unsync(StreamBody::new(frames)))
    }

    fn spans(&self) -> Vec<Span> {
        let received = self.received.lock().unwrap();
        let resources = received.traces.iter().flat_map(|it| &it.resource_spans);
        let scopes = resources.flat_map(|it| &it.scope_spans);
        scopes.flat_map(|it| it.spans.clone()).collect()
    }

    /// The metrics of the last message.
    fn metrics(&self) -> Option<HashMap<String, Metric>> {
        let received = self.received.lock().unwrap();
        let last = received.metrics.last()?;
        let scopes = last
            .resource_metrics
            .iter()
            .flat_map(|it| &it.scope_metrics);
        let metrics = scopes.flat_map(|it| it.metrics.clone());
        Some(metrics.map(|it| (it.name.clone(), it)).collect())
    }
}

/// A service, a proxy in front of it, and its exporter.
struct Stage {
    proxy: Running,
    _exporter: Exporter,
}

impl Stage {
    fn start(collector: SocketAddr, extra: &str, variables: &[(&str, &str)]) -> Self {
        let upstream = listen(async |listener| {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let service = service_fn(|request: Request<Incoming>| async move {
                    let parent = request.headers().get("traceparent").cloned();
                    let mut response = Response::new(Full::new(Bytes::from("served")));
                    if let Some(parent) = parent {
                        response.headers_mut().insert("seen-traceparent", parent);
                    }
                    Ok::<_, Infallible>(response)
                });
                let http1 = hyper::server::conn::http1::Builder::new();
                tokio::spawn(http1.serve_connection(TokioIo::new(stream), service));
            }
        });
        let text = format!(
            "admin = 'off'\nthreads = 1\nlisten = '127.0.0.1:0'\nupstream = 'http://{upstream}'\n\
             forward.trust = ['127.0.0.0/8']\n{extra}"
        );
        let config = Config::from_text("t.toml", &text).unwrap();
        let proxy = Proxy::bind(config).unwrap().start().unwrap();
        let operations = Operations::bind(Arc::clone(proxy.state()), Source::default()).unwrap();
        let endpoint = format!("http://{collector}");
        let usual = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", &*endpoint),
            ("OTEL_BSP_SCHEDULE_DELAY", "10"),
            ("OTEL_METRIC_EXPORT_INTERVAL", "50"),
            ("OTEL_SERVICE_NAME", "edge"),
        ];
        let map: HashMap<_, _> = usual.iter().chain(variables).copied().collect();
        let read = |name: &str| map.get(name).map(|text| (*text).to_owned());
        let (environment, warnings) = Environment::read(&read);
        assert_eq!(warnings, [""; 0]);
        let exporter = Exporter::start(environment, operations.telemetry()).unwrap();
        Self {
            proxy,
            _exporter: exporter,
        }
    }

    async fn ask(&self, path: &str, headers: &str) -> String {
        let mut client = Client::connect(self.proxy.local_addr()).await;
        let request =
            format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n{headers}\r\n");
        client.send(request).await;
        client.read_to_end().await
    }

    fn exports(&self, signal: &str) -> Arc<Exports> {
        let all = self.proxy.state().traces().exports();
        let found = all.into_iter().find(|(name, _)| *name == signal);
        found.unwrap().1
    }
}

fn attribute(attributes: &[KeyValue], key: &str) -> Option<Value> {
    let found = attributes.iter().find(|it| it.key == key)?;
    found.value.clone()?.value
}

fn text(span: &Span, key: &str) -> String {
    match attribute(&span.attributes, key) {
        Some(Value::StringValue(text)) => text,
        other => panic!("{key} is {other:?}"),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A request of a sampled trace, and one that is shed, arrive at the collector.
async fn spans_arrive(variables: &[(&str, &str)]) -> Collector {
    let collector = Collector::default();
    let stage = Stage::start(collector.start(), "tracing.sample = 0.0", variables);
    let answer = stage
        .ask("/a?secret=1", &format!("traceparent: {PARENT}\r\n"))
        .await;
    let spans = eventually("two spans", || {
        Some(collector.spans()).filter(|it| it.len() == 2)
    })
    .await;
    let kind = |kind: SpanKind| spans.iter().find(|it| it.kind == kind as i32).unwrap();
    let (server, client) = (kind(SpanKind::Server), kind(SpanKind::Client));
    assert_eq!(hex(&server.trace_id), "4bf92f3577b34da6a3ce929d0e0e4736");
    assert_eq!(hex(&server.parent_span_id), "00f067aa0ba902b7");
    assert_eq!(client.parent_span_id, server.span_id);
    let seen = format!(
        "seen-traceparent: 00-{}-{}-01",
        hex(&server.trace_id),
        hex(&client.span_id)
    );
    assert!(answer.to_lowercase().contains(&seen), "{answer}");
    assert_eq!(text(server, "url.path"), "/a", "without its query");
    assert_eq!(text(server, "tidegate.class"), "default");
    let status = attribute(&server.attributes, "http.response.status_code");
    assert_eq!(status, Some(Value::IntValue(200)));
    assert!(server.start_time_unix_nano <= client.start_time_unix_nano);
    assert!(client.end_time_unix_nano >= client.start_time_unix_nano);
    assert!(server.status.is_none());

    let application = stage.proxy.state().first();
    application.sentry().set_draining(application.now(), true);
    let answer = stage.ask("/b", "").await;
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    let shed = eventually("a refusal", || {
        let mut spans = collector.spans().into_iter();
        spans.find(|span| text_of(span, "tidegate.shed.reason").is_some())
    })
    .await;
    assert_eq!(text(&shed, "tidegate.shed.reason"), "draining");
    assert_eq!(shed.kind, SpanKind::Server as i32);
    assert_eq!(shed.status.as_ref().unwrap().code, 2);
    assert!(shed.parent_span_id.is_empty());
    // Counted once the collector has answered, so after it was seen here.
    let counted = || (stage.exports("traces").items() == (2, 0)).then_some(());
    eventually("both counted as exported", counted).await;
    assert_eq!(stage.proxy.state().traces().recorded(), 2);
    collector
}

fn text_of(span: &Span, key: &str) -> Option<Value> {
    attribute(&span.attributes, key)
}

#[tokio::test]
async fn spans_and_metrics_arrive_by_http_compressed() {
    let collector = spans_arrive(&[
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20x"),
        ("OTEL_RESOURCE_ATTRIBUTES", "zone=b"),
    ])
    .await;
    let received = collector.received.lock().unwrap();
    assert!(
        received
            .headers
            .iter()
            .all(|it| it["authorization"] == "Bearer x")
    );
    assert!(
        received
            .headers
            .iter()
            .all(|it| it["content-encoding"] == "gzip")
    );
    let resource = received.traces[0].resource_spans[0]
        .resource
        .clone()
        .unwrap();
    for (key, value) in [("service.name", "edge"), ("zone", "b")] {
        let found = attribute(&resource.attributes, key);
        assert_eq!(found, Some(Value::StringValue(value.to_owned())));
    }
}

#[tokio::test]
async fn spans_and_metrics_arrive_by_grpc() {
    let variables = [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
    ];
    let collector = spans_arrive(&variables).await;
    eventually("metrics", || collector.metrics()).await;
}

fn admitted(metrics: &HashMap<String, Metric>) -> (f64, i32) {
    let metric = &metrics["tidegate_requests_admitted_total"];
    let Some(Data::Sum(sum)) = &metric.data else {
        panic!("{metric:?}");
    };
    assert!(sum.is_monotonic);
    let value = match sum.data_points[0].value {
        Some(number_data_point::Value::AsDouble(value)) => value,
        other => panic!("{other:?}"),
    };
    (value, sum.aggregation_temporality)
}

#[tokio::test]
async fn metrics_are_cumulative_with_bounds_and_exemplars() {
    let collector = Collector::default();
    let stage = Stage::start(collector.start(), "tracing.sample = 1.0", &[]);
    for _ in 0..3 {
        stage.ask("/", "").await;
    }
    let histogram = eventually("three responses with an exemplar", || {
        let metrics = collector.metrics()?;
        if admitted(&metrics) != (3.0, 2) {
            return None;
        }
        let metric = &metrics["tidegate_response_seconds"];
        assert_eq!(metric.unit, "s");
        let Some(Data::Histogram(histogram)) = metric.data.clone() else {
            panic!("{metric:?}");
        };
        let point = histogram.data_points.into_iter().next()?;
        (point.count == 3 && !point.exemplars.is_empty()).then_some(point)
    })
    .await;
    assert_eq!(
        histogram.bucket_counts.len(),
        histogram.explicit_bounds.len() + 1
    );
    assert_eq!(histogram.bucket_counts.iter().sum::<u64>(), 3);
    assert!(histogram.sum.unwrap() > 0.0);
    let traces: Vec<_> = collector
        .spans()
        .iter()
        .map(|it| it.trace_id.clone())
        .collect();
    let exemplar = &histogram.exemplars[0];
    if !traces.is_empty() {
        let known = eventually("its trace", || {
            let spans = collector.spans();
            spans
                .iter()
                .any(|it| it.trace_id == exemplar.trace_id)
                .then_some(())
        });
        known.await;
    }
}

#[tokio::test]
async fn metrics_are_deltas_and_exponential_where_the_environment_says_so() {
    let collector = Collector::default();
    let variables = [
        ("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "delta"),
        (
            "OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION",
            "base2_exponential_bucket_histogram",
        ),
    ];
    let stage = Stage::start(collector.start(), "", &variables);
    eventually("a first message", || collector.metrics()).await;
    for _ in 0..3 {
        stage.ask("/", "").await;
    }
    let sums = || {
        let received = collector.received.lock().unwrap();
        let (mut count, mut requests) = (0, 0.0);
        for message in &received.metrics {
            let scopes = message
                .resource_metrics
                .iter()
                .flat_map(|it| &it.scope_metrics);
            for metric in scopes.flat_map(|it| &it.metrics) {
                match &metric.data {
                    Some(Data::ExponentialHistogram(histogram))
                        if metric.name == "tidegate_response_seconds" =>
                    {
                        assert_eq!(histogram.aggregation_temporality, 1);
                        for point in &histogram.data_points {
                            assert_eq!(point.scale, 3);
                            count += point.count;
                            let positive = point.positive.clone().unwrap_or_default();
                            let held: u64 = positive.bucket_counts.iter().sum();
                            assert_eq!(held + point.zero_count, point.count);
                            if point.count == 1 {
                                // The one value lies in the one bucket.
                                let edge = f64::from(positive.offset) / 8.0;
                                let sum = point.sum.unwrap();
                                assert!(sum > edge.exp2() * 0.999, "{sum} {edge}");
                                assert!(sum < (edge + 0.125).exp2() * 1.001, "{sum} {edge}");
                            }
                        }
                    }
                    Some(Data::Sum(_)) if metric.name == "tidegate_requests_admitted_total" => {
                        let map = [(metric.name.clone(), metric.clone())].into();
                        requests += admitted(&map).0;
                    }
                    _ => {}
                }
            }
        }
        (count, requests)
    };
    eventually("three requests in all deltas", || {
        (sums() == (3, 3.0)).then_some(())
    })
    .await;
    let messages = collector.received.lock().unwrap().metrics.len();
    let more = || collector.received.lock().unwrap().metrics.len() > messages + 1;
    eventually("more messages", || more().then_some(())).await;
    assert_eq!(sums(), (3, 3.0), "and nothing twice");
}

#[tokio::test]
async fn spans_wait_for_a_collector_that_refuses() {
    let collector = Collector::default();
    collector.refuse.store(1, Ordering::SeqCst);
    let off = [("OTEL_METRICS_EXPORTER", "none")];
    let stage = Stage::start(collector.start(), "tracing.sample = 1.0", &off);
    stage.ask("/", "").await;
    let refused = || collector.refused.load(Ordering::SeqCst) == 1;
    eventually("a refusal", || refused().then_some(())).await;
    eventually("the spans", || (collector.spans().len() == 2).then_some(())).await;
    let exports = stage.exports("traces");
    eventually("the count", || (exports.items() == (1, 0)).then_some(())).await;
    assert!(exports.is_up());
}

#[tokio::test]
async fn collector_that_is_away_costs_spans_and_no_requests() {
    let addr = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let few = [
        ("OTEL_BSP_MAX_QUEUE_SIZE", "4"),
        ("OTEL_METRICS_EXPORTER", "none"),
    ];
    let stage = Stage::start(addr, "tracing.sample = 1.0", &few);
    for _ in 0..10 {
        let answer = stage.ask("/", "").await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    let exports = stage.exports("traces");
    eventually("six are lost", || (exports.items() == (0, 6)).then_some(())).await;
    assert!(!exports.is_up());
}

#[tokio::test]
async fn spans_of_the_last_moment_are_sent_when_the_exporter_ends() {
    let collector = Collector::default();
    let slow = [
        ("OTEL_BSP_SCHEDULE_DELAY", "3600000"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "3600000"),
    ];
    let stage = Stage::start(collector.start(), "tracing.sample = 1.0", &slow);
    stage.ask("/", "").await;
    let traces = Arc::clone(stage.proxy.state().traces());
    eventually("a record", || (traces.recorded() == 1).then_some(())).await;
    assert!(collector.spans().is_empty());
    drop(stage);
    assert_eq!(collector.spans().len(), 2);
    assert!(collector.metrics().is_some());
}

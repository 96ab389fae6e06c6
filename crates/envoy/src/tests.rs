//! The interfaces through a gRPC client and a real socket.

use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::{FutureExt, StreamExt, stream};
use http::uri::PathAndQuery;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tonic::body::Body;
use tonic::client::Grpc;
use tonic::{Request, Streaming};
use tonic_prost::ProstCodec;

use crate::proto::access_log::{HttpLogEntry, HttpLogs, LogMessage, LogsResponse};
use crate::proto::access_log::{RequestProperties, ResponseProperties};
use crate::proto::auth::{self, CheckRequest, CheckResponse, HttpResponse};
use crate::proto::core::{Duration as Time, HeaderMap, HeaderValue, UInt32Value};
use crate::proto::ext_proc::{
    FromEnvoy, HttpHeaders, ProcessingRequest, ProcessingResponse, ToEnvoy,
};
use crate::proto::quota::{BucketId, BucketUsage, QuotaResponse, Strategy, UsageReports};
use crate::proto::rate_limit::{Descriptor, Entry, OK, OVER_LIMIT};
use crate::proto::rate_limit::{RateLimitRequest, RateLimitResponse};
use crate::{EnvoyConfig, Server};

/// One request at a time; the next one is refused at once.
const ONE: &str = "protect.mode = \"static\"\nprotect.static.window = 1\n";

const PROCESS: &str = "/envoy.service.ext_proc.v3.ExternalProcessor/Process";
const CHECK: &str = "/envoy.service.auth.v3.Authorization/Check";
const LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
const LOGS: &str = "/envoy.service.accesslog.v3.AccessLogService/StreamAccessLogs";
const QUOTAS: &str =
    "/envoy.service.rate_limit_quota.v3.RateLimitQuotaService/StreamRateLimitQuotas";

#[derive(Clone)]
struct Connection(SendRequest<Body>);

impl tower_service::Service<http::Request<Body>> for Connection {
    type Response = http::Response<Incoming>;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), hyper::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        self.0.send_request(request).boxed()
    }
}

/// A server with a client.
struct Fixture {
    addr: SocketAddr,
    connection: Connection,
}

impl Fixture {
    async fn start(text: &str) -> Self {
        let text = format!("listen = \"127.0.0.1:0\"\n{text}");
        let config = EnvoyConfig::from_text("test", &text).expect("the text is valid");
        assert_eq!(config.problems(), []);
        let server = Server::bind(&config).await.expect("a port is free");
        let addr = server.addr();
        tokio::spawn(server.run(std::future::pending()));
        let socket = TcpStream::connect(addr).await.expect("it listens");
        let shake = handshake(TokioExecutor::new(), TokioIo::new(socket)).await;
        let (sender, connection) = shake.expect("it speaks HTTP/2");
        tokio::spawn(connection);
        let connection = Connection(sender);
        Self { addr, connection }
    }

    fn grpc(&self) -> Grpc<Connection> {
        let origin = format!("http://{}", self.addr);
        Grpc::with_origin(self.connection.clone(), origin.parse().expect("a URL"))
    }

    async fn unary<Q, A>(&self, path: &'static str, request: Q) -> A
    where
        Q: prost::Message + Default + 'static,
        A: prost::Message + Default + 'static,
    {
        let mut grpc = self.grpc();
        grpc.ready().await.expect("the connection is open");
        let codec = ProstCodec::<Q, A>::default();
        let path = PathAndQuery::from_static(path);
        let answer = grpc.unary(Request::new(request), path, codec).await;
        answer.expect("it answers").into_inner()
    }

    async fn streaming<Q, A>(&self, path: &'static str) -> (mpsc::Sender<Q>, Streaming<A>)
    where
        Q: prost::Message + Default + 'static,
        A: prost::Message + Default + 'static,
    {
        let (sender, receiver) = mpsc::channel(16);
        let requests = stream::unfold(receiver, |mut receiver| async {
            Some((receiver.recv().await?, receiver))
        });
        let mut grpc = self.grpc();
        grpc.ready().await.expect("the connection is open");
        let codec = ProstCodec::<Q, A>::default();
        let path = PathAndQuery::from_static(path);
        let answer = grpc.streaming(Request::new(requests), path, codec).await;
        (sender, answer.expect("it answers").into_inner())
    }

    async fn status(&self) -> Value {
        let mut connection = self.connection.0.clone();
        let url = format!("http://{}/status", self.addr);
        let request = http::Request::get(url).body(Body::default());
        let request = request.expect("the parts are valid");
        let answer = connection.send_request(request).await.expect("it answers");
        let body = answer.into_body().collect().await.expect("it is whole");
        serde_json::from_slice(&body.to_bytes()).expect("it is JSON")
    }

    /// Waits until the status shows it; a test that waits for ever is ended by its runner.
    async fn until(&self, shows: impl Fn(&Value) -> bool) {
        while !shows(&self.status().await) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

fn in_flight(status: &Value) -> Option<u64> {
    status["engine"]["replicas"][0]["in_flight"].as_u64()
}

fn headers(fields: &[(&str, &str)]) -> HttpHeaders {
    let fields = fields.iter();
    let headers = fields.map(|(name, value)| HeaderValue::raw(name, value.as_bytes()));
    HttpHeaders {
        headers: Some(HeaderMap {
            headers: headers.collect(),
        }),
        end_of_stream: false,
    }
}

fn message(request: FromEnvoy) -> ProcessingRequest {
    ProcessingRequest {
        request: Some(request),
        observability_mode: false,
    }
}

fn begin() -> ProcessingRequest {
    let head = [(":method", "GET"), (":path", "/"), (":authority", "a")];
    message(FromEnvoy::RequestHeaders(headers(&head)))
}

fn answered(fields: &[(&str, &str)]) -> ProcessingRequest {
    message(FromEnvoy::ResponseHeaders(headers(fields)))
}

type Exchange = (
    mpsc::Sender<ProcessingRequest>,
    Streaming<ProcessingResponse>,
);

async fn say(exchange: &mut Exchange, message: ProcessingRequest) -> ToEnvoy {
    exchange.0.send(message).await.expect("the stream is open");
    let answer = exchange.1.next().await.expect("there is an answer");
    let answer = answer.expect("it is no error").response;
    answer.expect("it is one of the known ones")
}

fn is_admitted(answer: &ToEnvoy) -> bool {
    matches!(answer, ToEnvoy::RequestHeaders(_))
}

#[tokio::test]
async fn ext_proc_refuses_with_reason_and_frees_the_slot_with_the_answer() {
    let fixture = Fixture::start(ONE).await;
    let mut first: Exchange = fixture.streaming(PROCESS).await;
    assert!(is_admitted(&say(&mut first, begin()).await));

    let mut second: Exchange = fixture.streaming(PROCESS).await;
    let ToEnvoy::ImmediateResponse(refusal) = say(&mut second, begin()).await else {
        panic!("the window is full");
    };
    assert_eq!(refusal.status.expect("it has a status").code, 503);
    assert_eq!(refusal.details, "tidegate_shed_window");
    let set = refusal.headers.expect("it has headers").set_headers;
    let names: Vec<_> = set.iter().filter_map(|set| set.header.as_ref()).collect();
    let shed = names.iter().find(|header| header.key == "tidegate-shed");
    assert_eq!(shed.expect("it has the reason").raw_value, b"window");

    let answer = answered(&[(":status", "200"), ("content-length", "3")]);
    say(&mut first, answer).await;
    fixture.until(|status| in_flight(status) == Some(0)).await;
    let mut third: Exchange = fixture.streaming(PROCESS).await;
    assert!(is_admitted(&say(&mut third, begin()).await));
    let status = fixture.status().await;
    assert_eq!(status["engine"]["replicas"][0]["served"], 1);
    assert_eq!(status["decisions"]["count"], 3);
}

#[tokio::test]
async fn ext_proc_keeps_the_slot_of_an_answer_without_length_until_the_stream_ends() {
    let fixture = Fixture::start(ONE).await;
    let mut first: Exchange = fixture.streaming(PROCESS).await;
    say(&mut first, begin()).await;
    say(&mut first, answered(&[(":status", "200")])).await;
    assert_eq!(in_flight(&fixture.status().await), Some(1));
    drop(first);
    fixture.until(|status| in_flight(status) == Some(0)).await;
    assert_eq!(fixture.status().await["engine"]["replicas"][0]["served"], 1);
}

#[tokio::test]
async fn ext_proc_frees_the_slot_of_a_client_that_left_and_takes_no_sample() {
    let fixture = Fixture::start(ONE).await;
    let mut first: Exchange = fixture.streaming(PROCESS).await;
    say(&mut first, begin()).await;
    drop(first);
    fixture.until(|status| in_flight(status) == Some(0)).await;
    assert_eq!(fixture.status().await["engine"]["replicas"][0]["served"], 0);
}

fn check(request_id: &str) -> CheckRequest {
    let mut http = auth::HttpRequest {
        method: "GET".to_owned(),
        path: "/".to_owned(),
        ..auth::HttpRequest::default()
    };
    let id = ("x-request-id".to_owned(), request_id.to_owned());
    http.headers.extend([id]);
    let request = Some(auth::Request { http: Some(http) });
    CheckRequest {
        attributes: Some(auth::AttributeContext { request }),
    }
}

fn limit(request_id: &str) -> RateLimitRequest {
    let entry = |key: &str, value: &str| Entry {
        key: key.to_owned(),
        value: value.to_owned(),
    };
    RateLimitRequest {
        domain: "shop".to_owned(),
        descriptors: vec![Descriptor {
            entries: vec![entry("path", "/"), entry("request_id", request_id)],
        }],
    }
}

fn logged(request_id: &str) -> LogMessage {
    let entry = HttpLogEntry {
        request: Some(RequestProperties {
            request_id: request_id.to_owned(),
        }),
        response: Some(ResponseProperties {
            response_code: Some(UInt32Value { value: 200 }),
        }),
        ..HttpLogEntry::default()
    };
    let http_logs = Some(HttpLogs {
        entries: vec![entry],
    });
    LogMessage { http_logs }
}

/// Opens an access log; it is answered only when it ends.
async fn open_log(fixture: &Fixture) -> mpsc::Sender<LogMessage> {
    let (sender, receiver) = mpsc::channel(16);
    let entries = stream::unfold(receiver, |mut receiver| async {
        Some((receiver.recv().await?, receiver))
    });
    let mut grpc = fixture.grpc();
    tokio::spawn(async move {
        grpc.ready().await.expect("the connection is open");
        let codec = ProstCodec::<LogMessage, LogsResponse>::default();
        let path = PathAndQuery::from_static(LOGS);
        grpc.client_streaming(Request::new(entries), path, codec)
            .await
    });
    fixture
        .until(|status| status["access_log_streams"] == 1)
        .await;
    sender
}

#[tokio::test]
async fn ext_authz_and_ratelimit_hold_slots_until_the_access_log_has_the_end() {
    let fixture = Fixture::start(ONE).await;
    let log = open_log(&fixture).await;
    let first: CheckResponse = fixture.unary(CHECK, check("a")).await;
    assert_eq!(first.status.expect("it has a status").code, 0);

    let second: CheckResponse = fixture.unary(CHECK, check("b")).await;
    assert_eq!(second.status.expect("it has a status").code, 8);
    let Some(HttpResponse::Denied(denied)) = second.http_response else {
        panic!("it says what the client is sent");
    };
    assert_eq!(denied.status.expect("it has a status").code, 503);
    let third: RateLimitResponse = fixture.unary(LIMIT, limit("c")).await;
    assert_eq!(third.overall_code, OVER_LIMIT);
    assert_eq!(third.statuses.len(), 1);

    log.send(logged("a")).await.expect("the log is open");
    fixture.until(|status| in_flight(status) == Some(0)).await;
    let fourth: RateLimitResponse = fixture.unary(LIMIT, limit("d")).await;
    assert_eq!(fourth.overall_code, OK);
    assert_eq!(in_flight(&fixture.status().await), Some(1));

    // Without a log the end cannot come: nothing is held.
    drop(log);
    fixture.until(|status| in_flight(status) == Some(0)).await;
    let fifth: CheckResponse = fixture.unary(CHECK, check("e")).await;
    assert_eq!(fifth.status.expect("it has a status").code, 0);
    assert_eq!(in_flight(&fixture.status().await), Some(0));
}

#[tokio::test]
async fn quota_of_a_new_bucket_is_assigned_at_once() {
    let fixture = Fixture::start("quota.interval = \"1h\"\n").await;
    let (reports, mut quotas) = fixture
        .streaming::<UsageReports, QuotaResponse>(QUOTAS)
        .await;
    let bucket = BucketId {
        bucket: [("class".to_owned(), "default".to_owned())].into(),
    };
    let usage = BucketUsage {
        bucket_id: Some(bucket.clone()),
        time_elapsed: Some(Time::from(Duration::from_secs(1))),
        allowed: 1,
        denied: 0,
    };
    let report = UsageReports {
        domain: "shop".to_owned(),
        usages: vec![usage],
    };
    reports.send(report).await.expect("the stream is open");
    let answer = quotas
        .next()
        .await
        .expect("there is one")
        .expect("no error");
    assert_eq!(answer.actions.len(), 1);
    assert_eq!(answer.actions[0].bucket_id, Some(bucket));
    let assignment = answer.actions[0].assignment.clone().expect("a quota");
    let strategy = assignment.strategy.and_then(|strategy| strategy.strategy);
    assert_eq!(strategy, Some(Strategy::Blanket(0)));
}

//! The external scaler that KEDA asks: `externalscaler.ExternalScaler`.
//!
//! | call | answer |
//! | --- | --- |
//! | `GetMetricSpec` | one metric and its value per pod: 1 server, or the capacity of a server |
//! | `GetMetrics` | its value: servers needed, or requests per second |
//! | `IsActive`, `StreamIsActive` | whether there is anything to serve |
//! | `StreamMetricSpec` | the spec again whenever a server's capacity changes |
//!
//! KEDA makes a HorizontalPodAutoscaler of it, which divides the value by the value per pod. What
//! is not known is an error and never zero: KEDA then leaves the number of pods as it is, or uses
//! its `fallback`. The messages are written by hand (decision 0180 says why).

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;

use futures_util::{Stream, stream};
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tidegate_plane::ApplicationStatus;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tonic::Status;
use tonic::body::Body;
use tonic::server::{Grpc, ServerStreamingService, UnaryService};
use tonic_prost::ProstCodec;

/// What the plane knows.
type Known = watch::Receiver<Vec<ApplicationStatus>>;

/// Of which object of KEDA, and what it says about its scaler.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ScaledObject {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "2")]
    pub(crate) namespace: String,
    #[prost(map = "string, string", tag = "3")]
    pub(crate) metadata: HashMap<String, String>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Active {
    #[prost(bool, tag = "1")]
    pub(crate) result: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Specs {
    #[prost(message, repeated, tag = "1")]
    pub(crate) specs: Vec<Spec>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Spec {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    /// For KEDA before 2.11.
    #[prost(int64, tag = "2")]
    pub(crate) target_rounded: i64,
    #[prost(double, tag = "3")]
    pub(crate) target: f64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct MetricsRequest {
    #[prost(message, optional, tag = "1")]
    pub(crate) object: Option<ScaledObject>,
    #[prost(string, tag = "2")]
    pub(crate) name: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Values {
    #[prost(message, repeated, tag = "1")]
    pub(crate) values: Vec<Value>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Value {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    /// For KEDA before 2.11.
    #[prost(int64, tag = "2")]
    pub(crate) value_rounded: i64,
    #[prost(double, tag = "3")]
    pub(crate) value: f64,
}

/// What an object of KEDA wants to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Metric {
    /// Servers needed, of which each pod is one.
    Servers,
    /// Requests per second, of which each pod can do its capacity.
    Demand,
}

impl Metric {
    fn of(object: &ScaledObject) -> Result<Self, Status> {
        match object.metadata.get("metric").map(String::as_str) {
            None | Some("servers") => Ok(Self::Servers),
            Some("demand") => Ok(Self::Demand),
            Some(other) => Err(Status::invalid_argument(format!(
                "metadata.metric: `{other}` is unknown; write `servers` or `demand`"
            ))),
        }
    }

    fn name(self, application: &str) -> String {
        match self {
            Self::Servers => format!("tidegate-servers-{application}"),
            Self::Demand => format!("tidegate-demand-{application}"),
        }
    }

    /// Its value per pod.
    fn target(self, known: &ApplicationStatus) -> Result<f64, Status> {
        match self {
            Self::Servers => Ok(1.0),
            Self::Demand => known
                .capacity
                .filter(|rate| *rate > 0.0)
                .ok_or_else(|| unknown(known, "what a server can do was not measured yet")),
        }
    }

    fn value(self, known: &ApplicationStatus) -> Result<f64, Status> {
        if known.blind {
            return Err(unknown(known, "no proxy reports requests"));
        }
        let value = match self {
            Self::Servers => known.needed.map(f64::from),
            Self::Demand => known.rate,
        };
        value.ok_or_else(|| unknown(known, "nothing was planned yet"))
    }
}

fn unknown(known: &ApplicationStatus, why: &str) -> Status {
    Status::unavailable(format!("application {}: {why}", known.name))
}

/// The application that an object means: `metadata.application`, or its own name.
fn application(
    known: &[ApplicationStatus],
    object: &ScaledObject,
) -> Result<ApplicationStatus, Status> {
    let name = object.metadata.get("application").unwrap_or(&object.name);
    let found = known.iter().find(|it| it.name == *name);
    found.cloned().ok_or_else(|| {
        let names: Vec<&str> = known.iter().map(|it| it.name.as_str()).collect();
        Status::not_found(format!(
            "metadata.application: there is no application `{name}`; there are: {}",
            names.join(", ")
        ))
    })
}

fn is_active(known: &[ApplicationStatus], object: &ScaledObject) -> Result<Active, Status> {
    let known = application(known, object)?;
    // What is not known is no reason to end the last pod.
    let idle = !known.blind && known.rate == Some(0.0) && known.needed == Some(0);
    Ok(Active { result: !idle })
}

fn metric_spec(known: &[ApplicationStatus], object: &ScaledObject) -> Result<Specs, Status> {
    let metric = Metric::of(object)?;
    let known = application(known, object)?;
    let target = metric.target(&known)?;
    Ok(Specs {
        specs: vec![Spec {
            name: metric.name(&known.name),
            target_rounded: target.round() as i64,
            target,
        }],
    })
}

fn metrics(known: &[ApplicationStatus], request: &MetricsRequest) -> Result<Values, Status> {
    let object = request.object.clone().unwrap_or_default();
    let metric = Metric::of(&object)?;
    let known = application(known, &object)?;
    let value = metric.value(&known)?;
    Ok(Values {
        values: vec![Value {
            name: metric.name(&known.name),
            value_rounded: value.ceil() as i64,
            value,
        }],
    })
}

/// Serves KEDA.
#[derive(Debug)]
pub struct Keda {
    listener: TcpListener,
    addr: SocketAddr,
}

impl Keda {
    /// Takes the address.
    ///
    /// # Errors
    /// When it is taken, with the remedy.
    pub async fn bind(addr: SocketAddr) -> Result<Self, String> {
        let cannot = |error: std::io::Error| {
            format!("cannot listen on {addr}: {error}; choose another `keda.listen`")
        };
        let listener = TcpListener::bind(addr).await.map_err(cannot)?;
        let addr = listener.local_addr().map_err(cannot)?;
        Ok(Self { listener, addr })
    }

    /// Where it listens.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Serves what the plane knows, for ever.
    pub async fn run(self, known: watch::Receiver<Vec<ApplicationStatus>>) {
        loop {
            match self.listener.accept().await {
                Ok((connection, _)) => {
                    tokio::spawn(serve(known.clone(), connection));
                }
                // Out of descriptors: what is open goes on, and one of them may close.
                Err(_) => tokio::time::sleep(std::time::Duration::from_millis(100)).await,
            }
        }
    }
}

async fn serve(known: Known, connection: TcpStream) {
    let service = service_fn(move |request| {
        let known = known.clone();
        async move { Ok::<_, Infallible>(route(known, request).await) }
    });
    let _ = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(connection), service)
        .await;
}

async fn route(known: Known, request: Request<Incoming>) -> Response<Body> {
    let call = request.uri().path();
    match call.strip_prefix("/externalscaler.ExternalScaler/") {
        Some("IsActive") => grpc().unary(Unary(known, is_active), request).await,
        Some("GetMetricSpec") => grpc().unary(Unary(known, metric_spec), request).await,
        Some("GetMetrics") => grpc().unary(Unary(known, metrics), request).await,
        Some("StreamIsActive") => {
            let changes = Changes(known, is_active);
            grpc().server_streaming(changes, request).await
        }
        Some("StreamMetricSpec") => {
            let changes = Changes(known, metric_spec);
            grpc().server_streaming(changes, request).await
        }
        _ => Status::unimplemented("this is externalscaler.ExternalScaler").into_http(),
    }
}

fn grpc<A, Q>() -> Grpc<ProstCodec<A, Q>>
where
    A: Message + Default + 'static,
    Q: Message + Default + 'static,
{
    Grpc::new(ProstCodec::default())
}

/// A call that is answered from what is known now.
struct Unary<Q, A>(Known, fn(&[ApplicationStatus], &Q) -> Result<A, Status>);

type Answer<A> = Pin<Box<dyn Future<Output = Result<tonic::Response<A>, Status>> + Send>>;

impl<Q: Send + 'static, A: Send + 'static> UnaryService<Q> for Unary<Q, A> {
    type Response = A;
    type Future = Answer<A>;

    fn call(&mut self, request: tonic::Request<Q>) -> Self::Future {
        let answer = self.1(&self.0.borrow(), request.get_ref());
        Box::pin(async { answer.map(tonic::Response::new) })
    }
}

/// A call that is answered now, and again whenever the answer changes.
struct Changes<Q, A>(Known, fn(&[ApplicationStatus], &Q) -> Result<A, Status>);

type Answers<A> = Pin<Box<dyn Stream<Item = Result<A, Status>> + Send>>;

impl<Q, A> ServerStreamingService<Q> for Changes<Q, A>
where
    Q: Send + Sync + 'static,
    A: Clone + PartialEq + Send + 'static,
{
    type Response = A;
    type ResponseStream = Answers<A>;
    type Future = Answer<Answers<A>>;

    fn call(&mut self, request: tonic::Request<Q>) -> Self::Future {
        let (known, answer) = (self.0.clone(), self.1);
        let answers = changes(known, request.into_inner(), answer);
        Box::pin(async { Ok(tonic::Response::new(answers)) })
    }
}

fn changes<Q, A>(
    known: Known,
    request: Q,
    answer: fn(&[ApplicationStatus], &Q) -> Result<A, Status>,
) -> Answers<A>
where
    Q: Send + Sync + 'static,
    A: Clone + PartialEq + Send + 'static,
{
    let state = (known, request, None::<A>);
    Box::pin(stream::unfold(state, move |state| async move {
        let (mut known, request, mut last) = state;
        loop {
            let now = answer(&known.borrow_and_update(), &request).ok();
            if now.is_some() && now != last {
                last.clone_from(&now);
                return now.map(|now| (Ok(now), (known, request, last)));
            }
            // The daemon ends.
            known.changed().await.ok()?;
        }
    }))
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll};

    use futures_util::{FutureExt, StreamExt};
    use http::uri::PathAndQuery;
    use hyper::client::conn::http2::{SendRequest, handshake};
    use tidegate_control::Timestamp;
    use tidegate_plane::{Plane, PlaneConfig};
    use tonic::{Code, Streaming};

    use super::*;

    #[derive(Clone)]
    struct Connection(SendRequest<Body>);

    impl tower_service::Service<Request<Body>> for Connection {
        type Response = Response<Incoming>;
        type Error = hyper::Error;
        type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

        fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), hyper::Error>> {
            self.0.poll_ready(context)
        }

        fn call(&mut self, request: Request<Body>) -> Self::Future {
            self.0.send_request(request).boxed()
        }
    }

    /// A scaler with a client, as KEDA is one.
    struct Fixture {
        tell: watch::Sender<Vec<ApplicationStatus>>,
        connection: Connection,
    }

    fn known(needed: Option<u32>, rate: Option<f64>, blind: bool) -> ApplicationStatus {
        let config: PlaneConfig = tidegate_config::parse(
            "plane.toml",
            "[[application]]\nname = 'shop'\ncapacity = '60/s'",
        )
        .expect("valid");
        let plane = Plane::new(config, Timestamp::ZERO).expect("valid");
        ApplicationStatus {
            needed,
            rate,
            blind,
            ..plane.status(Timestamp::ZERO).remove(0)
        }
    }

    fn object(metadata: &[(&str, &str)]) -> ScaledObject {
        let pair = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        ScaledObject {
            name: "shop".into(),
            namespace: "default".into(),
            metadata: metadata.iter().map(pair).collect(),
        }
    }

    fn ask(metadata: &[(&str, &str)]) -> MetricsRequest {
        MetricsRequest {
            object: Some(object(metadata)),
            name: String::new(),
        }
    }

    impl Fixture {
        async fn start(first: ApplicationStatus) -> Self {
            let addr = SocketAddr::from(([127, 0, 0, 1], 0));
            let keda = Keda::bind(addr).await.expect("a port is free");
            let addr = keda.addr();
            let tell = watch::Sender::new(vec![first]);
            tokio::spawn(keda.run(tell.subscribe()));
            let socket = TcpStream::connect(addr).await.expect("it listens");
            let shake = handshake(TokioExecutor::new(), TokioIo::new(socket)).await;
            let (sender, connection) = shake.expect("it speaks HTTP/2");
            tokio::spawn(connection);
            Self {
                tell,
                connection: Connection(sender),
            }
        }

        fn client(&self) -> tonic::client::Grpc<Connection> {
            let origin = http::Uri::from_static("http://keda.test");
            tonic::client::Grpc::with_origin(self.connection.clone(), origin)
        }

        async fn call<Q, A>(&self, name: &'static str, request: Q) -> Result<A, Status>
        where
            Q: Message + Default + 'static,
            A: Message + Default + 'static,
        {
            let mut client = self.client();
            client.ready().await.expect("connected");
            let path = PathAndQuery::from_static(name);
            let codec = ProstCodec::<Q, A>::default();
            let answer = client.unary(tonic::Request::new(request), path, codec);
            answer.await.map(tonic::Response::into_inner)
        }

        async fn stream<A: Message + Default + 'static>(&self, name: &'static str) -> Streaming<A> {
            let mut client = self.client();
            client.ready().await.expect("connected");
            let path = PathAndQuery::from_static(name);
            let codec = ProstCodec::<ScaledObject, A>::default();
            let request = tonic::Request::new(object(&[("metric", "demand")]));
            let answer = client.server_streaming(request, path, codec).await;
            answer.expect("a stream").into_inner()
        }
    }

    const METRICS: &str = "/externalscaler.ExternalScaler/GetMetrics";
    const SPEC: &str = "/externalscaler.ExternalScaler/GetMetricSpec";
    const ACTIVE: &str = "/externalscaler.ExternalScaler/IsActive";

    #[tokio::test]
    async fn keda_gets_servers_needed_or_the_demand() {
        let fixture = Fixture::start(known(Some(6), Some(310.0), false)).await;
        let values: Values = fixture.call(METRICS, ask(&[])).await.expect("known");
        assert_eq!(
            (values.values[0].value, values.values[0].value_rounded),
            (6.0, 6)
        );
        assert_eq!(values.values[0].name, "tidegate-servers-shop");
        let spec: Specs = fixture.call(SPEC, object(&[])).await.expect("known");
        assert_eq!(
            (spec.specs[0].target, spec.specs[0].target_rounded),
            (1.0, 1)
        );
        assert_eq!(spec.specs[0].name, values.values[0].name);

        let demand = [("metric", "demand"), ("application", "shop")];
        let values: Values = fixture.call(METRICS, ask(&demand)).await.expect("known");
        let spec: Specs = fixture.call(SPEC, object(&demand)).await.expect("known");
        assert_eq!(
            (values.values[0].value, spec.specs[0].target),
            (310.0, 60.0)
        );
        let active: Active = fixture.call(ACTIVE, object(&[])).await.expect("known");
        assert!(active.result);
    }

    #[tokio::test]
    async fn what_is_not_known_is_an_error_and_never_zero() {
        let fixture = Fixture::start(known(Some(0), Some(0.0), true)).await;
        let refused = fixture.call::<_, Values>(METRICS, ask(&[])).await;
        assert_eq!(refused.expect_err("blind").code(), Code::Unavailable);
        let active: Active = fixture.call(ACTIVE, object(&[])).await.expect("known");
        assert!(active.result, "blind is not idle");
        fixture
            .tell
            .send_replace(vec![known(Some(0), Some(0.0), false)]);
        let active: Active = fixture.call(ACTIVE, object(&[])).await.expect("known");
        assert!(!active.result);
        let other = fixture
            .call::<_, Values>(METRICS, ask(&[("application", "shoe")]))
            .await;
        let other = other.expect_err("unknown");
        assert_eq!(other.code(), Code::NotFound);
        assert!(other.message().contains("there are: shop"), "{other}");
        let wrong = fixture
            .call::<_, Specs>(SPEC, object(&[("metric", "cpu")]))
            .await;
        assert_eq!(wrong.expect_err("unknown").code(), Code::InvalidArgument);
    }

    #[tokio::test]
    async fn streams_tell_the_state_at_once_and_every_change_of_it() {
        let fixture = Fixture::start(known(Some(1), Some(30.0), false)).await;
        let mut active: Streaming<Active> = fixture
            .stream("/externalscaler.ExternalScaler/StreamIsActive")
            .await;
        let first = active.next().await.expect("open").expect("known");
        assert!(first.result);
        fixture
            .tell
            .send_replace(vec![known(Some(2), Some(90.0), false)]);
        fixture
            .tell
            .send_replace(vec![known(Some(0), Some(0.0), false)]);
        let second = active.next().await.expect("open").expect("known");
        assert!(!second.result);
        let mut specs: Streaming<Specs> = fixture
            .stream("/externalscaler.ExternalScaler/StreamMetricSpec")
            .await;
        let first = specs.next().await.expect("open").expect("known");
        assert_eq!(first.specs[0].target, 60.0);
        let mut faster = known(Some(2), Some(90.0), false);
        faster.capacity = Some(80.0);
        fixture.tell.send_replace(vec![faster]);
        let second = specs.next().await.expect("open").expect("known");
        assert_eq!(second.specs[0].target, 80.0);
    }
}

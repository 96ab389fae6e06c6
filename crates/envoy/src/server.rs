//! The server: one port for all interfaces, and `/status` for people.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::Stream;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use prost::Message;
use tidegate_tower::BuildError;
use tokio::net::{TcpListener, TcpStream};
use tonic::body::Body;
use tonic::server::{ClientStreamingService, Grpc, StreamingService, UnaryService};
use tonic::{Status, Streaming};
use tonic_prost::ProstCodec;

use crate::config::EnvoyConfig;
use crate::doors::Doors;
use crate::{access_log, ext_authz, ext_proc, quota, rate_limit};

/// Why the server could not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The engine refused its configuration.
    #[error(transparent)]
    Engine(#[from] BuildError),
    /// The address could not be taken.
    #[error("cannot listen on {addr} ({source}): choose another `listen`")]
    Listen {
        /// The address.
        addr: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
}

/// Serves Envoy's interfaces.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    addr: SocketAddr,
    doors: Arc<Doors>,
}

impl Server {
    /// Starts the engine and takes the address.
    ///
    /// # Errors
    /// When the configuration contradicts itself or the address is taken.
    pub async fn bind(config: &EnvoyConfig) -> Result<Self, ServerError> {
        let addr = config.listen.0;
        let doors = Arc::new(Doors::new(config)?);
        let listen = |source| ServerError::Listen { addr, source };
        let listener = TcpListener::bind(addr).await.map_err(listen)?;
        let addr = listener.local_addr().map_err(listen)?;
        Ok(Self {
            listener,
            addr,
            doors,
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Serves until `stop`. Envoy takes the end of its streams as a failure of the filter, and
    /// does what `failure_mode_allow` says.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let steps = tokio::spawn(step(Arc::clone(&self.doors)));
        tokio::select! {
            () = self.accept() => {}
            () = stop => {}
        }
        steps.abort();
    }

    async fn accept(&self) {
        loop {
            match self.listener.accept().await {
                Ok((connection, _)) => {
                    tokio::spawn(serve(Arc::clone(&self.doors), connection));
                }
                // Out of descriptors: what is open goes on, and one of them may close.
                Err(_) => tokio::time::sleep(std::time::Duration::from_millis(10)).await,
            }
        }
    }
}

/// Computes rates, as long as the server runs.
async fn step(doors: Arc<Doors>) {
    let mut ticks = tokio::time::interval(doors.quota_interval);
    loop {
        ticks.tick().await;
        doors.step();
    }
}

async fn serve(doors: Arc<Doors>, connection: TcpStream) {
    // Decisions are small and waited for.
    let _ = connection.set_nodelay(true);
    let service = service_fn(move |request| {
        let doors = Arc::clone(&doors);
        async move { Ok::<_, Infallible>(route(doors, request).await) }
    });
    let mut server = auto::Builder::new(TokioExecutor::new());
    server.http2().max_concurrent_streams(None);
    let io = TokioIo::new(connection);
    // An Envoy that breaks off is no fault of the server.
    let _ = server.serve_connection(io, service).await;
}

async fn route(doors: Arc<Doors>, request: Request<Incoming>) -> Response<Body> {
    match request.uri().path() {
        "/envoy.service.ext_proc.v3.ExternalProcessor/Process" => {
            grpc().streaming(Process(doors), request).await
        }
        "/envoy.service.auth.v3.Authorization/Check" => grpc().unary(Check(doors), request).await,
        "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit" => {
            grpc().unary(ShouldRateLimit(doors), request).await
        }
        "/envoy.service.rate_limit_quota.v3.RateLimitQuotaService/StreamRateLimitQuotas" => {
            grpc().streaming(StreamQuotas(doors), request).await
        }
        "/envoy.service.accesslog.v3.AccessLogService/StreamAccessLogs" => {
            grpc().client_streaming(StreamLogs(doors), request).await
        }
        "/status" => status(&doors),
        _ if is_grpc(&request) => Status::unimplemented("no such interface").into_http(),
        _ => plain(StatusCode::NOT_FOUND, "there is /status\n".into()),
    }
}

fn grpc<A, Q>() -> Grpc<ProstCodec<A, Q>>
where
    A: Message + Default + 'static,
    Q: Message + Default + 'static,
{
    Grpc::new(ProstCodec::default())
}

fn is_grpc(request: &Request<Incoming>) -> bool {
    let kind = request.headers().get(http::header::CONTENT_TYPE);
    kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"))
}

fn status(doors: &Doors) -> Response<Body> {
    match serde_json::to_vec(&doors.status()) {
        Ok(json) => plain(StatusCode::OK, json.into()),
        Err(error) => plain(StatusCode::INTERNAL_SERVER_ERROR, error.to_string().into()),
    }
}

fn plain(status: StatusCode, body: Bytes) -> Response<Body> {
    let mut response = Response::new(Body::new(Full::new(body)));
    *response.status_mut() = status;
    response
}

type Answer<T> = Pin<Box<dyn Future<Output = Result<tonic::Response<T>, Status>> + Send>>;
type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// A service of tonic that answers a message with a message.
macro_rules! unary {
    ($name:ident, $request:ty, $response:ty, $answer:path) => {
        struct $name(Arc<Doors>);

        impl UnaryService<$request> for $name {
            type Response = $response;
            type Future = Answer<$response>;

            fn call(&mut self, request: tonic::Request<$request>) -> Self::Future {
                let doors = Arc::clone(&self.0);
                Box::pin(async move {
                    let answer = $answer(&doors, request.into_inner()).await;
                    Ok(tonic::Response::new(answer))
                })
            }
        }
    };
}

/// A service of tonic that answers a stream with a stream.
macro_rules! streaming {
    ($name:ident, $request:ty, $response:ty, $answer:path) => {
        struct $name(Arc<Doors>);

        impl StreamingService<$request> for $name {
            type Response = $response;
            type ResponseStream = Answers<$response>;
            type Future = Answer<Self::ResponseStream>;

            fn call(&mut self, request: tonic::Request<Streaming<$request>>) -> Self::Future {
                let answers = $answer(Arc::clone(&self.0), request.into_inner());
                Box::pin(async { Ok(tonic::Response::new(Box::pin(answers) as Answers<_>)) })
            }
        }
    };
}

use crate::proto::access_log::{LogMessage, LogsResponse};
use crate::proto::auth::{CheckRequest, CheckResponse};
use crate::proto::ext_proc::{ProcessingRequest, ProcessingResponse};
use crate::proto::quota::{QuotaResponse, UsageReports};
use crate::proto::rate_limit::{RateLimitRequest, RateLimitResponse};

streaming!(
    Process,
    ProcessingRequest,
    ProcessingResponse,
    ext_proc::process
);
streaming!(StreamQuotas, UsageReports, QuotaResponse, quota::assign);
unary!(Check, CheckRequest, CheckResponse, ext_authz::check);
unary!(
    ShouldRateLimit,
    RateLimitRequest,
    RateLimitResponse,
    rate_limit::should_rate_limit
);

/// The access log is a stream that is answered once.
struct StreamLogs(Arc<Doors>);

impl ClientStreamingService<LogMessage> for StreamLogs {
    type Response = LogsResponse;
    type Future = Answer<LogsResponse>;

    fn call(&mut self, request: tonic::Request<Streaming<LogMessage>>) -> Self::Future {
        let log = access_log::read(Arc::clone(&self.0), request.into_inner());
        Box::pin(async { Ok(tonic::Response::new(log.await)) })
    }
}

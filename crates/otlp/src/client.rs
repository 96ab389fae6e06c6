//! One message to a collector: a connection, a POST, an answer.
//!
//! Messages are seconds apart, so each has a connection of its own: none goes stale meanwhile. A
//! gRPC call is a POST over HTTP/2 whose body has five bytes before it and whose answer ends with
//! trailers; that is all that OTLP needs of it.

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{
    ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HOST, HeaderMap, HeaderValue, RETRY_AFTER, TE,
    USER_AGENT,
};
use http::{Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::rt::{Read, Write};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use rustls_pki_types::ServerName;
use tidegate_proxy::client_tls;
use tidegate_proxy::config::{Http2, UpstreamTls};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::environment::{Protocol, Target};
use crate::proto::{PartialSuccess, Response};

/// Bytes of an answer that are read. Chosen: many times a message about what was rejected.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// Longest wait that a collector may ask for.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);

/// Why a message was not taken.
#[derive(Debug, thiserror::Error)]
#[error("{cause}")]
pub(crate) struct Failure {
    /// In words.
    pub(crate) cause: String,
    /// Whether the same message may be taken later.
    pub(crate) may_retry: bool,
    /// After this long, if the collector said so.
    pub(crate) after: Option<Duration>,
}

impl Failure {
    #[allow(clippy::needless_pass_by_value, reason = "it is given to map_err")]
    fn now(cause: impl std::fmt::Display) -> Self {
        Self {
            cause: cause.to_string(),
            may_retry: true,
            after: None,
        }
    }

    #[allow(clippy::needless_pass_by_value, reason = "it is given to map_err")]
    fn for_good(cause: impl std::fmt::Display) -> Self {
        Self {
            may_retry: false,
            ..Self::now(cause)
        }
    }
}

/// Sends messages of one signal.
pub(crate) struct Client {
    target: Target,
    tls: Option<TlsConnector>,
}

impl Client {
    /// # Errors
    /// A certificate that cannot be read.
    pub(crate) fn new(target: Target) -> Result<Self, String> {
        let tls = (target.url.scheme_str() == Some("https")).then(|| {
            let (client_cert, client_key) = target.client.clone().unzip();
            let options = UpstreamTls {
                ca: target.certificate.clone(),
                client_cert,
                client_key,
                ..UpstreamTls::default()
            };
            let http2 = match target.protocol {
                Protocol::Http => Http2::Never,
                Protocol::Grpc => Http2::Always,
            };
            client_tls(&options, http2).map_err(|error| error.to_string())
        });
        let tls = tls.transpose()?;
        Ok(Self {
            tls: tls.map(|config| TlsConnector::from(Arc::new(config))),
            target,
        })
    }

    /// Where messages go, without what may be secret.
    pub(crate) fn shown(&self) -> String {
        let url = &self.target.url;
        let (scheme, host) = (url.scheme_str(), url.host());
        let port = url.port().map(|port| format!(":{port}"));
        format!(
            "{}://{}{}",
            scheme.unwrap_or("http"),
            host.unwrap_or_default(),
            port.unwrap_or_default()
        )
    }

    /// Sends a message. Gives what of it the collector did not take, if it says so.
    pub(crate) async fn send(
        &self,
        message: &impl Message,
    ) -> Result<Option<PartialSuccess>, Failure> {
        let request = self.request(message)?;
        let limit = self.target.timeout;
        match tokio::time::timeout(limit, self.exchange(request)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(Failure::now(format!(
                "no answer within {} ms",
                limit.as_millis()
            ))),
        }
    }

    fn request(&self, message: &impl Message) -> Result<Request<Full<Bytes>>, Failure> {
        let (protocol, url) = (self.target.protocol, &self.target.url);
        let mut body = message.encode_to_vec();
        if self.target.gzip {
            body = gzip(&body).map_err(Failure::for_good)?;
        }
        if protocol == Protocol::Grpc {
            let length = u32::try_from(body.len()).map_err(Failure::for_good)?;
            let mut framed = vec![u8::from(self.target.gzip)];
            framed.extend_from_slice(&length.to_be_bytes());
            framed.append(&mut body);
            body = framed;
        }
        let mut request = Request::new(Full::from(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = match protocol {
            Protocol::Grpc => url.clone(),
            Protocol::Http => url
                .path_and_query()
                .map_or_else(Uri::default, |path| path.clone().into()),
        };
        self.head(request.headers_mut());
        Ok(request)
    }

    fn head(&self, headers: &mut HeaderMap) {
        let agent = concat!("tidegate/", env!("CARGO_PKG_VERSION"));
        headers.insert(USER_AGENT, HeaderValue::from_static(agent));
        let gzip = HeaderValue::from_static("gzip");
        match self.target.protocol {
            Protocol::Http => {
                let kind = HeaderValue::from_static("application/x-protobuf");
                headers.insert(CONTENT_TYPE, kind);
                let authority = self.target.url.authority().map(|it| it.as_str());
                let host = HeaderValue::from_str(authority.unwrap_or_default());
                headers.insert(HOST, host.unwrap_or(HeaderValue::from_static("")));
                headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
                if self.target.gzip {
                    headers.insert(CONTENT_ENCODING, gzip);
                }
            }
            Protocol::Grpc => {
                let kind = HeaderValue::from_static("application/grpc");
                headers.insert(CONTENT_TYPE, kind);
                headers.insert(TE, HeaderValue::from_static("trailers"));
                if self.target.gzip {
                    headers.insert("grpc-encoding", gzip);
                }
            }
        }
        for (name, value) in &self.target.headers {
            headers.insert(name.clone(), value.clone());
        }
    }

    async fn exchange(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<Option<PartialSuccess>, Failure> {
        let url = &self.target.url;
        let host = url.host().unwrap_or_default().trim_matches(['[', ']']);
        let usual = if self.tls.is_some() { 443 } else { 80 };
        let port = url.port_u16().unwrap_or(usual);
        let stream = TcpStream::connect((host, port)).await;
        let stream = stream.map_err(Failure::now)?;
        let answer = match &self.tls {
            None => self.call(TokioIo::new(stream), request).await?,
            Some(tls) => {
                let name = ServerName::try_from(host.to_owned()).map_err(Failure::for_good)?;
                let stream = tls.connect(name, stream).await.map_err(Failure::now)?;
                self.call(TokioIo::new(stream), request).await?
            }
        };
        match self.target.protocol {
            Protocol::Http => read_http(answer).await,
            Protocol::Grpc => read_grpc(answer).await,
        }
    }

    /// Sends a request on a new connection, which ends with its answer.
    async fn call<S>(
        &self,
        stream: S,
        request: Request<Full<Bytes>>,
    ) -> Result<http::Response<Incoming>, Failure>
    where
        S: Read + Write + Unpin + Send + 'static,
    {
        match self.target.protocol {
            Protocol::Http => {
                let made = hyper::client::conn::http1::handshake(stream).await;
                let (mut sender, connection) = made.map_err(Failure::now)?;
                tokio::spawn(connection);
                sender.send_request(request).await.map_err(Failure::now)
            }
            Protocol::Grpc => {
                let executor = TokioExecutor::new();
                let made = hyper::client::conn::http2::handshake(executor, stream).await;
                let (mut sender, connection) = made.map_err(Failure::now)?;
                tokio::spawn(connection);
                sender.send_request(request).await.map_err(Failure::now)
            }
        }
    }
}

fn gzip(body: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(body)?;
    encoder.finish()
}

/// By the specification of OTLP/HTTP, these may pass.
fn may_pass(status: StatusCode) -> bool {
    matches!(status.as_u16(), 429 | 502 | 503 | 504)
}

async fn read_http(answer: http::Response<Incoming>) -> Result<Option<PartialSuccess>, Failure> {
    let (head, body) = answer.into_parts();
    let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
    if !head.status.is_success() {
        return Err(Failure {
            cause: format!("the collector answered {}", head.status),
            may_retry: may_pass(head.status),
            after: retry_after(&head.headers),
        });
    }
    // A collector that answers 200 has taken the message, whatever its words are.
    let body = body.map(|it| it.to_bytes()).unwrap_or_default();
    Ok(partial(&body))
}

fn partial(body: &[u8]) -> Option<PartialSuccess> {
    let partial = Response::decode(body).ok()?.partial_success?;
    (partial.rejected > 0).then_some(partial)
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers
        .get(RETRY_AFTER)?
        .to_str()
        .ok()?
        .trim()
        .parse()
        .ok()?;
    Some(Duration::from_secs(seconds).min(RETRY_AFTER_MAX))
}

async fn read_grpc(answer: http::Response<Incoming>) -> Result<Option<PartialSuccess>, Failure> {
    let (head, body) = answer.into_parts();
    if head.status != StatusCode::OK {
        return Err(Failure {
            cause: format!("the collector answered {}", head.status),
            may_retry: may_pass(head.status),
            after: None,
        });
    }
    let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
    let body = body.map_err(Failure::now)?;
    // Without a message the status stands in the head.
    let trailers = body.trailers().cloned().unwrap_or(head.headers);
    let status = trailers.get("grpc-status").and_then(|it| it.to_str().ok());
    let status = status.unwrap_or("without a status").to_owned();
    if status == "0" {
        let body = body.to_bytes();
        return Ok(body.get(5..).and_then(partial));
    }
    let message = trailers.get("grpc-message").and_then(|it| it.to_str().ok());
    let message = message.map_or_else(String::new, |text| format!(" ({text})"));
    Err(Failure {
        cause: format!("the collector answered gRPC status {status}{message}"),
        // Cancelled, deadline exceeded, resource exhausted, aborted, out of range, unavailable,
        // data loss.
        may_retry: matches!(status.as_str(), "1" | "4" | "8" | "10" | "11" | "14" | "15"),
        after: None,
    })
}

//! The little of an HTTP client that subscribing and sending need: one connection, one request.
//!
//! Only `http://`: what travels here is signed, and whoever wants it encrypted puts a TLS proxy in
//! front of either end.

use std::time::Duration;

use bytes::Bytes;
use http::header::{HOST, HeaderValue};
use http::{Request, Response, Uri};
use http_body::Body;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// How long opening a connection may take.
const CONNECT: Duration = Duration::from_secs(5);

/// Longest answer that is read whole.
const ANSWER_MAX: usize = 1 << 20;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// Not an address this client can use.
    #[error("`{0}` is not an address of the form http://host:port/path")]
    Address(String),
    /// No connection.
    #[error("cannot connect to {0}: {1}")]
    Connect(String, String),
    /// The connection broke.
    #[error("{0} broke off: {1}")]
    Broken(String, String),
    /// Another answer than expected.
    #[error("{0} answered {1}")]
    Status(String, http::StatusCode),
}

/// Sends a request to the host that its URI names, on a connection of its own.
///
/// # Errors
/// When there is no answer.
pub async fn send<B>(mut request: Request<B>) -> Result<Response<Incoming>, HttpError>
where
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let authority = authority(request.uri())?;
    let connect = tokio::time::timeout(CONNECT, TcpStream::connect(&authority));
    let refused = |cause: String| HttpError::Connect(authority.clone(), cause);
    let stream = connect
        .await
        .map_err(|_| refused("no answer".to_owned()))?
        .map_err(|error| refused(error.to_string()))?;
    // A message is one small write; waiting for more would only delay it.
    let _ = stream.set_nodelay(true);
    let host =
        HeaderValue::from_str(&authority).map_err(|_| HttpError::Address(authority.clone()))?;
    request.headers_mut().entry(HOST).or_insert(host);
    let path = request.uri().path_and_query().cloned();
    *request.uri_mut() = path.map_or_else(|| Uri::from_static("/"), Uri::from);
    let broken = |error: hyper::Error| HttpError::Broken(authority.clone(), error.to_string());
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(broken)?;
    tokio::spawn(connection);
    sender.send_request(request).await.map_err(broken)
}

/// Host and port of a URI.
fn authority(uri: &Uri) -> Result<String, HttpError> {
    let unusable = || HttpError::Address(uri.to_string());
    if uri.scheme_str() != Some("http") {
        return Err(unusable());
    }
    let host = uri.host().ok_or_else(unusable)?;
    Ok(format!("{host}:{}", uri.port_u16().unwrap_or(80)))
}

/// Asks for a page of `base` and reads the answer as text.
///
/// # Errors
/// When there is no answer, or not a good one.
pub async fn get(base: &str, path: &str) -> Result<String, HttpError> {
    let response = open(base, path).await?;
    let broken = |cause: String| HttpError::Broken(base.to_owned(), cause);
    let body = Limited::new(response.into_body(), ANSWER_MAX).collect();
    let body = body.await.map_err(|error| broken(error.to_string()))?;
    String::from_utf8(body.to_bytes().to_vec()).map_err(|error| broken(error.to_string()))
}

/// Asks for a page of `base`; its body is still to be read.
///
/// # Errors
/// When there is no answer, or not a good one.
pub async fn open(base: &str, path: &str) -> Result<Response<Incoming>, HttpError> {
    let address = format!("{}{path}", base.trim_end_matches('/'));
    let uri: Uri = address
        .parse()
        .map_err(|_| HttpError::Address(address.clone()))?;
    let request = Request::get(uri)
        .body(Empty::<Bytes>::new())
        .map_err(|_| HttpError::Address(address.clone()))?;
    let response = send(request).await?;
    match response.status().is_success() {
        true => Ok(response),
        false => Err(HttpError::Status(address, response.status())),
    }
}

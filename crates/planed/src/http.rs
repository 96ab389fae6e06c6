//! One HTTP request: connect, send, read whole, close. For admin calls and health checks.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// What is allowed for a call, connecting included.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Longest answer that is read.
const BODY_MAX: usize = 4 << 20;

/// Why a call came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// Another scheme.
    #[error("{0} is not an http:// address")]
    Address(String),
    /// No answer.
    #[error("{url}: {cause}")]
    Failed {
        /// What was called.
        url: String,
        /// Why there is no answer.
        cause: String,
    },
    /// An answer that is no success.
    #[error("{url} answered {status}: {body}")]
    Status {
        /// What was called.
        url: String,
        /// The status.
        status: u16,
        /// The begin of the answer.
        body: String,
    },
}

/// Sends a request and reads the answer; everything but 2xx is an error.
pub(crate) async fn call(
    method: Method,
    url: &str,
    token: Option<&str>,
    body: Vec<u8>,
) -> Result<Bytes, CallError> {
    let failed = |cause: String| CallError::Failed {
        url: url.to_owned(),
        cause,
    };
    match timeout(TIMEOUT, exchange(method, url, token, body)).await {
        Ok(outcome) => outcome,
        Err(_) => Err(failed(format!("no answer within {} s", TIMEOUT.as_secs()))),
    }
}

async fn exchange(
    method: Method,
    url: &str,
    token: Option<&str>,
    body: Vec<u8>,
) -> Result<Bytes, CallError> {
    let failed = |cause: &dyn std::fmt::Display| CallError::Failed {
        url: url.to_owned(),
        cause: cause.to_string(),
    };
    let uri: Uri = url
        .parse()
        .map_err(|_| CallError::Address(url.to_owned()))?;
    let authority = uri.authority().filter(|_| uri.scheme_str() == Some("http"));
    let authority = authority.ok_or_else(|| CallError::Address(url.to_owned()))?;
    let address = (
        authority.host().trim_matches(['[', ']']),
        authority.port_u16().unwrap_or(80),
    );
    let stream = TcpStream::connect(address)
        .await
        .map_err(|error| failed(&error))?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| failed(&error))?;
    let connection = tokio::spawn(connection);
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let mut request = Request::builder()
        .method(method)
        .uri(path)
        .header(http::header::HOST, authority.as_str())
        .header(http::header::CONTENT_TYPE, "application/json");
    if let Some(token) = token {
        request = request.header(http::header::AUTHORIZATION, format!("Bearer {token}"));
    }
    let request = request
        .body(Full::new(Bytes::from(body)))
        .map_err(|error| failed(&error))?;
    let answer = sender
        .send_request(request)
        .await
        .map_err(|error| failed(&error))?;
    let status = answer.status();
    let body = Limited::new(answer.into_body(), BODY_MAX).collect().await;
    connection.abort();
    let body = body.map_err(|error| failed(&error))?.to_bytes();
    if status.is_success() {
        return Ok(body);
    }
    Err(CallError::Status {
        url: url.to_owned(),
        status: status.as_u16(),
        body: String::from_utf8_lossy(&body).chars().take(300).collect(),
    })
}

//! The little of an HTTP client that subscribing and sending need: one connection, one request.
//!
//! What travels here is signed, so `http://` forges nothing; `https://` hides it, and who asks.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http::header::{HOST, HeaderValue};
use http::{Request, Response, Uri};
use http_body::Body;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::rt::{Read, Write};
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// How long opening a connection may take, and its handshake.
const CONNECT: Duration = Duration::from_secs(5);

/// Longest answer that is read whole.
const ANSWER_MAX: usize = 1 << 20;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// Not an address this client can use.
    #[error("`{0}` is not an address of the form http://host:port/path or https://host:port/path")]
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

/// A file of certificates that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{}: {cause}; it has to hold certificates in PEM form", .path.display())]
pub struct CaError {
    path: PathBuf,
    cause: String,
}

/// Opens connections. By default `https` servers are believed as the system believes them.
#[derive(Clone, Default)]
pub struct Dialer {
    tls: Arc<OnceLock<TlsConnector>>,
}

impl std::fmt::Debug for Dialer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Dialer")
    }
}

impl Dialer {
    /// Believes those servers whose certificates were issued by an authority in this file.
    ///
    /// # Errors
    /// When the file cannot be read or holds no certificate.
    pub fn trusting(ca: &Path) -> Result<Self, CaError> {
        let unusable = |cause: String| CaError {
            path: ca.to_owned(),
            cause,
        };
        let mut roots = RootCertStore::empty();
        let certificates =
            CertificateDer::pem_file_iter(ca).map_err(|error| unusable(error.to_string()))?;
        for certificate in certificates {
            let certificate = certificate.map_err(|error| unusable(error.to_string()))?;
            let added = roots.add(certificate);
            added.map_err(|error| unusable(error.to_string()))?;
        }
        if roots.is_empty() {
            return Err(unusable("no certificate".to_owned()));
        }
        let tls = connector(roots).map_err(|error| unusable(error.to_string()))?;
        Ok(Self {
            tls: Arc::new(OnceLock::from(tls)),
        })
    }

    /// Sends a request to the host that its URI names, on a connection of its own.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn send<B>(&self, mut request: Request<B>) -> Result<Response<Incoming>, HttpError>
    where
        B: Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let target = Target::of(request.uri())?;
        let host = HeaderValue::from_str(&target.authority)
            .map_err(|_| HttpError::Address(target.authority.clone()))?;
        request.headers_mut().entry(HOST).or_insert(host);
        let path = request.uri().path_and_query().cloned();
        *request.uri_mut() = path.map_or_else(|| Uri::from_static("/"), Uri::from);
        let connected = tokio::time::timeout(CONNECT, self.connect(&target)).await;
        let silent = |_| HttpError::Connect(target.authority.clone(), "no answer".to_owned());
        let sent = match connected.map_err(silent)?? {
            Stream::Plain(stream) => exchange(stream, request).await,
            Stream::Tls(stream) => exchange(stream, request).await,
        };
        sent.map_err(|error| HttpError::Broken(target.authority, error.to_string()))
    }

    async fn connect(&self, target: &Target) -> Result<Stream, HttpError> {
        let refused = |cause: &dyn std::fmt::Display| {
            HttpError::Connect(target.authority.clone(), cause.to_string())
        };
        let stream = TcpStream::connect(&target.address).await;
        let stream = stream.map_err(|error| refused(&error))?;
        // A message is one small write; waiting for more would only delay it.
        let _ = stream.set_nodelay(true);
        if !target.encrypted {
            return Ok(Stream::Plain(TokioIo::new(stream)));
        }
        let name = ServerName::try_from(target.host.clone()).map_err(|error| refused(&error))?;
        let tls = self.tls().map_err(|error| refused(&error))?;
        let stream = tls.connect(name, stream).await;
        let stream = stream.map_err(|error| refused(&error))?;
        Ok(Stream::Tls(Box::new(TokioIo::new(stream))))
    }

    /// The system's certificates are read when they are first needed.
    fn tls(&self) -> Result<&TlsConnector, rustls::Error> {
        if let Some(tls) = self.tls.get() {
            return Ok(tls);
        }
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        let tls = connector(roots)?;
        Ok(self.tls.get_or_init(|| tls))
    }

    /// Asks for a page of `base`, with one more header if there is one, and reads the answer as
    /// text.
    ///
    /// # Errors
    /// When there is no answer, or not a good one.
    pub async fn get(
        &self,
        base: &str,
        path: &str,
        header: Option<(&'static str, &str)>,
    ) -> Result<String, HttpError> {
        let response = self.open(base, path, header).await?;
        let broken = |cause: String| HttpError::Broken(base.to_owned(), cause);
        let body = Limited::new(response.into_body(), ANSWER_MAX).collect();
        let body = body.await.map_err(|error| broken(error.to_string()))?;
        String::from_utf8(body.to_bytes().to_vec()).map_err(|error| broken(error.to_string()))
    }

    /// Asks for a page of `base`; its body is still to be read.
    ///
    /// # Errors
    /// When there is no answer, or not a good one.
    pub async fn open(
        &self,
        base: &str,
        path: &str,
        header: Option<(&'static str, &str)>,
    ) -> Result<Response<Incoming>, HttpError> {
        let address = format!("{}{path}", base.trim_end_matches('/'));
        let mut request = Request::get(&address);
        if let Some((name, value)) = header {
            request = request.header(name, value);
        }
        let request = request
            .body(Empty::<Bytes>::new())
            .map_err(|_| HttpError::Address(address.clone()))?;
        let response = self.send(request).await?;
        if response.status().is_success() {
            Ok(response)
        } else {
            Err(HttpError::Status(address, response.status()))
        }
    }
}

/// Where a request goes.
struct Target {
    encrypted: bool,
    host: String,
    /// Host and port as the request names them.
    authority: String,
    /// Host and port to connect to.
    address: String,
}

impl Target {
    fn of(uri: &Uri) -> Result<Self, HttpError> {
        let unusable = || HttpError::Address(uri.to_string());
        let encrypted = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(unusable()),
        };
        let host = uri.host().ok_or_else(unusable)?;
        let port = uri.port_u16().unwrap_or(if encrypted { 443 } else { 80 });
        let authority = uri.authority().ok_or_else(unusable)?.as_str();
        Ok(Self {
            encrypted,
            // An IPv6 address stands in brackets, a name for TLS does not.
            host: host.trim_matches(['[', ']']).to_owned(),
            authority: authority.rsplit('@').next().unwrap_or(authority).to_owned(),
            address: format!("{host}:{port}"),
        })
    }
}

enum Stream {
    Plain(TokioIo<TcpStream>),
    Tls(Box<TokioIo<tokio_rustls::client::TlsStream<TcpStream>>>),
}

async fn exchange<S, B>(stream: S, request: Request<B>) -> Result<Response<Incoming>, hyper::Error>
where
    S: Read + Write + Unpin + Send + 'static,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let (mut sender, connection) = http1::handshake(stream).await?;
    tokio::spawn(connection);
    sender.send_request(request).await
}

fn connector(roots: RootCertStore) -> Result<TlsConnector, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

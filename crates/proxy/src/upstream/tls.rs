//! TLS towards replicas: whom to trust, and what to present.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use ring::digest;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::TlsConnector;

use super::pin::Pins;
use crate::config::{Http2, Upstream, UpstreamTls, pem};
use crate::settings::SettingsError;

/// How TLS is spoken to replicas.
pub(crate) struct ClientTls {
    pub(crate) connector: TlsConnector,
    /// Digest of the files it was made of, to see whether a reload changes anything.
    pub(crate) files: Vec<u8>,
}

impl std::fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ClientTls")
    }
}

pub(crate) fn load(upstream: &Upstream) -> Result<ClientTls, SettingsError> {
    let config = client_tls(&upstream.tls, upstream.http2)?;
    Ok(ClientTls {
        connector: TlsConnector::from(Arc::new(config)),
        files: fingerprint(&upstream.tls),
    })
}

/// TLS as a client speaks it: whom it trusts, what it presents, which protocols it offers.
///
/// # Errors
/// A file that cannot be read or holds nothing of use, or a system without authorities.
pub fn client_tls(options: &UpstreamTls, http2: Http2) -> Result<ClientConfig, SettingsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| SettingsError::Tls(error.to_string()))?;
    let builder = builder
        .dangerous()
        .with_custom_certificate_verifier(verifier(options, &provider)?);
    let mut config = match (&options.client_cert, &options.client_key) {
        (Some(cert), Some(key)) => builder
            .with_client_auth_cert(pem(pem::read_chain(cert))?, pem(pem::read_key(key))?)
            .map_err(|error| SettingsError::Tls(format!("{}: {error}", cert.display())))?,
        _ => builder.with_no_client_auth(),
    };
    config.alpn_protocols = match http2 {
        Http2::Auto => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
        Http2::Always => vec![b"h2".to_vec()],
        Http2::Never => vec![b"http/1.1".to_vec()],
    };
    Ok(config)
}

/// Who decides whether a replica is the one that is meant.
fn verifier(
    options: &UpstreamTls,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ServerCertVerifier>, SettingsError> {
    if options.insecure {
        return Ok(Arc::new(AcceptAny::new(provider)));
    }
    let (roots, named) = match &options.ca {
        Some(path) => (pem(pem::read_roots(path))?, pem(pem::read_chain(path))?),
        None => (system_roots()?, Vec::new()),
    };
    let usual = WebPkiServerVerifier::builder_with_provider(roots.into(), Arc::clone(provider))
        .build()
        .map_err(|error| SettingsError::Tls(error.to_string()))?;
    Ok(Arc::new(Pins::new(usual, named)))
}

fn system_roots() -> Result<RootCertStore, SettingsError> {
    let mut roots = RootCertStore::empty();
    let system = rustls_native_certs::load_native_certs();
    match roots.add_parsable_certificates(system.certs) {
        (0, _) => Err(SettingsError::Tls(
            "the system has no certificates of authorities; install them (package \
             ca-certificates) or name a file with `upstream.tls.ca`"
                .into(),
        )),
        _ => Ok(roots),
    }
}

fn pem<T>(read: Result<T, String>) -> Result<T, SettingsError> {
    read.map_err(SettingsError::Tls)
}

/// Changes when one of the files does; files that cannot be read have been refused before.
fn fingerprint(options: &UpstreamTls) -> Vec<u8> {
    let mut context = digest::Context::new(&digest::SHA256);
    let files: [&Option<PathBuf>; 3] = [&options.ca, &options.client_cert, &options.client_key];
    for path in files.into_iter().flatten() {
        context.update(&std::fs::read(path).unwrap_or_default());
    }
    context.finish().as_ref().to_vec()
}

/// What went wrong with a replica, with the remedy where there is one on our side.
pub(super) fn explain(error: io::Error) -> io::Error {
    use CertificateError::{NotValidForName, NotValidForNameContext, UnknownIssuer};
    let cause = error.get_ref().and_then(|it| it.downcast_ref::<Error>());
    let remedy = match cause {
        Some(Error::InvalidCertificate(UnknownIssuer)) => {
            "name its authority, or the certificate itself, in `upstream.tls.ca`"
        }
        Some(Error::InvalidCertificate(NotValidForName | NotValidForNameContext { .. })) => {
            "name the one it is for in `upstream.tls.server_name`"
        }
        Some(Error::InvalidMessage(_)) => "if it does not speak TLS, write http:// in its URL",
        _ => return error,
    };
    io::Error::new(error.kind(), format!("{error}; {remedy}"))
}

/// Accepts every certificate, because the operator wrote `insecure = true`.
#[derive(Debug)]
struct AcceptAny {
    algorithms: WebPkiSupportedAlgorithms,
}

impl AcceptAny {
    fn new(provider: &CryptoProvider) -> Self {
        Self {
            algorithms: provider.signature_verification_algorithms,
        }
    }
}

impl ServerCertVerifier for AcceptAny {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

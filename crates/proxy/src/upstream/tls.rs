//! TLS towards replicas: whom to trust, and what to present.

use std::path::PathBuf;
use std::sync::Arc;

use ring::digest;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::TlsConnector;

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
    let builder = match options.insecure {
        true => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AcceptAny::new(&provider))),
        false => builder.with_root_certificates(roots(options)?),
    };
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

fn roots(options: &UpstreamTls) -> Result<RootCertStore, SettingsError> {
    if let Some(path) = &options.ca {
        return pem(pem::read_roots(path));
    }
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

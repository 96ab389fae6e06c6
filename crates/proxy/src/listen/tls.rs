//! TLS towards clients: which certificate is presented for which name, and which ones clients
//! may present.

use std::collections::HashMap;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;

use crate::config::{Certificate, ClientCertificate, Listener, pem};
use crate::settings::SettingsError;

/// What a TLS listener speaks. Made anew on every reload, so that renewed certificates are
/// presented to the next client.
#[derive(Debug, Clone)]
pub(crate) struct ServerTls(pub(crate) Arc<ServerConfig>);

/// TLS of every listener; `None` where it speaks plain text.
pub(crate) fn load(listeners: &[Listener]) -> Result<Vec<Option<ServerTls>>, SettingsError> {
    let load = |listener: &Listener| match listener.tls.is_empty() {
        true => Ok(None),
        false => server_tls(listener).map(Some),
    };
    listeners.iter().map(load).collect()
}

fn server_tls(listener: &Listener) -> Result<ServerTls, SettingsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let clients = client_verifier(listener, &provider)?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| SettingsError::Tls(error.to_string()))?
        .with_client_cert_verifier(clients)
        .with_cert_resolver(Arc::new(Certificates::load(&listener.tls)?));
    config.alpn_protocols = match listener.http2 {
        true => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
        false => vec![b"http/1.1".to_vec()],
    };
    Ok(ServerTls(Arc::new(config)))
}

fn client_verifier(
    listener: &Listener,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, SettingsError> {
    let Some(ca) = &listener.client_ca else {
        return Ok(WebPkiClientVerifier::no_client_auth());
    };
    let roots = pem::read_roots(ca).map_err(SettingsError::Tls)?;
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
    let verifier = match listener.client_certificate {
        ClientCertificate::Optional => verifier.allow_unauthenticated(),
        ClientCertificate::Required => verifier,
    };
    let failed = |error| SettingsError::Tls(format!("{}: {error}", ca.display()));
    verifier.build().map_err(failed)
}

/// Certificates by server name.
#[derive(Debug)]
struct Certificates {
    exact: HashMap<String, Arc<CertifiedKey>>,
    /// By what stands behind `*.`.
    wildcard: HashMap<String, Arc<CertifiedKey>>,
    /// For clients that name nobody we know.
    default: Option<Arc<CertifiedKey>>,
}

impl Certificates {
    fn load(certificates: &[Certificate]) -> Result<Self, SettingsError> {
        let mut named = Self {
            exact: HashMap::new(),
            wildcard: HashMap::new(),
            default: None,
        };
        let mut first = None;
        for certificate in certificates {
            let key = Arc::new(certificate.load().map_err(SettingsError::Tls)?);
            first.get_or_insert_with(|| Arc::clone(&key));
            named.add(certificate, &key);
        }
        named.default = named.default.or(first);
        Ok(named)
    }

    fn add(&mut self, certificate: &Certificate, key: &Arc<CertifiedKey>) {
        if certificate.sni.is_empty() && self.default.is_none() {
            self.default = Some(Arc::clone(key));
        }
        for name in &certificate.sni {
            let name = name.to_ascii_lowercase();
            let (names, name) = match name.strip_prefix("*.") {
                Some(parent) => (&mut self.wildcard, parent.to_owned()),
                None => (&mut self.exact, name),
            };
            names.entry(name).or_insert_with(|| Arc::clone(key));
        }
    }

    fn find(&self, name: Option<&str>) -> Option<Arc<CertifiedKey>> {
        let name = name.map(str::to_ascii_lowercase);
        let exact = name.as_ref().and_then(|name| self.exact.get(name));
        // A wildcard stands for one label.
        let parent = name.as_ref().and_then(|name| name.split_once('.'));
        let wildcard = parent.and_then(|(_, parent)| self.wildcard.get(parent));
        exact.or(wildcard).or(self.default.as_ref()).cloned()
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.find(hello.server_name())
    }
}

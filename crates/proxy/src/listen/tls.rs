//! TLS towards clients: which certificate is presented for which name, which ones clients may
//! present, and which sessions they may resume.
//!
//! A resumed session needs neither a signature nor a certificate. What a client needs for it is in
//! the ticket that it got, encrypted by a key of the listener; the proxy keeps nothing for it. The
//! key outlives reloads, so that a renewed certificate does not cost every client a new handshake.
//! A successor after an upgrade has a key of its own.

use std::collections::HashMap;
use std::iter::repeat;
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::crypto::hash::HashAlgorithm;
use rustls::crypto::ring::Ticketer;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ClientHello, ProducesTickets, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, ServerConfig, SupportedCipherSuite};

use crate::config::{Certificate, ClientCertificate, Listener, pem};
use crate::settings::SettingsError;

/// What a TLS listener speaks. Made anew on every reload, so that renewed certificates are
/// presented to the next client; sessions can be resumed all the same.
#[derive(Debug, Clone)]
pub(crate) struct ServerTls {
    pub(crate) config: Arc<ServerConfig>,
    clients: Clients,
}

/// What a listener demands of its clients.
#[derive(Debug, Clone)]
struct Clients {
    /// `None` asks for no certificate.
    authorities: Option<(ClientCertificate, Arc<RootCertStore>)>,
}

impl PartialEq for Clients {
    fn eq(&self, other: &Self) -> bool {
        match (&self.authorities, &other.authorities) {
            (Some((demand, roots)), Some((other, others))) => {
                demand == other && roots.roots == others.roots
            }
            (ours, others) => ours.is_none() && others.is_none(),
        }
    }
}

/// TLS of every listener; `None` where it speaks plain text. Keys of tickets are taken from what
/// was in force before.
pub(crate) fn load(
    listeners: &[Listener],
    before: &[Option<ServerTls>],
) -> Result<Vec<Option<ServerTls>>, SettingsError> {
    // Listeners change with a restart only: the same place is the same listener.
    let before = before.iter().map(Option::as_ref).chain(repeat(None));
    let load = |(listener, before): (&Listener, Option<&ServerTls>)| {
        if listener.tls.is_empty() {
            Ok(None)
        } else {
            server_tls(listener, before).map(Some)
        }
    };
    listeners.iter().zip(before).map(load).collect()
}

fn server_tls(listener: &Listener, before: Option<&ServerTls>) -> Result<ServerTls, SettingsError> {
    let provider = Arc::new(provider());
    let clients = Clients::of(listener)?;
    let mut config = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| SettingsError::Tls(error.to_string()))?
        .with_client_cert_verifier(clients.verifier(listener, &provider)?)
        .with_cert_resolver(Arc::new(Certificates::load(&listener.tls)?));
    config.alpn_protocols = if listener.http2 {
        vec![b"h2".to_vec(), b"http/1.1".to_vec()]
    } else {
        vec![b"http/1.1".to_vec()]
    };
    config.ticketer = clients.ticketer(before)?;
    config.ignore_client_order = true;
    Ok(ServerTls {
        config: Arc::new(config),
        clients,
    })
}

/// Cipher suites with SHA-256 first, which processors compute by themselves. A handshake hashes
/// dozens of times, and SHA-384 takes a tenth of a new connection's CPU time (decision 0371).
fn provider() -> CryptoProvider {
    let mut provider = rustls::crypto::ring::default_provider();
    let slow = |suite: &SupportedCipherSuite| {
        let hash = match suite {
            SupportedCipherSuite::Tls13(suite) => suite.common.hash_provider,
            SupportedCipherSuite::Tls12(suite) => suite.common.hash_provider,
        };
        hash.algorithm() != HashAlgorithm::SHA256
    };
    // Within those of one hash the provider's order stays.
    provider.cipher_suites.sort_by_key(slow);
    provider
}

impl Clients {
    fn of(listener: &Listener) -> Result<Self, SettingsError> {
        let roots = listener.client_ca.as_deref().map(pem::read_roots);
        let roots = roots.transpose().map_err(SettingsError::Tls)?;
        Ok(Self {
            authorities: roots.map(|roots| (listener.client_certificate, Arc::new(roots))),
        })
    }

    fn verifier(
        &self,
        listener: &Listener,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Arc<dyn ClientCertVerifier>, SettingsError> {
        let (Some((demand, roots)), Some(file)) = (&self.authorities, &listener.client_ca) else {
            return Ok(WebPkiClientVerifier::no_client_auth());
        };
        let (roots, provider) = (Arc::clone(roots), Arc::clone(provider));
        let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
        let verifier = match demand {
            ClientCertificate::Optional => verifier.allow_unauthenticated(),
            ClientCertificate::Required => verifier,
        };
        let failed = |error| SettingsError::Tls(format!("{}: {error}", file.display()));
        verifier.build().map_err(failed)
    }

    /// What encrypts tickets. A session of a client that was authenticated by other authorities is
    /// not resumed: its ticket is of another key.
    fn ticketer(
        &self,
        before: Option<&ServerTls>,
    ) -> Result<Arc<dyn ProducesTickets>, SettingsError> {
        match before.filter(|it| it.clients == *self) {
            Some(before) => Ok(Arc::clone(&before.config.ticketer)),
            None => Ticketer::new().map_err(|error| SettingsError::Tls(error.to_string())),
        }
    }
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

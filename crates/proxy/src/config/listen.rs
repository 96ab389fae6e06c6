//! Where clients connect.

use std::path::PathBuf;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::types::{Addr, one_or_many};

/// One listening socket.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Listener {
    /// Address and port; port 0 lets the system choose.
    pub addr: Addr,
    /// Certificates. With at least one of them the listener speaks TLS, without it plain text.
    #[serde(deserialize_with = "certificates")]
    pub tls: Vec<Certificate>,
    /// PEM file with the authorities that issue certificates to clients. With it clients are asked
    /// for one, which rules of `[[classify]]` can look at. Needs `tls`.
    #[schemars(example = &"clients.pem")]
    pub client_ca: Option<PathBuf>,
    /// Whether a client has to have a certificate, where `client_ca` is given.
    pub client_certificate: ClientCertificate,
    /// Whether clients may use HTTP/2: by ALPN under TLS, by prior knowledge otherwise.
    pub http2: bool,
    /// Whether every connection starts with a PROXY protocol header (v1 or v2). Set it only behind
    /// a balancer that sends one: connections without it are closed.
    pub proxy_protocol: bool,
    /// Whether the system keeps a connection to itself until its client has said something, for a
    /// second at the most: who is accepted can then be answered at once.
    pub defer_accept: bool,
}

impl Default for Listener {
    fn default() -> Self {
        Self {
            addr: Addr::loopback(8080),
            tls: Vec::new(),
            client_ca: None,
            client_certificate: ClientCertificate::Optional,
            http2: true,
            proxy_protocol: false,
            defer_accept: true,
        }
    }
}

impl From<Addr> for Listener {
    fn from(addr: Addr) -> Self {
        Self {
            addr,
            ..Self::default()
        }
    }
}

impl FromStr for Listener {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse().map(|addr: Addr| addr.into())
    }
}

/// Whether a client has to have a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ClientCertificate {
    /// It may do without. One that is not issued by `client_ca` is refused all the same.
    #[default]
    Optional,
    /// Without one the connection is refused.
    Required,
}

/// A certificate chain with its key. Both files are read again on every reload.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Certificate {
    /// PEM file with the certificate, then its intermediates.
    #[schemars(example = &"shop.pem")]
    pub cert: PathBuf,
    /// PEM file with the private key (PKCS#8, PKCS#1 or SEC1).
    #[schemars(example = &"shop.key")]
    pub key: PathBuf,
    /// Server names it is presented for (`"shop.example"`, `"*.shop.example"`). Without any it is
    /// presented where no other certificate matches; otherwise the first certificate is.
    #[serde(default)]
    pub sni: Vec<String>,
}

impl FromStr for Certificate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Err(format!(
            "`{text}` is only one file: write {{ cert = \"cert.pem\", key = \"key.pem\" }}"
        ))
    }
}

pub(super) fn certificates<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<Certificate>, D::Error> {
    one_or_many(deserializer)
}

//! Reads certificates and keys, saying which file is wrong and why.

use std::path::Path;

use rustls::RootCertStore;
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::{self, PemObject};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use super::Certificate;

impl Certificate {
    /// Reads both files and checks that they belong together.
    ///
    /// # Errors
    /// The file at fault, the cause and the remedy.
    pub fn load(&self) -> Result<CertifiedKey, String> {
        load_pair(&self.cert, &self.key)
    }
}

/// Reads a certificate chain and its key and checks that they belong together.
///
/// # Errors
/// The file at fault, the cause and the remedy.
pub fn load_pair(cert: &Path, key: &Path) -> Result<CertifiedKey, String> {
    let chain = read_chain(cert)?;
    let provider = rustls::crypto::ring::default_provider();
    CertifiedKey::from_der(chain, read_key(key)?, &provider).map_err(|error| {
        let (cert, key) = (cert.display(), key.display());
        format!(
            "{cert} and {key} do not fit together: {error}; use the key that the certificate was \
             issued for"
        )
    })
}

/// The certificates in a PEM file, at least one.
///
/// # Errors
/// The file, the cause and the remedy.
pub fn read_chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let chain = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| refused(path, &error, "a certificate"))?;
    if chain.is_empty() {
        Err(refused(path, &pem::Error::NoItemsFound, "a certificate"))
    } else {
        Ok(chain)
    }
}

/// The private key in a PEM file.
///
/// # Errors
/// The file, the cause and the remedy.
pub fn read_key(path: &Path) -> Result<PrivateKeyDer<'static>, String> {
    PrivateKeyDer::from_pem_file(path).map_err(|error| refused(path, &error, "a private key"))
}

/// The authorities in a PEM file.
///
/// # Errors
/// The file, the cause and the remedy.
pub fn read_roots(path: &Path) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in read_chain(path)? {
        roots
            .add(certificate)
            .map_err(|error| format!("{}: {error}; remove that certificate", path.display()))?;
    }
    Ok(roots)
}

fn refused(path: &Path, error: &pem::Error, what: &str) -> String {
    let path = path.display();
    match error {
        pem::Error::Io(error) => {
            format!("cannot read {path}: {error}; check the name and who may read it")
        }
        pem::Error::NoItemsFound => {
            format!("{path} does not hold {what}; give one in PEM form")
        }
        error => format!("{path} is not valid PEM: {error}; give {what} in that form"),
    }
}

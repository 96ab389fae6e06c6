//! Who a client is by the certificate that the listener verified.

use ring::digest::{SHA256, digest};
use rustls_pki_types::CertificateDer;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

/// What a verified certificate says about its holder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    /// SHA-256 of the certificate.
    pub(crate) fingerprint: [u8; 32],
    pub(crate) common_name: Option<String>,
    /// Subject alternative names: DNS names, mail addresses and URIs.
    pub(crate) names: Vec<String>,
}

impl Identity {
    /// Reads a certificate that has been verified. What it does not say, or says in a form that is
    /// not text, fits no rule.
    pub(crate) fn of(certificate: &CertificateDer<'_>) -> Self {
        let mut fingerprint = [0; 32];
        fingerprint.copy_from_slice(digest(&SHA256, certificate).as_ref());
        let parsed = X509Certificate::from_der(certificate).ok();
        let parsed = parsed.as_ref().map(|(_, parsed)| parsed);
        Self {
            fingerprint,
            common_name: parsed.and_then(common_name),
            names: parsed.map(names).unwrap_or_default(),
        }
    }
}

/// None if there are two: which one is meant is anybody's guess.
fn common_name(certificate: &X509Certificate<'_>) -> Option<String> {
    let mut found = certificate.subject().iter_common_name();
    let name = found.next()?.as_str().ok()?.to_owned();
    found.next().is_none().then_some(name)
}

fn names(certificate: &X509Certificate<'_>) -> Vec<String> {
    let Ok(Some(extension)) = certificate.subject_alternative_name() else {
        return Vec::new();
    };
    let text = |name: &GeneralName<'_>| match *name {
        GeneralName::DNSName(text) | GeneralName::RFC822Name(text) | GeneralName::URI(text) => {
            Some(text.to_owned())
        }
        _ => None,
    };
    extension
        .value
        .general_names
        .iter()
        .filter_map(text)
        .collect()
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair};

    use super::*;

    #[test]
    fn a_certificate_is_read() {
        let mut params = CertificateParams::new(vec!["a.partner.example".to_owned()]).unwrap();
        params
            .distinguished_name
            .push(DnType::CommonName, "Partner A");
        let made = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let identity = Identity::of(made.der());
        assert_eq!(identity.common_name.as_deref(), Some("Partner A"));
        assert_eq!(identity.names, ["a.partner.example"]);
        assert_eq!(
            identity.fingerprint[..],
            *digest(&SHA256, made.der()).as_ref()
        );
    }

    #[test]
    fn what_is_no_certificate_has_no_names() {
        let identity = Identity::of(&CertificateDer::from(vec![1, 2, 3]));
        assert_eq!((identity.common_name, identity.names.len()), (None, 0));
    }
}

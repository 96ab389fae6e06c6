//! Replicas whose certificate is itself among the authorities to trust.
//!
//! `openssl req -x509` makes a certificate that signs itself and says that it is an authority. The
//! rules of the public web have no such server (webpki: `CaUsedAsEndEntity`), yet an operator that
//! names this very certificate in `upstream.tls.ca` means this very server. So a certificate that
//! is, byte for byte, one of those is held to its name and its dates alone: who issued it need not
//! be asked. All others go the usual way.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use x509_parser::prelude::{ASN1Time, FromDer, X509Certificate};

/// Verifies replicas by authorities, and authorities that are replicas.
#[derive(Debug)]
pub(super) struct Pins {
    usual: Arc<WebPkiServerVerifier>,
    /// Authorities that may be replicas themselves: those that `usual` would not hear of.
    pinned: Vec<CertificateDer<'static>>,
}

impl Pins {
    /// `trusted` are the certificates that `usual` has as its authorities.
    pub(super) fn new(
        usual: Arc<WebPkiServerVerifier>,
        mut trusted: Vec<CertificateDer<'static>>,
    ) -> Self {
        trusted.retain(is_authority);
        Self {
            usual,
            pinned: trusted,
        }
    }
}

impl ServerCertVerifier for Pins {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if !self.pinned.contains(certificate) {
            let usual = &self.usual;
            let verified = usual.verify_server_cert(certificate, intermediates, name, ocsp, now);
            return verified.map_err(|error| {
                if is_authority(certificate) {
                    CertificateError::UnknownIssuer.into()
                } else {
                    error
                }
            });
        }
        check_dates(certificate, now)?;
        verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let usual = &self.usual;
        usual.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let usual = &self.usual;
        usual.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.usual.supported_verify_schemes()
    }
}

fn parse<'a>(certificate: &'a CertificateDer<'_>) -> Option<X509Certificate<'a>> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    Some(parsed)
}

fn is_authority(certificate: &CertificateDer<'_>) -> bool {
    parse(certificate).is_some_and(|parsed| parsed.is_ca())
}

fn check_dates(certificate: &CertificateDer<'_>, now: UnixTime) -> Result<(), CertificateError> {
    let parsed = parse(certificate).ok_or(CertificateError::BadEncoding)?;
    let (dates, time) = (parsed.validity(), now.as_secs().cast_signed());
    match ASN1Time::from_timestamp(time) {
        Ok(now) if now < dates.not_before => Err(CertificateError::NotValidYet),
        Ok(now) if now <= dates.not_after => Ok(()),
        _ => Err(CertificateError::Expired),
    }
}

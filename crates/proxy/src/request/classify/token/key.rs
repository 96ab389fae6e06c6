//! The key that tokens are signed with, and the one algorithm that goes with it.
//!
//! Decision: docs/decisions/0026-tokens-by-ring-certificates-by-x509-parser.md.

use std::path::Path;

use ring::hmac;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey,
    VerificationAlgorithm,
};
use rustls_pki_types::SubjectPublicKeyInfoDer;
use rustls_pki_types::pem::PemObject;
use x509_parser::oid_registry::{
    OID_KEY_TYPE_EC_PUBLIC_KEY, OID_PKCS1_RSAENCRYPTION, OID_SIG_ED25519,
};
use x509_parser::prelude::FromDer;
use x509_parser::x509::SubjectPublicKeyInfo;

use crate::config::TokenConfig;

/// Verifies signatures.
#[derive(Debug)]
pub(super) enum Key {
    Secret(hmac::Key),
    Public {
        algorithm: &'static str,
        key: UnparsedPublicKey<Vec<u8>>,
    },
}

impl Key {
    pub(super) fn load(config: &TokenConfig) -> Result<Self, String> {
        match (&config.secret, &config.public_key) {
            (Some(secret), None) => {
                let key = hmac::Key::new(hmac::HMAC_SHA256, secret.expose().as_bytes());
                Ok(Self::Secret(key))
            }
            (None, Some(path)) => public_key(path),
            (Some(_), Some(_)) => {
                Err("`secret` and `public_key` are both given; keep one of them".to_owned())
            }
            (None, None) => Err(
                "without a key anybody could sign a token; give `secret` or `public_key`"
                    .to_owned(),
            ),
        }
    }

    /// Its name in a token's head.
    pub(super) fn algorithm(&self) -> &'static str {
        match self {
            Self::Secret(_) => "HS256",
            Self::Public { algorithm, .. } => algorithm,
        }
    }

    pub(super) fn verifies(&self, signed: &[u8], signature: &[u8]) -> bool {
        match self {
            Self::Secret(key) => hmac::verify(key, signed, signature).is_ok(),
            Self::Public { key, .. } => key.verify(signed, signature).is_ok(),
        }
    }
}

fn public_key(path: &Path) -> Result<Key, String> {
    let shown = path.display();
    let der = SubjectPublicKeyInfoDer::from_pem_file(path)
        .map_err(|error| format!("cannot read a public key from {shown}: {error}; give a PEM file that begins with BEGIN PUBLIC KEY"))?;
    let (_, info) = SubjectPublicKeyInfo::from_der(&der)
        .map_err(|error| format!("{shown} does not hold a public key: {error}; export it again"))?;
    let (algorithm, verification) = algorithm(&info).ok_or_else(|| {
        format!("the key in {shown} is of a kind that is not supported; use Ed25519, P-256 or RSA")
    })?;
    let bytes = info.subject_public_key.data.into_owned();
    Ok(Key::Public {
        algorithm,
        key: UnparsedPublicKey::new(verification, bytes),
    })
}

/// RFC 7518 and RFC 8037: the algorithm of a key by its kind.
fn algorithm(
    info: &SubjectPublicKeyInfo<'_>,
) -> Option<(&'static str, &'static dyn VerificationAlgorithm)> {
    let kind = &info.algorithm.algorithm;
    let is_p256 = || info.subject_public_key.data.len() == P256_POINT_BYTES;
    if *kind == OID_SIG_ED25519 {
        Some(("EdDSA", &ED25519))
    } else if *kind == OID_PKCS1_RSAENCRYPTION {
        Some(("RS256", &RSA_PKCS1_2048_8192_SHA256))
    } else if *kind == OID_KEY_TYPE_EC_PUBLIC_KEY && is_p256() {
        Some(("ES256", &ECDSA_P256_SHA256_FIXED))
    } else {
        None
    }
}

/// An uncompressed point of P-256: a byte of form and two coordinates. A point of another curve
/// of that size fails every verification.
const P256_POINT_BYTES: usize = 65;

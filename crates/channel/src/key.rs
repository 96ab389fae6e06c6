//! Keys: ed25519 (RFC 8032), by ring, which the proxy's TLS uses already.

use std::fmt;
use std::str::FromStr;

use data_encoding::HEXLOWER_PERMISSIVE as HEX;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};

/// Bytes of a signature.
pub const SIGNATURE_BYTES: usize = 64;

/// A key text is not 64 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a key is written as 64 hexadecimal digits; `tidegate channel keygen` makes one")]
pub struct KeyError;

/// The key that messages are verified with.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PublicKey(pub [u8; 32]);

impl PublicKey {
    /// The first bytes, by which a message says who signed it.
    #[must_use]
    pub fn short(&self) -> [u8; 4] {
        let [a, b, c, d, ..] = self.0;
        [a, b, c, d]
    }

    /// Whether `signature` is this key's under `message`.
    #[must_use]
    pub fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        UnparsedPublicKey::new(&ED25519, self.0)
            .verify(message, signature)
            .is_ok()
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({self})")
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&HEX.encode(&self.0))
    }
}

impl FromStr for PublicKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        decode(text).map(Self)
    }
}

/// The key that messages are signed with. It shows itself nowhere.
pub struct SecretKey {
    pair: Ed25519KeyPair,
    public: PublicKey,
}

impl SecretKey {
    /// The key of a seed: 32 secret random bytes.
    ///
    /// # Panics
    /// Never: any 32 bytes are a seed, and any seed has a public key of 32 bytes.
    #[must_use]
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        let pair = Ed25519KeyPair::from_seed_unchecked(seed).expect("a seed has 32 bytes");
        let public = pair.public_key().as_ref().try_into();
        let public = PublicKey(public.expect("a public key has 32 bytes"));
        Self { pair, public }
    }

    /// The public half.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        self.public
    }

    /// The signature of `message`.
    #[must_use]
    pub fn sign(&self, message: &[u8]) -> [u8; SIGNATURE_BYTES] {
        let signature = self.pair.sign(message);
        let mut bytes = [0; SIGNATURE_BYTES];
        bytes.copy_from_slice(signature.as_ref());
        bytes
    }
}

impl FromStr for SecretKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        decode(text).map(|seed| Self::from_seed(&seed))
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretKey(of {})", self.public)
    }
}

/// The bytes of a key or seed written as hexadecimal digits.
///
/// # Errors
/// When there are not 64 of them.
pub fn decode(text: &str) -> Result<[u8; 32], KeyError> {
    let bytes = HEX.decode(text.trim().as_bytes()).map_err(|_| KeyError)?;
    bytes.try_into().map_err(|_| KeyError)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 8032, section 7.1, test 2.
    #[test]
    fn standard_agrees() {
        let secret: SecretKey = "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb"
            .parse()
            .unwrap();
        assert_eq!(
            secret.public().to_string(),
            "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c"
        );
        let signature = secret.sign(&[0x72]);
        assert_eq!(signature[..4], [0x92, 0xa0, 0x09, 0xa9]);
        assert!(secret.public().verifies(&[0x72], &signature));
        assert!(!secret.public().verifies(&[0x73], &signature));
    }

    #[test]
    fn secret_does_not_show_itself() {
        let secret = SecretKey::from_seed(&[7; 32]);
        assert!(!format!("{secret:?}").contains("0707"));
        assert!("07".parse::<SecretKey>().is_err());
        assert!("xy".repeat(32).parse::<PublicKey>().is_err());
    }
}

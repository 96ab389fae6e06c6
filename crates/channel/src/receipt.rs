//! What the proxy tells the service about an item: whose it is and when it was made, signed, so
//! that the service's records hold the secured time (001 §2.2).
//!
//! ```text
//! client=HEX;item=N;made=MS;error=MS;received=MS;content=HEX;signature=BASE64URL
//! ```
//!
//! `made` and `received` are milliseconds since the Unix epoch by the proxy's clock, and `made` is
//! true to `error` at best: a key in software proves who, not when. `content` is the digest of
//! [`Content`]. The signature is that of `"tidegate-receipt-v1"` and everything before
//! `;signature=`, by the proxy's channel key. `tidegate channel receipt` checks one.

use std::time::Duration;

use data_encoding::{BASE64URL_NOPAD, HEXLOWER};
use tidegate_control::Timestamp;

use crate::key::{PublicKey, SecretKey, decode};
use crate::stamp::Content;
use crate::wire::{millis, timestamp};

const DOMAIN: &str = "tidegate-receipt-v1";
const SIGNATURE: &str = ";signature=";

/// What the proxy has checked about an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Receipt {
    /// The client's key.
    pub client: PublicKey,
    /// The item's number.
    pub item: u64,
    /// When it was made.
    pub made: Timestamp,
    /// How far that may be off, as far as the proxy believes it.
    pub error: Duration,
    /// When the proxy received it.
    pub received: Timestamp,
    /// What it is.
    pub content: Content,
}

impl Receipt {
    /// As text, signed.
    #[must_use]
    pub fn sign(&self, key: &SecretKey) -> String {
        let text = format!(
            "client={};item={};made={};error={};received={};content={}",
            self.client,
            self.item,
            millis(self.made),
            self.error.as_millis(),
            millis(self.received),
            HEXLOWER.encode(&self.content.0),
        );
        let signature = key.sign(format!("{DOMAIN}{text}").as_bytes());
        format!("{text}{SIGNATURE}{}", BASE64URL_NOPAD.encode(&signature))
    }

    /// Reads a receipt; `None` unless one of `keys` signed it.
    #[must_use]
    pub fn read(text: &str, keys: &[PublicKey]) -> Option<Self> {
        let (said, signature) = text.trim().split_once(SIGNATURE)?;
        let signature = BASE64URL_NOPAD.decode(signature.as_bytes()).ok()?;
        let signed = format!("{DOMAIN}{said}");
        let genuine = |key: &PublicKey| key.verifies(signed.as_bytes(), &signature);
        keys.iter().any(genuine).then_some(())?;
        let mut fields = said.split(';');
        let mut field = |name: &str| fields.next()?.strip_prefix(name)?.strip_prefix('=');
        let receipt = Self {
            client: field("client")?.parse().ok()?,
            item: field("item")?.parse().ok()?,
            made: timestamp(field("made")?.parse().ok()?),
            error: Duration::from_millis(field("error")?.parse().ok()?),
            received: timestamp(field("received")?.parse().ok()?),
            content: Content(decode(field("content")?).ok()?),
        };
        fields.next().is_none().then_some(receipt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receipt_is_read_back_and_only_with_its_signature() {
        let (key, other) = (
            SecretKey::from_seed(&[1; 32]),
            SecretKey::from_seed(&[2; 32]),
        );
        let receipt = Receipt {
            client: other.public(),
            item: 12,
            made: timestamp(1_700_000_000_123),
            error: Duration::from_millis(20),
            received: timestamp(1_700_000_060_000),
            content: Content::of("POST", "/bids", b"1"),
        };
        let text = receipt.sign(&key);
        assert_eq!(Receipt::read(&text, &[key.public()]), Some(receipt));
        assert_eq!(Receipt::read(&text, &[other.public()]), None);
        let earlier = text.replace("made=1700000000123", "made=1600000000123");
        assert_ne!(earlier, text);
        assert_eq!(Receipt::read(&earlier, &[key.public()]), None);
    }
}

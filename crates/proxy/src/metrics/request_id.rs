//! What a request is called in the access log, in its refusal and in the replica's log.
//!
//! A trusted proxy in front of this one may have given the request its id; every other request gets
//! a new one of sixteen hexadecimal digits. Refusals are remembered by number: that of a made id is
//! its value, that of a given one its hash.

use std::cell::Cell;
use std::fmt;
use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher, RandomState};

use http::HeaderValue;

/// Longest id that is taken over from a proxy in front. Chosen: more than any scheme in use has.
const GIVEN_BYTES_MAX: usize = 128;

/// The id of a request: what it has as `x-request-id`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestId {
    number: u64,
    /// Seldom there, and boxed: every request has an id.
    given: Option<Box<HeaderValue>>,
}

impl RequestId {
    /// The id that a trusted proxy gave, if it can stand in logs as it is: visible ASCII without
    /// quotes.
    #[must_use]
    pub fn given(value: &HeaderValue) -> Option<Self> {
        let plain = |byte: &u8| byte.is_ascii_graphic() && !b"\"\\'<>".contains(byte);
        let bytes = value.as_bytes();
        let fits = (1..=GIVEN_BYTES_MAX).contains(&bytes.len()) && bytes.iter().all(plain);
        fits.then(|| Self {
            number: number_of(bytes),
            given: Some(Box::new(value.clone())),
        })
    }

    /// The number under which a refusal is remembered.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The number of an id that an operator asks for.
    #[must_use]
    pub fn number_of(text: &str) -> u64 {
        number_of(text.as_bytes())
    }

    /// Its value as a header.
    #[must_use]
    pub fn header(&self) -> HeaderValue {
        match &self.given {
            Some(value) => (**value).clone(),
            // Sixteen digits are a valid value.
            None => HeaderValue::from_bytes(&digits(self.number))
                .unwrap_or(HeaderValue::from_static("")),
        }
    }

    /// Appends its text.
    pub fn write(&self, out: &mut Vec<u8>) {
        match &self.given {
            Some(value) => out.extend_from_slice(value.as_bytes()),
            None => out.extend_from_slice(&digits(self.number)),
        }
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = Vec::with_capacity(GIVEN_BYTES_MAX);
        self.write(&mut text);
        f.write_str(&String::from_utf8_lossy(&text))
    }
}

/// A made id is its number; what else a proxy gave is hashed, under no secret: those proxies are
/// trusted, and all worker threads have to agree.
fn number_of(text: &[u8]) -> u64 {
    let digits = text.len() == 16 && text.iter().all(u8::is_ascii_hexdigit);
    let made = std::str::from_utf8(text).ok().filter(|_| digits);
    let made = made.and_then(|text| u64::from_str_radix(text, 16).ok());
    made.unwrap_or_else(|| {
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        hasher.finish()
    })
}

fn digits(number: u64) -> [u8; 16] {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    std::array::from_fn(|place| HEX[(number >> (60 - 4 * place)) as usize & 15])
}

/// The ids that one worker thread makes.
#[derive(Debug)]
pub(crate) struct RequestIds(Cell<u64>);

impl Default for RequestIds {
    fn default() -> Self {
        Self(Cell::new(RandomState::new().hash_one("request ids")))
    }
}

impl RequestIds {
    /// A number that no other request has.
    pub(crate) fn number(&self) -> u64 {
        self.0.set(self.0.get().wrapping_add(1));
        mixed(self.0.get())
    }

    pub(crate) fn make(&self) -> RequestId {
        RequestId {
            number: self.number(),
            given: None,
        }
    }
}

/// Ids that do not tell how many there were: the finalizer of splitmix64 (Steele, Lea and Flood
/// 2014), which maps different numbers to different numbers.
fn mixed(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn made_ids_differ_and_are_found_by_their_text() {
        let ids = RequestIds::default();
        let (one, two) = (ids.make(), ids.make());
        assert_ne!(one, two);
        assert_eq!(one.to_string().len(), 16);
        assert_eq!(RequestId::number_of(&one.to_string()), one.number());
        assert_eq!(one.header(), one.to_string());
    }

    #[test]
    fn given_ids_are_kept_as_they_are_or_not_at_all() {
        let given = |text: &str| RequestId::given(&HeaderValue::from_str(text).expect("a value"));
        let id = given("req-7f").expect("it is plain");
        assert_eq!(id.to_string(), "req-7f");
        assert_eq!(RequestId::number_of("req-7f"), id.number());
        let hex = given("00000000000000ff").expect("it is plain");
        assert_eq!(hex.number(), 255, "that of another proxy of this kind");
        for wrong in ["", "a b", "a\"b", "a\\b", "<b>", &"x".repeat(129)] {
            assert_eq!(given(wrong), None, "{wrong}");
        }
    }
}

//! The seal on reports that go through a server: HMAC-SHA256 by the fleet's token.
//!
//! Who can write into the server but does not know the token can hold reports back and repeat old
//! ones, which are refused by their numbers. It cannot make new ones.

use bytes::Bytes;
use ring::hmac::{self, HMAC_SHA256, Key};

/// What is sealed before the report, so that nothing else that is signed with the token is taken
/// for one.
const CONTEXT: &[u8] = b"tidegate fleet report 1\0";

const TAG_CHARS: usize = 64;

/// The key of a fleet.
#[derive(Debug)]
pub(super) struct Seal(Key);

/// A document without the fleet's seal.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("its seal is not of this fleet: another `fleet.token`, or a stranger's report")]
pub(super) struct NotSealed;

impl Seal {
    pub(super) fn new(token: &str) -> Self {
        Self(Key::new(HMAC_SHA256, token.as_bytes()))
    }

    /// The seal in hexadecimal digits, a space, and the report: one line.
    pub(super) fn seal(&self, report: &[u8]) -> Bytes {
        let tag = hmac::sign(&self.0, &[CONTEXT, report].concat());
        let mut sealed = Vec::with_capacity(TAG_CHARS + 1 + report.len());
        for byte in tag.as_ref() {
            sealed.extend([byte >> 4, byte & 0xf].map(digit));
        }
        sealed.push(b' ');
        sealed.extend_from_slice(report);
        sealed.into()
    }

    /// The report, if the seal is the fleet's.
    pub(super) fn open<'a>(&self, sealed: &'a [u8]) -> Result<&'a [u8], NotSealed> {
        let (tag, rest) = sealed.split_at_checked(TAG_CHARS).ok_or(NotSealed)?;
        let report = rest.strip_prefix(b" ").ok_or(NotSealed)?;
        let (pairs, _) = tag.as_chunks::<2>();
        let bytes = pairs.iter().map(|pair| {
            let text = str::from_utf8(pair).ok()?;
            u8::from_str_radix(text, 16).ok()
        });
        let tag: Vec<u8> = bytes.collect::<Option<_>>().ok_or(NotSealed)?;
        let signed = [CONTEXT, report].concat();
        hmac::verify(&self.0, &signed, &tag).map_err(|_| NotSealed)?;
        Ok(report)
    }
}

fn digit(value: u8) -> u8 {
    b"0123456789abcdef"[usize::from(value)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_is_believed_with_the_same_token_only() {
        let seal = Seal::new("0123456789abcdef");
        let sealed = seal.seal(b"{\"proxy\":\"a\"}");
        assert_eq!(seal.open(&sealed), Ok(b"{\"proxy\":\"a\"}".as_slice()));
        assert_eq!(Seal::new("another").open(&sealed), Err(NotSealed));
        let text = String::from_utf8(sealed.to_vec()).unwrap();
        let changed = text.replace("\"a\"", "\"b\"");
        assert_eq!(seal.open(changed.as_bytes()), Err(NotSealed));
        for garbled in ["", "0", "{}", &text[1..], &text[..64], &"é".repeat(40)] {
            assert_eq!(seal.open(garbled.as_bytes()), Err(NotSealed), "{garbled}");
        }
    }
}

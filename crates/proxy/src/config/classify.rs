//! Which requests are in which class, and whose they are.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tidegate_config::Dur;
use tidegate_sentry::ClassId;

use super::Config;
use super::types::{Secret, written_as_string};

/// Puts requests into a class. All conditions given have to hold.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClassRule {
    /// Name of a class under `[[protect.classes]]`.
    #[schemars(example = &"gold")]
    pub class: String,
    /// The host it has to be for, without a port: a name, or `"*.shop.example"` for every name
    /// below.
    #[schemars(example = &"shop.example")]
    #[serde(default)]
    pub host: Option<String>,
    /// How the path has to begin. A `/` at the end is not needed: `/shop` covers `/shop/cart` and
    /// `/shop`, not `/shopping`. `*` is any one segment: `/user/*/orders`.
    #[schemars(example = &"/checkout")]
    #[serde(default)]
    pub path: Option<String>,
    /// The whole path instead; `*` is any one segment.
    #[schemars(example = &"/pay")]
    #[serde(default)]
    pub path_exact: Option<String>,
    /// A regular expression for the whole path instead.
    #[schemars(example = &"/v[0-9]+/export/.*")]
    #[serde(default)]
    pub path_regex: Option<String>,
    /// Methods it may have; `"post"` means POST.
    #[serde(default)]
    pub methods: Vec<String>,
    /// Headers it has to carry, with their values; `"*"` is any value. See `believe`.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// Cookies it has to carry, with their values; `"*"` is any value. See `believe`.
    #[serde(default)]
    pub cookies: BTreeMap<String, String>,
    /// The least urgent `Priority` it may have (RFC 9218), from 0 to 7; 0 is the most urgent, and a
    /// `Priority` without `u` is 3. See `believe`.
    #[schemars(example = &1, range(max = 7))]
    #[serde(default)]
    pub urgency: Option<u8>,
    /// Whose headers and cookies can make a request more important than it is without them.
    #[serde(default)]
    pub believe: Believe,
    /// What the client's certificate has to say; an empty table is any certificate. The listener
    /// has to have `client_ca`.
    #[serde(default)]
    pub certificate: Option<CertificateRule>,
    /// What its signed token has to say (see `[token]`), claim by claim; `"*"` is any value, and a
    /// claim that is a list has to contain the value.
    #[serde(default)]
    pub claims: BTreeMap<String, String>,
}

/// Whose headers and cookies can make a request more important.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Believe {
    /// Those of the proxies in `forward.trust`. Anybody else's can only make it less important.
    #[default]
    Trusted,
    /// Everybody's: for values that are secrets, such as an API key.
    Anybody,
}

/// What a client's certificate has to say.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CertificateRule {
    /// The common name of its subject.
    #[schemars(example = &"Partner A")]
    pub common_name: Option<String>,
    /// One of its alternative names: a DNS name (`"*.partner.example"` is every name below), a mail
    /// address or a URI.
    #[schemars(example = &"api.partner.example")]
    pub name: Option<String>,
    /// Its SHA-256 fingerprint, in hexadecimal digits with or without colons.
    #[schemars(example = &"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08")]
    pub fingerprint: Option<Fingerprint>,
}

/// SHA-256 of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint(pub [u8; 32]);

impl FromStr for Fingerprint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits: Vec<_> = text.chars().filter(|c| *c != ':').collect();
        let wrong =
            || format!("`{text}` is not a SHA-256 fingerprint: write 64 hexadecimal digits");
        let mut bytes = [0; 32];
        if digits.len() != 2 * bytes.len() {
            return Err(wrong());
        }
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
            let digit = |c: char| c.to_digit(16).ok_or_else(wrong);
            *byte = (digit(pair[0])? * 16 + digit(pair[1])?) as u8;
        }
        Ok(Self(bytes))
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

written_as_string!(Fingerprint, "A SHA-256 fingerprint.");

/// Signed tokens (JSON Web Tokens). They need a time of expiry (`exp`); one that is expired, forged
/// or not readable proves nothing and is counted.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TokenConfig {
    /// Header it comes in; by default `authorization`, behind `Bearer`.
    #[schemars(example = &"x-token")]
    pub header: Option<String>,
    /// Cookie it comes in, instead of a header.
    #[schemars(example = &"session")]
    pub cookie: Option<String>,
    /// Key that tokens are signed with (HS256). Give either this or `public_key`.
    #[schemars(example = &"6b1f0e9c2d7a4835b6e1c0d94f7a2e58")]
    pub secret: Option<Secret>,
    /// File that holds the key, instead of `secret`.
    #[schemars(example = &"/run/secrets/token")]
    pub secret_file: Option<PathBuf>,
    /// PEM file with the issuer's public key; its kind decides the algorithm: Ed25519 (EdDSA),
    /// P-256 (ES256) or RSA (RS256).
    #[schemars(example = &"issuer.pem")]
    pub public_key: Option<PathBuf>,
    /// Who has to have issued it (`iss`).
    #[schemars(example = &"https://login.example")]
    pub issuer: Option<String>,
    /// Whom it has to be for (`aud`).
    #[schemars(example = &"shop")]
    pub audience: Option<String>,
    /// By how much the issuer's clock may differ from ours.
    pub leeway: Dur,
}

/// What requests of the same tenant or session have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySource {
    /// The client's address; of IPv6 the first 64 bits.
    Address,
    /// The value of a header.
    Header(String),
    /// The value of a cookie.
    Cookie(String),
    /// A claim of the signed token.
    Claim(String),
    /// The client's certificate.
    Certificate,
}

impl FromStr for KeySource {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let named = text.split_once(':').filter(|(_, name)| !name.is_empty());
        match (text, named) {
            ("address", _) => Ok(Self::Address),
            ("certificate", _) => Ok(Self::Certificate),
            (_, Some(("header", name))) => Ok(Self::Header(name.to_owned())),
            (_, Some(("cookie", name))) => Ok(Self::Cookie(name.to_owned())),
            (_, Some(("claim", name))) => Ok(Self::Claim(name.to_owned())),
            _ => Err(format!(
                "`{text}` is not a key: write \"address\", \"header:NAME\", \"cookie:NAME\", \
                 \"claim:NAME\" or \"certificate\""
            )),
        }
    }
}

impl fmt::Display for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address => f.write_str("address"),
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Cookie(name) => write!(f, "cookie:{name}"),
            Self::Claim(name) => write!(f, "claim:{name}"),
            Self::Certificate => f.write_str("certificate"),
        }
    }
}

written_as_string!(KeySource, "What tells one from another.");

/// Sessions: once a request of one was admitted, the later ones are preferred within their class.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SessionKey {
    /// What a session is told by; as for `tenant`, but everybody is believed, since a name alone
    /// is worth nothing before a request under it was admitted.
    #[schemars(example = &"cookie:sid")]
    pub key: KeySource,
    /// How the path begins of requests that may open a session; without it any may. They have to
    /// carry the key already.
    #[schemars(example = &"/cart")]
    #[serde(default)]
    pub entry_path: Option<String>,
    /// Methods of requests that may open a session; without any, every one.
    #[serde(default)]
    pub entry_methods: Vec<String>,
}

impl Config {
    /// The class of requests that no rule fits: the least important one unless told otherwise.
    #[must_use]
    pub fn default_class_id(&self) -> ClassId {
        let named = self.default_class.as_ref();
        let named = named.and_then(|name| self.protect.class_id(name));
        named.unwrap_or(ClassId(self.protect.class_count() as u16 - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_back_as_written() {
        for text in [
            "address",
            "header:x-customer",
            "cookie:sid",
            "claim:sub",
            "certificate",
        ] {
            assert_eq!(text.parse::<KeySource>().unwrap().to_string(), text);
        }
        for text in ["", "ip", "header", "header:", "query:a"] {
            assert!(
                text.parse::<KeySource>()
                    .unwrap_err()
                    .contains("header:NAME")
            );
        }
    }

    #[test]
    fn fingerprints_are_read_as_tools_print_them() {
        let plain = "9F86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
        let pairs: Vec<_> = plain
            .as_bytes()
            .chunks(2)
            .map(|pair| str::from_utf8(pair).unwrap())
            .collect();
        let read: Fingerprint = pairs.join(":").parse().unwrap();
        assert_eq!(Ok(read), plain.parse());
        assert_eq!(read.to_string(), plain.to_ascii_lowercase());
        for wrong in ["", "9f86", &plain.replace('9', "g")] {
            assert!(wrong.parse::<Fingerprint>().unwrap_err().contains("64"));
        }
    }
}

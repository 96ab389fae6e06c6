//! Values of the file that need more than a number with a unit: addresses, secrets, sets of
//! statuses, and tables that may be abbreviated to a string.

use std::fmt;
use std::marker::PhantomData;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::{Deref, RangeInclusive};
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Where to listen: `"127.0.0.1:8080"`, `"[::]:8080"`, `"localhost:8080"` or `":8080"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Addr(pub SocketAddr);

impl Addr {
    /// The loopback address at `port`.
    #[must_use]
    pub const fn loopback(port: u16) -> Self {
        Self(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port))
    }
}

impl FromStr for Addr {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let port_of = |prefix: &str| text.strip_prefix(prefix)?.parse::<u16>().ok();
        if let Some(port) = port_of(":") {
            return Ok(Self(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port)));
        }
        if let Some(port) = port_of("localhost:") {
            return Ok(Self::loopback(port));
        }
        text.parse().map(Self).map_err(|_| {
            format!(
                "`{text}` is not an address: write \"127.0.0.1:8080\", \"[::]:8080\" or \":8080\""
            )
        })
    }
}

impl Deref for Addr {
    type Target = SocketAddr;

    fn deref(&self) -> &SocketAddr {
        &self.0
    }
}

/// A secret: never printed, never served.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// Takes the secret text.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The secret itself, for comparing or keying; never for printing.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(redacted)")
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str("redacted")
    }
}

impl JsonSchema for Secret {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Secret".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string" })
    }
}

/// A range of HTTP statuses: `"200"` or `"200-399"`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusRange(RangeInclusive<u16>);

impl StatusRange {
    /// From `first` to `last`, both included.
    #[must_use]
    pub const fn new(first: u16, last: u16) -> Self {
        Self(first..=last)
    }

    /// Whether `status` is in the range.
    #[must_use]
    pub fn contains(&self, status: u16) -> bool {
        self.0.contains(&status)
    }
}

impl FromStr for StatusRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let status = |part: &str| {
            part.trim()
                .parse::<u16>()
                .ok()
                .filter(|s| (100..600).contains(s))
        };
        match (status(first), status(last)) {
            (Some(first), Some(last)) if first <= last => Ok(Self(first..=last)),
            _ => Err(format!(
                "`{text}` is not a range of statuses: write \"200\" or \"200-399\""
            )),
        }
    }
}

impl fmt::Display for StatusRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0.start(), self.0.end()) {
            (first, last) if first == last => write!(f, "{first}"),
            (first, last) => write!(f, "{first}-{last}"),
        }
    }
}

impl fmt::Display for Addr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Serde and schema for a type that is written as one string.
macro_rules! written_as_string {
    ($name:ident, $expecting:literal) => {
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string", "description": $expecting })
            }
        }
    };
}
pub(super) use written_as_string;

written_as_string!(Addr, "An address to listen on.");
written_as_string!(StatusRange, "A range of HTTP statuses.");

/// A table, or the one field of it that matters written alone as a string.
pub(super) struct Short<T>(pub(super) T);

impl<'de, T> Deserialize<'de> for Short<T>
where
    T: Deserialize<'de> + FromStr<Err = String>,
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer
            .deserialize_any(ShortVisitor(PhantomData))
            .map(Self)
    }
}

struct ShortVisitor<T>(PhantomData<T>);

impl<'de, T> Visitor<'de> for ShortVisitor<T>
where
    T: Deserialize<'de> + FromStr<Err = String>,
{
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string or a table")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map))
    }
}

/// Reads a table that may be abbreviated to a string.
pub(super) fn short<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + FromStr<Err = String>,
{
    Short::deserialize(deserializer).map(|short| short.0)
}

/// The same of a table that may be left out.
pub(super) fn short_if_given<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + FromStr<Err = String>,
{
    short(deserializer).map(Some)
}

/// Reads one item or a list of them, each a table or a string.
pub(super) fn one_or_many<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + FromStr<Err = String>,
{
    deserializer.deserialize_any(ManyVisitor(PhantomData))
}

struct ManyVisitor<T>(PhantomData<T>);

impl<'de, T> Visitor<'de> for ManyVisitor<T>
where
    T: Deserialize<'de> + FromStr<Err = String>,
{
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string, a table or a list of them")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Vec<T>, E> {
        ShortVisitor(PhantomData)
            .visit_str(text)
            .map(|one| vec![one])
    }

    /// A port alone, say: what it lacks is better known to the type.
    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Vec<T>, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Vec<T>, A::Error> {
        ShortVisitor(PhantomData)
            .visit_map(map)
            .map(|one| vec![one])
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<T>, A::Error> {
        let mut items = Vec::new();
        while let Some(Short(item)) = seq.next_element()? {
            items.push(item);
        }
        Ok(items)
    }
}

/// Reads a string or a list of them.
pub(super) fn strings<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "expected a string or a list of strings")]
    enum Strings {
        One(String),
        Many(Vec<String>),
    }
    Strings::deserialize(deserializer).map(|read| match read {
        Strings::One(one) => vec![one],
        Strings::Many(many) => many,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_may_be_abbreviated() {
        let addr = |text: &str| text.parse::<Addr>().map(|addr| addr.to_string());
        assert_eq!(addr(":80").unwrap(), "0.0.0.0:80");
        assert_eq!(addr("localhost:0").unwrap(), "127.0.0.1:0");
        assert_eq!(addr("[::1]:9").unwrap(), "[::1]:9");
        assert!(addr("8080").unwrap_err().contains("write"));
    }

    #[test]
    fn status_ranges_are_read_back_as_written() {
        for text in ["200", "200-399"] {
            assert_eq!(text.parse::<StatusRange>().unwrap().to_string(), text);
        }
        for text in ["", "2xx", "399-200", "99", "600"] {
            assert!(text.parse::<StatusRange>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_secret_shows_itself_nowhere() {
        let secret = Secret::new("hunter2");
        let shown = format!("{secret:?} {}", serde_json::to_string(&secret).unwrap());
        assert!(!shown.contains("hunter2"));
        assert_eq!(secret.expose(), "hunter2");
    }
}

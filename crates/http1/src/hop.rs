//! Headers that concern one connection only: RFC 9110 section 7.6.1.
//!
//! An intermediary removes `Connection`, what it nominates, and the names that older parties send
//! without a nomination. `TE` keeps `trailers`, which gRPC needs end to end. A nomination removes
//! neither what routes a message nor what frames it: a client could otherwise take `Host` away from
//! the parties behind. What else may pass a border is a policy of each intermediary.

use std::collections::HashSet;

use http::header::{
    CONNECTION, CONTENT_LENGTH, COOKIE, HOST, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::message::Fields;

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const HTTP2_SETTINGS: HeaderName = HeaderName::from_static("http2-settings");

/// What is stripped here needs of a collection of headers: a [`HeaderMap`] or a list of [`Fields`].
pub trait Headers {
    /// The values of a header, in their order.
    fn values<'a>(&'a self, name: &'a HeaderName) -> impl Iterator<Item = &'a HeaderValue>;
    /// Keeps the headers whose names pass.
    fn keep(&mut self, passes: impl FnMut(&HeaderName) -> bool);
    /// Removes all values of a header.
    fn take_out(&mut self, name: &HeaderName);
    /// Sets a value in place of all that are there.
    fn set(&mut self, name: HeaderName, value: HeaderValue);
}

impl Headers for Fields {
    #[inline]
    fn values<'a>(&'a self, name: &'a HeaderName) -> impl Iterator<Item = &'a HeaderValue> {
        self.get_all(name)
    }

    #[inline]
    fn keep(&mut self, passes: impl FnMut(&HeaderName) -> bool) {
        self.retain(passes);
    }

    #[inline]
    fn take_out(&mut self, name: &HeaderName) {
        self.remove(name);
    }

    #[inline]
    fn set(&mut self, name: HeaderName, value: HeaderValue) {
        self.insert(name, value);
    }
}

impl Headers for HeaderMap {
    fn values<'a>(&'a self, name: &'a HeaderName) -> impl Iterator<Item = &'a HeaderValue> {
        self.get_all(name).iter()
    }

    fn keep(&mut self, mut passes: impl FnMut(&HeaderName) -> bool) {
        let removed = self.keys().filter(|name| !passes(name));
        for name in removed.cloned().collect::<Vec<_>>() {
            self.remove(name);
        }
    }

    fn take_out(&mut self, name: &HeaderName) {
        self.remove(name);
    }

    fn set(&mut self, name: HeaderName, value: HeaderValue) {
        self.insert(name, value);
    }
}

/// The comma-separated elements of a value.
#[inline]
pub fn elements(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii)
}

/// The comma-separated elements of a header.
#[inline]
pub fn tokens<'a>(
    headers: &'a impl Headers,
    name: &'a HeaderName,
) -> impl Iterator<Item = &'a [u8]> {
    let values = headers.values(name);
    values.flat_map(|value| elements(value.as_bytes()))
}

/// Whether a header has a certain element.
#[inline]
pub fn has_token(headers: &impl Headers, name: &HeaderName, token: &str) -> bool {
    tokens(headers, name).any(|found| found.eq_ignore_ascii_case(token.as_bytes()))
}

/// Whether the sender of these headers reads trailers.
pub fn takes_trailers(headers: &impl Headers) -> bool {
    has_token(headers, &TE, "trailers")
}

/// The protocol that a message asks for, or consents to: `Upgrade` counts where `Connection`
/// nominates it.
pub fn upgrade(headers: &impl Headers) -> Option<&HeaderValue> {
    let protocol = headers.values(&UPGRADE).next()?;
    has_token(headers, &CONNECTION, "upgrade").then_some(protocol)
}

/// Whether a header concerns one connection only, whether or not it is nominated. `Connection` and
/// `TE` have functions of their own.
#[inline]
pub fn is_of_connection(name: &HeaderName) -> bool {
    match *name {
        TRANSFER_ENCODING | UPGRADE => true,
        _ => *name == KEEP_ALIVE || *name == PROXY_CONNECTION || *name == HTTP2_SETTINGS,
    }
}

/// Removes what concerns one connection only.
pub fn strip(headers: &mut impl Headers) {
    remove_connection(headers);
    keep_te_trailers(headers);
    headers.keep(|name| !is_of_connection(name));
}

/// Removes what concerns one connection only, except for a wish (or consent) to upgrade it.
pub fn strip_but_upgrade(headers: &mut impl Headers) {
    let protocol = upgrade(headers).cloned();
    strip(headers);
    if let Some(protocol) = protocol {
        headers.set(UPGRADE, protocol);
        headers.set(CONNECTION, HeaderValue::from_static("upgrade"));
    }
}

/// Leaves of `TE` what is meant for all parties: `trailers`.
pub fn keep_te_trailers(headers: &mut impl Headers) {
    let trailers = takes_trailers(headers);
    headers.take_out(&TE);
    if trailers {
        headers.set(TE, HeaderValue::from_static("trailers"));
    }
}

/// Removes `Connection` and what it nominates, except what routing and framing depend on.
pub fn remove_connection(headers: &mut impl Headers) {
    // The usual values nominate nothing that is not removed anyway.
    let usual = |value: &HeaderValue| matches!(value.as_bytes(), b"keep-alive" | b"close");
    if headers.values(&CONNECTION).all(usual) {
        headers.take_out(&CONNECTION);
        return;
    }
    // A set, because an attacker may nominate thousands to have each compared with every header.
    let mut nominated: HashSet<_> = tokens(headers, &CONNECTION)
        .filter_map(|token| HeaderName::from_bytes(token).ok())
        .filter(|name| !matches!(*name, HOST | CONTENT_LENGTH | COOKIE | TE | TRAILER))
        .collect();
    nominated.insert(CONNECTION);
    headers.keep(|name| !nominated.contains(name));
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAIRS: [(&str, &str); 9] = [
        ("connection", "close, X-Hop, Host"),
        ("x-hop", "1"),
        ("keep-alive", "timeout=5"),
        ("proxy-connection", "close"),
        ("te", "gzip, trailers"),
        ("trailer", "x-sum"),
        ("upgrade", "h2c"),
        ("host", "shop.example"),
        ("accept", "*/*"),
    ];

    fn map(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pairs = pairs.iter().map(|&(name, value)| {
            let name = HeaderName::from_static(name);
            (name, HeaderValue::from_static(value))
        });
        pairs.collect()
    }

    #[test]
    fn connection_headers_are_stripped_alike_from_map_and_list() {
        let mut map = map(&PAIRS);
        let mut list = Fields::from(map.clone());
        strip(&mut map);
        strip(&mut list);
        let expected = [
            ("te", "trailers"),
            ("trailer", "x-sum"),
            ("host", "shop.example"),
            ("accept", "*/*"),
        ];
        let expected = self::map(&expected);
        assert_eq!(map, expected);
        assert_eq!(HeaderMap::from(list), expected);
    }

    #[test]
    fn upgrade_survives_where_connection_nominates_it() {
        let mut wish = map(&[
            ("connection", "keep-alive, Upgrade"),
            ("upgrade", "websocket"),
        ]);
        strip_but_upgrade(&mut wish);
        let expected = [("upgrade", "websocket"), ("connection", "upgrade")];
        assert_eq!(wish, map(&expected));
        let mut mention = map(&[("upgrade", "h2c")]);
        strip_but_upgrade(&mut mention);
        assert!(mention.is_empty());
    }
}

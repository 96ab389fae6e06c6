//! Headers that concern one connection only (RFC 9110, section 7.6.1).
//!
//! The sidecar stands between the proxy, which has cleaned the request already, and a service on
//! the same machine. It removes what the connection in front of it was told, and nothing else;
//! `trailer` describes the message and stays.

use http::header::{CONNECTION, HOST, TE, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, HeaderName, HeaderValue, Request};

use crate::report::takes_trailers;

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");

/// Makes a request fit for the connection to the service.
pub(super) fn prepare<A>(request: &mut Request<A>) {
    let host = request.uri().authority().cloned();
    let headers = request.headers_mut();
    let trailers = takes_trailers(headers);
    strip(headers);
    headers.remove(TE);
    if trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
    // HTTP/2 has the host in the URI, which is about to name the service.
    if let (Some(host), false) = (host, headers.contains_key(HOST))
        && let Ok(host) = HeaderValue::from_str(host.as_str())
    {
        headers.insert(HOST, host);
    }
}

/// Removes what concerns one connection, except for a wish (or consent) to upgrade it.
pub(super) fn strip(headers: &mut HeaderMap) {
    let nominated: Vec<HeaderName> = tokens(headers)
        .filter_map(|token| token.parse().ok())
        .filter(|name| *name != UPGRADE)
        .collect();
    let upgrade = upgrade(headers).cloned();
    let fixed = [CONNECTION, KEEP_ALIVE, PROXY_CONNECTION, TRANSFER_ENCODING];
    for name in nominated.into_iter().chain(fixed).chain([UPGRADE]) {
        headers.remove(name);
    }
    if let Some(protocol) = upgrade {
        headers.insert(UPGRADE, protocol);
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    }
}

/// The protocol that a message asks for, or consents to.
pub(super) fn upgrade(headers: &HeaderMap) -> Option<&HeaderValue> {
    let protocol = headers.get(UPGRADE)?;
    tokens(headers)
        .any(|token| token.eq_ignore_ascii_case("upgrade"))
        .then_some(protocol)
}

/// The elements of `connection`.
fn tokens(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(uri: &str, pairs: &[(&'static str, &'static str)]) -> Request<()> {
        let mut request = Request::builder().uri(uri);
        for (name, value) in pairs {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap()
    }

    fn prepared(uri: &str, pairs: &[(&'static str, &'static str)]) -> Vec<String> {
        let mut request = request(uri, pairs);
        prepare(&mut request);
        let line = |(name, value): (&HeaderName, &HeaderValue)| {
            format!("{name}: {}", value.to_str().unwrap())
        };
        let mut lines: Vec<String> = request.headers().iter().map(line).collect();
        lines.sort_unstable();
        lines
    }

    #[test]
    fn what_the_connection_was_told_does_not_pass() {
        let pairs = [
            ("connection", "close, X-Hop"),
            ("x-hop", "1"),
            ("keep-alive", "timeout=5"),
            ("te", "gzip, trailers"),
            ("trailer", "x-sum"),
            ("tidegate-optional", "0"),
            ("host", "shop.example"),
        ];
        let expected = [
            "host: shop.example",
            "te: trailers",
            "tidegate-optional: 0",
            "trailer: x-sum",
        ];
        assert_eq!(prepared("/", &pairs), expected);
    }

    #[test]
    fn the_host_of_http2_becomes_a_header() {
        assert_eq!(
            prepared("http://shop.example/", &[]),
            ["host: shop.example"]
        );
    }

    #[test]
    fn a_wish_to_upgrade_passes_and_a_mere_mention_does_not() {
        let wish = [
            ("connection", "keep-alive, Upgrade"),
            ("upgrade", "websocket"),
        ];
        let expected = ["connection: upgrade", "upgrade: websocket"];
        assert_eq!(prepared("/", &wish), expected);
        assert!(prepared("/", &[("upgrade", "h2c")]).is_empty());
    }
}

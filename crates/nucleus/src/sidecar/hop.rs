//! The headers of a request on its way to the service.
//!
//! The sidecar stands between the proxy, which has cleaned the request already, and a service on
//! the same machine. It removes what concerned the connection in front of it, and nothing else;
//! `trailer` describes the message and stays.

use http::header::HOST;
use http::{HeaderValue, Request};
use tidegate_http1::hop;

/// Makes a request fit for the connection to the service.
pub(super) fn prepare<A>(request: &mut Request<A>) {
    let host = request.uri().authority().cloned();
    let headers = request.headers_mut();
    hop::strip_but_upgrade(headers);
    // HTTP/2 has the host in the URI, which is about to name the service.
    if let (Some(host), false) = (host, headers.contains_key(HOST))
        && let Ok(host) = HeaderValue::from_str(host.as_str())
    {
        headers.insert(HOST, host);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderName;

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
    fn host_of_http2_becomes_a_header() {
        assert_eq!(
            prepared("http://shop.example/", &[]),
            ["host: shop.example"]
        );
    }

    #[test]
    fn wish_to_upgrade_passes_and_a_mere_mention_does_not() {
        let wish = [
            ("connection", "keep-alive, Upgrade"),
            ("upgrade", "websocket"),
        ];
        let expected = ["connection: upgrade", "upgrade: websocket"];
        assert_eq!(prepared("/", &wish), expected);
        assert!(prepared("/", &[("upgrade", "h2c")]).is_empty());
    }
}

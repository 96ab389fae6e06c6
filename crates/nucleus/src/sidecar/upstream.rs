//! Which service the sidecar stands in front of.

use std::net::{SocketAddr, ToSocketAddrs};
use std::str::FromStr;

use http::Uri;
use http::uri::{Authority, PathAndQuery, Scheme};

/// A service beside this process: `http://HOST:PORT`, or `h2c://HOST:PORT` for one that speaks
/// HTTP/2 without TLS, as gRPC services do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upstream {
    authority: Authority,
    http2: bool,
}

/// An upstream that cannot be used, and what to write instead.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a service beside this one: write http://HOST:PORT or h2c://HOST:PORT, without a path"
)]
pub struct BadUpstream(String);

impl FromStr for Upstream {
    type Err = BadUpstream;

    fn from_str(text: &str) -> Result<Self, BadUpstream> {
        parse(text).ok_or_else(|| BadUpstream(text.to_owned()))
    }
}

fn parse(text: &str) -> Option<Upstream> {
    let uri: Uri = text.parse().ok()?;
    let http2 = match uri.scheme_str()? {
        "http" => false,
        "h2c" => true,
        _ => return None,
    };
    let authority = uri.authority()?;
    let bare = matches!(uri.path(), "" | "/") && uri.query().is_none();
    let named = !authority.host().is_empty() && !authority.as_str().contains('@');
    (bare && named).then(|| Upstream {
        authority: authority.clone(),
        http2,
    })
}

impl Upstream {
    /// Whether it speaks HTTP/2 without being asked.
    #[must_use]
    pub fn http2(&self) -> bool {
        self.http2
    }

    /// Its addresses; none when its name cannot be resolved now.
    #[must_use]
    pub fn addrs(&self) -> Vec<SocketAddr> {
        let host = self.authority.host().trim_matches(['[', ']']);
        let port = self.authority.port_u16().unwrap_or(80);
        let found = (host, port).to_socket_addrs();
        found.map(Iterator::collect).unwrap_or_default()
    }

    /// Where a request for `asked` goes.
    pub(super) fn uri(&self, asked: &Uri) -> Uri {
        let path = asked.path_and_query().cloned();
        let mut parts = http::uri::Parts::default();
        parts.scheme = Some(Scheme::HTTP);
        parts.authority = Some(self.authority.clone());
        parts.path_and_query = Some(path.unwrap_or_else(|| PathAndQuery::from_static("/")));
        Uri::from_parts(parts).expect("a scheme, an authority and a path make a URI")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upstream_is_a_scheme_a_host_and_a_port() {
        assert!(!"http://127.0.0.1:3000".parse::<Upstream>().unwrap().http2());
        assert!("h2c://[::1]:3000/".parse::<Upstream>().unwrap().http2());
        for bad in [
            "127.0.0.1:3000",
            "https://a:1",
            "http://a:1/path",
            "http://a:1/?q",
            "http://me@a:1",
            "",
        ] {
            let error = bad.parse::<Upstream>().unwrap_err().to_string();
            assert!(error.contains("http://HOST:PORT"), "{error}");
        }
    }

    #[test]
    fn request_keeps_its_path_and_query() {
        let upstream: Upstream = "http://[::1]:3000".parse().unwrap();
        let of = |asked: &'static str| upstream.uri(&Uri::from_static(asked)).to_string();
        assert_eq!(of("/a%20b?c=d"), "http://[::1]:3000/a%20b?c=d");
        assert_eq!(of("http://shop.example/a"), "http://[::1]:3000/a");
        assert_eq!(of("*"), "http://[::1]:3000*");
        assert_eq!(of("shop.example:443"), "http://[::1]:3000/");
        assert_eq!(upstream.addrs(), ["[::1]:3000".parse().unwrap()]);
    }
}

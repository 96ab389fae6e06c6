//! What a request means: for whom it is, what it asks for, and how that is written for a replica.
//!
//! The bytes have been judged by the scanner (HTTP/1) or by the codec (HTTP/2). Here the two
//! become one: a method that may pass, exactly one host, and a target in the letters of
//! RFC 3986, so that no two parties behind us read it differently.

use std::borrow::Cow;
use std::fmt::Write;

use http::uri::PathAndQuery;
use http::{HeaderValue, Method, Uri, Version};

use super::known_headers::KnownHeaders;
use crate::fault::Invalid;
use crate::http1::ascii_class;
use crate::message::Request;

/// Checks what the grammar does not: method, target, host and expectation. Gives the host; `None`
/// in HTTP/1.0, which does without.
pub(crate) fn check<B>(
    request: &Request<B>,
    known: &KnownHeaders<'_>,
) -> Result<Option<HeaderValue>, Invalid> {
    check_method(&request.method)?;
    check_target(&request.method, &request.uri)?;
    check_expectation(known)?;
    check_values(request)?;
    host(request, known)
}

/// CONNECT and TRACE make sense only to a client's own proxy.
fn check_method(method: &Method) -> Result<(), Invalid> {
    match *method {
        Method::CONNECT | Method::TRACE => Err(Invalid::Method),
        _ => Ok(()),
    }
}

fn check_target(method: &Method, uri: &Uri) -> Result<(), Invalid> {
    let scheme_ok = uri
        .scheme_str()
        .is_none_or(|scheme| matches!(scheme, "http" | "https"));
    let path = uri.path();
    let whole_server = path == "*" && *method == Method::OPTIONS;
    // `http://host` without a path: the root is meant. A host alone is for CONNECT.
    let root = path.is_empty() && uri.scheme().is_some();
    if scheme_ok && (path.starts_with('/') || whole_server || root) {
        Ok(())
    } else {
        Err(Invalid::Target)
    }
}

fn check_expectation(known: &KnownHeaders<'_>) -> Result<(), Invalid> {
    match known.expect {
        Some(value) if !value.as_bytes().eq_ignore_ascii_case(b"100-continue") => {
            Err(Invalid::Expectation)
        }
        _ => Ok(()),
    }
}

/// HTTP/1 has no white space around a value, and HTTP/2 must not (RFC 9113 section 8.2.1).
fn check_values<B>(request: &Request<B>) -> Result<(), Invalid> {
    let is_space = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    let padded = |value: &HeaderValue| {
        let bytes = value.as_bytes();
        is_space(bytes.first()) || is_space(bytes.last())
    };
    let http2 = request.version == Version::HTTP_2;
    if http2 && request.headers.iter().any(|(_, value)| padded(value)) {
        return Err(Invalid::FieldValue);
    }
    Ok(())
}

fn host<B>(request: &Request<B>, known: &KnownHeaders<'_>) -> Result<Option<HeaderValue>, Invalid> {
    if known.hosts {
        return Err(Invalid::Host);
    }
    let header = known.host;
    let authority = request.uri.authority().map(|authority| authority.as_str());
    let host = match (header, authority) {
        (Some(header), Some(authority)) => {
            let same = header.as_bytes().eq_ignore_ascii_case(authority.as_bytes());
            same.then(|| header.clone()).ok_or(Invalid::HostMismatch)?
        }
        (Some(header), None) => header.clone(),
        (None, Some(authority)) => {
            HeaderValue::from_str(authority).map_err(|_| Invalid::HostSyntax)?
        }
        (None, None) if request.version == Version::HTTP_10 => return Ok(None),
        (None, None) => return Err(Invalid::Host),
    };
    if is_host(host.as_bytes()) {
        Ok(Some(host))
    } else {
        Err(Invalid::HostSyntax)
    }
}

/// `name`, `name:port`, `[v6]` or `[v6]:port`. Stricter than RFC 3986, which allows a comma and
/// an at sign where some party sees the end of a name.
fn is_host(host: &[u8]) -> bool {
    let (name, rest) = match host {
        [b'[', inner @ ..] => match inner.iter().position(|&byte| byte == b']') {
            Some(end) => (&inner[..end], &inner[end + 1..]),
            None => return false,
        },
        host => host.split_at(host.iter().position(|&b| b == b':').unwrap_or(host.len())),
    };
    let numeric = host.first() == Some(&b'[');
    let in_name = |&byte: &u8| {
        if numeric {
            byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.')
        } else {
            NAME[usize::from(byte)]
        }
    };
    let port_ok = match rest {
        [] => true,
        [b':', port @ ..] => (1..=5).contains(&port.len()) && port.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    !name.is_empty() && name.iter().all(in_name) && port_ok
}

/// A host without its port.
pub(crate) fn host_without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') => name,
        _ => host,
    }
}

/// Makes a target what replicas see: path and query, every byte one that RFC 3986 allows.
pub(crate) fn make_target(uri: &mut Uri) {
    let target = match uri.path_and_query() {
        None => PathAndQuery::from_static("/"),
        Some(target) => match written(target.as_str()) {
            Cow::Borrowed(_) if uri.authority().is_none() => return,
            Cow::Borrowed(_) => target.clone(),
            // Percent signs and letters only: what was a target before still is one.
            Cow::Owned(written) => {
                PathAndQuery::try_from(written).unwrap_or_else(|_| target.clone())
            }
        },
    };
    *uri = target.into();
}

fn written(target: &str) -> Cow<'_, str> {
    if target.starts_with('?') {
        // `http://host?query`: the root is meant.
        Cow::Owned(format!("/{}", encode(target)))
    } else {
        encode(target)
    }
}

/// Percent-encodes what browsers send raw although RFC 3986 does not allow it (`|`, `{`, `"`,
/// UTF-8), and a percent sign that begins no escape.
fn encode(target: &str) -> Cow<'_, str> {
    let bytes = target.as_bytes();
    let sound = |at: usize| match bytes[at] {
        b'%' => is_escape(&bytes[at..]),
        byte => TARGET[usize::from(byte)],
    };
    let Some(first) = (0..bytes.len()).find(|&at| !sound(at)) else {
        return Cow::Borrowed(target);
    };
    let mut encoded = String::with_capacity(bytes.len() + 16);
    encoded.push_str(&target[..first]);
    for (at, &byte) in bytes.iter().enumerate().skip(first) {
        if sound(at) {
            encoded.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    Cow::Owned(encoded)
}

fn is_escape(bytes: &[u8]) -> bool {
    matches!(bytes, [b'%', high, low, ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit())
}

/// What a host's name is made of.
const NAME: [bool; 256] = ascii_class::with(b"-._~");

/// `pchar`, `/` and `?` of RFC 3986, without the percent sign.
const TARGET: [bool; 256] = ascii_class::with(b"-._~!$&'()*+,;=:@/?");

#[cfg(test)]
mod tests {
    use http::header::HOST;

    use super::*;

    fn check(request: &Request<()>) -> Result<Option<HeaderValue>, Invalid> {
        super::check(request, &KnownHeaders::of(&request.headers))
    }

    fn request(method: &str, uri: &str, hosts: &[&str]) -> Request<()> {
        let mut request = http::Request::builder().method(method).uri(uri);
        for host in hosts {
            request = request.header(HOST, *host);
        }
        request.body(()).unwrap().into()
    }

    fn host_of(uri: &str, hosts: &[&str]) -> Result<String, Invalid> {
        let host = check(&request("GET", uri, hosts))?;
        Ok(host.map_or_else(String::new, |host| host.to_str().unwrap().to_owned()))
    }

    #[test]
    fn a_request_is_for_exactly_one_host() {
        assert_eq!(host_of("/", &["a.example:80"]).unwrap(), "a.example:80");
        assert_eq!(host_of("/", &["[::1]:80"]).unwrap(), "[::1]:80");
        assert_eq!(host_of("http://A/x", &["a"]).unwrap(), "a");
        assert_eq!(host_of("http://a/x", &[]).unwrap(), "a");
        assert_eq!(host_of("/", &[]), Err(Invalid::Host));
        assert_eq!(host_of("/", &["a", "a"]), Err(Invalid::Host));
        assert_eq!(host_of("http://a/", &["b"]), Err(Invalid::HostMismatch));
        assert_eq!(host_of("http://a:80/", &["a"]), Err(Invalid::HostMismatch));
        for bad in [
            "", "a b", "a,b", "u@a", "a/b", "a:port", "[::1", "[::1]x", "a:", "a:123456", "[]",
        ] {
            assert_eq!(host_of("/", &[bad]), Err(Invalid::HostSyntax), "{bad:?}");
        }
    }

    #[test]
    fn http_10_does_without_a_host() {
        let mut request = request("GET", "/", &[]);
        request.version = Version::HTTP_10;
        assert_eq!(check(&request), Ok(None));
    }

    #[test]
    fn only_what_a_reverse_proxy_serves_passes() {
        assert_eq!(
            check(&request("CONNECT", "a:1", &["a:1"])),
            Err(Invalid::Method)
        );
        assert_eq!(check(&request("TRACE", "/", &["a"])), Err(Invalid::Method));
        assert_eq!(check(&request("GET", "*", &["a"])), Err(Invalid::Target));
        assert_eq!(
            check(&request("GET", "ftp://a/", &["a"])),
            Err(Invalid::Target)
        );
        assert_eq!(check(&request("GET", "a", &["a"])), Err(Invalid::Target));
        assert!(check(&request("GET", "http://a", &["a"])).is_ok());
        assert!(check(&request("OPTIONS", "*", &["a"])).is_ok());
        assert!(check(&request("PURGE", "/", &["a"])).is_ok());
    }

    fn target_of(uri: &str) -> String {
        let mut uri = uri.parse().unwrap();
        make_target(&mut uri);
        uri.to_string()
    }

    #[test]
    fn targets_are_written_in_the_letters_of_the_rfc() {
        for sound in ["/", "/a/b;c=d?x=%20&y=(1,2)'", "/%2e%2E/", "/?a=b?c/d"] {
            assert_eq!(target_of(sound), sound);
        }
        assert_eq!(target_of("/?q=a|b{c}^`"), "/?q=a%7Cb%7Bc%7D%5E%60");
        assert_eq!(target_of("/caf\u{e9}"), "/caf%C3%A9");
        assert_eq!(target_of("/?q=100%&r=%2g%4"), "/?q=100%25&r=%252g%254");
        assert_eq!(target_of("/?a[0]=1\\2"), "/?a%5B0%5D=1%5C2");
        assert_eq!(target_of("http://a"), "/");
        assert_eq!(target_of("http://a?x"), "/?x");
    }
}

//! The form in which a careful proxy hands requests on: what the grammar allows, and nothing that
//! two upstreams could take to mean different things.

use crate::grammar::{Flaw, Message};

/// What `Connection` may name without losing it: options, and what routing and framing depend on.
const NOT_NOMINATED: [&[u8]; 10] = [
    b"close",
    b"keep-alive",
    b"upgrade",
    b"connection",
    b"host",
    b"content-length",
    b"transfer-encoding",
    b"cookie",
    b"te",
    b"trailer",
];

/// Names that only the proxy itself may set; those that end in a hyphen are beginnings of names.
const PROTECTED: [&[u8]; 6] = [
    b"tidegate-",
    b"x-forwarded-",
    b"forwarded",
    b"x-real-ip",
    b"content-length",
    b"transfer-encoding",
];

/// What is wrong with a request that reached the upstream.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
pub enum Breach {
    /// It is not HTTP/1.1.
    #[error("not RFC 9112: {0}")]
    Grammar(#[from] Flaw),
    /// RFC 9112 section 2.3: a proxy speaks its own version.
    #[error("the version is not the proxy's own")]
    Version,
    /// RFC 9112 section 3.2 and RFC 3986.
    #[error("the target is not a path in the letters of RFC 3986")]
    Target,
    /// RFC 9112 section 3.2.
    #[error("there is not exactly one Host with a host in it")]
    Host,
    /// RFC 9110 section 7.6.1.
    #[error("a field that belongs to the client's connection")]
    HopByHop,
    /// A field that the client must not set, or that `Connection` nominated.
    #[error("a field that must not pass")]
    MustNotPass,
    /// A name that some upstreams read as another one.
    #[error("a field whose name reads as another one's with underscores")]
    Disguised,
    /// The client's bytes, read strictly, hold no such request.
    #[error("a request that the client's bytes do not contain")]
    Unexplained,
    /// A sound request did not arrive.
    #[error("a sound request did not arrive")]
    Lost,
}

/// Everything that is wrong with a request, apart from its grammar.
#[must_use]
pub fn judge(message: &Message) -> Vec<Breach> {
    let checks = [
        (!message.http_10, Breach::Version),
        (target_is_sound(message), Breach::Target),
        (host_is_sound(message), Breach::Host),
        (!has_hop_by_hop(message), Breach::HopByHop),
        (!has_disguised(message), Breach::Disguised),
    ];
    checks
        .into_iter()
        .filter_map(|(sound, breach)| (!sound).then_some(breach))
        .collect()
}

fn target_is_sound(message: &Message) -> bool {
    if message.method == b"OPTIONS" && message.target == b"*" {
        return true;
    }
    let mut rest = &message.target[..];
    if rest.first() != Some(&b'/') {
        return false;
    }
    while let Some(&byte) = rest.first() {
        rest = match rest {
            [b'%', high, low, rest @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                rest
            }
            [_, rest @ ..] if is_plain(byte) => rest,
            _ => return false,
        };
    }
    true
}

/// `unreserved`, `sub-delims`, and `:`, `@`, `/`, `?`.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@/?".contains(&byte)
}

fn host_is_sound(message: &Message) -> bool {
    let hosts: Vec<_> = message.values("host").collect();
    let in_host = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~:[]".contains(byte);
    matches!(&hosts[..], [host] if !host.is_empty() && host.iter().all(in_host))
}

fn has_hop_by_hop(message: &Message) -> bool {
    let options = options(message);
    let upgrades = options.iter().any(|option| option == b"upgrade");
    let known = |option: &Vec<u8>| matches!(&option[..], b"close" | b"keep-alive" | b"upgrade");
    let present = |name| message.values(name).next().is_some();
    !options.iter().all(known)
        || present("keep-alive")
        || present("proxy-connection")
        || (present("upgrade") && !upgrades)
        || message
            .values("te")
            .any(|te| !te.eq_ignore_ascii_case(b"trailers"))
}

/// CGI and its heirs read `_` as `-`.
fn has_disguised(message: &Message) -> bool {
    let disguised = |name: &[u8]| name.contains(&b'_') && is_protected(&plain(name));
    message.fields.iter().any(|(name, _)| disguised(name))
}

fn plain(name: &[u8]) -> Vec<u8> {
    let hyphen = |byte: u8| if byte == b'_' { b'-' } else { byte };
    name.to_ascii_lowercase().into_iter().map(hyphen).collect()
}

fn is_protected(name: &[u8]) -> bool {
    PROTECTED.iter().any(|known| {
        if known.ends_with(b"-") {
            name.starts_with(known)
        } else {
            name == *known
        }
    })
}

/// Whether a field came through that had to stay behind: one that the client's `Connection`
/// nominates, or one that only the proxy may set, with the client's value.
#[must_use]
pub fn leaked(sent: &Message, seen: &Message) -> bool {
    let nominated = options(sent);
    let stays_behind = |name: &[u8]| {
        let framing = matches!(name, b"content-length" | b"transfer-encoding");
        (nominated.iter().any(|option| option == name) && !NOT_NOMINATED.contains(&name))
            || (is_protected(name) && !framing)
    };
    sent.fields.iter().any(|(name, value)| {
        let name = name.to_ascii_lowercase();
        let same =
            |field: &(Vec<u8>, Vec<u8>)| field.0.eq_ignore_ascii_case(&name) && field.1 == *value;
        stays_behind(&name) && !value.is_empty() && seen.fields.iter().any(same)
    })
}

/// What `Connection` says, in lower case.
fn options(message: &Message) -> Vec<Vec<u8>> {
    let lists = message.values("connection");
    lists
        .flat_map(|list| list.split(|&byte| byte == b','))
        .map(|option| option.trim_ascii().to_ascii_lowercase())
        .filter(|option| !option.is_empty())
        .collect()
}

/// Whether two targets ask for the same: without scheme and host, and percent-decoded, since a
/// proxy may strip and encode.
#[must_use]
pub fn same_target(sent: &[u8], seen: &[u8]) -> bool {
    decoded(&path_of(sent)) == decoded(&path_of(seen))
}

fn path_of(target: &[u8]) -> Vec<u8> {
    let Some(scheme) = memchr::memmem::find(target, b"://").filter(|_| target[0] != b'/') else {
        return target.to_vec();
    };
    let rest = &target[scheme + 3..];
    match rest.iter().position(|byte| matches!(byte, b'/' | b'?')) {
        Some(at) if rest[at] == b'?' => [b"/", &rest[at..]].concat(),
        Some(at) => rest[at..].to_vec(),
        None => b"/".to_vec(),
    }
}

fn decoded(target: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(target.len());
    let mut rest = target;
    while let [byte, tail @ ..] = rest {
        let escape = tail.get(..2).filter(|_| *byte == b'%').and_then(hex);
        plain.push(escape.unwrap_or(*byte));
        rest = match escape {
            Some(_) => &tail[2..],
            None => tail,
        };
    }
    plain
}

fn hex(digits: &[u8]) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let value = digit(digits[0])? * 16 + digit(digits[1])?;
    u8::try_from(value).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grammar;

    fn breaches(head: &str) -> Vec<Breach> {
        let (message, _) = grammar::message(head.as_bytes()).unwrap().unwrap();
        judge(&message)
    }

    #[test]
    fn a_plain_request_has_no_breach() {
        let head =
            "GET /a%20b?c=d HTTP/1.1\r\nHost: a:80\r\nConnection: close\r\nTE: trailers\r\n\r\n";
        assert_eq!(breaches(head), []);
        let upgrade =
            "GET / HTTP/1.1\r\nHost: [::1]\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
        assert_eq!(breaches(upgrade), []);
    }

    #[test]
    fn every_breach_is_found() {
        for (line, fields, expected) in [
            ("GET / HTTP/1.0", "Host: a\r\n", Breach::Version),
            ("GET http://a/ HTTP/1.1", "Host: a\r\n", Breach::Target),
            ("GET /%zz HTTP/1.1", "Host: a\r\n", Breach::Target),
            ("GET /a|b HTTP/1.1", "Host: a\r\n", Breach::Target),
            ("GET / HTTP/1.1", "", Breach::Host),
            ("GET / HTTP/1.1", "Host: a\r\nHost: a\r\n", Breach::Host),
            ("GET / HTTP/1.1", "Host: a b\r\n", Breach::Host),
            (
                "GET / HTTP/1.1",
                "Host: a\r\nConnection: x\r\n",
                Breach::HopByHop,
            ),
            (
                "GET / HTTP/1.1",
                "Host: a\r\nUpgrade: x\r\n",
                Breach::HopByHop,
            ),
            (
                "GET / HTTP/1.1",
                "Host: a\r\nTE: gzip\r\n",
                Breach::HopByHop,
            ),
            (
                "GET / HTTP/1.1",
                "Host: a\r\nContent_Length: 1\r\n",
                Breach::Disguised,
            ),
        ] {
            let found = breaches(&format!("{line}\r\n{fields}\r\n"));
            assert_eq!(found, [expected], "{line} {fields:?}");
        }
    }

    #[test]
    fn what_has_to_stay_behind_is_known_by_its_name() {
        let message = |fields: &str| {
            let head = format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
            grammar::message(head.as_bytes()).unwrap().unwrap().0
        };
        let leaked = |sent: &str, seen: &str| super::leaked(&message(sent), &message(seen));
        assert!(leaked("Connection: X-A, close\r\nx-a: 1\r\n", "X-A: 1\r\n"));
        assert!(leaked(
            "Tidegate-Class: gold\r\n",
            "tidegate-class: gold\r\n"
        ));
        assert!(!leaked(
            "Tidegate-Class: gold\r\n",
            "tidegate-class: default\r\n"
        ));
        assert!(!leaked("X-A: 1\r\n", "x-a: 1\r\n"));
        let cookie = "Cookie: a=b\r\n";
        assert!(!leaked(&format!("Connection: cookie\r\n{cookie}"), cookie));
    }

    #[test]
    fn targets_are_compared_by_what_they_ask_for() {
        assert!(same_target(b"http://a/x?y", b"/x?y"));
        assert!(same_target(b"http://a", b"/"));
        assert!(same_target(b"/a|%zz", b"/a%7C%25zz"));
        assert!(!same_target(b"/a", b"/b"));
    }
}

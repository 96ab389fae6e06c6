//! Headers that concern one connection only, or only us: which may pass, in either direction.
//!
//! What concerns one connection (RFC 9110 section 7.6.1) is known to `tidegate_http1::hop`. Our own
//! `tidegate-*` never pass a border, in any spelling: applications that read headers as CGI
//! variables cannot tell `tidegate_class` from `tidegate-class`, nor `content_length` from the real
//! one, so underscore twins of names that mean something go too.

use http::header::{CONNECTION, FORWARDED, MAX_FORWARDS, PROXY_AUTHORIZATION, TE, TRAILER};
use http::{HeaderName, HeaderValue};
pub(crate) use tidegate_http1::hop::has_token;
use tidegate_http1::hop::{is_of_connection, keep_te_trailers, remove_connection, tokens};

use crate::message::Fields;

const ENDPOINT_LOAD: HeaderName = HeaderName::from_static("endpoint-load-metrics");
const ENDPOINT_LOAD_BIN: HeaderName = HeaderName::from_static("endpoint-load-metrics-bin");

/// Names whose underscore twin an application may take for the real one.
const TWINS: [&str; 8] = [
    "tidegate-",
    "x-forwarded-",
    "content-length",
    "transfer-encoding",
    "host",
    "connection",
    "forwarded",
    "x-real-ip",
];

/// Where a header map goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Border {
    /// From a client that is believed (`trusted`) or not, to a replica.
    ToReplica { trusted: bool },
    /// From a replica to a client.
    ToClient,
}

/// What must not pass, found in one walk over the names. Usually that is nothing, or `connection`
/// alone: then no other name is looked up, and nothing is allocated.
#[derive(Debug, Default)]
pub(crate) struct Contraband {
    connection: bool,
    te: bool,
    /// Whether a response announces trailers, some of which may not pass.
    trailer: bool,
    /// Whether one of the others may be a replica's report about itself.
    report: bool,
    others: Vec<HeaderName>,
}

impl Contraband {
    pub(crate) fn find(headers: &Fields, border: Border) -> Self {
        let mut found = Self::default();
        for name in headers.names() {
            // The initials of all that is looked for; most names have another one.
            let first = name.as_str().as_bytes()[0];
            if !matches!(first, b'c' | b'e'..=b'f' | b'h' | b'k' | b'p' | b't'..=b'u' | b'x') {
                continue;
            }
            match *name {
                CONNECTION => found.connection = true,
                TE => found.te = true,
                TRAILER => found.trailer = border == Border::ToClient,
                ref name if is_removed(name, border) => {
                    found.report |= matches!(first, b't' | b'e');
                    found.others.push(name.clone());
                }
                _ => {}
            }
        }
        found
    }

    /// Whether there may be a replica's report about itself, to be read before it is removed.
    pub(crate) fn may_report(&self) -> bool {
        self.report
    }

    /// Removes it. `te: trailers` stays, which gRPC requires of a proxy.
    pub(crate) fn remove(self, headers: &mut Fields) {
        if self.connection {
            remove_connection(headers);
        }
        if self.te {
            keep_te_trailers(headers);
        }
        if self.trailer {
            keep_trailers_that_pass(headers);
        }
        if !self.others.is_empty() {
            headers.retain(|name| !self.others.contains(name));
        }
    }
}

/// Trailers that are removed are not announced either.
fn keep_trailers_that_pass(headers: &mut Fields) {
    let passes = |token: &&[u8]| {
        let name = HeaderName::from_bytes(token);
        name.is_ok_and(|name| !is_removed(&name, Border::ToClient))
    };
    let kept: Vec<_> = tokens(headers, &TRAILER).filter(passes).collect();
    let kept = HeaderValue::from_bytes(&kept.join(&b", "[..])).ok();
    headers.remove(TRAILER);
    if let Some(kept) = kept.filter(|kept| !kept.is_empty()) {
        headers.insert(TRAILER, kept);
    }
}

/// Removes what must not pass.
pub(crate) fn strip(headers: &mut Fields, border: Border) {
    Contraband::find(headers, border).remove(headers);
}

/// Counts this hop in `Max-Forwards` (RFC 9110 section 7.6.2). False if the request may go no
/// further; what is not a number says nothing.
pub(crate) fn count_down(headers: &mut Fields) -> bool {
    let left = headers.get(MAX_FORWARDS).and_then(|it| it.to_str().ok());
    let Some(left) = left.and_then(|left| left.parse::<u32>().ok()) else {
        return true;
    };
    if let Some(left) = left.checked_sub(1) {
        headers.insert(MAX_FORWARDS, HeaderValue::from(left));
    }
    left > 0
}

fn is_removed(name: &HeaderName, border: Border) -> bool {
    match *name {
        PROXY_AUTHORIZATION => border != Border::ToClient,
        FORWARDED => border == Border::ToReplica { trusted: false },
        _ => is_of_connection(name) || is_removed_by_name(name, border),
    }
}

fn is_removed_by_name(name: &HeaderName, border: Border) -> bool {
    let untrusted = border == Border::ToReplica { trusted: false };
    let text = name.as_str();
    match text.as_bytes()[0] {
        b't' => text.starts_with("tidegate") || is_twin(text),
        b'x' => {
            untrusted && (text.starts_with("x-forwarded-") || text == "x-real-ip" || is_twin(text))
        }
        b'c' | b'f' | b'h' => is_twin(text),
        b'e' if border == Border::ToClient => *name == ENDPOINT_LOAD || *name == ENDPOINT_LOAD_BIN,
        _ => false,
    }
}

/// Whether a name with an underscore reads like one that means something.
fn is_twin(name: &str) -> bool {
    let bytes = name.as_bytes();
    bytes.contains(&b'_')
        && TWINS.iter().any(|twin| {
            let alike = |(&a, &b): (&u8, &u8)| a == b || (a == b'_' && b == b'-');
            let long_enough = if twin.ends_with('-') {
                bytes.len() >= twin.len()
            } else {
                bytes.len() == twin.len()
            };
            long_enough && bytes.iter().zip(twin.as_bytes()).all(alike)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> Fields {
        let mut headers = Fields::new();
        for (name, value) in pairs {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            headers.append(name, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    fn left(pairs: &[(&str, &str)], border: Border) -> Vec<String> {
        let mut headers = map(pairs);
        strip(&mut headers, border);
        let mut left: Vec<_> = headers.names().map(ToString::to_string).collect();
        left.sort();
        left
    }

    const UNTRUSTED: Border = Border::ToReplica { trusted: false };

    #[test]
    fn what_connection_nominates_goes_with_it() {
        let pairs = [
            ("connection", "close, X-Secret"),
            ("connection", "x-other"),
            ("x-secret", "1"),
            ("x-other", "1"),
            ("x-other", "2"),
            ("keep-alive", "1"),
            ("accept", "*/*"),
        ];
        assert_eq!(left(&pairs, UNTRUSTED), ["accept"]);
    }

    #[test]
    fn a_strange_byte_beside_a_nomination_does_not_save_it() {
        let mut headers = map(&[("x-secret", "1")]);
        let connection = HeaderValue::from_bytes(b"clos\xe9, x-secret").unwrap();
        headers.insert(CONNECTION, connection);
        strip(&mut headers, UNTRUSTED);
        assert!(headers.is_empty());
    }

    #[test]
    fn a_nomination_cannot_take_away_host_or_framing() {
        let pairs = [
            ("connection", "host, content-length, cookie"),
            ("host", "a"),
            ("content-length", "1"),
            ("cookie", "a=b"),
        ];
        assert_eq!(
            left(&pairs, UNTRUSTED),
            ["content-length", "cookie", "host"]
        );
    }

    #[test]
    fn nobody_sends_our_own_headers_but_us() {
        let pairs = [
            ("Tidegate-Class", "gold"),
            ("tidegate_class", "gold"),
            ("TIDEGATE-deadline_ms", "1"),
            ("tidegate", "1"),
            ("x-tidegate-class", "mine"),
        ];
        assert_eq!(left(&pairs, UNTRUSTED), ["x-tidegate-class"]);
        assert_eq!(
            left(&pairs, Border::ToReplica { trusted: true }),
            ["x-tidegate-class"]
        );
        assert_eq!(left(&pairs, Border::ToClient), ["x-tidegate-class"]);
    }

    #[test]
    fn underscore_twins_of_meaningful_names_go() {
        let pairs = [
            ("content_length", "1"),
            ("Transfer_Encoding", "chunked"),
            ("x_forwarded_for", "1.2.3.4"),
            ("x-forwarded_proto", "https"),
            ("x_real_ip", "1.2.3.4"),
            ("x_forwarded_", "1.2.3.4"),
            ("api_key", "kept"),
            ("content_length_hint", "kept"),
        ];
        assert_eq!(left(&pairs, UNTRUSTED), ["api_key", "content_length_hint"]);
    }

    #[test]
    fn only_trusted_clients_forward() {
        let pairs = [("x-forwarded-for", "1.1.1.1"), ("forwarded", "for=1.1.1.1")];
        assert!(left(&pairs, UNTRUSTED).is_empty());
        let kept = left(&pairs, Border::ToReplica { trusted: true });
        assert_eq!(kept, ["forwarded", "x-forwarded-for"]);
    }

    proptest::proptest! {
        /// Whatever stands beside them, what must not pass does not.
        #[test]
        fn fuzz_contraband(
            names in proptest::collection::vec(
                "([Tt]idegate[-_]class|x[-_]forwarded[-_]for|keep-alive|content_length|x-[a-c]|accept)", 0..8
            ),
            connection: Vec<u8>,
        ) {
            let pairs: Vec<_> = names.iter().map(|name| (name.as_str(), "1")).collect();
            let mut headers = map(&pairs);
            let list = [&connection[..], b", x-a ,X-B"].concat();
            if let Ok(list) = HeaderValue::from_bytes(&list) {
                headers.insert(CONNECTION, list);
                strip(&mut headers, UNTRUSTED);
                let legal = |name: &HeaderName| matches!(name.as_str(), "x-c" | "accept");
                proptest::prop_assert!(headers.names().all(legal), "{:?}", headers);
            }
        }
    }

    #[test]
    fn trailers_are_still_wanted() {
        let mut headers = map(&[("te", "gzip, trailers"), ("connection", "te")]);
        strip(&mut headers, UNTRUSTED);
        assert_eq!(headers["te"], "trailers");
    }

    #[test]
    fn trailers_that_stay_inside_are_not_announced() {
        let mut headers = map(&[
            ("trailer", "tidegate-demand, Grpc-Status"),
            ("trailer", "tidegate-service-ms"),
        ]);
        strip(&mut headers, Border::ToClient);
        assert_eq!(headers["trailer"], "Grpc-Status");
        let mut headers = map(&[("trailer", "tidegate-demand")]);
        strip(&mut headers, Border::ToClient);
        assert!(headers.is_empty());
    }

    #[test]
    fn load_reports_stay_inside() {
        let pairs = [("endpoint-load-metrics", "TEXT cpu=1"), ("server", "x")];
        assert_eq!(left(&pairs, Border::ToClient), ["server"]);
    }
}

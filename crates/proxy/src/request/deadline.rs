//! When an answer is worthless: the proxy's own limit, or earlier if the client says so.
//!
//! `grpc-timeout` is a number and a unit ([`grpc::timeout`]), `tidegate-deadline-ms` a number. A
//! client can only shorten its time: one that lies gets a 504 for it, and the replica is not
//! held to blame.

use std::time::Duration;

use http::{HeaderName, HeaderValue};
use tidegate_http1::grpc;

use super::known_headers::KnownHeaders;

pub(crate) const DEADLINE_MS: HeaderName = HeaderName::from_static("tidegate-deadline-ms");

/// How long a request may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Allowance {
    pub(crate) time: Duration,
    /// Whether it is the client's own, shorter than the proxy's.
    pub(crate) by_client: bool,
}

/// The shortest of the proxy's and the client's.
pub(crate) fn allowance(known: &KnownHeaders<'_>, limit: Duration) -> Allowance {
    let millis = known.deadline_ms.and_then(asked_ms);
    let grpc = known
        .grpc_timeout
        .map(HeaderValue::as_bytes)
        .and_then(grpc::timeout);
    match [millis, grpc].into_iter().flatten().min() {
        Some(time) if time < limit => Allowance {
            time,
            by_client: true,
        },
        _ => Allowance {
            time: limit,
            by_client: false,
        },
    }
}

fn asked_ms(value: &HeaderValue) -> Option<Duration> {
    digits(value.to_str().ok()?).map(Duration::from_millis)
}

/// A number without sign or space.
fn digits(text: &str) -> Option<u64> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        text.parse().ok()
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Fields;

    const GRPC_TIMEOUT: HeaderName = grpc::TIMEOUT;
    const LIMIT: Duration = Duration::from_secs(30);

    fn asked(name: HeaderName, value: &str) -> Allowance {
        let headers = Fields::from_iter([(name, value.parse().unwrap())]);
        allowance(&KnownHeaders::of(&headers), LIMIT)
    }

    #[test]
    fn a_client_shortens_its_time_in_either_spelling() {
        for (name, value, millis) in [
            (DEADLINE_MS, "250", 250),
            (DEADLINE_MS, "0", 0),
            (GRPC_TIMEOUT, "250m", 250),
            (GRPC_TIMEOUT, "1S", 1000),
            (GRPC_TIMEOUT, "5000u", 5),
            (GRPC_TIMEOUT, "99999999n", 99),
        ] {
            let allowance = asked(name, value);
            assert_eq!(allowance.time.as_millis(), millis, "{value}");
            assert!(allowance.by_client);
        }
    }

    #[test]
    fn no_client_gets_more_than_the_limit_or_by_nonsense() {
        for (name, value) in [
            (DEADLINE_MS, "31000"),
            (DEADLINE_MS, "18446744073709551616"),
            (DEADLINE_MS, "-1"),
            (DEADLINE_MS, "+1"),
            (DEADLINE_MS, "1e3"),
            (GRPC_TIMEOUT, "1H"),
            (GRPC_TIMEOUT, "S"),
            (GRPC_TIMEOUT, ""),
            (GRPC_TIMEOUT, "123456789n"),
            (GRPC_TIMEOUT, "5x"),
        ] {
            let allowance = asked(name, value);
            assert_eq!(
                (allowance.time, allowance.by_client),
                (LIMIT, false),
                "{value}"
            );
        }
    }
}

//! The client's own deadline: `grpc-timeout`, up to eight digits and a unit
//! (gRPC over HTTP/2, "Timeout").

use std::time::Duration;

use http::{HeaderMap, HeaderName};

const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");

/// Time left to answer, where the client said so. A malformed value is none.
pub(crate) fn of(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(GRPC_TIMEOUT)?.to_str().ok()?;
    let (digits, unit) = value.split_at_checked(value.len().checked_sub(1)?)?;
    if !(1..=8).contains(&digits.len()) || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(number * 3600),
        "M" => Duration::from_secs(number * 60),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timeout(value: &str) -> Option<Duration> {
        of(&HeaderMap::from_iter([(
            GRPC_TIMEOUT,
            value.parse().unwrap(),
        )]))
    }

    #[test]
    fn grpc_timeout_has_a_unit() {
        assert_eq!(timeout("250m"), Some(Duration::from_millis(250)));
        assert_eq!(
            timeout("99999999H"),
            Some(Duration::from_secs(359_999_996_400))
        );
        assert_eq!(timeout("1S"), Some(Duration::from_secs(1)));
    }

    #[test]
    fn grpc_timeout_malformed_is_none() {
        for value in [
            "",
            "1",
            "S",
            "-1S",
            "+1S",
            "100000000S",
            "1s",
            "1.5S",
            "1 S",
        ] {
            assert_eq!(timeout(value), None, "{value}");
        }
        assert_eq!(of(&HeaderMap::new()), None);
    }
}

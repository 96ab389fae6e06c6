//! What of gRPC stands in headers: how long its client waits.

use std::time::Duration;

use http::HeaderName;

/// The header of a client's deadline (gRPC over HTTP/2, "Timeout").
pub const TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");

/// Reads the value of [`TIMEOUT`]: one to eight digits and a unit. A malformed value is none.
///
/// ```
/// use std::time::Duration;
/// use tidegate_http1::grpc::timeout;
///
/// assert_eq!(timeout(b"250m"), Some(Duration::from_millis(250)));
/// assert_eq!(timeout(b"250"), None);
/// ```
#[must_use]
pub fn timeout(value: &[u8]) -> Option<Duration> {
    let (unit, digits) = value.split_last()?;
    if !(1..=8).contains(&digits.len()) || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = digits
        .iter()
        .fold(0, |number, digit| number * 10 + u64::from(digit - b'0'));
    Some(match unit {
        b'H' => Duration::from_secs(number * 3600),
        b'M' => Duration::from_secs(number * 60),
        b'S' => Duration::from_secs(number),
        b'm' => Duration::from_millis(number),
        b'u' => Duration::from_micros(number),
        b'n' => Duration::from_nanos(number),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeout_has_digits_and_a_unit() {
        for (value, time) in [
            ("250m", Duration::from_millis(250)),
            ("99999999H", Duration::from_secs(359_999_996_400)),
            ("2M", Duration::from_secs(120)),
            ("1S", Duration::from_secs(1)),
            ("5000u", Duration::from_millis(5)),
            ("99999999n", Duration::from_nanos(99_999_999)),
        ] {
            assert_eq!(timeout(value.as_bytes()), Some(time), "{value}");
        }
    }

    #[test]
    fn timeout_malformed_is_none() {
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
            "5x",
        ] {
            assert_eq!(timeout(value.as_bytes()), None, "{value}");
        }
    }
}

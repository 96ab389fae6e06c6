//! Times that people read: RFC 3339 in UTC, with milliseconds.

use std::time::{Duration, SystemTime};

use jiff::Timestamp;

/// As `2026-01-02T03:04:05.678Z`. A time that no calendar has is the start of 1970.
pub(crate) fn rfc3339(at: SystemTime) -> String {
    let at = Timestamp::try_from(at).unwrap_or(Timestamp::UNIX_EPOCH);
    format!("{at:.3}")
}

/// As `02/Jan/2026:03:04:05 +0000`, the time of the Common Log Format.
pub(crate) fn common_log(at: SystemTime) -> String {
    let at = Timestamp::try_from(at).unwrap_or(Timestamp::UNIX_EPOCH);
    at.strftime("%d/%b/%Y:%H:%M:%S +0000").to_string()
}

/// The time of day for a sentence, `21:14 UTC`, with the date when it is not of the last 20 hours.
pub(crate) fn in_words(at: SystemTime, now: SystemTime) -> String {
    let recent = now.duration_since(at).unwrap_or_default() < Duration::from_secs(20 * 3600);
    let text = rfc3339(at);
    let (date, time) = text.split_once('T').unwrap_or(("", &text));
    let time = time.get(..5).unwrap_or(time);
    if recent {
        format!("{time} UTC")
    } else {
        format!("{date} {time} UTC")
    }
}

/// Reads a time as [`rfc3339`] writes it, or one `ago` such as `10m`.
pub(crate) fn parse_since(text: &str, now: SystemTime) -> Option<SystemTime> {
    if let Ok(ago) = text.parse::<tidegate_config::Dur>() {
        return now.checked_sub(*ago);
    }
    let at: Timestamp = text.parse().ok()?;
    Some(at.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_they_are_written() {
        let at = SystemTime::UNIX_EPOCH + Duration::from_millis(1_767_323_045_678);
        let text = rfc3339(at);
        assert_eq!(text, "2026-01-02T03:04:05.678Z");
        assert_eq!(parse_since(&text, at), Some(at));
        let ago = parse_since("10m", at).unwrap();
        assert_eq!(at.duration_since(ago).unwrap(), Duration::from_secs(600));
        assert_eq!(parse_since("yesterday", at), None);
    }

    #[test]
    fn times_are_those_of_the_calendar() {
        let at = |seconds: u64| SystemTime::UNIX_EPOCH + Duration::from_millis(seconds * 1000 + 7);
        assert_eq!(rfc3339(at(0)), "1970-01-01T00:00:00.007Z");
        assert_eq!(rfc3339(at(951_782_399)), "2000-02-28T23:59:59.007Z");
        assert_eq!(rfc3339(at(951_782_400)), "2000-02-29T00:00:00.007Z");
        assert_eq!(common_log(at(1_709_251_200)), "01/Mar/2024:00:00:00 +0000");
        assert_eq!(common_log(at(4_102_444_799)), "31/Dec/2099:23:59:59 +0000");
    }

    #[test]
    fn old_times_have_their_date() {
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(1_767_323_045);
        assert_eq!(in_words(at, at), "03:04 UTC");
        let later = at + Duration::from_secs(86_400);
        assert_eq!(in_words(at, later), "2026-01-02 03:04 UTC");
    }
}

//! How one request ended, seen from the client.

use std::time::Duration;

use http::{HeaderMap, HeaderName, StatusCode, header};
use tidegate_control::Timestamp;

/// The header in which Tidegate names the mechanism that refused.
pub(super) const SHED_HEADER: HeaderName = HeaderName::from_static("tidegate-shed");

/// How one attempt ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// A complete answer below 400.
    Ok,
    /// 503 or 429: refused on purpose. The reason is that of `tidegate-shed`, or the status of a
    /// peer that gives none.
    Shed(Box<str>),
    /// Another answer of 500 or more.
    ServerError,
    /// Another answer of 400 or more: the request was at fault.
    ClientError,
    /// No complete answer within the client's patience; the connection was given up.
    Timeout,
    /// No connection could be opened.
    ConnectError,
    /// The connection broke before the answer was complete.
    Broken,
    /// Never sent: every connection the generator may open was busy.
    Unsent,
}

impl Ending {
    /// The class of a complete answer.
    pub(super) fn of_answer(status: StatusCode, headers: &HeaderMap) -> Self {
        match status.as_u16() {
            ..400 => Self::Ok,
            429 | 503 => Self::Shed(shed_reason(status, headers)),
            500.. => Self::ServerError,
            _ => Self::ClientError,
        }
    }

    /// Whether trying again could help: the request itself was not at fault.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        !matches!(self, Self::Ok | Self::ClientError | Self::Unsent)
    }
}

fn shed_reason(status: StatusCode, headers: &HeaderMap) -> Box<str> {
    headers
        .get(SHED_HEADER)
        .and_then(|reason| reason.to_str().ok())
        .unwrap_or_else(|| status.as_str())
        .into()
}

/// The delay an answer asks for; the form with a date is not used by any peer we measure.
pub(super) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(header::RETRY_AFTER)?.to_str().ok()?;
    seconds.trim().parse().ok().map(Duration::from_secs)
}

/// One try of a request.
#[derive(Debug, Clone)]
pub(super) struct Attempt {
    /// When it was meant to be sent: latency counts from here, not from when it was.
    pub(super) due: Timestamp,
    pub(super) finished: Timestamp,
    pub(super) ending: Ending,
    /// What the answer asked for, where it did.
    pub(super) retry_after: Option<Duration>,
}

/// A request with all its tries, the last of which decides.
#[derive(Debug)]
pub(super) struct Outcome {
    /// Index of what was requested in the mix.
    pub(super) kind: usize,
    /// How late the generator itself was in sending the first try.
    pub(super) lag: Duration,
    pub(super) attempts: Vec<Attempt>,
}

impl Outcome {
    /// When the first try was meant to be sent.
    pub(super) fn due(&self) -> Timestamp {
        self.attempts
            .first()
            .map_or(Timestamp::ZERO, |attempt| attempt.due)
    }

    /// From the intended time of the first try to the end of the last.
    pub(super) fn latency(&self) -> Duration {
        match (self.attempts.first(), self.attempts.last()) {
            (Some(first), Some(last)) => last.finished - first.due,
            _ => Duration::ZERO,
        }
    }

    /// How the last try ended.
    pub(super) fn ending(&self) -> &Ending {
        self.attempts
            .last()
            .map_or(&Ending::Unsent, |attempt| &attempt.ending)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn shed(status: u16, reason: Option<&'static str>) -> Ending {
        let mut headers = HeaderMap::new();
        if let Some(reason) = reason {
            headers.insert(SHED_HEADER, HeaderValue::from_static(reason));
        }
        Ending::of_answer(StatusCode::from_u16(status).unwrap(), &headers)
    }

    #[test]
    fn answers_fall_into_classes() {
        assert_eq!(shed(204, None), Ending::Ok);
        assert_eq!(shed(302, None), Ending::Ok);
        assert_eq!(shed(404, None), Ending::ClientError);
        assert_eq!(shed(502, None), Ending::ServerError);
        assert_eq!(
            shed(503, Some("predicted")),
            Ending::Shed("predicted".into())
        );
        assert_eq!(shed(429, None), Ending::Shed("429".into()));
    }

    #[test]
    fn retry_after_is_read_in_seconds_and_dates_are_ignored() {
        let with =
            |value| HeaderMap::from_iter([(header::RETRY_AFTER, HeaderValue::from_static(value))]);
        assert_eq!(retry_after(&with("2")), Some(Duration::from_secs(2)));
        assert_eq!(retry_after(&with("Wed, 21 Oct 2026 07:28:00 GMT")), None);
        assert_eq!(retry_after(&HeaderMap::new()), None);
    }
}

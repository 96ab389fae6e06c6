//! The answer to a request that is shed.
//!
//! HTTP: 503 with `retry-after` and `tidegate-shed: <reason>`; as `application/problem+json` with
//! the registered type where the client accepts JSON (RFC 9457,
//! draft-ietf-httpapi-ratelimit-headers-10 section 8). gRPC: an answer of headers alone with
//! status 8, RESOURCE_EXHAUSTED, and `google.rpc.RetryInfo` in `grpc-status-details-bin`.

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use bytes::Bytes;
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use tidegate_sentry::Refusal;

/// The reason of a refusal, for programs; the proxy says it in the same header.
pub const SHED_HEADER: HeaderName = HeaderName::from_static("tidegate-shed");

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const GRPC_DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");
const RESOURCE_EXHAUSTED: u8 = 8;
const RETRY_INFO: &str = "type.googleapis.com/google.rpc.RetryInfo";

const BUSY: &str = "The service is busy. Please wait a moment, then try again once.";
const BUSY_TEXT: &str = "503 Service Unavailable\n\
                         The service is busy. Please wait a moment, then try again once.\n";

/// In which form a client reads a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Text,
    Problem,
    Grpc,
}

impl Format {
    pub(crate) fn of(request: &Parts) -> Self {
        if has(&request.headers, CONTENT_TYPE, "application/grpc") {
            Self::Grpc
        } else if has(&request.headers, ACCEPT, "json") {
            Self::Problem
        } else {
            Self::Text
        }
    }
}

fn has(headers: &HeaderMap, name: HeaderName, part: &str) -> bool {
    let value = headers.get(name).and_then(|value| value.to_str().ok());
    value.is_some_and(|value| value.contains(part))
}

/// The answer to a request that was refused, in the form that its client reads. For drivers that
/// are no tower service.
#[must_use]
pub fn refuse(request: &Parts, refusal: &Refusal) -> Response<Bytes> {
    answer(Format::of(request), refusal)
}

/// The answer. Its body is complete.
pub(crate) fn answer(format: Format, refusal: &Refusal) -> Response<Bytes> {
    let mut response = match format {
        Format::Text => http_answer(
            "text/plain; charset=utf-8",
            Bytes::from_static(BUSY_TEXT.as_bytes()),
        ),
        Format::Problem => http_answer("application/problem+json", problem(refusal)),
        Format::Grpc => grpc(refusal),
    };
    let headers = response.headers_mut();
    headers.insert(RETRY_AFTER, HeaderValue::from(seconds(refusal)));
    headers.insert(
        SHED_HEADER,
        HeaderValue::from_static(refusal.reason.as_str()),
    );
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Whole seconds, at least one: `retry-after` has no fractions.
fn seconds(refusal: &Refusal) -> u64 {
    (refusal.retry_after.as_secs_f64().ceil() as u64).max(1)
}

fn http_answer(content_type: &'static str, body: Bytes) -> Response<Bytes> {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    let content_type = HeaderValue::from_static(content_type);
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}

fn problem(refusal: &Refusal) -> Bytes {
    let reason = refusal.reason.as_str();
    // No part needs escaping: the texts are constants.
    format!(
        "{{\"type\":\"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity\",\
         \"title\":\"Service Unavailable\",\"status\":503,\"detail\":\"{BUSY}\",\
         \"reason\":\"{reason}\"}}\n"
    )
    .into()
}

fn grpc(refusal: &Refusal) -> Response<Bytes> {
    let mut response = Response::new(Bytes::new());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert(
        GRPC_STATUS,
        HeaderValue::from(u16::from(RESOURCE_EXHAUSTED)),
    );
    headers.insert(GRPC_MESSAGE, HeaderValue::from_static(BUSY));
    let details = STANDARD_NO_PAD.encode(status(seconds(refusal)));
    if let Ok(details) = HeaderValue::from_maybe_shared(Bytes::from(details)) {
        headers.insert(GRPC_DETAILS, details);
    }
    response
}

/// `google.rpc.Status` with a `RetryInfo`, as protocol buffers. Four nested messages, each
/// shorter than 128 bytes, so that every length is one byte.
fn status(retry_seconds: u64) -> Vec<u8> {
    let duration = field(1, VARINT, &varint(retry_seconds));
    let retry_info = message(1, &duration);
    let any = [message(1, RETRY_INFO.as_bytes()), message(2, &retry_info)].concat();
    let code = field(1, VARINT, &[RESOURCE_EXHAUSTED]);
    [code, message(2, BUSY.as_bytes()), message(3, &any)].concat()
}

const VARINT: u8 = 0;
const LENGTH_DELIMITED: u8 = 2;

fn field(number: u8, wire_type: u8, value: &[u8]) -> Vec<u8> {
    [&[number << 3 | wire_type], value].concat()
}

fn message(number: u8, value: &[u8]) -> Vec<u8> {
    let length = varint(value.len() as u64);
    field(number, LENGTH_DELIMITED, &[&length, value].concat())
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(10);
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tidegate_sentry::{ClassId, ShedReason};

    fn refusal(retry_after: Duration) -> Refusal {
        Refusal {
            reason: ShedReason::Predicted,
            class: ClassId(0),
            retry_after,
            measured: 2.0,
            limit: 1.0,
        }
    }

    #[test]
    fn grpc_refusal_is_headers_alone_with_retry_info() {
        let response = answer(Format::Grpc, &refusal(Duration::from_millis(299_500)));
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["grpc-status"], "8");
        assert!(response.body().is_empty());
        // What `google.rpc.Status.SerializeToString` of the Python package
        // googleapis-common-protos gives for the same message.
        let expected = concat!(
            "CAgSP1RoZSBzZXJ2aWNlIGlzIGJ1c3kuIFBsZWFzZSB3YWl0IGEgbW9tZW50LCB0aGVuIH",
            "RyeSBhZ2FpbiBvbmNlLhoxCih0eXBlLmdvb2dsZWFwaXMuY29tL2dvb2dsZS5ycGMuUmV0",
            "cnlJbmZvEgUKAwisAg"
        );
        assert_eq!(response.headers()["grpc-status-details-bin"], expected);
        assert_eq!(response.headers()["retry-after"], "300");
    }

    #[test]
    fn http_refusal_is_a_problem_for_clients_that_read_json() {
        let mut request = http::Request::new(());
        let accept = "application/json, text/plain".parse().unwrap();
        request.headers_mut().insert(ACCEPT, accept);
        let format = Format::of(&request.into_parts().0);
        let response = answer(format, &refusal(Duration::ZERO));
        assert_eq!(response.status(), 503);
        assert_eq!(response.headers()[CONTENT_TYPE], "application/problem+json");
        assert_eq!(response.headers()[RETRY_AFTER], "1");
        assert_eq!(response.headers()[SHED_HEADER], "predicted");
        let text = String::from_utf8(response.into_body().to_vec()).unwrap();
        assert!(text.contains("#temporary-reduced-capacity\""), "{text}");
    }
}

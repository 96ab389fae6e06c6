//! What a refusal is called in gRPC.
//!
//! A gRPC client reads `grpc-status`, not the status of HTTP. A refusal is an answer of headers
//! alone ("Trailers-Only" in the protocol's description), with status 200.

use http::{HeaderValue, StatusCode};

/// There is no room now: clients may try again later.
pub(super) const UNAVAILABLE: HeaderValue = HeaderValue::from_static("14");

/// The gRPC status of an answer of ours, as the project's table for proxies has it; but a deadline
/// and a client's own quota are named as such.
pub(super) fn status(status: StatusCode) -> HeaderValue {
    HeaderValue::from_static(match status {
        StatusCode::GATEWAY_TIMEOUT | StatusCode::REQUEST_TIMEOUT => "4",
        StatusCode::TOO_MANY_REQUESTS => "8",
        StatusCode::FORBIDDEN => "7",
        StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE => "14",
        status if status.is_client_error() => "13",
        _ => "2",
    })
}

//! `ratelimit`: one call per request, which brings descriptors that Envoy's routes make of it.
//!
//! Entries `method`, `host`, `path` and `request_id` are what their names say; every other one
//! counts as a header. The end comes by the access log, where `request_id` is among the entries.

use std::time::Instant;

use http::request::Parts;

use crate::doors::Doors;
use crate::head::{Head, request_id};
use crate::proto::rate_limit::{DescriptorStatus, OK, RateLimitRequest, RateLimitResponse};
use crate::refusal;

/// Decides about a request.
pub(crate) async fn should_rate_limit(
    doors: &Doors,
    request: RateLimitRequest,
) -> RateLimitResponse {
    let received = Instant::now();
    let head = head(&request);
    let descriptors = request.descriptors.len();
    match doors.admit(received, &head).await {
        Ok(slot) => {
            doors.ends.keep(request_id(&head), slot);
            within_limit(descriptors)
        }
        Err(refusal) => refusal::over_limit(&head, &refusal, descriptors),
    }
}

fn within_limit(descriptors: usize) -> RateLimitResponse {
    let status = DescriptorStatus {
        code: OK,
        duration_until_reset: None,
    };
    RateLimitResponse {
        overall_code: OK,
        statuses: vec![status; descriptors],
        ..RateLimitResponse::default()
    }
}

fn head(request: &RateLimitRequest) -> Parts {
    let mut head = Head::new();
    for entry in request.descriptors.iter().flat_map(|each| &each.entries) {
        let value = entry.value.as_bytes();
        match entry.key.as_str() {
            "method" => head.method(value),
            "host" => head.host(value),
            "path" => head.path(value),
            "request_id" => head.field("x-request-id", value),
            name => head.field(name, value),
        }
    }
    head.finish()
}

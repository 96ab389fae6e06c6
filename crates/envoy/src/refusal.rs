//! A refusal in the words of Envoy's interfaces.

use http::HeaderMap;
use http::request::Parts;
use tidegate_sentry::Refusal;
use tidegate_tower::refuse;

use crate::proto::auth::{CheckResponse, DeniedHttpResponse, HttpResponse};
use crate::proto::core::{HeaderValue, HeaderValueOption, HttpStatus, Status};
use crate::proto::ext_proc::{GrpcStatus, HeaderMutation, ImmediateResponse};
use crate::proto::rate_limit::{DescriptorStatus, OVER_LIMIT, RateLimitResponse};

/// `google.rpc.Code.RESOURCE_EXHAUSTED`.
const RESOURCE_EXHAUSTED: u16 = 8;

/// `ext_proc`: the answer to the client. Envoy turns it into trailers for a gRPC call.
pub(crate) fn immediate(head: &Parts, refusal: &Refusal) -> ImmediateResponse {
    let (parts, body) = refuse(head, refusal).into_parts();
    let raw = |name: &str, value: &[u8]| HeaderValue::raw(name, value);
    ImmediateResponse {
        status: Some(status(parts.status.as_u16())),
        headers: Some(HeaderMutation {
            set_headers: options(&parts.headers, raw),
            remove_headers: Vec::new(),
        }),
        body,
        grpc_status: is_grpc(&parts.headers).then_some(GrpcStatus {
            status: RESOURCE_EXHAUSTED.into(),
        }),
        details: details(refusal),
    }
}

/// `ext_authz`: the same, as a denial.
pub(crate) fn denied(head: &Parts, refusal: &Refusal) -> CheckResponse {
    let (parts, body) = refuse(head, refusal).into_parts();
    CheckResponse {
        status: Some(Status {
            code: RESOURCE_EXHAUSTED.into(),
            message: details(refusal),
        }),
        http_response: Some(HttpResponse::Denied(DeniedHttpResponse {
            status: Some(status(parts.status.as_u16())),
            headers: options(&parts.headers, text),
            body: String::from_utf8_lossy(&body).into_owned(),
        })),
    }
}

/// `ratelimit`: Envoy chooses the status (`rate_limited_status`), the headers are ours.
pub(crate) fn over_limit(head: &Parts, refusal: &Refusal, descriptors: usize) -> RateLimitResponse {
    let (parts, body) = refuse(head, refusal).into_parts();
    let status = DescriptorStatus {
        code: OVER_LIMIT,
        duration_until_reset: Some(refusal.retry_after.into()),
    };
    let headers = parts.headers.iter();
    RateLimitResponse {
        overall_code: OVER_LIMIT,
        statuses: vec![status; descriptors],
        response_headers_to_add: headers
            .map(|(name, value)| text(name.as_str(), value.as_bytes()))
            .collect(),
        raw_body: body,
    }
}

fn status(code: u16) -> HttpStatus {
    HttpStatus { code: code.into() }
}

fn is_grpc(headers: &HeaderMap) -> bool {
    headers.contains_key("grpc-status")
}

fn text(name: &str, value: &[u8]) -> HeaderValue {
    HeaderValue::text(name, &String::from_utf8_lossy(value))
}

fn options(
    headers: &HeaderMap,
    header: impl Fn(&str, &[u8]) -> HeaderValue,
) -> Vec<HeaderValueOption> {
    let headers = headers.iter();
    let headers = headers.map(|(name, value)| header(name.as_str(), value.as_bytes()));
    headers.map(HeaderValueOption::overwrite).collect()
}

/// For Envoy's access log, which allows no spaces.
fn details(refusal: &Refusal) -> String {
    format!("tidegate_shed_{}", refusal.reason.as_str())
}

//! `ext_authz`: one call per request, which brings its head. The end comes by the access log.

use std::time::Instant;

use http::request::Parts;

use crate::doors::Doors;
use crate::head::{Head, request_id};
use crate::proto::auth::{CheckRequest, CheckResponse, HttpRequest, HttpResponse, OkHttpResponse};
use crate::proto::core::Status;
use crate::refusal;

/// Decides about a request.
pub(crate) async fn check(doors: &Doors, request: CheckRequest) -> CheckResponse {
    let received = Instant::now();
    let http = request.attributes.and_then(|all| all.request?.http);
    let head = head(&http.unwrap_or_default());
    match doors.admit(received, &head).await {
        Ok(slot) => {
            doors.ends.keep(request_id(&head), slot);
            CheckResponse {
                status: Some(Status::default()),
                http_response: Some(HttpResponse::Ok(OkHttpResponse::default())),
            }
        }
        Err(refusal) => refusal::denied(&head, &refusal),
    }
}

fn head(request: &HttpRequest) -> Parts {
    let mut head = Head::new();
    head.method(request.method.as_bytes());
    head.host(request.host.as_bytes());
    head.path(request.path.as_bytes());
    for (name, value) in &request.headers {
        head.field(name, value.as_bytes());
    }
    for field in request.header_map.iter().flat_map(|map| &map.headers) {
        head.field(&field.key, field.bytes());
    }
    head.finish()
}

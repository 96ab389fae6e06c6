//! A request in the form that the protocol of its connection has for it.
//!
//! HTTP/1.1 has the path in the target and the host in a header, HTTP/2 has both in the target. A
//! request that is sent again may change from one to the other.

use http::header::{CONNECTION, HOST, TRANSFER_ENCODING};
use http::uri::{PathAndQuery, Scheme, Uri};
use http::{HeaderValue, Method, Version};

use crate::message::Request;
use crate::request::upload::Upload;

/// `wanted` is the host that the client asked for, `own` the replica's.
pub(crate) fn for_http1(
    request: &mut Request<Upload>,
    wanted: Option<&HeaderValue>,
    own: &HeaderValue,
) {
    request.version = Version::HTTP_11;
    let was_absolute = request.uri.authority().is_some();
    if was_absolute {
        request.uri = path_of(&request.uri).into();
    }
    // What the client asked for is there already, unless the request was shaped for HTTP/2 before.
    if was_absolute || wanted.is_none() {
        let host = wanted.unwrap_or(own).clone();
        request.headers.insert(HOST, host);
    }
}

pub(crate) fn for_http2(request: &mut Request<Upload>, scheme: Scheme, host: &HeaderValue) {
    request.version = Version::HTTP_2;
    request.headers.remove(HOST);
    request.headers.remove(TRANSFER_ENCODING);
    request.headers.remove(CONNECTION);
    let mut parts = http::uri::Parts::default();
    parts.scheme = Some(scheme);
    // It passed the check of its syntax when the request came in.
    parts.authority = host.to_str().ok().and_then(|host| host.parse().ok());
    parts.path_and_query = Some(path_of(&request.uri));
    if let Ok(uri) = Uri::from_parts(parts) {
        request.uri = uri;
    }
}

fn path_of(uri: &Uri) -> PathAndQuery {
    uri.path_and_query()
        .cloned()
        .unwrap_or(PathAndQuery::from_static("/"))
}

/// The request with its body, which the first keeps no longer.
pub(crate) fn take(request: &mut Request<Upload>) -> Request<Upload> {
    Request {
        method: request.method.clone(),
        uri: request.uri.clone(),
        version: request.version,
        headers: request.headers.clone(),
        body: std::mem::replace(&mut request.body, Upload::Empty),
    }
}

/// RFC 9110 section 9.2.2, as far as anybody relies on it.
pub(crate) fn is_idempotent(method: &Method) -> bool {
    matches!(
        *method,
        Method::GET | Method::HEAD | Method::OPTIONS | Method::PUT | Method::DELETE
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(method: Method) -> Request<Upload> {
        let request = http::Request::builder().method(method).uri("/a?b");
        request
            .header(HOST, "shop.example")
            .body(Upload::Empty)
            .unwrap()
            .into()
    }

    const OWN: HeaderValue = HeaderValue::from_static("10.0.0.7:80");
    const WANTED: HeaderValue = HeaderValue::from_static("shop.example");

    #[test]
    fn a_request_changes_its_form_and_back() {
        let mut request = request(Method::GET);
        for_http2(&mut request, Scheme::HTTPS, &WANTED);
        assert_eq!(request.uri, "https://shop.example/a?b");
        assert!(!request.headers.contains(HOST));
        for_http1(&mut request, Some(&WANTED), &OWN);
        assert_eq!(request.uri, "/a?b");
        assert_eq!(request.headers[HOST], "shop.example");
    }

    #[test]
    fn a_replica_may_be_told_its_own_host() {
        let mut request = request(Method::GET);
        for_http1(&mut request, None, &OWN);
        assert_eq!(request.headers[HOST], OWN);
    }
}

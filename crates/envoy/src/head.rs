//! A request's head as Envoy describes it, in the types of the `http` crate.

use http::request::Parts;
use http::uri::{Authority, PathAndQuery};
use http::{HeaderName, HeaderValue, Method, Request, Uri};

const REQUEST_ID: &str = "x-request-id";

/// Collects a head. What is malformed is left out: Envoy has judged the request before.
pub(crate) struct Head {
    parts: Parts,
    authority: Option<Authority>,
    path: Option<PathAndQuery>,
}

impl Head {
    pub(crate) fn new() -> Self {
        Self {
            parts: Request::new(()).into_parts().0,
            authority: None,
            path: None,
        }
    }

    pub(crate) fn method(&mut self, method: &[u8]) {
        if let Ok(method) = Method::from_bytes(method) {
            self.parts.method = method;
        }
    }

    pub(crate) fn host(&mut self, host: &[u8]) {
        self.authority = Authority::try_from(host).ok();
    }

    pub(crate) fn path(&mut self, path: &[u8]) {
        self.path = PathAndQuery::try_from(path).ok();
    }

    /// A header, or a part of the request line by its name in HTTP/2.
    pub(crate) fn field(&mut self, name: &str, value: &[u8]) {
        match name {
            ":method" => self.method(value),
            ":authority" => self.host(value),
            ":path" => self.path(value),
            _ => self.header(name, value),
        }
    }

    fn header(&mut self, name: &str, value: &[u8]) {
        let name = HeaderName::try_from(name);
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(value)) {
            self.parts.headers.append(name, value);
        }
    }

    pub(crate) fn finish(mut self) -> Parts {
        let mut uri = Uri::builder().path_and_query(self.path.unwrap_or_else(root));
        if let Some(authority) = self.authority {
            uri = uri.scheme("http").authority(authority);
        }
        self.parts.uri = uri.build().unwrap_or_default();
        self.parts
    }
}

fn root() -> PathAndQuery {
    PathAndQuery::from_static("/")
}

/// What Envoy calls the request in its access log.
pub(crate) fn request_id(head: &Parts) -> Option<&str> {
    head.headers.get(REQUEST_ID)?.to_str().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_has_what_rules_look_at() {
        let mut head = Head::new();
        head.field(":method", b"POST");
        head.field(":authority", b"shop.example:8080");
        head.field(":path", b"/pay?a=1");
        head.field("x-request-id", b"7");
        head.field("bad name", b"x");
        let head = head.finish();
        assert_eq!(head.method, "POST");
        assert_eq!(head.uri.host(), Some("shop.example"));
        assert_eq!(head.uri.path(), "/pay");
        assert_eq!(request_id(&head), Some("7"));
        assert_eq!(head.headers.len(), 1);
    }
}

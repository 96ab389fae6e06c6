//! Who may call the admin API.
//!
//! Three dangers. Anybody who reaches the port: hence loopback, or a token. A web page in the
//! browser of somebody who reaches the port, posting blindly (CSRF): hence the check of `Origin`,
//! and JSON as the only content type, which a page cannot send elsewhere without asking first. The
//! same page behind a name that it points at 127.0.0.1 (DNS rebinding), to read as well: hence the
//! check of `Host`: an address or a known name. An address cannot be rebound.

use std::net::IpAddr;

use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, ORIGIN, WWW_AUTHENTICATE};
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderMap, HeaderName, Method, StatusCode};
use subtle::ConstantTimeEq;

use super::error::ApiError;
use crate::config::{Admin, Secret};

/// What a caller may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    Full,
    /// Look and change nothing: it carries no token, and `admin.read_only_without_token` is on.
    ReadOnly,
}

/// Checks a call.
pub(super) fn check(
    parts: &Parts,
    token: Option<&Secret>,
    admin: &Admin,
) -> Result<Access, ApiError> {
    let host = host(parts)?;
    check_host(&host, &admin.hosts)?;
    let reads = parts.method == Method::GET || parts.method == Method::HEAD;
    let bare = !parts.headers.contains_key(AUTHORIZATION);
    if reads && bare && token.is_some() && admin.read_only_without_token {
        return Ok(Access::ReadOnly);
    }
    check_token(&parts.headers, token)?;
    if !reads {
        check_origin(&parts.headers, &host)?;
        // A page cannot send a DELETE elsewhere without asking first, whatever its content.
        if parts.method != Method::DELETE {
            check_content_type(&parts.headers)?;
        }
    }
    Ok(Access::Full)
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

fn host(parts: &Parts) -> Result<Authority, ApiError> {
    let written = text(&parts.headers, HOST).or(parts.uri.authority().map(Authority::as_str));
    written
        .and_then(|host| host.parse().ok())
        .ok_or_else(|| forbidden("the call names no host", "send a Host header"))
}

fn check_host(host: &Authority, hosts: &[String]) -> Result<(), ApiError> {
    let name = host.host().trim_start_matches('[').trim_end_matches(']');
    let known = name.parse::<IpAddr>().is_ok()
        || name.eq_ignore_ascii_case("localhost")
        || hosts.iter().any(|known| known.eq_ignore_ascii_case(name));
    if known {
        Ok(())
    } else {
        Err(forbidden(
            format!("the admin API is not known as `{name}`"),
            "call it by its address, or add the name to `admin.hosts`",
        ))
    }
}

fn check_token(headers: &HeaderMap, token: Option<&Secret>) -> Result<(), ApiError> {
    let Some(token) = token else {
        return Ok(());
    };
    let given = text(headers, AUTHORIZATION)
        .and_then(|value| value.split_once(' '))
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
        .map(|(_, given)| given.trim());
    let same = |given: &str| bool::from(given.as_bytes().ct_eq(token.expose().as_bytes()));
    if given.is_some_and(same) {
        Ok(())
    } else {
        Err(ApiError::new(
            StatusCode::UNAUTHORIZED,
            "the call carries no valid token",
            "send `Authorization: Bearer TOKEN` with the token of `admin.token`",
        )
        .with_header(WWW_AUTHENTICATE, "Bearer"))
    }
}

/// Browsers send `Origin` with every POST; programs send none.
fn check_origin(headers: &HeaderMap, host: &Authority) -> Result<(), ApiError> {
    let Some(origin) = headers.get(ORIGIN) else {
        return Ok(());
    };
    let same = origin
        .to_str()
        .ok()
        .and_then(|origin| origin.split_once("://"))
        .is_some_and(|(_, authority)| authority.eq_ignore_ascii_case(host.as_str()));
    if same {
        Ok(())
    } else {
        Err(forbidden(
            "the call comes from a page of another origin",
            "call from the admin listener's own pages, or without a browser",
        ))
    }
}

fn check_content_type(headers: &HeaderMap) -> Result<(), ApiError> {
    let json = text(headers, CONTENT_TYPE)
        .map(|value| value.split(';').next().unwrap_or_default().trim())
        .is_some_and(|value| value.eq_ignore_ascii_case("application/json"));
    if json {
        Ok(())
    } else {
        Err(ApiError::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "the body is not declared as JSON",
            "send `Content-Type: application/json`",
        ))
    }
}

fn forbidden(cause: impl Into<String>, remedy: &str) -> ApiError {
    ApiError::new(StatusCode::FORBIDDEN, cause, remedy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    fn call(method: &str, headers: &[(&str, &str)]) -> Parts {
        let mut request = Request::builder().method(method).uri("/api/status");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    fn status(method: &str, headers: &[(&str, &str)], token: Option<&str>) -> u16 {
        let token = token.map(Secret::new);
        check(&call(method, headers), token.as_ref(), &admin(false))
            .map_or_else(|error| error.status.as_u16(), |_| 200)
    }

    fn admin(read_only_without_token: bool) -> Admin {
        Admin {
            hosts: vec!["proxy.internal".to_owned()],
            read_only_without_token,
            ..Admin::default()
        }
    }

    #[test]
    fn callers_without_a_token_may_look_where_that_is_configured() {
        let token = Some(&Secret::new("open sesame"));
        let access = |method, headers: &[(&str, &str)], token, open| {
            let checked = check(&call(method, headers), token, &admin(open));
            checked.map_err(|error| error.status.as_u16())
        };
        let host = ("host", "127.0.0.1");
        let json = ("content-type", "application/json");
        let known = ("authorization", "Bearer open sesame");
        let wrong = ("authorization", "Bearer wrong");
        assert_eq!(access("GET", &[host], token, false), Err(401));
        assert_eq!(access("GET", &[host], token, true), Ok(Access::ReadOnly));
        assert_eq!(access("HEAD", &[host], token, true), Ok(Access::ReadOnly));
        for method in ["POST", "PUT", "PATCH", "DELETE"] {
            assert_eq!(access(method, &[host, json], token, true), Err(401));
            assert_eq!(
                access(method, &[host, json, known], token, true),
                Ok(Access::Full)
            );
        }
        assert_eq!(access("GET", &[host, known], token, true), Ok(Access::Full));
        assert_eq!(
            access("GET", &[host, wrong], token, true),
            Err(401),
            "it says so"
        );
        let foreign = [("host", "evil.example")];
        assert_eq!(
            access("GET", &foreign, token, true),
            Err(403),
            "no rebinding"
        );
        assert_eq!(access("GET", &[host], None, true), Ok(Access::Full));
    }

    #[test]
    fn only_addresses_and_known_names_are_answered() {
        for host in [
            "127.0.0.1:9190",
            "[::1]:9190",
            "localhost",
            "Proxy.Internal:9",
        ] {
            assert_eq!(status("GET", &[("host", host)], None), 200, "{host}");
        }
        for host in ["evil.example:9190", "127.0.0.1.evil.example", "a b"] {
            assert_eq!(status("GET", &[("host", host)], None), 403, "{host}");
        }
        assert_eq!(status("GET", &[], None), 403);
    }

    #[test]
    fn a_token_is_needed_where_there_is_one() {
        let with = |value| [("host", "127.0.0.1"), ("authorization", value)];
        let token = Some("open sesame");
        assert_eq!(status("GET", &[("host", "127.0.0.1")], token), 401);
        assert_eq!(status("GET", &with("Bearer wrong"), token), 401);
        assert_eq!(status("GET", &with("Basic open sesame"), token), 401);
        assert_eq!(status("GET", &with("bearer open sesame"), token), 200);
    }

    #[test]
    fn pages_of_other_origins_change_nothing() {
        let post = |origin| {
            let json = ("content-type", "application/json; charset=utf-8");
            [("host", "127.0.0.1:9190"), json, ("origin", origin)]
        };
        assert_eq!(status("POST", &post("http://127.0.0.1:9190"), None), 200);
        assert_eq!(status("POST", &post("https://evil.example"), None), 403);
        assert_eq!(status("POST", &post("http://127.0.0.1:8080"), None), 403);
        assert_eq!(status("POST", &post("null"), None), 403);
    }

    #[test]
    fn changes_are_json() {
        let host = ("host", "127.0.0.1");
        assert_eq!(status("POST", &[host], None), 415);
        let form = ("content-type", "text/plain");
        assert_eq!(status("POST", &[host, form], None), 415);
    }
}

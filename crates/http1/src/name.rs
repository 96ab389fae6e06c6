//! Names of headers.
//!
//! Nearly every header that comes by has one of a few dozen names, in one of two spellings. Those
//! are recognised as they stand. To read a name in any spelling costs several times as much: it is
//! copied letter by letter into lower case before it is looked up.

use http::HeaderName;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, ACCEPT_LANGUAGE, ACCEPT_RANGES, ACCESS_CONTROL_ALLOW_ORIGIN, AGE,
    AUTHORIZATION, CACHE_CONTROL, CONNECTION, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_LENGTH,
    CONTENT_SECURITY_POLICY, CONTENT_TYPE, COOKIE, DATE, ETAG, EXPIRES, HOST, IF_MODIFIED_SINCE,
    IF_NONE_MATCH, LAST_MODIFIED, LOCATION, ORIGIN, PRAGMA, RANGE, REFERER, REFERRER_POLICY,
    SERVER, SET_COOKIE, STRICT_TRANSPORT_SECURITY, TE, TRANSFER_ENCODING, UPGRADE,
    UPGRADE_INSECURE_REQUESTS, USER_AGENT, VARY, VIA, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};

use super::Violation;

/// The name of a header, however it is spelled.
pub(crate) fn read(name: &[u8]) -> Result<HeaderName, Violation> {
    match usual(name) {
        Some(name) => Ok(name),
        None => HeaderName::from_bytes(name).map_err(|_| Violation::FieldName),
    }
}

/// Names that most messages have, as most programs spell them.
macro_rules! usual {
    ($($($spelling:literal)|+ => $name:ident,)+) => {
        fn usual(name: &[u8]) -> Option<HeaderName> {
            match name {
                $($($spelling)|+ => Some($name),)+
                _ => None,
            }
        }

        #[cfg(test)]
        const SPELLINGS: &[&[u8]] = &[$($($spelling),+),+];
    };
}

usual! {
    b"TE" | b"te" => TE,
    b"Age" | b"age" => AGE,
    b"Via" | b"via" => VIA,
    b"Date" | b"date" => DATE,
    b"ETag" | b"Etag" | b"etag" => ETAG,
    b"Host" | b"host" => HOST,
    b"Vary" | b"vary" => VARY,
    b"Range" | b"range" => RANGE,
    b"Accept" | b"accept" => ACCEPT,
    b"Cookie" | b"cookie" => COOKIE,
    b"Origin" | b"origin" => ORIGIN,
    b"Pragma" | b"pragma" => PRAGMA,
    b"Server" | b"server" => SERVER,
    b"Expires" | b"expires" => EXPIRES,
    b"Referer" | b"referer" => REFERER,
    b"Upgrade" | b"upgrade" => UPGRADE,
    b"Location" | b"location" => LOCATION,
    b"Connection" | b"connection" => CONNECTION,
    b"Set-Cookie" | b"set-cookie" => SET_COOKIE,
    b"User-Agent" | b"user-agent" => USER_AGENT,
    b"Content-Type" | b"content-type" => CONTENT_TYPE,
    b"Accept-Ranges" | b"accept-ranges" => ACCEPT_RANGES,
    b"Authorization" | b"authorization" => AUTHORIZATION,
    b"Cache-Control" | b"cache-control" => CACHE_CONTROL,
    b"If-None-Match" | b"if-none-match" => IF_NONE_MATCH,
    b"Last-Modified" | b"last-modified" => LAST_MODIFIED,
    b"Content-Length" | b"content-length" => CONTENT_LENGTH,
    b"Accept-Encoding" | b"accept-encoding" => ACCEPT_ENCODING,
    b"Accept-Language" | b"accept-language" => ACCEPT_LANGUAGE,
    b"Referrer-Policy" | b"referrer-policy" => REFERRER_POLICY,
    b"X-Frame-Options" | b"x-frame-options" => X_FRAME_OPTIONS,
    b"Content-Encoding" | b"content-encoding" => CONTENT_ENCODING,
    b"Content-Language" | b"content-language" => CONTENT_LANGUAGE,
    b"If-Modified-Since" | b"if-modified-since" => IF_MODIFIED_SINCE,
    b"Transfer-Encoding" | b"transfer-encoding" => TRANSFER_ENCODING,
    b"X-Content-Type-Options" | b"x-content-type-options" => X_CONTENT_TYPE_OPTIONS,
    b"Content-Security-Policy" | b"content-security-policy" => CONTENT_SECURITY_POLICY,
    b"Strict-Transport-Security" | b"strict-transport-security" => STRICT_TRANSPORT_SECURITY,
    b"Upgrade-Insecure-Requests" | b"upgrade-insecure-requests" => UPGRADE_INSECURE_REQUESTS,
    b"Access-Control-Allow-Origin" | b"access-control-allow-origin" => ACCESS_CONTROL_ALLOW_ORIGIN,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is recognised is what reading it letter by letter gives.
    #[test]
    fn usual_names_are_read_as_any_other() {
        for spelling in SPELLINGS {
            let name = HeaderName::from_bytes(spelling).unwrap();
            assert_eq!(usual(spelling), Some(name));
        }
    }

    #[test]
    fn other_names_and_spellings_are_read_too() {
        assert_eq!(read(b"hOST"), Ok(HOST));
        assert_eq!(read(b"X-Own"), Ok(HeaderName::from_static("x-own")));
        assert_eq!(read(b"a b"), Err(Violation::FieldName));
        assert_eq!(read(b""), Err(Violation::FieldName));
    }
}

//! The headers of a request that mean something to us, found in one walk.
//!
//! We care about a dozen names: one walk is cheaper than a dozen.

use http::HeaderValue;
use http::header::{
    ACCEPT, CONTENT_LENGTH, CONTENT_TYPE, COOKIE, EXPECT, HOST, TRANSFER_ENCODING, UPGRADE,
};

use crate::message::Fields;

/// What a header line costs in memory and on the wire beside name and value.
const LINE_OVERHEAD: usize = 4;

/// References to the headers that matter.
#[derive(Debug, Default)]
pub(crate) struct KnownHeaders<'a> {
    pub(crate) host: Option<&'a HeaderValue>,
    /// Whether there is more than one `Host`.
    pub(crate) hosts: bool,
    pub(crate) accept: Option<&'a HeaderValue>,
    pub(crate) content_type: Option<&'a HeaderValue>,
    pub(crate) expect: Option<&'a HeaderValue>,
    pub(crate) upgrade: Option<&'a HeaderValue>,
    pub(crate) deadline_ms: Option<&'a HeaderValue>,
    pub(crate) cost: Option<&'a HeaderValue>,
    pub(crate) grpc_timeout: Option<&'a HeaderValue>,
    pub(crate) load_format: Option<&'a HeaderValue>,
    pub(crate) traceparent: Option<&'a HeaderValue>,
    /// Whether there is more than one `traceparent`.
    pub(crate) traceparents: bool,
    /// Whether a body is announced.
    pub(crate) body: bool,
    /// Number of headers. Cookies do not count: HTTP/2 may split them.
    pub(crate) fields: usize,
    /// Bytes of all headers.
    pub(crate) bytes: usize,
}

impl<'a> KnownHeaders<'a> {
    pub(crate) fn of(headers: &'a Fields) -> Self {
        let mut found = Self::default();
        for (name, value) in headers.iter() {
            found.bytes += name.as_str().len() + value.len() + LINE_OVERHEAD;
            found.fields += usize::from(*name != COOKIE);
            match *name {
                HOST => {
                    found.hosts |= found.host.is_some();
                    found.host = Some(value);
                }
                ACCEPT => found.accept = found.accept.or(Some(value)),
                CONTENT_TYPE => found.content_type = Some(value),
                EXPECT => found.expect = Some(value),
                UPGRADE => found.upgrade = Some(value),
                CONTENT_LENGTH => found.body |= value != "0",
                TRANSFER_ENCODING => found.body = true,
                _ => match name.as_str() {
                    "tidegate-deadline-ms" => found.deadline_ms = Some(value),
                    "tidegate-cost" => found.cost = Some(value),
                    "grpc-timeout" => found.grpc_timeout = Some(value),
                    "endpoint-load-metrics-format" => found.load_format = Some(value),
                    "traceparent" => {
                        found.traceparents |= found.traceparent.is_some();
                        found.traceparent = Some(value);
                    }
                    _ => {}
                },
            }
        }
        found
    }
}

//! `envoy.config.core.v3`, `envoy.type.v3`, `google.protobuf` and `google.rpc`.

use std::time::Duration as StdDuration;

use prost::Message;

/// A header. Envoy writes `raw_value` unless it is told to write `value`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct HeaderValue {
    #[prost(string, tag = "1")]
    pub(crate) key: String,
    #[prost(string, tag = "2")]
    pub(crate) value: String,
    #[prost(bytes = "vec", tag = "3")]
    pub(crate) raw_value: Vec<u8>,
}

impl HeaderValue {
    /// A header with a value of text, which every filter of Envoy reads.
    #[must_use]
    pub(crate) fn text(key: &str, value: &str) -> Self {
        Self {
            key: key.to_owned(),
            value: value.to_owned(),
            raw_value: Vec::new(),
        }
    }

    /// A header with its value as bytes, which `ext_proc` reads.
    #[must_use]
    pub(crate) fn raw(key: &str, value: &[u8]) -> Self {
        Self {
            key: key.to_owned(),
            value: String::new(),
            raw_value: value.to_vec(),
        }
    }

    /// The value, in whichever of the two fields it is.
    #[must_use]
    pub(crate) fn bytes(&self) -> &[u8] {
        if self.raw_value.is_empty() {
            self.value.as_bytes()
        } else {
            &self.raw_value
        }
    }
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct HeaderMap {
    #[prost(message, repeated, tag = "1")]
    pub(crate) headers: Vec<HeaderValue>,
}

/// A header to set.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct HeaderValueOption {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<HeaderValue>,
    /// What becomes of a header of the same name.
    #[prost(int32, tag = "3")]
    pub(crate) append_action: i32,
}

impl HeaderValueOption {
    /// `OVERWRITE_IF_EXISTS_OR_ADD`: a client's header of the same name is not kept.
    pub(crate) const OVERWRITE: i32 = 2;

    /// Sets a header whatever was there.
    #[must_use]
    pub(crate) fn overwrite(header: HeaderValue) -> Self {
        Self {
            header: Some(header),
            append_action: Self::OVERWRITE,
        }
    }
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct HttpStatus {
    /// Envoy's `StatusCode` has the numbers of HTTP.
    #[prost(int32, tag = "1")]
    pub(crate) code: i32,
}

/// `google.rpc.Status`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Status {
    #[prost(int32, tag = "1")]
    pub(crate) code: i32,
    #[prost(string, tag = "2")]
    pub(crate) message: String,
}

/// `google.protobuf.Duration`.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct Duration {
    #[prost(int64, tag = "1")]
    pub(crate) seconds: i64,
    #[prost(int32, tag = "2")]
    pub(crate) nanos: i32,
}

impl From<StdDuration> for Duration {
    fn from(duration: StdDuration) -> Self {
        Self {
            seconds: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
            nanos: duration.subsec_nanos() as i32,
        }
    }
}

impl Duration {
    /// In seconds.
    #[must_use]
    pub(crate) fn as_seconds(&self) -> f64 {
        self.seconds as f64 + f64::from(self.nanos) * 1e-9
    }
}

/// `google.protobuf.UInt32Value`.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct UInt32Value {
    #[prost(uint32, tag = "1")]
    pub(crate) value: u32,
}

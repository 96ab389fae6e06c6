//! `envoy.service.accesslog.v3` and `envoy.data.accesslog.v3`.

use prost::Message;

use super::core::{Duration, UInt32Value};

#[derive(Clone, PartialEq, Message)]
pub(crate) struct LogMessage {
    #[prost(message, optional, tag = "2")]
    pub(crate) http_logs: Option<HttpLogs>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct LogsResponse {}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct HttpLogs {
    #[prost(message, repeated, tag = "1")]
    pub(crate) entries: Vec<HttpLogEntry>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct HttpLogEntry {
    #[prost(message, optional, tag = "1")]
    pub(crate) common: Option<Common>,
    #[prost(message, optional, tag = "3")]
    pub(crate) request: Option<RequestProperties>,
    #[prost(message, optional, tag = "4")]
    pub(crate) response: Option<ResponseProperties>,
}

/// Times count from the start of the request.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Common {
    #[prost(message, optional, tag = "7")]
    pub(crate) first_upstream_tx: Option<Duration>,
    #[prost(message, optional, tag = "10")]
    pub(crate) last_upstream_rx: Option<Duration>,
    #[prost(message, optional, tag = "16")]
    pub(crate) flags: Option<ResponseFlags>,
    #[prost(message, optional, tag = "23")]
    pub(crate) duration: Option<Duration>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ResponseFlags {
    #[prost(bool, tag = "15")]
    pub(crate) downstream_connection_termination: bool,
    #[prost(bool, tag = "28")]
    pub(crate) downstream_remote_reset: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RequestProperties {
    #[prost(string, tag = "9")]
    pub(crate) request_id: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ResponseProperties {
    #[prost(message, optional, tag = "1")]
    pub(crate) response_code: Option<UInt32Value>,
}

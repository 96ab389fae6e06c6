//! `envoy.service.ext_proc.v3`.

use prost::{Message, Oneof};

use super::core::{HeaderMap, HeaderValueOption, HttpStatus};

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ProcessingRequest {
    #[prost(oneof = "FromEnvoy", tags = "2, 3, 4, 5, 6, 7")]
    pub(crate) request: Option<FromEnvoy>,
    /// Envoy does not wait for answers.
    #[prost(bool, tag = "10")]
    pub(crate) observability_mode: bool,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum FromEnvoy {
    #[prost(message, tag = "2")]
    RequestHeaders(HttpHeaders),
    #[prost(message, tag = "3")]
    ResponseHeaders(HttpHeaders),
    #[prost(message, tag = "4")]
    RequestBody(HttpBody),
    #[prost(message, tag = "5")]
    ResponseBody(HttpBody),
    #[prost(message, tag = "6")]
    RequestTrailers(HttpTrailers),
    #[prost(message, tag = "7")]
    ResponseTrailers(HttpTrailers),
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct HttpHeaders {
    #[prost(message, optional, tag = "1")]
    pub(crate) headers: Option<HeaderMap>,
    #[prost(bool, tag = "3")]
    pub(crate) end_of_stream: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct HttpBody {
    #[prost(bool, tag = "2")]
    pub(crate) end_of_stream: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct HttpTrailers {}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ProcessingResponse {
    #[prost(oneof = "ToEnvoy", tags = "1, 2, 3, 4, 5, 6, 7")]
    pub(crate) response: Option<ToEnvoy>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum ToEnvoy {
    #[prost(message, tag = "1")]
    RequestHeaders(HeadersResponse),
    #[prost(message, tag = "2")]
    ResponseHeaders(HeadersResponse),
    #[prost(message, tag = "3")]
    RequestBody(HeadersResponse),
    #[prost(message, tag = "4")]
    ResponseBody(HeadersResponse),
    #[prost(message, tag = "5")]
    RequestTrailers(TrailersResponse),
    #[prost(message, tag = "6")]
    ResponseTrailers(TrailersResponse),
    #[prost(message, tag = "7")]
    ImmediateResponse(ImmediateResponse),
}

/// Also `BodyResponse`, which has the same field.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct HeadersResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) response: Option<CommonResponse>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct CommonResponse {
    #[prost(message, optional, tag = "2")]
    pub(crate) header_mutation: Option<HeaderMutation>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TrailersResponse {}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct HeaderMutation {
    #[prost(message, repeated, tag = "1")]
    pub(crate) set_headers: Vec<HeaderValueOption>,
    #[prost(string, repeated, tag = "2")]
    pub(crate) remove_headers: Vec<String>,
}

/// The answer to the client, instead of that of the service.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ImmediateResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) status: Option<HttpStatus>,
    #[prost(message, optional, tag = "2")]
    pub(crate) headers: Option<HeaderMutation>,
    #[prost(bytes = "bytes", tag = "3")]
    pub(crate) body: bytes::Bytes,
    #[prost(message, optional, tag = "4")]
    pub(crate) grpc_status: Option<GrpcStatus>,
    /// For `%RESPONSE_CODE_DETAILS%` of Envoy's access log.
    #[prost(string, tag = "5")]
    pub(crate) details: String,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct GrpcStatus {
    #[prost(uint32, tag = "1")]
    pub(crate) status: u32,
}

//! HTTP/1.1 on the wire: heads and bodies read and written, without sockets.
//!
//! Two parties that read the same bytes must not disagree about where a message ends: one that
//! exploits a disagreement gets a request past the one into the other ("request smuggling"). So
//! what clients send is read by the strict grammar of RFC 9112 sections 2.2, 3, 5, 6 and 7.1 and
//! refused where it deviates, and what goes out is always written anew, in one spelling.
//!
//! Bytes in, a message or a [`Violation`] out. The proxy, the load generator and others that have a
//! socket put them on it. A head that comes in pieces is not read from its start again.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`message`] | requests and responses with their headers in a list |
//! | [`request`], [`response`] | heads that are read |
//! | [`body`] | bodies taken out of their framing |
//! | [`mod@write`] | heads and bodies as they are sent |
//! | [`hop`] | headers that concern one connection only |
//! | [`grpc`] | the deadline of a gRPC client |
//! | [`event_stream`] | server-sent events, written and read |
//! | [`input`], [`output`] | buffers of a connection; sockets with the feature `io` |
//!
//! Decision: docs/decisions/0265-http1-as-a-crate.md.

pub mod ascii_class;
pub mod body;
mod chunk;
pub mod event_stream;
mod field;
pub mod grpc;
pub mod hop;
#[cfg(feature = "io")]
pub mod input;
pub mod message;
mod name;
pub mod output;
pub mod request;
pub mod response;
pub mod write;

/// What is wrong with the bytes of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// A line ends in LF alone.
    #[error("a line ends in LF without CR")]
    BareLf,
    /// The request line has other parts.
    #[error("the request line is not METHOD SP TARGET SP HTTP/1.1")]
    RequestLine,
    /// The status line has other parts.
    #[error("the status line is not HTTP/1.1 SP STATUS")]
    StatusLine,
    /// Another version of HTTP, or another protocol.
    #[error("the HTTP version is not supported")]
    Version,
    /// A header is continued on the next line (obs-fold).
    #[error("a header line is folded")]
    Folded,
    /// A header's name is not a token.
    #[error("a header's name is malformed")]
    FieldName,
    /// A header's value has a control character.
    #[error("a header's value contains a control character")]
    FieldValue,
    /// The length is no number, or there are two.
    #[error("Content-Length is malformed or repeated")]
    ContentLength,
    /// Another coding than `chunked`.
    #[error("the transfer coding is not supported")]
    TransferCoding,
    /// The end of the body could be read in two ways.
    #[error("Transfer-Encoding is repeated, or beside Content-Length, or in HTTP/1.0")]
    Framing,
    /// No end of the request line within the limit.
    #[error("the request line is too long")]
    TargetTooLong,
    /// More bytes than the limit.
    #[error("the headers are too large")]
    HeadTooLarge,
    /// More header lines than the limit.
    #[error("there are too many headers")]
    TooManyHeaders,
    /// A chunk is not framed as it has to be.
    #[error("a chunk of the body is malformed")]
    Chunk,
    /// The driver gave the head up.
    #[error("the headers did not arrive in time")]
    HeadTimeout,
}

/// Bounds on a head, and on the trailers of a body.
#[derive(Debug, Clone, Copy)]
pub struct HeadLimits {
    /// Longest head, or trailers.
    pub bytes: usize,
    /// Most header lines.
    pub fields: usize,
}

#[cfg(test)]
mod tests;

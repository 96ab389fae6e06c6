//! HTTP/1.1 on the wire: heads and bodies read and written, without sockets.
//!
//! Two parties that read the same bytes must not disagree about where a message ends: whoever
//! exploits a disagreement gets a request past the one into the other ("request smuggling"). So
//! what clients send is read by the strict grammar of RFC 9112 sections 2.2, 3, 5, 6 and 7.1 and
//! refused where it deviates, and what goes out is always written anew, in one spelling.
//!
//! Bytes in, a message or a [`Violation`] out: [`crate::client`] and [`crate::upstream`] put it on
//! sockets. A head that comes in pieces is not read from its start again.

pub(crate) mod body;
mod chunk;
mod field;
pub(crate) mod input;
mod name;
pub(crate) mod output;
pub(crate) mod request;
pub(crate) mod response;
pub(crate) mod write;

/// What is wrong with the bytes of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Violation {
    #[error("a line ends in LF without CR")]
    BareLf,
    #[error("the request line is not METHOD SP TARGET SP HTTP/1.1")]
    RequestLine,
    #[error("the status line is not HTTP/1.1 SP STATUS")]
    StatusLine,
    #[error("the HTTP version is not supported")]
    Version,
    #[error("a header line is folded")]
    Folded,
    #[error("a header's name is malformed")]
    FieldName,
    #[error("a header's value contains a control character")]
    FieldValue,
    #[error("Content-Length is malformed or repeated")]
    ContentLength,
    #[error("the transfer coding is not supported")]
    TransferCoding,
    #[error("Transfer-Encoding is repeated, or beside Content-Length, or in HTTP/1.0")]
    Framing,
    #[error("the request line is too long")]
    TargetTooLong,
    #[error("the headers are too large")]
    HeadTooLarge,
    #[error("there are too many headers")]
    TooManyHeaders,
    #[error("a chunk of the body is malformed")]
    Chunk,
    #[error("the headers did not arrive in time")]
    HeadTimeout,
}

/// Bounds on a head, and on the trailers of a body.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HeadLimits {
    pub(crate) bytes: usize,
    pub(crate) fields: usize,
}

#[cfg(test)]
mod tests;

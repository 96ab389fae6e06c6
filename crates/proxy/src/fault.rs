//! Why a request is not answered by a replica. Made where it happens; turned into HTTP by
//! [`crate::refuse`] alone.

use std::time::Duration;

use http::HeaderValue;
use tidegate_sentry::Refusal;

use crate::channel::Held;
use crate::edge::Closed;
use crate::http1::Violation;
use crate::metrics::{Outcome, UpstreamFailure};

/// Why a request is not answered by a replica.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Fault {
    /// Its bytes are not HTTP as RFC 9112 has it.
    Malformed(Violation),
    /// It is HTTP, but not a request we pass on.
    Invalid(Invalid),
    /// No application has its host and path.
    Unrouted,
    /// Its client's network is not served.
    Forbidden,
    /// It is to be made again, there.
    Redirect(Box<HeaderValue>),
    /// The application is closed for maintenance.
    Maintenance(Box<Closed>),
    /// Its client, tenant, key or path has used up its quota.
    Quota(Overdrawn),
    /// The replica's answer is larger than allowed.
    ResponseTooLarge,
    /// It asks what is on the way, and may go no further than here.
    LastHop,
    /// The engine refused it.
    Shed(Refusal),
    /// The client was told to hold back, and did not.
    Held(Held),
    /// Too many bodies that do not fit into memory are on their way already.
    TooManyUploads,
    /// Requests of its application hold as many client connections as it may have while others
    /// need some.
    TooManyConnections,
    /// The client cancels requests as fast as it makes them.
    TooManyResets,
    /// A replica failed.
    Upstream(UpstreamFailure),
    /// No answer in time.
    Deadline,
    /// The client is gone; nobody reads an answer.
    Departed,
}

/// A quota that is used up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Overdrawn {
    /// After this long one more request may be within it.
    pub(crate) wait: Duration,
    /// Its name.
    pub(crate) quota: Box<str>,
    /// What it bounds.
    pub(crate) bound: QuotaBound,
}

/// The bound of a quota that a request would have exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QuotaBound {
    /// Requests at once after a silence of `window_s` seconds.
    Rate { burst: u64, window_s: u64 },
    /// Requests inside at a time.
    Concurrency(u32),
}

/// What is wrong with a request that is well-formed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Invalid {
    #[error("there has to be exactly one Host")]
    Host,
    #[error("Host is not a host and a port")]
    HostSyntax,
    #[error("the target and Host name different hosts")]
    HostMismatch,
    #[error("the method is not supported here")]
    Method,
    #[error("the target is not a path")]
    Target,
    #[error("the expectation is not 100-continue")]
    Expectation,
    #[error("a field's value begins or ends with white space")]
    FieldValue,
    #[error("the body is too large")]
    BodyTooLarge,
    #[error("the body broke off or is malformed")]
    Body,
    #[error("the body did not arrive in time")]
    BodyTimeout,
}

impl From<Invalid> for Fault {
    fn from(invalid: Invalid) -> Self {
        Self::Invalid(invalid)
    }
}

impl From<Refusal> for Fault {
    fn from(refusal: Refusal) -> Self {
        Self::Shed(refusal)
    }
}

impl Fault {
    /// Whether the connection has to end with the answer: its framing can no longer be trusted,
    /// or the rest of a body is not worth waiting for.
    pub(crate) fn closes(&self) -> bool {
        match self {
            Self::Malformed(_) => true,
            Self::Invalid(invalid) => !matches!(invalid, Invalid::Method | Invalid::Target),
            Self::Forbidden | Self::Redirect(_) | Self::Maintenance(_) | Self::Quota(_) => false,
            Self::ResponseTooLarge => false,
            Self::Unrouted | Self::LastHop | Self::Shed(_) | Self::Held(_) => false,
            Self::TooManyUploads | Self::TooManyConnections => true,
            Self::Upstream(_) | Self::Deadline => false,
            Self::TooManyResets | Self::Departed => true,
        }
    }

    /// What it is to the client.
    pub(crate) fn outcome(&self) -> Outcome {
        match self {
            Self::Shed(_) | Self::TooManyUploads | Self::TooManyConnections | Self::Held(_) => {
                Outcome::Shed
            }
            Self::Upstream(_) | Self::Deadline | Self::ResponseTooLarge => Outcome::Failed,
            Self::Departed => Outcome::Abandoned,
            _ => Outcome::Rejected,
        }
    }

    /// The word in the access log.
    pub(crate) fn as_str(&self) -> &'static str {
        match self {
            Self::Malformed(_) => "malformed",
            Self::Invalid(_) => "invalid",
            Self::Unrouted => "unrouted",
            Self::Forbidden => "forbidden",
            Self::Redirect(_) => "redirect",
            Self::Maintenance(_) => "maintenance",
            Self::Quota(_) => "quota",
            Self::ResponseTooLarge => "response-too-large",
            Self::LastHop => "last-hop",
            Self::Shed(refusal) => refusal.reason.as_str(),
            Self::Held(held) => held.as_str(),
            Self::TooManyUploads => "uploads",
            Self::TooManyConnections => "connections",
            Self::TooManyResets => "resets",
            Self::Upstream(failure) => failure.as_str(),
            Self::Deadline => "deadline",
            Self::Departed => "abandoned",
        }
    }
}

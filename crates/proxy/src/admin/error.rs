//! What a caller of the admin API reads when a call is refused: the cause and the remedy.

use http::{HeaderName, StatusCode};
use schemars::JsonSchema;
use serde::Serialize;

/// A refused call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub(super) struct ApiError {
    #[serde(skip)]
    pub(super) status: StatusCode,
    /// A header that belongs to the status.
    #[serde(skip)]
    pub(super) header: Option<(HeaderName, &'static str)>,
    /// What is wrong.
    pub(super) cause: String,
    /// What to do about it.
    pub(super) remedy: String,
}

impl ApiError {
    pub(super) fn new(
        status: StatusCode,
        cause: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            status,
            header: None,
            cause: cause.into(),
            remedy: remedy.into(),
        }
    }

    pub(super) fn with_header(self, name: HeaderName, value: &'static str) -> Self {
        Self {
            header: Some((name, value)),
            ..self
        }
    }

    /// Splits a message of the form "cause; remedy", as all of the configuration's are.
    pub(super) fn from_message(status: StatusCode, message: &str) -> Self {
        let (cause, remedy) = message
            .rsplit_once("; ")
            .or_else(|| message.rsplit_once(": "))
            .unwrap_or((message, "mend it and call again"));
        Self::new(status, cause, remedy)
    }
}

//! What ends the arena early, in words.

use std::io;

/// The message names the cause and the remedy.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("{0}")]
    Said(String),
    #[error("{what}: {source}")]
    System { what: String, source: io::Error },
    #[error(transparent)]
    Load(#[from] tidegate_lab::load::LoadError),
    #[error(transparent)]
    Config(#[from] tidegate_config::ConfigError),
    #[error(transparent)]
    Scenario(#[from] tidegate_sim::scenario::ScenarioError),
    #[error(transparent)]
    Engine(#[from] tidegate_sentry::SentryError),
    #[error(transparent)]
    Report(#[from] tidegate_sim::report::ReportError),
}

impl Failure {
    pub(crate) fn said(message: impl Into<String>) -> Self {
        Self::Said(message.into())
    }

    /// For `map_err`: `what` was being done.
    pub(crate) fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::System { what, source }
    }
}

//! What the command line says when something is wrong.

use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::process::ExitCode;

/// One message with the cause and the place; exit status 2.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    /// A file could not be read or written.
    #[error("{path}: {source}")]
    File {
        /// Which file.
        path: String,
        /// What the system said.
        source: io::Error,
    },
    /// A file was refused.
    #[error(transparent)]
    Config(#[from] tidegate_config::ConfigError),
    /// Anything else a person has to mend; the message names the remedy.
    #[error("{0}")]
    Usage(String),
}

impl CliError {
    /// `--listen` cannot be had.
    pub(crate) fn cannot_listen(addr: SocketAddr, error: &io::Error) -> Self {
        Self::Usage(format!(
            "cannot listen on {addr}: {error}; choose another --listen"
        ))
    }

    /// Prints the message and gives the exit status.
    pub(crate) fn report(&self) -> ExitCode {
        // Where standard error cannot be written the exit status is what is left.
        let _ = writeln!(io::stderr(), "tidegate: {self}");
        ExitCode::from(2)
    }
}

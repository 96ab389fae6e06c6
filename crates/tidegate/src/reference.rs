//! `tidegate reference`: every key of the configuration file, generated from the types.

use std::process::ExitCode;

use tidegate_proxy::config::reference;

use crate::check::print;
use crate::error::CliError;

/// Prints every key of the configuration file with its meaning and default.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print the page docs/config.md instead of TOML.
    #[arg(long)]
    markdown: bool,
    /// Print the page docs/signals.md: every shed reason, event and metric.
    #[arg(long, conflicts_with = "markdown")]
    signals: bool,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, CliError> {
    print(&match (args.signals, args.markdown) {
        (true, _) => tidegate_proxy::admin::signals::markdown(),
        (false, true) => reference::markdown(),
        (false, false) => reference::toml(),
    })?;
    Ok(ExitCode::SUCCESS)
}

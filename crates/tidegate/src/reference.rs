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
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, CliError> {
    print(&match args.markdown {
        true => reference::markdown(),
        false => reference::toml(),
    })?;
    Ok(ExitCode::SUCCESS)
}

//! `tidegate completions`: what a shell needs to complete this command line.

use std::process::ExitCode;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::Cli;
use crate::check::print;
use crate::error::CliError;

/// Prints the completion script of a shell; packages install them.
///
/// For one session of bash: `source <(tidegate completions bash)`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The shell to complete for
    shell: Shell,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, CliError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "tidegate", &mut script);
    print(&String::from_utf8_lossy(&script))?;
    Ok(ExitCode::SUCCESS)
}

//! `tidegate man`: a manual page for each command, generated from its arguments.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::CommandFactory;

use crate::Cli;
use crate::error::CliError;

/// Writes a manual page for each command into a directory; packages install them.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The directory; made if it does not exist
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, CliError> {
    write(&args.directory).map_err(|error| {
        let directory = args.directory.display();
        CliError::Usage(format!(
            "the manual pages cannot be written to {directory}: {error}"
        ))
    })?;
    Ok(ExitCode::SUCCESS)
}

fn write(directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    clap_mangen::generate_to(Cli::command(), directory)
}

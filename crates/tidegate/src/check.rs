//! `tidegate check`: what is wrong with a configuration, or what it will do.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use tidegate_config::ConfigError;
use tidegate_proxy::config::{self, Loaded};

use crate::error::CliError;
use crate::run::listen_somewhere;

/// Says what is wrong with a configuration file, or what it will do.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The file to check.
    file: PathBuf,
}

/// Exit status 0 when the file can be put in force, 2 when not.
pub(crate) fn run(args: &Args) -> Result<ExitCode, CliError> {
    match config::load_with(&args.file, listen_somewhere) {
        Ok(loaded) => accept(&loaded),
        Err(problems) => Ok(refuse(&problems)),
    }
}

fn accept(loaded: &Loaded) -> Result<ExitCode, CliError> {
    let mut text = String::from("ok\n");
    for line in loaded.config.summary() {
        text += &format!("  {line}\n");
    }
    for warning in &loaded.warnings {
        text += &format!("warning: {warning}\n");
    }
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn refuse(problems: &[ConfigError]) -> ExitCode {
    for problem in problems {
        eprintln!("tidegate: {problem}");
    }
    ExitCode::from(2)
}

/// Writes to standard output; a reader that has seen enough (`| head`) is no error.
pub(crate) fn print(text: &str) -> Result<(), CliError> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(CliError::File {
            path: "standard output".to_owned(),
            source: error,
        }),
        _ => Ok(()),
    }
}

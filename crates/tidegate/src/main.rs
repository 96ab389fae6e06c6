//! The one binary: argument parsing and wiring only.
//!
//! Each subcommand is a module with an `Args` and a `run(Args) -> Result<ExitCode, CliError>`.

mod error;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Overload control for HTTP services.
#[derive(Debug, Parser)]
#[command(name = "tidegate", version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let outcome: Result<ExitCode, error::CliError> = match cli.command {};
    outcome.unwrap_or_else(|error| error.report())
}

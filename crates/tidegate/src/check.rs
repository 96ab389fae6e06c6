//! `tidegate check`: what is wrong with a configuration, or what it will do.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use serde::Serialize;
use tidegate_config::ConfigError;
use tidegate_proxy::config::{self, Loaded};

use crate::error::CliError;
use crate::run::listen_somewhere;

/// Says what is wrong with a configuration file, or what it will do.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The file to check.
    file: PathBuf,
    /// Print one JSON document, for scripts and CI.
    #[arg(long)]
    json: bool,
}

/// Exit status 0 when the file can be put in force, 2 when not.
pub(crate) fn run(args: &Args) -> Result<ExitCode, CliError> {
    match config::load_with(&args.file, listen_somewhere) {
        checked if args.json => as_json(&checked),
        Ok(loaded) => accept(&loaded),
        Err(problems) => Ok(refuse(&problems)),
    }
}

/// The outcome as programs read it; problems in the order of the files, the first one first.
#[derive(Debug, Serialize)]
struct Outcome<'a> {
    ok: bool,
    errors: Vec<Found<'a>>,
    warnings: Vec<Found<'a>>,
    /// What the file will do, line by line.
    summary: Vec<String>,
}

/// A problem and its place.
#[derive(Debug, Serialize)]
struct Found<'a> {
    file: &'a str,
    line: Option<usize>,
    column: Option<usize>,
    message: &'a str,
}

fn found<'a>(problems: &'a [ConfigError]) -> Vec<Found<'a>> {
    let found = |it: &'a ConfigError| Found {
        file: it.file(),
        line: it.line(),
        column: it.column(),
        message: it.message(),
    };
    problems.iter().map(found).collect()
}

fn as_json(checked: &Result<Loaded, Vec<ConfigError>>) -> Result<ExitCode, CliError> {
    let (errors, warnings, summary) = match checked {
        Ok(loaded) => (&[][..], loaded.warnings.as_slice(), loaded.config.summary()),
        Err(errors) => (errors.as_slice(), &[][..], Vec::new()),
    };
    let outcome = Outcome {
        ok: checked.is_ok(),
        errors: found(errors),
        warnings: found(warnings),
        summary,
    };
    let text = serde_json::to_string_pretty(&outcome).unwrap_or_default();
    print(&format!("{text}\n"))?;
    Ok(ExitCode::from(if outcome.ok { 0 } else { 2 }))
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

//! `tidegate design`: gains of controllers, and models to find them with.
//!
//! Every subcommand takes its numbers from flags, from a TOML file with the same names
//! (`--file`; flags win), or, for `identify`, from a CSV record. It prints a short table, or one
//! JSON object with `--json`. Whatever cannot be answered is refused before anything is printed.

mod assess;
mod format;
mod identify;
mod input;
mod lqr;
mod pi;
mod plant;
mod record;
mod rootlocus;
mod zn;

use std::process::ExitCode;

use crate::error::CliError;

/// Designs controllers: gains, poles, margins, models.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    tool: Tool,
}

#[derive(Debug, clap::Subcommand)]
enum Tool {
    Pi(pi::Args),
    Lqr(lqr::Args),
    Zn(zn::Args),
    Rootlocus(rootlocus::Args),
    Identify(identify::Args),
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, CliError> {
    let text = match &args.tool {
        Tool::Pi(args) => pi::run(args),
        Tool::Lqr(args) => lqr::run(args),
        Tool::Zn(args) => zn::run(args),
        Tool::Rootlocus(args) => rootlocus::run(args),
        Tool::Identify(args) => identify::run(args),
    }?;
    crate::check::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

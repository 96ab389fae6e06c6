//! `tidegate demo`: the same crowd against the same replicas, with and without Tidegate.

mod proxy;
mod screen;
mod script;
mod stage;
mod summary;
mod view;

use std::process::ExitCode;

use crate::check::print;
use crate::error::CliError;
use crate::runtime;
use screen::Screen;
use script::Script;

/// Shows what Tidegate does, on this machine and within a minute.
///
/// Three replicas with virtual capacity get four times the requests that they can serve, and lose
/// half of their capacity in the middle of it: once unprotected, once behind `tidegate run`
/// without any tuning, at the same time and with the same requests.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The same story in 18 seconds instead of 45.
    #[arg(long)]
    quick: bool,
    /// Print nothing but the numbers at the end, as one JSON object.
    #[arg(long)]
    json: bool,
    /// Decides when requests come and how much work they are.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, CliError> {
    let script = Script::new(args.quick);
    let mut screen = Screen::new(script, args.json);
    runtime::raise_file_limit();
    let summary = stage::play(script, args.seed, &mut screen)?;
    print(&if args.json {
        summary.json()?
    } else {
        format!("\n{summary}")
    })?;
    Ok(ExitCode::SUCCESS)
}

//! `tidegate plane`: the control plane's daemon; `tidegate sim plane` is in [`sim`].

pub(crate) mod sim;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use tidegate_planed::{Daemon, File};
use tokio::signal::unix::{SignalKind, signal};

use crate::check::print;
use crate::error::CliError;
use crate::runtime;

/// Decides how many servers each application needs, and starts and stops them.
///
/// Looks at proxies through their admin API, predicts, reacts to refusals, divides a pool of
/// servers by revenue. In mode `recommend`, the default, it only reports what it would do, and why.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The control plane's file; docs/plane.md shows one.
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
    /// Read the file, say what is wrong with it, and end.
    #[arg(long)]
    check: bool,
    /// Print the address of the API as a JSON object.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, CliError> {
    let path = args.config.display().to_string();
    let text = fs::read_to_string(&args.config).map_err(|source| CliError::File {
        path: path.clone(),
        source,
    })?;
    let file = File::parse(&path, &text)?;
    if args.check {
        print("ok\n")?;
        return Ok(ExitCode::SUCCESS);
    }
    runtime::current_thread()?.block_on(serve(args, file))
}

async fn serve(args: &Args, file: File) -> Result<ExitCode, CliError> {
    let usage = |error: &dyn std::fmt::Display| CliError::Usage(error.to_string());
    let mode = serde_json::to_string(&file.daemon.mode).map_err(|error| usage(&error))?;
    let mut term = signal(SignalKind::terminate()).map_err(|error| usage(&error))?;
    let daemon = Daemon::start(file).await.map_err(|error| usage(&error))?;
    let addr = daemon.addr();
    print(&match args.json {
        true => format!("{{\"listen\":\"{addr}\"}}\n"),
        false => format!("control plane, mode {mode}: http://{addr}/api/status\n"),
    })?;
    daemon
        .run(async {
            tokio::select! {
                _ = tokio::signal::ctrl_c() => {}
                _ = term.recv() => {}
            }
        })
        .await;
    Ok(ExitCode::SUCCESS)
}

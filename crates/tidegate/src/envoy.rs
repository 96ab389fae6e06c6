//! `tidegate envoy`: the engine behind Envoy's gRPC interfaces.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use tidegate_envoy::{EnvoyConfig, Server};
use tidegate_proxy::config::Severity;
use tokio::signal::unix::{SignalKind, signal};

use crate::check::print;
use crate::error::CliError;
use crate::runtime;

/// Decides for an Envoy that forwards: ext_proc, ext_authz, ratelimit and rate_limit_quota.
///
/// Envoy asks about every request, or enforces rates that it is assigned. `GET /status` on the
/// same address shows what was measured and decided. docs/envoy.md has configurations of Envoy.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The file; without one, mode `auto` listens on 127.0.0.1:9400.
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Read the file, say what is wrong with it, and end.
    #[arg(long)]
    check: bool,
    /// Print the address as a JSON object.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, CliError> {
    let config = load(args)?;
    if args.check {
        print("ok\n")?;
        return Ok(ExitCode::SUCCESS);
    }
    runtime::current_thread()?.block_on(serve(args, &config))
}

/// Reads the file. Warnings are printed, the first error ends it.
fn load(args: &Args) -> Result<EnvoyConfig, CliError> {
    let Some(file) = &args.config else {
        return Ok(EnvoyConfig::default());
    };
    let path = file.display().to_string();
    let text = fs::read_to_string(file).map_err(|source| CliError::File {
        path: path.clone(),
        source,
    })?;
    let config = EnvoyConfig::from_text(&path, &text)?;
    for problem in config.problems() {
        match problem.severity {
            Severity::Error => return Err(CliError::Usage(format!("{path}: {problem}"))),
            Severity::Warning => eprintln!("{path}: {problem}"),
        }
    }
    Ok(config)
}

async fn serve(args: &Args, config: &EnvoyConfig) -> Result<ExitCode, CliError> {
    let usage = |error: &dyn std::fmt::Display| CliError::Usage(error.to_string());
    let mut term = signal(SignalKind::terminate()).map_err(|error| usage(&error))?;
    let server = Server::bind(config).await.map_err(|error| usage(&error))?;
    let addr = server.addr();
    print(&if args.json {
        format!("{{\"listen\":\"{addr}\"}}\n")
    } else {
        format!("decisions for Envoy: {addr}; http://{addr}/status\n")
    })?;
    server
        .run(async {
            tokio::select! {
                _ = tokio::signal::ctrl_c() => {}
                _ = term.recv() => {}
            }
        })
        .await;
    Ok(ExitCode::SUCCESS)
}

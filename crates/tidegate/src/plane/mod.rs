//! `tidegate plane`: the control plane's daemon; `tidegate sim plane` is in [`sim`].

pub(crate) mod sim;

use std::fs;
use std::net::SocketAddr;
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
    #[cfg_attr(feature = "kubernetes", arg(required_unless_present = "definition"))]
    #[cfg_attr(not(feature = "kubernetes"), arg(required = true))]
    config: Option<PathBuf>,
    /// Read the file, say what is wrong with it, and end.
    #[arg(long)]
    check: bool,
    /// Print the address of the API as a JSON object.
    #[arg(long)]
    json: bool,
    /// Print the definition of Kubernetes' `TidegateApplication` as JSON, and end.
    #[cfg(feature = "kubernetes")]
    #[arg(long)]
    definition: bool,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, CliError> {
    #[cfg(feature = "kubernetes")]
    if args.definition {
        let definition = tidegate_plane_k8s::Kubernetes::definition();
        print(&format!("{definition:#}\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let Some(config) = &args.config else {
        return Err(CliError::Usage("name the file: --config FILE".into()));
    };
    let path = config.display().to_string();
    let text = fs::read_to_string(config).map_err(|source| CliError::File {
        path: path.clone(),
        source,
    })?;
    let file = File::parse(&path, &text)?;
    if args.check {
        let mut missing = file.missing();
        if cfg!(not(feature = "kubernetes")) && (file.cluster().is_some() || file.keda.is_some()) {
            missing.push(tidegate_planed::NO_KUBERNETES.to_owned());
        }
        if !missing.is_empty() {
            let lines = missing.iter().map(|line| format!("{path}: {line}"));
            let lines: Vec<_> = lines.collect();
            return Err(CliError::Usage(lines.join("\ntidegate: ")));
        }
        print("ok\n")?;
        return Ok(ExitCode::SUCCESS);
    }
    runtime::current_thread()?.block_on(serve(args, file))
}

async fn serve(args: &Args, file: File) -> Result<ExitCode, CliError> {
    let usage = |error: &dyn std::fmt::Display| CliError::Usage(error.to_string());
    let mode = serde_json::to_string(&file.daemon.mode).map_err(|error| usage(&error))?;
    let mut term = signal(SignalKind::terminate()).map_err(|error| usage(&error))?;
    let (daemon, keda) = start(file).await?;
    let addr = daemon.addr();
    print(&if args.json {
        let keda = keda.map_or(String::new(), |it| format!(",\"keda\":\"{it}\""));
        format!("{{\"listen\":\"{addr}\"{keda}}}\n")
    } else {
        let keda = keda.map_or(String::new(), |it| format!("; KEDA: {it}"));
        format!("control plane, mode {mode}: http://{addr}/api/status{keda}\n")
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

/// The daemon, and where KEDA can ask it.
#[cfg(feature = "kubernetes")]
async fn start(file: File) -> Result<(Daemon, Option<SocketAddr>), CliError> {
    use tidegate_plane_k8s::{Keda, Kubernetes};
    use tidegate_planed::Cluster;

    let usage = |error: &dyn std::fmt::Display| CliError::Usage(error.to_string());
    let mut cluster: Option<Box<dyn Cluster>> = None;
    if let Some(config) = file.cluster() {
        let connected = Kubernetes::connect(&config).await;
        cluster = Some(Box::new(connected.map_err(|error| usage(&error))?));
    }
    let keda = file.keda.clone();
    let daemon = Daemon::start_in(file, cluster).await;
    let daemon = daemon.map_err(|error| usage(&error))?;
    let Some(keda) = keda else {
        return Ok((daemon, None));
    };
    let keda = Keda::bind(keda.listen)
        .await
        .map_err(|error| usage(&error))?;
    let addr = keda.addr();
    tokio::spawn(keda.run(daemon.statuses()));
    Ok((daemon, Some(addr)))
}

/// The daemon; this build knows no KEDA.
#[cfg(not(feature = "kubernetes"))]
async fn start(file: File) -> Result<(Daemon, Option<SocketAddr>), CliError> {
    let daemon = Daemon::start(file).await;
    Ok((
        daemon.map_err(|error| CliError::Usage(error.to_string()))?,
        None,
    ))
}

//! The one binary: argument parsing and wiring only.
//!
//! Each subcommand is a module with an `Args` and a `run(Args) -> Result<ExitCode, CliError>`.

mod ablate;
mod admin_client;
mod app;
mod arena;
mod channel;
mod characterize;
mod check;
mod client;
mod comparison;
mod completions;
mod ctl;
mod demo;
mod design;
#[cfg(feature = "envoy")]
mod envoy;
mod error;
mod forecaster;
mod goldens;
#[cfg(feature = "gossip")]
mod gossip;
mod load;
mod man;
mod my_service;
mod nucleus;
mod plan;
mod plane;
mod progress;
mod reaction;
mod recording;
mod reference;
mod relay;
mod replay;
mod run;
mod runtime;
mod sim;
mod systemd;
mod top;
mod tune;
mod upgrade;
mod whatif;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// With the commit and the features, so that a report of a fault says what was run.
const VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    " (",
    env!("TIDEGATE_COMMIT"),
    "; ",
    env!("TIDEGATE_FEATURES"),
    ")"
);

/// Overload control for HTTP services.
#[derive(Debug, Parser)]
#[command(name = "tidegate", version = VERSION, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

// What each one does is said where its arguments are: words here would stand in place of those.
#[derive(Debug, Subcommand)]
enum Command {
    App(app::Args),
    Channel(channel::Args),
    Characterize(characterize::Args),
    Check(check::Args),
    Client(client::Args),
    Completions(completions::Args),
    Ctl(ctl::Args),
    Demo(demo::Args),
    Design(design::Args),
    #[cfg(feature = "envoy")]
    Envoy(envoy::Args),
    Load(load::Args),
    Man(man::Args),
    Nucleus(nucleus::Args),
    Plan(plan::Args),
    Recording(recording::Args),
    Plane(plane::Args),
    Reference(reference::Args),
    Relay(relay::Args),
    Replay(replay::Args),
    Run(Box<run::Args>),
    Sim(sim::Args),
    Top(top::Args),
    Tune(tune::Args),
    Whatif(whatif::Args),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let outcome: Result<ExitCode, error::CliError> = match cli.command {
        Command::App(args) => app::run(&args),
        Command::Channel(args) => channel::run(&args),
        Command::Characterize(args) => characterize::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Client(args) => client::run(&args),
        Command::Completions(args) => completions::run(&args),
        Command::Ctl(args) => ctl::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Design(args) => design::run(&args),
        #[cfg(feature = "envoy")]
        Command::Envoy(args) => envoy::run(&args),
        Command::Load(args) => load::run(&args),
        Command::Man(args) => man::run(&args),
        Command::Nucleus(args) => nucleus::run(&args),
        Command::Plan(args) => plan::run(&args),
        Command::Recording(args) => recording::run(&args),
        Command::Plane(args) => plane::run(&args),
        Command::Reference(args) => reference::run(&args),
        Command::Relay(args) => relay::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Run(args) => run::run(&args),
        Command::Sim(args) => sim::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Tune(args) => tune::run(&args),
        Command::Whatif(args) => whatif::run(&args),
    };
    outcome.unwrap_or_else(|error| error.report())
}

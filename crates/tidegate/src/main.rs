//! The one binary: argument parsing and wiring only.
//!
//! Each subcommand is a module with an `Args` and a `run(Args) -> Result<ExitCode, CliError>`.

mod app;
mod arena;
mod channel;
mod characterize;
mod check;
mod client;
mod demo;
mod design;
mod error;
#[cfg(feature = "gossip")]
mod gossip;
mod load;
mod nucleus;
mod progress;
mod reference;
mod relay;
mod run;
mod runtime;
mod sim;
mod tune;
mod upgrade;

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
enum Command {
    /// Runs a demo upstream with virtual capacity.
    App(app::Args),
    /// Keys of the channel, and a look at its messages.
    Channel(channel::Args),
    /// Finds the operating point and the regulator of a service.
    Characterize(characterize::Args),
    /// Says what is wrong with a configuration file, or what it will do.
    Check(check::Args),
    /// Holds a program's requests back as their server asks, without a change to the program.
    Client(client::Args),
    /// Shows within a minute what Tidegate does: the same crowd with and without it.
    Demo(demo::Args),
    /// Designs controllers: gains, poles, margins, models.
    Design(design::Args),
    /// Sends requests at a rate, whatever the server does, and reports how they ended.
    Load(load::Args),
    /// Stands beside a service, measures it and answers the proxy with what it wants.
    Nucleus(nucleus::Args),
    /// Prints every key of the configuration file with its meaning and default.
    Reference(reference::Args),
    /// Passes a proxy's control messages on.
    Relay(relay::Args),
    /// Protects a service: listens, forwards, and refuses what the service cannot do in time.
    Run(Box<run::Args>),
    /// Runs experiments in the simulator and compares them with the papers.
    Sim(sim::Args),
    /// Finds the gains of the channel's controller on the running system.
    Tune(tune::Args),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let outcome: Result<ExitCode, error::CliError> = match cli.command {
        Command::App(args) => app::run(&args),
        Command::Channel(args) => channel::run(&args),
        Command::Characterize(args) => characterize::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Client(args) => client::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Design(args) => design::run(&args),
        Command::Load(args) => load::run(&args),
        Command::Nucleus(args) => nucleus::run(&args),
        Command::Reference(args) => reference::run(&args),
        Command::Relay(args) => relay::run(&args),
        Command::Run(args) => run::run(&args),
        Command::Sim(args) => sim::run(&args),
        Command::Tune(args) => tune::run(&args),
    };
    outcome.unwrap_or_else(|error| error.report())
}

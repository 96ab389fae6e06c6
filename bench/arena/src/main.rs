//! `bench/arena`: Tidegate and what a user would pick instead, as real processes on loopback, under
//! the same open-loop load, in front of replicas with virtual capacity. One table says who protects
//! the service best.
//!
//! The scenarios are the files of `experiments/arena`, the same that `tidegate sim arena` runs; the
//! report puts Tidegate's simulated result beside the live one.

mod bout;
mod cell;
mod cgroup;
mod comparison;
mod computing;
mod contender;
mod failure;
mod figure;
mod measure;
mod picture;
mod plant;
mod process;
mod program;
mod report;
mod simulated;
mod summary;
mod template;
mod visitors;

use std::io::Write as _;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

use failure::Failure;
use program::Program;
use report::Report;

/// Real proxies in front of the same overloaded service: who protects it best?
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    /// The essential scenarios and contenders, once each: less than five minutes.
    #[arg(long)]
    quick: bool,
    /// Only this scenario; may be given several times.
    #[arg(long, value_name = "SCENARIO")]
    only: Vec<String>,
    /// Only this contender; may be given several times.
    #[arg(long, value_name = "NAME")]
    contender: Vec<String>,
    /// How often each pair meets; medians and spreads are over these [default: 3, with --quick 1].
    #[arg(long, value_name = "N")]
    repetitions: Option<NonZeroU32>,
    /// Decides arrivals and work; each repetition takes the next one.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Contenders meet a scenario at the same time, each with its own replicas and load, while
    /// their peak rates together stay below this many requests per second.
    #[arg(long, value_name = "RATE", default_value_t = 3000.0)]
    at_once: f64,
    /// Where arena.html, arena.svg, arena-p99.svg, arena.md and arena.csv are written.
    #[arg(long, value_name = "DIR", default_value = "out/arena")]
    out: PathBuf,
    /// Print one JSON object per scenario and contender instead of the table.
    #[arg(long)]
    json: bool,
    /// Only what the simulator expects of Tidegate's contenders, with its spread over seeds:
    /// seconds instead of hours.
    #[arg(long, conflicts_with = "json")]
    simulated: bool,
    /// Envoy's binary; without it the contenders that need it are left out.
    #[arg(long, value_name = "FILE")]
    envoy: Option<PathBuf>,
    #[command(subcommand)]
    part: Option<Part>,
}

/// What the arena starts itself as.
#[derive(Debug, clap::Subcommand)]
enum Part {
    /// One replica of a scenario, as its own process.
    #[command(hide = true)]
    Replica(plant::ReplicaArgs),
}

fn main() -> ExitCode {
    let args = Args::parse();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("arena: {failure}");
            ExitCode::from(2)
        }
    }
}

fn run(args: &Args) -> Result<(), Failure> {
    if let Some(Part::Replica(replica)) = &args.part {
        return plant::serve(replica);
    }
    let program = Program::new(args)?;
    if args.simulated {
        return print(&Report::new(&program, &[])?.simulated_text());
    }
    let bouts = program.run();
    let report = Report::new(&program, &bouts)?;
    let page = report.write(&args.out)?;
    print(&report.text(args.json))?;
    eprintln!("report: {}", page.display());
    Ok(())
}

/// A reader that has seen enough is no failure of ours.
fn print(text: &str) -> Result<(), Failure> {
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::system("standard output")(error))
        }
        _ => Ok(()),
    }
}

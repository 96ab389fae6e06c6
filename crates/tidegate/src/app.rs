//! `tidegate app`: a demo upstream with virtual capacity.

use std::fs;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde::Deserialize;
use tidegate_config::{Share, Size};
use tidegate_lab::app::{self, AppConfig, Discipline, LAW_FORMS, SlowPath, parse_law};
use tidegate_sim::server::{Bound, Penalty};
use tidegate_sim::service::Law;
use tidegate_sim::workload::Schedule;
use tidegate_sim::workload::schedule::Numbers;

use crate::check::print;
use crate::error::CliError;
use crate::runtime;

/// Runs a demo upstream whose requests take time but no CPU.
///
/// What it can serve depends on its flags and not on the machine. `GET /_app/stats` has its
/// counts, `POST /_app/params` changes it while it runs, `/stream` sends events.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where to listen; port 0 takes a free one.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:3000")]
    listen: SocketAddr,
    /// How many requests are worked on at full speed at once.
    #[arg(long, value_name = "N", default_value = "4")]
    workers: NonZeroU32,
    #[arg(long, value_name = "LAW", default_value = "exp:20ms", value_parser = parse_law,
          help = format!("Work per request: {LAW_FORMS}"))]
    service: Law,
    /// Share the workers among at most this many requests (`unlimited` for all) instead of a queue.
    #[arg(long, value_name = "AT_ONCE", value_parser = parse_bound)]
    sharing: Option<Bound>,
    /// How many requests may wait; the next one is answered 503.
    #[arg(long, value_name = "N", default_value = "unlimited", value_parser = parse_bound)]
    queue: Bound,
    /// A TOML file with `speed`: the workers' speed over time, 1 being nominal.
    #[arg(long, value_name = "FILE")]
    capacity_schedule: Option<PathBuf>,
    /// With more than KNEE at once every one runs at 1/(1 + SLOPE * excess) of its speed.
    #[arg(long, value_name = "KNEE:SLOPE", value_parser = parse_penalty)]
    overload_penalty: Option<Penalty>,
    /// Part of the work that is left out on `tidegate-optional: 0`.
    #[arg(long, value_name = "SHARE", default_value = "0")]
    optional: Share,
    /// Requests to paths that begin so are FACTOR times the work; may be given several times.
    #[arg(long = "slow-path", value_name = "PATH=FACTORx", value_parser = parse_slow_path)]
    slow_paths: Vec<SlowPath>,
    /// Length of the answer's body.
    #[arg(long, value_name = "SIZE", default_value = "100")]
    response: Size,
    /// Stop working for clients that left; most servers do not.
    #[arg(long)]
    cancel: bool,
    /// Tell utilization and service time in answers, as a replica beside a nucleus does.
    #[arg(long)]
    report: bool,
    /// Decides the work of each request.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Print the address as a JSON object.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, CliError> {
    let config = args.config()?;
    runtime::raise_file_limit();
    let capacity = config.capacity();
    runtime::current_thread()?.block_on(async {
        let listen = config.listen;
        let app = app::spawn(config).await;
        let app = app.map_err(|error| CliError::cannot_listen(listen, &error))?;
        let addr = app.addr();
        print(&if args.json {
            format!("{{\"listen\":\"{addr}\"}}\n")
        } else {
            format!("listening on http://{addr}, about {capacity:.1} requests/s\n")
        })?;
        app.serve().await;
        Ok(ExitCode::SUCCESS)
    })
}

impl Args {
    fn config(&self) -> Result<AppConfig, CliError> {
        let speed = self.capacity_schedule.as_deref().map(read_speed);
        Ok(AppConfig {
            listen: self.listen,
            discipline: self
                .sharing
                .map_or(Discipline::Fifo, |at_once| Discipline::Sharing { at_once }),
            queue: self.queue,
            penalty: self.overload_penalty,
            speed: speed.transpose()?.unwrap_or(Schedule::constant(1.0)),
            optional: self.optional,
            slow_paths: self.slow_paths.clone(),
            response: self.response,
            cancel: self.cancel,
            report: self.report,
            seed: self.seed,
            ..AppConfig::new(self.workers, self.service.clone())
        })
    }
}

/// The file behind `--capacity-schedule`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CapacityFile {
    speed: Numbers,
}

fn read_speed(path: &Path) -> Result<Schedule, CliError> {
    let name = path.display().to_string();
    let text = fs::read_to_string(path).map_err(|source| CliError::File {
        path: name.clone(),
        source,
    })?;
    let file: CapacityFile = tidegate_config::parse(&name, &text)?;
    Ok((*file.speed).clone())
}

fn parse_bound(text: &str) -> Result<Bound, String> {
    match text {
        "unlimited" => Ok(Bound::Unlimited),
        number => number
            .parse()
            .map(Bound::Limited)
            .map_err(|_| "write a number, or unlimited".to_owned()),
    }
}

fn parse_penalty(text: &str) -> Result<Penalty, String> {
    let parsed = text.split_once(':').and_then(|(knee, slope)| {
        let slope: f64 = slope.parse().ok()?;
        let possible = slope >= 0.0 && slope.is_finite();
        let knee = knee.parse().ok()?;
        possible.then_some(Penalty { knee, slope })
    });
    parsed.ok_or_else(|| "write KNEE:SLOPE, like 50:0.02".to_owned())
}

fn parse_slow_path(text: &str) -> Result<SlowPath, String> {
    let parsed = text.split_once('=').and_then(|(prefix, factor)| {
        let factor: f64 = factor.trim_end_matches('x').parse().ok()?;
        let possible = factor >= 0.0 && factor.is_finite() && prefix.starts_with('/');
        possible.then(|| SlowPath {
            prefix: prefix.to_owned(),
            factor,
        })
    });
    parsed.ok_or_else(|| "write PATH=FACTORx, like /slow=10x".to_owned())
}

//! The protected service: one process per replica of a scenario, whose speed follows the scenario's
//! schedule, and who die and come back when it says so.
//!
//! Replicas have a virtual capacity, except in the scenario [`COMPUTING`], where they really
//! compute and their speed is a limit on their processor time.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use tidegate_config::Size;
use tidegate_lab::app::{self, AppConfig, Discipline, SlowPath};
use tidegate_sim::arena::{Clairvoyant, Entry};
use tidegate_sim::scenario::{Abandoned, ReplicaSpec, Scenario};
use tidegate_sim::server::Bound;

use crate::cgroup::{CpuLimit, stay_on_one_processor};
use crate::computing;
use crate::failure::Failure;
use crate::process::{Server, free_addr};
use crate::visitors::slow_path;

/// A ramp of the capacity is taken in steps this short.
const RAMP_STEP: Duration = Duration::from_millis(500);

/// Long enough that a page is more than a packet, short enough to be nobody's bottleneck.
const PAGE: Size = Size(1024);

/// The scenario whose replicas compute.
pub(crate) const COMPUTING: &str = "cpu-bound";

/// The hidden subcommand that is one replica.
#[derive(Debug, clap::Args)]
pub(crate) struct ReplicaArgs {
    #[arg(long)]
    scenario: String,
    #[arg(long)]
    index: usize,
    #[arg(long)]
    listen: SocketAddr,
    #[arg(long)]
    seed: u64,
}

/// Runs one replica until the process is ended.
pub(crate) fn serve(args: &ReplicaArgs) -> Result<(), Failure> {
    let entry = entry(&args.scenario)?;
    let spec = specs(&entry.scenario)
        .nth(args.index)
        .ok_or_else(|| Failure::said(format!("{} has no replica {}", args.scenario, args.index)))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Failure::system("no runtime"))?;
    if args.scenario == COMPUTING {
        runtime.block_on(serve_computing(args, &entry.scenario, spec))
    } else {
        runtime.block_on(serve_virtual(args, &entry.scenario, spec))
    }
}

async fn serve_virtual(
    args: &ReplicaArgs,
    scenario: &Scenario,
    spec: &ReplicaSpec,
) -> Result<(), Failure> {
    let app = app::spawn(AppConfig {
        listen: args.listen,
        seed: args.seed,
        ..config(scenario, spec)
    });
    let app = app
        .await
        .map_err(Failure::system(args.listen.to_string()))?;
    app.serve().await;
    Ok(())
}

async fn serve_computing(
    args: &ReplicaArgs,
    scenario: &Scenario,
    spec: &ReplicaSpec,
) -> Result<(), Failure> {
    stay_on_one_processor(args.index).map_err(Failure::system("cannot stay on one processor"))?;
    let listener = tokio::net::TcpListener::bind(args.listen).await;
    let listener = listener.map_err(Failure::system(args.listen.to_string()))?;
    let slots = match spec.slots {
        Some(Bound::Limited(slots)) => slots as usize,
        Some(Bound::Unlimited) | None => tokio::sync::Semaphore::MAX_PERMITS,
    };
    computing::serve(listener, scenario.service.clone(), slots, args.seed).await;
    Ok(())
}

/// Each replica draws by itself.
fn replica_seed(seed: u64, index: usize) -> u64 {
    seed ^ (index as u64) << 32
}

/// By how much what is drawn takes longer than on average. Replicas that compute serve some
/// hundreds of requests each, and by chance these are up to a tenth more work than the scenario
/// says, or less: the ideal has to go by that. Elsewhere there are enough of them.
pub(crate) fn luck(entry: &Entry, seed: u64) -> f64 {
    if entry.name != COMPUTING {
        return 1.0;
    }
    let scenario = &entry.scenario;
    let work_s = Clairvoyant::of(scenario).work_s;
    let replicas = scenario.replica_count();
    let served_until = |end: Duration| -> usize {
        let seconds = 0..end.as_secs();
        let work: f64 = seconds
            .map(|second| scenario.capacity_at(second as f64 + 0.5))
            .sum();
        (work / work_s / replicas as f64) as usize
    };
    let counted = served_until(*scenario.warm_up)..served_until(*scenario.duration);
    let drawn = |index| {
        computing::mean_drawn(
            &scenario.service,
            replica_seed(seed, index),
            counted.clone(),
        )
    };
    (0..replicas).map(drawn).sum::<f64>() / replicas as f64 / work_s
}

/// The scenario of that name.
pub(crate) fn entry(name: &str) -> Result<Entry, Failure> {
    let entries = tidegate_sim::arena::entries()?;
    let known: Vec<String> = entries.iter().map(|entry| entry.name.clone()).collect();
    entries
        .into_iter()
        .find(|entry| entry.name == name)
        .ok_or_else(|| {
            Failure::said(format!(
                "no scenario `{name}`; there are: {}",
                known.join(", ")
            ))
        })
}

/// The replicas one by one.
fn specs(scenario: &Scenario) -> impl Iterator<Item = &ReplicaSpec> {
    let each = |spec| std::iter::repeat_n(spec, ReplicaSpec::count(spec));
    scenario.replica.iter().flat_map(each)
}

fn config(scenario: &Scenario, spec: &ReplicaSpec) -> AppConfig {
    let slow = scenario.load.iter().flat_map(|load| load.client.iter());
    let slow = slow.filter(|client| client.work != 1.0);
    AppConfig {
        discipline: match spec.slots {
            Some(Bound::Limited(slots)) if slots <= spec.cores.get() => Discipline::Fifo,
            None => Discipline::Fifo,
            Some(at_once) => Discipline::Sharing { at_once },
        },
        queue: spec.queue,
        penalty: spec.penalty,
        slow_paths: slow
            .map(|client| SlowPath {
                prefix: slow_path(client.work),
                factor: client.work,
            })
            .collect(),
        response: PAGE,
        cancel: spec.abandoned == Abandoned::Cancel,
        report: true,
        ..AppConfig::new(spec.cores, scenario.service.clone())
    }
}

/// All replicas of a scenario, running.
#[derive(Debug)]
pub(crate) struct Plant {
    scenario: String,
    seed: u64,
    replicas: Vec<Replica>,
    changes: Vec<Change>,
}

/// The server is before its limit: it ends first.
#[derive(Debug)]
struct Replica {
    addr: SocketAddr,
    server: Server,
    limit: Option<CpuLimit>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Change {
    at: Duration,
    replica: usize,
    to: State,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum State {
    Speed(f64),
    Dead,
    Back,
}

impl Plant {
    pub(crate) fn start(entry: &Entry, seed: u64) -> Result<Self, Failure> {
        let mut plant = Self {
            scenario: entry.name.clone(),
            seed,
            replicas: Vec::new(),
            changes: changes(&entry.scenario),
        };
        for index in 0..entry.scenario.replica_count() {
            let replica = plant.replica(index, free_addr()?)?;
            plant.replicas.push(replica);
        }
        Ok(plant)
    }

    fn replica(&self, index: usize, addr: SocketAddr) -> Result<Replica, Failure> {
        let program = std::env::current_exe().map_err(Failure::system("cannot find myself"))?;
        let mut command = Command::new(program);
        command.args(["replica", "--scenario", &self.scenario]);
        command.args(["--index", &index.to_string(), "--listen", &addr.to_string()]);
        command.args(["--seed", &replica_seed(self.seed, index).to_string()]);
        let server = Server::start(&format!("replica {index}"), addr, &mut command)?;
        let limit = (self.scenario == COMPUTING).then(|| {
            CpuLimit::of(server.id(), computing::CORE).map_err(Failure::system(
                "a limit on processor time, which takes root (leave the scenario out with --only)",
            ))
        });
        Ok(Replica {
            addr,
            server,
            limit: limit.transpose()?,
        })
    }

    pub(crate) fn addrs(&self) -> Vec<SocketAddr> {
        self.replicas.iter().map(|replica| replica.addr).collect()
    }

    /// Carries out the scenario's changes, counted from now, until they are done or the other end
    /// of `over` is dropped.
    pub(crate) fn follow(&mut self, over: &Receiver<()>) -> Result<(), Failure> {
        let start = Instant::now();
        for change in self.changes.clone() {
            let wait = change.at.saturating_sub(start.elapsed());
            if over.recv_timeout(wait) == Err(RecvTimeoutError::Disconnected) {
                return Ok(());
            }
            self.make(change)?;
        }
        Ok(())
    }

    fn make(&mut self, change: Change) -> Result<(), Failure> {
        let replica = &mut self.replicas[change.replica];
        match change.to {
            State::Speed(speed) => replica
                .set_speed(speed)
                .map_err(Failure::system("a replica's speed")),
            State::Dead => {
                replica.server.kill();
                Ok(())
            }
            State::Back => {
                let addr = replica.addr;
                self.replicas[change.replica] = self.replica(change.replica, addr)?;
                Ok(())
            }
        }
    }
}

impl Replica {
    fn set_speed(&self, speed: f64) -> std::io::Result<()> {
        match &self.limit {
            Some(limit) => limit.set(computing::CORE * speed),
            None => set_speed(self.addr, speed),
        }
    }
}

fn changes(scenario: &Scenario) -> Vec<Change> {
    let mut changes = Vec::new();
    for (replica, spec) in specs(scenario).enumerate() {
        let speeds = spec.speed.steps(RAMP_STEP).into_iter();
        changes.extend(speeds.map(|(at, speed)| Change {
            at: at.since(tidegate_control::Timestamp::ZERO),
            replica,
            to: State::Speed(speed),
        }));
        for outage in &spec.down {
            let change = |at, to| Change { at, replica, to };
            changes.push(change(outage.from.0, State::Dead));
            changes.extend(outage.until.map(|until| change(until.0, State::Back)));
        }
    }
    changes.sort_by_key(|change| change.at);
    changes
}

/// One request by hand: a change is rare, and the answer is not needed beyond its status.
fn set_speed(addr: SocketAddr, speed: f64) -> std::io::Result<()> {
    let body = serde_json::json!({ "speed": speed }).to_string();
    let mut stream = TcpStream::connect(addr)?;
    write!(
        stream,
        "POST /_app/params HTTP/1.1\r\nhost: {addr}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    if answer.starts_with("HTTP/1.1 200") {
        Ok(())
    } else {
        Err(std::io::Error::other(answer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn luck_is_near_one_and_evens_out() {
        let computing = entry(COMPUTING).unwrap();
        let each: Vec<f64> = (1..=40).map(|seed| luck(&computing, seed)).collect();
        assert!(
            each.iter().all(|luck| (luck - 1.0).abs() < 0.12),
            "{each:?}"
        );
        let mean = each.iter().sum::<f64>() / each.len() as f64;
        assert!((mean - 1.0).abs() < 0.015, "{mean}");
        assert_eq!(luck(&entry("three-times").unwrap(), 1), 1.0);
    }

    #[test]
    fn speeds_and_deaths_are_changes_in_order() {
        let text = "duration = '9s'\nservice = '10ms'\nload = { rate = '1/s' }\n\
                    [[replica]]\n[[replica]]\n\
                    speed = [{ at = '0s', value = 1 }, { at = '5s', value = 0.5 }]\n\
                    down = [{ from = '2s', until = '3s' }]";
        let scenario = Entry::parse("a.toml", text).unwrap().scenario;
        let seen: Vec<(u64, usize, State)> = changes(&scenario)
            .into_iter()
            .filter(|change| change.to != State::Speed(1.0))
            .map(|change| (change.at.as_secs(), change.replica, change.to))
            .collect();
        let expected = [
            (2, 1, State::Dead),
            (3, 1, State::Back),
            (5, 1, State::Speed(0.5)),
        ];
        assert_eq!(seen, expected);
    }
}

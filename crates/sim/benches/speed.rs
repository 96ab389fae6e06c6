//! How fast the simulator is: M/M/1 at load 0.8, and a scenario behind the engine.
//!
//! Prints one JSON object per line; `bench/simulator/run` compares the first with other
//! simulators. `scale` is one service with 30, 300, 3 000 and 10 000 replicas: what a request costs
//! and how many are answered in time after a cold start. Arguments: a model (`mm1`, `sharing`,
//! `scenario`, `scale`) and a number of customers, for `scale` of replicas.
//! Seconds are of processor time where the system tells it, so that a busy machine blurs less.

use std::io::Write;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tidegate_sim::queue::QueueSpec;
use tidegate_sim::rng::Streams;
use tidegate_sim::scenario::Scenario;
use tidegate_sim::server::{Bound, StationSpec};
use tidegate_sim::service::Law;

const SEED: u64 = 1;
const LOAD: f64 = 0.8;

fn main() -> std::io::Result<()> {
    // Cargo adds `--bench`.
    let mut arguments = std::env::args().skip(1).filter(|a| !a.starts_with("--"));
    let model = arguments.next();
    let customers: f64 = arguments
        .next()
        .and_then(|number| number.parse().ok())
        .unwrap_or(5e6);
    let models = ["mm1", "sharing", "scenario", "scale"];
    let chosen = models
        .iter()
        .filter(|name| model.as_deref().is_none_or(|wanted| wanted == **name));
    for name in chosen {
        let line = match *name {
            "mm1" => queue(name, StationSpec::default(), customers),
            "sharing" => queue(name, StationSpec::sharing(Bound::Unlimited), customers),
            "scale" => {
                scales(customers)?;
                continue;
            }
            _ => scenario(name, customers / 10.0),
        };
        writeln!(std::io::stdout(), "{line}")?;
    }
    Ok(())
}

/// The sizes of the scaling table, up to this many replicas.
fn scales(most: f64) -> std::io::Result<()> {
    for replicas in [30, 300, 3_000, 10_000] {
        for load in [0.8, 2.0] {
            if f64::from(replicas) <= most {
                writeln!(std::io::stdout(), "{}", scale(replicas, load))?;
            }
        }
    }
    Ok(())
}

/// Replicas of two workers of 100 ms behind the engine in mode `auto`, from a cold start, for
/// twenty seconds and at least this many requests that thirty replicas can be measured. Tells what
/// a request costs, simulated whole, and the share of the ideal by second.
fn scale(replicas: u32, load: f64) -> Value {
    let capacity = 20.0 * f64::from(replicas);
    let seconds = (200_000.0 / capacity).clamp(SCALE_S, 200.0);
    let text = format!(
        "duration = '{seconds:.0}s'\n\
         interval = '1s'\n\
         target = '1s'\n\
         service = {{ law = 'exponential', mean = '100ms' }}\n\
         load = {{ rate = '{}/s', client = {{ timeout = '3s' }} }}\n\
         replica = {{ count = {replicas}, cores = 2, slots = 64 }}\n\
         [protect]\n\
         mode = 'auto'\n\
         target = '1s'",
        load * capacity
    );
    let scenario: Scenario =
        tidegate_config::parse("scale.toml", &text).expect("the text above is a valid scenario");
    let (outcome, seconds) = timed(|| scenario.run(SEED).expect("the scenario above can run"));
    let ideal = capacity * load.min(1.0);
    let shares: Vec<f64> = (outcome.rows.iter())
        .take(SCALE_S as usize)
        .map(|row| (row.counts.in_target as f64 / ideal * 1e3).round() / 1e3)
        .collect();
    let cold = shares.iter().sum::<f64>() / shares.len() as f64;
    json!({
        "model": "scale",
        "replicas": replicas,
        "load": load,
        "customers": outcome.ledger.offered,
        "microseconds_per_request": seconds * 1e6 / outcome.ledger.offered as f64,
        "share_of_ideal": cold,
        "share_by_second": shares,
        "peak_memory_kib": peak_memory_kib(),
    })
}

/// Length of a run of many replicas, in seconds.
const SCALE_S: f64 = 20.0;

fn queue(name: &str, station: StationSpec, customers: f64) -> Value {
    let spec = QueueSpec::poisson(LOAD, Law::exponential(1.0), station);
    let (run, seconds) = timed(|| spec.run(Streams::new(SEED), 0.0, customers / LOAD));
    json!({
        "model": name,
        "customers": run.response.count(),
        "events": run.events,
        "seconds": seconds,
        "customers_per_second": run.response.count() as f64 / seconds,
        "events_per_second": run.events as f64 / seconds,
        "mean_response": run.response.mean(),
        "peak_memory_kib": peak_memory_kib(),
    })
}

/// Three replicas behind the engine in mode `auto`, at twice their capacity, clients that time out
/// and retry.
fn scenario(name: &str, customers: f64) -> Value {
    let text = format!(
        "duration = '{}s'\n\
         target = '500ms'\n\
         service = {{ law = 'exponential', mean = '10ms' }}\n\
         load = {{ rate = '600/s', client = {{ timeout = '1s', retry = {{ attempts = 2 }} }} }}\n\
         replica = {{ count = 3, slots = 64 }}\n\
         [protect]\n\
         mode = 'auto'",
        (customers / 600.0).ceil()
    );
    let scenario: Scenario =
        tidegate_config::parse("bench.toml", &text).expect("the text above is a valid scenario");
    let (outcome, seconds) = timed(|| scenario.run(SEED).expect("the scenario above can run"));
    json!({
        "model": name,
        "customers": outcome.ledger.offered,
        "events": outcome.simulated,
        "seconds": seconds,
        "customers_per_second": outcome.ledger.offered as f64 / seconds,
        "events_per_second": outcome.simulated as f64 / seconds,
        "peak_memory_kib": peak_memory_kib(),
    })
}

/// The result of `work`, and how many seconds it took.
fn timed<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let (start, cpu) = (Instant::now(), cpu_time());
    let result = work();
    let used = cpu_time().zip(cpu).map(|(end, start)| end - start);
    (
        result,
        used.unwrap_or_else(|| start.elapsed()).as_secs_f64(),
    )
}

/// Processor time of this thread so far.
fn cpu_time() -> Option<Duration> {
    let schedstat = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let nanos = schedstat.split_whitespace().next()?.parse().ok()?;
    Some(Duration::from_nanos(nanos))
}

/// The most memory the process has had resident; nothing where the system does not tell.
fn peak_memory_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

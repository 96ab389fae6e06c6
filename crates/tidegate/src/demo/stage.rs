//! Sets the stage twice and lets the same crowd in on both.
//!
//! Each side has a thread of its own, so that the one which drowns does not slow the other down.

use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::thread;

use http::Uri;
use tidegate_lab::app::{self, AppHandle, Stats};
use tidegate_lab::load::{self, LoadConfig, LoadReport, Second};
use tidegate_sim::workload::RateFunction;

use super::proxy::Proxy;
use super::screen::Screen;
use super::script::{PATIENCE, REPLICAS, Script};
use super::summary::Summary;
use super::view::Board;
use crate::error::CliError;
use crate::runtime;

/// What one side has done: its load's report and its replicas' counts.
type Played = (LoadReport, Vec<Stats>);

/// Plays the demo, telling the screen every second.
pub(super) fn play(script: Script, seed: u64, screen: &mut Screen) -> Result<Summary, CliError> {
    let screen = Mutex::new(screen);
    let tell = |update: &dyn Fn(&mut Board)| {
        let mut screen = screen.lock().unwrap_or_else(PoisonError::into_inner);
        screen.update(update);
    };
    tell(&|_| {});
    let (without, with) = thread::scope(|scope| {
        let without = scope.spawn(|| {
            side(script, seed, Front::Open, |second| {
                tell(&|board| board.without.push(second.clone()));
            })
        });
        let with = side(script, seed, Front::Gate, |second| {
            tell(&|board| board.with.push(second.clone()));
        });
        let without = without.join();
        (
            without.unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            with,
        )
    });
    Ok(Summary::new(script, &without?, &with?))
}

/// What stands between the crowd and the replicas.
#[derive(Debug, Clone, Copy)]
enum Front {
    /// Nothing: requests go to the replicas in turns.
    Open,
    /// Tidegate.
    Gate,
}

fn side(
    script: Script,
    seed: u64,
    front: Front,
    observer: impl FnMut(&Second) + Send,
) -> Result<Played, CliError> {
    runtime::current_thread()?.block_on(async {
        let replicas = replicas(script, seed).await?;
        let addresses: Vec<SocketAddr> = replicas.iter().map(AppHandle::addr).collect();
        let gate = match front {
            Front::Open => None,
            Front::Gate => Some(Proxy::start(&addresses)?),
        };
        let targets = gate.as_ref().map_or(addresses, |gate| vec![gate.addr()]);
        let report = load::run(crowd(script, seed, &targets)?, observer).await;
        let report = report.map_err(|error| CliError::Usage(error.to_string()))?;
        Ok((report, replicas.iter().map(AppHandle::stats).collect()))
    })
}

async fn replicas(script: Script, seed: u64) -> Result<Vec<AppHandle>, CliError> {
    let mut replicas = Vec::with_capacity(REPLICAS);
    for index in 0..REPLICAS {
        let replica = app::spawn(script.replica(index, seed)).await;
        let failed = |error| CliError::Usage(format!("cannot start a replica: {error}"));
        replicas.push(replica.map_err(failed)?);
    }
    Ok(replicas)
}

fn crowd(script: Script, seed: u64, targets: &[SocketAddr]) -> Result<LoadConfig, CliError> {
    let url = |addr: &SocketAddr| format!("http://{addr}/").parse::<Uri>();
    let targets = targets.iter().map(url).collect::<Result<_, _>>();
    let targets = targets.map_err(|error| CliError::Usage(error.to_string()))?;
    let rate = RateFunction::Schedule(script.rate());
    Ok(LoadConfig {
        timeout: PATIENCE,
        target_time: PATIENCE,
        seed,
        ..LoadConfig::new(targets, rate, script.duration())
    })
}

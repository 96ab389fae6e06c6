//! Sets the stage twice and lets the same crowd in on both.

use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use http::Uri;
use tidegate_lab::app::{self, AppHandle, Stats};
use tidegate_lab::load::{self, LoadConfig};
use tidegate_sim::workload::RateFunction;

use super::proxy;
use super::screen::Screen;
use super::script::{PATIENCE, REPLICAS, Script};
use super::summary::Summary;
use crate::error::CliError;

/// Plays the demo, telling the screen every second.
pub(super) async fn play(
    script: Script,
    seed: u64,
    screen: &mut Screen,
) -> Result<Summary, CliError> {
    let exposed = replicas(script, seed).await?;
    let guarded = replicas(script, seed).await?;
    let gate = proxy::start(&addresses(&guarded))?;

    let screen = Mutex::new(screen);
    lock(&screen).update(|_| {});
    let (without, with) = tokio::join!(
        load::run(crowd(script, seed, &addresses(&exposed))?, |second| {
            lock(&screen).update(|board| board.without.push(second.clone()));
        }),
        load::run(crowd(script, seed, &[gate.addr()])?, |second| {
            lock(&screen).update(|board| board.with.push(second.clone()));
        }),
    );
    let failed = |error: load::LoadError| CliError::Usage(error.to_string());
    Ok(Summary::new(
        script,
        (&without.map_err(failed)?, &counts(&exposed)),
        (&with.map_err(failed)?, &counts(&guarded)),
    ))
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

/// The visitors of one side.
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

fn addresses(replicas: &[AppHandle]) -> Vec<SocketAddr> {
    replicas.iter().map(AppHandle::addr).collect()
}

fn counts(replicas: &[AppHandle]) -> Vec<Stats> {
    replicas.iter().map(AppHandle::stats).collect()
}

/// Both sides run on one thread and never hold the lock across a wait.
fn lock<'a, T>(shared: &'a Mutex<T>) -> MutexGuard<'a, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

//! One contender in one scenario, once.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use tidegate_lab::load::{self, LoadReport};
use tidegate_sim::arena::Entry;

use crate::contender::{Contender, Tools};
use crate::failure::Failure;
use crate::plant::{self, Plant};
use crate::visitors::visitors;

/// What was seen.
#[derive(Debug)]
pub(crate) struct Bout {
    pub(crate) load: LoadReport,
    /// User and system time of the contender during the load.
    pub(crate) cpu: Duration,
    /// By how much the work was more than on average.
    pub(crate) luck: f64,
}

impl Bout {
    /// Starts everything, sends the load, and ends everything.
    pub(crate) fn fight(
        entry: &Entry,
        contender: &Contender,
        seed: u64,
        tools: &Tools,
    ) -> Result<Self, Failure> {
        let mut replicas = Plant::start(entry, seed)?;
        let running = contender.start(entry, &replicas.addrs(), tools)?;
        let plant = &mut replicas;
        let config = visitors(entry, running.addr, seed)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(Failure::system("no runtime"))?;
        let before = running.server.cpu();
        let (under_way, over) = mpsc::channel::<()>();
        let load = thread::scope(|scope| {
            let changes = scope.spawn(move || plant.follow(&over));
            // A task of its own: the runtime wakes the future that it blocks on through the kernel.
            let load = runtime.block_on(async { tokio::spawn(load::run(config, |_| {})).await });
            drop(under_way);
            changes
                .join()
                .unwrap_or_else(|_| Err(Failure::said("the replicas' schedule failed")))?;
            let load = load.map_err(|_| Failure::said("the load failed"))?;
            Ok::<_, Failure>(load?)
        })?;
        let cpu = running.server.cpu().saturating_sub(before);
        let luck = plant::luck(entry, seed);
        Ok(Self { load, cpu, luck })
    }
}

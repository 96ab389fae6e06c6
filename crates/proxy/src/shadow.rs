//! Drives the comparisons of configurations in force with others (`[shadow]`).
//!
//! One thread for all applications, behind everything else of the process: neither a worker nor the
//! ticker ever waits for it. What it computes is left out of the proxy's own CPU use, by which mode
//! `sentry` decides how much thought a request may cost.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use crate::cpu;
use crate::state::State;

/// Time between two ticks of the shadows. Chosen: ten pictures of the queue per second.
const PERIOD: Duration = Duration::from_millis(100);

/// Rounds after which comparisons that were switched off are ended.
const ENDED_EVERY: u32 = 10;

/// What a thread behind all others is given: the least urgent but idle.
const NICENESS: i32 = 15;

/// Starts the thread, which ends when the sender is dropped.
pub(crate) fn start(state: Arc<State>) -> io::Result<SyncSender<()>> {
    let (alive, ended) = sync_channel(0);
    std::thread::Builder::new()
        .name("shadow".to_owned())
        .spawn(move || run(&state, &ended))?;
    Ok(alive)
}

fn run(state: &State, ended: &Receiver<()>) {
    // A system that refuses it gives the thread its share; that is bounded in any case.
    let _ = rustix::process::setpriority_process(None, NICENESS);
    for round in 0_u32.. {
        if ended.recv_timeout(PERIOD) != Err(RecvTimeoutError::Timeout) {
            return;
        }
        let now = state.now();
        let ends = round.is_multiple_of(ENDED_EVERY);
        for application in state.applications().iter() {
            let comparison = application.comparison();
            if ends || comparison.is_on() {
                application.sentry().compare(now, comparison);
            }
        }
        state.set_shadow_cpu(cpu::spent_by_thread());
    }
}

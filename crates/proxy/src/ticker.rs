//! Drives the engines' timers: without it nothing adapts.
//!
//! One thread for all applications, apart from the workers, so that a worker which is busy does not
//! delay a tick. It belongs to the data plane: [`Bound::start`](crate::Bound::start) starts it with
//! the workers and it ends after the last of them.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use crate::application::Application;
use crate::cpu::CpuMeter;
use crate::state::State;

/// A change of mode may bring an engine's next tick forward, so timers are looked at this often;
/// calling early is a no-op.
const LOOK: Duration = Duration::from_millis(100);

/// Time between two measurements of the proxy's own CPU use.
const CPU_PERIOD: Duration = Duration::from_secs(1);

/// Keeps the engines of a proxy driven for as long as it, or a clone of it, lives.
#[derive(Debug, Clone)]
pub struct Ticking {
    _alive: SyncSender<()>,
}

/// Starts the thread.
///
/// # Errors
/// When the system refuses another thread.
pub fn start(state: Arc<State>) -> io::Result<Ticking> {
    let (alive, ended) = sync_channel(0);
    std::thread::Builder::new()
        .name("ticker".to_owned())
        .spawn(move || run(&state, &ended))?;
    Ok(Ticking { _alive: alive })
}

fn run(state: &State, ended: &Receiver<()>) {
    let mut cpu = CpuMeter::start(state.threads(), Instant::now());
    let mut cpu_due = Instant::now() + CPU_PERIOD;
    loop {
        let driven = state.driven();
        let now = Instant::now();
        let due = driven.iter().map(|it| it.sentry().poll_timeout()).min();
        let due = due.map_or(now + LOOK, |due| state.clock().instant(due));
        let wait = due.min(now + LOOK).saturating_duration_since(now);
        if ended.recv_timeout(wait) != Err(RecvTimeoutError::Timeout) {
            return;
        }
        driven.iter().for_each(|it| tick(state, it));
        let now = Instant::now();
        if now >= cpu_due {
            cpu_due = now + CPU_PERIOD;
            if let Some(share) = cpu.look(now) {
                let report = |it: &Arc<Application>| it.sentry().on_load(it.now(), share);
                driven.iter().for_each(report);
            }
        }
    }
}

fn tick(state: &State, application: &Application) {
    let now = application.now();
    if now < application.sentry().poll_timeout() {
        return;
    }
    let begun = Instant::now();
    let mut observer = |event: &_| state.tell_observers(application, event);
    application.resolving(|sentry, wake| sentry.handle_timeout(now, &mut observer, wake));
    application.metrics().record_tick(begun.elapsed());
}

//! Drives the engines' timers: without it nothing adapts.
//!
//! One thread for all applications, apart from the workers, so that a worker which is busy does not
//! delay a tick. It belongs to the data plane: [`Bound::start`](crate::Bound::start) starts it with
//! the workers and it ends after the last of them.
//!
//! Decision: docs/decisions/0315-tick-in-the-data-plane.md.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use tidegate_control::Timestamp;

use crate::application::Application;
use crate::cpu::CpuMeter;
use crate::memory::CrowdWatch;
use crate::state::{Driven, State};

/// A change of mode may bring an engine's next tick forward, so timers are looked at this often;
/// calling early is a no-op.
const TIMERS_INTERVAL: Duration = Duration::from_millis(100);

/// From this many applications on engines that nothing happens in are ticked less often: with a
/// thousand of them the ticks of idle ones are all that an idle proxy does.
pub(crate) const SPARED_FROM: usize = 16;

/// Time between two ticks of such an engine whose controller goes by the clock. A request that
/// arrives is noticed after [`TIMERS_INTERVAL`].
const RESTING_TICK: Duration = Duration::from_secs(1);

/// The same for other modes, which decide nothing while nothing happens.
const RESTING_TICK_QUIET: Duration = Duration::from_secs(10);

/// With this many applications ticks this close together are done together. Chosen: short against
/// the shortest interval of a mode.
const TOGETHER: Duration = Duration::from_millis(5);

/// Time between two measurements of the proxy's own CPU use.
const CPU_PERIOD: Duration = Duration::from_secs(1);

/// Keeps the engines of a proxy driven for as long as it, or a clone of it, lives.
#[derive(Debug, Clone)]
pub struct Ticking {
    _alive: SyncSender<()>,
    _shadow: SyncSender<()>,
}

/// Starts the thread, and that of the shadows.
///
/// # Errors
/// When the system refuses another thread.
pub fn start(state: Arc<State>) -> io::Result<Ticking> {
    let shadow = crate::shadow::start(Arc::clone(&state))?;
    let (alive, ended) = sync_channel(0);
    std::thread::Builder::new()
        .name("ticker".to_owned())
        .spawn(move || run(&state, &ended))?;
    Ok(Ticking {
        _alive: alive,
        _shadow: shadow,
    })
}

fn run(state: &State, ended: &Receiver<()>) {
    let mut cpu = CpuMeter::start(state.threads(), Instant::now());
    let mut cpu_due = Instant::now() + CPU_PERIOD;
    let mut crowd = CrowdWatch::default();
    let progress = &state.progress;
    loop {
        progress.sign(progress.ticker(), state.now());
        let driven = state.driven();
        let now = Instant::now();
        let spared = driven.iter().count() >= SPARED_FROM;
        // Looked for once: one that a request wakes meanwhile is found the next time.
        let awake: Vec<_> = awake(&driven, state.clock().now(), spared).collect();
        let due = awake.iter().map(|it| it.sentry().poll_timeout()).min();
        let due = due.map_or(now + TIMERS_INTERVAL, |due| state.clock().instant(due));
        let wait = due
            .min(now + TIMERS_INTERVAL)
            .saturating_duration_since(now);
        let wait = if spared { wait.max(TOGETHER) } else { wait };
        if ended.recv_timeout(wait) != Err(RecvTimeoutError::Timeout) {
            progress.ended(progress.ticker());
            return;
        }
        awake.iter().for_each(|it| tick(state, it));
        let now = Instant::now();
        if now >= cpu_due {
            cpu_due = now + CPU_PERIOD;
            let requests = driven
                .iter()
                .map(|it| it.sentry().requests() as usize)
                .sum();
            if crowd.has_gone(state.connections(), requests) {
                tidegate_sockopt::release_free_memory();
            }
            if let Some(share) = cpu.look(now, state.shadow_cpu()) {
                state.set_cpu_share(share);
                let report = |it: &Arc<Application>| it.sentry().on_load(it.now(), share);
                driven.iter().for_each(report);
            }
        }
    }
}

/// Engines that have to be driven; the others are told that they need not be.
fn awake(driven: &Driven, now: Timestamp, spared: bool) -> impl Iterator<Item = &Arc<Application>> {
    driven.iter().filter(move |it| {
        let rests = spared
            && it.rests(now, RESTING_TICK_QUIET)
            && (it.was_ticked_within(now, RESTING_TICK) || !it.goes_by_the_clock());
        if rests {
            it.rested(now);
        }
        !rests
    })
}

fn tick(state: &State, application: &Application) {
    let now = application.now();
    if now < application.sentry().poll_timeout() {
        return;
    }
    let begun = Instant::now();
    application.ticked(now);
    let mut observer = |event: &_| state.tell_observers(application, event);
    application.pass_on(application.sentry().handle_timeout(now, &mut observer));
    application.metrics().record_tick(begun.elapsed());
}

#[cfg(test)]
mod tests {
    use tidegate_sentry::Arrival;

    use super::*;
    use crate::config::Config;
    use crate::gate::Waiter;

    #[test]
    fn engine_rests_until_a_request_arrives() {
        let config = Config::from_text("t.toml", "upstream = 'http://127.0.0.1:1'").unwrap();
        let state = State::new(config).unwrap();
        let application = state.first();
        let (hour, none) = (Duration::from_secs(3600), Duration::ZERO);
        application.ticked(application.now());
        assert!(application.rests(application.now(), hour));
        assert!(
            !application.rests(application.now(), none),
            "the period is over"
        );
        let arrival = Arrival::default();
        let waiter = || -> Waiter { unreachable!("there is room") };
        let verdict = application
            .sentry()
            .on_arrival(application.now(), &arrival, waiter);
        let rests = || application.rests(application.now(), hour);
        assert!(!rests(), "a request has come");
        application.ticked(application.now());
        assert!(!rests(), "it is inside");
        drop(verdict);
    }
}

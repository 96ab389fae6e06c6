//! Drives the engine's timer and passes its events on.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_sentry::Event;
use tokio::time::sleep_until;

use super::Operator;
use super::cpu::CpuMeter;
use super::status::ShedSample;

/// A change of mode may bring the engine's next tick forward, so the timer is looked at this often;
/// calling early is a no-op.
const LOOK: Duration = Duration::from_millis(100);
/// Time between two pictures for the figures of the last seconds, and between two keep-alives.
const PICTURE_EVERY: Duration = Duration::from_secs(1);
const KEEP_ALIVE_EVERY: Duration = Duration::from_secs(15);

/// Runs until it is dropped.
pub(super) async fn run(operator: Arc<Operator>) {
    let mut picture_due = Instant::now();
    let mut cpu = CpuMeter::start(operator.state.threads(), Instant::now());
    let mut keep_alive_due = Instant::now() + KEEP_ALIVE_EVERY;
    loop {
        let clock = operator.state.clock();
        let due = clock.instant(operator.state.sentry().poll_timeout());
        sleep_until(due.min(Instant::now() + LOOK).into()).await;
        tick(&operator);
        let now = Instant::now();
        if now >= picture_due {
            picture_due = now + PICTURE_EVERY;
            operator.take_picture();
            if let Some(share) = cpu.look(now) {
                let state = &operator.state;
                state.sentry().on_load(state.now(), share);
            }
        }
        if now >= keep_alive_due {
            keep_alive_due = now + KEEP_ALIVE_EVERY;
            operator.events.keep_alive();
        }
    }
}

fn tick(operator: &Operator) {
    let state = &operator.state;
    let begun = Instant::now();
    let now = state.now();
    if now < state.sentry().poll_timeout() {
        return;
    }
    let mut observer = |event: &Event| operator.events.publish_engine(event);
    state.resolving(|sentry, wake| sentry.handle_timeout(now, &mut observer, wake));
    state.metrics().record_tick(begun.elapsed());
    if operator.events.is_watched() {
        let config = state.config();
        for refusal in state.metrics().take_shed_samples() {
            let sample = ShedSample::new(&refusal, &config.protect);
            operator.events.publish("shed", &sample);
        }
    }
}

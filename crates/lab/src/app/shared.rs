//! The core between its connections and its timer.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate_config::Size;
use tidegate_control::Timestamp;
use tidegate_sim::server::{JobId, UtilizationMeter};
use tokio::sync::{Notify, oneshot};
use tokio::time::sleep_until;

use super::config::{AppConfig, Discipline, Params, ParamsError};
use super::core::{Core, Served, Stats};
use crate::clock::Clock;

type Reply = oneshot::Sender<Served>;

/// One upstream as its connections see it.
#[derive(Debug)]
pub(super) struct Shared {
    clock: Clock,
    discipline: Discipline,
    state: Mutex<State>,
    /// Something is due earlier than the timer is set to.
    earlier: Notify,
}

#[derive(Debug)]
struct State {
    core: Core<Reply>,
    response: Size,
    /// What the timer sleeps for.
    armed: Option<Timestamp>,
    utilization: UtilizationMeter,
}

/// The state as far as an answer depends on it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Now {
    /// The latest, from 0 to 1.
    pub(super) utilization: f64,
    pub(super) has_optional: bool,
    pub(super) response: Size,
}

impl Shared {
    pub(super) fn start(config: &AppConfig) -> Arc<Self> {
        Arc::new(Self {
            clock: Clock::start(),
            discipline: config.discipline,
            state: Mutex::new(State {
                core: Core::new(config),
                response: config.response,
                armed: None,
                utilization: UtilizationMeter::default(),
            }),
            earlier: Notify::new(),
        })
    }

    /// Lets a request in and waits for the end of its service; `None` when the queue is full.
    pub(super) async fn serve(
        self: &Arc<Self>,
        factor: f64,
        with_optional: bool,
    ) -> Option<Served> {
        let (reply, served) = oneshot::channel();
        let job = {
            let (now, mut state) = self.lock();
            let job = state.core.on_arrival(now, factor, with_optional, reply);
            self.rearm(&mut state);
            job.ok()?
        };
        let mut visitor = Visitor {
            shared: self,
            job: Some(job),
        };
        let served = served.await.ok();
        visitor.job = None;
        served
    }

    /// What an answer that leaves now has to know.
    pub(super) fn now(&self) -> Now {
        let (now, mut state) = self.lock();
        let (busy, workers) = state.core.busy(now);
        Now {
            utilization: state.utilization.read(now, busy, workers),
            has_optional: state.core.has_optional(),
            response: state.response,
        }
    }

    pub(super) fn stats(&self) -> Stats {
        let (now, state) = self.lock();
        state.core.stats(now)
    }

    pub(super) fn set_params(&self, params: &Params) -> Result<(), ParamsError> {
        let checked = params.check(self.discipline)?;
        let (now, mut state) = self.lock();
        state.core.apply(now, &checked);
        state.response = checked.response.unwrap_or(state.response);
        self.rearm(&mut state);
        Ok(())
    }

    /// Hands out answers when they are due, for ever.
    pub(super) async fn run_timer(self: Arc<Self>) {
        loop {
            let due = self.arm();
            let earlier = self.earlier.notified();
            match due {
                Some(due) => tokio::select! {
                    () = sleep_until(self.clock.instant(due)) => {}
                    () = earlier => {}
                },
                None => earlier.await,
            }
        }
    }

    fn arm(&self) -> Option<Timestamp> {
        let (_, mut state) = self.lock();
        state.armed = state.core.poll_timeout();
        state.armed
    }

    /// Wakes the timer where it would sleep too long.
    fn rearm(&self, state: &mut State) {
        let due = state.core.poll_timeout();
        let too_late = match (due, state.armed) {
            (Some(due), Some(armed)) => due < armed,
            (Some(_), None) => true,
            (None, _) => false,
        };
        if too_late {
            state.armed = due;
            self.earlier.notify_one();
        }
    }

    fn abandon(&self, job: JobId) {
        let (now, mut state) = self.lock();
        state.core.on_abandon(now, job);
        self.rearm(&mut state);
    }

    /// The state, brought up to now. No code under the lock can panic half way through a change.
    fn lock(&self) -> (Timestamp, MutexGuard<'_, State>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // Read under the lock: times come in order.
        let now = self.clock.now();
        let deliver = &mut |reply: Reply, served| reply.send(served).is_ok();
        state.core.advance(now, deliver);
        (now, state)
    }
}

/// Tells the core when the client leaves before its answer.
struct Visitor<'a> {
    shared: &'a Shared,
    job: Option<JobId>,
}

impl Drop for Visitor<'_> {
    fn drop(&mut self) {
        if let Some(job) = self.job.take() {
            self.shared.abandon(job);
        }
    }
}

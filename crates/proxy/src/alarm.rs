//! Coarse alarms: deadlines of requests, looked at every [`SWEEP`] all together.
//!
//! A timer of the runtime costs two trips through its wheel for every request, although hardly
//! any of them ever fires. An alarm is a number in a table; the worker's sweep walks the table and
//! wakes what is due. The price is that an alarm rings up to one sweep late.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use slab::Slab;
use tidegate_control::Timestamp;

use crate::worker::Worker;

/// Time between two sweeps. Chosen: deadlines are hundreds of milliseconds or more, and twenty
/// wake-ups a second are not to be seen in a profile.
pub(crate) const SWEEP: Duration = Duration::from_millis(50);

/// The alarms of one worker.
#[derive(Debug, Default)]
pub(crate) struct Alarms {
    table: Mutex<Slab<Entry>>,
}

#[derive(Debug)]
struct Entry {
    due: Timestamp,
    rung: bool,
    waker: Option<Waker>,
}

impl Alarms {
    /// Rings what is due.
    pub(crate) fn sweep(&self, now: Timestamp) {
        let mut due = Vec::new();
        for (_, entry) in self.table.lock().iter_mut() {
            if entry.due <= now && !entry.rung {
                entry.rung = true;
                due.extend(entry.waker.take());
            }
        }
        // Outside the lock: a woken task may set or drop an alarm at once.
        due.into_iter().for_each(Waker::wake);
    }
}

/// The time an alarm was set for has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Elapsed;

/// One alarm; dropping it takes it out of the table.
#[derive(Debug)]
pub(crate) struct Alarm {
    worker: Arc<Worker>,
    key: usize,
}

impl Alarm {
    pub(crate) fn set(worker: &Arc<Worker>, due: Timestamp) -> Self {
        let entry = Entry {
            due,
            rung: false,
            waker: None,
        };
        let key = worker.alarms.table.lock().insert(entry);
        Self {
            worker: Arc::clone(worker),
            key,
        }
    }

    /// Sets it for another time.
    pub(crate) fn reset(&self, due: Timestamp) {
        let entry = &mut self.worker.alarms.table.lock()[self.key];
        entry.due = due;
        entry.rung = false;
    }

    /// Ready once it has rung.
    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<Elapsed> {
        let entry = &mut self.worker.alarms.table.lock()[self.key];
        if entry.rung {
            return Poll::Ready(Elapsed);
        }
        match &mut entry.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            None => entry.waker = Some(cx.waker().clone()),
        }
        Poll::Pending
    }

    /// Runs `future` until it is ready or the alarm rings.
    pub(crate) async fn before<F: Future>(&self, future: F) -> Result<F::Output, Elapsed> {
        let mut future = pin!(future);
        poll_fn(|cx| match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Ok(output)),
            Poll::Pending => self.poll(cx).map(Err),
        })
        .await
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.worker.alarms.table.lock().remove(self.key);
    }
}

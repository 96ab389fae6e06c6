//! Coarse alarms: deadlines of requests, looked at every [`SWEEP`] all together.
//!
//! A timer of the runtime costs two trips through its wheel for every request, although hardly
//! any of them ever fires. An alarm is a number in a table; the worker's sweep walks the table and
//! wakes what is due. The price is that an alarm rings up to one sweep late.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::ops::Deref;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use slab::Slab;
use tidegate_control::Timestamp;

use crate::worker::Worker;

/// Time between two sweeps. Chosen: deadlines are hundreds of milliseconds or more, and a worker with
/// little to do is not woken more often for this than for its requests.
pub(crate) const SWEEP: Duration = Duration::from_millis(100);

/// The alarms of one worker.
#[derive(Debug, Default)]
pub(crate) struct Alarms {
    table: RefCell<Slab<Entry>>,
}

#[derive(Debug)]
struct Entry {
    due: Timestamp,
    rung: bool,
    waker: Waker,
}

impl Alarms {
    /// Rings what is due.
    pub(crate) fn sweep(&self, now: Timestamp) {
        let mut due = Vec::new();
        for (_, entry) in self.table.borrow_mut().iter_mut() {
            if entry.due <= now && !entry.rung {
                entry.rung = true;
                due.push(entry.waker.clone());
            }
        }
        // The table is free by now: a task may go with its last waker, and its alarm with it.
        due.into_iter().for_each(Waker::wake);
    }
}

/// The time an alarm was set for has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Elapsed;

/// One alarm. It enters the table when it is first waited for and leaves it when it is dropped.
#[derive(Debug)]
pub(crate) struct Alarm<W: Deref<Target = Worker>> {
    worker: W,
    due: Timestamp,
    key: Option<usize>,
}

impl<W: Deref<Target = Worker>> Alarm<W> {
    pub(crate) fn set(worker: W, due: Timestamp) -> Self {
        Self {
            worker,
            due,
            key: None,
        }
    }

    /// Sets it for another time.
    pub(crate) fn reset(&mut self, due: Timestamp) {
        self.due = due;
        if let Some(key) = self.key {
            let entry = &mut self.worker.alarms.table.borrow_mut()[key];
            entry.due = due;
            entry.rung = false;
        }
    }

    /// Ready once it has rung.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Elapsed> {
        let mut table = self.worker.alarms.table.borrow_mut();
        let Some(key) = self.key else {
            let entry = Entry {
                due: self.due,
                rung: false,
                waker: cx.waker().clone(),
            };
            self.key = Some(table.insert(entry));
            return Poll::Pending;
        };
        let entry = &mut table[key];
        match entry.rung {
            true => Poll::Ready(Elapsed),
            false => {
                entry.waker.clone_from(cx.waker());
                Poll::Pending
            }
        }
    }

    /// Runs `future` until it is ready or the alarm rings.
    pub(crate) async fn before<F: Future>(&mut self, future: F) -> Result<F::Output, Elapsed> {
        let mut future = pin!(future);
        poll_fn(|cx| match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Ok(output)),
            Poll::Pending => self.poll(cx).map(Err),
        })
        .await
    }
}

impl<W: Deref<Target = Worker>> Drop for Alarm<W> {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.worker.alarms.table.borrow_mut().remove(key);
        }
    }
}

//! Alarms: deadlines of requests, looked at all together.
//!
//! A timer of the runtime costs two trips through its wheel for every request, although hardly
//! any of them ever fires. An alarm is a number in a table. The worker walks the table every
//! [`SWEEP`], and whenever the first of the alarms is due, and wakes what is due. So an alarm is as
//! exact as a timer of the runtime, and one that never rings costs a place in the table.
//!
//! What breaks it: a table of very many alarms that all ring, each at another time.
//!
//! Decision: docs/decisions/0076-alarms-ring-when-they-are-due.md.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::ops::Deref;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use slab::Slab;
use tidegate_control::Timestamp;
use tokio::sync::Notify;

use crate::worker::Worker;

/// Time between two sweeps. Chosen: what a sweep looks after takes seconds, and a worker with
/// little to do is not woken more often for this than for its requests.
pub(crate) const SWEEP: Duration = Duration::from_millis(100);

/// The alarms of one worker.
#[derive(Debug, Default)]
pub(crate) struct Alarms {
    table: RefCell<Slab<Entry>>,
    /// When the table is walked next.
    next: Cell<Timestamp>,
    /// That it has to be walked sooner.
    sooner: Notify,
}

#[derive(Debug)]
struct Entry {
    due: Timestamp,
    rung: bool,
    waker: Waker,
}

impl Alarms {
    /// Rings alarms when they are due, until `end`.
    pub(crate) async fn ring_until(&self, end: Timestamp, now: impl Fn() -> Timestamp) {
        loop {
            let time = now();
            let next = self.ring(time).map_or(end, |due| due.min(end));
            if time >= end {
                return;
            }
            self.next.set(next);
            let pause = tokio::time::sleep(next.since(time));
            tokio::select! {
                () = pause => {}
                () = self.sooner.notified() => {}
            }
        }
    }

    /// Rings what is due; gives when the next one is.
    fn ring(&self, now: Timestamp) -> Option<Timestamp> {
        let mut due = Vec::new();
        let mut next = None;
        for (_, entry) in self.table.borrow_mut().iter_mut() {
            if entry.rung {
            } else if entry.due <= now {
                entry.rung = true;
                due.push(entry.waker.clone());
            } else {
                next = Some(next.map_or(entry.due, |next: Timestamp| next.min(entry.due)));
            }
        }
        // The table is free by now: a task may go with its last waker, and its alarm with it.
        due.into_iter().for_each(Waker::wake);
        next
    }

    /// An alarm was set for this time.
    fn expect(&self, due: Timestamp) {
        if due < self.next.get() {
            self.next.set(due);
            self.sooner.notify_one();
        }
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
            self.worker.alarms.expect(due);
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
            self.worker.alarms.expect(self.due);
            return Poll::Pending;
        };
        let entry = &mut table[key];
        if entry.rung {
            Poll::Ready(Elapsed)
        } else {
            entry.waker.clone_from(cx.waker());
            Poll::Pending
        }
    }

    /// Waits until it has rung.
    pub(crate) async fn rung(&mut self) {
        poll_fn(|cx| self.poll(cx)).await;
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

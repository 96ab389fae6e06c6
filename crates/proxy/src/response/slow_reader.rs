//! Responses that wait for their client.
//!
//! A slot says that a replica is at work. Once a response fills what we and the kernel buffer
//! for a client, the replica waits for the client, and the slot with it: one slow reader per slot
//! would stop the service. So the slot is paused as soon as the client's socket takes no more, and
//! taken again when it does. A client that takes nothing for [`STALL`] loses the slot for good, as
//! if the response were a stream: the worker's sweep sees to that.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use slab::Slab;
use tidegate_control::Timestamp;

use super::Kind;
use crate::gate::Slot;

/// A client that lets a response wait this long no longer holds a slot. Chosen: longer than a
/// round trip around the world, shorter than anybody's patience.
const STALL: Duration = Duration::from_millis(500);

/// A gRPC response that has not ended by then is a stream; a plain call would have.
const GRPC_STREAM_AFTER: Duration = Duration::from_secs(1);

/// The slot of a response that is being read, and who waits for whom.
#[derive(Debug)]
pub(crate) struct Reading {
    inner: RefCell<Inner>,
}

#[derive(Debug)]
struct Inner {
    slot: Option<Slot>,
    kind: Kind,
    since: Timestamp,
    /// Since when a piece of the response waits for the client; `None` while we wait for the
    /// replica.
    waiting: Option<Timestamp>,
    /// Whether the slot is paused.
    blocked: bool,
    streaming: bool,
}

impl Reading {
    fn new(mut slot: Slot, kind: Kind, now: Timestamp) -> Self {
        let streaming = kind == Kind::Stream;
        if streaming {
            slot.stream();
        }
        let inner = Inner {
            slot: Some(slot),
            kind,
            since: now,
            waiting: Some(now),
            blocked: false,
            streaming,
        };
        Self {
            inner: RefCell::new(inner),
        }
    }

    /// A piece went to the client (`Some`), or we wait for the replica (`None`).
    pub(crate) fn set_waiting(&self, waiting: Option<Timestamp>) {
        self.inner.borrow_mut().waiting = waiting;
    }

    /// The client takes no more for now (`true`), or takes more again.
    pub(crate) fn set_blocked(&self, blocked: bool) {
        let mut inner = self.inner.borrow_mut();
        if inner.streaming || inner.blocked == blocked {
            return;
        }
        inner.blocked = blocked;
        if let Some(slot) = &mut inner.slot {
            if blocked { slot.pause() } else { slot.resume() }
        }
    }

    /// The slot, when the response has ended.
    pub(crate) fn take(&self) -> Option<Slot> {
        self.inner.borrow_mut().slot.take()
    }

    pub(crate) fn is_streaming(&self) -> bool {
        self.inner.borrow_mut().streaming
    }

    fn look(&self, now: Timestamp) {
        let mut inner = self.inner.borrow_mut();
        let stalled = inner.waiting.is_some_and(|since| now.since(since) >= STALL);
        let endless = inner.kind == Kind::Grpc && now.since(inner.since) >= GRPC_STREAM_AFTER;
        if !inner.streaming
            && (stalled || endless)
            && let Some(slot) = &mut inner.slot
        {
            slot.stream();
            inner.streaming = true;
        }
    }
}

/// The responses being read on one worker.
#[derive(Debug, Default)]
pub(crate) struct SlowReaders {
    table: RefCell<Slab<Rc<Reading>>>,
}

impl SlowReaders {
    /// Watches a response until [`SlowReaders::forget`].
    pub(crate) fn watch(&self, slot: Slot, kind: Kind, now: Timestamp) -> (usize, Rc<Reading>) {
        let reading = Rc::new(Reading::new(slot, kind, now));
        let key = self.table.borrow_mut().insert(Rc::clone(&reading));
        (key, reading)
    }

    pub(crate) fn forget(&self, key: usize) {
        self.table.borrow_mut().remove(key);
    }

    /// Frees the slots of responses that wait for their clients.
    pub(crate) fn sweep(&self, now: Timestamp) {
        // The table is not held: a slot given back may wake a request that starts another response.
        let readings: Vec<_> = self
            .table
            .borrow()
            .iter()
            .map(|(_, reading)| Rc::clone(reading))
            .collect();
        readings.iter().for_each(|reading| reading.look(now));
    }
}

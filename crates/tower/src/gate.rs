//! Drives the admission engine: takes a slot, waits for one, and gives it back.
//!
//! Every admitted request ends exactly once: its permit lives in a [`Slot`]. A slot that is
//! dropped without an ending belonged to a future or a body that was dropped: the client left.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use std::{future::Future, pin::Pin};

use parking_lot::Mutex;
use tidegate_control::Timestamp;
use tidegate_sentry::{
    Arrival, Ending, Observer, Permit, Refusal, Resolution, Resolutions, Sentry, Status, Ticket,
    Verdict,
};
use tokio::sync::oneshot;

use crate::clock::Clock;

/// Where the engine's answer to a waiting request is sent.
pub(crate) type Waiter = oneshot::Sender<Resolution>;

/// A body whose reader takes nothing for this long gives its slot back: the service has done its
/// part. Chosen: far above the gaps of a busy connection, below any keep-alive.
const READER_STALL: Duration = Duration::from_secs(1);

/// An answer that goes on for this long after its head is a stream, not a slow page. Chosen as in
/// the nucleus: longer than a person waits for a page.
const STREAM_AFTER: Duration = Duration::from_secs(10);

/// The engine of one service, shared by all clones of a layer.
#[derive(Debug)]
pub(crate) struct Gate {
    sentry: Sentry<Waiter>,
    clock: Clock,
    /// Answers under way whose length was not known when they began.
    open: Mutex<Vec<std::sync::Weak<OpenSlot>>>,
}

/// What the engine decided about a request that arrives.
#[derive(Debug)]
#[must_use]
pub enum Entry {
    /// It runs now.
    Admitted(Slot),
    /// It waits; awaiting the [`Wait`] gives its slot, or the refusal.
    Waiting(Wait),
    /// It is refused now.
    Shed(Refusal),
}

impl Gate {
    pub(crate) fn new(sentry: Sentry<Waiter>, clock: Clock) -> Self {
        Self {
            sentry,
            clock,
            open: Mutex::default(),
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(crate) fn status(&self) -> Status {
        self.sentry.status(self.now())
    }

    pub(crate) fn set_kill_switch(&self, on: bool) {
        self.pass_on(self.sentry.set_kill_switch(self.now(), on));
    }

    pub(crate) fn set_dry_run(&self, on: bool) {
        self.pass_on(self.sentry.set_dry_run(self.now(), on));
    }

    pub(crate) fn set_draining(&self, on: bool) {
        self.sentry.set_draining(self.now(), on);
    }

    /// Runs what is due. Returns how long until the next call.
    pub(crate) fn tick(&self, observer: &mut dyn Observer) -> Duration {
        self.pass_on(self.sentry.handle_timeout(self.now(), observer));
        self.release_stalled();
        self.sentry.poll_timeout().since(self.now())
    }

    /// Tells waiting requests what became of them. The slot of one that has gone goes back.
    fn pass_on<'a>(&'a self, mut resolutions: Resolutions<'a, Waiter>) {
        let mut unclaimed = Vec::new();
        loop {
            for (waiter, resolution) in resolutions {
                if let Err(Resolution::Admit(permit)) = waiter.send(resolution) {
                    unclaimed.push(permit);
                }
            }
            let Some(permit) = unclaimed.pop() else {
                return;
            };
            resolutions = self.sentry.on_end(self.now(), permit, Ending::Abandoned);
        }
    }

    fn give_back(&self, permit: Permit, ending: Ending) {
        self.pass_on(self.sentry.on_end(self.now(), permit, ending));
    }

    /// Gives back the slots of answers whose readers take nothing.
    fn release_stalled(&self) {
        let now = self.now();
        let mut stalled = Vec::new();
        self.open.lock().retain(|open| {
            let Some(open) = open.upgrade() else {
                return false;
            };
            if open.is_stalled(now) {
                stalled.push(open);
                return false;
            }
            true
        });
        stalled.iter().for_each(|open| open.stream());
    }
}

/// Decides about a request that arrives. Takes no lock while there is room.
pub(crate) fn enter(gate: &Arc<Gate>, arrival: &Arrival) -> Entry {
    let mut receiver = None;
    let waiter = || {
        let (sender, answer) = oneshot::channel();
        receiver = Some(answer);
        sender
    };
    match gate.sentry.on_arrival(gate.now(), arrival, waiter) {
        Verdict::Admit(permit) => Entry::Admitted(Slot::new(gate, permit)),
        Verdict::Shed(refusal) => Entry::Shed(refusal),
        Verdict::Wait(ticket) => Entry::Waiting(Wait {
            gate: Arc::clone(gate),
            ticket: Some(ticket),
            answer: receiver.expect("the engine parks no request without its waiter"),
        }),
    }
}

/// A place in the queue. Dropping it leaves the queue at once.
#[derive(Debug)]
#[must_use]
pub struct Wait {
    gate: Arc<Gate>,
    ticket: Option<Ticket>,
    answer: oneshot::Receiver<Resolution>,
}

impl Future for Wait {
    type Output = Result<Slot, Refusal>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = std::task::ready!(Pin::new(&mut self.answer).poll(context));
        self.ticket = None;
        // The sender lives in the engine, and the engine as long as this place in its queue.
        Poll::Ready(match answer.expect("the engine answers every waiter") {
            Resolution::Admit(permit) => Ok(Slot::new(&self.gate, permit)),
            Resolution::Shed(refusal) => Err(refusal),
        })
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket.take() else {
            return;
        };
        // Answers sent from here on come back to their sender; one sent before is still here.
        self.answer.close();
        match self.answer.try_recv() {
            Ok(Resolution::Admit(permit)) => self.gate.give_back(permit, Ending::Abandoned),
            Ok(Resolution::Shed(_)) => {}
            Err(_) => {
                self.gate.sentry.on_abandon(self.gate.now(), ticket);
            }
        }
    }
}

/// The right to run one request, given back by [`Slot::end`]; by drop if the client left.
#[derive(Debug)]
#[must_use]
pub struct Slot {
    gate: Arc<Gate>,
    permit: Option<Permit>,
    ending: Ending,
}

impl Slot {
    fn new(gate: &Arc<Gate>, permit: Permit) -> Self {
        Self {
            gate: Arc::clone(gate),
            permit: Some(permit),
            ending: Ending::Abandoned,
        }
    }

    /// Whether to include optional content, where the engine decides that.
    #[must_use]
    pub fn optional(&self) -> Option<bool> {
        self.permit.as_ref()?.optional()
    }

    /// Ends the request.
    pub fn end(mut self, ending: Ending) {
        self.ending = ending;
        self.give_back();
    }

    fn give_back(&mut self) {
        if let Some(permit) = self.permit.take() {
            self.gate.give_back(permit, self.ending);
        }
    }

    /// The answer lasts as long as its client listens: the slot is free, nothing is a sample.
    pub fn stream(&mut self) {
        let Some(permit) = &mut self.permit else {
            return;
        };
        let gate = &self.gate;
        gate.pass_on(gate.sentry.on_stream(gate.now(), permit));
        self.ending = Ending::Ignored;
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.give_back();
    }
}

/// The slot of an answer whose length was not known when it began. It is given back when the
/// body ends, when the reader stalls, or when the answer turns out to be a stream.
#[derive(Debug)]
pub(crate) struct OpenSlot {
    clock: Clock,
    slot: Mutex<Option<Slot>>,
    began: Timestamp,
    /// When the reader got the last frame, in nanoseconds; zero while it waits for one.
    handed_over_ns: AtomicU64,
}

impl OpenSlot {
    pub(crate) fn new(slot: Slot) -> Arc<Self> {
        let gate = Arc::clone(&slot.gate);
        let began = gate.now();
        let open = Arc::new(Self {
            clock: gate.clock.clone(),
            slot: Mutex::new(Some(slot)),
            began,
            handed_over_ns: AtomicU64::new(began.as_nanos()),
        });
        gate.open.lock().push(Arc::downgrade(&open));
        open
    }

    /// The reader waits for the next frame.
    pub(crate) fn asked(&self) {
        self.handed_over_ns.store(0, Ordering::Relaxed);
    }

    /// The reader got a frame.
    pub(crate) fn handed_over(&self) {
        let now = self.clock.now().as_nanos();
        self.handed_over_ns.store(now, Ordering::Relaxed);
    }

    /// The body ended.
    pub(crate) fn end(&self, ending: Ending) {
        let Some(slot) = self.slot.lock().take() else {
            return;
        };
        // A stream stays one, however it ends.
        match slot.ending {
            Ending::Ignored => slot.end(Ending::Ignored),
            _ => slot.end(ending),
        }
    }

    fn is_stalled(&self, now: Timestamp) -> bool {
        let handed_over = self.handed_over_ns.load(Ordering::Relaxed);
        let idle = handed_over > 0 && now.since(Timestamp::from_nanos(handed_over)) > READER_STALL;
        idle || now.since(self.began) > STREAM_AFTER
    }

    fn stream(&self) {
        if let Some(slot) = self.slot.lock().as_mut() {
            slot.stream();
        }
    }
}

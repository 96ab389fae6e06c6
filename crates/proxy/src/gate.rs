//! Drives the admission engine: asks for a slot, waits for it, and gives it back.
//!
//! Whatever happens to a request, its slot ends exactly once: the permit lives in a `Slot`, which
//! `Slot::end` or `Slot::end_as_noted` gives back where the request ends. Where a future may be
//! dropped because its client leaves, a `Held` makes that call. A slot that is dropped without
//! either is a mistake, or the work of a panic: it goes back, and counts as unreported.

use std::rc::Rc;

use tidegate_control::Timestamp;
use tidegate_sentry::{
    Arrival, ClassId, Ending, Permit, Refusal, ReplicaId, Resolution, Ticket, Verdict,
};
use tokio::sync::oneshot;

use crate::record::Row;
use crate::request::watched::Watched;
use crate::worker::LocalApplication;

/// Where the engine's answer arrives.
type Answer = oneshot::Receiver<Resolution>;

/// A request parked in the engine: where to send the engine's answer, from whichever thread frees
/// a slot.
#[derive(Debug)]
pub struct Waiter(oneshot::Sender<Resolution>);

impl Waiter {
    fn new(receiver: &mut Option<Answer>) -> Self {
        let (sender, answer) = oneshot::channel();
        *receiver = Some(answer);
        Self(sender)
    }

    /// Passes the answer on. A permit comes back if the request is gone.
    pub(crate) fn resolve(self, resolution: Resolution) -> Option<Permit> {
        match self.0.send(resolution) {
            Err(Resolution::Admit(permit)) => Some(permit),
            Err(Resolution::Shed(_)) | Ok(()) => None,
        }
    }
}

/// What the engine said to an arrival.
#[derive(Debug)]
pub(crate) enum Entry {
    Admitted(Slot),
    Waiting(Wait),
}

impl Entry {
    /// The request goes no further: its slot goes back, or its place in the queue is left.
    pub(crate) fn end(self) {
        match self {
            Self::Admitted(slot) => slot.end_as_noted(),
            Self::Waiting(wait) => drop(wait),
        }
    }
}

/// What a request holds while its client may leave. Leaving drops the request's future, and this
/// with it: what is held ends then, as one whose client left.
#[derive(Debug)]
pub(crate) struct Held(pub(crate) Option<Entry>);

impl Held {
    pub(crate) fn slot(slot: Slot) -> Self {
        Self(Some(Entry::Admitted(slot)))
    }

    /// The slot, to go on with.
    pub(crate) fn take_slot(&mut self) -> Option<Slot> {
        match self.0.take() {
            Some(Entry::Admitted(slot)) => Some(slot),
            other => {
                self.0 = other;
                None
            }
        }
    }

    /// The request goes no further.
    pub(crate) fn end(&mut self) {
        if let Some(entry) = self.0.take() {
            entry.end();
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.end();
    }
}

/// Asks the engine for a slot. Touches no lock while there is room.
pub(crate) fn enter(
    application: &Rc<LocalApplication>,
    now: Timestamp,
    arrival: &Arrival,
) -> Result<Entry, Refusal> {
    let mut receiver = None;
    let waiter = || Waiter::new(&mut receiver);
    application.shared.on_arrival(now, arrival);
    let verdict = application.shared.sentry().on_arrival(now, arrival, waiter);
    match (verdict, receiver) {
        (Verdict::Admit(permit), _) => {
            let slot = Slot::new(Rc::clone(application), permit);
            slot.record_waiting();
            Ok(Entry::Admitted(slot))
        }
        (Verdict::Shed(refusal), _) => Err(refusal),
        (Verdict::Wait(ticket), receiver) => {
            let wait = Wait::new(application, ticket, receiver.expect(PARKED));
            Ok(Entry::Waiting(wait))
        }
    }
}

/// What the engine promises about those who wait.
const PARKED: &str = "the engine parks no request without its waiter";

/// A place in the queue. Dropping it leaves the queue at once.
#[derive(Debug)]
pub(crate) struct Wait {
    application: Rc<LocalApplication>,
    ticket: Option<Ticket>,
    answer: Answer,
}

impl Wait {
    fn new(application: &Rc<LocalApplication>, ticket: Ticket, answer: Answer) -> Self {
        Self {
            application: Rc::clone(application),
            ticket: Some(ticket),
            answer,
        }
    }

    /// Waits for the engine's answer; `None` if the engine is gone, at shutdown.
    pub(crate) async fn answer(&mut self) -> Option<Result<Slot, Refusal>> {
        let answer = (&mut self.answer).await.ok();
        self.ticket = None;
        Some(match answer? {
            Resolution::Admit(permit) => {
                let slot = Slot::new(Rc::clone(&self.application), permit);
                slot.record_waiting();
                Ok(slot)
            }
            Resolution::Shed(refusal) => Err(refusal),
        })
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket.take() else {
            return;
        };
        // From here on a slot that gets free is kept; one that has been given already goes back.
        self.answer.close();
        let application = &self.application.shared;
        match self.answer.try_recv() {
            Ok(Resolution::Admit(permit)) => {
                application.give_back(application.now(), permit, Ending::Abandoned);
            }
            Ok(Resolution::Shed(_)) => {}
            Err(_) => {
                application.sentry().on_abandon(application.now(), ticket);
            }
        }
    }
}

/// The right to occupy one slot of one replica. It is given back by a call; by drop only if that
/// was forgotten.
#[derive(Debug)]
pub(crate) struct Slot {
    application: Rc<LocalApplication>,
    permit: Option<Permit>,
    /// How the request ends if it goes no further than this.
    noted: Ending,
    /// What follows the request.
    watched: Option<Rc<Watched>>,
}

/// A slot that is not empty: the permit is taken out only for the engine's calls, and by drop.
const HELD: &str = "a slot holds its permit until it is dropped";

impl Slot {
    fn new(application: Rc<LocalApplication>, permit: Permit) -> Self {
        Self {
            application,
            permit: Some(permit),
            noted: Ending::Abandoned,
            watched: None,
        }
    }

    /// Notes how long the request waited, once.
    fn record_waiting(&self) {
        if !self.permit().returned() {
            let metrics = self.application.metrics();
            metrics.record_waiting(self.class(), self.waited());
        }
    }

    fn permit(&self) -> &Permit {
        self.permit.as_ref().expect(HELD)
    }

    pub(crate) fn replica(&self) -> ReplicaId {
        self.permit().replica()
    }

    pub(crate) fn class(&self) -> ClassId {
        self.permit().class()
    }

    /// Whether to include optional content, where the engine decides that.
    pub(crate) fn optional(&self) -> Option<bool> {
        self.permit().optional()
    }

    /// The mean service time the replica should aim at.
    pub(crate) fn service_target(&self) -> Option<std::time::Duration> {
        self.permit().service_target()
    }

    /// When the slot was granted.
    pub(crate) fn admitted(&self) -> Timestamp {
        self.permit().admitted()
    }

    pub(crate) fn waited(&self) -> std::time::Duration {
        self.permit().admitted() - self.permit().arrived()
    }

    /// The request is followed there.
    pub(crate) fn attach(&mut self, watched: Option<Rc<Watched>>) {
        self.watched = watched;
    }

    /// Who follows the request, for the slot that comes after this one.
    pub(crate) fn take_watched(&mut self) -> Option<Rc<Watched>> {
        self.watched.take()
    }

    fn row(&self) -> Option<&Rc<Row>> {
        self.watched.as_ref()?.row.as_ref()
    }

    /// The request ends here, so: the slot goes back, and the time of one that was served is a
    /// sample.
    pub(crate) fn end(mut self, ending: Ending) {
        self.give_back(ending);
    }

    /// The request ends here, as was noted on its way: as failed ([`Slot::set_failed`]), as a
    /// stream ([`Slot::stream`]), else as one whose client left. None of them is a sample.
    pub(crate) fn end_as_noted(mut self) {
        self.give_back(self.noted);
    }

    /// The replica failed the request: it ends so, unless another replica gets it.
    pub(crate) fn set_failed(&mut self) {
        self.noted = Ending::Dropped;
    }

    /// Moves on to another replica, for a request the first one never saw. False if none has room.
    pub(crate) fn reassign(&mut self) -> bool {
        let permit = self.permit.take().expect(HELD);
        let application = &self.application.shared;
        let (permit, moved) = match application.sentry().reassign(application.now(), permit) {
            Ok(permit) => (permit, true),
            Err(permit) => (permit, false),
        };
        self.permit = Some(permit);
        moved
    }

    /// Goes back to the head of the queue, for a request that may be sent again. Until the answer
    /// comes, this slot is none. Nothing if no other replica is worth waiting for.
    pub(crate) fn requeue(&mut self, bytes: u32, deadline: Option<Timestamp>) -> Option<Wait> {
        let permit = self.permit.take().expect(HELD);
        let application = &self.application.shared;
        let now = application.now();
        let mut receiver = None;
        let waiter = || Waiter::new(&mut receiver);
        let queued = application
            .sentry()
            .requeue(now, permit, bytes, deadline, waiter);
        match queued {
            Ok((ticket, resolutions)) => {
                application.pass_on(resolutions);
                let answer = receiver.expect(PARKED);
                Some(Wait::new(&self.application, ticket, answer))
            }
            Err(permit) => {
                self.permit = Some(permit);
                None
            }
        }
    }

    /// The replica waits for the client: the slot is free meanwhile.
    pub(crate) fn pause(&mut self) {
        let mut permit = self.permit.take().expect(HELD);
        let application = &self.application.shared;
        let now = application.now();
        application.pass_on(application.sentry().on_pause(now, &mut permit));
        self.permit = Some(permit);
    }

    /// The replica goes on after [`Slot::pause`].
    pub(crate) fn resume(&mut self) {
        let application = &self.application.shared;
        let permit = self.permit.as_mut().expect(HELD);
        application.sentry().on_resume(application.now(), permit);
    }

    /// The response lasts as long as somebody listens: the slot goes back, nothing is a sample.
    pub(crate) fn stream(&mut self) {
        let mut permit = self.permit.take().expect(HELD);
        let application = &self.application.shared;
        let now = application.now();
        application.pass_on(application.sentry().on_stream(now, &mut permit));
        if let Some(row) = self.row() {
            row.left(now, &permit, Ending::Ignored);
        }
        self.permit = Some(permit);
        self.noted = Ending::Ignored;
    }
}

impl Slot {
    fn give_back(&mut self, ending: Ending) {
        let Some(permit) = self.permit.take() else {
            return;
        };
        let now = self.application.shared.now();
        let watched = self.watched.take();
        let watched = watched.as_deref();
        if let Some(row) = watched.and_then(|it| it.row.as_ref()) {
            row.left(now, &permit, ending);
        }
        let trace = watched.and_then(|it| it.trace.as_ref());
        if let Some(trace) = trace {
            trace.left(now, &permit, ending);
        }
        if ending == Ending::Served {
            let (service, response) = (now - permit.admitted(), now - permit.arrived());
            let (class, replica) = (permit.class(), permit.replica());
            let metrics = self.application.metrics();
            metrics.record_served(class, replica, service, response);
            if let Some(sampled) = watched.and_then(|it| it.sampled.as_ref()) {
                sampled.served(service);
            }
            if let Some(exemplar) = trace.and_then(|it| it.exemplar(response.as_secs_f64())) {
                metrics.record_response_exemplar(class, exemplar);
            }
        }
        self.application.shared.give_back(now, permit, ending);
    }
}

/// The safety net: how the request ended is not known, so nothing is learnt from it.
impl Drop for Slot {
    fn drop(&mut self) {
        self.give_back(Ending::Unreported);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::Worker;

    fn admitted(application: &Rc<LocalApplication>) -> Slot {
        let now = application.shared.now();
        match enter(application, now, &Arrival::default()) {
            Ok(Entry::Admitted(slot)) => slot,
            other => panic!("there is room, not {other:?}"),
        }
    }

    /// Requests that were abandoned, and those whose end is not known.
    fn ended(application: &LocalApplication) -> (u64, u64) {
        let status = application.shared.sentry().status(application.shared.now());
        assert_eq!(status.replicas[0].in_flight, 0, "the slot is free");
        (status.classes[0].abandoned, status.classes[0].unreported)
    }

    #[test]
    fn slot_that_is_held_ends_as_abandoned_when_its_future_is_dropped() {
        let worker = Worker::idle();
        let application = worker.outside();
        drop(Held::slot(admitted(&application)));
        assert_eq!(ended(&application), (1, 0));
    }

    #[test]
    fn slot_that_failed_and_is_held_ends_as_failed() {
        let worker = Worker::idle();
        let application = worker.outside();
        let mut slot = admitted(&application);
        slot.set_failed();
        drop(Held::slot(slot));
        assert_eq!(ended(&application), (0, 0));
        let status = application.shared.sentry().status(application.shared.now());
        assert_eq!(status.classes[0].dropped, 1);
    }

    #[test]
    fn slot_that_is_forgotten_goes_back_as_unreported() {
        let worker = Worker::idle();
        let application = worker.outside();
        drop(admitted(&application));
        assert_eq!(ended(&application), (0, 1));
    }
}

//! One request and its response, from the arrival to the last byte: what is counted and logged.

use std::rc::Rc;

use http::StatusCode;
use tidegate_control::Timestamp;
use tidegate_sentry::{ClassId, Refusal, ReplicaId};

use super::head::Reading;
use super::watched::Watched;
use crate::access_log::Record;
use crate::client::{Client, ConnectionCommand, Protocol};
use crate::edge::Passage;
use crate::edge::companions::Handed;
use crate::fault::Fault;
use crate::gate::Slot;
use crate::message::Request;
use crate::metrics::{
    Direction, Ending, Failing, Outcome, Remembered, RequestId, Sampled, UpstreamFailure,
};
use crate::record::Row;
use crate::refuse::{Format, REQUEST_ID};
use crate::settings::Settings;
use crate::trace::Trace;
use crate::worker::{LocalApplication, Worker};

/// The account of a request that is being served. It outlives the request: the response's body
/// carries it to its last byte. Dropped before it is complete, its client has left.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) client: Rc<Client>,
    /// Whose request it is.
    pub(crate) application: Rc<LocalApplication>,
    pub(crate) arrived: Timestamp,
    pub(crate) id: RequestId,
    /// How the client wants to be refused, if it has to be.
    pub(crate) format: Format,
    /// Whether the client listens to the channel.
    pub(crate) holds_back: bool,
    /// What the edge allows it; places in quotas are held to the end.
    pub(crate) passage: Option<Box<Passage>>,
    /// The application whose canary serves it, and that it may return to.
    pub(crate) main: Option<Rc<LocalApplication>>,
    /// What its client is answered, as far as that is decided.
    pub(crate) outcome: Outcome,
    class: Option<ClassId>,
    /// The replica that may have seen it.
    replica: Option<ReplicaId>,
    record: Option<Box<Record>>,
    /// Who follows it.
    watched: Option<Rc<Watched>>,
    end: End,
    /// Whether it is what keeps its client's connection busy.
    holds_connection: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Cancelled,
    Complete,
    Truncated(UpstreamFailure),
}

impl Exchange {
    pub(crate) fn begin<B>(
        client: &Rc<Client>,
        application: Rc<LocalApplication>,
        request: &Request<B>,
    ) -> Self {
        let logs = client.worker().settings().access_log.is_some();
        let arrived = client.worker().state.now();
        let holds_connection = client.has_one_request();
        if holds_connection {
            client.worker().busy.update(|busy| busy + 1);
            application.busy.update(|busy| busy + 1);
        }
        Self {
            holds_connection,
            arrived,
            id: id_of(client, request),
            watched: Watched::begin(&application, arrived),
            format: Format::Text,
            holds_back: false,
            passage: None,
            main: None,
            outcome: Outcome::Served,
            class: None,
            replica: None,
            record: logs.then(|| Box::new(Record::new(request, client.peer))),
            end: End::Cancelled,
            application,
            client: Rc::clone(client),
        }
    }

    /// Where it is served.
    pub(crate) fn worker(&self) -> &Rc<Worker> {
        self.client.worker()
    }

    /// What came was no request: the one that begins the exchange stands in for it.
    pub(crate) fn is_malformed(&mut self) {
        if let Some(record) = &mut self.record {
            record.forget_request();
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.worker().state.now()
    }

    /// What it asks for is known, whatever becomes of it.
    pub(crate) fn asked(&mut self, settings: &Settings, path: &str, reading: &Reading) {
        let (head, allowance) = (&reading.head, reading.allowance);
        self.class = Some(head.class);
        if let Some(record) = &mut self.record {
            record.class = Some(head.class);
        }
        if let Some(row) = self.row() {
            settings.keys.record_path(path, head.keys.path, row);
            let by_client = allowance.by_client.then_some(allowance.time);
            row.asked(head.keys.tenant, by_client);
            row.classified(head.class);
        }
    }

    /// The canary does not serve it: from now on it is the main application's. False if there is
    /// none to return to.
    pub(crate) fn return_to_main(&mut self, why: Handed, class: ClassId) -> bool {
        let Some(main) = self.main.take() else {
            return false;
        };
        let canary = std::mem::replace(&mut self.application, main);
        canary.shared.companion_returned(why);
        if self.holds_connection {
            canary.busy.update(|busy| busy - 1);
            self.application.busy.update(|busy| busy + 1);
        }
        let trace = self.traced().cloned();
        self.watched = Watched::begin(&self.application, self.arrived);
        if let Some(trace) = trace {
            trace.moved(&self.application);
            self.watch(|watched| watched.trace = Some(trace));
        }
        if let Some(row) = self.row() {
            row.classified(class);
        }
        true
    }

    /// Where it is recorded.
    pub(crate) fn row(&self) -> Option<&Rc<Row>> {
        self.watched.as_ref()?.row.as_ref()
    }

    /// Where its cost is noted, if it is one of those that are looked at.
    pub(crate) fn sampled(&self) -> Option<&Sampled> {
        self.watched.as_ref()?.sampled.as_ref()
    }

    /// It is one of those that are looked at.
    pub(crate) fn sample(&mut self, sampled: Sampled) {
        self.watch(|watched| watched.sampled = Some(sampled));
    }

    /// It is recorded for its trace.
    pub(crate) fn trace(&mut self, trace: Trace) {
        self.watch(|watched| watched.trace = Some(Rc::new(trace)));
    }

    /// Where it is recorded for its trace.
    pub(crate) fn traced(&self) -> Option<&Rc<Trace>> {
        self.watched.as_ref()?.trace.as_ref()
    }

    /// Whether a replica may have seen it.
    pub(crate) fn is_sent(&self) -> bool {
        self.replica.is_some()
    }

    /// Changes what follows it, as long as no slot holds that as well.
    fn watch(&mut self, change: impl FnOnce(&mut Watched)) {
        let watched = self.watched.get_or_insert_with(Rc::default);
        if let Some(watched) = Rc::get_mut(watched) {
            change(watched);
        }
    }

    /// It was admitted to a replica.
    pub(crate) fn admitted(&mut self, slot: &mut Slot) {
        self.replica = Some(slot.replica());
        if let Some(row) = self.row() {
            row.admitted(slot.waited());
        }
        if let Some(trace) = self.traced() {
            trace.admitted(slot.admitted(), slot.optional());
        }
        slot.attach(self.watched.clone());
        if let Some(record) = &mut self.record {
            record.waited = Some(slot.waited());
            record.replica = Some(slot.replica());
            record.optional = slot.optional();
        }
    }

    /// It is answered with this status, by us if there is a reason.
    pub(crate) fn answered(&mut self, status: StatusCode, reason: Option<&'static str>) {
        self.application.metrics().record_response(status.as_u16());
        if let Some(row) = self.row() {
            row.answered(status.as_u16(), reason);
        }
        if let Some(trace) = self.traced() {
            trace.answered(status, reason);
        }
        if let Some(record) = &mut self.record {
            record.status = status.as_u16();
            record.reason = reason;
        }
    }

    /// The engine refuses it.
    pub(crate) fn shed(&self, refusal: Refusal) -> Fault {
        self.application.metrics().record_shed(&refusal);
        if let Some(row) = self.row() {
            row.shed(&refusal);
        }
        if let Some(sampled) = self.sampled() {
            sampled.shed();
        }
        if let Some(trace) = self.traced() {
            trace.shed(&refusal);
        }
        refusal.into()
    }

    /// It is refused for load: that can be looked up by its id.
    pub(crate) fn refused(&self, refusal: &Refusal) {
        if let Some(exemplar) = self.traced().and_then(|trace| trace.exemplar(1.0)) {
            let metrics = self.application.metrics();
            metrics.record_shed_exemplar(refusal.class, refusal.reason, exemplar);
        }
        self.remember(self.now(), Ending::Shed(*refusal));
    }

    /// It is not served, for another reason than load: that can be looked up by its id.
    pub(crate) fn failed(&self, fault: &Fault, status: StatusCode) {
        let quota = match fault {
            Fault::Quota(overdrawn) => Some(overdrawn.quota.clone()),
            _ => None,
        };
        self.remember_failing(fault.outcome(), fault.as_str(), status.as_u16(), quota);
    }

    fn remember_failing(
        &self,
        outcome: Outcome,
        reason: &'static str,
        status: u16,
        quota: Option<Box<str>>,
    ) {
        let now = self.now();
        let failing = Failing {
            outcome,
            reason,
            class: self.class,
            replica: self.replica,
            status,
            took: now - self.arrived,
            quota,
        };
        self.remember(now, Ending::Other(failing));
    }

    fn remember(&self, at: Timestamp, ending: Ending) {
        self.worker().metrics().remember(Remembered {
            number: self.id.number(),
            at,
            application: self.application.shared.key(),
            ending,
            trace: self.traced().map(|trace| trace.id()),
        });
    }

    /// This many bytes of the body were passed on.
    pub(crate) fn count(&mut self, bytes: u64) {
        if let Some(record) = &mut self.record {
            record.bytes += bytes;
        }
        if let Some(row) = self.row() {
            row.count_response_bytes(bytes);
        }
    }

    pub(crate) fn count_response_bytes(&self, bytes: usize) {
        self.application
            .metrics()
            .record_bytes(Direction::Response, bytes as u64);
    }

    pub(crate) fn count_request_bytes(&self, bytes: usize) {
        if let Some(row) = self.row() {
            row.count_request_bytes(bytes as u64);
        }
        self.application
            .metrics()
            .record_bytes(Direction::Request, bytes as u64);
    }

    /// The response went out whole.
    pub(crate) fn complete(mut self) {
        self.end = End::Complete;
    }

    /// The response broke off because of the replica.
    pub(crate) fn truncated(mut self, failure: UpstreamFailure) {
        self.end = End::Truncated(failure);
    }

    /// What its client was answered in the end.
    fn final_outcome(&self) -> Outcome {
        match self.end {
            End::Complete => self.outcome,
            End::Cancelled => Outcome::Abandoned,
            End::Truncated(_) => Outcome::Failed,
        }
    }

    /// Why it did not end as was decided, if it did not.
    fn end_reason(&self) -> Option<&'static str> {
        match self.end {
            End::Complete => None,
            End::Cancelled => Some("abandoned"),
            End::Truncated(failure) => Some(failure.as_str()),
        }
    }

    /// A client that cancels as fast as it asks is told to go away.
    fn charge_reset(&self) {
        let limits = &self.worker().settings().config.limits;
        if self.client.protocol() == Protocol::Http2 && self.client.cancels_too_much(limits) {
            self.send_away();
        }
    }

    /// What is in flight is finished; the next request needs another connection.
    pub(crate) fn send_away(&self) {
        self.client.give(ConnectionCommand::Close);
    }
}

/// The id that a trusted proxy gave a request, or a new one. Two ids are none.
fn id_of<B>(client: &Client, request: &Request<B>) -> RequestId {
    let mut given = request.headers.get_all(REQUEST_ID);
    let given = match (client.trusted, given.next(), given.next()) {
        (true, Some(one), None) => RequestId::given(one),
        _ => None,
    };
    given.unwrap_or_else(|| client.worker().ids.make())
}

impl Drop for Exchange {
    fn drop(&mut self) {
        if self.holds_connection {
            self.worker().busy.update(|busy| busy - 1);
            self.application.busy.update(|busy| busy - 1);
        }
        let cancelled = self.end == End::Cancelled;
        self.client.end_request(cancelled);
        if cancelled {
            self.charge_reset();
        }
        let (now, reason) = (self.now(), self.end_reason());
        if let Some(reason) = reason.filter(|_| self.outcome == Outcome::Served) {
            self.remember_failing(self.final_outcome(), reason, 0, None);
        }
        if let Some(class) = self.class {
            let (metrics, took) = (self.application.metrics(), now - self.arrived);
            metrics.record_client(class, self.final_outcome(), took);
        }
        if let Some(row) = self.row() {
            row.ended(now, cancelled, reason);
        }
        if let Some(trace) = self.traced() {
            trace.ended(now, reason);
        }
        let Some(mut record) = self.record.take() else {
            return;
        };
        record.took = now - self.arrived;
        record.reason = reason.or(record.reason);
        let log = &self.worker().settings().access_log;
        if let Some(log) = log
            && !log.write(
                &record,
                &self.id,
                self.application.shared.name(),
                &self.application.settings(),
            )
        {
            self.worker().metrics().record_log_line_lost();
        }
    }
}

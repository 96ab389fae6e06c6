//! One request from its arrival to the last byte of its response, for those who count.

use std::rc::Rc;
use std::time::Duration;

use http::StatusCode;
use tidegate_control::Timestamp;
use tidegate_sentry::{ClassId, PathKey, Refusal, ReplicaId};

use crate::access_log::Record;
use crate::channel::{Claim, Proven};
use crate::client::{Client, Order, Protocol};
use crate::edge::Passage;
use crate::gate::Slot;
use crate::message::Request;
use crate::metrics::{Direction, RequestId, UpstreamFailure};
use crate::record::Row;
use crate::refuse::Format;
use crate::response::orca::LoadFormat;
use crate::worker::{LocalApplication, Worker};

/// A request that is being served. Dropped before it is complete, its client has left.
#[derive(Debug)]
pub(crate) struct Visit {
    pub(crate) client: Rc<Client>,
    /// Whose request it is.
    pub(crate) application: Rc<LocalApplication>,
    pub(crate) arrived: Timestamp,
    /// How the client wants to be refused, if it has to be.
    pub(crate) format: Format,
    /// The replica the client belongs to.
    pub(crate) sticky: Option<ReplicaId>,
    /// In which form a trusted caller wants to know how busy we are.
    pub(crate) load_format: Option<LoadFormat>,
    /// Whether the client listens to the channel.
    pub(crate) holds_back: bool,
    /// An item whose body has still to be read.
    pub(crate) claim: Option<Box<Claim>>,
    /// What is proven about an item.
    pub(crate) item: Option<Box<Proven>>,
    /// Its path, for what it costs.
    pub(crate) path: Option<PathKey>,
    /// What the edge gave it.
    pub(crate) passage: Option<Box<Passage>>,
    record: Option<Box<Record>>,
    /// Its row in the recording.
    row: Option<Rc<Row>>,
    end: End,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Cancelled,
    Complete,
    Truncated(UpstreamFailure),
}

impl Visit {
    pub(crate) fn begin<B>(
        client: &Rc<Client>,
        application: Rc<LocalApplication>,
        request: &Request<B>,
    ) -> Self {
        let logs = client.worker().settings().access_log.is_some();
        let arrived = client.worker().state.now();
        Self {
            arrived,
            row: Row::begin(&application, arrived),
            format: Format::Text,
            sticky: None,
            load_format: None,
            holds_back: false,
            claim: None,
            item: None,
            path: None,
            passage: None,
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

    /// What came was no request: the one that begins the visit stands in for it.
    pub(crate) fn is_malformed(&mut self) {
        if let Some(record) = &mut self.record {
            record.forget_request();
        }
    }

    /// Its class is known, whatever becomes of it.
    pub(crate) fn classified(&mut self, class: ClassId) {
        if let Some(record) = &mut self.record {
            record.class = Some(class);
        }
        if let Some(row) = &self.row {
            row.classified(class);
        }
    }

    /// Where it is recorded.
    pub(crate) fn row(&self) -> Option<&Rc<Row>> {
        self.row.as_ref()
    }

    /// It was admitted to a replica.
    pub(crate) fn admitted(&mut self, slot: &mut Slot) {
        if let Some(row) = &self.row {
            row.admitted(slot.waited());
            slot.attach(Some(Rc::clone(row)));
        }
        if let Some(record) = &mut self.record {
            record.waited = Some(slot.waited());
            record.replica = Some(slot.replica());
            record.optional = slot.optional();
        }
    }

    /// It is answered with this status, by us if there is a reason.
    pub(crate) fn answered(&mut self, status: StatusCode, reason: Option<&'static str>) {
        self.application.metrics().record_response(status.as_u16());
        if let Some(row) = &self.row {
            row.answered(status.as_u16(), reason);
        }
        if let Some(record) = &mut self.record {
            record.status = status.as_u16();
            record.reason = reason;
        }
    }

    /// It is refused for load: the id under which that can be looked up.
    pub(crate) fn refused(&mut self, refusal: &Refusal) -> RequestId {
        let worker = self.worker();
        let id = worker
            .metrics()
            .remember_refusal(worker.state.now(), refusal);
        if let Some(record) = &mut self.record {
            record.id = Some(id);
        }
        id
    }

    /// So many bytes of the body were passed on.
    pub(crate) fn count(&mut self, bytes: u64) {
        if let Some(record) = &mut self.record {
            record.bytes += bytes;
        }
        if let Some(row) = &self.row {
            row.count_response_bytes(bytes);
        }
    }

    pub(crate) fn count_response_bytes(&self, bytes: usize) {
        self.application
            .metrics()
            .record_bytes(Direction::Response, bytes as u64);
    }

    pub(crate) fn count_request_bytes(&self, bytes: usize) {
        if let Some(row) = &self.row {
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

    fn since_arrival(&self) -> Duration {
        self.worker().state.now() - self.arrived
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
        self.client.give(Order::Close);
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        let cancelled = self.end == End::Cancelled;
        self.client.end_request(cancelled);
        if cancelled {
            self.charge_reset();
        }
        if let Some(row) = self.row.take() {
            let reason = match self.end {
                End::Complete => None,
                End::Cancelled => Some("departed"),
                End::Truncated(failure) => Some(failure.as_str()),
            };
            row.ended(self.worker().state.now(), cancelled, reason);
        }
        let took = match self.record {
            Some(_) => self.since_arrival(),
            None => return,
        };
        let Some(mut record) = self.record.take() else {
            return;
        };
        record.took = took;
        record.reason = match self.end {
            End::Complete => record.reason,
            End::Cancelled => Some("departed"),
            End::Truncated(failure) => Some(failure.as_str()),
        };
        let log = &self.worker().settings().access_log;
        if let Some(log) = log
            && !log.write(
                &record,
                self.application.shared.name(),
                &self.application.settings(),
            )
        {
            self.worker().metrics().record_log_line_lost();
        }
    }
}

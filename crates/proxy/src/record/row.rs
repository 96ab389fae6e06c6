//! One request on its way into a recording.
//!
//! The exchange knows what the client asked and got, the slot what the replica did; either may end
//! first. Both hold the row, and the one that ends last sends it.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use tidegate_control::Timestamp;
use tidegate_record::{Decision, Ending, NameKind, Request};
use tidegate_sentry::{ClassId, Permit, Refusal};

use super::reason_code;
use crate::worker::LocalApplication;

/// A row that is being filled in; sent by drop.
#[derive(Debug)]
pub(crate) struct Row {
    application: Rc<LocalApplication>,
    arrived: Timestamp,
    request: Cell<Request>,
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

impl Row {
    /// The row of a request that has just arrived; none while nothing is recorded.
    pub(crate) fn begin(
        application: &Rc<LocalApplication>,
        arrived: Timestamp,
    ) -> Option<Rc<Self>> {
        application.shared.recordings().is_on().then(|| {
            let request = Request {
                at_us: arrived.as_nanos() / 1000,
                application: application.shared.places().application(),
                ..Request::default()
            };
            Rc::new(Self {
                application: Rc::clone(application),
                arrived,
                request: Cell::new(request),
            })
        })
    }

    fn change(&self, change: impl FnOnce(&mut Request)) {
        let mut request = self.request.get();
        change(&mut request);
        self.request.set(request);
    }

    /// Its class is known.
    pub(crate) fn classified(&self, class: ClassId) {
        let class = self.application.shared.places().class(class);
        self.change(|request| request.class = class);
    }

    /// What its client says: the tenant, and how long it waits for an answer.
    pub(crate) fn asked(&self, tenant: Option<u64>, deadline: Option<Duration>) {
        self.change(|request| {
            request.tenant = tenant.unwrap_or(0);
            request.deadline_us = deadline.map_or(0, micros);
        });
    }

    /// Who sent it, by a hash.
    pub(crate) fn client(&self, client: u32) {
        self.change(|request| request.client = client);
    }

    /// This many bytes of its body were received.
    pub(crate) fn count_request_bytes(&self, bytes: u64) {
        self.change(|request| request.request_bytes += bytes);
    }

    /// This many bytes of its response's body were passed on.
    pub(crate) fn count_response_bytes(&self, bytes: u64) {
        self.change(|request| request.response_bytes += bytes);
    }

    /// Its path, with the name that all such paths share.
    pub(crate) fn path(&self, hash: u64, name: impl FnOnce() -> String) {
        self.change(|request| request.path = hash);
        let recordings = self.application.shared.recordings();
        if recordings.with_names()
            && let Some(recorder) = &*recordings.recorder()
        {
            recorder.name(NameKind::Path, hash, || name().into());
        }
    }

    /// It waits in the queue.
    pub(crate) fn waits(&self) {
        self.change(|request| request.decision = Decision::Waited);
    }

    /// It was refused for load.
    pub(crate) fn shed(&self, refusal: &Refusal) {
        let waited = self.application.shared.now() - self.arrived;
        self.change(|request| {
            request.reason = refusal.reason.index() as u8 + 1;
            request.retry_after_ms = refusal.retry_after.as_millis() as u64;
            if request.decision == Decision::Waited {
                request.decision = Decision::ShedWaiting;
                request.waiting_us = micros(waited);
            } else {
                request.decision = Decision::Shed;
            }
        });
    }

    /// It got a slot after it had waited in the queue for so long.
    pub(crate) fn admitted(&self, waited: Duration) {
        self.change(|request| {
            request.waiting_us = micros(waited);
            if request.decision != Decision::Waited {
                request.decision = Decision::Admitted;
            }
        });
    }

    /// Its slot goes back. Of several calls the first counts: a stream gives its slot back early.
    pub(crate) fn left(&self, now: Timestamp, permit: &Permit, ending: tidegate_sentry::Ending) {
        let replica = self.application.shared.places().replica(permit.replica());
        self.change(|request| {
            if request.ending == Ending::Streamed {
                return;
            }
            request.replica = replica;
            request.service_us = micros(now - permit.admitted());
            request.ending = match ending {
                tidegate_sentry::Ending::Served => Ending::Served,
                tidegate_sentry::Ending::Dropped => Ending::Failed,
                tidegate_sentry::Ending::Abandoned => Ending::Abandoned,
                tidegate_sentry::Ending::Ignored => Ending::Streamed,
                // A slot always ends its permit; one that did not says nothing about the replica.
                tidegate_sentry::Ending::Unreported => Ending::Abandoned,
            };
        });
    }

    /// It is answered with this status, by us if there is a reason.
    pub(crate) fn answered(&self, status: u16, reason: Option<&'static str>) {
        self.change(|request| {
            request.status = status;
            if let Some(reason) = reason {
                request.reason = reason_code(reason);
            }
        });
    }

    /// The last byte went out, or the client left.
    pub(crate) fn ended(&self, now: Timestamp, abandoned: bool, reason: Option<&'static str>) {
        let took = now - self.arrived;
        self.change(|request| {
            request.response_us = micros(took);
            if let Some(reason) = reason {
                request.reason = reason_code(reason);
            }
            match request.decision {
                Decision::None if !abandoned => request.decision = Decision::Rejected,
                Decision::None | Decision::Waited | Decision::Admitted
                    if abandoned && request.ending == Ending::Unsent =>
                {
                    request.ending = Ending::Abandoned;
                }
                _ => {}
            }
        });
    }
}

impl Drop for Row {
    fn drop(&mut self) {
        if let Some(recorder) = &*self.application.shared.recordings().recorder() {
            recorder.request(self.request.get());
        }
    }
}

//! What is recorded of a request, and its way to the exporter.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::SystemTime;

use http::{Method, StatusCode, Version};
use tidegate_control::Timestamp;
use tidegate_sentry::{ClassId, Ending, Permit, Refusal, ReplicaId};

use super::{Context, Identity, SpanId, TraceId, Traces};
use crate::application::Application;
use crate::metrics::{Exemplar, RequestId};
use crate::worker::LocalApplication;

/// Bytes of a path that are kept. Chosen: longer ones are rarely told apart by their ends.
const PATH_BYTES_MAX: usize = 128;

/// The beginning of a path, in a place of fixed size.
#[derive(Clone, Copy)]
pub struct PathText {
    bytes: [u8; PATH_BYTES_MAX],
    length: u8,
}

impl PathText {
    fn new(path: &str) -> Self {
        let mut length = path.len().min(PATH_BYTES_MAX);
        while !path.is_char_boundary(length) {
            length -= 1;
        }
        let mut bytes = [0; PATH_BYTES_MAX];
        bytes[..length].copy_from_slice(&path.as_bytes()[..length]);
        Self {
            bytes,
            length: length as u8,
        }
    }

    /// Its text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..usize::from(self.length)]).unwrap_or("")
    }
}

impl fmt::Debug for PathText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

/// A request that was recorded. Its size does not depend on the request.
#[derive(Debug, Clone)]
pub struct Span {
    /// The trace it belongs to.
    pub trace: TraceId,
    /// Its own id.
    pub id: SpanId,
    /// The span of the client, if it sent one.
    pub parent: Option<SpanId>,
    /// The id of its part at a replica: the parent of what the replica records.
    pub upstream: SpanId,
    /// Whose request it was.
    pub application: Arc<Application>,
    /// Its id in logs and refusals.
    pub request_id: RequestId,
    /// What was asked for.
    pub method: Method,
    /// The path, without its query.
    pub path: PathText,
    /// The version of HTTP.
    pub version: Version,
    /// Whether it came by TLS.
    pub tls: bool,
    /// Its class.
    pub class: ClassId,
    /// When it arrived.
    pub arrived: Timestamp,
    /// When it got a slot, the first time.
    pub admitted: Option<Timestamp>,
    /// When the replica was done with it.
    pub left: Option<Timestamp>,
    /// When its response was handed over, or it was given up.
    pub ended: Timestamp,
    /// The replica that had it last.
    pub replica: Option<ReplicaId>,
    /// How it ended there.
    pub ending: Option<Ending>,
    /// Whether optional content was included, where that is decided here.
    pub optional: Option<bool>,
    /// The status of its response; 0 if there was none.
    pub status: u16,
    /// Why it was not served, in a word.
    pub reason: Option<&'static str>,
    /// What the engine compared, if it was shed.
    pub refusal: Option<Refusal>,
}

impl Span {
    /// The time of day of one of its times.
    #[must_use]
    pub fn time_of_day(&self, at: Timestamp) -> SystemTime {
        self.application.clock().time_of_day(at)
    }

    /// The name of its class.
    #[must_use]
    pub fn class_name(&self) -> String {
        let settings = self.application.settings();
        let protect = &settings.config.protect;
        protect.class_name(self.class).to_owned()
    }

    /// The URL of its replica.
    #[must_use]
    pub fn replica_url(&self) -> Option<String> {
        let settings = self.application.settings();
        Some(settings.replica(self.replica?)?.origin().to_string())
    }
}

/// What is known of a request when it is chosen.
pub(crate) struct Beginning<'a> {
    pub(crate) request_id: &'a RequestId,
    pub(crate) method: &'a Method,
    pub(crate) path: &'a str,
    pub(crate) version: Version,
    pub(crate) tls: bool,
    pub(crate) class: ClassId,
    pub(crate) arrived: Timestamp,
}

/// A request that is being recorded. The exchange and the slot hold it; it goes to the exporter
/// when both have let go of it.
#[derive(Debug)]
pub(crate) struct Trace {
    traces: Arc<Traces>,
    core: usize,
    context: Context,
    /// Taken when it goes to the exporter.
    span: RefCell<Option<Box<Span>>>,
}

impl Trace {
    pub(crate) fn begin(
        traces: &Arc<Traces>,
        core: usize,
        application: &Rc<LocalApplication>,
        identity: Identity,
        request: &Beginning<'_>,
    ) -> Self {
        let span = Span {
            trace: identity.trace,
            id: identity.span,
            parent: identity.parent.map(|parent| parent.span),
            upstream: identity.upstream,
            application: Arc::clone(&application.shared),
            request_id: request.request_id.clone(),
            method: request.method.clone(),
            path: PathText::new(request.path),
            version: request.version,
            tls: request.tls,
            class: request.class,
            arrived: request.arrived,
            admitted: None,
            left: None,
            ended: request.arrived,
            replica: None,
            ending: None,
            optional: None,
            status: 0,
            reason: None,
            refusal: None,
        };
        Self {
            traces: Arc::clone(traces),
            core,
            context: identity.towards_replica(),
            span: RefCell::new(Some(Box::new(span))),
        }
    }

    fn change(&self, change: impl FnOnce(&mut Span)) {
        if let Some(span) = self.span.borrow_mut().as_deref_mut() {
            change(span);
        }
    }

    /// What a replica learns of the trace.
    pub(crate) fn context(&self) -> Context {
        self.context
    }

    /// What stands beside a figure that this request is an example of.
    pub(crate) fn exemplar(&self, seconds: f64) -> Option<Exemplar> {
        let span = self.span.borrow();
        let span = span.as_deref()?;
        Some(Exemplar {
            trace: span.trace,
            span: span.id,
            value: seconds,
            at: SystemTime::now(),
        })
    }

    /// The trace that it belongs to.
    pub(crate) fn id(&self) -> TraceId {
        self.context.trace
    }

    /// It got a slot.
    pub(crate) fn admitted(&self, at: Timestamp, optional: Option<bool>) {
        self.change(|span| {
            span.admitted.get_or_insert(at);
            span.optional = optional;
        });
    }

    /// The engine refused it.
    pub(crate) fn shed(&self, refusal: &Refusal) {
        self.change(|span| span.refusal = Some(*refusal));
    }

    /// Its slot goes back.
    pub(crate) fn left(&self, now: Timestamp, permit: &Permit, ending: Ending) {
        self.change(|span| {
            span.left = Some(now);
            span.replica = Some(permit.replica());
            span.ending = Some(ending);
        });
    }

    /// The canary did not serve it: it is the main application's.
    pub(crate) fn moved(&self, application: &Rc<LocalApplication>) {
        self.change(|span| span.application = Arc::clone(&application.shared));
    }

    /// It is answered with this status, by us if there is a reason.
    pub(crate) fn answered(&self, status: StatusCode, reason: Option<&'static str>) {
        self.change(|span| {
            span.status = status.as_u16();
            span.reason = reason;
        });
    }

    /// The last byte was handed over, or it was given up.
    pub(crate) fn ended(&self, now: Timestamp, reason: Option<&'static str>) {
        self.change(|span| {
            span.ended = now;
            span.reason = reason.or(span.reason);
        });
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        if let Some(span) = self.span.get_mut().take() {
            self.traces.push(self.core, span);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_is_cut_between_characters() {
        assert_eq!(PathText::new("/a").as_str(), "/a");
        let long = format!("/{}é", "a".repeat(PATH_BYTES_MAX - 2));
        assert_eq!(PathText::new(&long).as_str().len(), PATH_BYTES_MAX - 1);
    }
}

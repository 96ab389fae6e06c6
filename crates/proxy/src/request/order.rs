//! What a request asks for, read before its head is changed.

use http::header::{CONNECTION, CONTENT_TYPE};
use http::{HeaderValue, Method, Version};
use http_body::Body as _;
use tidegate_sentry::{Arrival, ClassId};

use super::canonical;
use super::classify::Asked;
use super::deadline;
use super::engine_keys::Marks;
use super::known_headers::KnownHeaders;
use super::upload::{Upload, UploadRules};
use super::visit::Visit;
use crate::client::Protocol;
use crate::client::inbound::Inbound;
use crate::edge::{Edge, Passage, Seen};
use crate::fault::{Fault, Invalid};
use crate::hop::{self, has_token};
use crate::http1::Violation;
use crate::message::{Fields, Request};
use crate::refuse::Format;
use crate::response::orca::LoadFormat;
use crate::settings::Settings;
use crate::upstream::send::Deadline;

/// What a request holds in memory beside its head and body. Measured by
/// the size of the futures, rounded up.
const OVERHEAD_BYTES: usize = 4096;

/// A request that may be passed on.
#[derive(Debug)]
pub(crate) struct Order {
    /// Without its body while that is being sent.
    pub(crate) request: Request<Upload>,
    /// Whom it is for; HTTP/1.0 need not say.
    pub(crate) host: Option<HeaderValue>,
    /// Whether a `Host` header says so.
    pub(crate) host_named: bool,
    pub(crate) class: ClassId,
    /// Whose it is and what it is like, for the engine.
    marks: Marks,
    pub(crate) deadline: Deadline,
    /// How often it may be sent again.
    pub(crate) repetitions: u32,
    /// The protocol that the client wishes to switch to.
    pub(crate) upgrade: Option<Box<HeaderValue>>,
    pub(crate) expects_continue: bool,
    head_bytes: usize,
}

impl Order {
    /// Reads a request; refuses it if it cannot be passed on whatever the load.
    pub(crate) fn read(
        visit: &mut Visit,
        settings: &Settings,
        request: Request<Inbound>,
    ) -> Result<Self, Fault> {
        let limits = &settings.config.limits;
        if visit.client.cancels_too_much(limits) {
            return Err(Fault::TooManyResets);
        }
        let known = KnownHeaders::of(&request.headers);
        visit.format = match visit.client.protocol() {
            Protocol::Http2 if is_grpc(known.content_type) => Format::Grpc,
            _ => Format::of(known.accept),
        };
        if known.fields > limits.headers {
            return Err(Fault::Malformed(Violation::TooManyHeaders));
        }
        let host = canonical::check(&request, &known)?;
        let name = host.as_ref().map(HeaderValue::as_bytes);
        let name = name.and_then(|name| std::str::from_utf8(name).ok());
        let asked = Asked::new(
            &request.method,
            name.unwrap_or(""),
            request.uri.path(),
            &request.headers,
        )
        .from(visit.client.trusted, visit.client.identity())
        .verified_by(settings.tokens.as_ref());
        let class = settings.classifier.class(&asked);
        let marks = settings.keys.marks(&asked, visit.client.peer.ip());
        if let Some(edge) = &settings.edge {
            let passed = pass(edge, visit, settings, &asked, &marks, &request);
            visit.passage = Some(passed.inspect_err(|fault| declined(visit, &request, fault))?);
        }
        let rules =
            (!request.body.is_end_stream()).then(|| upload_rules(visit, settings, &asked, &marks));
        let timeout = visit.passage.as_ref().and_then(|passage| passage.timeout);
        let timeout = timeout.unwrap_or(*settings.config.timeouts.request);
        let allowance = deadline::allowance(&known, timeout);
        if let Some(row) = visit.row() {
            settings.keys.record_path(&asked, marks.path, row);
            row.asked(marks.tenant, allowance.by_client.then_some(allowance.time));
        }
        visit.classified(class);
        if visit.client.trusted {
            visit.load_format = known.load_format.and_then(LoadFormat::of);
        }
        visit.path = marks.path;
        let upgrade = wanted_upgrade(&request, &known).cloned().map(Box::new);
        let expects_continue = known.expect.is_some();
        let host_named = known.host.is_some();
        let head_bytes = known.bytes + target_bytes(&request);
        visit.sticky = settings
            .sticky
            .as_ref()
            .and_then(|sticky| sticky.replica(&request.headers));
        let mut body = Inbound::Empty;
        let mut head = request.map(|inbound| body = inbound);
        if head.method == Method::OPTIONS && !hop::count_down(&mut head.headers) {
            return Err(Fault::LastHop);
        }
        let upload = Upload::new(body, &visit.client, rules);
        let upload = upload.inspect_err(|_: &Invalid| visit.client.linger())?;
        Ok(Self {
            upgrade,
            request: head.map(|()| upload),
            host,
            host_named,
            class,
            marks,
            deadline: Deadline {
                at: visit.arrived + allowance.time,
                allowance,
            },
            repetitions: settings.config.retry.attempts,
            expects_continue,
            head_bytes,
        })
    }

    /// What it holds in memory while it waits.
    pub(crate) fn bytes(&self) -> u32 {
        let bytes = OVERHEAD_BYTES + self.head_bytes + self.request.body.held();
        u32::try_from(bytes).unwrap_or(u32::MAX)
    }

    /// What the engine is told of it.
    pub(crate) fn arrival(&self, visit: &Visit) -> Arrival {
        Arrival {
            class: self.class,
            bytes: self.bytes(),
            deadline: self
                .deadline
                .allowance
                .by_client
                .then_some(self.deadline.at),
            sticky: visit.sticky,
            path: self.marks.path,
            tenant: self.marks.tenant,
            session: self.marks.session,
            session_entry: self.marks.session_entry,
        }
    }
}

/// Shows a request to the edge.
fn pass(
    edge: &Edge,
    visit: &Visit,
    settings: &Settings,
    asked: &Asked<'_>,
    marks: &Marks,
    request: &Request<Inbound>,
) -> Result<Box<Passage>, Fault> {
    let seen = Seen {
        asked,
        marks,
        uri: &request.uri,
        peer: visit.client.peer.ip(),
        tls: visit.client.tls,
        now: visit.arrived,
    };
    edge.pass(&seen, &settings.keys)
}

/// The edge answers a request itself. A client that still writes is let finish.
fn declined(visit: &Visit, request: &Request<Inbound>, fault: &Fault) {
    visit.application.shared.edge_counters().count(fault);
    if !request.body.is_end_stream() {
        visit.client.linger();
    }
}

/// What the operator allows the body of a request.
fn upload_rules(
    visit: &Visit,
    settings: &Settings,
    asked: &Asked<'_>,
    marks: &Marks,
) -> UploadRules {
    let config = &settings.config;
    let peer = visit.client.peer.ip();
    let of_path = visit
        .passage
        .as_ref()
        .and_then(|passage| passage.body_bytes);
    UploadRules {
        bytes_max: of_path
            .or(config.limits.body_bytes.map(|it| *it))
            .unwrap_or(u64::MAX),
        rate: *config.limits.upload_rate,
        until: visit.arrived + *config.timeouts.upload,
        is_conversation: settings.speaks_http2() && is_conversation(asked.headers),
        tenant: marks
            .tenant
            .unwrap_or_else(|| settings.keys.by_address(asked, peer)),
    }
}

/// Whether client and replica may talk in turns, each waiting for the other: gRPC and Connect.
fn is_conversation(headers: &Fields) -> bool {
    let kind = headers.get(CONTENT_TYPE);
    let connect = |kind: &HeaderValue| kind.as_bytes().starts_with(b"application/connect+");
    is_grpc(kind) || kind.is_some_and(connect)
}

/// Whether a body is a gRPC call.
fn is_grpc(content_type: Option<&HeaderValue>) -> bool {
    content_type.is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"))
}

/// The protocol a request asks to upgrade to, if we pass that on: HTTP/1.1, GET, no body, and not
/// to another version of HTTP, which would carry requests past us.
fn wanted_upgrade<'a, B>(
    request: &Request<B>,
    known: &KnownHeaders<'a>,
) -> Option<&'a HeaderValue> {
    let protocol = known.upgrade?;
    let name = protocol.to_str().ok()?.to_ascii_lowercase();
    let wanted = request.version == Version::HTTP_11
        && request.method == Method::GET
        && !known.body
        && !name.contains(',')
        && !name.trim_ascii().starts_with("h2")
        && has_token(&request.headers, &CONNECTION, "upgrade");
    wanted.then_some(protocol)
}

/// Bytes of the request line.
fn target_bytes<B>(request: &Request<B>) -> usize {
    let target = request.uri.path_and_query();
    target.map_or(1, |target| target.as_str().len()) + 24
}

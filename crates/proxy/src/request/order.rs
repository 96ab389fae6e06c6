//! What a request asks for, read before its head is changed.

use http::header::CONNECTION;
use http::{HeaderValue, Method, Version};
use tidegate_sentry::{Arrival, ClassId};

use super::canonical;
use super::classify::Asked;
use super::deadline;
use super::engine_keys::Marks;
use super::known_headers::KnownHeaders;
use super::upload::Upload;
use super::visit::Visit;
use crate::client::inbound::Inbound;
use crate::fault::{Fault, Invalid};
use crate::hop::{self, has_token};
use crate::http1::Violation;
use crate::message::Request;
use crate::refuse::Format;
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
        visit.format = Format::of(known.accept);
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
        visit.classified(class);
        visit.path = marks.path;
        let allowance = deadline::allowance(&known, *settings.config.timeouts.request);
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
        let upload = Upload::new(body, &visit.client, limits.body_bytes.map(|bytes| bytes.0));
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

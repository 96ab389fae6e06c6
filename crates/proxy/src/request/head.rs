//! What a request asks for, read before its head is changed.

use std::net::IpAddr;

use http::header::{CONNECTION, CONTENT_TYPE};
use http::{HeaderValue, Method, Version};
use http_body::Body as _;
use tidegate_control::Timestamp;
use tidegate_sentry::{Arrival, ClassId, ReplicaId};

use super::canonical;
use super::classify::Asked;
use super::deadline::{self, Allowance};
use super::engine_keys::Marks;
use super::exchange::Exchange;
use super::known_headers::KnownHeaders;
use super::upload::{Upload, UploadRules};
use crate::client::inbound::Inbound;
use crate::client::{Client, Protocol};
use crate::edge::{EdgeRequest, Passage};
use crate::fault::Fault;
use crate::hop::has_token;
use crate::http1::Violation;
use crate::message::{Fields, Request};
use crate::refuse::Format;
use crate::response::orca::LoadFormat;
use crate::settings::Settings;

/// What a request holds in memory beside its head and body. Measured by
/// the size of the futures, rounded up.
const OVERHEAD_BYTES: usize = 4096;

/// What the head of a request says.
#[derive(Debug)]
pub(crate) struct Head {
    /// Whom it is for; HTTP/1.0 need not say.
    pub(crate) host: Option<HeaderValue>,
    /// Whether a `Host` header says so.
    pub(crate) host_named: bool,
    pub(crate) class: ClassId,
    /// Whose it is and what it is like, for the engine.
    pub(crate) keys: Marks,
    /// What it costs, as a trusted caller says.
    cost: Option<f32>,
    /// The replica the client belongs to.
    pub(crate) sticky: Option<ReplicaId>,
    /// In which form a trusted caller wants to know how busy we are.
    pub(crate) load_format: Option<LoadFormat>,
    /// The protocol that the client wishes to switch to.
    pub(crate) upgrade: Option<Box<HeaderValue>>,
    pub(crate) expects_continue: bool,
    /// Of its target and fields; as small as that, for one is held by every request.
    bytes: u32,
}

/// What reading a head gives.
#[derive(Debug)]
pub(crate) struct Reading {
    pub(crate) head: Head,
    pub(crate) allowance: Allowance,
    /// What the edge allows the request.
    pub(crate) passage: Option<Box<Passage>>,
    /// What the operator allows its body, if it has one.
    pub(crate) upload: Option<UploadRules>,
}

/// The connection and the moment at which a request came.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Origin<'a> {
    pub(crate) client: &'a Client,
    pub(crate) at: Timestamp,
}

impl<'a> Origin<'a> {
    pub(crate) fn of(exchange: &'a Exchange) -> Self {
        Self {
            client: &exchange.client,
            at: exchange.arrived,
        }
    }

    /// The names of a request's path and tenant, for people.
    pub(crate) fn names(
        &self,
        settings: &Settings,
        request: &Request<Inbound>,
        head: &Head,
    ) -> (String, Option<String>) {
        let asked = self.asked(settings, request, head.host.as_ref());
        settings.keys.names(&asked, self.peer())
    }

    /// What tells the client from others in a recording.
    pub(crate) fn client_key(
        &self,
        settings: &Settings,
        request: &Request<Inbound>,
        head: &Head,
    ) -> u32 {
        let asked = self.asked(settings, request, head.host.as_ref());
        settings.keys.client_key(&asked, self.peer(), &head.keys)
    }

    fn peer(&self) -> IpAddr {
        self.client.peer.ip()
    }

    /// Reads a request's head. Of what lies outside only the quotas of the edge change.
    ///
    /// # Errors
    /// When the request cannot be passed on whatever the load.
    pub(crate) fn read(
        &self,
        settings: &Settings,
        request: &Request<Inbound>,
        known: &KnownHeaders<'_>,
    ) -> Result<Reading, Fault> {
        if known.fields > settings.config.limits.headers {
            return Err(Fault::Malformed(Violation::TooManyHeaders));
        }
        let host = canonical::check(request, known)?;
        let asked = self.asked(settings, request, host.as_ref());
        let class = settings.classifier.class(&asked);
        let keys = settings.keys.marks(&asked, self.peer());
        let passage = self.pass_edge(settings, request, &asked, &keys)?;
        let upload = (!request.body.is_end_stream())
            .then(|| self.upload_rules(settings, passage.as_deref(), &asked, &keys));
        let timeout = passage.as_ref().and_then(|passage| passage.timeout);
        let timeout = timeout.unwrap_or(*settings.config.timeouts.request);
        let load_format = known.load_format.filter(|_| self.client.trusted);
        let cost = known.cost.filter(|_| self.client.trusted);
        let sticky = settings.sticky.as_ref();
        let head = Head {
            host_named: known.host.is_some(),
            class,
            keys,
            cost: cost.and_then(declared_cost),
            sticky: sticky.and_then(|sticky| sticky.replica(&request.headers)),
            load_format: load_format.and_then(LoadFormat::of),
            upgrade: wanted_upgrade(request, known).cloned().map(Box::new),
            expects_continue: known.expect.is_some(),
            bytes: u32::try_from(known.bytes + target_bytes(request)).unwrap_or(u32::MAX),
            host,
        };
        Ok(Reading {
            head,
            allowance: deadline::allowance(known, timeout),
            passage,
            upload,
        })
    }

    /// The request as its class is decided on.
    fn asked<'r>(
        &'r self,
        settings: &'r Settings,
        request: &'r Request<Inbound>,
        host: Option<&'r HeaderValue>,
    ) -> Asked<'r> {
        let name = host.and_then(|host| std::str::from_utf8(host.as_bytes()).ok());
        Asked::new(
            &request.method,
            name.unwrap_or(""),
            request.uri.path(),
            &request.headers,
        )
        .from(self.client.trusted, self.client.identity())
        .verified_by(settings.tokens.as_ref())
    }

    /// What the edge allows the request; none where there is no edge.
    fn pass_edge(
        &self,
        settings: &Settings,
        request: &Request<Inbound>,
        asked: &Asked<'_>,
        keys: &Marks,
    ) -> Result<Option<Box<Passage>>, Fault> {
        let Some(edge) = &settings.edge else {
            return Ok(None);
        };
        let seen = EdgeRequest {
            asked,
            marks: keys,
            uri: &request.uri,
            peer: self.peer(),
            tls: self.client.tls,
            now: self.at,
        };
        edge.pass(&seen, &settings.keys).map(Some)
    }

    /// What the operator allows the body of a request.
    fn upload_rules(
        &self,
        settings: &Settings,
        passage: Option<&Passage>,
        asked: &Asked<'_>,
        keys: &Marks,
    ) -> UploadRules {
        let config = &settings.config;
        let of_path = passage.and_then(|passage| passage.body_bytes);
        UploadRules {
            bytes_max: of_path
                .or(config.limits.body_bytes.map(|it| *it))
                .unwrap_or(u64::MAX),
            rate: *config.limits.upload_rate,
            until: self.at + *config.timeouts.upload,
            is_conversation: settings.speaks_http2() && is_conversation(asked.headers),
            tenant: keys
                .tenant
                .unwrap_or_else(|| settings.keys.by_address(asked, self.peer())),
        }
    }
}

impl Head {
    /// Bytes that a request with this body holds in memory while it waits.
    pub(crate) fn bytes_with(&self, body: &Upload) -> u32 {
        let bytes = OVERHEAD_BYTES + self.bytes as usize + body.held();
        u32::try_from(bytes).unwrap_or(u32::MAX)
    }

    /// The request as the engine sees it, with this body and the client's own deadline.
    pub(crate) fn arrival(&self, body: &Upload, deadline: Option<Timestamp>) -> Arrival {
        Arrival {
            class: self.class,
            bytes: self.bytes_with(body),
            deadline,
            sticky: self.sticky,
            path: self.keys.path,
            tenant: self.keys.tenant,
            session: self.keys.session,
            session_entry: self.keys.session_entry,
            cost: self.cost.map(f64::from),
        }
    }
}

/// To seven digits: a request in service is small.
fn declared_cost(value: &HeaderValue) -> Option<f32> {
    value.to_str().ok()?.trim().parse().ok()
}

/// How a client wants to be refused.
pub(crate) fn refusal_format(protocol: Protocol, known: &KnownHeaders<'_>) -> Format {
    match protocol {
        Protocol::Http2 if is_grpc(known.content_type) => Format::Grpc,
        _ => Format::of(known.accept),
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

//! The life of a request.

pub(crate) mod canonical;
pub(crate) mod classify;
pub(crate) mod deadline;
pub(crate) mod outward;
pub(crate) mod sticky;
pub(crate) mod upload;
pub(crate) mod visit;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http::header::{CONTENT_LENGTH, EXPECT, UPGRADE};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use tidegate_control::Timestamp;
use tidegate_sentry::{Arrival, ClassId};

use crate::alarm::{Alarm, Elapsed};
use crate::client::{Client, Upgrade};
use crate::fault::Fault;
use crate::gate::{self, Entry, Slot, Wait};
use crate::hop::has_token;
use crate::refuse;
use crate::response::body::Outbound;
use crate::response::{self, tunnel};
use crate::upstream::send::{Deadline, Outgoing, Sending};
use crate::worker::Worker;
use deadline::Allowance;
use upload::Upload;
use visit::Visit;

/// How long a refused client may take to send the body that is read and thrown away.
const DISCARD: Duration = Duration::from_secs(1);

/// What a request holds in memory beside its head: hyper's state and ours. Measured by the size
/// of the futures, rounded up.
const OVERHEAD_BYTES: usize = 2048;

/// Serves one request. Never fails: what goes wrong becomes an answer.
pub(crate) async fn serve(
    worker: Arc<Worker>,
    client: Arc<Client>,
    request: Request<Incoming>,
) -> Result<Response<Outbound>, Infallible> {
    let violation = client.begin_request();
    let mut visit = Visit::begin(worker, client, &request);
    let served = match violation {
        Some(violation) => Err(Fault::Malformed(violation)),
        None => live(&mut visit, request).await,
    };
    let mut response = match served {
        Ok(response) => {
            visit.answered(response.status(), None);
            response
        }
        Err(fault) => {
            let settings = visit.worker.state.settings();
            let response = settings.refusals.answer(&fault, visit.format);
            drop(settings);
            visit.answered(refuse::status(&fault), Some(fault.as_str()));
            response
        }
    };
    let upgraded = response.status() == StatusCode::SWITCHING_PROTOCOLS;
    visit.client.decide_upgrade(match upgraded {
        true => Upgrade::Accepted,
        false => Upgrade::Declined,
    });
    response::say_goodbye(&visit, &mut response);
    response.body_mut().carry(visit);
    Ok(response)
}

/// The life of a request, step by step.
async fn live(visit: &mut Visit, request: Request<Incoming>) -> Result<Response<Outbound>, Fault> {
    let mut order = Order::take(visit, &request)?;
    let (mut parts, body) = request.into_parts();
    let upgrade = order
        .upgrade
        .take()
        .map(|protocol| (protocol, take_upgrade(&mut parts)));
    let upload = read_body(visit, &order, body).await?;
    let (mut slot, upload) = admit(visit, &order, upload).await?;
    visit.admitted(&slot);
    let protocol = upgrade.as_ref().map(|(protocol, _)| protocol.clone());
    let outgoing = prepare(visit, &order, &slot, parts, upload, protocol);
    let answer = send(visit, &order, &mut slot, outgoing).await?;
    match (upgrade, answer.response.status()) {
        (Some((_, Some(client))), StatusCode::SWITCHING_PROTOCOLS) => {
            Ok(tunnel::open(visit, slot, answer, client))
        }
        (_, StatusCode::SWITCHING_PROTOCOLS) => Err(tunnel::unasked(visit, slot)),
        _ => response::relay(visit, slot, answer).await,
    }
}

/// What a request asks for, read before its head is changed.
struct Order {
    host: Option<HeaderValue>,
    class: ClassId,
    deadline: Deadline,
    /// The protocol to upgrade to.
    upgrade: Option<HeaderValue>,
    expects_continue: bool,
    head_bytes: usize,
}

impl Order {
    fn take(visit: &mut Visit, request: &Request<Incoming>) -> Result<Self, Fault> {
        let host = canonical::check(request)?;
        let worker = Arc::clone(&visit.worker);
        let settings = worker.state.settings();
        if visit.client.cancelled() >= settings.config.limits.early_resets {
            return Err(Fault::TooManyResets);
        }
        let headers = request.headers();
        let name = host
            .as_ref()
            .and_then(|host| host.to_str().ok())
            .unwrap_or("");
        let limit = *settings.config.timeouts.request;
        let allowance = deadline::allowance(headers, limit);
        visit.sticky = settings
            .sticky
            .as_ref()
            .and_then(|sticky| sticky.replica(headers));
        Ok(Self {
            class: settings.classifier.class(request, name),
            deadline: Deadline {
                at: visit.arrived + allowance.time,
                allowance,
            },
            upgrade: wanted_upgrade(request),
            expects_continue: headers.contains_key(EXPECT),
            head_bytes: head_bytes(request),
            host,
        })
    }

    fn arrival(&self, visit: &Visit, upload: &Upload) -> Arrival {
        let Allowance { by_client, .. } = self.deadline.allowance;
        let bytes = OVERHEAD_BYTES + self.head_bytes + upload.held();
        Arrival {
            class: self.class,
            bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
            deadline: by_client.then_some(self.deadline.at),
            sticky: visit.sticky,
        }
    }
}

/// The protocol a request asks to upgrade to, if we pass that on: HTTP/1.1, GET, no body, and not
/// to another version of HTTP, which would carry requests past us.
fn wanted_upgrade<B>(request: &Request<B>) -> Option<HeaderValue> {
    let headers = request.headers();
    let protocol = headers.get(UPGRADE)?;
    let no_body = headers
        .get(CONTENT_LENGTH)
        .is_none_or(|length| length == "0")
        && !headers.contains_key(http::header::TRANSFER_ENCODING);
    let protocol_ok = protocol.to_str().is_ok_and(|name| {
        !name.contains(',') && !name.trim().to_ascii_lowercase().starts_with("h2")
    });
    let wanted = request.version() == Version::HTTP_11
        && *request.method() == Method::GET
        && has_token(headers, &http::header::CONNECTION, "upgrade")
        && no_body
        && protocol_ok;
    wanted.then(|| protocol.clone())
}

fn take_upgrade(parts: &mut Parts) -> Option<OnUpgrade> {
    parts.extensions.remove::<OnUpgrade>()
}

/// Bytes of a head, roughly as they came in.
fn head_bytes<B>(request: &Request<B>) -> usize {
    let fields = |headers: &HeaderMap| -> usize {
        headers
            .iter()
            .map(|(name, value)| name.as_str().len() + value.len() + 4)
            .sum()
    };
    let target = request
        .uri()
        .path_and_query()
        .map_or(1, |target| target.as_str().len());
    fields(request.headers()) + target + 32
}

/// Reads what has to be read of the body before a slot is asked for.
async fn read_body(visit: &Visit, order: &Order, body: Incoming) -> Result<Upload, Fault> {
    let state = &visit.worker.state;
    let allowed = state
        .settings()
        .config
        .limits
        .body_bytes
        .map(|bytes| bytes.0);
    let upload =
        Upload::new(body, &visit.client, allowed).inspect_err(|_| visit.client.linger())?;
    if !upload.is_open() || order.expects_continue {
        return Ok(upload);
    }
    let alarm = Alarm::set(&visit.worker, order.deadline.at);
    let read = alarm.before(upload.read_ahead()).await;
    let upload = read.map_err(|Elapsed| Fault::from(crate::fault::Invalid::BodyTimeout))?;
    let upload = upload.inspect_err(|_| visit.client.linger())?;
    visit.count_request_bytes(upload.held());
    Ok(upload)
}

/// Asks for a slot and waits for it.
async fn admit(visit: &mut Visit, order: &Order, upload: Upload) -> Result<(Slot, Upload), Fault> {
    let arrival = order.arrival(visit, &upload);
    let now = visit.worker.state.now();
    let refusal = match gate::enter(&visit.worker, now, &arrival) {
        Ok(Entry::Admitted(slot)) => return Ok((slot, upload)),
        Ok(Entry::Waiting(wait)) => match queue(visit, wait, order, &upload).await {
            Ok(slot) => return Ok((slot, upload)),
            Err(fault) => fault,
        },
        Err(refusal) => refusal.into(),
    };
    if let Fault::Shed(refusal) = &refusal {
        visit.worker.metrics().record_shed(refusal);
    }
    discard(visit, order, upload).await;
    Err(refusal)
}

/// Waits in the engine's queue. A client that leaves drops this future, and with it its place.
async fn queue(
    visit: &Visit,
    mut wait: Wait,
    order: &Order,
    upload: &Upload,
) -> Result<Slot, Fault> {
    let alarm = Alarm::set(&visit.worker, order.deadline.at);
    let answer = alarm.before(wait.answer()).await;
    let slot = match answer {
        Ok(Some(answer)) => answer?,
        Ok(None) => return Err(Fault::Departed),
        Err(Elapsed) => return Err(Fault::Deadline),
    };
    // Where hyper does not watch, the client may have left without our noticing.
    let unwatched = upload.is_open() || visit.client.is_pipelining();
    match unwatched && visit.client.has_left().await {
        true => Err(Fault::Departed),
        false => Ok(slot),
    }
}

/// Lets a client that writes first finish, so that it reads the refusal instead of a reset. One
/// that waits for `100 Continue` has nothing to finish.
async fn discard(visit: &Visit, order: &Order, upload: Upload) {
    if !upload.is_open() || order.expects_continue {
        return;
    }
    let state = &visit.worker.state;
    let limit = *state.settings().config.limits.refused_body;
    let alarm = Alarm::set(&visit.worker, state.now() + DISCARD);
    if !matches!(alarm.before(upload.discard(limit)).await, Ok(true)) {
        visit.client.linger();
    }
}

fn prepare(
    visit: &Visit,
    order: &Order,
    slot: &Slot,
    mut parts: Parts,
    upload: Upload,
    upgrade: Option<HeaderValue>,
) -> Outgoing {
    let state = &visit.worker.state;
    let settings = state.settings();
    let notes = outward::Notes {
        class: settings.class_name(slot.class()),
        time_left: time_left(order, state.now()),
        host: order.host.as_ref(),
        upgrade,
    };
    outward::prepare(&mut parts, &visit.client, &settings.config.forward, notes);
    Outgoing {
        parts,
        upload,
        host: order.host.clone(),
    }
}

fn time_left(order: &Order, now: Timestamp) -> Duration {
    order.deadline.at.since(now)
}

async fn send(
    visit: &Visit,
    order: &Order,
    slot: &mut Slot,
    outgoing: Outgoing,
) -> Result<crate::upstream::send::Answer, Fault> {
    let alarm = Alarm::set(&visit.worker, order.deadline.at);
    let sending = Sending {
        worker: &visit.worker,
        slot,
        alarm: &alarm,
        deadline: order.deadline,
    };
    sending.send(outgoing).await
}

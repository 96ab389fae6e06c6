//! The life of a request.

pub(crate) mod canonical;
pub(crate) mod classify;
mod cookie;
pub(crate) mod deadline;
pub(crate) mod engine_keys;
mod known_headers;
pub(crate) mod order;
pub(crate) mod sticky;
pub(crate) mod upload;
pub(crate) mod upload_places;
pub(crate) mod upstream_request;
pub(crate) mod visit;

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::StatusCode;
use tidegate_control::Timestamp;
use tidegate_sentry::Refusal;

use crate::alarm::{Alarm, Elapsed};
use crate::channel;
use crate::client::inbound::Inbound;
use crate::client::{Client, Protocol};
use crate::fault::{Fault, Invalid};
use crate::gate::{self, Entry, Slot, Wait};
use crate::http1::Violation;
use crate::message::{Request, Response};
use crate::metrics::UpstreamFailure;
use crate::refuse::{self, Shed};
use crate::response::body::Outbound;
use crate::response::{self, tunnel};
use crate::settings::Settings;
use crate::upstream::send::Sending;
use crate::worker::{InForce, Worker};
use order::Order;
use upload::Upload;
use upload_places::Place;
use visit::Visit;

/// How long a refused client may take to send the body that is read and thrown away.
const DISCARD: Duration = Duration::from_secs(1);

/// How often an upload is looked at while it is read ahead.
const LOOK: Duration = Duration::from_secs(1);

/// A client that sends nothing of a body of unknown length for this long may wait for the replica.
/// Chosen: longer than a round trip around the world.
const PAUSE: Duration = Duration::from_millis(250);

/// How often an upload that waits for a place asks again. Chosen: short against what an upload
/// takes.
const PLACE_RETRY: Duration = Duration::from_millis(100);

/// Bytes of a body that are read ahead when there is no memory for more.
const AHEAD_MIN: u64 = 16 << 10;

/// What a client is told in the end.
#[derive(Debug)]
pub(crate) enum Served {
    Response(Response<Outbound>),
    /// There is no room for it; nothing has to be added to the words that are ready for that.
    Shed(Shed),
    /// In the words of HTTP/2.
    Reset(h2::Reason),
}

/// Serves one request. What goes wrong becomes an answer, with one exception: a client that
/// cancels all it asks is not answered but told, in the words of HTTP/2, that its request was not
/// looked at and may be made again on another connection.
///
/// What needs no waiting is decided here. So a refusal is no more than its answer, however large
/// the future is of a request that goes on.
pub(crate) fn serve(
    worker: &Rc<Worker>,
    client: &Rc<Client>,
    request: Request<Inbound>,
) -> Serving {
    client.begin_request();
    let routed = worker.route(&request);
    let fits = routed.is_ok();
    let (Ok(application) | Err(application)) = routed;
    let settings = application.settings();
    let mut visit = Visit::begin(client, application, &request);
    match begin(&mut visit, &settings, request, fits) {
        Err(fault) => Serving::Done(Some(decline(visit, &settings, fault))),
        Ok((mut order, mut entry)) => Serving::Going(Box::pin(async move {
            let served = live(&mut visit, &mut order, &mut entry).await;
            // A request that failed gives its slot back before it is answered.
            drop(entry);
            conclude(visit, served)
        })),
    }
}

/// The answer to bytes that are no request.
pub(crate) fn refuse(
    worker: &Rc<Worker>,
    client: &Rc<Client>,
    violation: Violation,
) -> Response<Outbound> {
    client.begin_request();
    let application = worker.outside();
    let settings = application.settings();
    let mut visit = Visit::begin(client, application, &Request::<()>::default());
    visit.is_malformed();
    explain(visit, &settings, &Fault::Malformed(violation))
}

/// A request on its way through the proxy.
pub(crate) enum Serving {
    /// Polled, it is taken.
    Done(Option<Served>),
    Going(Pin<Box<dyn Future<Output = Served>>>),
}

impl Future for Serving {
    type Output = Served;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Served> {
        match self.get_mut() {
            Self::Done(served) => Poll::Ready(served.take().expect("polled after its end")),
            Self::Going(future) => future.as_mut().poll(cx),
        }
    }
}

/// As far as a request gets without waiting: to the engine's word, unless its body has to be read
/// before.
fn begin(
    visit: &mut Visit,
    settings: &Settings,
    request: Request<Inbound>,
    fits: bool,
) -> Result<(Order, Option<Entry>), Fault> {
    let order = Order::read(visit, settings, request)?;
    if !fits {
        return Err(unrouted(visit, &order));
    }
    channel::comply(visit, &order)?;
    let entry = match reads_ahead(&order) || visit.claim.is_some() {
        true => None,
        false => Some(enter(visit, &order, visit.arrived)?),
    };
    Ok((order, entry))
}

/// No application has the request's host and path.
fn unrouted(visit: &Visit, order: &Order) -> Fault {
    visit.worker().metrics().record_unrouted();
    if order.request.body.is_open() {
        visit.client.linger();
    }
    Fault::Unrouted
}

/// The life of a request, step by step.
async fn live(
    visit: &mut Visit,
    order: &mut Order,
    entry: &mut Option<Entry>,
) -> Result<Response<Outbound>, Fault> {
    if visit.claim.is_some() {
        Box::pin(channel::prove(visit, order)).await?;
    }
    if !matches!(entry, Some(Entry::Admitted(_))) {
        // Boxed, like everything that seldom happens: it would make every request larger.
        let admission = Box::pin(admit(visit, order, entry.take()));
        *entry = Some(Entry::Admitted(admission.await?));
    }
    let slot = slot_of(entry);
    if order.expects_continue && order.request.body.is_open() {
        Box::pin(receive_continued(visit, order, slot)).await?;
    }
    visit.admitted(slot);
    upstream_request::prepare(visit, order, slot);
    let mut answer = Sending::new(visit, slot, order).send().await?;
    match answer.response.status {
        StatusCode::SWITCHING_PROTOCOLS if order.upgrade.is_some() => {
            tunnel::open(visit, take_slot(entry), answer)
        }
        // It switched a protocol that was not asked for.
        StatusCode::SWITCHING_PROTOCOLS => {
            let slot = take_slot(entry);
            Err(response::failed(visit, slot, UpstreamFailure::Malformed))
        }
        _ => {
            let ahead = response::read_ahead(&mut answer.body).await;
            response::relay(visit, take_slot(entry), answer, ahead)
        }
    }
}

/// The slot of a request that is admitted. It stays where it is: a copy would make every request
/// larger.
fn slot_of(entry: &mut Option<Entry>) -> &mut Slot {
    match entry {
        Some(Entry::Admitted(slot)) => slot,
        _ => unreachable!("the request was admitted before"),
    }
}

fn take_slot(entry: &mut Option<Entry>) -> Slot {
    match entry.take() {
        Some(Entry::Admitted(slot)) => slot,
        _ => unreachable!("the request was admitted before"),
    }
}

/// Turns what came of a request into what is said to the client.
fn conclude(mut visit: Visit, served: Result<Response<Outbound>, Fault>) -> Served {
    match served {
        Ok(response) => {
            visit.answered(response.status, None);
            Served::Response(dismiss(visit, response))
        }
        Err(fault) => {
            let settings = visit.application.settings();
            decline(visit, &settings, fault)
        }
    }
}

/// Turns what is wrong with a request into what is said to the client.
fn decline(visit: Visit, settings: &InForce, fault: Fault) -> Served {
    match fault {
        Fault::TooManyResets => Served::Reset(send_away(visit)),
        // Over HTTP/2 a body breaks off with its stream: nobody is there to be answered, and the
        // visit counts as cancelled.
        Fault::Invalid(Invalid::Body) if visit.client.protocol() == Protocol::Http2 => {
            Served::Reset(h2::Reason::CANCEL)
        }
        Fault::Shed(refusal) if !visit.holds_back && !visit.worker().state.is_draining() => {
            Served::Shed(turn_away(visit, settings, &refusal))
        }
        fault => Served::Response(explain(visit, settings, &fault)),
    }
}

/// The shortest way to end a request.
fn turn_away(mut visit: Visit, settings: &InForce, refusal: &Refusal) -> Shed {
    let id = visit.refused(refusal);
    let shed = Shed::new(settings, refusal, visit.format, id);
    visit.answered(shed.status(), Some(refusal.reason.as_str()));
    visit.count(shed.body().len() as u64);
    visit.complete();
    shed
}

/// The response to a request that is not passed on.
fn explain(mut visit: Visit, settings: &Settings, fault: &Fault) -> Response<Outbound> {
    visit.answered(refuse::status(fault), Some(fault.as_str()));
    let response = settings.refusals.answer(fault, visit.format);
    dismiss(visit, response)
}

/// Adds to a response what every client is told, and lets the visit end with it.
fn dismiss(visit: Visit, mut response: Response<Outbound>) -> Response<Outbound> {
    channel::piggyback(&visit, &mut response);
    response::say_goodbye(&visit, &mut response);
    response.body.carry(visit);
    response
}

fn send_away(mut visit: Visit) -> h2::Reason {
    let fault = Fault::TooManyResets;
    visit.answered(refuse::status(&fault), Some(fault.as_str()));
    visit.send_away();
    visit.complete();
    h2::Reason::REFUSED_STREAM
}

/// Whether a part of the body is read before a slot is asked for.
fn reads_ahead(order: &Order) -> bool {
    order.request.body.is_open() && !order.expects_continue
}

/// Reads what has to be read of the body before a slot is asked for, and waits for a place if that
/// is not all of it.
async fn receive(visit: &Visit, order: &mut Order) -> Result<(), Fault> {
    let pace = order.request.body.pace();
    let read = read_ahead(visit, order).await;
    read.inspect_err(|_| visit.client.linger())?;
    order.request.body.end_reading_ahead();
    visit.count_request_bytes(order.request.body.held());
    order.deadline.restart(visit.worker().state.now());
    if let (Some(tenant), Some(pace)) = (order.request.body.needs_place(), pace) {
        pace.hold(take_place(visit, order, tenant).await?);
    }
    Ok(())
}

/// A client that was asked to go on sends its body after it was admitted: until then its slot is
/// for others.
async fn receive_continued(visit: &Visit, order: &mut Order, slot: &mut Slot) -> Result<(), Fault> {
    slot.pause();
    receive(visit, order).await?;
    slot.resume();
    Ok(())
}

async fn read_ahead(visit: &Visit, order: &mut Order) -> Result<(), Fault> {
    let worker = visit.worker();
    let Some(pace) = order.request.body.pace() else {
        return Ok(());
    };
    let bytes_max = ahead_max(visit);
    pace.begin(worker.state.now());
    let mut alarm = Alarm::set(&**worker, worker.state.now());
    let mut seen = pace.bytes();
    loop {
        let announced = order.request.body.is_announced();
        let look = if announced { LOOK } else { PAUSE };
        let (now, by_client) = (worker.state.now(), order.deadline.allowance.by_client);
        let due = now + look;
        alarm.reset(if by_client {
            due.min(order.deadline.at)
        } else {
            due
        });
        let read = alarm.before(order.request.body.read_ahead(bytes_max)).await;
        if let Ok(read) = read {
            return Ok(read?);
        }
        let now = worker.state.now();
        let late = by_client && now >= order.deadline.at;
        if late || pace.is_too_slow(now, true) {
            return Err(Invalid::BodyTimeout.into());
        }
        let received = std::mem::replace(&mut seen, pace.bytes());
        if !announced && received == seen {
            return Ok(());
        }
    }
}

/// Bytes of a body to read ahead; a few if many are held already.
fn ahead_max(visit: &Visit) -> u64 {
    let settings = visit.application.settings();
    let limits = &settings.config.limits;
    let held = visit.worker().state.uploads.bytes();
    if held < *limits.upload_memory {
        *limits.upload_buffer
    } else {
        AHEAD_MIN.min(*limits.upload_buffer)
    }
}

/// Waits until one more upload may be passed on.
async fn take_place(visit: &Visit, order: &Order, tenant: u64) -> Result<Place, Fault> {
    let worker = visit.worker();
    let wait =
        upload_places::ask(&visit.application.shared, tenant).ok_or(Fault::TooManyUploads)?;
    let mut alarm = Alarm::set(&**worker, worker.state.now());
    loop {
        let share = visit.application.settings().config.limits.upload_share.0;
        if let Some(place) = wait.try_take(share) {
            return Ok(place);
        }
        let now = worker.state.now();
        if now >= order.deadline.at {
            return Err(Fault::TooManyUploads);
        }
        alarm.reset((now + PLACE_RETRY).min(order.deadline.at));
        alarm.rung().await;
    }
}

/// Asks the engine.
fn enter(visit: &Visit, order: &Order, now: Timestamp) -> Result<Entry, Fault> {
    let entry = gate::enter(&visit.application, now, &order.arrival(visit));
    entry.map_err(|refusal| shed(visit, refusal))
}

fn shed(visit: &Visit, refusal: Refusal) -> Fault {
    visit.application.metrics().record_shed(&refusal);
    if let Some(row) = visit.row() {
        row.shed(&refusal);
    }
    refusal.into()
}

/// Asks the engine, unless that has been done, and waits for a slot if it says so.
async fn admit(visit: &Visit, order: &mut Order, entry: Option<Entry>) -> Result<Slot, Fault> {
    let entry = match entry {
        Some(entry) => Ok(entry),
        None => {
            receive(visit, order).await?;
            enter(visit, order, visit.worker().state.now())
        }
    };
    let fault = match entry {
        Ok(Entry::Admitted(slot)) => return Ok(slot),
        Ok(Entry::Waiting(wait)) => match queue(visit, wait, order).await {
            Ok(slot) => return Ok(slot),
            Err(fault) => fault,
        },
        Err(fault) => fault,
    };
    if reads_ahead(order) {
        let upload = std::mem::replace(&mut order.request.body, Upload::Empty);
        discard(visit, upload).await;
    }
    Err(fault)
}

/// Waits in the engine's queue. A client that leaves drops this future, and with it its place.
async fn queue(visit: &Visit, mut wait: Wait, order: &Order) -> Result<Slot, Fault> {
    let mut alarm = Alarm::set(&**visit.worker(), order.deadline.at);
    if let Some(row) = visit.row() {
        row.waits();
    }
    let slot = match alarm.before(wait.answer()).await {
        Ok(Some(answer)) => answer.map_err(|refusal| shed(visit, refusal))?,
        Ok(None) => return Err(Fault::Departed),
        Err(Elapsed) => return Err(Fault::Deadline),
    };
    // Where nobody watches, the client may have left without our noticing.
    let unwatched = order.request.body.is_open() || visit.client.is_unwatched();
    match unwatched && visit.client.has_left().await {
        true => Err(Fault::Departed),
        false => Ok(slot),
    }
}

/// Lets a client that writes first finish, so that it reads the refusal instead of a reset.
async fn discard(visit: &Visit, upload: Upload) {
    let state = &visit.worker().state;
    let limit = *visit.application.settings().config.limits.refused_body;
    let mut alarm = Alarm::set(&**visit.worker(), state.now() + DISCARD);
    if !matches!(alarm.before(upload.discard(limit)).await, Ok(true)) {
        visit.client.linger();
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    /// One is made for every request; the other is part of every connection, and moved.
    #[test]
    fn a_request_in_service_is_small() {
        let worker = Worker::idle();
        let client = Rc::new(Client::of_nobody(&worker));
        let mut request = Request::<()>::default().map(|()| Inbound::Empty);
        let host = HeaderValue::from_static("a");
        request.headers.insert(http::header::HOST, host);
        let Serving::Going(going) = serve(&worker, &client, request) else {
            panic!("there is room");
        };
        let (going, serving) = (size_of_val(&*going), size_of::<Serving>());
        // What glibc's allocator has at hand.
        assert!(going <= 1032, "{going} bytes");
        assert!(serving <= 256, "{serving} bytes");
    }
}

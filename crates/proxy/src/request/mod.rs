//! The life of a request.

pub(crate) mod canonical;
pub(crate) mod classify;
pub(crate) mod cookie;
pub(crate) mod deadline;
pub(crate) mod engine_keys;
pub(crate) mod exchange;
pub(crate) mod head;
mod known_headers;
pub(crate) mod sticky;
pub(crate) mod upload;
pub(crate) mod upload_places;
pub(crate) mod upstream_request;
pub(crate) mod watched;

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Method, StatusCode};
use http_body::Body as _;
use tidegate_control::Timestamp;
use tidegate_sentry::{Arrival, ClassId, Refusal};

use crate::alarm::{Alarm, Elapsed};
use crate::channel::{self, Claim, Proven};
use crate::client::inbound::Inbound;
use crate::client::{Client, Protocol};
use crate::edge::companions::Handed;
use crate::edge::{canary, mirror};
use crate::fault::{Fault, Invalid};
use crate::gate::{self, Entry, Held, Slot, Wait};
use crate::hop;
use crate::http1::Violation;
use crate::message::{self, Response};
use crate::metrics::{Outcome, Sampled, UpstreamFailure};
use crate::refuse::{self, Shed};
use crate::response::body::Outbound;
use crate::response::{self, tunnel};
use crate::settings::Settings;
use crate::trace::{self, Beginning, Context as TraceContext, Trace};
use crate::upstream::send::{Answer, Deadline, Sending};
use crate::worker::{InForce, Worker};
use exchange::Exchange;
use head::{Head, Origin};
use known_headers::KnownHeaders;
use upload::Upload;
use upload_places::Place;

/// How long a refused client may take to send the body that is read and thrown away.
const DISCARD_DURATION_MAX: Duration = Duration::from_secs(1);

/// How often an upload is looked at while it is read ahead.
const UPLOAD_INTERVAL: Duration = Duration::from_secs(1);

/// A client that sends nothing of a body of unknown length for this long may wait for the replica.
/// Chosen: longer than a round trip around the world.
const UPLOAD_PAUSE_MAX: Duration = Duration::from_millis(250);

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

/// A request on its way through the proxy, from the reading of its head to its response.
#[derive(Debug)]
pub(crate) struct Request {
    /// What is counted about it; goes on with the response.
    pub(crate) exchange: Exchange,
    /// Without its body while that is being sent.
    pub(crate) message: message::Request<Upload>,
    pub(crate) head: Head,
    pub(crate) deadline: Deadline,
    /// An item whose body has still to be read.
    pub(crate) claim: Option<Box<Claim>>,
    /// What is proven about an item.
    pub(crate) item: Option<Box<Proven>>,
}

impl Request {
    /// Where it is served.
    fn worker(&self) -> &Rc<Worker> {
        self.exchange.worker()
    }

    /// What the engine is told of it.
    pub(crate) fn arrival(&self) -> Arrival {
        self.head
            .arrival(&self.message.body, self.deadline.by_client())
    }

    /// The canary does not serve it: see [`Exchange::return_to_main`].
    fn return_to_main(&mut self, why: Handed) -> bool {
        let returned = self.exchange.return_to_main(why, self.head.class);
        if returned {
            // Replicas of the one are not replicas of the other.
            self.head.sticky = None;
        }
        returned
    }

    /// Whether a part of the body is read before a slot is asked for.
    fn reads_ahead(&self) -> bool {
        self.message.body.is_open() && !self.head.expects_continue
    }
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
    message: message::Request<Inbound>,
) -> Serving {
    client.begin_request();
    let routed = worker.route(&message);
    let fits = routed.is_ok();
    let (Ok(application) | Err(application)) = routed;
    let (application, main) = canary::choose(application, client, &message);
    let settings = application.settings();
    let mut exchange = Exchange::begin(client, application, &message);
    exchange.main = main;
    let (message, head, deadline) = match read(&mut exchange, &settings, message) {
        Ok(read) => read,
        Err(fault) => return Serving::Done(Some(decline(exchange, &settings, fault))),
    };
    let mut request = Request {
        exchange,
        message,
        head,
        deadline,
        claim: None,
        item: None,
    };
    match begin(&mut request, fits) {
        Err(fault) => {
            trace_refusal(&mut request, &fault);
            Serving::Done(Some(decline(request.exchange, &settings, fault)))
        }
        Ok(entry) => go(request, Held(entry)),
    }
}

/// A request that goes on. Its future is dropped when its client leaves, and what it holds with it.
fn go(mut request: Request, mut held: Held) -> Serving {
    Serving::Going(Box::pin(async move {
        let mut served = live(&mut request, &mut held.0).await;
        let unseen = matches!(served, Err(Fault::Upstream(UpstreamFailure::Connect)));
        if unseen && request.exchange.main.is_some() {
            // Kept over the wait for another answer, it would make every request larger.
            drop(served);
            served = Box::pin(live_on_main(&mut request, &mut held.0)).await;
        }
        // A request that failed gives its slot back before it is answered.
        held.end();
        finish(request, served)
    }))
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
    let nothing = message::Request::<()>::default();
    let mut exchange = Exchange::begin(client, application, &nothing);
    exchange.is_malformed();
    explain(exchange, &settings, &Fault::Malformed(violation))
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

/// What is read of a request: its message with the body as it is sent, and what its head says.
type Read = (message::Request<Upload>, Head, Deadline);

/// Reads a request, and notes what it asks for.
fn read(
    exchange: &mut Exchange,
    settings: &Settings,
    message: message::Request<Inbound>,
) -> Result<Read, Fault> {
    if exchange.client.cancels_too_much(&settings.config.limits) {
        return Err(Fault::TooManyResets);
    }
    let known = KnownHeaders::of(&message.headers);
    let format = head::refusal_format(exchange.client.protocol(), &known);
    exchange.format = format.for_method(&message.method);
    let reading = Origin::of(exchange).read(settings, &message, &known);
    let reading = reading.inspect_err(|fault| note_edge(exchange, &message, fault))?;
    exchange.asked(settings, message.uri.path(), &reading);
    if let Some(row) = exchange.row() {
        row.client(Origin::of(exchange).client_key(settings, &message, &reading.head));
    }
    sample(exchange, settings, &message, &reading.head);
    begin_trace(exchange, &message, &known, reading.head.class);
    exchange.passage = reading.passage;
    let mut body = Inbound::Empty;
    let mut message = message.map(|inbound| body = inbound);
    if message.method == Method::OPTIONS && !hop::count_down(&mut message.headers) {
        return Err(Fault::LastHop);
    }
    let (client, application) = (&exchange.client, &exchange.application);
    let upload = Upload::new(body, client, application, reading.upload);
    let upload = upload.inspect_err(|_| exchange.client.linger())?;
    let deadline = Deadline::new(exchange.arrived, reading.allowance);
    Ok((message.map(|()| upload), reading.head, deadline))
}

/// Follows a request, if it is one of those that stand for all others, for what its path and tenant
/// cost.
fn sample(
    exchange: &mut Exchange,
    settings: &Settings,
    message: &message::Request<Inbound>,
    head: &Head,
) {
    let application = &exchange.application;
    let Some(weight) = application.sampler.choose(exchange.arrived) else {
        return;
    };
    let (path, tenant) = Origin::of(exchange).names(settings, message, head);
    let sampled = Sampled::new(application, weight, path, tenant);
    exchange.sample(sampled);
}

/// Records a request for its trace, if it is one of those that are.
fn begin_trace<B>(
    exchange: &mut Exchange,
    message: &message::Request<B>,
    known: &KnownHeaders<'_>,
    class: ClassId,
) {
    let tracer = &exchange.worker().tracer;
    if !tracer.is_on() {
        return;
    }
    let parent = known.traceparent.filter(|_| !known.traceparents);
    let parent = parent.and_then(|value| TraceContext::parse(value.as_bytes()));
    let chosen = tracer.choose(exchange.arrived, parent, exchange.client.trusted);
    if let Some(identity) = chosen {
        exchange.trace(follow(exchange, message, class, identity));
    }
}

/// Records a refusal for its trace, if the request was not chosen before and no replica has seen
/// it.
fn trace_refusal(request: &mut Request, fault: &Fault) {
    let Fault::Shed(refusal) = fault else {
        return;
    };
    let exchange = &mut request.exchange;
    if exchange.traced().is_some() || exchange.is_sent() {
        return;
    }
    let tracer = &exchange.worker().tracer;
    let chosen = tracer.choose_refusal(exchange.arrived, &request.message.headers);
    if let Some(identity) = chosen {
        let trace = follow(exchange, &request.message, request.head.class, identity);
        trace.shed(refusal);
        exchange.trace(trace);
    }
}

fn follow<B>(
    exchange: &Exchange,
    message: &message::Request<B>,
    class: ClassId,
    identity: trace::Identity,
) -> Trace {
    let beginning = Beginning {
        request_id: &exchange.id,
        method: &message.method,
        path: message.uri.path(),
        version: message.version,
        tls: exchange.client.tls,
        class,
        arrived: exchange.arrived,
    };
    let worker = exchange.worker();
    let traces = &worker.tracer.traces;
    Trace::begin(
        traces,
        worker.index,
        &exchange.application,
        identity,
        &beginning,
    )
}

/// Counts what the edge answers itself. A client that still writes is let finish.
fn note_edge(exchange: &Exchange, message: &message::Request<Inbound>, fault: &Fault) {
    let counters = exchange.application.shared.edge_counters();
    if counters.count(fault) && !message.body.is_end_stream() {
        exchange.client.linger();
    }
}

/// As far as a request gets without waiting: to the engine's word, unless its body has to be read
/// before.
fn begin(request: &mut Request, fits: bool) -> Result<Option<Entry>, Fault> {
    if !fits {
        return Err(unrouted(request));
    }
    if request
        .worker()
        .is_crowded_by(&request.exchange.application)
    {
        if request.message.body.is_open() {
            request.exchange.client.linger();
        }
        return Err(Fault::TooManyConnections);
    }
    channel::comply(request)?;
    if request.reads_ahead() || request.claim.is_some() {
        return Ok(None);
    }
    let arrived = request.exchange.arrived;
    enter(request, arrived).map(Some)
}

/// No application has the request's host and path.
fn unrouted(request: &Request) -> Fault {
    request.worker().metrics().record_unrouted();
    if request.message.body.is_open() {
        request.exchange.client.linger();
    }
    Fault::Unrouted
}

/// The life of a request, step by step.
#[expect(
    clippy::manual_async_fn,
    reason = "an async fn keeps its arguments twice, in every request"
)]
fn live<'a>(
    request: &'a mut Request,
    entry: &'a mut Option<Entry>,
) -> impl Future<Output = Result<Response<Outbound>, Fault>> + use<'a> {
    async move {
        if request.claim.is_some() {
            Box::pin(channel::prove(request)).await?;
        }
        if !matches!(entry, Some(Entry::Admitted(_))) {
            // Boxed, like everything that seldom happens: it would make every request larger.
            let admission = Box::pin(admit(request, entry.take()));
            *entry = Some(Entry::Admitted(admission.await?));
        }
        let slot = slot_of(entry);
        if request.head.expects_continue && request.message.body.is_open() {
            Box::pin(receive_continued(request, slot)).await?;
        }
        request.exchange.admitted(slot);
        upstream_request::prepare(request, slot);
        mirror::copy(request);
        let answer = Sending::new(request, slot).send().await?;
        respond(request, entry, answer).await
    }
}

/// Passes on what a replica answers.
async fn respond(
    request: &mut Request,
    entry: &mut Option<Entry>,
    mut answer: Answer,
) -> Result<Response<Outbound>, Fault> {
    match answer.response.status {
        StatusCode::SWITCHING_PROTOCOLS if request.head.upgrade.is_some() => {
            tunnel::open(&request.exchange, take_slot(entry), answer)
        }
        // It switched a protocol that was not asked for.
        StatusCode::SWITCHING_PROTOCOLS => {
            let (slot, failure) = (take_slot(entry), UpstreamFailure::Malformed);
            Err(response::failed(&request.exchange, slot, failure))
        }
        _ => {
            let ahead = response::read_ahead(&mut answer.body).await;
            response::relay(request, take_slot(entry), answer, ahead)
        }
    }
}

/// Sends a request that no replica of the canary has seen to the main application.
async fn live_on_main(
    request: &mut Request,
    entry: &mut Option<Entry>,
) -> Result<Response<Outbound>, Fault> {
    if let Some(entry) = entry.take() {
        entry.end();
    }
    request.return_to_main(Handed::Unreachable);
    let now = request.exchange.now();
    let slot = match enter(request, now)? {
        Entry::Admitted(slot) => slot,
        Entry::Waiting(wait) => queue(request, wait).await?,
    };
    *entry = Some(Entry::Admitted(slot));
    let slot = slot_of(entry);
    request.exchange.admitted(slot);
    let answer = Sending::new(request, slot).send().await?;
    respond(request, entry, answer).await
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

/// Turns what came of a request into what is said to the client. A function of its own: in the
/// future, each of these would make it larger.
fn finish(mut request: Request, served: Result<Response<Outbound>, Fault>) -> Served {
    if let Err(fault) = &served {
        trace_refusal(&mut request, fault);
    }
    conclude(request.exchange, served)
}

/// Turns what came of a request into what is said to the client.
fn conclude(mut exchange: Exchange, served: Result<Response<Outbound>, Fault>) -> Served {
    match served {
        Ok(response) => {
            exchange.answered(response.status, None);
            Served::Response(dismiss(exchange, response))
        }
        Err(fault) => {
            let settings = exchange.application.settings();
            decline(exchange, &settings, fault)
        }
    }
}

/// Turns what is wrong with a request into what is said to the client.
fn decline(exchange: Exchange, settings: &InForce, fault: Fault) -> Served {
    match fault {
        Fault::TooManyResets => Served::Reset(send_away(exchange)),
        // Over HTTP/2 a body breaks off with its stream: nobody is there to be answered, and the
        // exchange counts as cancelled.
        Fault::Invalid(Invalid::Body) if exchange.client.protocol() == Protocol::Http2 => {
            Served::Reset(h2::Reason::CANCEL)
        }
        Fault::Shed(refusal) if !exchange.holds_back && !exchange.worker().state.is_draining() => {
            Served::Shed(turn_away(exchange, settings, &refusal))
        }
        fault => Served::Response(explain(exchange, settings, &fault)),
    }
}

/// The shortest way to end a request.
fn turn_away(mut exchange: Exchange, settings: &InForce, refusal: &Refusal) -> Shed {
    exchange.outcome = Outcome::Shed;
    exchange.refused(refusal);
    let shed = Shed::new(settings, refusal, exchange.format, exchange.id.clone());
    exchange.answered(shed.status(), Some(refusal.reason.as_str()));
    exchange.count(shed.body().len() as u64);
    exchange.complete();
    shed
}

/// The response to a request that is not passed on.
fn explain(mut exchange: Exchange, settings: &Settings, fault: &Fault) -> Response<Outbound> {
    let status = refuse::status(fault);
    exchange.outcome = fault.outcome();
    match fault {
        Fault::Shed(refusal) => exchange.refused(refusal),
        fault => exchange.failed(fault, status),
    }
    exchange.answered(status, Some(fault.as_str()));
    let response = settings
        .refusals
        .answer(fault, exchange.format, &exchange.id);
    dismiss(exchange, response)
}

/// Adds to a response what every client is told, and lets the exchange end with it.
fn dismiss(exchange: Exchange, mut response: Response<Outbound>) -> Response<Outbound> {
    channel::piggyback(&exchange, &mut response);
    response::say_goodbye(&exchange, &mut response);
    response.body.carry(exchange);
    response
}

fn send_away(mut exchange: Exchange) -> h2::Reason {
    let fault = Fault::TooManyResets;
    exchange.outcome = fault.outcome();
    exchange.answered(refuse::status(&fault), Some(fault.as_str()));
    exchange.send_away();
    exchange.complete();
    h2::Reason::REFUSED_STREAM
}

/// Reads what has to be read of the body before a slot is asked for, and waits for a place if that
/// is not all of it.
async fn receive(request: &mut Request) -> Result<(), Fault> {
    let pace = request.message.body.pace();
    let read = read_ahead(request).await;
    read.inspect_err(|_| request.exchange.client.linger())?;
    let body = &mut request.message.body;
    body.end_reading_ahead();
    request.exchange.count_request_bytes(body.held());
    request.deadline.restart(request.exchange.now());
    if let (Some(tenant), Some(pace)) = (request.message.body.needs_place(), pace) {
        pace.hold(take_place(request, tenant).await?);
    }
    Ok(())
}

/// A client that was asked to go on sends its body after it was admitted: until then its slot is
/// for others.
async fn receive_continued(request: &mut Request, slot: &mut Slot) -> Result<(), Fault> {
    slot.pause();
    receive(request).await?;
    slot.resume();
    Ok(())
}

async fn read_ahead(request: &mut Request) -> Result<(), Fault> {
    let bytes_max = ahead_max(&request.exchange);
    let worker = request.exchange.worker();
    let (body, deadline) = (&mut request.message.body, request.deadline);
    let Some(pace) = body.pace() else {
        return Ok(());
    };
    pace.begin(worker.state.now());
    let mut alarm = Alarm::set(&**worker, worker.state.now());
    let mut seen = pace.bytes();
    loop {
        let announced = body.is_announced();
        let look = if announced {
            UPLOAD_INTERVAL
        } else {
            UPLOAD_PAUSE_MAX
        };
        let due = worker.state.now() + look;
        alarm.reset(deadline.by_client().map_or(due, |at| due.min(at)));
        let read = alarm.before(body.read_ahead(bytes_max)).await;
        if let Ok(read) = read {
            return Ok(read?);
        }
        let now = worker.state.now();
        let late = deadline.by_client().is_some_and(|at| now >= at);
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
fn ahead_max(exchange: &Exchange) -> u64 {
    let settings = exchange.application.settings();
    let limits = &settings.config.limits;
    let state = &exchange.worker().state;
    let applications = state.applications().len() as u64;
    let held = (&state.uploads, &exchange.application.shared.uploads);
    if upload_places::has_memory(held, applications, *limits.upload_memory) {
        *limits.upload_buffer
    } else {
        AHEAD_MIN.min(*limits.upload_buffer)
    }
}

/// Waits until one more upload may be passed on.
async fn take_place(request: &Request, tenant: u64) -> Result<Place, Fault> {
    let (application, worker) = (&request.exchange.application, request.worker());
    let wait = upload_places::ask(&application.shared, tenant).ok_or(Fault::TooManyUploads)?;
    let mut alarm = Alarm::set(&**worker, worker.state.now());
    loop {
        let share = application.settings().config.limits.upload_share.0;
        if let Some(place) = wait.try_take(share) {
            return Ok(place);
        }
        let now = worker.state.now();
        if now >= request.deadline.at {
            return Err(Fault::TooManyUploads);
        }
        alarm.reset((now + PLACE_RETRY).min(request.deadline.at));
        alarm.rung().await;
    }
}

/// Asks the engine.
fn enter(request: &mut Request, now: Timestamp) -> Result<Entry, Fault> {
    let mut entry = gate::enter(&request.exchange.application, now, &request.arrival());
    if entry.is_err() && request.return_to_main(Handed::Shed) {
        entry = gate::enter(&request.exchange.application, now, &request.arrival());
    }
    entry.map_err(|refusal| request.exchange.shed(refusal))
}

/// Asks the engine, unless that has been done, and waits for a slot if it says so.
async fn admit(request: &mut Request, entry: Option<Entry>) -> Result<Slot, Fault> {
    let entry = match entry {
        Some(entry) => Ok(entry),
        None => {
            receive(request).await?;
            let now = request.exchange.now();
            enter(request, now)
        }
    };
    let fault = match entry {
        Ok(Entry::Admitted(slot)) => return Ok(slot),
        Ok(Entry::Waiting(wait)) => match queue(request, wait).await {
            Ok(slot) => return Ok(slot),
            Err(fault) => fault,
        },
        Err(fault) => fault,
    };
    if request.reads_ahead() {
        let upload = std::mem::replace(&mut request.message.body, Upload::Empty);
        discard(&request.exchange, upload).await;
    }
    Err(fault)
}

/// Waits in the engine's queue. A client that leaves drops this future, and with it its place.
async fn queue(request: &Request, mut wait: Wait) -> Result<Slot, Fault> {
    let exchange = &request.exchange;
    let mut alarm = Alarm::set(&**exchange.worker(), request.deadline.at);
    if let Some(row) = exchange.row() {
        row.waits();
    }
    let slot = match alarm.before(wait.answer()).await {
        Ok(Some(answer)) => answer.map_err(|refusal| exchange.shed(refusal))?,
        Ok(None) => return Err(Fault::Departed),
        Err(Elapsed) => return Err(Fault::Deadline),
    };
    let mut held = Held::slot(slot);
    // Where the socket is not watched, the client may have left without our noticing.
    let unwatched = request.message.body.is_open() || exchange.client.is_unwatched();
    if unwatched && exchange.client.has_left().await {
        return Err(Fault::Departed);
    }
    held.take_slot().ok_or(Fault::Departed)
}

/// Lets a client that writes first finish, so that it reads the refusal instead of a reset.
async fn discard(exchange: &Exchange, upload: Upload) {
    let limit = *exchange.application.settings().config.limits.refused_body;
    let mut alarm = Alarm::set(&**exchange.worker(), exchange.now() + DISCARD_DURATION_MAX);
    if !matches!(alarm.before(upload.discard(limit)).await, Ok(true)) {
        exchange.client.linger();
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
        let mut request = message::Request::<()>::default().map(|()| Inbound::Empty);
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

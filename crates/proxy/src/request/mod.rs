//! The life of a request.

pub(crate) mod canonical;
pub(crate) mod classify;
mod cookie;
pub(crate) mod deadline;
pub(crate) mod keys;
mod notable;
pub(crate) mod order;
pub(crate) mod outward;
pub(crate) mod sticky;
pub(crate) mod upload;
pub(crate) mod visit;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use tidegate_control::Timestamp;

use crate::alarm::{Alarm, Elapsed};
use crate::channel;
use crate::client::{Client, Upgrade};
use crate::fault::{Fault, Invalid};
use crate::gate::{self, Entry, Slot, Wait};
use crate::metrics::UpstreamFailure;
use crate::refuse;
use crate::response::body::Outbound;
use crate::response::{self, tunnel};
use crate::upstream::send::Sending;
use crate::worker::Worker;
use order::Order;
use upload::Upload;
use visit::Visit;

/// How long a refused client may take to send the body that is read and thrown away.
const DISCARD: Duration = Duration::from_secs(1);

/// Serves one request. What goes wrong becomes an answer, with one exception: a client that
/// cancels all it asks is not answered but told, in the words of HTTP/2, that its request was not
/// looked at and may be made again on another connection.
///
/// The future is moved into its place on hyper's connection, so what it holds it holds once: steps
/// borrow, and what seldom happens is boxed.
pub(crate) fn serve(
    worker: Arc<Worker>,
    client: Arc<Client>,
    request: Request<Incoming>,
) -> impl Future<Output = Result<Response<Outbound>, h2::Error>> {
    let violation = client.begin_request();
    let mut visit = Visit::begin(worker, client, &request);
    let mut order = match violation {
        Some(violation) => {
            visit.is_malformed();
            Err(Fault::Malformed(violation))
        }
        None => Order::read(&mut visit, request),
    };
    async move {
        let served = match &mut order {
            Ok(order) => live(&mut visit, order).await,
            Err(fault) => Err(fault.clone()),
        };
        match served {
            Err(Fault::TooManyResets) => Err(send_away(visit)),
            served => Ok(conclude(visit, served)),
        }
    }
}

fn send_away(mut visit: Visit) -> h2::Error {
    let fault = Fault::TooManyResets;
    visit.answered(refuse::status(&fault), Some(fault.as_str()));
    visit.send_away();
    visit.complete();
    h2::Reason::REFUSED_STREAM.into()
}

/// The life of a request, step by step.
async fn live(visit: &mut Visit, order: &mut Order) -> Result<Response<Outbound>, Fault> {
    channel::comply(visit, order)?;
    let ready = read_body(visit, order).await?;
    let mut slot = admit(visit, order, ready).await?;
    visit.admitted(&slot);
    let request = outward::prepare(visit, order, &slot);
    let answer = Sending::new(&visit.worker, &mut slot, order, request)
        .send()
        .await?;
    match (order.upgrade.take(), answer.response.status()) {
        (Some(switch), StatusCode::SWITCHING_PROTOCOLS) => {
            Ok(tunnel::open(visit, slot, answer, switch.client))
        }
        // It switched a protocol that nobody asked it to switch.
        (None, StatusCode::SWITCHING_PROTOCOLS) => {
            Err(response::failed(visit, slot, UpstreamFailure::Malformed))
        }
        _ => response::relay(visit, slot, answer).await,
    }
}

/// Turns what came of a request into its response.
fn conclude(mut visit: Visit, served: Result<Response<Outbound>, Fault>) -> Response<Outbound> {
    let mut response = match served {
        Ok(response) => {
            visit.answered(response.status(), None);
            response
        }
        Err(fault) => {
            visit.answered(refuse::status(&fault), Some(fault.as_str()));
            let settings = visit.worker.state.settings();
            settings.refusals.answer(&fault, visit.format)
        }
    };
    visit.client.decide_upgrade(match response.status() {
        StatusCode::SWITCHING_PROTOCOLS => Upgrade::Accepted,
        _ => Upgrade::Declined,
    });
    channel::piggyback(&visit, &mut response);
    response::say_goodbye(&visit, &mut response);
    response.body_mut().carry(visit);
    response
}

/// Reads what has to be read of the body before a slot is asked for; tells when that was done.
async fn read_body(visit: &Visit, order: &mut Order) -> Result<Timestamp, Fault> {
    if !order.upload.is_open() || order.expects_continue {
        return Ok(visit.arrived);
    }
    let upload = std::mem::replace(&mut order.upload, Upload::Empty);
    let mut alarm = Alarm::set(&*visit.worker, order.deadline.at);
    let read = Box::pin(alarm.before(upload.read_ahead())).await;
    let upload = read.map_err(|Elapsed| Fault::from(Invalid::BodyTimeout))?;
    order.upload = upload.inspect_err(|_| visit.client.linger())?;
    visit.count_request_bytes(order.upload.held());
    Ok(visit.worker.state.now())
}

/// Asks for a slot and waits for it.
async fn admit(visit: &Visit, order: &mut Order, now: Timestamp) -> Result<Slot, Fault> {
    let entry = gate::enter(&visit.worker, now, &order.arrival(visit));
    let fault = match entry {
        Ok(Entry::Admitted(slot)) => return Ok(slot),
        Ok(Entry::Waiting(wait)) => match Box::pin(queue(visit, wait, order)).await {
            Ok(slot) => return Ok(slot),
            Err(fault) => fault,
        },
        Err(refusal) => refusal.into(),
    };
    if let Fault::Shed(refusal) = &fault {
        visit.worker.metrics().record_shed(refusal);
    }
    if order.upload.is_open() && !order.expects_continue {
        let upload = std::mem::replace(&mut order.upload, Upload::Empty);
        Box::pin(discard(visit, upload)).await;
    }
    Err(fault)
}

/// Waits in the engine's queue. A client that leaves drops this future, and with it its place.
async fn queue(visit: &Visit, mut wait: Wait, order: &Order) -> Result<Slot, Fault> {
    let mut alarm = Alarm::set(&*visit.worker, order.deadline.at);
    let slot = match alarm.before(wait.answer()).await {
        Ok(Some(answer)) => answer?,
        Ok(None) => return Err(Fault::Departed),
        Err(Elapsed) => return Err(Fault::Deadline),
    };
    // Where hyper does not watch, the client may have left without our noticing.
    let unwatched = order.upload.is_open() || visit.client.is_pipelining();
    match unwatched && visit.client.has_left().await {
        true => Err(Fault::Departed),
        false => Ok(slot),
    }
}

/// Lets a client that writes first finish, so that it reads the refusal instead of a reset.
async fn discard(visit: &Visit, upload: Upload) {
    let state = &visit.worker.state;
    let limit = *state.settings().config.limits.refused_body;
    let mut alarm = Alarm::set(&*visit.worker, state.now() + DISCARD);
    if !matches!(alarm.before(upload.discard(limit)).await, Ok(true)) {
        visit.client.linger();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size<F>(_: impl FnOnce(Arc<Worker>, Arc<Client>, Request<Incoming>) -> F) -> usize {
        size_of::<F>()
    }

    /// It is part of every connection, and hyper moves it for every request.
    #[test]
    fn a_request_in_service_is_small() {
        let bytes = size(serve);
        assert!(bytes <= 2048, "{bytes} bytes");
    }
}

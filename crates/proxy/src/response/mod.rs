//! What happens to a replica's answer on its way to the client.

pub(crate) mod body;
mod json_cost;
pub(crate) mod orca;
pub(crate) mod report;
pub(crate) mod slow_reader;
pub(crate) mod tunnel;

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE, VIA};
use http::{HeaderValue, StatusCode, Version};
use http_body::{Body, Frame};
use tidegate_http1::event_stream::is_event_stream;
use tidegate_sentry::{Ending, ReplicaId};

use crate::client::Protocol;
use crate::config::Streams;
use crate::fault::Fault;
use crate::gate::Slot;
use crate::health::Outcome;
use crate::message::{Fields, Response};
use crate::metrics::UpstreamFailure;
use crate::refuse::rate_limit::insert_standing;
use crate::request::Request;
use crate::request::exchange::Exchange;
use crate::settings::Settings;
use crate::upstream::download::{BrokeOff, Download};
use crate::upstream::send::Answer;
use body::{Outbound, Relay};
use json_cost::JsonCost;
use report::About;

/// Turns an answer into the response: reports taken out, headers cleaned, and the slot given
/// back with the last byte that the replica sends. `ahead` is what [`read_ahead`] found.
///
/// # Errors
/// When the replica breaks off before the first byte of a body it has promised.
pub(crate) fn relay(
    request: &Request,
    slot: Slot,
    answer: Answer,
    ahead: Result<Ahead, BrokeOff>,
) -> Result<Response<Outbound>, Fault> {
    let Answer {
        mut response,
        mut body,
    } = answer;
    let exchange = &request.exchange;
    let application = &exchange.application.shared;
    let settings = exchange.application.settings();
    let replica = slot.replica();
    let status = response.status;
    let about = About::new(request, &slot);
    report::strip(application, about, &mut response.headers);
    let passage = exchange.passage.as_deref();
    if let Some(standing) = passage.and_then(|it| it.standing.as_ref()) {
        insert_standing(standing, &mut response.headers);
    }
    let path = settings.config.upstream.cost_json.as_deref();
    let mut cost = JsonCost::of(path, &response.headers);
    if let Some(edge) = &settings.edge {
        edge.change_answer(&mut response.headers);
    }
    mark(request, &settings, replica, &mut response);
    if let Some(fault) = too_large(exchange, &body, &ahead) {
        slot.end(Ending::Served);
        return Err(fault);
    }
    let body = match ahead {
        Ok(Ahead::Complete(data)) => {
            application
                .board()
                .record(replica, Outcome::Answered(status.as_u16()));
            if let Some(mut cost) = cost.take() {
                cost.read(&data);
                report::cost(application, about, cost.finish());
            }
            slot.end(ending(status));
            body.give_back(exchange.worker(), &settings);
            exchange.count_response_bytes(data.len());
            Outbound::full(data)
        }
        Ok(Ahead::Open(first)) => {
            let kind = kind(&response.headers, settings.config.upstream.streams);
            Outbound::relay(Relay::new(request, first, body, slot, status, kind, cost))
        }
        Err(_) => return Err(failed(exchange, slot, UpstreamFailure::Reset)),
    };
    Ok(response.map(|()| body))
}

/// An answer that announces more than it may. Its replica has done its work all the same.
fn too_large(
    exchange: &Exchange,
    body: &Download,
    ahead: &Result<Ahead, BrokeOff>,
) -> Option<Fault> {
    let most = exchange.passage.as_ref()?.response_bytes?;
    let read = match ahead {
        Ok(Ahead::Complete(data)) => data.len(),
        Ok(Ahead::Open(Some(first))) => first.data_ref().map_or(0, Bytes::len),
        _ => 0,
    };
    let announced = read as u64 + body.size_hint().lower();
    (announced > most).then(|| {
        let fault = Fault::ResponseTooLarge;
        exchange.application.shared.edge_counters().count(&fault);
        fault
    })
}

/// The replica failed after its first words.
pub(crate) fn failed(exchange: &Exchange, slot: Slot, failure: UpstreamFailure) -> Fault {
    let replica = slot.replica();
    slot.end(Ending::Dropped);
    exchange
        .application
        .metrics()
        .record_upstream_failure(failure);
    let board = exchange.application.shared.board();
    board.record(replica, Outcome::Failed(failure));
    Fault::Upstream(failure)
}

/// Adds what we tell the client.
fn mark(request: &Request, settings: &Settings, replica: ReplicaId, response: &mut Response<()>) {
    if let Some(sticky) = &settings.sticky {
        sticky.mark(
            replica,
            request.head.sticky,
            &mut response.headers,
            request.exchange.client.tls,
        );
    }
    if let Some(format) = request.head.load_format
        && let Some(pressure) = request.exchange.application.shared.sentry().pressure()
        && let Some(report) = format.report(pressure)
    {
        response.headers.insert(orca::ENDPOINT_LOAD, report);
    }
    if settings.config.forward.via {
        let via = match response.version {
            Version::HTTP_2 => "2 tidegate",
            _ => "1.1 tidegate",
        };
        response.headers.append(VIA, HeaderValue::from_static(via));
    }
}

/// At shutdown an HTTP/1.1 client learns with its response that the connection ends.
pub(crate) fn say_goodbye(exchange: &Exchange, response: &mut Response<Outbound>) {
    if exchange.worker().state.is_draining() && exchange.client.protocol() == Protocol::Http1 {
        let close = HeaderValue::from_static("close");
        response.headers.insert(CONNECTION, close);
    }
}

/// A replica that answers 5xx has not done the work: its time says nothing about how long the
/// work takes.
fn ending(status: StatusCode) -> Ending {
    if status.is_server_error() {
        Ending::Dropped
    } else {
        Ending::Served
    }
}

/// What kind of response it is, as far as its slot is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Ends as soon as the replica can; so does a stream that is work.
    Plain,
    /// May be a stream: if it has not ended soon, it is one.
    Grpc,
    /// Lasts as long as somebody listens.
    Stream,
}

fn kind(headers: &Fields, streams: Streams) -> Kind {
    if streams == Streams::Work {
        return Kind::Plain;
    }
    let content_type = headers
        .get(CONTENT_TYPE)
        .map_or(&b""[..], HeaderValue::as_bytes);
    match content_type {
        t if is_event_stream(t) => Kind::Stream,
        t if t.starts_with(b"application/grpc") => Kind::Grpc,
        _ => Kind::Plain,
    }
}

/// What has come of a body together with the head.
#[derive(Debug)]
pub(crate) enum Ahead {
    /// All of it is here.
    Complete(Bytes),
    /// The first frame, if there is one yet.
    Open(Option<Frame<Bytes>>),
}

/// Takes what has arrived with the head. A small response is then complete: its slot and its
/// connection are free before the first byte goes to the client, however slowly that one reads,
/// and head and body leave in one write.
pub(crate) async fn read_ahead(body: &mut Download) -> Result<Ahead, BrokeOff> {
    if body.is_end_stream() {
        return Ok(Ahead::Complete(Bytes::new()));
    }
    let mut polled = poll_once(body).await;
    if polled.is_pending() && matches!(body, Download::Http2(_)) {
        // The connection's task may need a turn to hand over what it has read.
        tokio::task::yield_now().await;
        polled = poll_once(body).await;
    }
    let frame = match polled {
        Poll::Pending => return Ok(Ahead::Open(None)),
        Poll::Ready(None) => return Ok(Ahead::Complete(Bytes::new())),
        Poll::Ready(Some(frame)) => frame?,
    };
    match frame.into_data() {
        Ok(data) if body.is_end_stream() => Ok(Ahead::Complete(data)),
        Ok(data) => Ok(Ahead::Open(Some(Frame::data(data)))),
        Err(trailers) => Ok(Ahead::Open(Some(trailers))),
    }
}

type Polled = Poll<Option<Result<Frame<Bytes>, BrokeOff>>>;

async fn poll_once(body: &mut Download) -> Polled {
    poll_fn(|cx| Poll::Ready(Pin::new(&mut *body).poll_frame(cx))).await
}

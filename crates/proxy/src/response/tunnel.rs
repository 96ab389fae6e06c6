//! Upgraded connections: WebSocket and whatever else a replica agrees to.
//!
//! Bytes go both ways until one side ends or neither has sent anything for the idle time. The
//! connection to the replica never goes back to the pool, and the slot is given back at once.

use std::sync::Arc;
use std::time::Duration;

use http::header::{CONNECTION, UPGRADE};
use http::{HeaderValue, Response, StatusCode};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::copy_bidirectional;

use super::body::Outbound;
use crate::client::Client;
use crate::gate::Slot;
use crate::health::Outcome;
use crate::hop::{self, Border};
use crate::request::visit::Visit;
use crate::upstream::send::Answer;

/// Answers that the protocol is switched, and starts the tunnel.
pub(crate) fn open(
    visit: &Visit,
    mut slot: Slot,
    answer: Answer,
    client: OnUpgrade,
) -> Response<Outbound> {
    slot.stream();
    let mut response = answer.response;
    let status = StatusCode::SWITCHING_PROTOCOLS.as_u16();
    let board = visit.worker.state.board();
    board.record(slot.replica(), Outcome::Answered(status));
    let replica = hyper::upgrade::on(&mut response);
    let idle = *visit.worker.state.settings().config.timeouts.body_idle;
    let connection = Arc::clone(&visit.client);
    tokio::spawn(async move {
        let (Ok(client), Ok(replica)) = tokio::join!(client, replica) else {
            return;
        };
        let (mut client, mut replica) = (TokioIo::new(client), TokioIo::new(replica));
        tokio::select! {
            // However it ends, both sides see their connection close.
            _ = copy_bidirectional(&mut client, &mut replica) => {}
            () = silence(&connection, idle) => {}
        }
        drop(slot);
    });
    let protocol = response.headers().get(UPGRADE).cloned();
    let (mut parts, _) = response.into_parts();
    hop::strip(&mut parts.headers, Border::ToClient);
    parts
        .headers
        .insert(CONNECTION, HeaderValue::from_static("upgrade"));
    if let Some(protocol) = protocol {
        parts.headers.insert(UPGRADE, protocol);
    }
    parts.extensions.clear();
    Response::from_parts(parts, Outbound::full(bytes::Bytes::new()))
}

/// Ends when nothing has moved on a connection for `idle`.
async fn silence(client: &Client, idle: Duration) {
    loop {
        let before = client.progress();
        tokio::time::sleep(idle).await;
        if client.progress() == before {
            return;
        }
    }
}

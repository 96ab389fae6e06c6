//! Upgraded connections: WebSocket and whatever else a replica agrees to.
//!
//! Bytes go both ways until one side ends or neither has sent anything for the idle time. The
//! connection to the replica never goes back to the pool, and the slot is given back at once.

use std::io;
use std::time::Duration;

use bytes::BytesMut;
use http::header::{CONNECTION, UPGRADE};
use http::{HeaderValue, StatusCode};
use tokio::io::{AsyncWriteExt, copy_bidirectional};

use super::body::Outbound;
use super::failed;
use crate::client::Client;
use crate::client::socket::Socket;
use crate::fault::Fault;
use crate::gate::{Held, Slot};
use crate::health::Outcome;
use crate::hop::{self, Border};
use crate::message::Response;
use crate::metrics::UpstreamFailure;
use crate::pipe::Pipe;
use crate::request::exchange::Exchange;
use crate::upstream::connect::Transport;
use crate::upstream::send::Answer;

/// The replica's side of a connection that is no longer HTTP.
#[derive(Debug)]
pub(crate) struct Tunnel {
    replica: Transport,
    /// What the replica has said already.
    early: BytesMut,
    /// Given back as far as the engine is concerned; it counts what is open.
    slot: Held,
    idle: Duration,
}

/// Answers that the protocol is switched; the client's connection takes the tunnel from there.
pub(crate) fn open(
    exchange: &Exchange,
    mut slot: Slot,
    answer: Answer,
) -> Result<Response<Outbound>, Fault> {
    let Some(connection) = answer.body.into_upgraded() else {
        return Err(failed(exchange, slot, UpstreamFailure::Malformed));
    };
    slot.stream();
    let status = StatusCode::SWITCHING_PROTOCOLS.as_u16();
    let board = exchange.application.shared.board();
    board.record(slot.replica(), Outcome::Answered(status));
    let (replica, early) = connection.into_tunnel();
    let tunnel = Tunnel {
        replica,
        early,
        slot: Held::slot(slot),
        idle: *exchange.application.settings().config.timeouts.body_idle,
    };
    let mut response = answer.response;
    let headers = &mut response.headers;
    let protocol = headers.get(UPGRADE).cloned();
    hop::strip(headers, Border::ToClient);
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    if let Some(protocol) = protocol {
        headers.insert(UPGRADE, protocol);
    }
    Ok(response.map(|()| Outbound::Tunnel(Box::new(tunnel))))
}

impl Tunnel {
    /// Passes bytes on. However it ends, both sides see their connection close.
    pub(crate) async fn run(mut self, client: &Client, mut pipe: Pipe<Socket>, early: BytesMut) {
        let idle = self.idle;
        tokio::select! {
            _ = self.pass(&mut pipe, &early) => {}
            () = silence(client, idle) => {}
        }
        self.slot.end();
    }

    async fn pass(&mut self, pipe: &mut Pipe<Socket>, early: &[u8]) -> io::Result<()> {
        self.replica.write_all(early).await?;
        pipe.write_all(&self.early).await?;
        self.replica.flush().await?;
        pipe.flush().await?;
        copy_bidirectional(pipe, &mut self.replica).await?;
        Ok(())
    }
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

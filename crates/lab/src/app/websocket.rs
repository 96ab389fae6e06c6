//! A WebSocket that sends back what it receives.

use std::sync::{Mutex, PoisonError};

use futures_util::{SinkExt as _, StreamExt as _};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::task::JoinSet;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::http::Body;

/// Connections that have become WebSockets; dropped, it closes them.
#[derive(Debug, Default)]
pub(super) struct Echoes(Mutex<JoinSet<()>>);

/// A request to become a WebSocket, not answered yet.
pub(super) struct Handshake {
    upgrade: OnUpgrade,
    accept: HeaderValue,
}

impl Handshake {
    /// The handshake of a request that asks for one (RFC 6455, section 4.2.1).
    pub(super) fn of(request: &mut Request<Incoming>) -> Option<Self> {
        let accept = accept_key(request.headers())?;
        Some(Self {
            upgrade: hyper::upgrade::on(request),
            accept,
        })
    }
}

fn accept_key(headers: &HeaderMap) -> Option<HeaderValue> {
    let upgrade = headers.get(header::UPGRADE)?.to_str().ok()?;
    let key = headers.get(header::SEC_WEBSOCKET_KEY)?;
    if !upgrade.eq_ignore_ascii_case("websocket") {
        return None;
    }
    HeaderValue::from_str(&derive_accept_key(key.as_bytes())).ok()
}

impl Echoes {
    /// Answers the handshake and echoes from then on.
    pub(super) fn start(&self, handshake: Handshake) -> Response<Body> {
        let mut echoes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while echoes.try_join_next().is_some() {}
        echoes.spawn(async move {
            if let Ok(connection) = handshake.upgrade.await {
                echo(connection).await;
            }
        });
        let mut answer = Response::new(Either::Left(Full::default()));
        *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let headers = answer.headers_mut();
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(header::SEC_WEBSOCKET_ACCEPT, handshake.accept);
        answer
    }
}

/// Until the client closes, or breaks the protocol.
async fn echo(connection: Upgraded) {
    let io = TokioIo::new(connection);
    let mut socket = WebSocketStream::from_raw_socket(io, Role::Server, None).await;
    while let Some(Ok(message)) = socket.next().await {
        let said = message.is_text() || message.is_binary();
        if said && socket.send(message).await.is_err() {
            return;
        }
    }
}

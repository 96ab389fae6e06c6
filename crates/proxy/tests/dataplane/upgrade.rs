//! WebSocket and other upgrades.

use futures_util::{SinkExt, StreamExt};
use http::{Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;

use crate::support::*;

/// A service that sends every WebSocket message back.
async fn websocket_echo() -> Service {
    Service::start(|mut request| async move {
        let key = request.headers()["sec-websocket-key"].clone();
        let accept = derive_accept_key(key.as_bytes());
        tokio::spawn(async move {
            let upgraded = hyper::upgrade::on(&mut request).await.unwrap();
            let mut socket =
                WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Server, None).await;
            while let Some(Ok(message)) = socket.next().await {
                if message.is_text() && socket.send(message).await.is_err() {
                    break;
                }
            }
        });
        Response::builder()
            .status(StatusCode::SWITCHING_PROTOCOLS)
            .header("connection", "upgrade")
            .header("upgrade", "websocket")
            .header("sec-websocket-accept", accept)
            .body(full(""))
            .unwrap()
    })
    .await
}

#[tokio::test]
async fn websockets_pass_and_hold_no_slot() {
    let service = websocket_echo().await;
    let proxy = proxy(&[service.addr], "");
    let addr = proxy.local_addr();
    let stream = tokio::net::TcpStream::connect(addr).await.unwrap();
    let (mut socket, response) =
        tokio_tungstenite::client_async(format!("ws://{addr}/chat"), stream)
            .await
            .unwrap();
    assert_eq!(response.status(), 101);
    for n in 0..20 {
        let message = Message::text(format!("message {n}"));
        socket.send(message.clone()).await.unwrap();
        assert_eq!(within(socket.next()).await.unwrap().unwrap(), message);
    }
    let state = proxy.state();
    let replica = || state.first().sentry().status(state.now()).replicas[0].clone();
    assert_eq!((replica().in_flight, replica().streams), (0, 1));
    socket.close(None).await.unwrap();
    drop(socket);
    eventually("the stream has ended", || replica().streams == 0).await;
}

#[tokio::test]
async fn bytes_sent_with_the_upgrade_are_not_lost() {
    let service = raw_service(|mut stream, _| async move {
        read_head(&mut stream).await;
        let answer =
            b"HTTP/1.1 101 Switching Protocols\r\nupgrade: own\r\nconnection: upgrade\r\n\r\nhello";
        stream.write_all(answer).await.unwrap();
        let mut heard = [0; 5];
        stream.read_exact(&mut heard).await.unwrap();
        stream.write_all(&heard).await.unwrap();
    })
    .await;
    let proxy = proxy(&[service], "");
    let mut client = Client::connect(proxy.local_addr()).await;
    client
        .send("GET / HTTP/1.1\r\nhost: a\r\nconnection: Upgrade\r\nupgrade: own\r\n\r\nearly")
        .await;
    let answer = client.try_answer(true).await.unwrap();
    assert_eq!(
        (answer.status, answer.header("upgrade")),
        (101, Some("own"))
    );
    assert_eq!(client.read(10).await, b"helloearly");
}

#[tokio::test]
async fn an_upgrade_that_is_declined_leaves_an_ordinary_connection() {
    let service = Service::echo().await;
    let proxy = proxy(&[service.addr], "");
    let mut client = Client::connect(proxy.local_addr()).await;
    let upgrade = "GET /u HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";
    // The next request comes along before the upgrade is decided, and is inspected all the same.
    client
        .send(format!(
            "{upgrade}{GET}GET / HTTP/1.1\r\nhost: a\r\nbad name: 1\r\n\r\n"
        ))
        .await;
    let text = client.answer().await.text();
    assert!(
        text.contains("upgrade: websocket\n") && text.contains("connection: upgrade\n"),
        "{text}"
    );
    assert_eq!(client.answer().await.status, 200);
    assert_eq!(client.answer().await.status, 400);
}

//! Balancers that are none, on a listener with the PROXY protocol.

use crate::stage::Stage;

const LISTENER: &str =
    "listen = { addr = '127.0.0.1:0', proxy_protocol = true }\ntimeouts.handshake = '300ms'";

/// The connection is closed without a word of HTTP, and nothing reaches the replica.
async fn is_closed(bytes: impl AsRef<[u8]>) {
    let stage = Stage::configured(LISTENER).await;
    let mut attacker = stage.connect().await;
    attacker.send(bytes).await;
    let answer = attacker.read_to_end().await;
    assert!(
        answer.is_empty() || answer.starts_with("HTTP/1.1 400"),
        "{answer}"
    );
    assert!(stage.heads().is_empty(), "{:?}", stage.heads());
}

#[tokio::test]
async fn client_without_the_header_is_closed() {
    is_closed("GET /evil HTTP/1.1\r\nhost: a\r\n\r\n").await;
}

#[tokio::test]
async fn line_without_end_is_closed() {
    is_closed(format!("PROXY TCP4 {}", "1".repeat(10_000))).await;
}

#[tokio::test]
async fn header_that_takes_its_time_is_closed() {
    is_closed("PROXY TCP4 192.0.2.1").await;
}

#[tokio::test]
async fn addresses_of_another_family_are_closed() {
    is_closed("PROXY TCP4 ::1 ::1 1 2\r\nGET /evil HTTP/1.1\r\nhost: a\r\n\r\n").await;
}

#[tokio::test]
async fn block_of_64_kib_is_closed() {
    let head = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\xff\xff";
    is_closed([head.as_slice(), &[0; 65_535]].concat()).await;
}

#[tokio::test]
async fn block_shorter_than_its_addresses_is_closed() {
    let head = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x04";
    is_closed(
        [
            head.as_slice(),
            &[1; 4],
            b"GET /evil HTTP/1.1\r\nhost: a\r\n\r\n",
        ]
        .concat(),
    )
    .await;
}

#[tokio::test]
async fn second_header_is_no_request() {
    let header = "PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n";
    is_closed(format!(
        "{header}{header}GET /evil HTTP/1.1\r\nhost: a\r\n\r\n"
    ))
    .await;
}

#[tokio::test]
async fn address_of_the_header_is_forwarded_and_no_other() {
    let stage = Stage::configured(LISTENER).await;
    let request =
        "GET /one HTTP/1.1\r\nhost: a\r\nx-forwarded-for: 6.6.6.6\r\nconnection: close\r\n\r\n";
    stage
        .exchange(format!("PROXY TCP4 192.0.2.7 192.0.2.2 1 2\r\n{request}"))
        .await;
    let head = stage.heads().pop().unwrap_or_default();
    assert!(head.contains("x-forwarded-for: 192.0.2.7\r\n"), "{head}");
    assert!(!head.contains("6.6.6.6"), "{head}");
}

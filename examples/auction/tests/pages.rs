//! The auction as a browser sees it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::Value;
use tidegate_channel::SecretKey;
use tidegate_channel::receipt::Receipt;
use tidegate_channel::stamp::Content;
use tidegate_control::Timestamp;
use tidegate_example_auction::pages::{Settings, router};
use tower::ServiceExt;

/// The proxy's key.
fn proxy() -> SecretKey {
    SecretKey::from_seed(&[7; 32])
}

fn house(open_for: Duration) -> Router {
    router(Settings {
        open_for,
        grace: Duration::ZERO,
        work: Duration::ZERO,
        channel: Some((
            "http://127.0.0.1:8090".to_owned(),
            proxy().public().to_string(),
        )),
    })
}

/// What the proxy says about a bid of this client.
fn receipt(client: u8, signer: &SecretKey) -> String {
    let receipt = Receipt {
        client: SecretKey::from_seed(&[client; 32]).public(),
        item: 1,
        made: Timestamp::from_secs_f64(1000.0),
        error: Duration::ZERO,
        received: Timestamp::from_secs_f64(1001.0),
        content: Content::of("POST", "/bids", b""),
    };
    receipt.sign(signer)
}

async fn call(house: &Router, request: Request<Body>) -> (StatusCode, String) {
    let response = house.clone().oneshot(request).await.unwrap();
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

fn bid(body: &'static str, item: &str) -> Request<Body> {
    Request::post("/bids")
        .header("content-type", "application/x-www-form-urlencoded")
        .header("idempotency-key", item)
        .header("tidegate-receipt", receipt(1, &proxy()))
        .body(Body::from(body))
        .unwrap()
}

async fn state(house: &Router, bidder: &str) -> Value {
    let request = Request::get(format!("/state?bidder={bidder}"));
    let (status, body) = call(house, request.body(Body::empty()).unwrap()).await;
    assert_eq!(status, 200);
    serde_json::from_str(&body).unwrap()
}

#[tokio::test]
async fn a_bid_is_confirmed_once_and_seen_by_its_bidder_only() {
    let house = house(Duration::from_secs(600));
    let first = call(&house, bid("bidder=ann&amount=100", "a-1")).await;
    assert_eq!(first.0, 200);
    let again = call(&house, bid("bidder=ann&amount=100", "a-1")).await;
    assert!(again.1.contains("known"), "{}", again.1);
    assert_eq!(state(&house, "ann").await["own"], 100);
    let other = state(&house, "bob").await;
    assert_eq!(
        (&other["own"], &other["winner"]),
        (&Value::Null, &Value::Null)
    );
    assert_eq!(other["received"], 1);
    assert_eq!(call(&house, bid("bidder=&amount=1", "x")).await.0, 400);
}

#[tokio::test]
async fn a_bid_needs_the_receipt_of_the_proxy_and_a_name_its_owner() {
    let house = house(Duration::from_secs(600));
    let with = |receipt: Option<String>| {
        let mut request = bid("bidder=ann&amount=900", "b-1");
        request.headers_mut().remove("tidegate-receipt");
        if let Some(receipt) = receipt {
            let receipt = receipt.parse().unwrap();
            request.headers_mut().insert("tidegate-receipt", receipt);
        }
        request
    };
    assert_eq!(
        call(&house, bid("bidder=ann&amount=100", "a-1")).await.0,
        200
    );
    let forged = receipt(1, &SecretKey::from_seed(&[8; 32]));
    for stranger in [None, Some(forged)] {
        assert_eq!(call(&house, with(stranger)).await.0, 403);
    }
    // Another client under the same name.
    let other = Some(receipt(2, &proxy()));
    assert_eq!(call(&house, with(other)).await.0, 409);
    assert_eq!(state(&house, "ann").await["own"], 100);
}

#[tokio::test]
async fn after_the_end_nothing_is_taken() {
    let house = house(Duration::ZERO);
    assert_eq!(
        call(&house, bid("bidder=ann&amount=100", "a-1")).await.0,
        410
    );
    let state = state(&house, "ann").await;
    assert_eq!(
        (&state["over"], &state["winner"]),
        (&Value::Bool(true), &Value::Null)
    );
}

#[tokio::test]
async fn the_page_and_its_module_are_served() {
    let house = house(Duration::ZERO);
    for (path, word) in [
        ("/", "Sealed-bid auction"),
        ("/tidegate-client.js", "export class Client"),
        ("/tidegate-channel.js", "export class Verifier"),
    ] {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let (status, body) = call(&house, request).await;
        assert_eq!(status, 200);
        assert!(body.contains(word), "{path}");
    }
}

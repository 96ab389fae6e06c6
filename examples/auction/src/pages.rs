//! The pages: a bidder's desk, and what it talks to.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{Form, Query, State};
use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, HeaderMap};
use axum::response::{Html, IntoResponse, Json, Response};
use axum::routing::{get, post};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::json;
use tidegate_channel::PublicKey;
use tidegate_channel::net::RECEIPT_HEADER;
use tidegate_channel::receipt as channel;
use tokio::sync::Semaphore;

use crate::auction::{Auction, Receipt, Secured};

const PAGE: &str = include_str!("../assets/bidder.html");
const CLIENT: &str = include_str!("../../../crates/client/web/tidegate-client.js");
const CHANNEL: &str = include_str!("../../../crates/client/web/tidegate-channel.js");

/// How the auction runs.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Bids may be made for so long.
    pub open_for: Duration,
    /// Bids made in time are still received for so much longer.
    pub grace: Duration,
    /// Work for each bid, of the service's one worker.
    pub work: Duration,
    /// Where bidders' browsers find the channel, and its key; without them bids go at once.
    pub channel: Option<(String, String)>,
}

/// What all pages share.
#[derive(Debug)]
pub struct House {
    settings: Settings,
    auction: Mutex<Auction>,
    worker: Semaphore,
    began: Instant,
}

impl House {
    /// What the proxy says about a bid. Where there is a channel, its receipt has to be genuine.
    fn secured(&self, headers: &HeaderMap) -> Result<Option<Secured>, ()> {
        let Some((_, key)) = &self.settings.channel else {
            return Ok(None);
        };
        let key: PublicKey = key.parse().map_err(|_| ())?;
        let text = headers.get(RECEIPT_HEADER).and_then(|it| it.to_str().ok());
        let text = text.ok_or(())?;
        let receipt = channel::Receipt::read(text, &[key]).ok_or(())?;
        Ok(Some(Secured {
            client: receipt.client.to_string(),
            made_ms: receipt.made.as_nanos() / 1_000_000,
            receipt: text.to_owned(),
        }))
    }
}

/// The service.
pub fn router(settings: Settings) -> Router {
    let house = Arc::new(House {
        auction: Mutex::new(Auction::new(settings.open_for + settings.grace)),
        worker: Semaphore::new(1),
        began: Instant::now(),
        settings,
    });
    Router::new()
        .route("/", get(|| async { Html(PAGE) }))
        .route("/tidegate-client.js", get(|| async { script(CLIENT) }))
        .route("/tidegate-channel.js", get(|| async { script(CHANNEL) }))
        .route("/state", get(state))
        .route("/bids", post(bid))
        .with_state(house)
}

fn script(text: &'static str) -> impl IntoResponse {
    ([(CONTENT_TYPE, "text/javascript")], text)
}

#[derive(Debug, Deserialize)]
struct Asking {
    #[serde(default)]
    bidder: String,
}

/// What a bidder may know: the time left, their own bid, and after the end the result.
async fn state(State(house): State<Arc<House>>, Query(asking): Query<Asking>) -> Response {
    let now = house.began.elapsed();
    let auction = house.auction.lock();
    let channel = house.settings.channel.as_ref();
    Json(json!({
        "open_ms": house.settings.open_for.saturating_sub(now).as_millis() as u64,
        "closes_ms": auction.left(now).as_millis() as u64,
        "own": auction.own(&asking.bidder).map(|bid| bid.amount),
        "received": auction.received(),
        "over": auction.left(now).is_zero(),
        "winner": auction.winner(now),
        "channel": channel.map(|(url, key)| json!({ "url": url, "key": key })),
    }))
    .into_response()
}

#[derive(Debug, Deserialize)]
struct Offer {
    bidder: String,
    amount: u64,
}

async fn bid(
    State(house): State<Arc<House>>,
    headers: HeaderMap,
    Form(offer): Form<Offer>,
) -> Response {
    if offer.bidder.trim().is_empty() || offer.amount == 0 {
        return (
            StatusCode::BAD_REQUEST,
            "a bid needs a name and an amount\n",
        )
            .into_response();
    }
    let Ok(secured) = house.secured(&headers) else {
        return (
            StatusCode::FORBIDDEN,
            "bids come through the proxy, which says when they were made\n",
        )
            .into_response();
    };
    // One worker: bids wait for each other. The semaphore is never closed.
    let _turn = house.worker.acquire().await;
    tokio::time::sleep(house.settings.work).await;
    let item = headers
        .get("idempotency-key")
        .and_then(|key| key.to_str().ok());
    let now = house.began.elapsed();
    let receipt = house
        .auction
        .lock()
        .bid(now, &offer.bidder, offer.amount, item, secured);
    let status = match receipt {
        Receipt::Confirmed | Receipt::Known => StatusCode::OK,
        Receipt::Taken => StatusCode::CONFLICT,
        Receipt::Closed => StatusCode::GONE,
    };
    (
        status,
        Json(json!({ "receipt": receipt, "amount": offer.amount })),
    )
        .into_response()
}

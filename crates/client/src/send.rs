//! Sends one item, and says what came of it.

use std::time::Duration;

use bytes::Bytes;
use http::header::{HOST, HeaderName, HeaderValue, RETRY_AFTER};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use tidegate_channel::ClientId;
use tidegate_channel::net::{CLIENT_HEADER, Dialer, HELD_HEADER, MESSAGE_HEADER, STAMP_HEADER};
use tidegate_channel::stamp::item_name;
use tidegate_http1::hop;

use crate::outbox::StoredItem;

/// Names an item for the service (draft-ietf-httpapi-idempotency-key-header).
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// How long an answer may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// What came of sending an item.
#[derive(Debug)]
pub(crate) enum Sent {
    /// The server has dealt with it, for better or worse.
    Answered(Response<Bytes>),
    /// It has not: no connection, or the server asks to come again, after this long if it says.
    Failed(Option<Duration>),
    /// The proxy did not pass it on, for this reason: no answer to the item.
    Held(String, Option<Duration>),
}

/// Reasons for which an item will never be passed on: these are its answer.
const FINAL: [&str; 3] = ["late", "conflict", "too-large"];

/// What came of it, and the message that came with the response.
pub(crate) struct Report {
    pub(crate) sent: Sent,
    pub(crate) message: Option<String>,
}

/// Who sends which item, and what it was told.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sender {
    pub(crate) id: ClientId,
    pub(crate) number: u64,
    pub(crate) told: Option<(u64, Duration)>,
}

/// Sends an item.
pub(crate) async fn send(dialer: &Dialer, item: &StoredItem, sender: Sender) -> Report {
    let failed = Report {
        sent: Sent::Failed(None),
        message: None,
    };
    let Some(request) = request(item, sender) else {
        return failed;
    };
    match tokio::time::timeout(ANSWER_TIMEOUT, exchange(dialer, request)).await {
        Ok(Some(response)) => report(response),
        _ => failed,
    }
}

async fn exchange(dialer: &Dialer, request: Request<Full<Bytes>>) -> Option<Response<Bytes>> {
    let response = dialer.send(request).await.ok()?;
    let (parts, body) = response.into_parts();
    let body = body.collect().await.ok()?.to_bytes();
    Some(Response::from_parts(parts, body))
}

/// An answer that means "not now" is a failure: the item goes again.
fn report(response: Response<Bytes>) -> Report {
    let headers = response.headers();
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let message = text(HeaderName::from_static(MESSAGE_HEADER)).map(str::to_owned);
    let after = text(RETRY_AFTER).and_then(|seconds| seconds.trim().parse().ok());
    let not_now = matches!(
        response.status(),
        StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT
    );
    let after = after.map(Duration::from_secs);
    let held = text(HeaderName::from_static(HELD_HEADER)).map(str::to_owned);
    let held = held.filter(|reason| !FINAL.contains(&reason.as_str()));
    let sent = match held {
        Some(reason) => Sent::Held(reason, after),
        None if not_now => Sent::Failed(after),
        None => Sent::Answered(response),
    };
    Report { sent, message }
}

fn request(item: &StoredItem, sender: Sender) -> Option<Request<Full<Bytes>>> {
    let body = Full::from(Bytes::from(item.body.clone()));
    let mut request = Request::builder()
        .method(item.method.as_str())
        .uri(&item.uri)
        .body(body)
        .ok()?;
    *request.headers_mut() = headers(item)?;
    let told = sender.told.map_or_else(String::new, |(seq, lag)| {
        format!(";seq={seq};lag={}", lag.as_millis())
    });
    let id = sender.id.0;
    let client = HeaderValue::from_str(&format!("{id:016x}{told}")).ok()?;
    request.headers_mut().insert(CLIENT_HEADER, client);
    // The same each time, and passed on to the service: it can tell what it has seen.
    let item_key = HeaderValue::from_str(&item_name(sender.id, sender.number)).ok()?;
    request.headers_mut().insert(IDEMPOTENCY_KEY, item_key);
    let stamp = HeaderValue::from_str(&item.stamp).ok()?;
    request.headers_mut().insert(STAMP_HEADER, stamp);
    Some(request)
}

/// The item's own headers, without those that belong to the connection it came on.
fn headers(item: &StoredItem) -> Option<HeaderMap> {
    let mut headers = HeaderMap::new();
    for (name, value) in &item.headers {
        let name: HeaderName = name.parse().ok()?;
        if name != HOST && !name.as_str().starts_with("tidegate-") {
            headers.append(name, HeaderValue::from_str(value).ok()?);
        }
    }
    hop::strip(&mut headers);
    Some(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item() -> StoredItem {
        StoredItem {
            key: None,
            made_ms: 0,
            delay_max_ms: 0,
            stamp: "abc".to_owned(),
            method: "POST".to_owned(),
            uri: "http://a:1/b?c".to_owned(),
            headers: vec![
                ("content-type".to_owned(), "text/plain".to_owned()),
                ("connection".to_owned(), "close, x-hop".to_owned()),
                ("x-hop".to_owned(), "1".to_owned()),
                ("tidegate-class".to_owned(), "gold".to_owned()),
            ],
            body: b"x".to_vec(),
        }
    }

    #[test]
    fn request_says_who_sends_it_and_what_it_was_told() {
        let sender = Sender {
            id: ClientId(255),
            number: 12,
            told: Some((7, Duration::from_millis(120))),
        };
        let request = request(&item(), sender).unwrap();
        assert_eq!(
            request.headers()[IDEMPOTENCY_KEY],
            "\"00000000000000ff-12\""
        );
        assert_eq!(
            request.headers()[CLIENT_HEADER],
            "00000000000000ff;seq=7;lag=120"
        );
        assert_eq!(request.headers()[STAMP_HEADER], "abc");
        assert!(!request.headers().contains_key("tidegate-class"));
        assert!(!request.headers().contains_key("connection"));
        assert!(!request.headers().contains_key("x-hop"));
        assert_eq!(request.headers()["content-type"], "text/plain");
    }

    #[test]
    fn not_now_is_not_an_answer() {
        let answer = |status: u16| {
            let mut response = Response::new(Bytes::new());
            *response.status_mut() = StatusCode::from_u16(status).unwrap();
            let wait = HeaderValue::from_static("9");
            response.headers_mut().insert(RETRY_AFTER, wait);
            report(response).sent
        };
        assert!(matches!(answer(503), Sent::Failed(Some(wait)) if wait.as_secs() == 9));
        assert!(matches!(answer(429), Sent::Failed(_)));
        assert!(matches!(answer(200), Sent::Answered(_)));
        assert!(matches!(answer(403), Sent::Answered(_)));
        assert!(matches!(answer(410), Sent::Answered(_)));
    }

    #[test]
    fn ban_is_no_answer_to_an_item() {
        let held = |status: u16, reason: &'static str| {
            let mut response = Response::new(Bytes::new());
            *response.status_mut() = StatusCode::from_u16(status).unwrap();
            let reason = HeaderValue::from_static(reason);
            response.headers_mut().insert(HELD_HEADER, reason);
            report(response).sent
        };
        for reason in [
            "banned",
            "told-to-wait",
            "stranger",
            "unproven",
            "ahead",
            "again",
        ] {
            for status in [403, 429, 425] {
                let sent = held(status, reason);
                assert!(matches!(sent, Sent::Held(said, None) if said == reason));
            }
        }
        assert!(matches!(held(410, "late"), Sent::Answered(_)));
    }
}

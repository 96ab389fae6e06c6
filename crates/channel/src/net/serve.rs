//! Answers those who listen: the publisher's side and a relay's are the same.

use std::collections::HashSet;
use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCESS_CONTROL_ALLOW_ORIGIN, CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{Either, Full};
use hyper::rt::{Read, Write};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::hub::Events;
use super::tracker::{Joining, Tracker};
use super::{CHANNEL_PATH, Hub, JOIN_PATH, MESSAGE_PATH, STAMP_HEADER, TIME_PATH, unix_now};
use crate::clock::Answer;
use crate::key::{PublicKey, SecretKey};
use crate::message::to_text;
use crate::stamp::read_join_stamp;

/// How long a client may take to say what it wants.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Wait after an accept that failed: most often there are no descriptors left.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// What one listener offers.
pub struct Desk {
    /// The messages.
    pub hub: Hub,
    /// Signs the clock; a relay has no key.
    pub key: Option<Arc<SecretKey>>,
    /// Assigns parents; a relay does not.
    pub tracker: Option<Mutex<Tracker>>,
    /// Who may register as a relay; anybody when empty.
    pub members: HashSet<PublicKey>,
    /// Encrypts; plain text without it.
    pub tls: Option<TlsAcceptor>,
}

impl fmt::Debug for Desk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Desk")
            .field("hub", &self.hub)
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

type Answered = Response<Either<Full<Bytes>, Events>>;

impl Desk {
    /// A relay's desk: only the messages.
    #[must_use]
    pub fn relay(hub: Hub) -> Self {
        Self {
            hub,
            key: None,
            tracker: None,
            members: HashSet::new(),
            tls: None,
        }
    }

    /// Answers a request. Browsers of any site may listen: there is nothing secret in a message.
    pub fn answer<B>(&self, request: &Request<B>) -> Answered {
        let query = request.uri().query().unwrap_or("");
        let mut response = match request.uri().path() {
            CHANNEL_PATH => events(self.hub.listen()),
            MESSAGE_PATH => match self.hub.newest() {
                Some(packed) => text("text/plain", packed.text.to_string()),
                None => status(StatusCode::SERVICE_UNAVAILABLE),
            },
            JOIN_PATH => self.join(query, request.headers()),
            TIME_PATH => self.time(query),
            _ => status(StatusCode::NOT_FOUND),
        };
        let headers = response.headers_mut();
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    }

    fn join(&self, query: &str, headers: &HeaderMap) -> Answered {
        let Some(tracker) = &self.tracker else {
            return status(StatusCode::NOT_FOUND);
        };
        let word = |name| field(query, name).map(str::to_owned);
        let number = |name| field(query, name).and_then(|count| count.parse().ok());
        let parents = fields(query).filter(|(name, _)| *name == "parent");
        let joining = Joining {
            relay: word("relay"),
            depth: number("depth"),
            children: number("children").unwrap_or(0),
            parents: parents.map(|(_, parent)| parent.to_owned()).collect(),
            dead: word("dead"),
        };
        if !self.may_join(&joining, headers) {
            return status(StatusCode::FORBIDDEN);
        }
        let listeners = self.hub.listeners();
        let assignment = tracker.lock().join(unix_now(), listeners, &joining);
        match serde_json::to_string(&assignment) {
            Ok(json) => text("application/json", json),
            Err(_) => status(StatusCode::INTERNAL_SERVER_ERROR),
        }
    }

    /// In a closed group only members become relays, and only they are believed about the dead.
    fn may_join(&self, joining: &Joining, headers: &HeaderMap) -> bool {
        if self.members.is_empty() || (joining.relay.is_none() && joining.dead.is_none()) {
            return true;
        }
        let stamp = headers.get(STAMP_HEADER).and_then(|it| it.to_str().ok());
        let own = joining.relay.as_deref().unwrap_or_default();
        let member = stamp.and_then(|stamp| read_join_stamp(stamp, own, unix_now()));
        member.is_some_and(|member| self.members.contains(&member))
    }

    fn time(&self, query: &str) -> Answered {
        let received = unix_now();
        let Some(key) = &self.key else {
            return status(StatusCode::NOT_FOUND);
        };
        let Some(nonce) = field(query, "nonce").and_then(|nonce| nonce.parse().ok()) else {
            return status(StatusCode::BAD_REQUEST);
        };
        let answer = Answer {
            nonce,
            received,
            sent: unix_now(),
        };
        text("text/plain", to_text(&answer.sign(key)))
    }
}

/// A field of a query. Addresses are sent as they are: `&` is the only character that must not
/// be in one.
fn field<'a>(query: &'a str, name: &str) -> Option<&'a str> {
    let found = fields(query).find(|(key, _)| *key == name);
    found.map(|(_, value)| value)
}

fn fields(query: &str) -> impl Iterator<Item = (&str, &str)> {
    query.split('&').filter_map(|field| field.split_once('='))
}

fn text(content_type: &'static str, body: String) -> Answered {
    let mut response = Response::new(Either::Left(Full::from(body)));
    let content_type = HeaderValue::from_static(content_type);
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}

fn events(events: Events) -> Answered {
    let mut response = Response::new(Either::Right(events));
    let content_type = HeaderValue::from_static("text/event-stream");
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}

fn status(status: StatusCode) -> Answered {
    let reason = status.canonical_reason().unwrap_or_default();
    let mut response = text("text/plain", format!("{reason}\n"));
    *response.status_mut() = status;
    response
}

/// Accepts and answers until `end` is ready.
pub async fn serve(listener: TcpListener, desk: Arc<Desk>, end: impl Future<Output = ()>) {
    let accept = async {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    tokio::spawn(connection(stream, Arc::clone(&desk)));
                }
                Err(_) => tokio::time::sleep(ACCEPT_RETRY).await,
            }
        }
    };
    tokio::select! {
        () = accept => {}
        () = end => {}
    }
}

async fn connection(stream: TcpStream, desk: Arc<Desk>) {
    let _ = stream.set_nodelay(true);
    let Some(tls) = &desk.tls else {
        return converse(TokioIo::new(stream), desk).await;
    };
    // Errors are the listener's: it does not speak TLS, or does not believe our certificate.
    if let Ok(Ok(stream)) = tokio::time::timeout(HEAD_TIMEOUT, tls.accept(stream)).await {
        converse(TokioIo::new(stream), desk).await;
    }
}

async fn converse(stream: impl Read + Write + Unpin, desk: Arc<Desk>) {
    let service = service_fn(move |request| {
        let answer = desk.answer(&request);
        async move { Ok::<_, Infallible>(answer) }
    });
    // Errors are the listener's: it left.
    let _ = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .serve_connection(stream, service)
        .await;
}

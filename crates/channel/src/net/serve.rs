//! Answers subscribers: the publisher's side and a relay's are the same.
//!
//! Decision: docs/decisions/0028-channel-delivery-cost-and-https.md.

use std::collections::HashSet;
use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    ACCESS_CONTROL_ALLOW_ORIGIN, CACHE_CONTROL, CONTENT_TYPE, HeaderValue, RETRY_AFTER,
};
use http::{HeaderMap, Request, Response, StatusCode, Uri};
use http_body_util::{Either, Full};
use hyper::rt::{Read, Write};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use tidegate_http1::event_stream;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

use super::hub::Events;
use super::limits::{Limits, PerAddress, Place, group};
use super::{
    CHANNEL_PATH, Dialer, Hub, JOIN_PATH, MESSAGE_PATH, RELAY_PATH, STAMP_HEADER, TIME_PATH,
    unix_now,
};
use crate::clock::{Answer, SignedAnswer};
use crate::key::{PublicKey, SecretKey};
use crate::message::{from_text, to_text};
use crate::stamp::read_join_stamp;
use crate::tracker::{Joining, Probe, Tracker};
use crate::verify::Verifier;

/// How long a client may take to say what it wants.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Wait after an accept that failed: most often there are no descriptors left.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);
/// Listeners that a relay takes at most.
pub const RELAY_LISTENERS_MAX: usize = 1000;
/// Relays that are reached for at a time.
const PROBES_MAX: usize = 16;
/// How long a relay may take to show a message.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);
/// A relay that has just joined may have no message yet: this is how often it is asked, and how far
/// apart.
const PROBE_ATTEMPTS: (u32, Duration) = (4, Duration::from_millis(250));
/// When those come back who found no room, or asked too often.
const RETRY_S: u16 = 5;

/// Says how a relay is doing, as JSON.
pub type StatusPage = Box<dyn Fn() -> String + Send + Sync>;

/// What one listener offers.
pub struct Desk {
    /// The messages.
    pub hub: Hub,
    /// What strangers may ask for.
    pub limits: Limits,
    /// Encrypts; plain text without it.
    pub tls: Option<TlsAcceptor>,
    kind: Kind,
}

enum Kind {
    Relay(Option<StatusPage>),
    Publisher(Box<Publisher>),
}

/// What only the publisher has.
struct Publisher {
    key: Arc<SecretKey>,
    tracker: Mutex<Tracker>,
    members: HashSet<PublicKey>,
    relays: HashSet<PublicKey>,
    dialer: Dialer,
    probes: Semaphore,
}

impl fmt::Debug for Desk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Desk")
            .field("hub", &self.hub)
            .finish_non_exhaustive()
    }
}

type Answered = Response<Either<Full<Bytes>, Events>>;

impl Desk {
    /// A relay's desk: only the messages.
    #[must_use]
    pub fn relay(hub: Hub) -> Self {
        let max = RELAY_LISTENERS_MAX;
        Self {
            hub,
            limits: Limits::new(PerAddress::default(), max, max),
            tls: None,
            kind: Kind::Relay(None),
        }
    }

    /// The publisher's desk. Where there are `members`, only they become relays; `relays` may in an
    /// open group too, wherever they are reached.
    #[must_use]
    pub fn publisher(
        hub: Hub,
        limits: Limits,
        key: Arc<SecretKey>,
        tracker: Tracker,
        members: HashSet<PublicKey>,
        relays: HashSet<PublicKey>,
    ) -> Self {
        let publisher = Publisher {
            key,
            tracker: Mutex::new(tracker),
            members,
            relays,
            dialer: Dialer::default(),
            probes: Semaphore::new(PROBES_MAX),
        };
        Self {
            hub,
            limits,
            tls: None,
            kind: Kind::Publisher(Box::new(publisher)),
        }
    }

    /// Other limits than the usual.
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Encrypts, where there are certificates.
    #[must_use]
    pub fn with_tls(mut self, tls: Option<TlsAcceptor>) -> Self {
        self.tls = tls;
        self
    }

    /// A relay that says how it is doing.
    #[must_use]
    pub fn with_status(mut self, status: StatusPage) -> Self {
        if let Kind::Relay(page) = &mut self.kind {
            *page = Some(status);
        }
        self
    }

    /// Assigns parents; a relay does not.
    #[must_use]
    pub fn tracker(&self) -> Option<&Mutex<Tracker>> {
        self.publisher_only().map(|publisher| &publisher.tracker)
    }

    fn publisher_only(&self) -> Option<&Publisher> {
        match &self.kind {
            Kind::Publisher(publisher) => Some(publisher),
            Kind::Relay(_) => None,
        }
    }

    /// Answers a request. Browsers of any site may listen: there is nothing secret in a message.
    pub fn answer<B>(self: &Arc<Self>, request: &Request<B>, peer: IpAddr) -> Answered {
        let query = request.uri().query().unwrap_or("");
        let mut response = match request.uri().path() {
            CHANNEL_PATH => self.listen(peer),
            MESSAGE_PATH => match self.hub.newest() {
                Some(packed) => text("text/plain", packed.text.to_string()),
                None => status(StatusCode::SERVICE_UNAVAILABLE),
            },
            JOIN_PATH => self.join(query, request.headers(), peer),
            TIME_PATH => self.time(query, peer),
            RELAY_PATH => match &self.kind {
                Kind::Relay(Some(page)) => text("application/json", page()),
                _ => status(StatusCode::NOT_FOUND),
            },
            _ => status(StatusCode::NOT_FOUND),
        };
        let headers = response.headers_mut();
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    }

    fn listen(&self, peer: IpAddr) -> Answered {
        let now = unix_now();
        let sent = |tracker: &Mutex<Tracker>| tracker.lock().arrive(now, Some(group(peer)));
        let invited = self.tracker().is_some_and(sent);
        match self.limits.listen(now, peer, invited) {
            Some(place) => events(self.hub.listen().at(place)),
            None => later(StatusCode::SERVICE_UNAVAILABLE),
        }
    }

    fn join(self: &Arc<Self>, query: &str, headers: &HeaderMap, peer: IpAddr) -> Answered {
        let Some(publisher) = self.publisher_only() else {
            return status(StatusCode::NOT_FOUND);
        };
        let now = unix_now();
        let mut joining = joining(query);
        joining.member = publisher.member(&joining, headers);
        joining.from = Some(group(peer));
        joining.listening = self.limits.listeners_of(peer);
        if joining.member.is_none() && !self.limits.join(now, peer) {
            return later(StatusCode::TOO_MANY_REQUESTS);
        }
        if let Err(refused) = publisher.may_join(&joining, peer, self.limits.per_address()) {
            return forbidden(refused);
        }
        let mut tracker = publisher.tracker.lock();
        let assignment = tracker.join(now, self.limits.invited(), &joining);
        while let Some(probe) = tracker.next_probe() {
            tokio::spawn(reach(Arc::clone(self), probe));
        }
        drop(tracker);
        match serde_json::to_string(&assignment) {
            Ok(json) => text("application/json", json),
            Err(_) => status(StatusCode::INTERNAL_SERVER_ERROR),
        }
    }

    fn time(&self, query: &str, peer: IpAddr) -> Answered {
        let received = unix_now();
        let Some(publisher) = self.publisher_only() else {
            return status(StatusCode::NOT_FOUND);
        };
        let Some(nonce) = field(query, "nonce").and_then(|nonce| nonce.parse().ok()) else {
            return status(StatusCode::BAD_REQUEST);
        };
        if !self.limits.time(received, peer) {
            return later(StatusCode::TOO_MANY_REQUESTS);
        }
        let keys = [publisher.key.public()];
        let earlier = field(query, "earlier").and_then(from_text);
        let earlier = earlier.and_then(|bytes| SignedAnswer::read(&bytes));
        let earlier = earlier.filter(|earlier| earlier.is_signed_by(&keys));
        let earlier = earlier.map(|earlier| earlier.answer);
        let answer = Answer::new(nonce, received, unix_now(), earlier.as_ref());
        text(
            "text/plain",
            to_text(&answer.sign(&publisher.key).to_bytes()),
        )
    }
}

impl Publisher {
    /// The member, or the relay by name, that signed the question.
    fn member(&self, joining: &Joining, headers: &HeaderMap) -> Option<PublicKey> {
        let stamp = headers.get(STAMP_HEADER).and_then(|it| it.to_str().ok());
        let own = joining.relay.as_deref().unwrap_or_default();
        let key = stamp.and_then(|stamp| read_join_stamp(stamp, own, unix_now()));
        key.filter(|key| self.members.contains(key) || self.relays.contains(key))
    }

    /// In a closed group only members become relays, and only they are believed about the dead. In
    /// an open one a relay is where it says it is, and not another one.
    fn may_join(
        &self,
        joining: &Joining,
        peer: IpAddr,
        limits: &PerAddress,
    ) -> Result<(), &'static str> {
        if joining.member.is_some() {
            return Ok(());
        }
        if !self.members.is_empty() && (joining.relay.is_some() || joining.dead.is_some()) {
            return Err("only members may relay, or say who is dead: use a member's key");
        }
        let Some(own) = &joining.relay else {
            return Ok(());
        };
        if !is_at(own, peer) {
            return Err(
                "a relay is registered from the address at which it is reached, as http://ADDRESS:PORT; elsewhere it needs a key that `channel.relays` lists",
            );
        }
        if self.tracker.lock().relays_of(group(peer), own) >= limits.relays {
            return Err("this address has as many relays as it may");
        }
        Ok(())
    }
}

/// Whether an address is a host's own, written as a number: what is reached for on a stranger's
/// word must be the stranger.
fn is_at(address: &str, peer: IpAddr) -> bool {
    let Ok(uri) = address.parse::<Uri>() else {
        return false;
    };
    let plain = uri.scheme_str() == Some("http")
        && uri.port_u16().is_some()
        && uri.query().is_none()
        && uri.path() == "/"
        && !address.contains('@');
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    let host = host.parse::<IpAddr>();
    plain && host.is_ok_and(|host| host.to_canonical() == peer.to_canonical())
}

/// Reaches for a relay: one that passes our messages on can show one.
async fn reach(desk: Arc<Desk>, probe: Probe) {
    let Some(publisher) = desk.publisher_only() else {
        return;
    };
    tokio::time::sleep(probe.after).await;
    let mut reached = false;
    for _ in 0..PROBE_ATTEMPTS.0 {
        // The semaphore is never closed.
        let permit = publisher.probes.acquire().await;
        reached = publisher.shows_a_message(&probe.address).await;
        drop(permit);
        if reached {
            break;
        }
        tokio::time::sleep(PROBE_ATTEMPTS.1).await;
    }
    let mut tracker = publisher.tracker.lock();
    tracker.on_probe(unix_now(), &probe.address, reached);
}

impl Publisher {
    async fn shows_a_message(&self, address: &str) -> bool {
        let asked = self.dialer.get(address, MESSAGE_PATH, None);
        let shown = tokio::time::timeout(PROBE_TIMEOUT, asked).await;
        let Some(bytes) = shown
            .ok()
            .and_then(Result::ok)
            .and_then(|it| from_text(&it))
        else {
            return false;
        };
        let mut verifier = Verifier::new(&[self.key.public()]);
        verifier.accept(unix_now(), &bytes).is_ok()
    }
}

/// What a question says.
fn joining(query: &str) -> Joining {
    let word = |name| field(query, name).map(str::to_owned);
    let number = |name| field(query, name).and_then(|count| count.parse().ok());
    let parents = fields(query).filter(|(name, _)| *name == "parent");
    Joining {
        relay: word("relay"),
        depth: number("depth"),
        children: number("children").unwrap_or(0),
        parents: parents.map(|(_, parent)| parent.to_owned()).collect(),
        dead: word("dead"),
        tries: field(query, "tries")
            .and_then(|tries| tries.parse().ok())
            .unwrap_or(0),
        ..Joining::default()
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
    let content_type = HeaderValue::from_static(event_stream::MEDIA_TYPE);
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}

fn status(status: StatusCode) -> Answered {
    let reason = status.canonical_reason().unwrap_or_default();
    let mut response = text("text/plain", format!("{reason}\n"));
    *response.status_mut() = status;
    response
}

/// Come back later.
fn later(code: StatusCode) -> Answered {
    let mut response = status(code);
    let seconds = HeaderValue::from(RETRY_S);
    response.headers_mut().insert(RETRY_AFTER, seconds);
    response
}

fn forbidden(why: &'static str) -> Answered {
    let mut response = text("text/plain", format!("{why}\n"));
    *response.status_mut() = StatusCode::FORBIDDEN;
    response
}

/// Accepts and answers until `end` is ready.
pub async fn serve(listener: TcpListener, desk: Arc<Desk>, end: impl Future<Output = ()>) {
    let accept = async {
        loop {
            match listener.accept().await {
                Ok((stream, peer)) => {
                    // One too many is closed, which is the cheapest thing to do.
                    if let Some(place) = desk.limits.connect(unix_now(), peer.ip()) {
                        tokio::spawn(connection(stream, peer.ip(), Arc::clone(&desk), place));
                    }
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

async fn connection(stream: TcpStream, peer: IpAddr, desk: Arc<Desk>, _place: Place) {
    let _ = stream.set_nodelay(true);
    let Some(tls) = &desk.tls else {
        return converse(TokioIo::new(stream), peer, desk).await;
    };
    // Errors are the listener's: it does not speak TLS, or does not believe our certificate.
    if let Ok(Ok(stream)) = tokio::time::timeout(HEAD_TIMEOUT, tls.accept(stream)).await {
        converse(TokioIo::new(stream), peer, desk).await;
    }
}

async fn converse(stream: impl Read + Write + Unpin, peer: IpAddr, desk: Arc<Desk>) {
    let service = service_fn(move |request| {
        let answer = desk.answer(&request, peer);
        async move { Ok::<_, Infallible>(answer) }
    });
    // Errors are the listener's: it left.
    let _ = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .serve_connection(stream, service)
        .await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stranger_can_register_only_itself() {
        let peer: IpAddr = "192.0.2.7".parse().unwrap();
        assert!(is_at("http://192.0.2.7:9000", peer));
        assert!(is_at(
            "http://192.0.2.7:9000",
            "::ffff:192.0.2.7".parse().unwrap()
        ));
        for elsewhere in [
            "http://192.0.2.8:9000",
            "http://192.0.2.7",
            "https://192.0.2.7:9000",
            "http://192.0.2.7:9000/latest/meta-data",
            "http://192.0.2.7:9000?x",
            "http://192.0.2.8@192.0.2.7:9000",
            "http://localhost:9000",
            "192.0.2.7:9000",
        ] {
            assert!(!is_at(elsewhere, peer), "{elsewhere}");
        }
    }
}

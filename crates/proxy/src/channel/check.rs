//! A request's claim about its client, and what follows from it.
//!
//! A number in a header proves nothing. Whose an item is, and when it was made, is proven by its
//! stamp, which is for one method, target and body; so a stamped item is read whole before anything
//! is decided about it. Only then its client is judged, and the item is remembered.
//!
//! ```text
//! head ─► stamp, member, time ─► body ─► content ─► ledger ─► auditor ─► receipt for the service
//!            │ stranger, late       │ too large │ unproven │ again    │ told to wait, banned
//! ```

use std::time::Duration;

use bytes::Bytes;
use http::Method;
use http::header::{HeaderName, HeaderValue};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use tidegate_channel::compliance::{Late, Timing, Verdict};
use tidegate_channel::ledger::Known;
use tidegate_channel::net::{
    CLIENT_HEADER, MESSAGE_HEADER, RECEIPT_HEADER, STAMP_HEADER, unix_now,
};
use tidegate_channel::receipt::Receipt;
use tidegate_channel::stamp::{Content, Stamp, client_id};
use tidegate_channel::{ClientId, PublicKey};
use tidegate_control::Timestamp;

use super::Channel;
use crate::alarm::{Alarm, Elapsed};
use crate::fault::{Fault, Invalid};
use crate::message::{Fields, Response};
use crate::request::Request;
use crate::request::classify::Readings;
use crate::request::exchange::Exchange;
use crate::request::upload::Upload;
use crate::response::body::Outbound;

/// Longest time that a client's word about the channel is believed for.
const LAG_MAX: Duration = Duration::from_secs(30);

/// Names an item for the service (draft-ietf-httpapi-idempotency-key-header).
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Why the channel refuses a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Held {
    /// The client was told to wait: so much longer.
    #[error("this client was told to wait, and did not")]
    Throttled(Duration),
    /// It did so too often.
    #[error("this client did not wait when it was told to, and is not served for a while")]
    Banned(Duration),
    /// The same item came just now.
    #[error("this item was passed on just now; it may come again later")]
    Again(Duration),
    /// The item's time lies ahead of ours.
    #[error("the item's time lies in the future; compare clocks with the channel")]
    Ahead(Duration),
    /// It does not prove who it is, or is not a member.
    #[error(
        "only clients of the channel may send this; the request needs the stamp of a key that may take part"
    )]
    Stranger,
    /// The stamp is not one, or not for this request.
    #[error(
        "the stamp is not for this request: not for its method, target and body, or not genuine"
    )]
    Unproven,
    /// The number of the item was used for something else.
    #[error("the number of this item was used for another one")]
    Conflict,
    /// The item is larger than what is read before it is passed on.
    #[error("the item is larger than `channel.item_bytes`")]
    TooLarge,
    /// The item does not count any more.
    #[error("{0}")]
    Late(Late),
}

impl Held {
    /// The word in the access log and for programs.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Throttled(_) => "told-to-wait",
            Self::Banned(_) => "banned",
            Self::Again(_) => "again",
            Self::Ahead(_) => "ahead",
            Self::Stranger => "stranger",
            Self::Unproven => "unproven",
            Self::Conflict => "conflict",
            Self::TooLarge => "too-large",
            Self::Late(_) => "late",
        }
    }

    /// When it makes sense to come back.
    pub(crate) const fn wait(self) -> Option<Duration> {
        match self {
            Self::Throttled(wait) | Self::Banned(wait) | Self::Again(wait) | Self::Ahead(wait) => {
                Some(wait)
            }
            Self::Stranger | Self::Unproven | Self::Conflict | Self::TooLarge | Self::Late(_) => {
                None
            }
        }
    }
}

/// An item whose stamp is genuine; whether it is this item is still to be seen.
#[derive(Debug)]
pub(crate) struct Claim {
    stamp: Stamp,
    /// The stamp as it came.
    text: HeaderValue,
    /// How far its time may be off.
    error: Duration,
    received: Timestamp,
    /// How long the channel takes to reach the client, by its own word.
    lag: Option<Duration>,
}

/// An item that is what its stamp says: what the service is told about it.
#[derive(Debug)]
pub(crate) struct Proven {
    name: HeaderValue,
    stamp: HeaderValue,
    receipt: HeaderValue,
}

fn text<'a>(headers: &'a Fields, name: &'static str) -> Option<&'a str> {
    let value = headers.get(HeaderName::from_static(name));
    value.and_then(|value| value.to_str().ok())
}

/// What a client says about itself: its number, and how long messages take.
fn said(headers: &Fields) -> Option<(ClientId, Option<Duration>)> {
    let mut fields = text(headers, CLIENT_HEADER)?.split(';').map(str::trim);
    let id = fields.next()?;
    let id = ClientId(u64::from_str_radix(id, 16).ok()?);
    let lag = fields.find_map(|field| field.strip_prefix("lag="));
    let lag = lag.and_then(|lag| lag.parse().ok());
    Some((id, lag.map(Duration::from_millis)))
}

impl Channel {
    /// Whether a request may go on, by its head; the claim of one whose body decides.
    fn judge_head(
        &self,
        method: &Method,
        path: &str,
        headers: &Fields,
    ) -> Result<Option<Claim>, Held> {
        // Reading costs little and cannot be held back by a browser.
        if matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS) {
            return Ok(None);
        }
        let Some(stamp) = headers.get(HeaderName::from_static(STAMP_HEADER)) else {
            return if self.is_reserved(path) {
                Err(Held::Stranger)
            } else {
                Ok(None)
            };
        };
        let claim = self.claim(stamp, headers)?;
        let banned = self.auditor.lock();
        let banned = banned.banned(claim.received, client_id(&claim.stamp.client));
        match banned.filter(|_| self.config.compliance.enforce) {
            Some(wait) => Err(Held::Banned(wait)),
            None => Ok(Some(claim)),
        }
    }

    /// Whether a path is for clients of the channel alone. With a deadline and no paths everything
    /// is: a request whose time nobody knows cannot be in time.
    fn is_reserved(&self, path: &str) -> bool {
        let paths = &self.config.paths;
        if paths.is_empty() {
            self.policy.lock().deadline.is_some()
        } else {
            let path = Readings::of(path);
            let begins = |at: &String| path.any(|path| path.starts_with(at.as_str()));
            paths.iter().any(begins)
        }
    }

    fn claim(&self, value: &HeaderValue, headers: &Fields) -> Result<Claim, Held> {
        let stamp = value.to_str().ok().and_then(Stamp::read);
        let stamp = stamp.ok_or(Held::Unproven)?;
        let said = said(headers);
        if said.is_some_and(|(id, _)| id != client_id(&stamp.client)) {
            return Err(Held::Unproven);
        }
        if !self.members.is_empty() && !self.members.contains(&stamp.client) {
            return Err(Held::Stranger);
        }
        let received = unix_now();
        let timing = self
            .policy
            .lock()
            .check(received, &stamp, &self.clock_keys());
        let error = match timing {
            Timing::InTime(error) => error,
            Timing::Future(wait) => return Err(Held::Ahead(wait)),
            Timing::Late(late) => return Err(Held::Late(late)),
        };
        Ok(Claim {
            stamp,
            text: value.clone(),
            error,
            received,
            lag: said.and_then(|(_, lag)| lag),
        })
    }

    /// The keys that sign the clock which clients compare theirs with.
    fn clock_keys(&self) -> Vec<PublicKey> {
        let next = self.successor.into_iter();
        next.chain([self.public_key()]).collect()
    }

    /// Whether an item may go on, now that it is known whole.
    fn judge_item(&self, claim: &Claim, content: Content) -> Result<Proven, Held> {
        let (stamp, now) = (&claim.stamp, claim.received);
        if stamp.content != content {
            return Err(Held::Unproven);
        }
        let client = client_id(&stamp.client);
        let mut ledger = self.ledger.lock();
        match ledger.look(now, stamp) {
            Known::Conflict => return Err(Held::Conflict),
            Known::TooSoon(wait) => return Err(Held::Again(wait)),
            // Anyone who saw it on its way can repeat it: it says nothing about the client.
            Known::Repeated => {}
            Known::New => self.judge_client(now, client)?,
        }
        let matters = self.policy.lock().matters_for();
        ledger.enter(now, stamp, matters);
        drop(ledger);
        if let Some(lag) = claim.lag.filter(|_| !self.members.is_empty()) {
            let mut measured = self.measured.lock();
            measured.lags.on_sample(client, lag.min(LAG_MAX));
        }
        self.attested(claim).ok_or(Held::Unproven)
    }

    fn judge_client(&self, now: Timestamp, client: ClientId) -> Result<(), Held> {
        let verdict = self.auditor.lock().judge(now, client);
        match verdict {
            Verdict::Throttled(wait) if self.config.compliance.enforce => {
                Err(Held::Throttled(wait))
            }
            Verdict::Banned(wait) if self.config.compliance.enforce => Err(Held::Banned(wait)),
            _ => Ok(()),
        }
    }

    fn attested(&self, claim: &Claim) -> Option<Proven> {
        let stamp = &claim.stamp;
        let receipt = Receipt {
            client: stamp.client,
            item: stamp.item,
            made: stamp.made,
            error: claim.error,
            received: claim.received,
            content: stamp.content,
        };
        Some(Proven {
            name: HeaderValue::from_str(&stamp.name()).ok()?,
            stamp: claim.text.clone(),
            receipt: HeaderValue::from_str(&receipt.sign(&self.key)).ok()?,
        })
    }

    fn count(&self, held: Held) -> Fault {
        let mut measured = self.measured.lock();
        match held {
            Held::Late(_) => measured.late += 1,
            Held::Stranger | Held::Unproven | Held::Conflict => measured.strangers += 1,
            _ => {}
        }
        Fault::Held(held)
    }
}

/// Checks a request's head against what its client was told.
pub(crate) fn comply(request: &mut Request) -> Result<(), Fault> {
    let Some(channel) = request.exchange.application.shared.channel() else {
        return Ok(());
    };
    let asked = &request.message;
    let holds_back = asked
        .headers
        .contains(HeaderName::from_static(CLIENT_HEADER));
    let judged = channel.judge_head(&asked.method, asked.uri.path(), &asked.headers);
    let judged = judged.map_err(|held| channel.count(held));
    request.exchange.holds_back = holds_back;
    request.claim = judged?.map(Box::new);
    Ok(())
}

/// Reads a stamped item to its end, and checks that it is what its stamp says.
pub(crate) async fn prove(request: &mut Request) -> Result<(), Fault> {
    let Some(claim) = request.claim.take() else {
        return Ok(());
    };
    let body = match &request.message.body {
        Upload::Empty => Bytes::new(),
        _ => read_item(request).await?,
    };
    let message = &mut request.message;
    let target = message.uri.path_and_query();
    let target = target.map_or("/", |target| target.as_str());
    let content = Content::of(message.method.as_str(), target, &body);
    message.body = if body.is_empty() {
        Upload::Empty
    } else {
        Upload::Full(body)
    };
    let Some(channel) = request.exchange.application.shared.channel() else {
        return Ok(());
    };
    let proven = channel.judge_item(&claim, content);
    let proven = proven.map_err(|held| channel.count(held))?;
    request.item = Some(Box::new(proven));
    Ok(())
}

async fn read_item(request: &mut Request) -> Result<Bytes, Fault> {
    let exchange = &request.exchange;
    let channel = exchange.application.shared.channel();
    let max = channel.map_or(u64::MAX, |channel| channel.config.item_bytes.0);
    let max = usize::try_from(max).unwrap_or(usize::MAX);
    let upload = std::mem::replace(&mut request.message.body, Upload::Empty);
    let mut alarm = Alarm::set(&**exchange.worker(), request.deadline.at);
    let read = alarm.before(Limited::new(upload, max).collect()).await;
    let read = read.map_err(|Elapsed| Fault::from(Invalid::BodyTimeout))?;
    let body = read.map_err(|error| {
        exchange.client.linger();
        match error.downcast::<LengthLimitError>() {
            Ok(_) => Fault::Held(Held::TooLarge),
            Err(other) => match other.downcast::<Invalid>() {
                Ok(invalid) => Fault::from(*invalid),
                Err(_) => Fault::from(Invalid::Body),
            },
        }
    })?;
    let body = body.to_bytes();
    exchange.count_request_bytes(body.len());
    Ok(body)
}

/// Tells the replica whose an item is and when it was made, as far as that is proven.
pub(crate) fn attest(item: &Proven, headers: &mut Fields) {
    // In place of what the client says: it names this item, and no other.
    headers.insert(IDEMPOTENCY_KEY, item.name.clone());
    headers.insert(HeaderName::from_static(STAMP_HEADER), item.stamp.clone());
    headers.insert(
        HeaderName::from_static(RECEIPT_HEADER),
        item.receipt.clone(),
    );
}

/// Adds the message in force to the response of a client that understands it.
pub(crate) fn piggyback(exchange: &Exchange, response: &mut Response<Outbound>) {
    if !exchange.holds_back {
        return;
    }
    let newest = exchange
        .application
        .shared
        .channel()
        .and_then(|channel| channel.desk.hub.newest());
    let value = newest.and_then(|packed| HeaderValue::from_str(&packed.text).ok());
    if let Some(value) = value {
        let name = HeaderName::from_static(MESSAGE_HEADER);
        response.headers.insert(name, value);
    }
}

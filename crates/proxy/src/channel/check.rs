//! A request's claim about its client, and what follows from it.

use std::time::Duration;

use http::Method;
use http::header::{HeaderName, HeaderValue};
use tidegate_channel::ClientId;
use tidegate_channel::compliance::{Late, Verdict};
use tidegate_channel::net::{CLIENT_HEADER, MESSAGE_HEADER, STAMP_HEADER, unix_now};
use tidegate_channel::stamp::{Stamp, client_id};

use super::Channel;
use crate::fault::Fault;
use crate::message::{Fields, Response};
use crate::request::order::Order;
use crate::request::visit::Visit;
use crate::response::body::Outbound;

/// Longest time that a client's word about the channel is believed for.
const LAG_MAX: Duration = Duration::from_secs(30);

/// Why the channel refuses a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Held {
    /// The client was told to wait: so much longer.
    #[error("this client was told to wait, and did not")]
    Throttled(Duration),
    /// It did so too often.
    #[error("this client did not wait when it was told to, and is not served for a while")]
    Banned(Duration),
    /// It does not say who it is, or is not a member.
    #[error("only members may send this; the request needs a stamp of a member's key")]
    Stranger,
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
            Self::Stranger => "stranger",
            Self::Late(_) => "late",
        }
    }

    /// When it makes sense to come back.
    pub(crate) const fn wait(self) -> Option<Duration> {
        match self {
            Self::Throttled(wait) | Self::Banned(wait) => Some(wait),
            Self::Stranger | Self::Late(_) => None,
        }
    }
}

/// What a request says about its client.
struct Claim {
    id: ClientId,
    lag: Option<Duration>,
    stamp: Option<Stamp>,
}

impl Claim {
    /// `None` when it says nothing; an error when it is not true.
    fn read(headers: &Fields) -> Result<Option<Self>, Held> {
        let text = |name: &'static str| {
            let value = headers.get(HeaderName::from_static(name));
            value.and_then(|value| value.to_str().ok())
        };
        let stamp = match text(STAMP_HEADER) {
            Some(stamp) => Some(Stamp::read(stamp).ok_or(Held::Stranger)?),
            None => None,
        };
        let Some(claim) = text(CLIENT_HEADER) else {
            return Ok(stamp.map(|stamp| Self {
                id: client_id(&stamp.client),
                lag: None,
                stamp: Some(stamp),
            }));
        };
        let mut fields = claim.split(';').map(str::trim);
        let id = fields
            .next()
            .and_then(|id| u64::from_str_radix(id, 16).ok());
        let id = ClientId(id.ok_or(Held::Stranger)?);
        if stamp.is_some_and(|stamp| client_id(&stamp.client) != id) {
            return Err(Held::Stranger);
        }
        let lag = fields.find_map(|field| field.strip_prefix("lag="));
        let lag = lag
            .and_then(|lag| lag.parse().ok())
            .map(Duration::from_millis);
        Ok(Some(Self { id, lag, stamp }))
    }
}

impl Channel {
    /// Whether a request may go on; who its client is.
    fn judge(
        &self,
        method: &Method,
        path: &str,
        headers: &Fields,
    ) -> Result<Option<ClientId>, Held> {
        let claim = Claim::read(headers).inspect_err(|_| self.measured.lock().strangers += 1)?;
        // Reading costs little and cannot be held back by a browser.
        let reads = matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS);
        let Some(claim) = claim else {
            let reserved = self.config.paths.iter().any(|at| path.starts_with(at));
            return match reserved && !reads {
                true => Err(self.stranger()),
                false => Ok(None),
            };
        };
        let member = |stamp: Stamp| self.members.contains(&stamp.client);
        if !self.members.is_empty() && !claim.stamp.is_some_and(member) {
            return Err(self.stranger());
        }
        if let Some(lag) = claim.lag {
            let lag_s = lag.min(LAG_MAX).as_secs_f64();
            self.measured.lock().lag.on_sample(lag_s);
        }
        if reads {
            return Ok(Some(claim.id));
        }
        let now = unix_now();
        if let Some(stamp) = &claim.stamp {
            let policy = *self.policy.lock();
            policy.check(now, stamp).map_err(|late| {
                self.measured.lock().late += 1;
                Held::Late(late)
            })?;
        }
        let verdict = self.auditor.lock().judge(now, claim.id);
        match verdict {
            Verdict::Throttled(wait) if self.config.compliance.enforce => {
                Err(Held::Throttled(wait))
            }
            Verdict::Banned(wait) if self.config.compliance.enforce => Err(Held::Banned(wait)),
            _ => Ok(Some(claim.id)),
        }
    }

    fn stranger(&self) -> Held {
        self.measured.lock().strangers += 1;
        Held::Stranger
    }
}

/// Checks a request against what its client was told.
pub(crate) fn comply(visit: &mut Visit, order: &Order) -> Result<(), Fault> {
    let Some(channel) = visit.application.shared.channel() else {
        return Ok(());
    };
    let asked = &order.request;
    let judged = channel.judge(&asked.method, asked.uri.path(), &asked.headers);
    visit.holds_back = judged.map_err(Fault::Held)?.is_some();
    Ok(())
}

/// Adds the message in force to the response of a client that understands it.
pub(crate) fn piggyback(visit: &Visit, response: &mut Response<Outbound>) {
    if !visit.holds_back {
        return;
    }
    let newest = visit
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

//! Signed tokens: JSON Web Tokens (RFC 7519) in the compact form of JWS (RFC 7515).
//!
//! There is one key, and the algorithm follows from its kind; what a token says about its own
//! algorithm can only make it fail. A token needs a time of expiry. Whatever is wrong with it, it
//! proves nothing and is counted by why; the request goes on as one without a token.
//!
//! Verifying by a public key takes tens of microseconds, far more than a refusal may cost under
//! overload, so tokens that were verified are kept for the next request ([`Cache`]). A forged one
//! is never kept and pushes none out.

mod cache;
mod key;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::HeaderName;
use http::header::AUTHORIZATION;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::super::cookie::cookies;
use crate::clock::unix_seconds;
use crate::config::TokenConfig;
use crate::message::Fields;
use cache::Cache;
use key::Key;

/// What a token proves.
pub(crate) type Claims = Map<String, Value>;

/// Why a token proves nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenFault {
    /// Not three parts, not base64, not JSON, or more than one token.
    Malformed,
    /// Not signed by the key.
    Forged,
    /// Without a time of expiry, past it, or not valid yet.
    Expired,
    /// For another audience, or by another issuer.
    Foreign,
}

impl TokenFault {
    /// Every fault with its word in metrics, in the order of the counters.
    pub(crate) const ALL: [(Self, &'static str); 4] = [
        (Self::Malformed, "malformed"),
        (Self::Forged, "forged"),
        (Self::Expired, "expired"),
        (Self::Foreign, "foreign"),
    ];
}

/// Reads and verifies tokens.
#[derive(Debug)]
pub(crate) struct Tokens {
    place: Place,
    key: Key,
    issuer: Option<String>,
    audience: Option<String>,
    leeway_seconds: f64,
    cache: Cache,
    refused: [AtomicU64; TokenFault::ALL.len()],
}

#[derive(Debug)]
enum Place {
    Header(HeaderName),
    Cookie(String),
}

/// The part of a token's head that matters here.
#[derive(Deserialize)]
struct Head {
    alg: String,
    /// Extensions that a reader has to understand. We understand none.
    crit: Option<Value>,
}

impl Tokens {
    /// Reads the key; says what is wrong with it.
    pub(crate) fn new(config: &TokenConfig) -> Result<Self, String> {
        let place = match (&config.cookie, &config.header) {
            (Some(cookie), _) => Place::Cookie(cookie.clone()),
            (None, Some(header)) => Place::Header(
                header
                    .parse()
                    .map_err(|_| format!("`{header}` is not a header's name"))?,
            ),
            (None, None) => Place::Header(AUTHORIZATION),
        };
        Ok(Self {
            place,
            key: Key::load(config)?,
            issuer: config.issuer.clone(),
            audience: config.audience.clone(),
            leeway_seconds: config.leeway.as_secs_f64(),
            cache: Cache::default(),
            refused: Default::default(),
        })
    }

    /// What the token of a request proves, if it has a good one.
    pub(super) fn claims_of(&self, headers: &Fields) -> Option<Arc<Claims>> {
        let claims = self.find(headers).transpose()?;
        let claims = claims.and_then(|token| self.verify(token, unix_seconds()));
        claims.inspect_err(|fault| self.count(*fault)).ok()
    }

    fn count(&self, fault: TokenFault) {
        self.refused[fault as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Tokens that proved nothing, by why.
    pub(crate) fn refused(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counters = TokenFault::ALL.iter().zip(&self.refused);
        counters.map(|((_, word), count)| (*word, count.load(Ordering::Relaxed)))
    }

    /// Goes on with the counts of those it replaces.
    pub(crate) fn continue_from(&self, before: &Self) {
        for (counter, before) in self.refused.iter().zip(&before.refused) {
            counter.store(before.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// The one token of a request. Of two, none is it.
    fn find<'a>(&'a self, headers: &'a Fields) -> Result<Option<&'a str>, TokenFault> {
        match &self.place {
            Place::Cookie(name) => only(cookies(headers, name).map(Some)),
            Place::Header(name) => {
                let values = headers.get_all(name);
                let found = only(values.map(|value| value.to_str().ok()))?;
                Ok(found.and_then(|value| match *name {
                    AUTHORIZATION => bearer(value),
                    _ => Some(value),
                }))
            }
        }
    }

    fn verify(&self, token: &str, now: f64) -> Result<Arc<Claims>, TokenFault> {
        let claims = match self.cache.get(token) {
            Some(claims) => claims,
            None => {
                let claims = Arc::new(self.read(token)?);
                self.cache.put(token, &claims);
                claims
            }
        };
        self.check_time(&claims, now)?;
        Ok(claims)
    }

    /// What does not depend on the time: form, signature, issuer and audience.
    fn read(&self, token: &str) -> Result<Claims, TokenFault> {
        let (signed, signature) = token.rsplit_once('.').ok_or(TokenFault::Malformed)?;
        let (head, claims) = signed.split_once('.').ok_or(TokenFault::Malformed)?;
        let head: Head = parse(head)?;
        if head.alg != self.key.algorithm() || head.crit.is_some() {
            return Err(TokenFault::Forged);
        }
        if !self.key.verifies(signed.as_bytes(), &decode(signature)?) {
            return Err(TokenFault::Forged);
        }
        let claims: Claims = parse(claims)?;
        let says = |name: &str, wanted: &Option<String>| {
            let fits = |wanted: &String| claims.get(name).is_some_and(|found| is(found, wanted));
            wanted.as_ref().is_none_or(fits)
        };
        if says("iss", &self.issuer) && says("aud", &self.audience) {
            Ok(claims)
        } else {
            Err(TokenFault::Foreign)
        }
    }

    fn check_time(&self, claims: &Claims, now: f64) -> Result<(), TokenFault> {
        let expires = claims.get("exp").and_then(Value::as_f64);
        let alive = expires.is_some_and(|at| now < at + self.leeway_seconds);
        let begun = match claims.get("nbf") {
            Some(at) => at
                .as_f64()
                .is_some_and(|at| now + self.leeway_seconds >= at),
            None => true,
        };
        if alive && begun {
            Ok(())
        } else {
            Err(TokenFault::Expired)
        }
    }
}

fn only<'a>(
    mut found: impl Iterator<Item = Option<&'a str>>,
) -> Result<Option<&'a str>, TokenFault> {
    let first = found.next();
    match (first, found.next()) {
        (None, _) => Ok(None),
        (Some(Some(value)), None) => Ok(Some(value)),
        _ => Err(TokenFault::Malformed),
    }
}

/// What stands behind `Bearer`; another scheme is no token of ours.
fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    scheme
        .eq_ignore_ascii_case("bearer")
        .then(|| token.trim_ascii())
}

fn decode(part: &str) -> Result<Vec<u8>, TokenFault> {
    let decoded = URL_SAFE_NO_PAD.decode(part);
    decoded.map_err(|_| TokenFault::Malformed)
}

fn parse<T: serde::de::DeserializeOwned>(part: &str) -> Result<T, TokenFault> {
    serde_json::from_slice(&decode(part)?).map_err(|_| TokenFault::Malformed)
}

/// Whether a claim is, or is a list that contains, this text.
fn is(claim: &Value, wanted: &str) -> bool {
    match claim {
        Value::String(text) => text == wanted,
        Value::Array(items) => items.iter().any(|item| is(item, wanted)),
        Value::Bool(flag) => wanted == if *flag { "true" } else { "false" },
        Value::Number(number) => number.to_string() == wanted,
        Value::Null | Value::Object(_) => false,
    }
}

/// A claim that has to be there.
#[derive(Debug)]
pub(super) struct ClaimCondition {
    name: String,
    /// `None` is any value.
    value: Option<String>,
}

impl ClaimCondition {
    pub(super) fn new((name, value): (&String, &String)) -> Self {
        Self {
            name: name.clone(),
            value: (value != "*").then(|| value.clone()),
        }
    }

    pub(super) fn fits(&self, claims: &Claims) -> bool {
        let claim = claims.get(&self.name);
        claim.is_some_and(|claim| self.value.as_ref().is_none_or(|value| is(claim, value)))
    }
}

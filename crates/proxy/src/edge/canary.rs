//! Which requests of an application its canary serves.
//!
//! A canary is an application of its own, so its replicas have windows, health and counters of
//! their own. What it leaves out of the file is the main application's: the same networks, quotas,
//! classes and timeouts hold for both. A request that the canary would shed, or that no replica
//! of the canary has seen because none could be connected to, goes to the main application. So a
//! canary that is dead or too small loses nothing.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;

use http::HeaderName;

use super::companions::{Handed, Spread};
use crate::client::Client;
use crate::config::{Canary, ShareOf};
use crate::message::{Fields, Request};
use crate::request::classify::Asked;
use crate::request::cookie::cookies;
use crate::worker::LocalApplication;

/// The canary of an application, as one worker holds it.
#[derive(Debug)]
pub(crate) struct CanaryOf {
    application: Rc<LocalApplication>,
    header: Option<HeaderName>,
    rule: Canary,
    spread: Spread,
}

impl CanaryOf {
    pub(super) fn new(rule: &Canary, application: Rc<LocalApplication>) -> Self {
        Self {
            application,
            // Names have been checked before.
            header: rule.header.as_ref().and_then(|name| name.parse().ok()),
            rule: rule.clone(),
            spread: Spread::new(rule.share.0),
        }
    }

    /// Whether the canary is meant to serve a request.
    fn serves<B>(&self, client: &Client, main: &LocalApplication, request: &Request<B>) -> bool {
        let by_header = || self.by_header(&request.headers);
        let by_cookie = || self.by_cookie(&request.headers);
        let by_share = || match self.rule.by {
            ShareOf::Request => self.spread.next(),
            ShareOf::Address => self.spread.has(address_hash(client, main, request)),
        };
        by_header().or_else(by_cookie).unwrap_or_else(by_share)
    }

    fn by_header(&self, headers: &Fields) -> Option<bool> {
        let value = headers.get(self.header.as_ref()?)?;
        let wanted = self.rule.header_value.as_deref().unwrap_or("always");
        decided(value.as_bytes(), wanted)
    }

    fn by_cookie(&self, headers: &Fields) -> Option<bool> {
        let value = cookies(headers, self.rule.cookie.as_deref()?).next()?;
        decided(value.as_bytes(), "always")
    }
}

fn decided(value: &[u8], wanted: &str) -> Option<bool> {
    match value {
        value if value == wanted.as_bytes() => Some(true),
        b"never" => Some(false),
        _ => None,
    }
}

/// The same on every proxy and after every start, so that a client stays where it is.
fn address_hash<B>(client: &Client, main: &LocalApplication, request: &Request<B>) -> u64 {
    let asked = Asked::new(&request.method, "", request.uri.path(), &request.headers);
    let asked = asked.from(client.trusted, None);
    let address = main.settings().keys.client_ip(&asked, client.peer.ip());
    let mut hasher = DefaultHasher::new();
    address.to_canonical().hash(&mut hasher);
    hasher.finish()
}

/// The application that serves a request of `main`, and `main` itself where a request may return
/// to it.
pub(crate) fn choose<B>(
    main: Rc<LocalApplication>,
    client: &Client,
    request: &Request<B>,
) -> (Rc<LocalApplication>, Option<Rc<LocalApplication>>) {
    let Some(companions) = main.companions() else {
        return (main, None);
    };
    let meant = |canary: &&CanaryOf| canary.serves(client, &main, request);
    let Some(canary) = companions.canary.as_ref().filter(meant) else {
        return (main, None);
    };
    let shared = &canary.application.shared;
    let fallback = canary.rule.fallback;
    if fallback && shared.companion_counters().is_away(shared.now()) {
        shared.companion_counters().count(Handed::Away);
        return (main, None);
    }
    shared.companion_counters().count(Handed::Sent);
    (Rc::clone(&canary.application), fallback.then_some(main))
}

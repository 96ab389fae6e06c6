//! What a proxy at the edge does beside protecting: it redirects, closes for maintenance, refuses
//! networks, keeps quotas, and changes headers and paths.
//!
//! All of it is decided before anything is asked about load, so that the engine sees only what is
//! to be served. A configuration without `[edge]` has no [`Edge`], and a request pays one branch.

pub(crate) mod canary;
pub(crate) mod companions;
mod counters;
mod headers;
pub(crate) mod mirror;
mod quotas;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::uri::PathAndQuery;
use http::{HeaderName, HeaderValue, Uri};
use ipnet::IpNet;
use tidegate_control::Timestamp;
use tidegate_fleet::KeyRates;

use crate::config::Config;
use crate::fault::Fault;
use crate::message::{Fields, Request};
use crate::request::classify::path::PathPattern;
use crate::request::classify::{Asked, Readings};
use crate::request::engine_keys::{Keys, Marks};
pub(crate) use counters::EdgeCounters;
use headers::Changes;
use quotas::Quotas;
pub(crate) use quotas::{QuotaPermits, Standing};

const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// When clients are told to come back after maintenance, if nothing is configured.
const MAINTENANCE_RETRY: Duration = Duration::from_secs(60);

/// The section `[edge]`, ready to be used.
#[derive(Debug)]
pub(crate) struct Edge {
    config: Arc<Config>,
    strip: Option<Box<str>>,
    to_replica: Changes,
    to_client: Changes,
    /// The longest prefix first, each with its number in the file.
    paths: Vec<(PathPattern, usize)>,
    quotas: Quotas,
    maintenance: Option<Closed>,
}

/// The words of a service that is closed for maintenance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Closed {
    pub(crate) message: Option<Arc<str>>,
    pub(crate) retry_after: Duration,
}

/// What a request that passes the edge is given.
#[derive(Debug, Default)]
pub(crate) struct Passage {
    pub(crate) timeout: Option<Duration>,
    pub(crate) body_bytes: Option<u64>,
    pub(crate) response_bytes: Option<u64>,
    /// Places in quotas, held to the end of the request.
    pub(crate) permits: QuotaPermits,
    /// What is left of the one that is nearest to its end.
    pub(crate) standing: Option<Standing>,
}

/// A request as the edge looks at it.
pub(crate) struct EdgeRequest<'a, 'r> {
    pub(crate) asked: &'a Asked<'r>,
    pub(crate) marks: &'a Marks,
    pub(crate) uri: &'a Uri,
    pub(crate) peer: IpAddr,
    pub(crate) tls: bool,
    pub(crate) now: Timestamp,
}

impl Edge {
    /// The section as configured; `None` if it does nothing. Quotas of `before` keep their counts.
    pub(crate) fn new(config: &Arc<Config>, before: Option<&Self>) -> Option<Box<Self>> {
        let edge = &config.edge;
        if *edge == crate::config::Edge::default() {
            return None;
        }
        let mut paths: Vec<_> = edge.paths.iter().enumerate().collect();
        paths.sort_by_key(|(_, rule)| std::cmp::Reverse(rule.path.len()));
        let pattern =
            |(at, rule): (usize, &crate::config::PathRule)| (PathPattern::prefix(&rule.path), at);
        let strip = edge
            .strip_prefix
            .as_deref()
            .map(|it| it.trim_end_matches('/'));
        Some(Box::new(Self {
            strip: strip.filter(|it| !it.is_empty()).map(Box::from),
            to_replica: Changes::new(&edge.to_replica),
            to_client: Changes::new(&edge.to_client),
            paths: paths.into_iter().map(pattern).collect(),
            quotas: Quotas::new(&edge.quotas, before.map(|before| &before.quotas)),
            maintenance: edge.maintenance.enabled.then(|| Closed {
                message: edge.maintenance.message.as_deref().map(Arc::from),
                retry_after: edge
                    .maintenance
                    .retry_after
                    .map_or(MAINTENANCE_RETRY, |it| *it),
            }),
            config: Arc::clone(config),
        }))
    }

    /// Whether a request may pass, and with what.
    ///
    /// # Errors
    /// A redirect, or why not.
    pub(crate) fn pass(
        &self,
        seen: &EdgeRequest<'_, '_>,
        keys: &Keys,
    ) -> Result<Box<Passage>, Fault> {
        let edge = &self.config.edge;
        let address = keys.client_ip(seen.asked, seen.peer);
        if !edge.allow.is_empty() && !within(&edge.allow, address) || within(&edge.deny, address) {
            return Err(Fault::Forbidden);
        }
        if let Some(target) = self.redirect(seen) {
            return Err(Fault::Redirect(Box::new(target)));
        }
        if let Some(closed) = &self.maintenance
            && !within(&edge.maintenance.except, address)
        {
            return Err(Fault::Maintenance(Box::new(closed.clone())));
        }
        let stripped = self.strip.as_deref();
        let stripped = stripped.and_then(|prefix| without_prefix(seen.uri, prefix));
        let inner = stripped.as_ref().map(|target| Readings::of(target.path()));
        let mut passage = self.bounds(seen, inner.as_ref(), address)?;
        let taken = self.quotas.take(seen, inner.as_ref(), keys);
        (passage.permits, passage.standing) = taken.map_err(Fault::Quota)?;
        Ok(passage)
    }

    /// The rule of the path as it was sent, else of what the replica sees of it (`inner`). A
    /// network has to be allowed by the rules of every reading of both.
    fn bounds(
        &self,
        seen: &EdgeRequest<'_, '_>,
        inner: Option<&Readings<'_>>,
        address: IpAddr,
    ) -> Result<Box<Passage>, Fault> {
        let edge = &self.config.edge;
        let rule_of = |path: &str| {
            let mut rules = self.paths.iter();
            let rule = rules.find(|(pattern, _)| pattern.fits(path));
            rule.map(|(_, at)| &edge.paths[*at])
        };
        let forbids = |path: &str| {
            let allow = rule_of(path).map_or(&[][..], |rule| &rule.allow);
            !allow.is_empty() && !within(allow, address)
        };
        let sent = seen.asked.path();
        if sent.any(forbids) || inner.is_some_and(|inner| inner.any(forbids)) {
            return Err(Fault::Forbidden);
        }
        let rule = rule_of(sent.usual()).or_else(|| rule_of(inner?.usual()));
        let response_bytes = rule
            .and_then(|rule| rule.response_bytes)
            .or(edge.response_bytes);
        Ok(Box::new(Passage {
            timeout: rule.and_then(|rule| rule.timeout).map(|it| *it),
            body_bytes: rule.and_then(|rule| rule.body_bytes).map(|it| *it),
            response_bytes: response_bytes.map(|it| *it),
            permits: QuotaPermits::default(),
            standing: None,
        }))
    }

    /// Where a request in plain text is sent instead.
    fn redirect(&self, seen: &EdgeRequest<'_, '_>) -> Option<HeaderValue> {
        let told = || {
            seen.asked
                .headers
                .get(FORWARDED_PROTO)
                .map(HeaderValue::as_bytes)
        };
        let secure = seen.tls || (seen.asked.trusted && told() == Some(b"https"));
        if !self.config.edge.https_redirect || secure || seen.asked.host.is_empty() {
            return None;
        }
        let host = without_port(seen.asked.host);
        let port = self.config.edge.https_port.filter(|&port| port != 443);
        let port = port.map_or_else(String::new, |port| format!(":{port}"));
        let target = seen.uri.path_and_query().map_or("/", PathAndQuery::as_str);
        HeaderValue::try_from(format!("https://{host}{port}{target}")).ok()
    }

    /// Changes a request for its replica.
    pub(crate) fn change_request<B>(&self, request: &mut Request<B>) {
        let prefix = self.strip.as_deref();
        if let Some(target) = prefix.and_then(|prefix| without_prefix(&request.uri, prefix)) {
            request.uri = target.into();
        }
        self.to_replica.apply_to_request(&mut request.headers);
    }

    /// Changes a replica's answer for the client.
    pub(crate) fn change_answer(&self, headers: &mut Fields) {
        self.to_client.apply(headers);
    }

    /// Keys that use much of a quota, with their requests per second, by the quota's name: those
    /// that could use more than all of it at this many proxies.
    pub(crate) fn take_busy_keys(
        &self,
        elapsed: Duration,
        proxies: usize,
    ) -> BTreeMap<String, KeyRates> {
        self.quotas.take_busy_keys(elapsed, proxies)
    }

    /// Shares of quotas that keys have here, the rest being other proxies', by quota and key.
    pub(crate) fn share_quotas(&self, shares: &BTreeMap<String, BTreeMap<String, f64>>) {
        self.quotas.share(shares);
    }

    /// Requests that were beyond each quota, and keys that are in use.
    pub(crate) fn quota_totals(&self, now: Timestamp) -> Vec<QuotaTotals> {
        self.quotas.totals(now)
    }
}

pub(crate) use quotas::QuotaTotals;

fn within(networks: &[IpNet], address: IpAddr) -> bool {
    let address = address.to_canonical();
    networks.iter().any(|network| network.contains(&address))
}

fn without_port(host: &str) -> &str {
    match host.rfind(':') {
        Some(at) if !host[at..].contains(']') => &host[..at],
        _ => host,
    }
}

/// What remains of a path without the prefix, if it has that. It begins with one `/`, so that no
/// replica takes it for a host.
fn without_prefix(uri: &Uri, prefix: &str) -> Option<PathAndQuery> {
    let rest = uri.path_and_query()?.as_str().strip_prefix(prefix)?;
    let rest = match rest.as_bytes().first() {
        None | Some(b'?') => format!("/{rest}"),
        Some(b'/') => format!("/{}", rest.trim_start_matches('/')),
        _ => return None,
    };
    PathAndQuery::try_from(rest).ok()
}

/// Seconds until a client may come back, whole and at least one.
pub(crate) fn retry_after(wait: Duration) -> u64 {
    wait.as_secs_f64().ceil().clamp(1.0, 86_400.0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_taken_off_by_whole_segments() {
        for (before, after) in [
            ("/api/users?x=1", Some("/users?x=1")),
            ("/api", Some("/")),
            ("/api?x", Some("/?x")),
            ("/api//evil.example/", Some("/evil.example/")),
            ("/apis", None),
            ("/other", None),
        ] {
            let rest = without_prefix(&before.parse().unwrap(), "/api");
            assert_eq!(rest.as_ref().map(PathAndQuery::as_str), after, "{before}");
        }
    }

    #[test]
    fn hosts_lose_their_port() {
        assert_eq!(without_port("a.example:80"), "a.example");
        assert_eq!(without_port("[::1]:80"), "[::1]");
        assert_eq!(without_port("[::1]"), "[::1]");
    }

    #[test]
    fn networks_see_through_mapped_addresses() {
        let networks = ["10.0.0.0/8".parse().unwrap()];
        assert!(within(&networks, "::ffff:10.1.2.3".parse().unwrap()));
        assert!(!within(&networks, "192.0.2.1".parse().unwrap()));
    }
}

//! Whose a request is and what it is like: the keys by which the engine knows tenants, sessions
//! and paths.
//!
//! The engine gets hashes only, under a key drawn at start, so that nobody can aim at the place of
//! another. A tenant that cannot be told by what the operator chose, because the request does not
//! say or because its word does not count (the headers and cookies of strangers), is told by
//! address: a client that changes its name with every request stays one tenant.

use std::hash::{BuildHasher, Hash, RandomState};
use std::net::IpAddr;
use std::sync::OnceLock;

use http::{HeaderName, Method};
use ipnet::IpNet;
use serde_json::Value;
use siphasher::sip::SipHasher13;
use tidegate_sentry::policing::{PathHasher, PathKey};

use super::classify::{Asked, PathPattern, Readings, method};
use super::cookie::cookies;
use crate::config::{Config, KeySource, Secret, SessionKey};
use crate::message::Fields;
use crate::record::{Row, hash_key};

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Once for all applications of a proxy that is alone: that of the recording which it goes on with,
/// or drawn at start.
static SEED: OnceLock<Seed> = OnceLock::new();

/// The key of the hashes. Proxies of a fleet speak of the keys of quotas, so that theirs is made of
/// the token that they share.
#[derive(Debug, Clone, Copy)]
struct Seed(u64, u64);

impl Seed {
    fn draw() -> Self {
        let random = RandomState::new();
        Self(random.hash_one(0), random.hash_one(1))
    }

    fn of(config: &Config) -> Self {
        let Some(fleet) = &config.fleet else {
            return *SEED.get_or_init(|| {
                let kept = config.record.dir.as_deref().and_then(hash_key::read);
                kept.map_or_else(Self::draw, |(a, b)| Self(a, b))
            });
        };
        let token = fleet.read_token(&config.admin).ok().flatten();
        let secret = (&fleet.name, token.as_ref().map(Secret::expose));
        let half = |number: u64| Self(number, 0).hash_one(secret);
        Self(half(1), half(2))
    }
}

/// The key of the hashes in a recording; none where it is made of the token of a fleet, which stays
/// the same over restarts by itself.
pub(crate) fn recorded_key(config: &Config) -> Option<(u64, u64)> {
    let Seed(a, b) = Seed::of(config);
    config.fleet.is_none().then_some((a, b))
}

impl BuildHasher for Seed {
    type Hasher = SipHasher13;

    fn build_hasher(&self) -> SipHasher13 {
        SipHasher13::new_with_keys(self.0, self.1)
    }
}

/// Makes keys of requests.
#[derive(Debug)]
pub(crate) struct Keys {
    hasher: Seed,
    paths: PathHasher,
    /// Whether the engine asks what a path costs.
    engine_paths: bool,
    tenant: Option<Source>,
    session: Option<Session>,
    /// Proxies whose word counts.
    trust: Vec<IpNet>,
}

/// The keys of one request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Marks {
    pub(crate) path: Option<PathKey>,
    pub(crate) tenant: Option<u64>,
    pub(crate) session: Option<u64>,
    pub(crate) session_entry: bool,
}

/// Where a key stands.
#[derive(Debug)]
pub(crate) enum Source {
    Address,
    Header(HeaderName),
    Cookie(String),
    Claim(String),
    Certificate,
}

#[derive(Debug)]
struct Session {
    source: Source,
    /// Where it may begin; `None` is anywhere.
    entry: Option<PathPattern>,
    methods: Vec<Method>,
}

impl Keys {
    /// Keys as configured. Hashes are those of the process: they stay what they are over reloads,
    /// and when a request changes from a canary to its main application.
    pub(crate) fn new(config: &Config) -> Self {
        let hasher = Seed::of(config);
        let key = (hasher.hash_one("paths, 0"), hasher.hash_one("paths, 1"));
        Self {
            paths: PathHasher::new(key, &config.protect.paths.fold),
            engine_paths: config.protect.remembers_paths(),
            hasher,
            tenant: config.tenant.as_ref().map(Source::new),
            session: config.session.as_ref().map(Session::new),
            trust: config.forward.trust.clone(),
        }
    }

    /// The keys of a request that came from `peer`.
    pub(crate) fn marks(&self, asked: &Asked<'_>, peer: IpAddr) -> Marks {
        let session = self.session.as_ref();
        Marks {
            path: (self.engine_paths).then(|| self.paths.hash(asked.path().usual())),
            tenant: self.tenant.as_ref().map(|source| {
                let found = self.source_key(source, asked, asked.trusted);
                found.unwrap_or_else(|| self.by_address(asked, peer))
            }),
            session: session.and_then(|session| self.source_key(&session.source, asked, true)),
            session_entry: session.is_some_and(|session| session.may_begin(asked)),
        }
    }

    /// Records a request's path; `known` where its hash is known already.
    pub(crate) fn record_path(&self, path: &str, known: Option<PathKey>, row: &Row) {
        let readings = Readings::of(path);
        let path = readings.usual();
        let hash = known.unwrap_or_else(|| self.paths.hash(path));
        row.path(hash.0, || self.paths.name(path));
    }

    /// The names of a request's path and tenant, for people. What may be a secret, a cookie or a
    /// header, is not shown: only the first digits of its key.
    pub(crate) fn names(&self, asked: &Asked<'_>, peer: IpAddr) -> (String, Option<String>) {
        let path = self.paths.name(asked.path().usual());
        let tenant = self.tenant.as_ref().map(|source| {
            let found = self.source_key(source, asked, asked.trusted);
            match (source, found) {
                (_, None) => address(asked, peer, &self.trust).to_string(),
                (Source::Claim(name), Some(key)) => {
                    let claim = asked.claims().and_then(|claims| text(claims.get(name)?));
                    claim.unwrap_or_else(|| tenant_digits(key))
                }
                (_, Some(key)) => tenant_digits(key),
            }
        });
        (path, tenant)
    }

    /// The key of a tenant that is told by its address.
    pub(crate) fn by_address(&self, asked: &Asked<'_>, peer: IpAddr) -> u64 {
        self.hash(b'a', address(asked, peer, &self.trust))
    }

    /// The key of a request by `source`; by its address where it has none, or is not believed.
    pub(crate) fn key_of(&self, source: &Source, asked: &Asked<'_>, peer: IpAddr) -> u64 {
        let found = self.source_key(source, asked, asked.trusted);
        found.unwrap_or_else(|| self.by_address(asked, peer))
    }

    /// The key of a request's path, ids folded.
    pub(crate) fn path_key(&self, asked: &Asked<'_>) -> u64 {
        self.hash(b'p', self.paths.hash(asked.path().usual()).0)
    }

    /// What tells a client from others in a recording: enough to see it come back, too little to
    /// find out who it is.
    pub(crate) fn client_key(&self, asked: &Asked<'_>, peer: IpAddr, marks: &Marks) -> u32 {
        const BITS: u32 = 21;
        let ip = client_ip(asked, peer, &self.trust);
        let hash = self.hash(b'r', (ip, marks.tenant)) >> (u64::BITS - BITS);
        u32::try_from(hash).unwrap_or(0).max(1)
    }

    /// The client's address, seen through the proxies that are trusted.
    pub(crate) fn client_ip(&self, asked: &Asked<'_>, peer: IpAddr) -> IpAddr {
        client_ip(asked, peer, &self.trust)
    }

    /// What a request says under `source`, if it says one thing and, where it is but its own
    /// word, that is `believed`.
    fn source_key(&self, source: &Source, asked: &Asked<'_>, believed: bool) -> Option<u64> {
        match source {
            Source::Address => None,
            Source::Certificate => Some(self.hash(b't', asked.identity?.fingerprint)),
            Source::Claim(name) => Some(self.hash(b'c', text(asked.claims()?.get(name)?)?)),
            Source::Header(name) => {
                let mut values = asked.headers.get_all(name);
                let value = values.next().filter(|_| believed)?;
                values
                    .next()
                    .is_none()
                    .then(|| self.hash(b'h', value.as_bytes()))
            }
            Source::Cookie(name) => {
                let mut values = cookies(asked.headers, name);
                let value = values.next().filter(|_| believed)?;
                values.next().is_none().then(|| self.hash(b'k', value))
            }
        }
    }

    /// Different kinds of keys never meet.
    fn hash(&self, kind: u8, value: impl Hash) -> u64 {
        self.hasher.hash_one((kind, value))
    }
}

impl Source {
    pub(crate) fn new(source: &KeySource) -> Self {
        match source {
            KeySource::Address => Self::Address,
            // Names have been checked before.
            KeySource::Header(name) => name.parse().map_or(Self::Address, Self::Header),
            KeySource::Cookie(name) => Self::Cookie(name.clone()),
            KeySource::Claim(name) => Self::Claim(name.clone()),
            KeySource::Certificate => Self::Certificate,
        }
    }
}

impl Session {
    fn new(config: &SessionKey) -> Self {
        let methods = config.entry_methods.iter();
        Self {
            source: Source::new(&config.key),
            entry: config.entry_path.as_deref().map(PathPattern::prefix),
            methods: methods.filter_map(|name| method(name)).collect(),
        }
    }

    fn may_begin(&self, asked: &Asked<'_>) -> bool {
        let path = asked.path().usual();
        self.entry.as_ref().is_none_or(|entry| entry.fits(path))
            && (self.methods.is_empty() || self.methods.contains(asked.method))
    }
}

fn tenant_digits(key: u64) -> String {
    format!("#{:08x}", key >> 32)
}

/// A claim as text: one value, not a list of them.
fn text(claim: &Value) -> Option<String> {
    match claim {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// The client's address. Behind proxies that are trusted it is the last one they did not add
/// themselves.
fn client_ip(asked: &Asked<'_>, peer: IpAddr, trust: &[IpNet]) -> IpAddr {
    let found = if asked.trusted {
        forwarded_for(asked.headers, trust)
    } else {
        None
    };
    found.unwrap_or(peer)
}

/// The client's network: its address, of IPv6 the 64 bits that one customer usually gets.
fn address(asked: &Asked<'_>, peer: IpAddr, trust: &[IpNet]) -> IpAddr {
    match client_ip(asked, peer, trust) {
        IpAddr::V6(ip) => {
            let network = u128::from(ip) >> 64 << 64;
            IpAddr::V6(network.into())
        }
        ip => ip,
    }
}

fn forwarded_for(headers: &Fields, trust: &[IpNet]) -> Option<IpAddr> {
    let lines: Vec<_> = headers.get_all(FORWARDED_FOR).collect();
    let hops = lines.iter().rev();
    hops.filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.rsplit(','))
        .map_while(|hop| hop.trim_ascii().parse().ok())
        .find(|ip: &IpAddr| !trust.iter().any(|net| net.contains(ip)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 7));

    fn keys(text: &str) -> Keys {
        Keys::new(&Config::from_text("t.toml", text).unwrap())
    }

    fn headers(pairs: &[(&'static str, &'static str)]) -> Fields {
        let mut headers = Fields::new();
        for (name, value) in pairs {
            headers.append(HeaderName::from_static(name), value.parse().unwrap());
        }
        headers
    }

    fn marks(
        keys: &Keys,
        path: &str,
        said: &[(&'static str, &'static str)],
        trusted: bool,
        peer: &str,
    ) -> Marks {
        let headers = headers(said);
        let asked = Asked::new(&Method::GET, "a", path, &headers).from(trusted, None);
        keys.marks(&asked, peer.parse().unwrap())
    }

    #[test]
    fn paths_are_alike_without_query_ids_and_disguise() {
        let keys = keys("protect.paths.fold = ['/blog/*']");
        let path = |path: &str| marks(&keys, path, &[], false, "::1").path;
        assert_eq!(path("/user/1/orders"), path("/user/22/orders"));
        assert_eq!(path("/blog/cats"), path("/blog/dogs"));
        assert_eq!(path("/a"), path("//%61"));
        assert_ne!(path("/a"), path("/b"));
    }

    #[test]
    fn nothing_is_told_unless_asked_for() {
        let plain = marks(&keys(""), "/", &[("cookie", "sid=1")], false, "::1");
        assert_eq!((plain.tenant, plain.session), (None, None));
        assert!(!plain.session_entry);
    }

    #[test]
    fn a_stranger_is_told_by_address_whatever_it_calls_itself() {
        let keys = keys("tenant = 'header:x-customer'");
        let tenant = |said: &[_], trusted| marks(&keys, "/", said, trusted, "192.0.2.7").tenant;
        let (one, two) = (&[("x-customer", "1")], &[("x-customer", "2")]);
        assert_eq!(tenant(one, false), tenant(two, false));
        assert_ne!(tenant(one, true), tenant(two, true));
        let both = &[("x-customer", "1"), ("x-customer", "2")];
        assert_eq!(tenant(both, true), tenant(&[], true), "two names are none");
    }

    #[test]
    fn addresses_are_networks_seen_through_trusted_proxies() {
        let keys = keys("tenant = 'address'\nforward.trust = ['10.0.0.0/8']");
        let tenant = |peer, said: &[_], trusted| marks(&keys, "/", said, trusted, peer).tenant;
        assert_eq!(
            tenant("2001:db8::1", &[], false),
            tenant("2001:db8::ffff:2", &[], false)
        );
        assert_ne!(
            tenant("2001:db8::1", &[], false),
            tenant("2001:db8:0:1::1", &[], false)
        );
        let chain = &[("x-forwarded-for", "1.1.1.1, 192.0.2.7, 10.0.0.9")];
        let direct = tenant("192.0.2.7", &[], false);
        assert_eq!(tenant("10.0.0.1", chain, true), direct);
        assert_ne!(
            tenant("10.0.0.1", chain, false),
            direct,
            "a stranger's word"
        );
        let broken = &[("x-forwarded-for", "192.0.2.7, what, 10.0.0.9")];
        assert_eq!(
            tenant("10.0.0.1", broken, true),
            tenant("10.0.0.1", &[], false)
        );
    }

    #[test]
    fn a_session_has_one_name_and_begins_at_its_entry() {
        let keys = keys("session = { key = 'cookie:sid', entry_path = '/cart' }");
        let mark = |path, said: &[_]| marks(&keys, path, said, false, "::1");
        let one = mark("/cart/add", &[("cookie", "sid=1")]);
        assert!(one.session_entry && one.session.is_some());
        let later = mark("/pay", &[("cookie", "x=1; sid=1")]);
        assert_eq!((later.session, later.session_entry), (one.session, false));
        assert_ne!(mark("/pay", &[("cookie", "sid=2")]).session, one.session);
        assert_eq!(mark("/pay", &[("cookie", "sid=1; sid=2")]).session, None);
    }

    #[test]
    fn a_reload_changes_no_key() {
        let before = keys("tenant = 'address'");
        let config = Config::from_text("t.toml", "tenant = 'address'").unwrap();
        let after = Keys::new(&config);
        let (headers, method) = (Fields::new(), Method::GET);
        let asked = Asked::new(&method, "a", "/a", &headers);
        assert_eq!(before.marks(&asked, PEER), after.marks(&asked, PEER));
    }
}

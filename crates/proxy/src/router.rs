//! Which application a request belongs to: by host, then by the longest path prefix.
//!
//! Hosts are looked up in a hash table: the name itself first, then the wildcards above it from the
//! nearest to the farthest (`*.b.example` before `*.example`), then the applications of every
//! host. The first of these whose applications have a fitting path decides. Only as many labels
//! are tried as there are wildcards of that length, so a client cannot make the search long by a
//! name of many labels. With one application for everything there is no search at all. Canaries and
//! mirrors get their requests from other applications ([`crate::edge::canary`]), and are not found.
//!
//! Decision: docs/decisions/0288-paths-in-doubt-belong-to-none.md.

use std::collections::HashMap;

use crate::config::Application;

/// The longest name of a host (RFC 1035 section 2.3.4).
const HOST_BYTES_MAX: usize = 255;

/// Finds the number of a request's application.
#[derive(Debug, Default)]
pub(crate) struct Router {
    /// By lower-case name without port; a wildcard by what follows its star, dot included.
    hosts: HashMap<Box<[u8]>, Vec<Prefix>>,
    /// Numbers of labels after the star that wildcards have; the most first.
    wildcard_labels: Vec<usize>,
    any_host: Vec<Prefix>,
    /// The one that gets what fits none.
    fallback: Option<usize>,
}

/// A path prefix and its application; the longest first.
#[derive(Debug, Clone)]
struct Prefix {
    path: Box<[u8]>,
    application: usize,
}

impl Router {
    /// One application gets everything.
    pub(crate) fn single() -> Self {
        Self {
            fallback: Some(0),
            ..Self::default()
        }
    }

    /// A router for applications in this order; `fallback` is the name of one of them.
    pub(crate) fn new(applications: &[Application], fallback: Option<&str>) -> Self {
        let mut router = Self::default();
        let own = |it: &(usize, &Application)| it.1.companion().is_none();
        for (number, application) in applications.iter().enumerate().filter(own) {
            let prefixes = || prefixes(number, &application.paths);
            for host in &application.hosts {
                let key = host.trim_start_matches('*').to_ascii_lowercase();
                let key = key.into_bytes().into_boxed_slice();
                router.hosts.entry(key).or_default().extend(prefixes());
                if let Some(suffix) = host.strip_prefix("*.") {
                    router.wildcard_labels.push(labels(suffix.as_bytes()));
                }
            }
            if application.hosts.is_empty() {
                router.any_host.extend(prefixes());
            }
            if fallback == Some(application.name.as_str()) {
                router.fallback = Some(number);
            }
        }
        router.order();
        router
    }

    fn order(&mut self) {
        let longest_first = |prefixes: &mut Vec<Prefix>| {
            prefixes.sort_by_key(|prefix| std::cmp::Reverse(prefix.path.len()));
        };
        self.hosts.values_mut().for_each(longest_first);
        longest_first(&mut self.any_host);
        self.wildcard_labels.sort_by(|a, b| b.cmp(a));
        self.wildcard_labels.dedup();
    }

    /// Whether the same application gets every request.
    pub(crate) fn is_single(&self) -> bool {
        self.hosts.is_empty() && self.any_host.is_empty()
    }

    /// The application of a request for `host`, with or without a port, and `path`.
    pub(crate) fn route(&self, host: &[u8], path: &[u8]) -> Option<usize> {
        if self.is_single() {
            return self.fallback;
        }
        let by_host = || self.by_host(host, path);
        let by_path = || find(&self.any_host, path);
        by_host().or_else(by_path).or(self.fallback)
    }

    fn by_host(&self, host: &[u8], path: &[u8]) -> Option<usize> {
        if self.hosts.is_empty() {
            return None;
        }
        let mut buffer = [0; HOST_BYTES_MAX];
        let host = canonical(host, &mut buffer)?;
        let within = |key: &[u8]| find(self.hosts.get(key)?, path);
        within(host).or_else(|| {
            let mut wildcards = self.wildcard_labels.iter();
            wildcards.find_map(|&count| within(suffix(host, count)?))
        })
    }
}

/// The prefixes of an application; without any it gets every path.
fn prefixes(application: usize, paths: &[String]) -> Vec<Prefix> {
    let every = [String::new()];
    let paths = if paths.is_empty() { &every[..] } else { paths };
    let prefix = |path: &String| Prefix {
        path: path.trim_end_matches('/').as_bytes().into(),
        application,
    };
    paths.iter().map(prefix).collect()
}

fn find(prefixes: &[Prefix], path: &[u8]) -> Option<usize> {
    // An empty prefix is not compared: its pointer leads nowhere, and a comparison of no bytes
    // there takes the processor 90 ns (a vector load that is masked and faults).
    let fits = |prefix: &&Prefix| {
        let rest = || path.strip_prefix(&*prefix.path);
        let whole = |rest: &[u8]| rest.is_empty() || rest[0] == b'/';
        prefix.path.is_empty() || rest().is_some_and(whole)
    };
    prefixes.iter().find(fits).map(|prefix| prefix.application)
}

/// The name in lower case, without port and final dot.
fn canonical<'a>(host: &[u8], buffer: &'a mut [u8; HOST_BYTES_MAX]) -> Option<&'a [u8]> {
    let name = match host {
        [b'[', ..] => &host[..=host.iter().position(|&byte| byte == b']')?],
        _ => host.split(|&byte| byte == b':').next().unwrap_or(host),
    };
    let name = name.strip_suffix(b".").unwrap_or(name);
    // Wildcards are kept by what follows their star, which no host begins with.
    let name = Some(name).filter(|name| !name.starts_with(b"."))?;
    let lower = buffer.get_mut(..name.len())?;
    lower.copy_from_slice(name);
    lower.make_ascii_lowercase();
    Some(lower)
}

fn labels(name: &[u8]) -> usize {
    1 + name.iter().filter(|&&byte| byte == b'.').count()
}

/// The last `count` labels of a name and the dot before them; `None` if nothing would stand before.
fn suffix(host: &[u8], count: usize) -> Option<&[u8]> {
    let mut dots = host.iter().enumerate().rev();
    let mut dots = dots.by_ref().filter(|&(_, &byte)| byte == b'.');
    let (at, _) = dots.nth(count - 1)?;
    (at > 0).then(|| &host[at..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn application(name: &str, hosts: &[&str], paths: &[&str]) -> Application {
        let owned = |list: &[&str]| list.iter().map(|&it| it.to_owned()).collect();
        Application {
            name: name.to_owned(),
            hosts: owned(hosts),
            paths: owned(paths),
            ..Application::default()
        }
    }

    fn shops() -> Vec<Application> {
        vec![
            application("shop", &["shop.example", "*.shop.example"], &[]),
            application("api", &["shop.example"], &["/api", "/v2/"]),
            application("deep", &["*.eu.shop.example"], &[]),
            application("health", &[], &["/health"]),
        ]
    }

    fn routed(router: &Router, host: &str, path: &str) -> Option<usize> {
        router.route(host.as_bytes(), path.as_bytes())
    }

    #[test]
    fn host_and_longest_prefix_choose_the_application() {
        let router = Router::new(&shops(), None);
        let cases = [
            ("shop.example", "/", Some(0)),
            ("SHOP.Example.:8080", "/", Some(0)),
            ("shop.example", "/api", Some(1)),
            ("shop.example", "/api/users", Some(1)),
            ("shop.example", "/apis", Some(0)),
            ("shop.example", "/v2/x", Some(1)),
            ("de.shop.example", "/api", Some(0)),
            ("fr.eu.shop.example", "/", Some(2)),
            ("a.b.c.shop.example", "/", Some(0)),
            ("eu.shop.example", "/", Some(0)),
            ("other.example", "/health", Some(3)),
            ("other.example", "/", None),
            (".shop.example", "/", None),
            ("", "/", None),
            ("[::1]:80", "/health/x", Some(3)),
            ("[::1", "/", None),
        ];
        for (host, path, expected) in cases {
            assert_eq!(routed(&router, host, path), expected, "{host}{path}");
        }
        let long = format!("{}.shop.example", "a.".repeat(200));
        assert_eq!(routed(&router, &long, "/"), None);
    }

    #[test]
    fn a_fallback_gets_what_fits_none() {
        let router = Router::new(&shops(), Some("deep"));
        assert_eq!(routed(&router, "other.example", "/"), Some(2));
        assert_eq!(routed(&Router::single(), "", ""), Some(0));
    }

    #[test]
    fn an_address_is_a_host() {
        let router = Router::new(&[application("a", &["[::1]", "10.0.0.1"], &[])], None);
        assert_eq!(routed(&router, "[::1]:8080", "/"), Some(0));
        assert_eq!(routed(&router, "10.0.0.1:8080", "/"), Some(0));
        assert_eq!(routed(&router, "[::2]:8080", "/"), None);
    }
}

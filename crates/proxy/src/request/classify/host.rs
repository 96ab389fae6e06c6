//! Which hosts a rule is about.

use super::super::canonical::host_without_port;

/// A name, or every name below one.
#[derive(Debug)]
pub(super) enum HostPattern {
    Exact(Box<str>),
    /// What stands behind `*`, with its dot.
    Below(Box<str>),
}

impl HostPattern {
    pub(super) fn new(pattern: &str) -> Self {
        let pattern = pattern.to_ascii_lowercase();
        match pattern.strip_prefix('*') {
            Some(parent) => Self::Below(parent.into()),
            None => Self::Exact(pattern.into()),
        }
    }

    /// `host` as the client wrote it: any case, perhaps a port, perhaps the dot of the root.
    pub(super) fn fits(&self, host: &str) -> bool {
        let host = host_without_port(host);
        let host = host.strip_suffix('.').unwrap_or(host);
        match self {
            Self::Exact(name) => host.eq_ignore_ascii_case(name),
            Self::Below(parent) => host.len() > parent.len() && ends_with(host, parent),
        }
    }
}

fn ends_with(host: &str, end: &str) -> bool {
    let (host, end) = (host.as_bytes(), end.as_bytes());
    host[host.len() - end.len()..].eq_ignore_ascii_case(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_in_any_spelling_of_the_same_host() {
        let exact = HostPattern::new("Shop.example");
        for host in [
            "shop.example",
            "SHOP.example:8443",
            "shop.example.",
            "shop.example.:80",
        ] {
            assert!(exact.fits(host), "{host}");
        }
        for host in ["", "shop.example.org", "a.shop.example", "xshop.example"] {
            assert!(!exact.fits(host), "{host}");
        }
    }

    #[test]
    fn a_star_stands_for_every_name_below() {
        let below = HostPattern::new("*.example.org");
        assert!(below.fits("a.example.org") && below.fits("b.A.Example.ORG:80"));
        for host in [
            "example.org",
            ".example.org",
            "aexample.org",
            "a.example.org.evil",
        ] {
            assert!(!below.fits(host), "{host}");
        }
    }
}

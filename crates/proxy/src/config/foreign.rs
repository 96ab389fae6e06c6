//! Sections of other proxies' files, and what they are called here.

use tidegate_config::{ConfigError, Document};

/// Keys of the top of nginx, HAProxy, Envoy, Caddy and Traefik files, with ours.
const FOREIGN: &[(&[&str], &str)] = &[
    (
        &[
            "route",
            "routes",
            "router",
            "routers",
            "rule",
            "rules",
            "location",
            "virtual_hosts",
        ],
        "routes are [[application]] with `hosts` and `paths`, and [[classify]] for classes",
    ),
    (
        &[
            "server", "servers", "site", "sites", "vhost", "host", "hosts",
        ],
        "a virtual server is [[application]] with `hosts`; an address to listen on is `listen`",
    ),
    (
        &[
            "backend",
            "backends",
            "service",
            "services",
            "cluster",
            "clusters",
            "upstreams",
            "pool",
        ],
        "the service behind the proxy is `upstream = [\"http://10.0.0.7:3000\"]`",
    ),
    (
        &[
            "frontend",
            "frontends",
            "bind",
            "listeners",
            "listener",
            "entrypoints",
            "entryPoints",
        ],
        "addresses to listen on are `listen = \":8080\"` or [[listen]]",
    ),
    (
        &["headers", "header", "request_headers", "response_headers"],
        "headers are set, added and removed under [edge.to_replica] and [edge.to_client]",
    ),
    (
        &["rate_limit", "ratelimit", "limit_req", "rate", "rates"],
        "rates per client are [[edge.quotas]]; what the service can do is found out by [protect]",
    ),
    (
        &[
            "middleware",
            "middlewares",
            "filters",
            "handlers",
            "plugins",
        ],
        "there are no middlewares; quotas, headers, redirects and networks are under [edge]",
    ),
    (
        &["canary", "mirror", "split", "traffic_split"],
        "a canary is an [[application]] of its own with `canary.of`, a mirror one with `mirror.of`",
    ),
    (
        &["tls", "ssl", "certificates"],
        "certificates belong to a listener: [[listen.tls]] with `cert` and `key`",
    ),
    (
        &[
            "http",
            "tcp",
            "global",
            "defaults",
            "events",
            "static_resources",
            "apps",
            "providers",
        ],
        "this is another proxy's file; `tidegate reference` prints every key of ours",
    ),
];

/// Takes sections of other proxies out of the document, each with an error that names ours.
pub(super) fn take_out(document: &mut Document<'_>) -> Vec<ConfigError> {
    let mut errors = Vec::new();
    for (names, ours) in FOREIGN {
        for name in *names {
            if let Some(span) = document.remove(name) {
                let message = format!("there is no section `{name}` here: {ours}");
                errors.push(document.error(span, message));
            }
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_of_ours_is_taken_for_another_proxys() {
        let schema = schemars::schema_for!(crate::config::Config).to_value();
        for name in FOREIGN.iter().flat_map(|(names, _)| *names) {
            assert!(schema["properties"].get(name).is_none(), "{name}");
        }
    }
}

//! Quotas, header changes, paths and networks of the edge.

use std::collections::HashSet;

use http::{HeaderName, HeaderValue, Method};

use super::super::edge::{Edge, HeaderChanges, Quota, QuotaKey};
use super::super::{Config, KeySource};
use super::Report;
use super::policy::{header_name, positive};

/// What frames a message or leads it to its next hop is not the operator's to write.
const FRAMING: [&str; 10] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "date",
];

pub(super) fn edge(config: &Config, report: &mut Report) {
    let edge = &config.edge;
    headers("edge.to_replica", &edge.to_replica, report);
    headers("edge.to_client", &edge.to_client, report);
    paths(edge, report);
    let mut names = HashSet::new();
    for (index, it) in edge.quotas.iter().enumerate() {
        let path = format!("edge.quotas.{index}");
        report.error_if(
            !names.insert(&it.name),
            format_args!("{path}.name"),
            "two quotas have this name; give each its own",
        );
        quota(&path, it, config, report);
    }
    report.warn_if(
        edge.https_port.is_some() && !edge.https_redirect,
        "edge.https_port",
        "nothing is sent there; set `https_redirect = true`",
    );
    let tls = config
        .listen
        .iter()
        .any(|listener| !listener.tls.is_empty());
    report.warn_if(
        edge.https_redirect && !tls && config.forward.trust.is_empty(),
        "edge.https_redirect",
        "no listener has certificates and no proxy in front is trusted, so every request is sent \
         away; give a listener `tls`, or name the proxy that ends TLS under `forward.trust`",
    );
}

fn headers(path: &str, changes: &HeaderChanges, report: &mut Report) {
    let set = changes
        .set
        .iter()
        .map(|(name, value)| ("set", name, Some(value)));
    let add = changes
        .add
        .iter()
        .map(|(name, value)| ("add", name, Some(value)));
    let remove = changes.remove.iter().map(|name| ("remove", name, None));
    for (key, name, value) in set.chain(add).chain(remove) {
        let path = match value {
            Some(_) => format!("{path}.{key}.{name}"),
            None => format!("{path}.{key}"),
        };
        report.check(&path, header_name(name));
        let ours = HeaderName::try_from(name.as_str()).is_ok_and(|name| is_ours(name.as_str()));
        report.error_if(
            ours,
            &path,
            "this header belongs to the connection or to the proxy itself and cannot be changed; \
             remove it here",
        );
        report.error_if(
            value.is_some_and(|value| HeaderValue::from_str(value).is_err()),
            &path,
            "this is no value of a header; leave line breaks and control characters out",
        );
    }
}

fn is_ours(name: &str) -> bool {
    name.starts_with("tidegate-") || FRAMING.contains(&name)
}

fn paths(edge: &Edge, report: &mut Report) {
    let plain = |path: &str| path.starts_with('/') && !path.contains(['?', '#']);
    report.error_if(
        edge.strip_prefix
            .as_deref()
            .is_some_and(|it| !plain(it) || it.contains('*')),
        "edge.strip_prefix",
        "a prefix is a plain path that begins with `/`, such as \"/api\"",
    );
    for (index, rule) in edge.paths.iter().enumerate() {
        let path = format!("edge.paths.{index}");
        report.error_if(
            !plain(&rule.path),
            format_args!("{path}.path"),
            "a path begins with `/` and has no query; write \"/export\"",
        );
        if let Some(timeout) = rule.timeout {
            positive(format_args!("{path}.timeout"), timeout, report);
        }
    }
}

fn quota(path: &str, quota: &Quota, config: &Config, report: &mut Report) {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    report.error_if(
        quota.name.is_empty() || quota.name.len() > 63 || !quota.name.chars().all(plain),
        format_args!("{path}.name"),
        "it stands in metrics: use at most 63 letters, digits, `-`, `_` and `.`",
    );
    report.error_if(
        quota.rate.is_none() && quota.concurrency.is_none(),
        path,
        "it bounds nothing; give `rate`, `concurrency` or both",
    );
    report.error_if(
        quota.rate.is_some_and(|rate| *rate <= 0.0),
        format_args!("{path}.rate"),
        "zero would refuse everything; give a rate such as \"10/s\"",
    );
    for (key, zero) in [
        ("burst", quota.burst == Some(0)),
        ("concurrency", quota.concurrency == Some(0)),
        ("keys_max", quota.keys_max == 0),
    ] {
        report.error_if(zero, format_args!("{path}.{key}"), "give at least 1");
    }
    report.error_if(
        quota
            .path
            .as_ref()
            .is_some_and(|path| !path.starts_with('/')),
        format_args!("{path}.path"),
        "a path begins with `/`; add it",
    );
    for method in &quota.methods {
        report.error_if(
            Method::from_bytes(method.as_bytes()).is_err(),
            format_args!("{path}.methods"),
            "this is not a method; write \"GET\" or \"POST\"",
        );
    }
    key(path, quota, config, report);
}

fn key(path: &str, quota: &Quota, config: &Config, report: &mut Report) {
    let path = format!("{path}.key");
    report.error_if(
        quota.key == QuotaKey::Tenant && config.tenant.is_none(),
        &path,
        "it is not said what tenants are told by; give `tenant`",
    );
    let QuotaKey::Source(source) = &quota.key else {
        return;
    };
    report.error_if(
        matches!(source, KeySource::Claim(_)) && config.token.is_none(),
        &path,
        "no token could be verified; say under [token] where tokens are and who signs them",
    );
    let said = matches!(source, KeySource::Header(_) | KeySource::Cookie(_));
    report.warn_if(
        said && config.forward.trust.is_empty(),
        &path,
        "headers and cookies are the client's own word, so every client is told by its address; \
         list the proxy that sets them under `forward.trust`, or use a claim or a certificate",
    );
    if let KeySource::Header(name) = source {
        report.check(&path, header_name(name));
    }
}

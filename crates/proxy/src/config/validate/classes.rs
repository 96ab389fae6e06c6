//! Classes: rules that lead nowhere, rules that are never reached, classes that nobody is in, and
//! conditions that anybody can fulfil or nobody.

use http::Method;
use tidegate_sentry::{ClassConfig, ClassId, ModeName, SentryConfig};

use super::super::{Believe, ClassRule, Config, KeySource, TokenConfig};
use super::cover::{covers, overlap};
use super::policy::{cookie_name, header_name};
use super::{Report, SECRET_CHARS_MIN};
use crate::request::classify::PathPattern;
use crate::request::classify::token::Tokens;

pub(super) fn classes(config: &Config, report: &mut Report) {
    if let Some(class) = &config.default_class {
        report.check("default_class", known_class(class, &config.protect));
    }
    for (index, rule) in config.classify.iter().enumerate() {
        let path = format!("classify.{index}");
        let known = known_class(&rule.class, &config.protect);
        report.check(format_args!("{path}.class"), known);
        asked_for(&path, rule, report);
        said(&path, rule, report);
        proved(&path, rule, config, report);
        promises(&path, rule, config, report);
        order(&path, index, config, report);
    }
    unused(config, report);
    keys(config, report);
    contracts(config, report);
    if let Some(token) = &config.token {
        self::token(token, config, report);
    }
}

fn known_class(class: &str, protect: &SentryConfig) -> Result<(), String> {
    if protect.class_id(class).is_some() {
        return Ok(());
    }
    let names: Vec<_> = protect.classes.iter().map(|c| c.name.as_str()).collect();
    let known = if names.is_empty() {
        String::new()
    } else {
        format!(" or use one of {}", names.join(", "))
    };
    Err(format!(
        "there is no class `{class}`; declare it under [[protect.classes]]{known}"
    ))
}

/// Host, path and method.
fn asked_for(path: &str, rule: &ClassRule, report: &mut Report) {
    let patterns = [
        ("path", &rule.path),
        ("path_exact", &rule.path_exact),
        ("path_regex", &rule.path_regex),
    ];
    let given: Vec<_> = patterns.iter().filter(|(_, p)| p.is_some()).collect();
    if let [_, (second, _), ..] = given.as_slice() {
        report.error(
            format_args!("{path}.{second}"),
            "a rule has one pattern for the path; keep one of `path`, `path_exact` and \
             `path_regex`, or write two rules",
        );
    }
    for (key, pattern) in &patterns[..2] {
        report.error_if(
            pattern.as_ref().is_some_and(|p| !p.starts_with('/')),
            format_args!("{path}.{key}"),
            "a path begins with `/`; add it",
        );
        report.error_if(
            pattern.as_ref().is_some_and(|p| p.contains(['?', '#'])),
            format_args!("{path}.{key}"),
            "a path ends where the query begins; leave the query out",
        );
        report.error_if(
            pattern.as_ref().is_some_and(|p| has_partial_star(p)),
            format_args!("{path}.{key}"),
            "`*` stands for one whole segment, as in `/user/*/orders`; use `path_regex` for more",
        );
    }
    if let Some(Err(message)) = PathPattern::of(rule) {
        report.error(format_args!("{path}.path_regex"), message);
    }
    report.error_if(
        rule.host.as_ref().is_some_and(|host| !is_host(host)),
        format_args!("{path}.host"),
        "this is no host; write \"shop.example\" or \"*.shop.example\", without a port",
    );
    for method in &rule.methods {
        report.error_if(
            Method::from_bytes(method.as_bytes()).is_err(),
            format_args!("{path}.methods"),
            "this is not a method; write \"GET\" or \"POST\"",
        );
    }
}

fn has_partial_star(pattern: &str) -> bool {
    let mut segments = pattern.split('/');
    segments.any(|segment| segment.contains('*') && segment != "*")
}

pub(super) fn is_host(host: &str) -> bool {
    let name = host.strip_prefix("*.").unwrap_or(host);
    let in_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    let is_v6 = host.starts_with('[') && host.ends_with(']');
    is_v6 || (!name.is_empty() && !name.starts_with('.') && name.chars().all(in_name))
}

/// Headers and cookies.
fn said(path: &str, rule: &ClassRule, report: &mut Report) {
    for name in rule.headers.keys() {
        let key = format!("{path}.headers.{name}");
        report.check(&key, header_name(name));
        let lower = name.to_ascii_lowercase().replace('_', "-");
        report.error_if(
            lower.starts_with("tidegate"),
            &key,
            "names that begin with `tidegate` are the proxy's own and are removed from what \
             clients send; use another",
        );
        report.error_if(
            lower == "cookie",
            &key,
            "cookies have a key of their own; write `cookies = { name = \"value\" }`",
        );
        report.error_if(
            lower == "host",
            &key,
            "the host has a key of its own; write `host = \"shop.example\"`",
        );
    }
    for name in rule.cookies.keys() {
        report.check(format_args!("{path}.cookies.{name}"), cookie_name(name));
    }
    report.error_if(
        rule.urgency.is_some_and(|urgency| urgency > 7),
        format_args!("{path}.urgency"),
        "urgencies of RFC 9218 go from 0, the most urgent, to 7",
    );
}

/// Tokens and certificates.
fn proved(path: &str, rule: &ClassRule, config: &Config, report: &mut Report) {
    report.error_if(
        !rule.claims.is_empty() && config.token.is_none(),
        format_args!("{path}.claims"),
        "no token could be verified, so the rule would never fit; say under [token] where tokens \
         are and who signs them",
    );
    let asks = config.listen.iter().any(|l| l.client_ca.is_some());
    report.error_if(
        rule.certificate.is_some() && !asks,
        format_args!("{path}.certificate"),
        "no listener asks for certificates, so the rule would never fit; give a listener \
         `client_ca`",
    );
}

/// A rule that is to make requests more important by what the client says of itself.
fn promises(path: &str, rule: &ClassRule, config: &Config, report: &mut Report) {
    let default = config.default_class_id();
    let promotes = |class: ClassId| class < default;
    if !has_fields(rule) || !config.protect.class_id(&rule.class).is_some_and(promotes) {
        return;
    }
    report.warn_if(
        rule.believe == Believe::Trusted && config.forward.trust.is_empty(),
        path,
        "headers and cookies are the client's own word, so this rule can make no request more \
         important; list the proxy that sets them under `forward.trust`, ask for a token \
         (`claims`) or a `certificate` instead, or write `believe = \"anybody\"` if the value is \
         a secret",
    );
    let any = |value: &String| value == "*";
    report.warn_if(
        rule.believe == Believe::Anybody
            && rule.headers.values().chain(rule.cookies.values()).all(any),
        format_args!("{path}.believe"),
        "every client can send this header or cookie and make itself more important; ask for a \
         value that only some know",
    );
}

fn has_fields(rule: &ClassRule) -> bool {
    !rule.headers.is_empty() || !rule.cookies.is_empty() || rule.urgency.is_some()
}

/// Rules that an earlier one shadows, or of which one that leads to a less important class takes
/// a part. The other way round, the most important first, is how rules are usually listed.
fn order(path: &str, index: usize, config: &Config, report: &mut Report) {
    let rules = &config.classify;
    let rule = &rules[index];
    let earlier = || rules[..index].iter().enumerate();
    if let Some((number, first)) = earlier().find(|(_, first)| covers(first, rule)) {
        let message = format!(
            "this rule is never reached: rule {} (class `{}`) takes every request that fits it; \
             move it in front of that rule, or remove it",
            number + 1,
            first.class,
        );
        return report.warn(path, message);
    }
    let class = |rule: &ClassRule| config.protect.class_id(&rule.class);
    let cuts = |first: &ClassRule| class(first) > class(rule) && overlap(first, rule);
    if let Some((number, first)) = earlier().find(|(_, first)| cuts(first)) {
        let message = format!(
            "a request may fit this rule and rule {} (class `{}`) as well, and gets the less \
             important class of the earlier one; change their order if that is not meant",
            number + 1,
            first.class,
        );
        report.warn(path, message);
    }
}

/// Classes that no request is ever in.
fn unused(config: &Config, report: &mut Report) {
    let default = config.default_class_id();
    for (index, class) in config.protect.classes.iter().enumerate() {
        let ruled = config.classify.iter().any(|rule| rule.class == class.name);
        if ruled || usize::from(default.0) == index {
            continue;
        }
        let message = format!(
            "no request is ever in class `{}`: no rule leads to it and it is not the class of the \
             rest, which is `{}`; add a rule under [[classify]], or set `default_class`",
            class.name,
            config.protect.class_name(default),
        );
        report.warn(format_args!("protect.classes.{index}.name"), message);
    }
}

fn token(token: &TokenConfig, config: &Config, report: &mut Report) {
    report.error_if(
        token.header.is_some() && token.cookie.is_some(),
        "token.cookie",
        "`header` is given as well; keep one of them",
    );
    if let Some(header) = &token.header {
        report.check("token.header", header_name(header));
    }
    if let Some(cookie) = &token.cookie {
        report.check("token.cookie", cookie_name(cookie));
    }
    let short = |secret: &super::super::Secret| secret.expose().len() < 2 * SECRET_CHARS_MIN;
    report.error_if(
        token.secret.as_ref().is_some_and(short),
        "token.secret",
        "it is short enough to be found by trying, and whoever finds it signs tokens; give at \
         least 32 characters",
    );
    let key = match token.public_key {
        Some(_) => "token.public_key",
        None => "token",
    };
    report.check(key, Tokens::new(token).map(drop));
    let claimed = |key: Option<&KeySource>| matches!(key, Some(KeySource::Claim(_)));
    let by_rules = config.classify.iter().any(|rule| !rule.claims.is_empty());
    let by_keys = claimed(config.tenant.as_ref()) || claimed(session_key(config));
    report.warn_if(
        !by_rules && !by_keys,
        "token",
        "nothing looks at tokens; give a rule under [[classify]] `claims`",
    );
}

fn session_key(config: &Config) -> Option<&KeySource> {
    config.session.as_ref().map(|session| &session.key)
}

/// What tenants and sessions are told by.
fn keys(config: &Config, report: &mut Report) {
    let keys = [
        ("tenant", config.tenant.as_ref()),
        ("session.key", session_key(config)),
    ];
    for (path, key) in keys {
        match key {
            Some(KeySource::Header(name)) => report.check(path, header_name(name)),
            Some(KeySource::Cookie(name)) => report.check(path, cookie_name(name)),
            Some(KeySource::Claim(_)) => report.error_if(
                config.token.is_none(),
                path,
                "no token could be verified; say under [token] where tokens are and who signs them",
            ),
            Some(KeySource::Certificate) => report.error_if(
                config.listen.iter().all(|l| l.client_ca.is_none()),
                path,
                "no listener asks for certificates; give a listener `client_ca`",
            ),
            Some(KeySource::Address) | None => {}
        }
    }
    let said = matches!(
        config.tenant,
        Some(KeySource::Header(_) | KeySource::Cookie(_))
    );
    report.warn_if(
        said && config.forward.trust.is_empty(),
        "tenant",
        "headers and cookies count only from the proxies in `forward.trust`, and there are none: \
         all tenants would be told by address; list the proxy that sets them, or use a claim",
    );
    let Some(session) = &config.session else {
        return;
    };
    report.error_if(
        session.key == KeySource::Address,
        "session.key",
        "an address is no session: half a town may share one; use a cookie, a header or a claim",
    );
    report.error_if(
        session
            .entry_path
            .as_ref()
            .is_some_and(|p| !p.starts_with('/')),
        "session.entry_path",
        "a path begins with `/`; add it",
    );
    for method in &session.entry_methods {
        report.error_if(
            Method::from_bytes(method.as_bytes()).is_err(),
            "session.entry_methods",
            "this is not a method; write \"GET\" or \"POST\"",
        );
    }
}

/// Guarantees and tables of targets that cannot be meant so.
fn contracts(config: &Config, report: &mut Report) {
    let protect = &config.protect;
    for (index, class) in protect.classes.iter().enumerate() {
        report.warn_if(
            gets_stricter(class),
            format_args!("protect.classes.{index}.targets"),
            "the target becomes shorter as more requests arrive; it is meant to be relaxed in a \
             crowd, so check the order of the rows",
        );
    }
    let promised: f64 = protect
        .classes
        .iter()
        .filter_map(|c| c.guarantee)
        .map(|g| g.0)
        .sum();
    let limit = match protect.mode {
        ModeName::Static => protect.fixed.rate.map(|rate| rate.0),
        _ => None,
    };
    if let Some(limit) = limit.filter(|limit| promised > *limit) {
        let message = format!(
            "the guarantees of all classes add up to {promised}/s, more than the {limit}/s that \
             `protect.static.rate` admits at all; lower them or raise it"
        );
        report.error("protect.classes", message);
    }
}

fn gets_stricter(class: &ClassConfig) -> bool {
    let first = class.target.into_iter();
    let targets: Vec<_> = first
        .chain(class.targets.iter().map(|band| band.target))
        .collect();
    !targets.is_sorted()
}

//! Which requests two rules have in common, as far as that can be told from the rules alone.
//!
//! Regular expressions are compared as text: whether one covers another is not decided.

use std::collections::BTreeMap;

use super::super::{Believe, CertificateRule, ClassRule};

/// Whether every request that fits `later` fits `first` too.
pub(super) fn covers(first: &ClassRule, later: &ClassRule) -> bool {
    let ClassRule {
        class: _,
        host,
        path: _,
        path_exact: _,
        path_regex: _,
        methods,
        headers,
        cookies,
        urgency,
        believe,
        certificate,
        claims,
    } = first;
    let says = headers.len() + cookies.len() > 0 || urgency.is_some();
    optional(host.as_ref(), later.host.as_ref(), |a, b| name_covers(a, b))
        && path_covers(first, later)
        && methods_cover(methods, &later.methods)
        && values_cover(headers, &later.headers)
        && values_cover(cookies, &later.cookies)
        && values_cover(claims, &later.claims)
        && optional(urgency.as_ref(), later.urgency.as_ref(), |most, other| {
            most >= other
        })
        && (!says || *believe == Believe::Anybody || later.believe == Believe::Trusted)
        && optional(
            certificate.as_ref(),
            later.certificate.as_ref(),
            certificate_covers,
        )
}

/// Whether some request may fit both although neither rule covers the other. Only by what
/// requests ask for: that one rule is about who asks and the other about what is the usual case.
pub(super) fn overlap(one: &ClassRule, other: &ClassRule) -> bool {
    same_people(one, other)
        && !covers(other, one)
        && one.path_regex.is_none()
        && other.path_regex.is_none()
        && either(one.host.as_ref(), other.host.as_ref(), |a, b| {
            name_covers(a, b)
        })
        && paths_meet(one, other)
        && methods_meet(&one.methods, &other.methods)
}

fn same_people(one: &ClassRule, other: &ClassRule) -> bool {
    one.headers == other.headers
        && one.cookies == other.cookies
        && one.urgency == other.urgency
        && one.claims == other.claims
        && one.certificate == other.certificate
}

/// A condition that is not given covers every one.
fn optional<T>(first: Option<T>, later: Option<T>, covers: impl Fn(T, T) -> bool) -> bool {
    match (first, later) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(first), Some(later)) => covers(first, later),
    }
}

fn either<T: Copy>(one: Option<T>, other: Option<T>, covers: impl Fn(T, T) -> bool) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => covers(one, other) || covers(other, one),
        _ => true,
    }
}

fn name_covers(first: &str, later: &str) -> bool {
    let (first, later) = (first.to_ascii_lowercase(), later.to_ascii_lowercase());
    match first.strip_prefix('*') {
        Some(parent) => later.ends_with(parent),
        None => first == later,
    }
}

fn methods_cover(first: &[String], later: &[String]) -> bool {
    let among = |method: &String| first.iter().any(|it| it.eq_ignore_ascii_case(method));
    first.is_empty() || (!later.is_empty() && later.iter().all(among))
}

fn methods_meet(one: &[String], other: &[String]) -> bool {
    let among = |method: &String| other.iter().any(|it| it.eq_ignore_ascii_case(method));
    one.is_empty() || other.is_empty() || one.iter().any(among)
}

fn values_cover(first: &BTreeMap<String, String>, later: &BTreeMap<String, String>) -> bool {
    first.iter().all(|(name, value)| {
        let found = later.get(name);
        found.is_some_and(|found| value == "*" || value == found)
    })
}

fn certificate_covers(first: &CertificateRule, later: &CertificateRule) -> bool {
    let same = |a: &String, b: &String| a == b;
    optional(first.name.as_ref(), later.name.as_ref(), |a, b| {
        name_covers(a, b)
    }) && optional(first.common_name.as_ref(), later.common_name.as_ref(), same)
        && optional(first.fingerprint, later.fingerprint, |a, b| a == b)
}

/// A path's pattern by segments, and whether nothing may follow.
fn segments(rule: &ClassRule) -> Option<(Vec<&str>, bool)> {
    match (&rule.path, &rule.path_exact) {
        (Some(begin), _) => {
            let begin = begin.trim_end_matches('/');
            Some((begin.split('/').skip(1).collect(), false))
        }
        (None, Some(exact)) => Some((exact.split('/').skip(1).collect(), true)),
        (None, None) => None,
    }
}

fn path_covers(first: &ClassRule, later: &ClassRule) -> bool {
    if let Some(regex) = &first.path_regex {
        return later.path_regex.as_ref() == Some(regex);
    }
    let Some((first, whole)) = segments(first) else {
        return true;
    };
    let Some((later, later_whole)) = segments(later) else {
        return false;
    };
    let covers = |(a, b): (&&str, &&str)| *a == "*" || a == b;
    let long_enough = if whole {
        later_whole && first.len() == later.len()
    } else {
        first.len() <= later.len()
    };
    long_enough && first.iter().zip(&later).all(covers)
}

fn paths_meet(one: &ClassRule, other: &ClassRule) -> bool {
    let (Some((one, one_whole)), Some((other, other_whole))) = (segments(one), segments(other))
    else {
        return true;
    };
    let meet = |(a, b): (&&str, &&str)| *a == "*" || *b == "*" || a == b;
    let long_enough = match (one_whole, other_whole) {
        (true, true) => one.len() == other.len(),
        (true, false) => one.len() >= other.len(),
        (false, true) => one.len() <= other.len(),
        (false, false) => true,
    };
    long_enough && one.iter().zip(&other).all(meet)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(text: &str) -> ClassRule {
        toml::from_str(&format!("class = 'a'\n{text}")).unwrap()
    }

    fn covered(first: &str, later: &str) -> bool {
        covers(&rule(first), &rule(later))
    }

    #[test]
    fn wider_covers_narrower_and_not_the_other_way_round() {
        for (wide, narrow) in [
            ("", "path = '/a'"),
            ("path = '/a'", "path = '/a/b'"),
            ("path = '/a/'", "path_exact = '/a'"),
            ("path = '/a/*'", "path = '/a/b'"),
            ("host = '*.x'", "host = 'A.x'"),
            ("host = '*.x'", "host = '*.a.x'"),
            ("methods = ['GET', 'PUT']", "methods = ['PUT']"),
            ("headers = { a = '*' }", "headers = { a = '1', b = '2' }"),
            ("claims = { plan = '*' }", "claims = { plan = 'gold' }"),
            ("certificate = {}", "certificate = { name = 'a' }"),
            (
                "headers = { a = '1' }\nbelieve = 'anybody'",
                "headers = { a = '1' }",
            ),
        ] {
            assert!(covered(wide, narrow), "{wide} covers {narrow}");
            assert!(!covered(narrow, wide), "{narrow} covers {wide}");
        }
        assert!(covered("path_regex = 'x'", "path_regex = 'x'"));
        assert!(!covered("path_regex = 'x.*'", "path_regex = 'xy'"));
        assert!(!covered("path = '/a'", "path = '/ab'"));
        assert!(!covered("path_exact = '/a'", "path = '/a'"));
    }

    #[test]
    fn rules_that_cut_into_each_other_are_found() {
        let overlapping = |one: &str, other: &str| overlap(&rule(one), &rule(other));
        assert!(overlapping("path = '/a'", "methods = ['POST']"));
        assert!(overlapping("path = '/a/*'", "path = '/*/b'"));
        assert!(overlapping("host = 'a'", "path = '/x'"));
        assert!(
            !overlapping("path = '/a/b'", "path = '/a'"),
            "narrow first is the usual way"
        );
        assert!(!overlapping("path = '/a'", "path = '/b'"));
        assert!(!overlapping("methods = ['GET']", "methods = ['POST']"));
        assert!(!overlapping("path = '/a'", "claims = { plan = 'gold' }"));
        assert!(!overlapping("path_exact = '/a/*'", "path_exact = '/*'"));
    }
}

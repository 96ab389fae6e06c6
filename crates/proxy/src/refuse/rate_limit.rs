//! The fields `RateLimit-Policy` and `RateLimit` of an answer to a client that has a quota
//! (draft-ietf-httpapi-ratelimit-headers-10), as structured fields (RFC 9651).
//!
//! A rate `r` with a burst `b` is the policy `q=b;w=b/r`: after `w` seconds of silence `q` requests
//! may come at once. A bound on concurrent requests has the unit `concurrent-requests` and no
//! window. `r` is what is left when the request was admitted; where nothing is, `t` is the number
//! of seconds that `retry-after` has, or would have.

use http::{HeaderName, HeaderValue};
use sfv::{ItemSerializer, KeyRef, ParameterSerializer, StringRef};

use crate::edge::{self, Standing};
use crate::fault::{Overdrawn, QuotaBound};
use crate::message::Fields;

const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");

/// Adds both fields to a refusal.
pub(super) fn insert(overdrawn: &Overdrawn, headers: &mut Fields) {
    let wait = edge::retry_after(overdrawn.wait);
    insert_both(&overdrawn.quota, overdrawn.bound, 0, Some(wait), headers);
}

/// Adds both fields to the answer of a request that was admitted, unless the replica keeps a quota
/// of its own.
pub(crate) fn insert_standing(standing: &Standing, headers: &mut Fields) {
    if headers.get(RATE_LIMIT).is_some() || headers.get(RATE_LIMIT_POLICY).is_some() {
        return;
    }
    let left = standing.left;
    let wait = (left.requests == 0).then(|| edge::retry_after(left.wait));
    let quota = standing.quota();
    insert_both(quota, standing.bound, left.requests, wait, headers);
}

/// A quota whose name is no ASCII text cannot be named, and has no fields.
fn insert_both(
    quota: &str,
    bound: QuotaBound,
    left: u64,
    wait_s: Option<u64>,
    headers: &mut Fields,
) {
    let Ok(name) = StringRef::from_str(quota) else {
        return;
    };
    let named = || ItemSerializer::new().bare_item(name);
    let policy = match bound {
        QuotaBound::Rate { burst, window_s } => {
            let policy = with(named(), "q", burst);
            with(policy, "w", window_s)
        }
        QuotaBound::Concurrency(most) => with(named(), "q", u64::from(most)).parameter(
            KeyRef::constant("qu"),
            StringRef::constant("concurrent-requests"),
        ),
    };
    let left = with(named(), "r", left);
    let left = match wait_s {
        Some(wait_s) => with(left, "t", wait_s),
        None => left,
    };
    for (name, field) in [(RATE_LIMIT_POLICY, policy), (RATE_LIMIT, left)] {
        if let Ok(value) = HeaderValue::try_from(field.finish()) {
            headers.insert(name, value);
        }
    }
}

/// With an integer, of at most fifteen digits.
fn with(
    item: ParameterSerializer<String>,
    name: &'static str,
    value: u64,
) -> ParameterSerializer<String> {
    let value = sfv::Integer::try_from(value).unwrap_or(sfv::Integer::MAX);
    item.parameter(KeyRef::constant(name), value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn fields(quota: &str, bound: QuotaBound) -> [Option<String>; 2] {
        let wait = Duration::from_millis(1500);
        let quota = quota.into();
        let overdrawn = Overdrawn { wait, quota, bound };
        let mut headers = Fields::new();
        insert(&overdrawn, &mut headers);
        let text = |name| Some(headers.get(name)?.to_str().unwrap().to_owned());
        [text(RATE_LIMIT_POLICY), text(RATE_LIMIT)]
    }

    #[test]
    fn rate_has_a_quota_and_a_window() {
        let rate = QuotaBound::Rate {
            burst: 100,
            window_s: 60,
        };
        let [policy, left] = fields("per \"client\"", rate);
        assert_eq!(policy.unwrap(), r#""per \"client\"";q=100;w=60"#);
        assert_eq!(left.unwrap(), r#""per \"client\"";r=0;t=2"#);
        assert_eq!(fields("größe", rate), [None, None]);
    }

    #[test]
    fn concurrency_has_a_unit_and_no_window() {
        let [policy, _] = fields("inside", QuotaBound::Concurrency(8));
        assert_eq!(policy.unwrap(), r#""inside";q=8;qu="concurrent-requests""#);
    }
}

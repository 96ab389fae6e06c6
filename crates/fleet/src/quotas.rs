//! Quotas of keys (clients, tenants, paths) that use several proxies.
//!
//! Most keys use little, and need not be spoken of: as long as a key uses less than half of its
//! quota over the number of proxies at each of them, all of them together are within it. Proxies
//! report the keys that use more, with their rates, and each of them allows such a key
//!
//! ```text
//! share = (own + e T / N) / (T + e T)        T = Σ rates, N proxies, e = 0.02
//! ```
//!
//! of its quota, so that the shares add up to one. A key that no proxy reports has its whole quota
//! everywhere.
//!
//! What breaks it: a key that hops from proxy to proxy faster than reports travel. It gets up to
//! its burst at each.

use std::collections::BTreeMap;

/// Requests per second of keys, which are hashes in hexadecimal.
pub type KeyRates = BTreeMap<String, f64>;

/// Part of a quota that is divided evenly, so that a key can begin anywhere.
const QUOTA_SHARE_EVEN: f64 = 0.02;

/// This proxy's shares of the quota of each key that is reported.
#[must_use]
pub fn key_shares(own: &KeyRates, others: &[&KeyRates], proxies: usize) -> BTreeMap<String, f64> {
    let keys = own
        .keys()
        .chain(others.iter().flat_map(|rates| rates.keys()));
    let rate = |rates: &KeyRates, key: &String| rates.get(key).copied().unwrap_or(0.0);
    let share = |key: &String| {
        let own = rate(own, key);
        let total = own + others.iter().map(|rates| rate(rates, key)).sum::<f64>();
        let even = QUOTA_SHARE_EVEN * total / proxies.max(1) as f64;
        let share = (own + even) / (total * (1.0 + QUOTA_SHARE_EVEN));
        // No proxy uses it: whole.
        let share = if share.is_finite() { share } else { 1.0 };
        (key.clone(), share)
    };
    keys.map(share).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tidegate_control::Timestamp;
    use tidegate_sentry::{QuotaLimits, QuotaTable};

    use super::*;

    fn rates(pairs: &[(&str, f64)]) -> KeyRates {
        let owned = pairs.iter().map(|&(key, rate)| (key.to_owned(), rate));
        owned.collect()
    }

    #[test]
    fn shares_of_a_key_add_up_to_one_and_follow_its_use() {
        let (a, b) = (rates(&[("k", 90.0)]), rates(&[("k", 10.0), ("m", 5.0)]));
        let at_a = key_shares(&a, &[&b], 2);
        let at_b = key_shares(&b, &[&a], 2);
        assert!((at_a["k"] + at_b["k"] - 1.0).abs() < 1e-9);
        assert!((at_a["k"] - 0.9).abs() < 0.02, "{at_a:?}");
        assert!((at_a["m"] + at_b["m"] - 1.0).abs() < 1e-9);
        assert!(at_b["m"] > 0.98);
    }

    #[test]
    fn key_that_uses_nothing_has_all() {
        let idle = rates(&[("k", 0.0)]);
        assert_eq!(key_shares(&idle, &[], 2)["k"], 1.0);
    }

    /// 100/s of one key over proxies that get unequal parts of it; its quota is 20/s.
    #[test]
    fn quota_of_a_key_holds_over_eight_proxies() {
        let limits = QuotaLimits {
            rate: Some(20.0),
            burst: 20.0,
            concurrency: None,
        };
        let parts = [0.3, 0.2, 0.15, 0.15, 0.1, 0.05, 0.03, 0.02];
        let reports: Vec<KeyRates> = parts
            .iter()
            .map(|part| rates(&[("k", part * 100.0)]))
            .collect();
        let admitted = |proxy: usize| {
            let others = reports.iter().enumerate();
            let others: Vec<_> = others
                .filter(|(at, _)| *at != proxy)
                .map(|(_, rates)| rates)
                .collect();
            let share = key_shares(&reports[proxy], &others, parts.len())["k"];
            let mut table = QuotaTable::new(limits, 8);
            table.share_key(7, share);
            let gap = 1.0 / (parts[proxy] * 100.0);
            let arrivals = (0..)
                .map(|n| f64::from(n) * gap)
                .take_while(|&at| at < 100.0);
            arrivals
                .filter(|&at| {
                    let now = Timestamp::ZERO + Duration::from_secs_f64(at);
                    let admitted = table.on_arrival(now, 7).is_ok();
                    if admitted {
                        table.on_end(7);
                    }
                    admitted
                })
                .count()
        };
        let sum: usize = (0..parts.len()).map(admitted).sum();
        assert!((1900..=2100).contains(&sum), "{sum} of 2000 in 100 s");
    }
}

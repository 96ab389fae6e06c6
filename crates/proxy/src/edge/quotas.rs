//! Quotas at work: which requests count under which key, and the tables that all threads share.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::Method;
use parking_lot::Mutex;
use tidegate_control::Timestamp;
use tidegate_fleet::KeyRates;
use tidegate_sentry::{QuotaExceeded, QuotaLeft, QuotaLimits, QuotaTable};

use super::EdgeRequest;
use crate::config::{Quota, QuotaKey};
use crate::fault::{Overdrawn, QuotaBound};
use crate::request::classify::{Readings, method, path::PathPattern};
use crate::request::engine_keys::{Keys, Source};

/// Tables that the keys of a quota are spread over, so that threads seldom wait for each other.
const SHARDS: usize = 16;

/// The busiest keys of a quota are reported to other proxies, and no more than these.
const BUSY_KEYS_MAX: usize = 64;

/// When a client with too many requests inside is told to come back.
const CONCURRENCY_RETRY: Duration = Duration::from_secs(1);

/// All quotas of an application, in the order of the file.
#[derive(Debug, Default)]
pub(super) struct Quotas(Vec<Rule>);

#[derive(Debug)]
struct Rule {
    key: Key,
    path: Option<PathPattern>,
    methods: Vec<Method>,
    limits: QuotaLimits,
    shared: Arc<Shared>,
}

#[derive(Debug)]
enum Key {
    All,
    Path,
    Tenant,
    Source(Source),
}

/// What is kept over reloads.
#[derive(Debug)]
struct Shared {
    name: Box<str>,
    keys_max: usize,
    shards: [Mutex<QuotaTable>; SHARDS],
    refused: AtomicU64,
    /// Keys of which other proxies have a part.
    divided: Mutex<Vec<u64>>,
}

/// What became of a quota.
#[derive(Debug)]
pub(crate) struct QuotaTotals {
    pub(crate) name: String,
    pub(crate) refused: u64,
    pub(crate) keys: usize,
}

/// What is left to a client of the quota that it is nearest to the end of.
#[derive(Debug)]
pub(crate) struct Standing {
    shared: Arc<Shared>,
    pub(crate) bound: QuotaBound,
    pub(crate) left: QuotaLeft,
}

impl Standing {
    pub(crate) fn quota(&self) -> &str {
        &self.shared.name
    }
}

/// Places of one request in quotas, given back when this is dropped.
#[derive(Debug, Default)]
pub(crate) struct QuotaPermits(Vec<(Arc<Shared>, u64)>);

impl Drop for QuotaPermits {
    fn drop(&mut self) {
        for (shared, key) in self.0.drain(..) {
            shared.shard(key).lock().on_end(key);
        }
    }
}

impl Quotas {
    pub(super) fn new(config: &[Quota], before: Option<&Self>) -> Self {
        let rule = |quota: &Quota| Rule {
            key: match &quota.key {
                QuotaKey::All => Key::All,
                QuotaKey::Path => Key::Path,
                QuotaKey::Tenant => Key::Tenant,
                QuotaKey::Source(source) => Key::Source(Source::new(source)),
            },
            path: quota.path.as_deref().map(PathPattern::prefix),
            methods: quota
                .methods
                .iter()
                .filter_map(|name| method(name))
                .collect(),
            limits: limits(quota),
            shared: shared(quota, before),
        };
        Self(config.iter().map(rule).collect())
    }

    /// Takes a place in every quota that concerns the request. One that is refused by a later quota
    /// has used its allowance of the earlier ones. Also returns what is left afterwards.
    /// `inner` is the path without the prefix that is stripped.
    pub(super) fn take(
        &self,
        seen: &EdgeRequest<'_, '_>,
        inner: Option<&Readings<'_>>,
        keys: &Keys,
    ) -> Result<(QuotaPermits, Option<Standing>), Overdrawn> {
        let mut permits = QuotaPermits::default();
        let mut nearest: Option<Standing> = None;
        for rule in self.0.iter().filter(|rule| rule.concerns(seen, inner)) {
            let key = rule.key(seen, keys);
            let taken = rule.shared.take(seen.now, key);
            let Some(left) = taken.map_err(|exceeded| rule.overdrawn(exceeded))? else {
                continue;
            };
            permits.0.push((Arc::clone(&rule.shared), key));
            let least = nearest.as_ref().map(|it| it.left.requests);
            if least.is_none_or(|least| left.requests < least) {
                nearest = Some(Standing {
                    shared: Arc::clone(&rule.shared),
                    bound: rule.bound(),
                    left,
                });
            }
        }
        Ok((permits, nearest))
    }

    /// Keys that could use more than their quota at this many proxies, with their rates.
    pub(super) fn take_busy_keys(
        &self,
        elapsed: Duration,
        proxies: usize,
    ) -> BTreeMap<String, KeyRates> {
        let rates = |rule: &Rule| {
            let quiet = rule
                .limits
                .rate
                .map_or(0.0, |rate| rate / (2 * proxies) as f64);
            let busy = rule.shared.take_busy_keys(quiet, elapsed.as_secs_f64());
            (rule.shared.name.to_string(), busy)
        };
        self.0.iter().map(rates).collect()
    }

    /// Divides the quotas of keys with other proxies. A key that is not named has all of its quota.
    pub(super) fn share(&self, shares: &BTreeMap<String, BTreeMap<String, f64>>) {
        let nobody = BTreeMap::new();
        for rule in &self.0 {
            let its = shares.get(&*rule.shared.name).unwrap_or(&nobody);
            rule.shared.divide(its);
        }
    }

    pub(super) fn totals(&self, now: Timestamp) -> Vec<QuotaTotals> {
        let totals = |rule: &Rule| QuotaTotals {
            name: rule.shared.name.to_string(),
            refused: rule.shared.refused.load(Ordering::Relaxed),
            keys: rule
                .shared
                .shards
                .iter()
                .map(|it| it.lock().keys(now))
                .sum(),
        };
        self.0.iter().map(totals).collect()
    }
}

fn limits(quota: &Quota) -> QuotaLimits {
    QuotaLimits {
        rate: quota.rate.map(|rate| *rate),
        burst: quota
            .burst
            .map_or_else(|| quota.rate.map_or(1.0, |rate| rate.ceil()), f64::from),
        concurrency: quota.concurrency,
    }
}

/// The tables of a quota; those of one with this name and size stay.
fn shared(quota: &Quota, before: Option<&Quotas>) -> Arc<Shared> {
    let limits = limits(quota);
    let mut known = before.into_iter().flat_map(|before| &before.0);
    let known =
        known.find(|it| *it.shared.name == *quota.name && it.shared.keys_max == quota.keys_max);
    if let Some(known) = known {
        let shards = known.shared.shards.iter();
        shards.for_each(|shard| shard.lock().set_limits(limits));
        return Arc::clone(&known.shared);
    }
    let keys = quota.keys_max.div_ceil(SHARDS);
    Arc::new(Shared {
        name: quota.name.as_str().into(),
        keys_max: quota.keys_max,
        shards: std::array::from_fn(|_| Mutex::new(QuotaTable::new(limits, keys))),
        refused: AtomicU64::new(0),
        divided: Mutex::default(),
    })
}

impl Rule {
    fn concerns(&self, seen: &EdgeRequest<'_, '_>, inner: Option<&Readings<'_>>) -> bool {
        let paths = [Some(seen.asked.path()), inner];
        let fits = |pattern: &PathPattern| {
            let mut paths = paths.iter().flatten();
            paths.any(|path| pattern.fits(path.usual()))
        };
        (self.methods.is_empty() || self.methods.contains(seen.asked.method))
            && self.path.as_ref().is_none_or(fits)
    }

    fn key(&self, seen: &EdgeRequest<'_, '_>, keys: &Keys) -> u64 {
        let by_address = || keys.by_address(seen.asked, seen.peer);
        match &self.key {
            Key::All => 0,
            Key::Path => keys.path_key(seen.asked),
            Key::Tenant => seen.marks.tenant.unwrap_or_else(by_address),
            Key::Source(source) => keys.key_of(source, seen.asked, seen.peer),
        }
    }
}

impl Rule {
    fn overdrawn(&self, exceeded: QuotaExceeded) -> Overdrawn {
        let (wait, bound) = match exceeded {
            QuotaExceeded::Rate(wait) => (wait, self.bound()),
            QuotaExceeded::Concurrency => {
                let most = self.limits.concurrency.unwrap_or(0);
                (CONCURRENCY_RETRY, QuotaBound::Concurrency(most))
            }
        };
        let quota = self.shared.name.clone();
        Overdrawn { wait, quota, bound }
    }

    /// The bound that clients are told of: the rate, else the concurrency.
    fn bound(&self) -> QuotaBound {
        let QuotaLimits {
            rate,
            burst,
            concurrency,
        } = self.limits;
        match (rate, concurrency) {
            (None, Some(most)) => QuotaBound::Concurrency(most),
            _ => QuotaBound::Rate {
                burst: burst as u64,
                window_s: rate.map_or(1.0, |rate| (burst / rate).ceil().max(1.0)) as u64,
            },
        }
    }
}

impl Shared {
    fn shard(&self, key: u64) -> &Mutex<QuotaTable> {
        // The low bits choose the set within a table.
        &self.shards[(key >> 60) as usize]
    }

    fn take_busy_keys(&self, quiet: f64, seconds: f64) -> KeyRates {
        let least = (quiet * seconds).ceil().max(1.0) as u32;
        let shards = self.shards.iter();
        let mut busy: Vec<(u64, u32)> = shards
            .flat_map(|shard| shard.lock().take_busy_keys(least))
            .collect();
        busy.sort_unstable_by_key(|&(_, arrived)| std::cmp::Reverse(arrived));
        busy.truncate(BUSY_KEYS_MAX);
        let rate =
            |(key, arrived): (u64, u32)| (format!("{key:016x}"), f64::from(arrived) / seconds);
        busy.into_iter().map(rate).collect()
    }

    fn divide(&self, shares: &BTreeMap<String, f64>) {
        let mut divided = self.divided.lock();
        let read = |(key, &share): (&String, &f64)| {
            let key = u64::from_str_radix(key, 16).ok()?;
            Some((key, share))
        };
        let now: Vec<(u64, f64)> = shares.iter().filter_map(read).collect();
        let gone = divided
            .iter()
            .filter(|key| !now.iter().any(|(it, _)| it == *key));
        for &key in gone {
            self.shard(key).lock().share_key(key, 1.0);
        }
        for &(key, share) in &now {
            self.shard(key).lock().share_key(key, share);
        }
        *divided = now.into_iter().map(|(key, _)| key).collect();
    }

    /// What is left afterwards, if the key is counted.
    fn take(&self, now: Timestamp, key: u64) -> Result<Option<QuotaLeft>, QuotaExceeded> {
        let mut table = self.shard(key).lock();
        match table.on_arrival(now, key) {
            Ok(true) => Ok(table.left(now, key)),
            Ok(false) => Ok(None),
            Err(exceeded) => {
                self.refused.fetch_add(1, Ordering::Relaxed);
                Err(exceeded)
            }
        }
    }
}

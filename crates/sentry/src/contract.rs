//! What a class was promised and what it is worth: the part of its service level agreement that
//! requests read.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use tidegate_control::Timestamp;

use crate::atomic::{AtomicF64, add_one};
use crate::clamp::within;
use crate::config::ClassConfig;
use crate::gate::LeakyBucket;
use crate::status::GuaranteeStatus;

/// A guarantee is kept through bursts of this many seconds' worth, and of this many requests at
/// least. Chosen: random arrivals at nine tenths of the guaranteed rate find it used up less than
/// once in a hundred.
const BURST_SECONDS: f64 = 1.0;
const BURST_REQUESTS_MIN: f64 = 10.0;

/// What a class was promised and what it is worth: the part of its service level agreement that
/// requests read.
#[derive(Debug)]
pub(crate) struct Contract {
    revenue: AtomicF64,
    guarantee: LeakyBucket,
    guaranteed_rate: AtomicF64,
    /// What is configured, before it is shared with other engines.
    configured: [AtomicF64; 2],
    /// This engine's part of it.
    share: AtomicF64,
    guaranteed: AtomicU64,
    /// The row of the table of targets in force, counted from 1; 0 before the first.
    band: AtomicU32,
}

impl Contract {
    pub(crate) fn new(now: Timestamp, config: Option<&ClassConfig>) -> Self {
        let (rate, depth) = guarantee(config);
        Self {
            revenue: AtomicF64::new(revenue(config)),
            guarantee: LeakyBucket::new(now, rate, depth),
            guaranteed_rate: AtomicF64::new(rate),
            configured: [AtomicF64::new(rate), AtomicF64::new(depth)],
            share: AtomicF64::new(1.0),
            guaranteed: AtomicU64::new(0),
            band: AtomicU32::new(0),
        }
    }

    /// Takes over what is configured now.
    pub(crate) fn renew(&self, now: Timestamp, config: Option<&ClassConfig>) {
        let (rate, depth) = guarantee(config);
        self.revenue.store(revenue(config));
        self.configured[0].store(rate);
        self.configured[1].store(depth);
        self.put_in_force(now);
    }

    /// Keeps this part of the guarantee from now on; others keep the rest.
    pub(crate) fn set_share(&self, now: Timestamp, share: f64) {
        let share = within(share, 0.0, 1.0);
        if share != self.share.load() {
            self.share.store(share);
            self.put_in_force(now);
        }
    }

    fn put_in_force(&self, now: Timestamp) {
        let share = self.share.load();
        let rate = share * self.configured[0].load();
        let depth = (share * self.configured[1].load()).max(1.0);
        self.guarantee.set_rate(now, rate, depth);
        self.guaranteed_rate.store(rate);
    }

    /// What a request in time is worth.
    pub(crate) fn revenue(&self) -> f64 {
        self.revenue.load()
    }

    /// Whether a request is within the guarantee; if so, it counts as admitted by it.
    pub(crate) fn guarantees(&self, now: Timestamp) -> bool {
        let within = self.guaranteed_rate.load() > 0.0 && self.guarantee.conforms(now);
        if within {
            add_one(&self.guaranteed);
        }
        within
    }

    /// Requests admitted by the guarantee since the start.
    pub(crate) fn guaranteed(&self) -> u64 {
        self.guaranteed.load(Ordering::Relaxed)
    }

    pub(crate) fn guarantee_status(&self, now: Timestamp) -> Option<GuaranteeStatus> {
        let rate = self.guaranteed_rate.load();
        (rate > 0.0).then(|| GuaranteeStatus {
            rate,
            admitted: self.guaranteed(),
            level: self.guarantee.level(now),
        })
    }

    pub(crate) fn band(&self) -> usize {
        self.band.load(Ordering::Relaxed) as usize
    }

    pub(crate) fn set_band(&self, band: usize) {
        self.band.store(band as u32, Ordering::Relaxed);
    }
}

fn revenue(config: Option<&ClassConfig>) -> f64 {
    config.map_or(1.0, |class| class.revenue)
}

/// Rate and depth of the bucket.
fn guarantee(config: Option<&ClassConfig>) -> (f64, f64) {
    let rate = config.and_then(|class| class.guarantee);
    let rate = rate.map_or(0.0, |rate| rate.0);
    (rate, (rate * BURST_SECONDS).max(BURST_REQUESTS_MIN))
}

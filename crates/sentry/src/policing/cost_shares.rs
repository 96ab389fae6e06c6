//! How large a share of the requests of each cost is admitted in overload.
//!
//! A service that sheds requests alike works mostly for the dear ones: of 2 ms and 25 ms, half and
//! half, the dear ones take 93 % of the work. The operator says how far the cheap ones are
//! preferred, by a number `p` between 0 (fairness by request: all are shed alike) and 1 (fairness
//! by cost: a request of twice the cost is admitted half as often). Of the requests that cost `c`
//!
//! ```text
//! share(c) = min(1, level * c^-p)    where    sum over c of n(c) c share(c) = W
//! ```
//!
//! are admitted: `n(c)` is the rate at which they arrive, and `W` the work that the replicas do,
//! which in overload is what they can do. At `p = 1` this is max-min fairness in units of work, as
//! by Demers, Keshav and Shenker (1989) between flows. For several classes `W` is what the more
//! important ones leave over.
//!
//! A cost is reserved when a request is admitted, and `W` adds up what was reserved: both sides of
//! the equation are in the same unit, and an estimate that is wrong for all costs cancels. What a
//! request did cost corrects the estimates of its path and tenant when it ends.
//!
//! A free slot is free for every request, so an estimate of `W` that is too small does not leave a
//! replica idle. With one that is too large the queue's limit sheds the rest alike.
//!
//! What breaks it: costs that differ within one path of one tenant. They share a mean.
//!
//! Decision: docs/decisions/0195-fairness-by-cost.md.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::threshold::diffuse;
use crate::atomic::{AtomicF64, add_one};
use crate::status::CostBandStatus;

/// Bands of cost, two to an octave: from 15 µs to years, or up to four billion tokens.
const BANDS: u8 = 96;
const PER_OCTAVE: f64 = 2.0;
/// The band of a cost of 1.
const BAND_OF_ONE: f64 = 32.0;

/// Time constant of the rates. Chosen: ten steps of mode `auto`, so that noise of a tenth of a
/// second with 20 completions is below a tenth, and a change is followed within some seconds.
const MEMORY_S: f64 = 1.0;

/// About what a request costs. Both sides of the equation are in costs of bands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CostBand(u8);

impl CostBand {
    /// The band of a cost; what is negative or no number is in the first.
    pub(crate) fn of(cost: f64) -> Self {
        // `as` saturates, and maps NaN to zero.
        let index = (cost.log2() * PER_OCTAVE + BAND_OF_ONE).round() as u8;
        Self(index.min(BANDS - 1))
    }

    /// The cost in the middle of the band, which stands for all of them.
    pub(crate) fn cost(self) -> f64 {
        ((f64::from(self.0) - BAND_OF_ONE) / PER_OCTAVE).exp2()
    }
}

/// Shares by cost of the requests of one class.
#[derive(Debug)]
pub(crate) struct CostShares {
    bands: Box<[Band]>,
    /// Reserved cost of the requests served since the last tick, in millionths.
    served: AtomicU64,
    /// The same per second lately.
    served_rate: AtomicF64,
}

#[derive(Debug)]
struct Band {
    /// Requests since the last tick.
    offered: AtomicU64,
    /// The same per second lately.
    rate: AtomicF64,
    /// The share in units of 2^-64; `u64::MAX` admits always.
    step: AtomicU64,
    accumulated: AtomicU64,
}

impl CostShares {
    /// Admits everything until told otherwise.
    pub(crate) fn new() -> Self {
        let open = || Band {
            offered: AtomicU64::new(0),
            rate: AtomicF64::new(0.0),
            step: AtomicU64::new(u64::MAX),
            accumulated: AtomicU64::new(0),
        };
        Self {
            bands: (0..BANDS).map(|_| open()).collect(),
            served: AtomicU64::new(0),
            served_rate: AtomicF64::new(0.0),
        }
    }

    /// A request of this cost arrives.
    pub(crate) fn on_arrival(&self, cost: f64) {
        add_one(&self.band(cost).offered);
    }

    /// Whether the next request of this cost is admitted; if not, the part of a request that was
    /// saved up. The share is met within one request, without a random number.
    pub(crate) fn admit(&self, cost: f64) -> Result<(), f64> {
        let band = self.band(cost);
        match band.step.load(Ordering::Relaxed) {
            u64::MAX => Ok(()),
            step => diffuse(&band.accumulated, step),
        }
    }

    /// A request was served for which this cost was reserved.
    pub(crate) fn on_served(&self, reserved: CostBand) {
        // At most 2^52: some thousand of the dearest fit between two ticks.
        let millionths = (reserved.cost() * 1e6) as u64;
        self.served.fetch_add(millionths, Ordering::Relaxed);
    }

    /// Brings the rates up to date; gives the work served per second.
    pub(crate) fn on_tick(&self, elapsed: Duration) -> f64 {
        let seconds = elapsed.as_secs_f64();
        let weight = 1.0 - (-seconds / MEMORY_S).exp();
        let follow = |rate: &AtomicF64, amount: f64| {
            if seconds > 0.0 {
                rate.store(rate.load() + weight * (amount / seconds - rate.load()));
            }
        };
        for band in &self.bands {
            follow(&band.rate, band.offered.swap(0, Ordering::Relaxed) as f64);
        }
        let served = self.served.swap(0, Ordering::Relaxed) as f64 / 1e6;
        follow(&self.served_rate, served);
        self.served_rate.load()
    }

    /// Puts the shares in force with which `work` per second is admitted.
    pub(crate) fn share_out(&self, work: f64, fairness: f64) {
        let level = self.level(work, fairness);
        for (cost, band) in self.costs() {
            band.set(share(level, cost, fairness));
        }
    }

    /// Admits everything.
    pub(crate) fn open(&self) {
        self.bands.iter().for_each(|band| band.set(1.0));
    }

    /// The level at which the work admitted is `work`; infinite where all of it fits.
    ///
    /// Bands come in order of cost, so those admitted whole are the first ones. `limited` is the
    /// work of the others at a level of 1. The first band whose share would be below 1 ends the
    /// search.
    fn level(&self, work: f64, fairness: f64) -> f64 {
        let bands: Vec<_> = (self.costs())
            .map(|(cost, band)| (cost * band.rate.load(), cost.powf(-fairness)))
            .collect();
        let mut left = work;
        for (index, (work, part)) in bands.iter().enumerate() {
            let limited: f64 = bands[index..].iter().map(|(work, part)| work * part).sum();
            if left < limited / part {
                return left.max(0.0) / limited;
            }
            left -= work;
        }
        f64::INFINITY
    }

    /// The bands that requests come from.
    pub(crate) fn status(&self) -> Vec<CostBandStatus> {
        self.costs()
            .map(|(cost, band)| CostBandStatus {
                cost,
                offered_per_second: band.rate.load(),
                share: band.share(),
            })
            .filter(|band| band.offered_per_second > OFFERED_MIN)
            .collect()
    }

    /// The bands, each with its cost.
    fn costs(&self) -> impl Iterator<Item = (f64, &Band)> {
        let costs = (0..BANDS).map(|index| CostBand(index).cost());
        costs.zip(&self.bands)
    }

    fn band(&self, cost: f64) -> &Band {
        &self.bands[usize::from(CostBand::of(cost).0)]
    }
}

/// Requests per second below which a band is not shown.
const OFFERED_MIN: f64 = 0.01;

impl Band {
    fn set(&self, share: f64) {
        // `as` saturates: a share of 1 becomes `u64::MAX`.
        self.step
            .store((share * 2f64.powi(64)) as u64, Ordering::Relaxed);
    }

    fn share(&self) -> f64 {
        self.step.load(Ordering::Relaxed) as f64 / 2f64.powi(64)
    }
}

fn share(level: f64, cost: f64, fairness: f64) -> f64 {
    (level * cost.powf(-fairness)).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Shares after long enough with these arrivals per second of these costs.
    fn shares(arrivals: &[(f64, u32)], work: f64, fairness: f64) -> CostShares {
        let shares = CostShares::new();
        for _ in 0..30 {
            for &(cost, count) in arrivals {
                (0..count).for_each(|_| shares.on_arrival(cost));
            }
            shares.on_tick(SECOND);
        }
        shares.share_out(work, fairness);
        shares
    }

    #[test]
    fn fairness_by_request_sheds_all_alike() {
        let shares = shares(&[(1.0, 100), (8.0, 100)], 300.0, 0.0);
        assert!((shares.band(1.0).share() - 1.0 / 3.0).abs() < 1e-3);
        assert!((shares.band(8.0).share() - 1.0 / 3.0).abs() < 1e-3);
    }

    #[test]
    fn fairness_by_cost_admits_half_as_many_of_twice_the_cost() {
        let shares = shares(&[(1.0, 100), (2.0, 100), (8.0, 100)], 150.0, 1.0);
        assert!((shares.band(1.0).share() - 0.5).abs() < 1e-3);
        assert!((shares.band(2.0).share() - 0.25).abs() < 1e-3);
        assert!((shares.band(8.0).share() - 0.0625).abs() < 1e-3);
    }

    #[test]
    fn what_cheap_requests_leave_over_goes_to_dear_ones() {
        let shares = shares(&[(1.0, 100), (8.0, 100)], 500.0, 1.0);
        assert_eq!(shares.band(1.0).share(), 1.0);
        assert!((shares.band(8.0).share() - 0.5).abs() < 1e-3);
    }

    #[test]
    fn admission_meets_the_share_within_one_request() {
        let shares = shares(&[(4.0, 100)], 120.0, 1.0);
        let admitted = (0..1000).filter(|_| shares.admit(4.0).is_ok()).count();
        assert!(admitted.abs_diff(300) <= 1, "{admitted}");
        let saved: Vec<_> = (0..20).filter_map(|_| shares.admit(4.0).err()).collect();
        let below_one = saved.iter().all(|saved| (0.0..1.0).contains(saved));
        assert!(below_one && saved.len() > 10, "{saved:?}");
        shares.open();
        assert!((0..10).all(|_| shares.admit(4.0).is_ok()));
    }

    #[test]
    fn cost_bands_stand_for_their_costs_within_a_fifth() {
        for exponent in -150..150 {
            let cost = (f64::from(exponent) / 10.0).exp2();
            let off = CostBand::of(cost).cost() / cost;
            assert!((0.8..1.2).contains(&off), "{cost}: {off}");
        }
        for none in [f64::NAN, -1.0, 0.0] {
            assert_eq!(CostBand::of(none), CostBand(0), "{none}");
        }
        assert_eq!(CostBand::of(f64::INFINITY), CostBand(BANDS - 1));
    }

    proptest! {
        #[test]
        fn work_admitted_is_the_work_there_is(
            arrivals in proptest::collection::vec((0.001..1e4f64, 0..20u32), 1..6),
            fairness in 0.0..=1.0f64,
            part in 0.05..0.95f64,
        ) {
            let offered: f64 = arrivals
                .iter()
                .map(|&(cost, count)| CostBand::of(cost).cost() * f64::from(count))
                .sum();
            let shares = shares(&arrivals, part * offered, fairness);
            let admitted: f64 = arrivals
                .iter()
                .map(|&(cost, count)| {
                    CostBand::of(cost).cost() * f64::from(count) * shares.band(cost).share()
                })
                .sum();
            prop_assert!((admitted - part * offered).abs() <= 1e-3 * offered);
        }
    }
}

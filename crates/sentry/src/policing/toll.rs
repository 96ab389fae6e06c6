//! What a request pays in overload for costing far more than the others of its class.
//!
//! A few clients that ask for the slowest page take most of a service: 5 % of the requests with
//! fifteen times the work are 44 % of it. Who serves requests in the order of their cost serves
//! most of them (the fractional knapsack). So in overload a request whose path costs `c` is judged
//! as if it were
//!
//! ```text
//! toll = c / m    where c > 3 m, otherwise 1
//! ```
//!
//! requests of the mean cost `m` of its class: with `n` waiting ahead it may wait if
//! `(n + 1) toll <= limit`. A slot that is free is free for all: what others leave over is
//! theirs. So that arrivals remain comparable with what is served, they count as often as they
//! pay. One in fifty pays nothing, so that a path that has become cheap is found out.
//!
//! What breaks it: a slow page behind many names (each is a stranger and costs as much as the
//! mean), or behind one name with fast ones.

use std::sync::atomic::{AtomicU64, Ordering};

/// What costs less than this many times the mean pays nothing: pages of a site differ, and a
/// checkout must not starve for costing twice as much as a product page.
const FREE: f64 = 3.0;

/// One in this many pays nothing.
const SAMPLE: u64 = 50;

/// Tolls are added up in this part of a request.
const UNIT: f64 = 1024.0;

/// What a request counts for whose path costs `cost_s` where the mean is `mean_s`.
pub(crate) fn toll(cost_s: f64, mean_s: f64) -> f64 {
    let toll = cost_s / mean_s;
    // Also if either is not a number.
    if toll > FREE && toll.is_finite() {
        toll
    } else {
        1.0
    }
}

/// Requests that paid a toll, and the sum of it since it was last asked for.
#[derive(Debug, Default)]
pub(crate) struct Tolls {
    asked: AtomicU64,
    extra: AtomicU64,
}

impl Tolls {
    /// Charges a request; says what it pays.
    pub(crate) fn charge(&self, toll: f64) -> f64 {
        if toll <= 1.0 {
            return 1.0;
        }
        // `as` saturates.
        let extra = ((toll - 1.0) * UNIT) as u64;
        self.extra.fetch_add(extra, Ordering::Relaxed);
        let asked = self.asked.fetch_add(1, Ordering::Relaxed);
        if asked.is_multiple_of(SAMPLE) {
            1.0
        } else {
            toll
        }
    }

    /// By how many requests the arrivals since the last call count for more than they are.
    pub(crate) fn take_extra(&self) -> f64 {
        self.extra.swap(0, Ordering::Relaxed) as f64 / UNIT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_costs_about_as_much_as_others_pays_nothing() {
        for (cost, mean) in [
            (1.0, 1.0),
            (2.9, 1.0),
            (0.0, 1.0),
            (1.0, 0.0),
            (f64::NAN, 1.0),
        ] {
            assert_eq!(toll(cost, mean), 1.0);
        }
        let tolls = Tolls::default();
        assert_eq!(tolls.charge(1.0), 1.0);
        assert_eq!(tolls.take_extra(), 0.0);
    }

    #[test]
    fn who_costs_far_more_pays_for_it_but_for_one_in_fifty() {
        let tolls = Tolls::default();
        let free = (0..100)
            .filter(|_| tolls.charge(toll(0.2, 0.01)) == 1.0)
            .count();
        assert_eq!(free, 2);
        assert!((tolls.take_extra() - 1900.0).abs() < 1.0);
        assert_eq!(tolls.take_extra(), 0.0);
    }
}

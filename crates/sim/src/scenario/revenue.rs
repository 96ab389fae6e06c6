//! What a clairvoyant could have earned from the requests that came.
//!
//! The fractional knapsack: requests in order of what they are worth per second of work, until
//! the capacity of the whole time is used up. No protection can earn more, since nobody can do
//! more work than there is capacity, and none can quite earn it, since requests do not wait for
//! ever.

/// The requests of a run.
#[derive(Debug, Default)]
pub(super) struct Offers(Vec<Offer>);

#[derive(Debug, Clone, Copy)]
struct Offer {
    revenue: f64,
    work_s: f64,
}

impl Offer {
    fn density(&self) -> f64 {
        self.revenue / self.work_s
    }
}

impl Offers {
    pub(super) fn add(&mut self, revenue: f64, work_s: f64) {
        self.0.push(Offer { revenue, work_s });
    }

    /// The most that this many seconds on a core can earn.
    pub(super) fn optimum(mut self, mut core_s: f64) -> f64 {
        self.0
            .sort_unstable_by(|a, b| b.density().total_cmp(&a.density()));
        let mut earned = 0.0;
        for offer in &self.0 {
            if offer.work_s >= core_s {
                return earned + offer.density() * core_s;
            }
            core_s -= offer.work_s;
            earned += offer.revenue;
        }
        earned
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_paid_work_first_and_a_part_of_the_last() {
        let mut offers = Offers::default();
        offers.add(1.0, 1.0);
        offers.add(10.0, 2.0);
        offers.add(4.0, 1.0);
        assert!((offers.optimum(2.5) - (10.0 + 0.5 * 4.0)).abs() < 1e-12);
    }

    #[test]
    fn no_more_than_there_is() {
        let mut offers = Offers::default();
        offers.add(1.0, 1.0);
        assert!((offers.optimum(100.0) - 1.0).abs() < 1e-12);
    }
}

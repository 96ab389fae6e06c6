//! Requests counted over some time: `n` in `t` seconds.
//!
//! Whether the rate of one count is above that of another, or that is chance: the square root gives
//! counts the same variance whatever their mean. So with `c1` events in `t1` and `c2` in `t2` the
//! second rate is above the first by
//!
//! ```text
//! 2 (√(c2 + 3/8) - √(k (c1 + 3/8))) / √(D (1 + k))        k = t2 / t1
//! ```
//!
//! chance deviations (Huffman 1984, for two Poisson rates), with the index of dispersion `D` of the
//! counts. It holds for a handful of events as well, where the normal distribution sees changes
//! everywhere: eight arrivals in a tick that brings two on average are four of its deviations, and
//! two and a half of these.

/// Requests counted over some time: `n` in `t` seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Counts {
    /// Completions; arrivals where those are counted.
    pub(crate) done: f64,
    /// The time in which they were counted.
    pub(crate) seconds: f64,
    /// Time that requests were inside meanwhile, all of them together; 0 where that is not counted.
    pub(crate) inside_seconds: f64,
}

impl Counts {
    /// Requests in some time, whatever time they were inside.
    pub(crate) fn of(done: f64, seconds: f64) -> Self {
        Self {
            done,
            seconds,
            inside_seconds: 0.0,
        }
    }

    /// Requests per second.
    pub(crate) fn rate(&self) -> f64 {
        self.done / self.seconds
    }

    /// What the rate is at least, but for `z` chance deviations of a Poisson count.
    pub(crate) fn rate_at_least(&self, z: f64) -> f64 {
        (self.done - z * self.done.sqrt()) / self.seconds
    }

    /// Mean time that a request was inside, by Little's law.
    pub(crate) fn service_time(&self) -> f64 {
        self.inside_seconds / self.done
    }

    /// Requests inside, on average.
    pub(crate) fn concurrency(&self) -> f64 {
        self.inside_seconds / self.seconds
    }

    /// By how many chance deviations the rate is above that of `other`.
    pub(crate) fn z_above(&self, other: &Self, dispersion: f64) -> f64 {
        let ratio = self.seconds / other.seconds;
        let seen = (self.done + 0.375).sqrt();
        let expected = (ratio * (other.done + 0.375)).sqrt();
        2.0 * (seen - expected) / (dispersion * (1.0 + ratio)).sqrt()
    }

    pub(crate) fn plus(&self, other: &Self) -> Self {
        Self {
            done: self.done + other.done,
            seconds: self.seconds + other.seconds,
            inside_seconds: self.inside_seconds + other.inside_seconds,
        }
    }

    pub(crate) fn minus(&self, other: &Self) -> Self {
        self.plus(&other.times(-1.0))
    }

    pub(crate) fn times(&self, factor: f64) -> Self {
        Self {
            done: self.done * factor,
            seconds: self.seconds * factor,
            inside_seconds: self.inside_seconds * factor,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_events_deviate_as_the_normal_distribution_says() {
        // 10 400 where 10 000 are known for certain: four deviations of 100.
        let certain = Counts::of(1e9, 1e7);
        let above = Counts::of(10_400.0, 100.0).z_above(&certain, 1.0);
        assert!((above - 4.0).abs() < 0.1, "{above}");
        let below = Counts::of(9_600.0, 100.0).z_above(&certain, 4.0);
        assert!((below + 2.0).abs() < 0.1, "{below}");
    }

    #[test]
    fn handful_in_a_tick_is_chance() {
        let above = Counts::of(8.0, 0.1).z_above(&Counts::of(200.0, 10.0), 1.0);
        assert!((2.0..3.0).contains(&above), "{above}");
    }

    #[test]
    fn littles_law_holds() {
        let counts = Counts {
            done: 20.0,
            seconds: 4.0,
            inside_seconds: 10.0,
        };
        assert_eq!(
            counts.rate() * counts.service_time(),
            counts.concurrency(),
            "concurrency is rate times service time"
        );
        assert_eq!(counts.minus(&counts), Counts::default());
    }
}

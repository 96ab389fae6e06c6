//! Do two rates differ, or is it chance?
//!
//! The square root gives counts the same variance whatever their mean, so with `c1` events in `t1`
//! and `c2` in `t2` the second rate is above the first by
//!
//! ```text
//! 2 (√(c2 + 3/8) - √(k (c1 + 3/8))) / √(D (1 + k))        k = t2 / t1
//! ```
//!
//! chance deviations (Huffman 1984, for two Poisson rates), with the index of dispersion `D` of the
//! counts. It holds for a handful of events as well, where the normal distribution sees changes
//! everywhere: eight arrivals in a tick that brings two on average are four of its deviations, and
//! two and a half of these.

/// Events in some time.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Events {
    pub(crate) count: f64,
    pub(crate) seconds: f64,
}

impl Events {
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            count: self.count + other.count,
            seconds: self.seconds + other.seconds,
        }
    }

    pub(crate) fn minus(self, other: Self) -> Self {
        Self {
            count: self.count - other.count,
            seconds: self.seconds - other.seconds,
        }
    }

    /// By how many chance deviations their rate is above that of `other`.
    pub(crate) fn above(self, other: Self, dispersion: f64) -> f64 {
        let ratio = self.seconds / other.seconds;
        let seen = (self.count + 0.375).sqrt();
        let expected = (ratio * (other.count + 0.375)).sqrt();
        2.0 * (seen - expected) / (dispersion * (1.0 + ratio)).sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(count: f64, seconds: f64) -> Events {
        Events { count, seconds }
    }

    #[test]
    fn many_events_deviate_as_the_normal_distribution_says() {
        // 10 400 where 10 000 are known for certain: four deviations of 100.
        let above = events(10_400.0, 100.0).above(events(1e9, 1e7), 1.0);
        assert!((above - 4.0).abs() < 0.1, "{above}");
        let below = events(9_600.0, 100.0).above(events(1e9, 1e7), 4.0);
        assert!((below + 2.0).abs() < 0.1, "{below}");
    }

    #[test]
    fn a_handful_in_a_tick_is_chance() {
        let above = events(8.0, 0.1).above(events(200.0, 10.0), 1.0);
        assert!((2.0..3.0).contains(&above), "{above}");
    }
}

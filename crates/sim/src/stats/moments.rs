//! Running mean and variance of samples and of a quantity over time.

use tidegate_control::Timestamp;

use crate::time::seconds_between;

/// Count, mean, variance and extremes of samples, without keeping them.
///
/// Welford's recurrence (1962), and Chan's (1979) to merge two: no cancellation where a sum of
/// squares would lose every digit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Moments {
    count: u64,
    mean: f64,
    /// Sum of squared distances from the mean.
    spread: f64,
    min: f64,
    max: f64,
}

impl Default for Moments {
    fn default() -> Self {
        Self {
            count: 0,
            mean: 0.0,
            spread: 0.0,
            min: f64::INFINITY,
            max: f64::NEG_INFINITY,
        }
    }
}

impl Moments {
    /// Takes one sample.
    #[inline]
    pub fn add(&mut self, sample: f64) {
        self.count += 1;
        let distance = sample - self.mean;
        self.mean += distance / self.count as f64;
        self.spread += distance * (sample - self.mean);
        self.min = self.min.min(sample);
        self.max = self.max.max(sample);
    }

    /// Takes all samples of another.
    pub fn merge(&mut self, other: &Self) {
        if other.count == 0 {
            return;
        }
        let count = self.count + other.count;
        let distance = other.mean - self.mean;
        let weight = other.count as f64 / count as f64;
        self.spread += other.spread + distance * distance * self.count as f64 * weight;
        self.mean += distance * weight;
        self.count = count;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// Number of samples.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Mean; NaN without samples.
    #[must_use]
    pub fn mean(&self) -> f64 {
        match self.count {
            0 => f64::NAN,
            _ => self.mean,
        }
    }

    /// Unbiased variance; NaN with fewer than two samples.
    #[must_use]
    pub fn variance(&self) -> f64 {
        match self.count {
            0 | 1 => f64::NAN,
            count => self.spread / (count - 1) as f64,
        }
    }

    /// Standard deviation; NaN with fewer than two samples.
    #[must_use]
    pub fn sd(&self) -> f64 {
        self.variance().sqrt()
    }

    /// Least sample; NaN without samples.
    #[must_use]
    pub fn min(&self) -> f64 {
        if self.count == 0 { f64::NAN } else { self.min }
    }

    /// Greatest sample; NaN without samples.
    #[must_use]
    pub fn max(&self) -> f64 {
        if self.count == 0 { f64::NAN } else { self.max }
    }
}

impl FromIterator<f64> for Moments {
    fn from_iter<I: IntoIterator<Item = f64>>(samples: I) -> Self {
        let mut moments = Self::default();
        samples.into_iter().for_each(|sample| moments.add(sample));
        moments
    }
}

/// Average of a quantity that changes in steps, each value weighted by how long it lasted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TimeAverage {
    since: Timestamp,
    seen: Timestamp,
    value: f64,
    area: f64,
}

impl TimeAverage {
    /// Starts at `now` with `value`.
    #[must_use]
    pub fn new(now: Timestamp, value: f64) -> Self {
        Self {
            since: now,
            seen: now,
            value,
            area: 0.0,
        }
    }

    /// The quantity is `value` from `now` on.
    #[inline]
    pub fn set(&mut self, now: Timestamp, value: f64) {
        self.area += self.value * seconds_between(self.seen, now);
        self.seen = now;
        self.value = value;
    }

    /// The quantity changes by `change` at `now`.
    #[inline]
    pub fn add(&mut self, now: Timestamp, change: f64) {
        self.set(now, self.value + change);
    }

    /// The value in force.
    #[must_use]
    pub fn value(&self) -> f64 {
        self.value
    }

    /// Average from the start to `now`; the value in force when no time has passed.
    #[must_use]
    pub fn average(&self, now: Timestamp) -> f64 {
        let total = now.since(self.since).as_secs_f64();
        if total == 0.0 {
            return self.value;
        }
        (self.area + self.value * now.since(self.seen).as_secs_f64()) / total
    }

    /// The average up to `now`, and a new start there.
    pub fn take(&mut self, now: Timestamp) -> f64 {
        let average = self.average(now);
        *self = Self::new(now, self.value);
        average
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_large_offset_loses_no_digits() {
        let moments: Moments = [1e9 + 4.0, 1e9 + 7.0, 1e9 + 13.0, 1e9 + 16.0]
            .into_iter()
            .collect();
        assert_eq!(moments.mean(), 1e9 + 10.0);
        assert_eq!(moments.variance(), 30.0);
        assert_eq!((moments.min(), moments.max()), (1e9 + 4.0, 1e9 + 16.0));
    }

    #[test]
    fn nothing_measured_is_not_a_number() {
        let none = Moments::default();
        assert!(none.mean().is_nan() && none.sd().is_nan() && none.max().is_nan());
    }

    #[test]
    fn values_count_for_as_long_as_they_last() {
        let at = Timestamp::from_secs_f64;
        let mut queue = TimeAverage::new(at(0.0), 0.0);
        queue.add(at(1.0), 2.0);
        queue.add(at(3.0), -1.0);
        assert_eq!(queue.average(at(4.0)), (2.0 * 2.0 + 1.0) / 4.0);
        assert_eq!(queue.take(at(4.0)), 1.25);
        assert_eq!(queue.average(at(6.0)), 1.0);
    }

    proptest! {
        #[test]
        fn merging_is_the_same_as_adding(
            left in prop::collection::vec(-1e3f64..1e3, 0..30),
            right in prop::collection::vec(-1e3f64..1e3, 1..30),
        ) {
            let mut merged: Moments = left.iter().copied().collect();
            merged.merge(&right.iter().copied().collect());
            let whole: Moments = left.iter().chain(&right).copied().collect();
            prop_assert_eq!(merged.count(), whole.count());
            prop_assert!((merged.mean() - whole.mean()).abs() < 1e-9);
            if whole.count() > 1 {
                prop_assert!((merged.variance() - whole.variance()).abs() < 1e-6);
            }
        }
    }
}

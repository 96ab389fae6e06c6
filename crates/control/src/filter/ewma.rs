//! Exponentially weighted moving averages, by count and by age.
//!
//! By count, in the orientation of 000 eq. 2, where the factor belongs to the past:
//!
//! ```text
//! y(k) = a y(k-1) + (1 - a) x(k)
//! ```
//!
//! (004 eq. 9 writes it the other way round, with `α = 1 - a`.) It suits one sample per control
//! interval. For samples at irregular times a sample's weight has to depend on its age instead:
//!
//! ```text
//! y(t) = Σ w_i x_i / Σ w_i,        w_i = exp(-(t - t_i)/τ)
//! ```
//!
//! Every sample counts alike when it is fresh, also when several come at the same instant, where
//! the common shortcut `y += (1 - exp(-Δt/τ)) (x - y)` loses all but the first. Neither bounds how
//! long an outlier is remembered; a [`SlidingWindow`](super::SlidingWindow) does.

use std::time::Duration;

use super::{SampleCheck, remaining};
use crate::error::{ControlError, require, require_finite, require_time};
use crate::time::Timestamp;

/// Average that forgets by the number of samples.
///
/// ```
/// use tidegate_control::filter::Ewma;
///
/// let mut response_time_ms = Ewma::new(0.5)?;
/// assert_eq!(response_time_ms.value(), None);
/// response_time_ms.on_sample(400.0); // the first sample is the value
/// response_time_ms.on_sample(600.0);
/// response_time_ms.on_sample(f64::NAN); // skipped
/// assert_eq!(response_time_ms.value(), Some(500.0));
/// assert_eq!(response_time_ms.bad_samples(), 1);
/// # Ok::<(), tidegate_control::ControlError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Ewma {
    memory: f64,
    value: Option<f64>,
    check: SampleCheck,
}

impl Ewma {
    /// `memory` is the share `a` of the past, from 0 (no filter) to below 1. The first
    /// sample becomes the value.
    pub fn new(memory: f64) -> Result<Self, ControlError> {
        let valid = (0.0..1.0).contains(&memory);
        require(valid, "memory", "at least 0 and below 1", memory)?;
        Ok(Self {
            memory,
            value: None,
            check: SampleCheck::default(),
        })
    }

    /// The same, with a value before the first sample.
    pub fn starting_at(memory: f64, initial: f64) -> Result<Self, ControlError> {
        require_finite("initial", initial)?;
        let filter = Self::new(memory)?;
        Ok(Self {
            value: Some(initial),
            ..filter
        })
    }

    /// Takes one sample; returns the value after it.
    pub fn on_sample(&mut self, sample: f64) -> Option<f64> {
        if self.check.accept(sample) {
            let past = self.value.unwrap_or(sample);
            self.value = Some(self.memory * past + (1.0 - self.memory) * sample);
        }
        self.value
    }

    /// The average, once there is one.
    #[must_use]
    pub fn value(&self) -> Option<f64> {
        self.value
    }

    /// How many samples were skipped.
    #[must_use]
    pub fn bad_samples(&self) -> u64 {
        self.check.refused
    }
}

/// Average that forgets by age, for samples at irregular times.
///
/// ```
/// use std::time::Duration;
/// use tidegate_control::{Timestamp, filter::TimeEwma};
///
/// let mut service_ms = TimeEwma::new(Duration::from_secs(10))?;
/// let at = Timestamp::from_secs_f64;
/// service_ms.on_sample(at(0.0), 20.0);
/// service_ms.on_sample(at(0.0), 40.0);
/// assert_eq!(service_ms.value(), Some(30.0));
/// service_ms.on_sample(at(100.0), 50.0); // ten time constants later the old ones hardly count
/// assert!(service_ms.value().is_some_and(|ms| ms > 49.9));
/// # Ok::<(), tidegate_control::ControlError>(())
/// ```
#[derive(Debug, Clone)]
pub struct TimeEwma {
    time_constant_s: f64,
    latest: Timestamp,
    weight: f64,
    mean: f64,
    check: SampleCheck,
}

impl TimeEwma {
    /// `time_constant` is the age at which a sample's weight has fallen to 37 %.
    pub fn new(time_constant: Duration) -> Result<Self, ControlError> {
        Ok(Self {
            time_constant_s: require_time("time_constant", time_constant)?,
            latest: Timestamp::ZERO,
            weight: 0.0,
            mean: 0.0,
            check: SampleCheck::default(),
        })
    }

    /// Takes one sample; returns the value after it.
    pub fn on_sample(&mut self, now: Timestamp, sample: f64) -> Option<f64> {
        if self.check.accept(sample) {
            self.weight = self.weight(now) + 1.0;
            self.latest = self.latest.max(now);
            let share = self.weight.recip();
            self.mean = (1.0 - share) * self.mean + share * sample;
        }
        self.value()
    }

    /// The average, once there is one. It does not change by itself: age lowers all weights alike.
    #[must_use]
    pub fn value(&self) -> Option<f64> {
        (self.weight > 0.0).then_some(self.mean)
    }

    /// How much evidence stands behind the value at `now`, in fresh samples.
    #[must_use]
    pub fn weight(&self, now: Timestamp) -> f64 {
        self.weight * remaining(now - self.latest, self.time_constant_s)
    }

    /// How many samples were skipped.
    #[must_use]
    pub fn bad_samples(&self) -> u64 {
        self.check.refused
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_factor_belongs_to_the_past() {
        let mut filter = Ewma::starting_at(0.9, 10.0).unwrap();
        assert_eq!(filter.on_sample(20.0), Some(11.0));
    }

    #[test]
    fn no_memory_is_no_filter_and_full_memory_is_refused() {
        let mut filter = Ewma::new(0.0).unwrap();
        filter.on_sample(1.0);
        assert_eq!(filter.on_sample(7.0), Some(7.0));
        assert!(Ewma::new(1.0).is_err());
        assert!(Ewma::new(f64::NAN).is_err());
    }

    #[test]
    fn regular_samples_give_the_classic_ewma() {
        let mut by_age = TimeEwma::new(Duration::from_secs(2)).unwrap();
        let mut by_count = Ewma::new((-0.5_f64).exp()).unwrap();
        for k in 0..100 {
            let sample = f64::from(k % 7);
            by_count.on_sample(sample);
            by_age.on_sample(Timestamp::from_secs_f64(f64::from(k)), sample);
        }
        let (age, count) = (by_age.value().unwrap(), by_count.value().unwrap());
        assert!((age - count).abs() < 1e-9);
    }

    #[test]
    fn equals_the_weighted_mean_of_its_definition() {
        let samples = [(0.0, 3.0), (0.4, 5.0), (0.4, 1.0), (2.5, -2.0)];
        let mut filter = TimeEwma::new(Duration::from_secs(1)).unwrap();
        for (at, x) in samples {
            filter.on_sample(Timestamp::from_secs_f64(at), x);
        }
        let weights = samples.map(|(at, x)| ((at - 2.5_f64).exp(), x));
        let total: f64 = weights.iter().map(|(w, _)| w).sum();
        let mean = weights.iter().map(|(w, x)| w * x).sum::<f64>() / total;
        assert!((filter.value().unwrap() - mean).abs() < 1e-12);
        assert!((filter.weight(Timestamp::from_secs_f64(2.5)) - total).abs() < 1e-12);
    }

    #[test]
    fn a_clock_read_out_of_order_loses_no_sample() {
        let mut filter = TimeEwma::new(Duration::from_secs(1)).unwrap();
        filter.on_sample(Timestamp::from_secs_f64(5.0), 1.0);
        filter.on_sample(Timestamp::from_secs_f64(4.0), 3.0);
        assert_eq!(filter.value(), Some(2.0));
        assert_eq!(filter.latest, Timestamp::from_secs_f64(5.0));
    }

    #[test]
    fn samples_that_are_not_finite_are_skipped() {
        let mut filter = TimeEwma::new(Duration::from_secs(1)).unwrap();
        assert_eq!(filter.on_sample(Timestamp::ZERO, f64::INFINITY), None);
        assert_eq!(filter.bad_samples(), 1);
    }
}

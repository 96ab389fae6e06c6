//! An exponentially weighted moving average by count.
//!
//! In the orientation of 000 eq. 2, where the factor belongs to the past:
//!
//! ```text
//! y(k) = a y(k-1) + (1 - a) x(k)
//! ```
//!
//! (004 eq. 9 writes it the other way round, with `α = 1 - a`.) It suits one sample per control
//! interval, and does not bound how long an outlier is remembered.

use crate::error::{ControlError, require, require_finite};

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
    bad_samples: u64,
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
            bad_samples: 0,
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
        if sample.is_finite() {
            let past = self.value.unwrap_or(sample);
            self.value = Some(self.memory * past + (1.0 - self.memory) * sample);
        } else {
            self.bad_samples += 1;
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
        self.bad_samples
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factor_belongs_to_the_past() {
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
    fn samples_that_are_not_finite_are_skipped() {
        let mut filter = Ewma::new(0.5).unwrap();
        assert_eq!(filter.on_sample(f64::INFINITY), None);
        assert_eq!(filter.bad_samples(), 1);
    }
}

//! Peak EWMA: believes bad news at once and good news slowly.
//!
//! Balancing by an average sends requests to a replica that has just become slow until enough slow
//! answers came back. Here a sample above the average becomes the average, one below it pulls it
//! down with its age, and without any sample it decays towards zero, so that an unlucky replica
//! gets tried again:
//!
//! ```text
//! y <- max(x, w y + (1 - w) x),     w = exp(-Δt/τ);        y(t) = y exp(-(t - t_last)/τ)
//! ```
//!
//! The form is that of Finagle's and tower's load metrics. It overstates a noisy replica's mean on
//! purpose.

use std::time::Duration;

use super::{SampleCheck, remaining};
use crate::error::{ControlError, require_time};
use crate::time::Timestamp;

/// Rises at once, decays with time.
///
/// ```
/// use std::time::Duration;
/// use tidegate_control::{Timestamp, filter::PeakEwma};
///
/// let mut latency_ms = PeakEwma::new(Duration::from_secs(10))?;
/// let at = Timestamp::from_secs_f64;
/// latency_ms.on_sample(at(0.0), 20.0);
/// latency_ms.on_sample(at(0.1), 500.0);
/// assert_eq!(latency_ms.value(at(0.1)), Some(500.0));
/// latency_ms.on_sample(at(0.2), 20.0);
/// assert!(latency_ms.value(at(0.2)).is_some_and(|ms| ms > 490.0));
/// assert!(latency_ms.value(at(60.0)).is_some_and(|ms| ms < 2.0));
/// # Ok::<(), tidegate_control::ControlError>(())
/// ```
#[derive(Debug, Clone)]
pub struct PeakEwma {
    time_constant_s: f64,
    latest: Timestamp,
    peak: Option<f64>,
    check: SampleCheck,
}

impl PeakEwma {
    /// `time_constant` is the time after which 37 % of a peak is left.
    pub fn new(time_constant: Duration) -> Result<Self, ControlError> {
        Ok(Self {
            time_constant_s: require_time("time_constant", time_constant)?,
            latest: Timestamp::ZERO,
            peak: None,
            check: SampleCheck::default(),
        })
    }

    /// Takes one sample, a cost that is zero or more.
    pub fn on_sample(&mut self, now: Timestamp, sample: f64) {
        if !self.check.accept(sample) {
            return;
        }
        let kept = remaining(now - self.latest, self.time_constant_s);
        let peak = self.peak.unwrap_or(sample);
        self.peak = Some(sample.max(kept * peak + (1.0 - kept) * sample));
        self.latest = self.latest.max(now);
    }

    /// The decayed peak at `now`, once there was a sample.
    #[must_use]
    pub fn value(&self, now: Timestamp) -> Option<f64> {
        let kept = remaining(now - self.latest, self.time_constant_s);
        self.peak.map(|peak| peak * kept)
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
    fn rises_at_once_and_falls_with_age() {
        let mut filter = PeakEwma::new(Duration::from_secs(1)).unwrap();
        let at = Timestamp::from_secs_f64;
        assert_eq!(filter.value(at(0.0)), None);
        filter.on_sample(at(0.0), 8.0);
        filter.on_sample(at(1.0), 0.0);
        let expected = 8.0 * (-1.0_f64).exp();
        assert!((filter.value(at(1.0)).unwrap() - expected).abs() < 1e-12);
        filter.on_sample(at(1.0), 9.0);
        assert_eq!(filter.value(at(1.0)), Some(9.0));
    }

    #[test]
    fn a_burst_of_good_news_in_one_instant_does_not_hide_the_peak() {
        let mut filter = PeakEwma::new(Duration::from_secs(1)).unwrap();
        filter.on_sample(Timestamp::ZERO, 100.0);
        (0..1000).for_each(|_| filter.on_sample(Timestamp::ZERO, 1.0));
        assert_eq!(filter.value(Timestamp::ZERO), Some(100.0));
    }

    #[test]
    fn samples_that_are_not_finite_are_skipped() {
        let mut filter = PeakEwma::new(Duration::from_secs(1)).unwrap();
        filter.on_sample(Timestamp::ZERO, f64::INFINITY);
        assert_eq!(filter.value(Timestamp::ZERO), None);
        assert_eq!(filter.bad_samples(), 1);
    }
}

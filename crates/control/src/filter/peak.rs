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
//!
//! Requests that end on several threads write to it, so it is one atomic: the upper half holds the
//! value as f32, the lower half the time of the last sample in milliseconds. The time wraps after
//! 49 days, which only makes one sample look fresh or old.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::error::{ControlError, require_time};
use crate::time::Timestamp;

/// Rises at once, decays with time; shared by threads without a lock.
///
/// ```
/// use std::time::Duration;
/// use tidegate_control::{Timestamp, filter::PeakEwma};
///
/// let latency_ms = PeakEwma::new(Duration::from_secs(10))?;
/// let at = Timestamp::from_secs_f64;
/// latency_ms.on_sample(at(0.0), 20.0);
/// latency_ms.on_sample(at(0.1), 500.0);
/// assert_eq!(latency_ms.value(at(0.1)), Some(500.0));
/// latency_ms.on_sample(at(0.2), 20.0);
/// assert!(latency_ms.value(at(0.2)).is_some_and(|ms| ms > 490.0));
/// assert!(latency_ms.value(at(60.0)).is_some_and(|ms| ms < 2.0));
/// # Ok::<(), tidegate_control::ControlError>(())
/// ```
#[derive(Debug)]
pub struct PeakEwma {
    /// Zero before the first sample.
    packed: AtomicU64,
    time_constant_ms: f64,
}

impl PeakEwma {
    /// `time_constant` is the time after which 37 % of a peak is left.
    pub fn new(time_constant: Duration) -> Result<Self, ControlError> {
        Ok(Self {
            packed: AtomicU64::new(0),
            time_constant_ms: 1e3 * require_time("time_constant", time_constant)?,
        })
    }

    /// Takes one sample, a cost that is zero or more; one that is not finite is skipped.
    pub fn on_sample(&self, now: Timestamp, sample: f64) {
        if !sample.is_finite() {
            return;
        }
        let update = |packed: u64| Some(pack(self.after(packed, now, sample), now));
        let _ = self
            .packed
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, update);
    }

    /// Forgets all samples and starts from one.
    pub fn restart(&self, now: Timestamp, sample: f64) {
        self.packed.store(pack(sample, now), Ordering::Relaxed);
    }

    /// The decayed peak at `now`, once there was a sample.
    #[must_use]
    pub fn value(&self, now: Timestamp) -> Option<f64> {
        let packed = self.packed.load(Ordering::Relaxed);
        let (peak, past) = self.unpack(packed, now);
        (packed != 0).then_some(peak * past)
    }

    fn after(&self, packed: u64, now: Timestamp, sample: f64) -> f64 {
        let (peak, past) = self.unpack(packed, now);
        if packed == 0 || sample > peak {
            return sample;
        }
        peak * past + sample * (1.0 - past)
    }

    /// The peak and what is left of its weight after the time since.
    fn unpack(&self, packed: u64, now: Timestamp) -> (f64, f64) {
        let peak = f64::from(f32::from_bits((packed >> 32) as u32));
        // Two cores may read the clock in either order: a little negative is no time at all.
        let elapsed_ms = (millis(now).wrapping_sub(packed as u32) as i32).max(0);
        let past = (-f64::from(elapsed_ms) / self.time_constant_ms).exp();
        (peak, past)
    }
}

fn pack(value: f64, now: Timestamp) -> u64 {
    // At least the smallest normal number: zero stands for "no sample".
    let bits = (value as f32).max(f32::MIN_POSITIVE).to_bits();
    u64::from(bits) << 32 | u64::from(millis(now))
}

fn millis(at: Timestamp) -> u32 {
    (at.as_nanos() / 1_000_000) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rises_at_once_and_falls_with_age() {
        let filter = PeakEwma::new(Duration::from_secs(1)).unwrap();
        let at = Timestamp::from_secs_f64;
        assert_eq!(filter.value(at(0.0)), None);
        filter.on_sample(at(0.0), 8.0);
        filter.on_sample(at(1.0), 0.0);
        let expected = 8.0 * (-1.0_f64).exp();
        assert!((filter.value(at(1.0)).unwrap() - expected).abs() < 1e-6);
        filter.on_sample(at(1.0), 9.0);
        assert_eq!(filter.value(at(1.0)), Some(9.0));
    }

    #[test]
    fn burst_of_good_news_in_one_instant_does_not_hide_the_peak() {
        let filter = PeakEwma::new(Duration::from_secs(1)).unwrap();
        filter.on_sample(Timestamp::ZERO, 100.0);
        (0..1000).for_each(|_| filter.on_sample(Timestamp::ZERO, 1.0));
        assert_eq!(filter.value(Timestamp::ZERO), Some(100.0));
    }

    #[test]
    fn samples_that_are_not_finite_are_skipped() {
        let filter = PeakEwma::new(Duration::from_secs(1)).unwrap();
        filter.on_sample(Timestamp::ZERO, f64::INFINITY);
        assert_eq!(filter.value(Timestamp::ZERO), None);
    }
}

//! Time in the replica: what it is now, and how it is spread.

use super::tuning::Tuning;
use crate::monitor::{Histogram, Interval};

/// Time in the replica: what it is now, and how it is spread.
#[derive(Debug, Default)]
pub(crate) struct Residence {
    recent: Histogram,
    moments: Moments,
}

/// Sums of samples, the older the less they count.
#[derive(Debug, Default)]
struct Moments {
    count: f64,
    sum: f64,
    squares: f64,
}

impl Moments {
    fn add(&mut self, new: &Histogram) {
        let kept = Tuning::SERVICE_TIME_MOMENTS_FADE.per_tick();
        let fade = |old: f64, new: f64| old * kept + new;
        let mean = new.mean_seconds().unwrap_or(0.0);
        self.count = fade(self.count, new.count());
        self.sum = fade(self.sum, new.count() * mean);
        self.squares = fade(self.squares, new.sum_of_squares());
    }
}

impl Residence {
    /// Takes a tick.
    pub(crate) fn on_tick(&mut self, interval: &Interval) {
        if interval.residence.count() <= 0.0 {
            return;
        }
        self.recent.fade(Tuning::SERVICE_TIME_FADE.per_tick());
        self.recent.merge(&interval.residence);
        self.moments.add(&interval.residence);
    }

    /// Mean of late.
    pub(crate) fn mean(&self) -> Option<f64> {
        self.recent.mean_seconds()
    }

    /// The median, once there are enough to have one.
    pub(crate) fn typical(&self) -> Option<f64> {
        let enough = self.recent.count() >= Tuning::SERVICE_TIME_COMPLETIONS.get();
        self.recent.quantile_seconds(0.5).filter(|_| enough)
    }

    /// A quantile, in seconds; 0 before the first sample.
    pub(crate) fn quantile(&self, q: f64) -> f64 {
        self.recent.quantile_seconds(q).unwrap_or(0.0)
    }

    /// Squared coefficient of variation; 0 while it is not known.
    pub(crate) fn variation(&self) -> f64 {
        let Moments {
            count,
            sum,
            squares,
        } = self.moments;
        if count < Tuning::SERVICE_TIME_COMPLETIONS.get() {
            return 0.0;
        }
        count * squares / (sum * sum) - 1.0
    }

    /// A high quantile over the mean: what most requests stay below.
    pub(crate) fn spread(&self, q: f64) -> f64 {
        if self.recent.count() < Tuning::SERVICE_TIME_COMPLETIONS.get() {
            return 2.0;
        }
        let quantile = self.recent.quantile_seconds(q);
        let ratio = quantile.zip(self.mean()).map(|(q, mean)| q / mean);
        ratio
            .unwrap_or(2.0)
            .clamp(1.0, Tuning::SERVICE_TIME_SPREAD_MAX.get())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::monitor::AtomicHistogram;

    fn interval(millis: &[u64]) -> Interval {
        let samples = AtomicHistogram::new();
        for &millis in millis {
            samples.record(Duration::from_millis(millis));
        }
        let mut interval = Interval::default();
        samples.drain_into(&mut interval.residence);
        interval
    }

    #[test]
    fn variation_is_known_after_a_while_and_lasts() {
        let mut residence = Residence::default();
        residence.on_tick(&interval(&[10, 10, 10]));
        assert_eq!(residence.variation(), 0.0);
        // Of twenty nineteen take 10 ms and one 200: mean 19.5 ms.
        let mut twenty = [10; 20];
        twenty[0] = 200;
        (0..200).for_each(|_| residence.on_tick(&interval(&twenty)));
        let exact = 0.05 * 0.95 * (190.0_f64 / 19.5).powi(2);
        assert!((residence.variation() / exact - 1.0).abs() < 0.2);
        (0..10).for_each(|_| residence.on_tick(&interval(&[10; 20])));
        assert!(residence.variation() > 0.5 * exact);
    }
}

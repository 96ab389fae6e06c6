//! Time in the replica: what it is now, and how it is spread.

use crate::monitor::{Histogram, Interval};

/// What is left of the past after a tick: a time constant of three seconds at ten ticks a second.
const FADE: f64 = 0.967;

/// Samples from which on a shape is one.
const SHAPE_SAMPLES: f64 = 50.0;

/// Bounds of the ratio of a high quantile to the mean.
const SPREAD_MAX: f64 = 10.0;

/// See the module's description.
#[derive(Debug, Default)]
pub(crate) struct Residence {
    recent: Histogram,
}

impl Residence {
    /// Takes a tick.
    pub(crate) fn on_tick(&mut self, interval: &Interval) {
        if interval.residence.count() <= 0.0 {
            return;
        }
        self.recent.fade(FADE);
        self.recent.merge(&interval.residence);
    }

    /// Mean of late.
    pub(crate) fn mean(&self) -> Option<f64> {
        self.recent.mean_seconds()
    }

    /// A quantile, in seconds; 0 before the first sample.
    pub(crate) fn quantile(&self, q: f64) -> f64 {
        self.recent.quantile_seconds(q).unwrap_or(0.0)
    }

    /// A high quantile over the mean: what most requests stay below.
    pub(crate) fn spread(&self, q: f64) -> f64 {
        if self.recent.count() < SHAPE_SAMPLES {
            return 2.0;
        }
        let quantile = self.recent.quantile_seconds(q);
        let ratio = quantile.zip(self.mean()).map(|(q, mean)| q / mean);
        ratio.unwrap_or(2.0).clamp(1.0, SPREAD_MAX)
    }
}

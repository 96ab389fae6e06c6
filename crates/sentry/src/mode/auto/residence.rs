//! Time in the replica: what it is now, how it is spread, and what it is without a crowd.

use crate::monitor::{Histogram, Interval};

/// What is left of the past after a tick: a time constant of three seconds at ten ticks a second.
const FADE: f64 = 0.967;

/// Samples from which on a shape is one.
const SHAPE_SAMPLES: f64 = 50.0;

/// Bounds of the ratio of a high quantile to the mean.
const SPREAD_MAX: f64 = 5.0;

/// Share of a new sample in the base residence.
const BASE_WEIGHT: f64 = 0.05;

/// See the module's description.
#[derive(Debug, Default)]
pub(crate) struct Residence {
    recent: Histogram,
    base: Option<f64>,
    base_p99: Option<f64>,
}

impl Residence {
    /// Takes a tick; `quiet` when requests met an almost idle service.
    pub(crate) fn on_tick(&mut self, interval: &Interval, quiet: bool) {
        if interval.residence.count() <= 0.0 {
            return;
        }
        self.recent.fade(FADE);
        self.recent.merge(&interval.residence);
        if quiet && self.recent.count() >= SHAPE_SAMPLES {
            follow(&mut self.base, self.recent.mean_seconds());
            follow(&mut self.base_p99, self.recent.quantile_seconds(0.99));
        }
    }

    /// Mean of late.
    pub(crate) fn mean(&self) -> Option<f64> {
        self.recent.mean_seconds()
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

    /// Mean without a crowd, if that was ever seen.
    pub(crate) fn base(&self) -> Option<f64> {
        self.base
    }

    /// 99th percentile without a crowd, if that was ever seen.
    pub(crate) fn base_p99(&self) -> Option<f64> {
        self.base_p99
    }

    /// The service became faster or slower by a factor.
    pub(crate) fn scale(&mut self, factor: f64) {
        self.base = self.base.map(|base| base * factor);
        self.base_p99 = self.base_p99.map(|p99| p99 * factor);
    }
}

fn follow(value: &mut Option<f64>, sample: Option<f64>) {
    let Some(sample) = sample else { return };
    *value = Some(value.map_or(sample, |value| value + BASE_WEIGHT * (sample - value)));
}

//! How long decisions take, waiting excluded.

use std::time::Duration;

use hdrhistogram::Histogram;
use parking_lot::Mutex;
use serde::Serialize;

/// Longer times count as this.
const LONGEST: Duration = Duration::from_secs(10);

/// A histogram of times, to a percent or so.
#[derive(Debug)]
pub(crate) struct Latency(Mutex<Histogram<u64>>);

/// Quantiles, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Quantiles {
    count: u64,
    p50_us: f64,
    p99_us: f64,
    max_us: f64,
}

impl Latency {
    pub(crate) fn new() -> Self {
        let longest = LONGEST.as_nanos() as u64;
        let histogram = Histogram::new_with_max(longest, 2).expect("the bounds are valid");
        Self(Mutex::new(histogram))
    }

    pub(crate) fn record(&self, took: Duration) {
        self.0.lock().saturating_record(took.as_nanos() as u64);
    }

    pub(crate) fn quantiles(&self) -> Quantiles {
        let histogram = self.0.lock();
        let us = |nanos: u64| nanos as f64 / 1e3;
        Quantiles {
            count: histogram.len(),
            p50_us: us(histogram.value_at_quantile(0.5)),
            p99_us: us(histogram.value_at_quantile(0.99)),
            max_us: us(histogram.max()),
        }
    }
}

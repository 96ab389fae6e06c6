//! A target where the operator gave none: what the service needs when it is just busy.
//!
//! ```text
//! target = max(8 S, 2 p99, 60 / r)
//! ```
//!
//! with the base service time `S`, the 99th percentile of the same, and
//! the drain rate `r`: time for some waiting on top of service, for nearly every request by itself,
//! and for the queues that chance brings about at four fifths of the capacity. It moves slowly.

use super::tuning::Tuning;
use crate::clamp::within;
use crate::config::AutoConfig;

/// A target where the operator gave none: what the service needs when it is just busy.
#[derive(Debug)]
pub(crate) struct DerivedTarget {
    seconds: f64,
    least: f64,
    most: f64,
}

impl DerivedTarget {
    pub(crate) fn new(config: &AutoConfig) -> Self {
        let (least, most) = range(config);
        Self {
            seconds: within(Tuning::TARGET_FIRST_SECONDS.get(), least, most),
            least,
            most,
        }
    }

    pub(crate) fn reconfigure(&mut self, config: &AutoConfig) {
        (self.least, self.most) = range(config);
        self.seconds = within(self.seconds, self.least, self.most);
    }

    pub(crate) fn seconds(&self) -> f64 {
        self.seconds
    }

    /// Takes the base service time, its 99th percentile, and the drain rate where known.
    pub(crate) fn follow(&mut self, base: f64, p99: f64, drain: Option<f64>) {
        let queue = drain.map_or(0.0, |drain| Tuning::TARGET_REQUESTS.get() / drain);
        let wanted = (Tuning::TARGET_SERVICE_TIMES.get() * base)
            .max(Tuning::TARGET_TAILS.get() * p99)
            .max(queue);
        let share = Tuning::INTERVAL.get().as_secs_f64() / Tuning::TARGET_FOLLOWING_SECONDS.get();
        let step = share * (within(wanted, self.least, self.most) - self.seconds);
        self.seconds = within(self.seconds + step, self.least, self.most);
    }
}

fn range(config: &AutoConfig) -> (f64, f64) {
    let least = config.target_min.as_secs_f64();
    (least, config.target_max.as_secs_f64().max(least))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn approaches_what_the_service_needs_within_its_bounds() {
        let mut target = DerivedTarget::new(&AutoConfig::default());
        assert_eq!(target.seconds(), 0.5);
        (0..200).for_each(|_| target.follow(0.02, 0.08, Some(1000.0)));
        assert!((target.seconds() - 0.16).abs() < 0.01);
        (0..200).for_each(|_| target.follow(10.0, 40.0, None));
        assert!((target.seconds() - 5.0).abs() < 0.01);
        (0..200).for_each(|_| target.follow(f64::NAN, f64::NAN, Some(f64::NAN)));
        assert!(target.seconds() >= 0.1);
    }
}

//! Second moments of the times between arrivals and of the service times, for the control plane.
//!
//! The variance of the times between arrivals comes from counts per tick: for a renewal process the
//! variance of a count over its mean tends to the squared coefficient of variation of the gaps (Cox
//! 1962). That costs a request nothing. Service times are those of the histogram of service times.
//! Both are remembered for about a minute.
//!
//! What breaks it: a rate that changes within seconds counts as variation.

use super::Interval;
use crate::status::{MomentsStatus, TimesStatus};

/// Time constant of what is remembered.
const MEMORY_SECONDS: f64 = 60.0;
/// Time constant of the rate that counts are compared with.
const RATE_SECONDS: f64 = 10.0;
/// A tick that expects less than this says nothing about the variance.
const EXPECTED_MIN: f64 = 0.5;

/// Moments of about the last minute.
#[derive(Debug, Default)]
pub(crate) struct MomentsMeter {
    rate: Option<f64>,
    /// Variance of counts over their mean.
    dispersion: Option<f64>,
    /// Arrivals that are remembered.
    arrivals: f64,
    /// Count, sum and sum of squares of service times.
    service: [f64; 3],
}

impl MomentsMeter {
    /// Takes what happened in a tick.
    pub(crate) fn on_tick(&mut self, tick: &Interval) {
        if tick.seconds <= 0.0 {
            return;
        }
        let kept = (-tick.seconds / MEMORY_SECONDS).exp();
        let arrived = tick.counts.arrived as f64;
        self.arrivals = self.arrivals * kept + arrived;
        self.learn_dispersion(arrived, tick.seconds, 1.0 - kept);
        let times = &tick.residence;
        let sum = times.mean_seconds().unwrap_or(0.0) * times.count();
        let new = [times.count(), sum, times.sum_of_squares()];
        for (known, new) in self.service.iter_mut().zip(new) {
            *known = *known * kept + new;
        }
    }

    fn learn_dispersion(&mut self, arrived: f64, seconds: f64, newest: f64) {
        let rate = self.rate.unwrap_or(arrived / seconds);
        let expected = rate * seconds;
        if expected >= EXPECTED_MIN {
            let seen = (arrived - expected).powi(2) / expected;
            let known = self.dispersion.unwrap_or(1.0);
            self.dispersion = Some(known + newest * (seen - known));
        }
        let follow = -(-seconds / RATE_SECONDS).exp_m1();
        self.rate = Some(rate + follow * (arrived / seconds - rate));
    }

    pub(crate) fn status(&self) -> MomentsStatus {
        let gap = self.rate.filter(|rate| *rate > 0.0).map(|rate| 1.0 / rate);
        let gaps = gap.zip(self.dispersion).map(|(mean, scv)| TimesStatus {
            count: self.arrivals,
            mean,
            square: (1.0 + scv) * mean * mean,
        });
        let [count, sum, squares] = self.service;
        let service = (count >= 1.0).then(|| TimesStatus {
            count,
            mean: sum / count,
            square: squares / count,
        });
        MomentsStatus { gaps, service }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ticks of 100 ms with these counts, in turn.
    fn meter(counts: &[u64]) -> MomentsMeter {
        let mut meter = MomentsMeter::default();
        for turn in 0..6_000 {
            let mut tick = Interval {
                seconds: 0.1,
                ..Interval::default()
            };
            tick.counts.arrived = counts[turn % counts.len()];
            meter.on_tick(&tick);
        }
        meter
    }

    fn gaps_scv(counts: &[u64]) -> f64 {
        let gaps = meter(counts).status().gaps.expect("arrivals");
        gaps.square / (gaps.mean * gaps.mean) - 1.0
    }

    #[test]
    fn regular_arrivals_have_no_variance_and_bursts_have_much() {
        assert!(gaps_scv(&[10]) < 0.01);
        // Mean 10, variance 10: as Poisson arrivals have it.
        let poisson = gaps_scv(&[10, 13, 7, 10, 6, 14, 10, 13, 7]);
        assert!((0.5..1.5).contains(&poisson), "{poisson}");
        assert!(gaps_scv(&[0, 0, 0, 40]) > 10.0);
    }

    #[test]
    fn nothing_is_known_before_anything_came() {
        let status = MomentsMeter::default().status();
        assert_eq!((status.gaps, status.service), (None, None));
    }
}

//! How long a request typically takes: the median, without a list of requests.
//!
//! A crowd makes every request take longer, and so the median as well as the mean. A few requests
//! for a page that takes long by itself raise the mean alone. Only the first says that requests
//! hold each other up.
//!
//! The logarithm `m` of the median follows each sample by a step (Robbins and Monro 1951):
//!
//! ```text
//! m += c / k   where ln t > m,    m -= c / k   where ln t < m
//! ```
//!
//! for the `k`-th sample `t`. With `c = 1 / 2 f(m)` and the density `f` of `ln t` it is as exact as
//! the median of a list; for exponential times that is [`Tuning::TYPICAL_STEP`].
//!
//! Requests that take [`Tuning::TYPICAL_LONG`] times as long are left out, unless they are the
//! most: otherwise the median of exponential times rises by two fifths where one request in five is
//! long.
//!
//! What breaks it: a service half of whose answers come from a cache. Their time is the median, and
//! a crowd behind the cache does not show in it; throughput does.

use super::tuning::Tuning;

/// How long a request typically takes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Typical {
    samples: f64,
    /// Requests that took far longer.
    long: f64,
    ln_seconds: f64,
}

impl Typical {
    /// Takes how long a request took; where there is no guess, the first is one.
    pub(super) fn learn(&mut self, seconds: f64, guess: Option<Self>) {
        let ln = seconds.max(f64::MIN_POSITIVE).ln();
        if self.samples <= 0.0 {
            self.ln_seconds = guess.map_or(ln, |guess| guess.ln_seconds);
        }
        if ln > self.ln_seconds + Tuning::TYPICAL_LONG.get().ln() && self.is_exception() {
            self.long += 1.0;
            return;
        }
        self.samples += 1.0;
        let most = Tuning::PROFILE_COMPLETIONS_MAX.get();
        if self.samples > most {
            self.long *= most / self.samples;
            self.samples = most;
        }
        let step = Tuning::TYPICAL_STEP.get() / self.samples;
        // No further than the sample.
        self.ln_seconds += (ln - self.ln_seconds).clamp(-step, step);
    }

    /// Whether one more that took far longer leaves those the fewer.
    fn is_exception(self) -> bool {
        self.long < self.samples.max(Tuning::TYPICAL_COMPLETIONS.get())
    }

    /// Both together.
    pub(super) fn plus(self, other: Self) -> Self {
        let samples = self.samples + other.samples;
        if samples <= 0.0 {
            return self;
        }
        let sum = self.samples * self.ln_seconds + other.samples * other.ln_seconds;
        Self {
            samples,
            long: self.long + other.long,
            ln_seconds: sum / samples,
        }
    }

    /// Whether anything was seen.
    pub(super) fn is_known(self) -> bool {
        self.samples > 0.0
    }

    /// How many times as long as the other, where enough was seen of both.
    pub(super) fn over(self, other: Self) -> Option<f64> {
        let least = Tuning::TYPICAL_COMPLETIONS.get();
        let known = self.samples >= least && other.samples >= least;
        known.then(|| (self.ln_seconds - other.ln_seconds).exp())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Dice;

    fn of(times: impl Iterator<Item = f64>) -> Typical {
        let mut typical = Typical::default();
        times.for_each(|time| typical.learn(time, None));
        typical
    }

    #[test]
    fn typical_time_is_the_median() {
        let dice = Dice::new(5);
        let exponential = of((0..400).map(|_| -0.1 * dice.unit().max(1e-9).ln()));
        let ratio = exponential.over(of([0.1; 400].into_iter())).unwrap();
        assert!(
            (ratio / std::f64::consts::LN_2 - 1.0).abs() < 0.2,
            "{ratio}"
        );
    }

    #[test]
    fn typical_time_is_that_of_most_whatever_the_others_take() {
        let one_in_five = (0..400).map(|n| if n % 5 == 0 { 3.0 } else { 0.02 });
        let ratio = of(one_in_five).over(of([0.02; 20].into_iter())).unwrap();
        assert!((0.9..1.1).contains(&ratio), "{ratio}");
    }

    #[test]
    fn typical_time_follows_a_crowd_within_few_requests() {
        let calm = of([0.02; 40].into_iter());
        let mut crowd = Typical::default();
        (0..15).for_each(|_| crowd.learn(0.06, Some(calm)));
        let ratio = crowd.over(calm).unwrap();
        assert!((2.9..3.1).contains(&ratio), "{ratio}");
    }

    #[test]
    fn typical_time_of_few_requests_is_not_compared() {
        let calm = of([0.02; 40].into_iter());
        assert_eq!(of([0.02; 4].into_iter()).over(calm), None);
        assert_eq!(Typical::default().over(calm), None);
    }
}

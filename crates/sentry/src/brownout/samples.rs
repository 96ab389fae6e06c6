//! The samples of one sampling period.

/// Collects the samples between two ticks; its memory is reused.
///
/// A sample that is negative or not finite is ignored and counted: one broken clock must not move
/// a controller.
#[derive(Debug, Clone, Default)]
pub struct TickSamples {
    seconds: Vec<f64>,
    bad: u64,
}

impl TickSamples {
    /// Adds one sample.
    pub fn push(&mut self, seconds: f64) {
        if seconds.is_finite() && seconds >= 0.0 {
            self.seconds.push(seconds);
        } else {
            self.bad += 1;
        }
    }

    /// The mean, where there is any sample.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        let count = self.seconds.len();
        (count > 0).then(|| self.seconds.iter().sum::<f64>() / count as f64)
    }

    /// The `q`-quantile with linear interpolation between the two nearest ranks, where there is
    /// any sample. Reorders the samples, which have no order anyway.
    #[must_use]
    pub fn quantile(&mut self, q: f64) -> Option<f64> {
        let last = self.seconds.len().checked_sub(1)?;
        let rank = q.clamp(0.0, 1.0) * last as f64;
        let below = rank.floor() as usize;
        let (_, &mut low, above) = self.seconds.select_nth_unstable_by(below, f64::total_cmp);
        let high = above.iter().copied().fold(f64::INFINITY, f64::min);
        let part = rank - below as f64;
        Some(if part > 0.0 {
            low + part * (high - low)
        } else {
            low
        })
    }

    /// How many samples this period has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.seconds.len()
    }

    /// Whether this period has no sample.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.seconds.is_empty()
    }

    /// How many samples were ever refused.
    #[must_use]
    pub fn bad(&self) -> u64 {
        self.bad
    }

    /// Begins the next period.
    pub fn clear(&mut self) {
        self.seconds.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(values: &[f64]) -> TickSamples {
        let mut samples = TickSamples::default();
        values.iter().for_each(|&value| samples.push(value));
        samples
    }

    #[test]
    fn quantiles_interpolate_between_ranks() {
        let mut five = samples(&[5.0, 1.0, 4.0, 2.0, 3.0]);
        assert_eq!(five.quantile(0.5), Some(3.0));
        assert_eq!(five.quantile(1.0), Some(5.0));
        assert_eq!(five.quantile(0.0), Some(1.0));
        assert!((five.quantile(0.95).unwrap() - 4.8).abs() < 1e-12);
        assert_eq!(samples(&[7.0]).quantile(0.95), Some(7.0));
        assert_eq!(samples(&[]).quantile(0.95), None);
    }

    #[test]
    fn bad_samples_are_counted_and_ignored() {
        let broken = samples(&[f64::NAN, f64::INFINITY, -1.0, 2.0]);
        assert_eq!(broken.mean(), Some(2.0));
        assert_eq!(broken.bad(), 3);
    }
}

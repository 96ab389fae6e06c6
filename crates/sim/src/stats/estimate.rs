//! A mean with its confidence interval.

use serde::Serialize;
use statrs::distribution::{ContinuousCDF, StudentsT};

use super::Moments;

/// A mean of independent samples, with the half-width of its confidence interval.
///
/// `mean ± t(1 - (1 - level)/2, n - 1) · sd / √n` (Student 1908). Right when the samples are
/// independent and nearly normal: means of long repetitions, or of batches longer than the
/// correlation. Wrong for single response times, which are neither.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Estimate {
    /// The mean.
    pub mean: f64,
    /// The true mean lies within this of it, with the chance `level`; infinite with fewer than two
    /// samples.
    pub half_width: f64,
    /// The chance, such as 0.95.
    pub level: f64,
    /// How many samples.
    pub samples: u64,
}

impl Estimate {
    /// From independent samples, such as one number per repetition.
    #[must_use]
    pub fn from_samples(samples: &[f64], level: f64) -> Self {
        // Without a difference: moments of infinite numbers are none.
        if let [first, second, ..] = *samples
            && first == second
            && samples.iter().all(|&sample| sample == first)
        {
            return Self {
                mean: first,
                half_width: 0.0,
                level,
                samples: samples.len() as u64,
            };
        }
        Self::from_moments(&samples.iter().copied().collect(), level)
    }

    /// From the moments of independent samples.
    #[must_use]
    pub fn from_moments(moments: &Moments, level: f64) -> Self {
        let samples = moments.count();
        let half_width = match samples {
            0 | 1 => f64::INFINITY,
            n => student_t(level, n - 1) * moments.sd() / (n as f64).sqrt(),
        };
        Self {
            mean: moments.mean(),
            half_width,
            level,
            samples,
        }
    }

    /// Whether `value` lies within the interval.
    #[must_use]
    pub fn contains(&self, value: f64) -> bool {
        (value - self.mean).abs() <= self.half_width
    }

    /// Half-width over mean: the relative precision.
    #[must_use]
    pub fn precision(&self) -> f64 {
        (self.half_width / self.mean).abs()
    }
}

impl std::fmt::Display for Estimate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.5} ± {:.5}", self.mean, self.half_width)
    }
}

/// Two-sided quantile of Student's law.
fn student_t(level: f64, freedom: u64) -> f64 {
    StudentsT::new(0.0, 1.0, freedom as f64)
        .map_or(f64::INFINITY, |law| law.inverse_cdf(0.5 + level / 2.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_tables() {
        for (level, freedom, expected) in [
            (0.95, 1, 12.706),
            (0.95, 9, 2.262),
            (0.99, 19, 2.861),
            (0.999, 9, 4.781),
            (0.95, 1000, 1.962),
        ] {
            let t = student_t(level, freedom);
            assert!((t - expected).abs() < 1e-3, "t({level}, {freedom}) = {t}");
        }
    }

    #[test]
    fn the_interval_is_centred_on_the_mean() {
        let estimate = Estimate::from_samples(&[9.0, 10.0, 11.0], 0.95);
        assert_eq!(estimate.mean, 10.0);
        assert!((estimate.half_width - 4.3027 / 3f64.sqrt()).abs() < 1e-3);
        assert!(estimate.contains(8.0) && !estimate.contains(7.0));
    }

    #[test]
    fn one_sample_proves_nothing() {
        let estimate = Estimate::from_samples(&[1.0], 0.95);
        assert!(estimate.contains(1e300));
    }
}
